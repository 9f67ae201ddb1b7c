"""Settings for every test."""

import os
import shlex
import signal
import sys
from dataclasses import dataclass

import pytest
from hypothesis import settings

# Tests run side by side, one on each core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Every run draws the same examples, and none is judged by how long it takes.
settings.register_profile("tacit", derandomize=True, deadline=None)
settings.load_profile("tacit")

# Shells start what runs in the background with Ctrl-C ignored, and processes inherit that; some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _same_weights_whatever_ran_before():
    """A model's first weights come from torch's own generator: not from how tests were dealt out to the cores."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk():
    """What the system was given outlives a process that dies; no test cuts the power. A run waits once a step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture
def interrupted_at(monkeypatch):
    """A function that has Ctrl-C pressed in the middle of one step."""
    from tacit.training.run import PrivateRun

    def press(step: int, times: int = 1) -> None:
        backward = PrivateRun.backward

        def pressed(self, lot):
            if lot.step == step:
                monkeypatch.setattr(PrivateRun, "backward", backward)
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)
            backward(self, lot)

        monkeypatch.setattr(PrivateRun, "backward", pressed)

    return press


@dataclass(frozen=True)
class Run:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def run_cli(monkeypatch, capsys):
    """A function that runs a command line in this process and returns its `Run`."""
    from tacit.cli import main

    def run(line: str) -> Run:
        monkeypatch.setattr("sys.argv", ["tacit", *shlex.split(line)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return Run(int(stop.value.code or 0), out, err)

    return run


@pytest.fixture
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """What a command writes here goes away with the test."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def one_thread():
    """Threads that wait for each other on a busy machine would take most of the time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
