"""What cryptographic noise costs beside torch's own generator: both in one run, taking turns.

    python benchmarks/noise.py

The same job for both: add normal noise to a sum. Tacit draws it from AES-256 in counter mode and rounds what is
released to a public grid; torch draws from its Mersenne Twister, predictable to whoever has seen some hundred numbers,
and does not round. Processor time of one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from results import RESULTS, environment, show_table, write_section
from tacit.randomness import Purpose, SecureSource
from tacit.stages.noise import GaussianNoise
from tacit.types import BoundedSum

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
ALLOWED = 1.5


def measured(size: int, turns: int) -> tuple[float, float]:
    """Median seconds of tacit and of torch, taking turns."""
    total = torch.zeros(size)
    bounded, noise, source = BoundedSum({"weight": total}, 1.0), GaussianNoise(1.1), SecureSource()

    def ours() -> object:
        return noise.add(bounded, source.stream(Purpose.NOISE, 0))

    def theirs() -> object:
        return total + torch.normal(0.0, 1.1, total.shape)

    repeats = max(1, 20_000 // size)
    times: dict[Callable[[], object], list[float]] = {ours: [], theirs: []}
    for _ in range(turns):
        for job, taken in times.items():
            start = time.process_time_ns()
            for _ in range(repeats):
                job()
            taken.append((time.process_time_ns() - start) / 1e9 / repeats)
    return statistics.median(times[ours]), statistics.median(times[theirs])


def main() -> None:
    """Measure every size; write the section of RESULTS.md; fail if a million coordinates cost too much."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--dry-run", action="store_true", help="measure and print only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured(10_000, 3)
    rows = [("coordinates", "tacit", "torch", "ratio")]
    found: dict[int, float] = {}
    for size in SIZES:
        ours, theirs = measured(size, options.turns)
        found[size] = ours / theirs
        rows.append((f"{size:,}", f"{1e3 * ours:.3g} ms", f"{1e3 * theirs:.3g} ms", f"{ours / theirs:.2f}"))
    section = (
        "## Noise\n\nNormal noise on a sum: AES-256 and a public grid in tacit, torch's own generator beside it. "
        f"Processor time of one thread, median of {options.turns} turns, taken alternately.\n\n"
        f"{environment(['tacit', 'torch', 'numpy', 'cryptography'])}\n\n{show_table(rows)}"
    )
    print(section)
    if not options.dry_run:
        write_section(RESULTS, "noise", section)
    if found[1_000_000] > ALLOWED:
        raise SystemExit(
            f"A million coordinates cost {found[1_000_000]:.2f} times torch's; at most {ALLOWED} is wanted."
        )


if __name__ == "__main__":
    main()
