"""A full disk: what cannot be written is an error that says so, and nothing that was released is forgotten."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tacit.accounting import Gaussian
from tacit.errors import TacitError
from tacit.ledger import Block, Course, Ledger, Reservation
from tacit.training.folder import Journal, lost_steps, read_checkpoint, write_checkpoint

SCRIPT = Path(__file__).parents[1] / "support" / "fill_disk.py"


@contextmanager
def files_of_at_most(size: int):
    """A write beyond this size fails, as on a full disk; it needs no privileges."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_save_that_does_not_fit_leaves_the_one_before_it(tmp_path):
    write_checkpoint(tmp_path, {"weights": torch.zeros(10)})
    with files_of_at_most(10_000), pytest.raises(OSError, match="File too large"):
        write_checkpoint(tmp_path, {"weights": torch.ones(10_000)})
    assert torch.equal(read_checkpoint(tmp_path)["weights"], torch.zeros(10))
    assert [path.name for path in tmp_path.iterdir()] == ["run.safetensors"]


def test_a_step_that_cannot_be_noted_is_not_begun(tmp_path):
    journal = Journal(tmp_path, 100)
    journal.begin(0)
    with files_of_at_most((tmp_path / "journal.jsonl").stat().st_size + 20), pytest.raises(OSError, match="too large"):
        journal.begin(1)
    journal.begin(2)
    assert set(lost_steps(tmp_path, 0)) == {0, 2}


def test_a_ledger_that_cannot_be_written_lets_nothing_be_released(tmp_path):
    ledger = Ledger(tmp_path / "adult.ledger")
    ledger.spend("adult", Gaussian(1.0))
    before = ledger.entries()
    with files_of_at_most(ledger.path.stat().st_size // 2), pytest.raises(TacitError, match="cannot be written"):
        ledger.spend("adult", Gaussian(2.0))
    assert ledger.entries() == before
    ledger.spend("adult", Gaussian(2.0))


def test_a_mark_that_cannot_be_written_lets_the_step_not_be_drawn(tmp_path):
    ledger = Ledger(tmp_path / "adult.ledger")
    booking = Reservation(ledger, Course((Block(Gaussian(1.0), 10),)), dataset="adult")
    booking.begin(0)
    with files_of_at_most(100), pytest.raises(TacitError, match="cannot be written"):
        booking.begin(1)
    booking.begin(1)
    booking.settle()
    assert ledger.account("adult").total == Gaussian(1.0) * 2


def test_a_ledger_that_cannot_be_made_leaves_no_file(tmp_path):
    with files_of_at_most(100), pytest.raises(TacitError):
        Ledger(tmp_path / "adult.ledger")
    assert not (tmp_path / "adult.ledger").exists()


@pytest.mark.slow
def test_a_real_disk_that_fills_up_in_the_middle_of_training(tmp_path):
    """A file system of one megabyte, in a name space of its own that vanishes with the process."""
    mount = f"mount -t tmpfs -o size=1m tmpfs {tmp_path}"
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "sh", "-c", mount], check=False).returncode:
        pytest.skip("this system lets nobody mount a small file system")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[1])}
    command = f"{mount} && exec {sys.executable} {SCRIPT} {tmp_path}"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no release was lost" in done.stdout
