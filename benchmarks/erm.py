"""Private logistic regression beside scikit-learn's own, on the same data in the same run, on one thread.

Each contender fits Adult (32,561 examples, 123 features) at the same regularisation, taking turns, so that whatever
else the machine does meets all of them alike; the median processor time counts. Private fits include everything:
clipping, calibration, solver with certificate, noise and guarantee. The tables replace what stands between this
script's two markers in RESULTS.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from results import RESULTS, environment, show_table, write_section
from tacit.datasets import load
from tacit.erm import FullDescent, Logistic, NoisyDescent, PermutedDescent, individual_descent
from tacit.methods.gradient_perturbation import gradient_perturbation
from tacit.methods.objective_perturbation import objective_perturbation
from tacit.methods.output_perturbation import output_perturbation

PACKAGES = ("tacit", "scikit-learn", "numpy", "scipy")
REGULARISATIONS = (1e-4, 1e-3, 1e-2)
# Rows of a9a have at most 14 ones, and one more for the intercept.
DATA_NORM = 15**0.5
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
PEER = "scikit-learn"
EXPECTED = {"output": 3.0, "objective": 3.0}

# Takes features, labels and regularisation.
Fit = Callable[[Any, Any, float], object]


def private(method: Callable[..., Any], **settings: Any) -> Fit:
    """A private fit of this method."""

    def fit(x: Any, y: Any, regularisation: float) -> object:
        common = {"loss": Logistic(), "regularisation": regularisation, "data_norm": DATA_NORM, **BUDGET}
        return method(x, y, **common, **settings)

    return fit


def ordinary(x: Any, y: Any, regularisation: float) -> object:
    """scikit-learn with its own solver and tolerance."""
    return LogisticRegression(C=1 / (len(x) * regularisation), max_iter=1000).fit(x, y)


CONTENDERS: dict[str, Fit] = {
    PEER: ordinary,
    "output": private(output_perturbation),
    "objective": private(objective_perturbation),
    "output, passes": private(output_perturbation, training=PermutedDescent()),
    "output, descent": private(output_perturbation, training=FullDescent(50)),
    "gradient, 50 steps": private(gradient_perturbation, training=NoisyDescent(50)),
    "individual": private(individual_descent),
}


def measure(x: Any, y: Any, rounds: int) -> dict[float, dict[str, list[float]]]:
    """Processor seconds by regularisation and contender; everyone fits once before the clock starts."""
    times: dict[float, dict[str, list[float]]] = {}
    for regularisation in REGULARISATIONS:
        times[regularisation] = {name: [] for name in CONTENDERS}
        for turn in range(rounds + 1):
            for name, fit in CONTENDERS.items():
                start = time.process_time()
                fit(x, y, regularisation)
                if turn > 0:
                    times[regularisation][name].append(time.process_time() - start)
    return times


def section(times: dict[float, dict[str, list[float]]], rounds: int) -> str:
    """The whole section as Markdown."""
    rows = [("regularisation", *CONTENDERS)]
    worst = dict.fromkeys(EXPECTED, 0.0)
    for regularisation, found in times.items():
        medians = {name: statistics.median(each) for name, each in found.items()}
        ratios = {name: median / medians[PEER] for name, median in medians.items()}
        cells = [_cell(name, medians[name], ratios[name]) for name in CONTENDERS]
        rows.append((f"{regularisation:g}", *cells))
        worst = {name: max(worst[name], ratios[name]) for name in EXPECTED}
    verdicts = [
        f"- {name} perturbation takes at most {worst[name]:.2f} times scikit-learn's time (expected: {most:g})."
        for name, most in EXPECTED.items()
    ]
    return "\n\n".join(
        [
            "## Private logistic regression beside scikit-learn's",
            environment(PACKAGES),
            "\n".join(verdicts),
            f"Adult, 32,561 × 123, epsilon 1 at delta 1e-5: the median of {rounds} fits; in brackets, how many times "
            "that of scikit-learn.",
            show_table(rows),
        ]
    )


def _cell(name: str, median: float, ratio: float) -> str:
    shown = f"{1000 * median:.3g} ms"
    return shown if name == PEER else f"{shown} ({ratio:.2f}×)"


def main() -> None:
    """Measure and write, or with --quick measure a little and print."""
    parser = argparse.ArgumentParser(description="Compare private logistic regression with scikit-learn's.")
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds a9a and a9a.t")
    parser.add_argument("--quick", action="store_true", help="three fits each, printed and not written")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the file whose section is rewritten")
    options = parser.parse_args()
    inputs, labels = load("adult", options.data).train
    rounds = 3 if options.quick else 9
    with threadpool_limits(1):
        written = section(measure(inputs.astype(np.float64), labels, rounds), rounds)
    print(written)
    if not options.quick:
        write_section(options.output, "erm", written)


if __name__ == "__main__":
    main()
