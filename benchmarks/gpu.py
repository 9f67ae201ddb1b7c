"""A private step beside an ordinary one on a GPU, noise made there, and how often a step waits for the device.

    python benchmarks/gpu.py

Times are by the clock, with the device waited for at both ends of a block of steps. On CUDA, torch itself counts the
calls that wait for the device in a step. The section stands between this script's markers in RESULTS.md; nobody has to
have a GPU to read the others. `--device cpu` tries the script itself, and prints.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from networks import NETWORKS, Network
from results import deliver, environment, show_table
from tacit import FullBatch, PrivateRun, methods
from tacit.randomness import Purpose, SecureSource
from tacit.stages.noise import GaussianNoise
from tacit.types import BoundedSum

SIZES = (1_000_000, 10_000_000, 100_000_000)
# Steps before the clock starts: the first lots are examined, and the device warms up.
WARM = 8
PACKAGES = ("tacit", "torch")
Step = Callable[[], None]


@dataclass(frozen=True)
class Measured:
    """Milliseconds of a step, ordinary and private, and how often the private one waits for the device."""

    network: Network
    lot: int
    ordinary: float
    private: float
    waits: int | None


def wait_for(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type != "cpu":
        torch.accelerator.synchronize()


def time_of(step: Step, device: torch.device, seconds: float) -> float:
    """Milliseconds of a step: the median over blocks."""
    wait_for(device)
    start = time.perf_counter()
    step()
    wait_for(device)
    block = max(1, min(100, int(0.1 / (time.perf_counter() - start))))
    taken: list[float] = []
    while sum(taken) < seconds or len(taken) < 3:
        start = time.perf_counter()
        for _ in range(block):
            step()
        wait_for(device)
        taken.append(time.perf_counter() - start)
    return 1e3 * statistics.median(taken) / block


def count_waits(step: Step, device: torch.device) -> int | None:
    """How often a step waits for the device; None where torch does not say."""
    if device.type != "cuda":
        return None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        step()
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(each.message) for each in told)


def measure(network: Network, scale: int, device: torch.device, seconds: float) -> Measured:
    """Both steps on one lot, on the device."""
    lot = scale * network.lot
    torch.manual_seed(0)
    model, twin = network.build().to(device), network.build().to(device)
    inputs, targets = network.inputs(lot).to(device), torch.randint(network.classes, (lot,)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def ordinary() -> None:
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    how = {"mechanism": methods.dpsgd(1.0, 1.0), "sampling": FullBatch(lot), "steps": 10**6}
    run = PrivateRun(twin, cross_entropy, data=(inputs, targets), **how)
    following, lots = torch.optim.SGD(twin.parameters(), lr=0.01), iter(run)

    def private() -> None:
        run.backward(next(lots))
        following.step()

    for step in (ordinary, private):
        for _ in range(WARM):
            step()
    waits = count_waits(private, device)
    return Measured(network, lot, time_of(ordinary, device, seconds), time_of(private, device, seconds), waits)


def noise_times(size: int, device: torch.device, seconds: float) -> tuple[float, float]:
    """Milliseconds of noise on a sum of so many numbers: ours, and torch's own generator."""
    total = torch.zeros(size, device=device)
    bounded, noise, source = BoundedSum({"weight": total}, 1.0), GaussianNoise(1.1), SecureSource()

    def ours() -> None:
        noise.mean_in_place(bounded, source.stream(Purpose.NOISE, 0), 1.0)

    def theirs() -> None:
        total.add_(torch.normal(0.0, 1.1, total.shape, device=device))

    return time_of(ours, device, seconds), time_of(theirs, device, seconds)


def report(rows: Sequence[Measured], noises: Sequence[tuple[int, float, float]], device: torch.device) -> str:
    """The section."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else device.type
    table = [("network", "lot", "ordinary", "tacit", "ratio", "waits in a step")]
    for row in rows:
        waits = "not counted" if row.waits is None else str(row.waits)
        times = f"{row.ordinary:.3g} ms", f"{row.private:.3g} ms", f"{row.private / row.ordinary:.2f}"
        table.append((row.network.name, f"{row.lot:,}", *times, waits))
    drawn = [("coordinates", "tacit", "torch", "ratio")]
    drawn += [(f"{size:,}", f"{a:.3g} ms", f"{b:.3g} ms", f"{a / b:.2f}") for size, a, b in noises]
    parts = [f"## A private step on {name}", environment(PACKAGES), "By the clock, median over blocks of steps."]
    return "\n\n".join([*parts, show_table(table), "Normal noise on a sum:", show_table(drawn)])


def main() -> None:
    """Measure all networks and write the section, or on a CPU print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="such as cuda:1, mps or cpu (default: the accelerator that torch sees)")
    parser.add_argument("--scale", type=int, default=8, help="lots are this many times those of training.py (8)")
    parser.add_argument("--only", nargs="*", choices=list(NETWORKS), help="these networks, printed and not written")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each number")
    parser.add_argument("--output", type=Path, help="the file whose section is rewritten (default: RESULTS.md here)")
    chosen = parser.parse_args()
    if chosen.device is None and not torch.accelerator.is_available():
        raise SystemExit("torch sees no GPU here. --device cpu tries the script without one.")
    device = torch.device(chosen.device) if chosen.device else torch.accelerator.current_accelerator()
    names = NETWORKS if chosen.only is None else chosen.only
    rows = [measure(NETWORKS[name], chosen.scale, device, chosen.seconds) for name in names]
    sizes = SIZES[:1] if device.type == "cpu" else SIZES
    noises = [(size, *noise_times(size, device, chosen.seconds)) for size in sizes]
    deliver("gpu", report(rows, noises, device), chosen.output, chosen.only is not None or device.type == "cpu")


if __name__ == "__main__":
    main()
