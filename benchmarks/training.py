"""A private step beside an ordinary one and those of Opacus: time and memory, in one run, on one thread.

For each network the contenders take turns in one process, a block of steps each, so that whatever else the machine does
meets all of them alike; then again in another process, because where memory happens to lie can cost a quarter of a
step. The median processor time of a step counts. Memory is measured in a process of its own for each contender.
The tables replace what stands between this script's two markers in RESULTS.md.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import logging
import math
import multiprocessing
import os
import resource
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from contenders import CONTENDERS, PEERS, Step
from networks import NETWORKS, Network, named
from results import THREADS, deliver, environment, show_table

PACKAGES = ("tacit", "opacus", "torch", "numpy")
# Above this many bytes an allocation goes back to the system when it is freed, so that memory in use can be seen.
RETURNED_ABOVE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
# How time and memory grow with the lot.
GROWING, LOTS = "MNIST CNN", (64, 128, 256, 512, 1024)
# Less memory than this, in megabytes, drowns in what the interpreter itself takes and gives back.
VISIBLE = 8.0


def serve(names: Sequence[str], network: str, questions: Connection) -> None:
    """Take as many steps as asked for of whom they are asked: (True, times) or (False, reason)."""
    _settle()
    steps: dict[str, Step] = {}
    while True:
        name, count = questions.recv()
        try:
            if name not in steps:
                steps[name] = CONTENDERS[name](*named(network).prepared())
            questions.send((True, [steps[name]() for _ in range(count)]))
        except Exception as error:
            questions.send((False, _reason(error)))


def weigh(names: Sequence[str], network: str, questions: Connection) -> None:
    """A few steps, and how many megabytes they needed at most beyond model, lot and loaded code."""
    _settle()
    contender, steps = questions.recv()
    try:
        model, inputs, targets = named(network).prepared()
        # On two examples first, so that code which is loaded on demand is there.
        CONTENDERS[contender](copy.deepcopy(model), inputs[:2], targets[:2])()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        before = _start_watching()
        step = CONTENDERS[contender](model, inputs, targets)
        for _ in range(steps):
            step()
        questions.send((True, [max(_peak() - before, 0.0)]))
    except Exception as error:
        questions.send((False, _reason(error)))


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _settle() -> None:
    warnings.simplefilter("ignore")
    logging.disable()
    torch.set_num_threads(1)


def _start_watching() -> float:
    """Forget the highest memory so far, where the system can; megabytes now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _peak()
    return _status("VmRSS")


def _peak() -> float:
    try:
        return _status("VmHWM")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


