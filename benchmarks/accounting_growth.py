"""How accounting grows with the number of different steps: time and width of the certified interval.

A run whose multiplier and rate change at every step has as many kinds of steps as steps. The same events go to
dp-accounting's PLD accountant, up to the number of kinds that it answers in reasonable time. A ledger of as many
different runs is asked what `tacit ledger show` prints. Times are CPU times. The table replaces what stands between
this script's markers in RESULTS.md, and the picture is growth.svg beside it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accounting_answers import forget
from accounting_tables import show_seconds
from results import THREADS, deliver, draw_growth, environment, show_table

DELTA = 1e-5
KINDS = (1, 8, 10, 32, 100, 1_000, 10_000)
PEER_KINDS = (1, 8, 32)
DELTAS = (1e-1, 1e-5, 1e-20, 1e-50, 1e-100, 1e-300)
PACKAGES = ("tacit", "dp-accounting", "numpy", "scipy")
PICTURE = Path(__file__).with_name("growth.svg")


@dataclass(frozen=True)
class Growth:
    """One size: both bounds of epsilon, and the median CPU time."""

    kinds: int
    lower: float
    upper: float
    seconds: float


def schedule(kinds: int) -> list[tuple[float, float]]:
    """Multipliers from 0.7 to 3 and rates from 1 to 2 %: a pair for each step, all different."""
    return [
        (0.7 * (3 / 0.7) ** (step / max(kinds - 1, 1)), 0.01 * (1 + (7919 * step % 9973) / 9973))
        for step in range(kinds)
    ]


def time_of(ask: Callable[[], Any], most: float = 6.0) -> tuple[Any, float]:
    """The answer and the median CPU time of up to five repetitions, each from nothing."""
    times: list[float] = []
    while not times or (len(times) < 5 and sum(times) < most):
        forget("tacit")
        gc.collect()
        start = time.process_time()
        answer = ask()
        times.append(time.process_time() - start)
    return answer, statistics.median(times)


def ours(kinds: int) -> Growth:
    """Certified bounds of the schedule."""
    from tacit.accounting import Composed, Gaussian, curve

    event = Composed(tuple(Gaussian(multiplier).sampled(rate) for multiplier, rate in schedule(kinds)))
    (lower, upper), seconds = time_of(lambda: curve(event).epsilon_bounds(DELTA))
    return Growth(kinds, lower, upper, seconds)


def peer(kinds: int) -> Growth:
    """dp-accounting's PLD accountant on the same schedule."""
    import dp_accounting
    from dp_accounting import pld

    def ask() -> float:
        accountant = pld.PLDAccountant()
        for multiplier, rate in schedule(kinds):
            accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier)))
        return float(accountant.get_epsilon(DELTA))

    upper, seconds = time_of(ask)
    return Growth(kinds, float("nan"), upper, seconds)


def one_more(kinds: int) -> tuple[float, float]:
    """CPU times of a total, and of the same total with one more run after it."""
    from tacit.accounting import Composed, Gaussian, curve

    parts = [Gaussian(multiplier).sampled(rate) * 10 for multiplier, rate in schedule(kinds)]
    forget("tacit")
    start = time.process_time()
    curve(Composed(tuple(parts))).epsilon_bounds(DELTA)
    first = time.process_time()
    curve(Composed((*parts, Gaussian(1.7).sampled(0.015) * 12))).epsilon_bounds(DELTA)
    return first - start, time.process_time() - first


def ledger_show(runs: int) -> float:
    """CPU time of the command `tacit ledger show`, its start included, for so many different runs on one data set."""
    from tacit.accounting import Gaussian
    from tacit.ledger import Ledger

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "growth.ledger")
        with Ledger(path).storage.write() as book:
            terms = {"epsilon": 8.0, "delta": DELTA, "adjacency": "add_remove", "order": None}
            book.append("budget", "data", "", terms)
            for number, (multiplier, rate) in enumerate(schedule(runs)):
                event = Gaussian(4 * multiplier).sampled(rate / 4) * (20 + number % 100)
                content = {"event": json.loads(event.to_json()), "about": {"method": "dpsgd"}}
                book.append("settle", "data", f"run-{number}", content)
        command = [sys.executable, "-m", "tacit", "ledger", "show", path]
        return statistics.median(child_time(command) for _ in range(5))


