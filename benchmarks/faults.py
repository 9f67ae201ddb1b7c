"""Load, faults and bad input, with counts: kills, full disks, many writers, damaged files, names that are programs.

    python benchmarks/faults.py                          # everything up to its full count: many hours, resumable
    python benchmarks/faults.py --only kills --count 50  # fifty more kills
    python benchmarks/faults.py --minutes 3              # what three minutes allow, and go on another day
    python benchmarks/faults.py --write                  # only write the table

Every kind of trial keeps its counts in a file of its own in build/faults, so counts of several days add up. Trials are
numbered, and a number repeats its trial: `--only events --first 123 --count 1`, which keeps no counts. After a change
that could mend or break something, delete the file of that kind: counts should be of the code as it is.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import fault_inputs
import fault_pages
import fault_runs
from fault_counts import Counts, Kind, NotHere, run_trials
from results import show_table, write_section

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "security.md"
KINDS: tuple[Kind, ...] = (*fault_runs.KINDS, *fault_pages.KINDS, *fault_inputs.KINDS)
COLUMNS = ("trial", "how many", "lost", "tracebacks", "under-counts")
# What is said of a part of the trials.
_NOTES = {"at a call that changes a file": "in a write to a file", "ledgers": "ledgers", "pages": "pages"}


def describe(kind: Kind, counts: Counts) -> list[str]:
    """The row of the table."""
    more = [f"{counts.notes[name]:,} {words}" for name, words in _NOTES.items() if name in counts.notes]
    label = f"{kind.label} ({', '.join(more)})" if more else kind.label
    return [label, *(f"{each:,}" for each in (counts.done, counts.lost, counts.tracebacks, counts.under_counts))]


def write_table(folder: Path, page: Path, kinds: Sequence[Kind] = KINDS) -> bool:
    """Write the table of everything that was done; whether it has no faults."""
    known = [(kind, Counts.read(folder / f"{kind.name}.json")) for kind in kinds]
    done = [(kind, counts) for kind, counts in known if counts.done]
    rows = [list(COLUMNS), *(describe(kind, counts) for kind, counts in done)]
    faults = sum(counts.faults for _, counts in done)
    total = sum(counts.done for _, counts in done)
    missing = [kind.label for kind, counts in known if not counts.done]
    section = [
        f"Counted up to {date.today().isoformat()}: {total:,} trials, {faults or 'no'} faults.",
        show_table(rows),
        *([f"Not run yet: {'; '.join(missing)}."] if missing else []),
    ]
    write_section(page, "faults", "\n\n".join(section))
    return not faults


def main(words: Sequence[str] | None = None) -> int:
    """Run trials, keep their counts, and write the table; the code is 1 if anything was lost or broke."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(kind.name for kind in KINDS)
    parser.add_argument("--only", nargs="+", default=[], metavar="KIND", help=f"of {names}")
    parser.add_argument("--count", type=int, help="so many more of each kind (all that are missing to the full count)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many minutes")
    parser.add_argument("--first", type=int, help="repeat trials from this number on, and keep no counts")
    parser.add_argument("--write", action="store_true", help="only write the table")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "faults", help="folder of the counts")
    parser.add_argument("--page", type=Path, default=PAGE, help="a page other than docs/security.md")
    options = parser.parse_args(words)
    unknown = set(options.only) - {kind.name for kind in KINDS}
    if unknown:
        parser.error(f"there is no kind {', '.join(sorted(unknown))}: choose from {names}")
    # Stopped in this way too, it keeps its counts and ends what it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    until = time.monotonic() + 60 * options.minutes
    try:
        for kind in () if options.write else KINDS:
            if not options.only or kind.name in options.only:
                _try_kind(kind, options, until)
    except KeyboardInterrupt:
        print("Stopped. The counts are kept, and the same command goes on.", flush=True)
    if options.first is not None:
        return 0
    return 0 if write_table(options.out, options.page) else 1


def _try_kind(kind: Kind, options: argparse.Namespace, until: float) -> None:
    path, began = options.out / f"{kind.name}.json", time.monotonic()
    counts = Counts.read(path)
    if options.first is not None:
        counts = Counts(calls=options.first)
    goal = kind.full if options.count is None else counts.done + options.count
    before = counts.done
    try:
        run_trials(kind, counts, goal, path if options.first is None else None, until)
    except NotHere as reason:
        print(f"{kind.name}: not run, {reason}", flush=True)
        return
    if counts.done > before:
        seconds = time.monotonic() - began
        print(f"{kind.name}: {counts.done - before} in {seconds:.0f} s, {counts.done} in all, {counts.faults} faults")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
