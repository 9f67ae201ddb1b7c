"""Whole training loops beside plain PyTorch and Opacus: lots drawn and fetched, steps, optimizer, and calibration.

A step on a given lot (training.py) leaves out what a user also waits for. Each contender trains the same perceptron for
as many steps, in lots of 256, on made-up rows. The contenders take turns in one process; the median processor time
counts. Drawing alone is measured for populations up to 10^8. The tables replace this script's section of RESULTS.md.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from results import THREADS, deliver, draw_growth, environment, show_table

ROWS, FEATURES, LOT = (32_561, 1_000_000), 123, 256
# Three epochs of the smaller table, on both.
STEPS = 3 * (32_561 // 256)
LEARNING_RATE, CLIP_NORM, EPSILON, DELTA = 0.1, 1.0, 3.0, 1e-7
POPULATIONS = (10_000, 1_000_000, 100_000_000)
PICTURE = Path(__file__).with_name("lots.svg")

_ASKED = count()

Loop = Callable[[Tensor, Tensor], None]


def _perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 2))


def by_loader(inputs: Tensor, targets: Tensor) -> None:
    """Plain PyTorch with a shuffling DataLoader, begun again until all steps are made."""
    model = _perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=LOT, shuffle=True, drop_last=True)
    done = 0
    while done < STEPS:
        for some, wanted in loader:
            optimizer.zero_grad()
            cross_entropy(model(some), wanted).backward()
            optimizer.step()
            done += 1
            if done == STEPS:
                break


def by_indexing(inputs: Tensor, targets: Tensor) -> None:
    """Plain PyTorch that takes the rows of a permutation by hand."""
    model = _perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    done = 0
    while done < STEPS:
        for rows in torch.randperm(len(inputs)).split(LOT)[: STEPS - done]:
            optimizer.zero_grad()
            cross_entropy(model(inputs[rows]), targets[rows]).backward()
            optimizer.step()
            done += 1


def by_tacit(inputs: Tensor, targets: Tensor, multiplier: float | None = None) -> None:
    """A private run with Poisson lots. Without a multiplier, the noise is computed from a budget first."""
    from tacit import Budget, Poisson, PrivateRun, methods

    model = _perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    run = PrivateRun(
        model,
        cross_entropy,
        data=(inputs, targets),
        mechanism=methods.dpsgd(CLIP_NORM, multiplier),
        sampling=Poisson(LOT, len(inputs)),
        steps=STEPS,
        # Never the same twice: a budget that was asked for before is answered from a cache.
        budget=None if multiplier else Budget(EPSILON + next(_ASKED) * 1e-6, DELTA),
    )
    for lot in run:
        run.backward(lot)
        optimizer.step()


def by_opacus(inputs: Tensor, targets: Tensor) -> None:
    """Opacus with its Poisson loader and noise of multiplier 1: its own calibration is left out."""
    from opacus import PrivacyEngine

    model = _perceptron()
    private, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        data_loader=DataLoader(TensorDataset(inputs, targets), batch_size=LOT),
        noise_multiplier=1.0,
        max_grad_norm=CLIP_NORM,
    )
    done = 0
    while done < STEPS:
        for some, wanted in loader:
            optimizer.zero_grad()
            cross_entropy(private(some), wanted).backward()
            optimizer.step()
            done += 1
            if done == STEPS:
                break


LOOPS: dict[str, Loop] = {
    "PyTorch, DataLoader": by_loader,
    "PyTorch, indexing": by_indexing,
    "tacit": by_tacit,
    "tacit, multiplier given": partial(by_tacit, multiplier=1.0),
    "Opacus": by_opacus,
}


def measure(rows: int, names: list[str], rounds: int) -> dict[str, list[float]]:
    """Seconds of processor time of each contender's loop, in turns; the first round warms up."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, FEATURES, generator=generator)
    targets = (inputs[:, 0] > 0).long()
    times: dict[str, list[float]] = {name: [] for name in names}
    for done in range(rounds + 1):
        for name in names:
            gc.collect()
            start = time.process_time()
            LOOPS[name](inputs, targets)
            if done:
                times[name].append(time.process_time() - start)
                print(f"{rows:,} rows, {name}: {times[name][-1]:.2f} s", flush=True)
    return times


def measure_draws(population: int) -> float:
    """Seconds to draw one Poisson lot of 256."""
    from tacit import Poisson
    from tacit.randomness import Purpose, SecureSource

    source, sampling, times = SecureSource(), Poisson(LOT, population), []
    for step in range(400):
        start = time.process_time()
        sampling.lot(population, source.stream(Purpose.LOT, step))
        times.append(time.process_time() - start)
    return statistics.median(times)


def report(measured: dict[int, dict[str, list[float]]], names: list[str], taken: list[tuple[int, float]]) -> str:
    """The section: loops, then draws."""
    header = ("rows", *names)
    lines = []
    for rows, times in measured.items():
        medians = {name: statistics.median(times[name]) for name in names}
        base = medians[names[0]]
        lines.append((f"{rows:,}", *(f"{medians[name]:.2f} s ({medians[name] / base:.2f}×)" for name in names)))
    draws = [(f"{population:,}", f"{each:.3f} ms") for population, each in taken]
    return "\n\n".join(
        [
            "## Loops: what a user waits for",
            environment(("tacit", "opacus", "torch", "numpy")),
            f"A perceptron of {FEATURES}, 16 and 2 units, {STEPS} steps in lots of {LOT}, SGD: drawing and fetching "
            "lots, gradients, noise, optimizer. Without a given multiplier, tacit first finds the noise for a budget. "
            "Processor time on one thread, median of interleaved rounds, with a load of "
            f"{os.getloadavg()[0]:.0f} on the machine. In brackets: how many times the plain loop with a DataLoader.",
            show_table([header, *lines]),
            f"### Drawing a Poisson lot of {LOT}",
            show_table([("population", "one draw"), *draws]),
            f"![Time of one draw over the population]({PICTURE.name})",
        ]
    )


def main() -> None:
    """Measure and write, or with --quick measure a little and print."""
    parser = argparse.ArgumentParser(description="Compare whole training loops with plain PyTorch and with Opacus.")
    parser.add_argument("--quick", action="store_true", help="the smaller table, without Opacus, printed, not written")
    parser.add_argument("--rounds", type=int, default=5, help="how often each loop is measured")
    parser.add_argument("--output", type=Path, help="the file whose section is rewritten (default: RESULTS.md here)")
    chosen = parser.parse_args()
    for name in THREADS:
        os.environ[name] = "1"
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable()
    names = [name for name in LOOPS if not (chosen.quick and name == "Opacus")]
    tables = ROWS[:1] if chosen.quick else ROWS
    measured = {rows: measure(rows, names, chosen.rounds) for rows in tables}
    taken = [(population, 1000 * measure_draws(population)) for population in POPULATIONS]
    if not chosen.quick:
        draw_growth(PICTURE, "population", "milliseconds", {f"one Poisson lot of {LOT}": taken})
    deliver("loops", report(measured, names, taken), chosen.output, printed=chosen.quick)


if __name__ == "__main__":
    main()