@dataclass
class Worker:
    """Some contenders on one network, in a process that ends when one of them is too slow or dies."""

    names: Sequence[str]
    network: str
    limit: float
    target: Callable[[Sequence[str], str, Connection], None] = serve

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.questions, theirs = context.Pipe()
        arguments = (self.names, self.network, theirs)
        self.process = context.Process(target=self.target, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    @property
    def is_alive(self) -> bool:
        """Whether there is still somebody to ask."""
        return self.process.is_alive()

    def take(self, name: str, count: int) -> tuple[list[float], str]:
        """So many numbers from a contender, and the reason why there are none."""
        try:
            self.questions.send((name, count))
            if not self.questions.poll(self.limit):
                self.stop()
                return [], f"timeout after {self.limit:g} s"
            fine, answer = self.questions.recv()
        except (EOFError, OSError):
            self.process.join(5)
            return [], f"process died with exit code {self.process.exitcode}"
        return (answer, "") if fine else ([], answer)

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.join()


@dataclass(frozen=True)
class Effort:
    """Seconds one block may and should take, and what a network gets: processes, rounds in each, seconds."""

    limit: float
    block: float
    processes: int
    rounds: int
    patience: float


@dataclass(frozen=True)
class Row:
    """One network: what every contender took, or why it did not."""

    network: Network
    times: dict[str, list[float]]
    memory: dict[str, float]
    failures: dict[str, str]

    def median(self, name: str) -> float:
        """Seconds a step."""
        return statistics.median(self.times[name]) if self.times[name] else math.nan

    def ratio(self, name: str, base: str = "ordinary") -> float:
        """How many times as long as another."""
        return self.median(name) / self.median(base)

    def memory_ratio(self, name: str) -> float:
        """How many times the memory of an ordinary step; NaN where that is too little to see."""
        least = self.memory.get("ordinary", math.nan)
        return self.memory.get(name, math.nan) / least if least >= VISIBLE else math.nan


def compare(network: Network, names: Sequence[str], effort: Effort) -> Row:
    """All contenders on one network: in turns for the time, one after the other for the memory."""
    times, failures = in_turns(network, names, effort)
    memory = {}
    for name in names:
        if name not in failures:
            memory[name] = memory_of(name, network, effort.limit, failures)
    row = Row(network, times, memory, failures)
    for name in names:
        shown = failures.get(name) or f"{1000 * row.median(name):.3g} ms, {row.ratio(name):.2f} times"
        print(f"{network.name}, {name}: {shown}, {memory.get(name, math.nan):.0f} MB", flush=True)
    return row


def in_turns(network: Network, names: Sequence[str], effort: Effort) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Blocks of steps, one contender after the other, round after round, in one process after the other."""
    times: dict[str, list[float]] = {name: [] for name in names}
    failures: dict[str, str] = {}
    started = time.perf_counter()
    for done in range(effort.processes):
        if done and time.perf_counter() - started > effort.patience:
            break
        worker = Worker(names, network.name, effort.limit)
        try:
            _rounds(worker, times, failures, effort)
        finally:
            worker.stop()
    return times, failures


def _rounds(worker: Worker, times: dict[str, list[float]], failures: dict[str, str], effort: Effort) -> None:
    counts: dict[str, int] = {}
    started = time.perf_counter()
    for done in range(effort.rounds + 1):
        if done > 3 and time.perf_counter() - started > effort.patience / effort.processes:
            break
        for name in (name for name in times if name not in failures):
            # The first steps warm up, and say how many make a block.
            found, reason = worker.take(name, counts.get(name, 1))
            if done == 0 and not reason and sum(found) < 1:
                found, reason = worker.take(name, 3)
            if reason:
                failures[name] = reason
            elif done == 0:
                counts[name] = min(max(round(effort.block / min(found)), 1), 400)
            else:
                times[name] += found
            if not worker.is_alive:
                return


def memory_of(name: str, network: Network, limit: float, failures: dict[str, str]) -> float:
    """Megabytes at the peak of a few steps, in a process whose freed memory goes back at once."""
    kept = {key: os.environ.get(key) for key in RETURNED_ABOVE}
    os.environ.update(RETURNED_ABOVE)
    try:
        worker = Worker([name], network.name, limit, weigh)
    finally:
        for key, value in kept.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})
    found, reason = worker.take(name, 2)
    if reason:
        failures[name] = f"memory: {reason}"
    worker.stop()
    return found[0] if found else math.nan


def report(rows: Sequence[Row], names: Sequence[str], growing: Sequence[Row]) -> str:
    """The whole section: environment, tables, failures."""
    return "\n\n".join(
        [
            "## Training: a private step beside an ordinary one",
            environment(PACKAGES),
            "A step is what a user runs on a given lot: gradients, clipping, sum, noise, SGD. Processor time on one "
            "thread, median over interleaved blocks. In brackets: how many times an ordinary step. Noise is "
            "cryptographic in tacit, and that of torch's generator in Opacus (its default).",
            time_table(rows, names),
            "\n".join(f"- {line}" for line in summary(rows, names)),
            "### Memory at the peak",
            "Beyond model, lot and loaded code; the largest of two steps in a fresh process. In brackets: how many "
            f"times that of an ordinary step, where that is at least {VISIBLE:g} MB.",
            memory_table(rows, names),
            "### Growth with the lot",
            f"{GROWING}, lots of {LOTS[0]} to {LOTS[-1]}: microseconds and kilobytes an example.",
            growth_table(growing),
            "### No answer",
            failure_table(rows),
        ]
    )


def time_table(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Milliseconds and ratios."""

    def cell(row: Row, name: str) -> str:
        if not row.times[name]:
            return "failed"
        ratio = "" if name == "ordinary" else f" ({show_ratio(row.ratio(name))})"
        return f"{1000 * row.median(name):.3g} ms{ratio}"

    header = ("network", "lot", *names, "expected of tacit")
    lines = [
        (row.network.name, str(row.network.lot), *(cell(row, name) for name in names), f"{row.network.expected:g}×")
        for row in rows
    ]
    return show_table([header, *lines])


def memory_table(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Megabytes and ratios."""

    def cell(row: Row, name: str) -> str:
        value, ratio = row.memory.get(name, math.nan), row.memory_ratio(name)
        shown = "–" if math.isnan(value) else f"{value:.3g} MB"
        return shown if name == "ordinary" or math.isnan(ratio) else f"{shown} ({show_ratio(ratio)})"

    lines = [(row.network.name, *(cell(row, name) for name in names)) for row in rows]
    return show_table([("network", *names), *lines])


def growth_table(rows: Sequence[Row]) -> str:
    """Time and memory an example: constant where a step is linear in its lot, and keeps nothing beyond activations."""
    header = ("lot", "ordinary", "tacit", "ratio", "memory, ordinary", "memory, tacit")
    lines = []
    for row in rows:
        lot = row.network.lot
        times = [f"{1e6 * row.median(name) / lot:.3g} µs" for name in ("ordinary", "tacit")]
        memory = [f"{1024 * row.memory.get(name, math.nan) / lot:.3g} kB" for name in ("ordinary", "tacit")]
        lines.append((str(lot), *times, show_ratio(row.ratio("tacit")), *memory))
    return show_table([header, *lines])


def summary(rows: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    """Where tacit keeps what is expected of it, and by how much it is ahead of each peer."""
    late = [f"{row.network.name} ({show_ratio(row.ratio('tacit'))})" for row in rows if _is_late(row)]
    yield f"As fast as expected, or faster, on {len(rows) - len(late)} of {len(rows)} networks{_except(late)}."
    heavy = [f"{row.network.name} ({show_ratio(row.memory_ratio('tacit'))})" for row in rows if _is_heavy(row)]
    yield f"At most 1.4 times the memory of an ordinary step wherever that can be seen{_except(heavy)}."
    for name in (name for name in names if name in PEERS):
        ratios = {row.network.name: row.ratio(name, "tacit") for row in rows if row.times[name]}
        if ratios:
            shown = ", ".join(f"{network} {show_ratio(ratio)}" for network, ratio in ratios.items())
            yield f"{name} takes this many times as long as tacit: {shown}."


def _is_late(row: Row) -> bool:
    return not row.ratio("tacit") <= row.network.expected


def _is_heavy(row: Row) -> bool:
    return row.memory_ratio("tacit") > 1.4


def _except(found: Iterable[str]) -> str:
    listed = ", ".join(found)
    return f"; not on {listed}" if listed else ""


def failure_table(rows: Sequence[Row]) -> str:
    """Every contender that did not train, with its reason word for word."""
    found = [(row.network.name, name, reason) for row in rows for name, reason in row.failures.items()]
    if not found:
        return "Every contender trained every network."
    return show_table([("network", "contender", "reason"), *found])


def show_ratio(ratio: float) -> str:
    """A factor with the digits that matter."""
    return f"{ratio:.0f}×" if ratio >= 9.95 else f"{ratio:.2f}×"


def main() -> None:
    """Measure and write, or with --quick measure a little and print."""
    parser = argparse.ArgumentParser(description="Compare a private step with an ordinary one and with Opacus.")
    parser.add_argument("--quick", action="store_true", help="few rounds, no peers, printed and not written")
    parser.add_argument("--only", nargs="*", choices=list(NETWORKS), help="these networks, printed and not written")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one block of steps may take")
    parser.add_argument("--output", type=Path, help="the file whose section is rewritten (default: RESULTS.md here)")
    chosen = parser.parse_args()
    for name in THREADS:
        os.environ[name] = "1"
    started = time.perf_counter()
    names = [name for name in CONTENDERS if not (chosen.quick and name in PEERS)]
    effort = Effort(chosen.limit, 0.1, 1, 9, 6.0) if chosen.quick else Effort(chosen.limit, 0.25, 3, 10, 24.0)
    rows = [compare(NETWORKS[name], names, effort) for name in chosen.only or NETWORKS]
    own = [name for name in names if name not in PEERS]
    growing = [] if chosen.only else [compare(named(f"{GROWING} @ {lot}"), own, effort) for lot in LOTS]
    section = report(rows, names, growing)
    deliver("training", section, chosen.output, printed=chosen.quick or bool(chosen.only))
    print(f"\n{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
