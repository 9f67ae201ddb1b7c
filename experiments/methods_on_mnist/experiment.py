"""Every gradient method in its rigorous form on MNIST, at equal certified epsilon: how accurate, over several seeds.

    python -m experiments.methods_on_mnist.experiment --data FOLDER_WITH_MNIST

Every run is one line of results.jsonl, written when it ends: started again, the script does what is missing. At the end
the table in README.md is written anew. The learning rate of each form is the one of a few whose worst run at one
epsilon is best, by its accuracy on 5,000 training images that were held out; the test images choose nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from experiments.library import finite
from experiments.library.records import machine, today
from torch.nn.functional import cross_entropy

from tacit import Budget, Poisson, PrivateRun, datasets, methods
from tacit.datasets import Data
from tacit.stages.mechanism import Mechanism
from tacit.training.fit import fit
from tacit.workflows.defaults import network_for
from tacit.workflows.scoring import score

FOLDER = Path(__file__).parent
DELTA, LOT_SIZE, CLIP_NORM = 1e-5, 512, 1.0
LEARNING_RATES = (0.5, 2.0, 8.0)
# Learning rates are chosen by runs with these seeds at this epsilon, on training images that they did not see. One seed
# would not do: a rate at which training sometimes diverges may look best once.
TUNING_SEEDS, TUNING_EPSILON, HELD_OUT = (-1, -11), 1.0, 5_000
# Adam's step does not grow with the gradient: it has a scale of its own.
ADAM_FACTOR = 1e-3
# The same stages and the same optimizer. So is directional noise with w = 1.
SAME_AS_DPSGD = ("noisy_sgd",)
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"

Make = Callable[..., Mechanism]


def forms() -> dict[str, Make]:
    """Every method by its name, and variants of some; but once only what is the same but for its name."""
    others: dict[str, Make] = {
        "directional (l2)": partial(methods.directional, objective="l2"),
        "directional (l1, one scale a parameter)": partial(methods.directional, grain="parameter"),
        "directional (l2, one scale a parameter)": partial(methods.directional, objective="l2", grain="parameter"),
        "directional (floored)": partial(methods.directional, variant="floored"),
        "pruned (mask from past releases)": partial(methods.pruned, select_by="past"),
    }
    named = {name: make for name, make in methods.GRADIENT_METHODS.items() if name not in SAME_AS_DPSGD}
    return {**named, **others}


@dataclass(frozen=True)
class Outcome:
    """One run: what was asked for, what is proven, and how well the model does on the test images."""

    form: str
    epsilon: float
    seed: int
    learning_rate: float
    epochs: float
    multiplier: float
    certified: float
    accuracy: float
    seconds: float
    date: str
    machine: str

    @property
    def setting(self) -> tuple[str, float, int, float, float]:
        """What tells it from other runs."""
        return self.form, self.epsilon, self.seed, self.learning_rate, self.epochs


def train(data: Data, form: str, epsilon: float, seed: int, learning_rate: float, epochs: float) -> Outcome:
    """One private run. The seed makes it reproducible, and not for release."""
    started = time.process_time()
    torch.manual_seed(abs(seed))
    data = _held_out(data) if seed in TUNING_SEEDS else data
    model = network_for("cnn", data)
    run = PrivateRun(
        model,
        cross_entropy,
        data=data.train,
        mechanism=forms()[form](CLIP_NORM),
        sampling=Poisson(LOT_SIZE, data.population),
        steps=round(epochs * data.population / LOT_SIZE),
        budget=Budget(epsilon, DELTA),
        seed=abs(seed),
    )
    if form == "noisy_adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate * ADAM_FACTOR)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    fit(run, optimizer)
    # Who diverged answers with no numbers, and gets nothing right.
    accuracy = finite(score(model, data).value) or 0.0
    certified = run.guarantee().epsilon(DELTA)
    seconds = time.process_time() - started
    found = (run.multiplier, certified, accuracy, seconds, today(), machine())
    return Outcome(form, epsilon, seed, learning_rate, epochs, *found)


@dataclass(frozen=True)
class Results:
    """The runs so far, one a line of a file."""

    path: Path

    def read(self) -> list[Outcome]:
        """All of them."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [Outcome(**json.loads(line)) for line in lines]

    def add(self, outcome: Outcome) -> None:
        """One more."""
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")