def child_time(command: Sequence[str]) -> float:
    """CPU time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def small_deltas() -> list[tuple[float, Growth]]:
    """14,062 steps of MNIST 2, at ever smaller deltas."""
    from tacit.accounting import Gaussian, curve

    event = Gaussian(1.1).sampled(256 / 60_000) * 14_062
    found = []
    for delta in DELTAS:
        (lower, upper), seconds = time_of(lambda delta=delta: curve(event).epsilon_bounds(delta), most=1.0)
        found.append((delta, Growth(1, lower, upper, seconds)))
    return found


def other_noises() -> dict[str, Growth]:
    """Releases with other noise, several on a lot, at a rate of 1 %."""
    from tacit.accounting import Gaussian, Laplace, ProductNoise, StudentT, StudentTDensity, curve

    steps, rate = 1_000, 0.01
    shifts = ProductNoise(StudentTDensity(3.0, 2.0), (1.0, 0.5, 0.25))
    inside = {
        "Gaussian, multiplier 1": Gaussian(1.0),
        "Laplace, scale 1": Laplace(1.0),
        "Student-t, 5 degrees": StudentT(5.0, 1.0),
        "Student-t, 3 degrees, on 3 coordinates": shifts,
        "Gaussian and Laplace on one lot": Gaussian(1.0) + Laplace(2.0),
        "2 Gaussians and 3 Laplace on one lot": Gaussian(1.0) + Gaussian(2.0) + Laplace(3.0) * 3,
        "20 Laplace on one lot": Laplace(5.0) * 20,
    }
    found = {}
    for name, event in inside.items():
        whole = event.sampled(rate) * steps
        (lower, upper), seconds = time_of(lambda whole=whole: curve(whole).epsilon_bounds(DELTA), most=1.0)
        found[name] = Growth(len(found), lower, upper, seconds)
    return found


def cells(row: Growth | None) -> tuple[str, str, str, str]:
    """Bounds, width and time of one row of a table."""
    if row is None:
        return "", "", "", ""
    return f"{row.lower:.8g}", f"{row.upper:.8g}", f"{row.upper / row.lower - 1:.0e}", show_seconds(row.seconds)


def report(
    rows: Sequence[Growth], peers: Sequence[Growth], more: Sequence[tuple[int, float, float]], shown: float
) -> str:
    """The section."""
    mine, others = {row.kinds: row for row in rows}, {row.kinds: row for row in peers}
    table = [("different steps", "lower", "upper", "width", "time", "dp-accounting", "its time")]
    for kinds in sorted({*mine, *others}):
        other = others.get(kinds)
        theirs = (f"{other.upper:.8g}", show_seconds(other.seconds)) if other else ("not run", "")
        table.append((f"{kinds:,}", *cells(mine.get(kinds)), *theirs))
    again = [("different runs", "total from nothing", "with one more run")]
    again += [(f"{kinds:,}", show_seconds(first), show_seconds(second)) for kinds, first, second in more]
    noises = [
        ("noise", "lower", "upper", "width", "time"),
        *((name, *cells(row)) for name, row in other_noises().items()),
    ]
    deltas = [("delta", "lower", "upper", "width", "time"), *((f"{at:g}", *cells(row)) for at, row in small_deltas())]
    left = f"The command `tacit ledger show` for {more[-1][0]:,} different runs, from start to end"
    return "\n\n".join(
        [
            "## Accounting: growth",
            environment(PACKAGES),
            "Every step has a multiplier (0.7 to 3) and a rate (1 to 2 %) of its own; delta is 1e-05. CPU times.",
            show_table(table),
            "![Time over the number of different steps](growth.svg)",
            "A total that is known is used again for one more run:",
            show_table(again),
            f"{left}: {show_seconds(shown)}.",
            "MNIST 2 (multiplier 1.1, rate 256/60000, 14,062 steps) at ever smaller deltas:",
            show_table(deltas),
            "Other noise, and several releases on a lot: 1,000 steps at a rate of 1 %, delta 1e-05.",
            show_table(noises),
        ]
    )


def draw(rows: Sequence[Growth], peers: Sequence[Growth]) -> None:
    """Time over kinds."""
    found = {"tacit: both bounds": rows, "dp-accounting PLD": peers}
    lines = {name: [(row.kinds, row.seconds) for row in each] for name, each in found.items()}
    draw_growth(PICTURE, "number of different steps", "CPU time (seconds)", lines)


def main() -> None:
    """Measure and write, or with --quick measure a little and print."""
    parser = argparse.ArgumentParser(description="Measure how accounting grows with the number of different steps.")
    parser.add_argument("--quick", action="store_true", help="up to 100 kinds, printed and not written")
    parser.add_argument("--output", type=Path, help="the file whose section is rewritten (default: RESULTS.md here)")
    chosen = parser.parse_args()
    for name in THREADS:
        os.environ.setdefault(name, "1")
    ours(2)
    rows = [ours(kinds) for kinds in (KINDS[:5] if chosen.quick else KINDS)]
    peers = [peer(kinds) for kinds in PEER_KINDS[: 2 if chosen.quick else 3]]
    sizes = (100,) if chosen.quick else (100, 1_000)
    more = [(kinds, *one_more(kinds)) for kinds in sizes]
    section = report(rows, peers, more, ledger_show(100 if chosen.quick else 1_000))
    if not chosen.quick:
        draw(rows, peers)
    deliver("growth", section, chosen.output, printed=chosen.quick)


if __name__ == "__main__":
    main()
