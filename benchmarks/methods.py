"""What a step of every gradient method costs beside one of DP-SGD, on the MNIST network: time and memory.

Measured as training.py does it: every method in a process of its own, in turns, processor time on one thread, the
median step; memory in fresh processes. The table replaces what stands between this script's markers in RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from contenders import CLIP_NORM, CONTENDERS, LEARNING_RATE, MULTIPLIER, PLANNED, Step
from networks import NETWORKS
from results import RESULTS, THREADS, environment, show_table, write_section
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from training import Effort, Row, compare, failure_table, show_ratio

PACKAGES = ("tacit", "torch", "numpy")
NETWORK, BASE = "MNIST CNN", "dpsgd"
# A method that needs norms only should stay close to DP-SGD; one that needs every coordinate may take longer.
NORMS_ONLY, EVERY_COORDINATE = 1.15, 3.0
COORDINATES = {"adaclip", "directional", "directional (l2)", "encoded"}


def _forms() -> dict[str, Callable[..., object]]:
    from tacit import methods

    return {
        **methods.GRADIENT_METHODS,
        "directional (l2)": partial(methods.directional, objective="l2"),
        "directional (one scale a parameter)": partial(methods.directional, grain="parameter"),
        "directional (w = 1)": partial(methods.directional, variant="w1"),
        "directional (floored)": partial(methods.directional, variant="floored"),
    }


def by_form(name: str) -> Callable[[nn.Module, Tensor, Tensor], Step]:
    """A method in its rigorous form on a run whose every lot is the whole of its data."""

    def prepare(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
        from tacit import FullBatch, PrivateRun

        run = PrivateRun(
            model,
            cross_entropy,
            data=(inputs, targets),
            mechanism=_forms()[name](CLIP_NORM, MULTIPLIER),
            sampling=FullBatch(len(inputs)),
            steps=PLANNED,
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        lots = iter(run)

        def step() -> float:
            lot = next(lots)
            start = time.process_time()
            run.backward(lot)
            optimizer.step()
            return time.process_time() - start

        return step

    return prepare


# Spawned processes import this script too, so that they find these contenders beside those of training.py.
CONTENDERS.update({name: by_form(name) for name in _forms()})


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
    effort = Effort(chosen.limit, 0.1, 5, 6.0) if chosen.quick else Effort(chosen.limit, 0.3, 25, 60.0)
    section = report(compare(NETWORKS[NETWORK], names, effort), names)
    if chosen.quick and chosen.output is None:
        print("\n" + section)
    else:
        write_section(chosen.output or RESULTS, "methods", section)
    print(f"\n{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
