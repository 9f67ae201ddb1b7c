"""How often an audit catches DP-SGD with one thing wrong, and how often it blames DP-SGD done right: ten seeds each.

    python benchmarks/audit_controls.py

The set-ups are those of tests/audit/test_controls.py, where one seed of each is run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from results import deliver, environment, show_table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import broken_runs as runs
from tacit.audit import AuditReport, Verdict

_CANARIES = "1,000 gradient canaries, 300 steps at rate 0.02"
_TRANSCRIPT = "320 runs a side, all releases of 20 steps seen"
_SCALE = "120 runs a side, 3,000 parameters, 20 examples"
COLUMNS = ["what is wrong", "attack", "proven epsilon", "audited, median", "caught, of {seeds} seeds"]


@dataclass(frozen=True)
class Control:
    """A set-up, which is audited once for every seed."""

    what: str
    attack: str
    run: Callable[..., AuditReport]


CONTROLS = (
    Control("noise forgotten", _CANARIES, partial(runs.white_box, runs.FORGOTTEN)),
    Control("noise half as large", _CANARIES, partial(runs.white_box, runs.HALVED)),
    Control("clip skipped", _CANARIES, partial(runs.white_box, runs.SKIPPED)),
    Control("nothing", _CANARIES, partial(runs.white_box, runs.RIGHT)),
    Control("lots in order, counted as Poisson samples", _TRANSCRIPT, partial(runs.transcript, runs.IN_ORDER)),
    Control("nothing", _TRANSCRIPT, partial(runs.transcript, runs.POISSON)),
    Control("sums divided by the number of examples", _SCALE, partial(runs.normalised, runs.by_the_data)),
    Control("nothing", _SCALE, partial(runs.normalised, runs.by_a_constant)),
)


def row(control: Control, seeds: int) -> list[str]:
    """One set-up, over all seeds."""
    reports = [control.run(seed=seed) for seed in range(seeds)]
    caught = sum(report.verdict is Verdict.CONFLICT for report in reports)
    bounds = sorted(report.finding.bound.epsilon for report in reports)
    print(f"{control.what}, {control.attack}: {caught} of {seeds}", flush=True)
    middle = (bounds[(seeds - 1) // 2] + bounds[seeds // 2]) / 2
    return [control.what, control.attack, f"{reports[0].proven:.2f}", f"{middle:.2f}", str(caught)]


def main() -> None:
    """Audit every set-up with every seed and write how often it was caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, printed and not written")
    parser.add_argument("--output", type=Path, help="a file other than RESULTS.md")
    options = parser.parse_args()
    seeds = 1 if options.quick else 10
    torch.set_num_threads(1)
    rows = [[column.format(seeds=seeds) for column in COLUMNS], *(row(control, seeds) for control in CONTROLS)]
    title = f"## Audit controls: DP-SGD with one thing wrong, at delta {runs.DELTA:g}, verdicts at 99 % confidence"
    section = "\n\n".join([title, environment(["tacit", "torch", "numpy", "scipy"]), show_table(rows)])
    deliver("audit controls", section, options.output, options.quick)


if __name__ == "__main__":
    main()
