"""Every ERM method on the six tables of Kang et al.: accuracy and optimality gap, by claim and by certified epsilon.

    python experiments/erm/experiment.py --data FOLDER_WITH_ALL_TABLES

In paper form a method gets the noise that its authors prescribe for epsilon: the comparison by claim. In rigorous form
it gets the noise that is certified for epsilon. The optimality gap is the regularised training objective less its
minimum; accuracy is on test rows that are taken as public. Every fit is one line of results.jsonl, written when it
ends: started again, the script does what is missing. At the end the tables in README.md are written anew.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from contenders import CONTENDERS, Contender
from tables import SOURCES, Table, read

from tacit.convex import Logistic, Loss, Minimiser, Multinomial, Problem, prepare
from tacit.errors import InvalidArgument

FOLDER = Path(__file__).parent
EPSILONS = (0.1, 1.0, 7.0)
DELTA = 1e-5
# Rows have norm 1 at most, and the intercept adds a 1 to each.
DATA_NORM = 2**0.5
LARGE, SEEDS_OF_LARGE, SEEDS_OF_SMALL = 10_000, 3, 10
NO_NOISE = "without noise"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


@dataclass(frozen=True)
class Outcome:
    """One fit. `certified` is null where nothing is proven, `refused` says why there was no fit."""

    table: str
    method: str
    epsilon: float | None
    seed: int
    accuracy: float | None = None
    gap: float | None = None
    certified: float | None = None
    status: str = ""
    adjacency: str = ""
    unprotected: str = ""
    refused: str = ""

    @property
    def key(self) -> tuple[str, str, float | None, int]:
        """What identifies the fit."""
        return self.table, self.method, self.epsilon, self.seed


def loss_for(table: Table) -> Loss:
    """Two classes or a softmax."""
    return Logistic() if table.classes == 2 else Multinomial(table.classes)


def accuracy(table: Table, coef: np.ndarray, intercept: np.ndarray) -> float:
    """The share of test rows whose class is found."""
    x, y = table.test
    scores = x @ coef.T + intercept
    found = (scores[:, 0] > 0).astype(int) if table.classes == 2 else scores.argmax(axis=1)
    return float(np.mean(found == y))


def problem_of(table: Table) -> Problem:
    """What is to be minimised."""
    settings = {"regularisation": table.regularisation, "data_norm": DATA_NORM}
    return prepare(*table.train, loss=loss_for(table), **settings)


def fit(contender: Contender, table: Table, problem: Problem, least: float, epsilon: float, seed: int) -> Outcome:
    """One private fit, judged."""
    name = table.name, contender.name
    settings = {"loss": problem.loss, "regularisation": table.regularisation, "data_norm": DATA_NORM}
    settings |= {"epsilon": epsilon, "delta": None if contender.pure else DELTA, "seed": seed, **contender.settings}
    try:
        found = contender.fit(*table.train, **settings)
    except InvalidArgument as error:
        return Outcome(*name, epsilon, seed, refused=str(error).split(". ")[0])
    coef, intercept = np.asarray(found.coef), np.asarray(found.intercept)
    gap = problem.objective(np.concatenate([coef.T, intercept[None]])) - least
    # What is proven does not depend on the seed, and some proofs take a second.
    certified = found.guarantee.epsilon(DELTA) if seed == 0 else math.inf
    return Outcome(
        *name,
        epsilon,
        seed,
        accuracy(table, coef, intercept),
        gap,
        certified if math.isfinite(certified) else None,
        str(found.guarantee.status),
        found.guarantee.adjacency.value,
        ", ".join(found.guarantee.unprotected),
    )


def run(table: Table, contenders: Iterable[Contender], seeds: int, path: Path) -> None:
    """All fits of one table that are not on file yet."""
    done = {outcome.key for outcome in on_file(path)}
    problem = problem_of(table)
    theta = Minimiser().fit(problem)
    least = problem.objective(theta)
    with path.open("a") as file:
        if (table.name, NO_NOISE, None, 0) not in done:
            _write(file, Outcome(table.name, NO_NOISE, None, 0, accuracy(table, theta[:-1].T, theta[-1]), 0.0))
        for contender in contenders:
            for epsilon in EPSILONS:
                for seed in range(seeds):
                    if (table.name, contender.name, epsilon, seed) not in done:
                        outcome = fit(contender, table, problem, least, epsilon, seed)
                        _write(file, outcome)
                        if outcome.refused:
                            break


def _write(file, outcome: Outcome) -> None:
    file.write(json.dumps(asdict(outcome)) + "\n")
    file.flush()


def on_file(path: Path) -> list[Outcome]:
    """What has been fitted before."""
    if not path.exists():
        return []
    return [Outcome(**json.loads(line)) for line in path.read_text().splitlines()]


def as_markdown(outcomes: list[Outcome]) -> str:
    """A table per data set: rows are methods, columns are epsilons."""
    parts = []
    for name in dict.fromkeys(outcome.table for outcome in outcomes):
        here = [outcome for outcome in outcomes if outcome.table == name]
        bare = next(outcome for outcome in here if outcome.method == NO_NOISE)
        lines = [f"### {name}", f"Without noise: accuracy {100 * bare.accuracy:.1f} %."]
        header = "| method | " + " | ".join(f"ε = {e:g}: accuracy, gap, certified" for e in EPSILONS) + " |"
        rows = [header, "|---" * (len(EPSILONS) + 1) + "|"]
        for method in dict.fromkeys(outcome.method for outcome in here if outcome.method != NO_NOISE):
            cells = [_cell([o for o in here if o.method == method and o.epsilon == e]) for e in EPSILONS]
            rows.append(f"| {method} | " + " | ".join(cells) + " |")
        parts.append("\n\n".join([*lines, "\n".join(rows)]))
    return "\n\n".join(parts)


def _cell(outcomes: list[Outcome]) -> str:
    if not outcomes or outcomes[0].refused:
        return "refused" if outcomes else "–"
    hits = statistics.mean(100 * outcome.accuracy for outcome in outcomes)
    gap = statistics.mean(outcome.gap for outcome in outcomes)
    first = next(outcome for outcome in outcomes if outcome.seed == 0)
    proven = "nothing proven" if first.certified is None else f"{first.certified:.3g}"
    without = f" without {first.unprotected}" if first.unprotected and first.certified is not None else ""
    return f"{hits:.1f} %, {gap:.2g}, {proven}{without}"


def main() -> None:
    """Fit what is missing, and write the tables."""
    parser = argparse.ArgumentParser(description="Compare ERM methods on the tables of Kang et al.")
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds all tables")
    parser.add_argument("--only", nargs="*", choices=list(SOURCES), default=list(SOURCES), help="these tables")
    parser.add_argument("--methods", nargs="*", default=[], help="methods whose name contains one of these")
    parser.add_argument("--results", type=Path, default=FOLDER / "results.jsonl", help="where outcomes are kept")
    options = parser.parse_args()
    wanted = [c for c in CONTENDERS if not options.methods or any(part in c.name for part in options.methods)]
    for name in options.only:
        table = read(name, options.data)
        seeds = SEEDS_OF_LARGE if len(table.train[0]) > LARGE else SEEDS_OF_SMALL
        run(table, wanted, seeds, options.results)
    readme = FOLDER / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n\n{as_markdown(on_file(options.results))}\n\n{END}{after}")


if __name__ == "__main__":
    main()
