"""What a step of every gradient method costs beside one of DP-SGD, on the MNIST network: time and memory.

Measured as training.py does it: all methods in one process in turns, and again in another, processor time on one
thread, the median step; memory in fresh processes. The table replaces what stands between this script's markers in
RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from contenders import CLIP_NORM, CONTENDERS, MULTIPLIER, by_tacit
from networks import NETWORKS
from results import THREADS, deliver, environment, show_table
from training import Effort, Row, compare, failure_table, show_ratio

if TYPE_CHECKING:
    from tacit.stages.mechanism import Mechanism

PACKAGES = ("tacit", "torch", "numpy")
NETWORK, BASE = "MNIST CNN", "dpsgd"
# A method that needs norms only should stay close to DP-SGD; one that needs every coordinate may take longer.
NORMS_ONLY, EVERY_COORDINATE = 1.15, 3.0
COORDINATES = {"adaclip", "directional", "directional (l2)", "encoded"}


def _forms() -> dict[str, Callable[..., Mechanism]]:
    from tacit import methods

    return {
        **methods.GRADIENT_METHODS,
        "directional (l2)": partial(methods.directional, objective="l2"),
        "directional (one scale a parameter)": partial(methods.directional, grain="parameter"),
        "directional (w = 1)": partial(methods.directional, variant="w1"),
        "directional (floored)": partial(methods.directional, variant="floored"),
    }


# Spawned processes import this script too, so that they find these contenders beside those of training.py.
CONTENDERS.update({name: by_tacit(partial(form, CLIP_NORM, MULTIPLIER)) for name, form in _forms().items()})


def expected(name: str) -> float:
    """How many times as long as DP-SGD a step may take."""
    return EVERY_COORDINATE if name in COORDINATES else NORMS_ONLY


def report(row: Row, names: list[str]) -> str:
    """The whole section."""
    base = row.memory.get(BASE, float("nan"))
    lines = [
        (
            name,
            f"{1000 * row.median(name):.3g} ms" if row.times[name] else "failed",
            show_ratio(row.ratio(name, BASE)),
            f"{expected(name):g}×",
            f"{row.memory.get(name, float('nan')):.0f} MB ({show_ratio(row.memory.get(name, float('nan')) / base)})",
        )
        for name in names
        if name != "ordinary"
    ]
    late = [name for name in names if name != "ordinary" and not row.ratio(name, BASE) <= expected(name)]
    return "\n\n".join(
        [
            "## Methods: a step of each beside one of DP-SGD",
            environment(PACKAGES),
            f"{NETWORK}, lots of {row.network.lot}, rigorous forms, processor time on one thread, median over "
            "interleaved blocks; memory at the peak beyond model, lot and loaded code. Ratios are to dpsgd.",
            show_table([("method", "step", "ratio", "at most", "memory"), *lines]),
            "Every method stays within what is expected of it."
            if not late
            else f"Slower than expected: {', '.join(late)}.",
            "### No answer",
            failure_table([row]),
        ]
    )


def main() -> None:
    """Measure and write, or with --quick measure a little and print."""
    parser = argparse.ArgumentParser(description="Compare a step of every method with one of DP-SGD.")
    parser.add_argument("--quick", action="store_true", help="few rounds, printed and not written")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one block of steps may take")
    parser.add_argument("--output", type=Path, help="the file whose section is rewritten (default: RESULTS.md here)")
    chosen = parser.parse_args()
    for name in THREADS:
        os.environ[name] = "1"
    started = time.perf_counter()
    names = ["ordinary", *_forms()]
    effort = Effort(chosen.limit, 0.1, 1, 5, 6.0) if chosen.quick else Effort(chosen.limit, 0.3, 3, 12, 120.0)
    section = report(compare(NETWORKS[NETWORK], names, effort), names)
    deliver("methods", section, chosen.output, printed=chosen.quick)
    print(f"\n{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
