"""What a step costs with noise that is correlated over steps, beside one with independent noise: time and memory.

    python benchmarks/correlated.py

A step of DP-SGD on the MNIST network, and the noise alone on a million numbers. All kinds take turns in one process,
after enough steps that all past noise which a kind ever keeps is in memory. Processor time of one thread, medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from networks import NETWORKS
from results import THREADS, deliver, environment, show_table

if TYPE_CHECKING:
    from tacit.types import Noise, Sampling

NETWORK, NUMBERS = "MNIST CNN", 1_000_000
LOT, POPULATION, STEPS, APART = 256, 60_000, 3_072, 234
INDEPENDENT = "independent"


def kinds() -> dict[str, tuple[Noise, Sampling]]:
    """Every kind of noise, with the lots that it needs."""
    from tacit import CyclicPoisson, Poisson
    from tacit.stages.noise import BandedNoise, BufferedNoise, GaussianNoise, InverseBandedNoise, TreeNoise

    lots = Poisson(LOT, POPULATION)
    long = CyclicPoisson(LOT, POPULATION, groups=APART)
    found: dict[str, tuple[Noise, Sampling]] = {INDEPENDENT: (GaussianNoise(1.0), lots)}
    for bands in (8, 32):
        noise = BandedNoise(1.0, bands=bands, steps=STEPS)
        found[f"banded, {bands} bands"] = (noise, CyclicPoisson(LOT, POPULATION, groups=bands))
    found["buffered (BLT), 2 buffers"] = (BufferedNoise(1.0, steps=STEPS, apart=APART), long)
    found["inverse banded, 32 bands"] = (InverseBandedNoise(1.0, bands=32, steps=STEPS, apart=APART), long)
    found["tree"] = (TreeNoise(1.0, steps=STEPS, apart=APART), long)
    return found


@dataclass
class Measured:
    """Seconds of every step, seconds of every draw, and past noise in copies of what is drawn."""

    steps: list[float]
    draws: list[float]
    copies: float


def measure(warm_up: int, turns: int, each: int) -> dict[str, Measured]:
    """All kinds, taking turns of `each` steps."""
    steppers = {name: _stepper(noise, sampling) for name, (noise, sampling) in kinds().items()}
    drawers = {name: _drawer(noise) for name, (noise, _) in kinds().items()}
    found = {name: Measured([], [], 0.0) for name in steppers}
    for name in found:
        for _ in range(warm_up):
            steppers[name]()
            drawers[name][0]()
    for _ in range(turns):
        for name, measured in found.items():
            measured.steps += [steppers[name]() for _ in range(each)]
            measured.draws += [drawers[name][0]() for _ in range(each)]
    for name, measured in found.items():
        measured.copies = drawers[name][1]()
    return found


def _stepper(noise: Noise, sampling: Sampling) -> Callable[[], float]:
    """Seconds of the next step on one lot of fixed size: drawing the lot is not counted."""
    import torch

    from tacit.gradients import per_example_gradients
    from tacit.randomness import Purpose, SecureSource
    from tacit.stages.bounds import Clip
    from tacit.stages.mechanism import Mechanism

    model, inputs, targets = NETWORKS[NETWORK].prepared()
    optimizer, source = torch.optim.SGD(model.parameters(), lr=0.01), SecureSource()
    mechanism = Mechanism(Clip(1.0), noise)
    parameters = dict(model.named_parameters())
    state = mechanism.init({name: value.detach() for name, value in parameters.items()}, sampling.lot_size)
    numbers = iter(range(STEPS))

    def step() -> float:
        nonlocal state
        stream = source.stream(Purpose.NOISE, next(numbers))
        start = time.process_time()
        gradients = per_example_gradients(model, torch.nn.functional.cross_entropy, inputs, targets)
        bounded = mechanism.sum(gradients, state)
        release, state = mechanism.release_mean(bounded, state, stream, sampling.lot_size, is_ours=True)
        for name, value in release.values.items():
            parameters[name].grad = value
        optimizer.step()
        return time.process_time() - start

    return step


def _drawer(noise: Noise) -> tuple[Callable[[], float], Callable[[], float]]:
    """Seconds of the next draw for a million numbers; and how many copies of them are kept."""
    import torch

    from tacit.randomness import Purpose, SecureSource
    from tacit.stages.noise.banded import PastNoise
    from tacit.types import BoundedSum

    source, bounded = SecureSource(), BoundedSum({"weight": torch.zeros(NUMBERS)}, 1.0)
    numbers = iter(range(STEPS))

    def draw() -> float:
        stream = source.stream(Purpose.NOISE, next(numbers))
        start = time.process_time()
        noise.add(bounded, stream)
        return time.process_time() - start

    def copies() -> float:
        past: Any = source.stream(Purpose.NOISE, 0).recall("past noise", PastNoise)
        return sum(each.nbytes for each in past._past) / (4 * NUMBERS)

    return draw, copies


def report(found: dict[str, Measured]) -> str:
    """The whole section."""
    rows = [("noise", "a step", "ratio", "noise of a million numbers", "ratio", "past noise kept")]
    base = found[INDEPENDENT]
    for name, each in found.items():
        step, draw = statistics.median(each.steps), statistics.median(each.draws)
        rows.append(
            (
                name,
                f"{1e3 * step:.3g} ms",
                f"{step / statistics.median(base.steps):.2f}×",
                f"{1e3 * draw:.3g} ms",
                f"{draw / statistics.median(base.draws):.2f}×",
                f"{each.copies:.0f} copies" if each.copies else "none",
            )
        )
    return "\n\n".join(
        [
            "## Correlated noise: the price of a step",
            environment(("tacit", "torch", "numpy")),
            f"{NETWORK}, lots of {NETWORKS[NETWORK].lot}: gradients, clipping, sum, noise and SGD. Buffers, inverse "
            f"bands and trees are for {STEPS:,} steps, {APART} apart. Processor time on one thread, medians of "
            f"{len(base.steps)} steps and draws, taken in turns. Past noise is in single precision, in copies of the "
            "parameters; of the tree, the nodes that are open after the last of these steps.",
            show_table(rows),
        ]
    )


def main() -> None:
    """Measure and write, or with --quick measure a little and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few turns, printed and not written")
    parser.add_argument("--output", type=Path, help="the file whose section is rewritten (default: RESULTS.md here)")
    chosen = parser.parse_args()
    for name in THREADS:
        os.environ[name] = "1"
    import torch

    torch.set_num_threads(1)
    found = measure(40, 2, 4) if chosen.quick else measure(40, 12, 5)
    deliver("correlated", report(found), chosen.output, printed=chosen.quick)


if __name__ == "__main__":
    main()
