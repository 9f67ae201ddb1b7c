"""Random allocation: how tight its certified bounds are, how long they take, and what a simulation says of them.

    python benchmarks/allocation.py

Every example is in exactly one lot of each epoch, at random. The first two settings are those for which published code
leaves intervals of 3 to 5 per cent. For the simulation, privacy losses are drawn from their exact law.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from results import THREADS, deliver, environment, show_table

DELTA = 1e-5
# A simulation of few draws sees this delta, and not a smaller one.
SEEN = 1e-2
# Normal numbers that a simulation draws, and those of them at a time.
NUMBERS, AT_ONCE = 50_000_000, 2_000_000
CACHE = type(functools.lru_cache(lambda: None))


@dataclass(frozen=True)
class Setting:
    """`epochs` epochs of `lots` lots each, and the interval that published code leaves, where it is known."""

    multiplier: float
    lots: int
    epochs: int
    published: str = "–"


SETTINGS = (
    Setting(1.0, 100, 10, "1.658 to 1.745"),
    Setting(0.7, 100, 20, "5.737 to 5.899"),
    Setting(0.5, 100, 1),
    Setting(0.6, 234, 10),
    Setting(0.8, 1_000, 5),
    Setting(0.7, 234, 60),
    Setting(2.0, 59, 100),
)


def certify(setting: Setting, delta: float, repetitions: int) -> tuple[float, float, float]:
    """Both certified bounds, and the median seconds that they take with empty caches."""
    from tacit.accounting import Allocated, Gaussian, curve

    seconds = []
    for _ in range(repetitions):
        for thing in gc.get_objects():
            if type(thing) is CACHE and str(thing.__module__).partition(".")[0] == "tacit":
                thing.cache_clear()
        start = time.process_time()
        event = Allocated(Gaussian(setting.multiplier), setting.lots, setting.lots) * setting.epochs
        lower, upper = curve(event).epsilon_bounds(delta)
        seconds.append(time.process_time() - start)
    return lower, upper, statistics.median(seconds)


def cost_of_poisson(setting: Setting) -> float:
    """The same noise on Poisson lots of the same size."""
    from tacit.accounting import Gaussian, curve

    steps = setting.lots * setting.epochs
    return curve(Gaussian(setting.multiplier).sampled(1 / setting.lots) * steps).epsilon(DELTA)


def simulate(setting: Setting, numbers: int) -> str:
    """The simulated delta with its standard error, and the certified bounds, at one epsilon."""
    from tacit.accounting import Allocated, Gaussian, curve

    total = curve(Allocated(Gaussian(setting.multiplier), setting.lots, setting.lots) * setting.epochs)
    epsilon = total.epsilon(SEEN)
    rng = np.random.default_rng(0)
    draws = max(numbers // (setting.lots * setting.epochs), 1)
    at_once = max(AT_ONCE // setting.lots, 1)
    found = (0.0, 0.0)
    for added in (False, True):
        gains = []
        for start in range(0, draws, at_once):
            count = min(at_once, draws - start)
            loss = sum(_draw_losses(setting, rng, count, added) for _ in range(setting.epochs))
            gains.append(np.maximum(-np.expm1(epsilon - loss), 0.0))
        every = np.concatenate(gains)
        found = max(found, (float(every.mean()), float(every.std() / np.sqrt(len(every)))))
    lower, upper = total.delta_bounds(epsilon)
    return f"{found[0]:.3g} ± {found[1]:.1g} ({lower:.4g} to {upper:.4g})"


def _draw_losses(setting: Setting, rng: np.random.Generator, count: int, added: bool) -> NDArray[np.float64]:
    """Losses of one epoch: of an example that is removed, or added."""
    shift = 1 / setting.multiplier
    x = rng.standard_normal((count, setting.lots), dtype=np.float32)
    if not added:
        x[:, 0] += np.float32(shift)
    x *= np.float32(shift)
    np.exp(x, out=x)
    loss = np.log(x.mean(axis=1, dtype=np.float64)) - shift**2 / 2
    return -loss if added else loss


def main() -> None:
    """Measure and write, or with --quick measure a little and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two settings and few draws, printed and not written")
    parser.add_argument("--output", type=Path, help="the file whose section is rewritten (default: RESULTS.md here)")
    chosen = parser.parse_args()
    for name in THREADS:
        os.environ[name] = "1"
    rows = [
        (
            "multiplier",
            "lots × epochs",
            "Poisson",
            "published",
            "certified",
            "width",
            "seconds",
            "simulated δ (certified)",
        )
    ]
    for setting in SETTINGS[: 2 if chosen.quick else None]:
        lower, upper, seconds = certify(setting, DELTA, 1 if chosen.quick else 3)
        rows.append(
            (
                f"{setting.multiplier:g}",
                f"{setting.lots:,} × {setting.epochs}",
                f"{cost_of_poisson(setting):.4g}",
                setting.published,
                f"{lower:.5g} to {upper:.5g}",
                f"{(upper - lower) / upper:.1e}",
                f"{seconds:.2f}",
                simulate(setting, NUMBERS // (40 if chosen.quick else 1)),
            )
        )
        print(*rows[-1], sep="  ", flush=True)
    section = "\n\n".join(
        [
            "## Random allocation: ε at equal noise, certified on both sides",
            environment(("tacit", "numpy", "scipy")),
            f"ε at δ = {DELTA:g}: of Poisson lots, of random allocation by published code, and certified here; the "
            "width is relative. Seconds are processor time of both bounds with empty caches, the median of three. The "
            f"last column is the δ at the ε that is certified for δ = {SEEN:g}: simulated, with its standard error, "
            "and certified.",
            show_table(rows),
        ]
    )
    deliver("allocation", section, chosen.output, printed=chosen.quick)


if __name__ == "__main__":
    main()
