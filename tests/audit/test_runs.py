"""Worker processes of an audit: what is prepared in each, and that it does what the parent would."""

import signal

import numpy as np
import pytest
import torch

from tacit.audit import runs
from tacit.audit.runs import Runs


@pytest.fixture
def worker(monkeypatch):
    """This process as a worker, and as it was afterwards."""
    before, threads, bar = signal.getsignal(signal.SIGINT), torch.get_num_threads(), runs._HAS_BAR.set(False)
    monkeypatch.setattr(runs, "_PREPARED", [])
    yield
    signal.signal(signal.SIGINT, before)
    torch.set_num_threads(threads)
    runs._HAS_BAR.reset(bar)


def draw(index):
    return [index, np.random.default_rng(index).random(), float(torch.rand(()))]


def test_a_worker_leaves_ctrl_c_and_the_bar_to_its_parent_and_draws_the_same_numbers(worker, tmp_path):
    [alone] = Runs(tmp_path / "alone", seed=3).results("run", draw, 1)
    runs._prepare(draw)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert runs._HAS_BAR.get()
    assert torch.get_num_threads() == 1
    runs._run(runs._Task(0, tmp_path / "0.npy", (3, *b"run", 0)))
    assert np.array_equal(np.load(tmp_path / "0.npy"), np.load(alone))