def _held_out(data: Data) -> Data:
    """The last training images in the place of the test images."""
    (inputs, targets), kept = data.train, slice(None, -HELD_OUT)
    return replace(data, train=(inputs[kept], targets[kept]), test=(inputs[-HELD_OUT:], targets[-HELD_OUT:]))


def best_rate(outcomes: list[Outcome], form: str, epochs: float) -> float:
    """The learning rate whose worst run on the images held out is best."""
    tried = [o for o in outcomes if (o.form, o.epochs) == (form, epochs) and o.seed in TUNING_SEEDS]
    rates = dict.fromkeys(outcome.learning_rate for outcome in tried)
    return max(rates, key=lambda rate: min(o.accuracy for o in tried if o.learning_rate == rate))


def missing(results: Results, chosen: argparse.Namespace) -> Iterator[tuple[str, float, int, float, float]]:
    """The settings that were not run yet: first those that choose a learning rate, then the others with that one."""
    for form in chosen.only or forms():
        tuning = [(form, TUNING_EPSILON, seed, rate, chosen.epochs) for seed in TUNING_SEEDS for rate in LEARNING_RATES]
        yield from (setting for setting in tuning if setting not in _done(results))
        rate = best_rate(results.read(), form, chosen.epochs)
        seeds = [
            (form, epsilon, seed, rate, chosen.epochs) for epsilon in chosen.epsilon for seed in range(chosen.seeds)
        ]
        yield from (setting for setting in seeds if setting not in _done(results))


def _done(results: Results) -> set[tuple[str, float, int, float, float]]:
    return {outcome.setting for outcome in results.read()}


def table(outcomes: list[Outcome], epochs: float) -> str:
    """Mean and spread of the accuracy over seeds, by form and epsilon."""
    rates = {form: best_rate(outcomes, form, epochs) for form in dict.fromkeys(o.form for o in outcomes)}
    outcomes = [
        o for o in outcomes if o.epochs == epochs and o.seed not in TUNING_SEEDS and o.learning_rate == rates[o.form]
    ]
    budgets = sorted({outcome.epsilon for outcome in outcomes})
    head = "| method, rigorous form | " + " | ".join(f"ε = {epsilon:g}" for epsilon in budgets) + " | rate |"
    lines = [head, "|---" * (len(budgets) + 2) + "|"]
    for form in dict.fromkeys(outcome.form for outcome in outcomes):
        cells = [_cell([o for o in outcomes if (o.form, o.epsilon) == (form, epsilon)]) for epsilon in budgets]
        lines.append(f"| {form} | " + " | ".join([*cells, f"{rates[form]:g}"]) + " |")
    return "\n".join(lines)


def _cell(outcomes: list[Outcome]) -> str:
    found = [100 * outcome.accuracy for outcome in outcomes]
    if not found:
        return "not run"
    spread = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
    return f"{statistics.mean(found):.1f} %{spread}"


def write_table(outcomes: list[Outcome], epochs: float) -> None:
    """Put the table between its markers in README.md."""
    readme = FOLDER / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    about = (
        f"Epochs: {epochs:g}. Lots of {LOT_SIZE}, clip norm {CLIP_NORM:g}, delta {DELTA:g}; accuracy on 10,000 test "
        "images, mean and standard deviation over seeds."
    )
    readme.write_text(f"{before}{BEGIN}\n{about}\n\n{table(outcomes, epochs)}\n{END}{after}")


def main() -> None:
    """Run what is missing, one run after the other, on one thread."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", required=True, help="folder or .npz file with MNIST")
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(forms()), help="some forms only")
    parser.add_argument("--out", type=Path, default=FOLDER / "results.jsonl")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data, results = datasets.load("mnist", chosen.data), Results(chosen.out)
    for setting in missing(results, chosen):
        outcome = train(data, *setting)
        results.add(outcome)
        print(
            f"{outcome.form}, epsilon {outcome.certified:.4f}, seed {outcome.seed}, rate {outcome.learning_rate:g}: "
            f"{100 * outcome.accuracy:.2f} % in {outcome.seconds:.0f} s",
            flush=True,
        )
    if chosen.out == FOLDER / "results.jsonl":
        write_table(results.read(), chosen.epochs)
    else:
        print(table(results.read(), chosen.epochs))


if __name__ == "__main__":
    main()
