"""Accounting beside its peers: the same questions to every tool in one run, how tight and how fast the answers are.

Each tool answers in a process of its own, one question at a time and within a limit of time, so that a hang
or a crash is one cell of a table. Nothing is remembered from one repetition to the next. The tables replace
what stands between this script's two markers in RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from accountants import PEERS, TACIT, tacit_epsilon, tacit_estimate
from accounting_answers import Effort, Worker, measure
from accounting_questions import Setting, Target, hard_settings, published_settings
from accounting_tables import Calibration, Row, report, show_seconds
from results import THREADS, deliver


def run(settings: Sequence[Setting], targets: Sequence[Target], effort: Effort) -> tuple[list[Row], list[Calibration]]:
    """Every question to every tool."""
    # One process per package, so that opacus loads torch once.
    workers = {tool.package: Worker(tool.package, tool.epsilon) for tool in reversed((TACIT, *PEERS))}
    try:
        rows = [compare_epsilon(setting, workers, effort) for setting in settings]
        return rows, [compare_multiplier(target, workers, effort) for target in targets]
    finally:
        for worker in workers.values():
            worker.stop()


def compare_epsilon(setting: Setting, workers: dict[str, Worker], effort: Effort) -> Row:
    """One setting, all tools, one after the other."""
    ours = measure(workers["tacit"], tacit_epsilon, setting, effort)
    if ours.failure:
        raise SystemExit(f"tacit failed at {setting}: {ours.failure}")
    estimate = workers["tacit"].ask(tacit_estimate, setting, effort.limit).value
    print(f"{setting.name}: {ours.value} in {show_seconds(ours.seconds)}", flush=True)
    peers = {}
    for tool in PEERS:
        peers[tool.name] = answer = measure(workers[tool.package], tool.epsilon, setting, effort)
        print(f"  {tool.name}: {answer.failure or answer.value} in {show_seconds(answer.seconds)}", flush=True)
    return Row(setting, ours, estimate, peers)


def compare_multiplier(target: Target, workers: dict[str, Worker], effort: Effort) -> Calibration:
    """One budget, all tools that calibrate, and what each multiplier costs by certified bounds."""
    answers, costs = {}, {}
    for tool in (TACIT, *PEERS):
        if tool.multiplier is None:
            continue
        answer = measure(workers[tool.package], tool.multiplier, target, effort)
        answers[tool.name] = answer
        print(f"epsilon {target.epsilon:g} by {tool.name}: {answer.failure or answer.value}", flush=True)
        if not answer.failure:
            reached = Setting("calibrated", answer.value, target.rate, target.steps, target.delta)
            costs[tool.name] = workers["tacit"].ask(tacit_epsilon, reached, effort.limit).value
    return Calibration(target, answers, costs)


def main() -> None:
    """Measure and write, or with --quick measure a little and print."""
    parser = argparse.ArgumentParser(description="Compare tacit's accounting with its peers.")
    parser.add_argument("--quick", action="store_true", help="four settings, one budget, printed and not written")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one answer may take")
    parser.add_argument("--output", type=Path, help="the file whose section is rewritten (default: RESULTS.md here)")
    chosen = parser.parse_args()
    for name in THREADS:
        os.environ.setdefault(name, "1")
    started = time.perf_counter()
    if chosen.quick:
        settings = [published_settings()[1], *hard_settings()[:3:2], hard_settings()[5]]
        rows, calibrations = run(settings, [Target(3.0)], Effort(min(chosen.limit, 20.0), 5, 0.5))
    else:
        settings = [*published_settings(), *hard_settings()]
        targets = [Target(epsilon) for epsilon in (0.5, 1.0, 3.0, 8.0)]
        rows, calibrations = run(settings, targets, Effort(chosen.limit, 7, 5.0))
    section = report(rows, calibrations)
    deliver("accounting", section, chosen.output, printed=chosen.quick)
    print(f"\n{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
