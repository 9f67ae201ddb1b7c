"""People with several rows: lots of people, beside a run on rows whose guarantee is widened by group privacy.

Both protect one person, at the same epsilon and delta. By rows, at most K rows of each person are kept, and the noise
is raised until a group of K rows is protected. Run `python benchmarks/people.py [ml-100k.inter] --write`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import tacit
from tacit.accounting import Gaussian, curve

EPSILONS, DELTA, SEEDS, STEPS, RATE = (0.5, 1.0, 3.0), 1e-5, 5, 100, 0.2
HEADING = "## People with several rows"


class FilmScores(nn.Module):
    """One weight for each film and class, and one for each class."""

    def __init__(self, films: int) -> None:
        super().__init__()
        self.films, self.all = nn.Embedding(films, 2), nn.Parameter(torch.zeros(2))

    def forward(self, film: torch.Tensor) -> torch.Tensor:
        """[rows, 2]."""
        scores: torch.Tensor = self.films(film[:, 0]) + self.all
        return scores


@dataclass(frozen=True)
class Task:
    """Rows with the person that owns each, a model of them, and the most rows of a person that are used."""

    name: str
    x: NDArray[np.float32] | NDArray[np.int64]
    y: NDArray[np.int64]
    person: NDArray[np.int64]
    most: int
    learning_rate: float
    clip_norm: float

    def model(self) -> nn.Module:
        """A linear model, of numbers or of films, with weights of zero."""
        made: nn.Module = nn.Linear(self.x.shape[1], 2)
        if self.x.dtype == np.int64:
            made = FilmScores(int(self.x.max()) + 1)
        for parameter in made.parameters():
            nn.init.zeros_(parameter)
        return made

    def split(self, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Rows of people to train on and rows of the other fifth of people."""
        people = np.unique(self.person)
        out = np.random.default_rng(seed).random(len(people)) < 0.2
        held = out[np.searchsorted(people, self.person)]
        return ~held, held


def patients() -> Task:
    """2,000 patients with 1 to 20 visits. Ten measurements differ by patient and by visit; two decide the outcome."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(2_000), np.minimum(rng.geometric(0.15, 2_000), 20))
    x = 0.7 * rng.normal(size=(2_000, 10))[person] + 0.7 * rng.normal(size=(len(person), 10))
    y = (x[:, 0] - x[:, 1] + 0.7 * rng.normal(size=len(person)) > 0).astype(np.int64)
    return Task("repeated patients", np.clip(x, -2, 2).astype(np.float32) / 2, y, person, 5, 2.0, 1.0)


def films(path: Path) -> Task:
    """MovieLens 100k: is a rating 4 or 5? A person rated 20 films or more; one weight per film."""
    rows = np.genfromtxt(path, skip_header=1, usecols=(0, 1, 2), dtype=np.int64)
    liked = (rows[:, 2] >= 4).astype(np.int64)
    return Task("MovieLens 100k", rows[:, 1:2], liked, rows[:, 0], 50, 1.0, 0.3)


def keep_some(task: Task, rows: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """At most so many rows of each person, drawn once."""
    places = rng.permutation(np.flatnonzero(rows))
    kept, count = [], dict[int, int]()
    for place in places:
        owner = int(task.person[place])
        count[owner] = count.get(owner, 0) + 1
        if count[owner] <= task.most:
            kept.append(place)
    return np.array(kept)


def find_multiplier(epsilon: float, group: int) -> float:
    """The least noise, within half a percent, with which a group of rows is protected."""

    def spent(multiplier: float) -> float:
        return curve(Gaussian(multiplier).sampled(RATE) * STEPS).group(group).epsilon(DELTA)

    low, high = 0.3, 1.0
    while spent(high) > epsilon:
        low, high = high, 2 * high
    while high / low > 1.005:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if spent(middle) > epsilon else (low, middle)
    return high


def train(task: Task, multiplier: float, seed: int, *, by_person: bool) -> float:
    """The accuracy on rows of people who were not trained on."""
    rows, held = task.split(seed)
    some = np.flatnonzero(rows) if by_person else keep_some(task, rows, np.random.default_rng(seed))
    # What is declared: people to train on, and for rows as many as all of them could have.
    population = round(0.8 * len(np.unique(task.person))) if by_person else len(some)
    people = {"unit": task.person[some], "rows_per_unit": task.most} if by_person else {}
    run = tacit.PrivateRun(
        task.model(),
        nn.functional.cross_entropy,
        data=(task.x[some], task.y[some]),
        mechanism=tacit.methods.dpsgd(clip_norm=task.clip_norm, multiplier=multiplier),
        sampling=tacit.Poisson(lot_size=RATE * population, population=population),
        steps=STEPS,
        seed=seed,
        **people,
    )
    optimizer = torch.optim.SGD(run.model.parameters(), lr=task.learning_rate, momentum=0.9)
    for lot in run:
        run.backward(lot)
        optimizer.step()
    with torch.no_grad():
        found = run.model(torch.from_numpy(task.x[held])).argmax(1).numpy()
    return float((found == task.y[held]).mean())


def measure(tasks: list[Task]) -> Iterator[str]:
    """The lines of the table."""
    yield "| data | rows of a person | epsilon | lots of people | rows, group privacy | noise |"
    yield "|---|---|---|---|---|---|"
    for task in tasks:
        for epsilon in EPSILONS:
            noise = [find_multiplier(epsilon, group) for group in (1, task.most)]
            found = [
                [train(task, multiplier, seed, by_person=by_person) for seed in range(SEEDS)]
                for multiplier, by_person in zip(noise, (True, False), strict=True)
            ]
            shown = [f"{100 * np.mean(each):.1f} ± {100 * np.std(each, ddof=1):.1f} %" for each in found]
            line = f"| {task.name} | {task.most} | {epsilon:g} | {shown[0]} | {shown[1]} |"
            line = f"{line} {noise[0]:.2f}, {noise[1]:.1f} |"
            print(line, flush=True)
            yield line


def main() -> None:
    """Measure, print, and write the table below its heading."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ratings", nargs="?", type=Path, help="your copy of MovieLens 100k (ml-100k.inter)")
    parser.add_argument("--write", action="store_true", help="write the table to RESULTS.md")
    given = parser.parse_args()
    tasks = [patients(), *([] if given.ratings is None else [films(given.ratings)])]
    lines = list(measure(tasks))
    if given.write:
        path = Path(__file__).with_name("RESULTS.md")
        before = path.read_text(encoding="utf-8").partition(HEADING)[0].rstrip()
        about = (
            f"Accuracy on people who were not trained on, mean and deviation of {SEEDS} seeds, at the same epsilon for "
            f"a person (delta {DELTA:g}, {STEPS} steps, rate {RATE:g}). By rows, at most as many rows of each "
            "person are kept, and the noise protects a group of so many. The last column holds both multipliers. "
            "`python benchmarks/people.py ml-100k.inter --write`."
        )
        path.write_text("\n".join([before, "", HEADING, "", about, "", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
