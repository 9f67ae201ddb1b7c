"""People with several rows: lots of people, beside a run on rows whose guarantee is widened by group privacy.

Both protect one person. By rows, at most K rows of each person are kept, and the noise is raised until a group of K
rows is protected. They are compared at the same epsilon by accuracy, and at the same accuracy by epsilon.
Run `python benchmarks/people.py [ml-100k.inter] --write`.
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
from results import deliver, environment
from tacit.accounting import Gaussian, curve

DELTA, SEEDS, STEPS, RATE = 1e-5, 5, 100, 0.2
# Halvings of the interval of multipliers, and the smallest one.
HALVINGS, LEAST = 6, 0.5


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
    epsilons: tuple[float, ...]
    # The clip norm of a run on rows; the learning rate was found to be the same.
    clip_norm_of_rows: float

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
    return Task(
        "repeated patients", np.clip(x, -2, 2).astype(np.float32) / 2, y, person, 5, 2.0, 1.0, (0.1, 0.3, 1.0), 1.0
    )


def films(path: Path) -> Task:
    """MovieLens 100k: is a rating 4 or 5? A person rated 20 films or more; one weight per film."""
    rows = np.genfromtxt(path, skip_header=1, usecols=(0, 1, 2), dtype=np.int64)
    liked = (rows[:, 2] >= 4).astype(np.int64)
    return Task("MovieLens 100k", rows[:, 1:2], liked, rows[:, 0], 50, 3.0, 0.1, (1.0, 3.0, 8.0), 1.0)


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


def find_epsilon(multiplier: float, group: int) -> float:
    """What a run with this noise costs a group of rows."""
    return curve(Gaussian(multiplier).sampled(RATE) * STEPS).group(group).epsilon(DELTA)


def find_multiplier(epsilon: float, group: int) -> float:
    """The least noise, within half a percent, with which a group of rows is protected."""
    low, high = 0.3, 1.0
    while find_epsilon(high, group) > epsilon:
        low, high = high, 2 * high
    while high / low > 1.005:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if find_epsilon(middle, group) > epsilon else (low, middle)
    return high


def find_price(task: Task, accuracy: float, most_noise: float) -> str:
    """The epsilon that group privacy gives a person where a run on rows is as accurate, as text."""

    def is_as_good(multiplier: float) -> bool:
        found = [train(task, multiplier, seed, by_person=False) for seed in range(SEEDS)]
        return float(np.mean(found)) >= accuracy

    if is_as_good(most_noise):
        return f"{find_epsilon(most_noise, task.most):.3g} or less"
    low, high = LEAST, most_noise
    if not is_as_good(low):
        return f"more than {find_epsilon(low, task.most):.3g}"
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if is_as_good(middle) else (low, middle)
    return f"{find_epsilon(low, task.most):.3g}"


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
        mechanism=tacit.methods.dpsgd(task.clip_norm if by_person else task.clip_norm_of_rows, multiplier),
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
    heads = (
        "data",
        "K",
        "majority class",
        "epsilon",
        "lots of people",
        "rows, group privacy",
        "noise",
        "same accuracy",
    )
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for task in tasks:
        classes = [np.mean(task.y[task.split(seed)[1]]) for seed in range(SEEDS)]
        majority = f"{100 * np.mean([max(share, 1 - share) for share in classes]):.1f} %"
        for epsilon in task.epsilons:
            noise = [find_multiplier(epsilon, group) for group in (1, task.most)]
            found = [
                [train(task, multiplier, seed, by_person=by_person) for seed in range(SEEDS)]
                for multiplier, by_person in zip(noise, (True, False), strict=True)
            ]
            shown = [f"{100 * np.mean(each):.1f} ± {100 * np.std(each, ddof=1):.1f} %" for each in found]
            price = find_price(task, float(np.mean(found[0])), noise[1])
            line = f"| {task.name} | {task.most} | {majority} | {epsilon:g} | {shown[0]} | {shown[1]} |"
            line = f"{line} {noise[0]:.2f}, {noise[1]:.1f} | {price} |"
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
    about = (
        f"Accuracy on people who were not trained on, mean and deviation of {SEEDS} seeds, at the same epsilon for "
        f"a person (delta {DELTA:g}, {STEPS} steps, rate {RATE:g}). By rows, at most K rows of each person are kept, "
        "and the noise protects a group of K; both multipliers are given. The last column is the epsilon that group "
        "privacy gives a person where a run on rows is as accurate as lots of people. Learning rates and clip norms "
        "were chosen on the split of the first seed, for lots of people and for rows."
    )
    section = "\n".join(["## People with several rows", "", environment(["numpy", "torch"]), "", about, "", *lines])
    deliver("people", section, None, printed=not given.write)


if __name__ == "__main__":
    main()
