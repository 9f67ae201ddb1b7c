"""Train on a disk that becomes full at every possible moment, and see that nothing is lost.

    PYTHONPATH=tests python tests/support/fill_disk.py FOLDER [PAGES ...]

FOLDER must be a small file system of its own, such as a tmpfs of one megabyte. It is filled up to so many pages of 4
kilobytes, a run is begun or resumed there until it breaks off, room is made, and the run goes on. It must break off
with an error that says why, the ledger must hold what was released, and the run must finish from the last good save.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from support import kill_many
from support.kill_many import ALLOWED, Case, check, check_end, go
from tacit.accounting import curve
from tacit.budget import Budget
from tacit.errors import TacitError
from tacit.ledger import Ledger

_PAGE = 4096
_FREE = (0, 1, 2, 3, 4, 5, 7, 9)


def fill(disk: Path, left: int) -> Path:
    """Fill the disk but for so many pages."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(_PAGE))
        except OSError as error:
            raise_unless(error.errno == errno.ENOSPC, error)
        os.truncate(filler, max(filler.stat().st_size - left * _PAGE, 0))
    return filler


def raise_unless(is_right: bool, error: Exception) -> None:
    if not is_right:
        raise error


def broken_off(case: Case) -> str:
    """Go on with the run until the disk is full: where it was that this was found out."""
    try:
        go(case)
    except OSError as error:
        raise_unless(error.errno == errno.ENOSPC, error)
        return "in a save or its journal"
    except TacitError as error:
        raise_unless("cannot be written" in str(error) or "No space left" in str(error), error)
        return "in the ledger"
    return "nowhere"


def survive(disk: Path, free: Sequence[int] = _FREE) -> Counter[str]:
    """One run for each number of pages left."""
    places: Counter[str] = Counter()
    for number, left in enumerate(free):
        # Every other time the ledger has room, so that it is the run's own files that have none.
        elsewhere = Path(tempfile.mkdtemp()) if left % 2 else None
        case = Case(disk / str(number), (None, 7)[left // 2 % 2], False, elsewhere)
        case.folder.mkdir()
        Ledger(case.ledger).set_budget("data", Budget(curve(case.step * ALLOWED).epsilon(1e-6), 1e-6))
        filler = fill(disk, left)
        place = broken_off(case)
        filler.unlink()
        places[place] += 1
        check(case)
        if place != "nowhere":
            go(case)
        check(case)
        check_end(case, 1, lambda is_sampled, number=number: kill_many.reference(disk / str(number), is_sampled))
        for folder in filter(None, (case.folder, elsewhere)):
            shutil.rmtree(folder)
    return places


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = tuple(map(int, sys.argv[2:]))
    found = survive(Path(sys.argv[1]), chosen or _FREE)
    print(f"{found.total()} runs: the disk was found full {dict(found)}; every one finished, and no release was lost")
    assert chosen or found["in the ledger"], "the disk was never full when the ledger was written"
    assert chosen or found["in a save or its journal"], "the disk was never full when a run was saved"
