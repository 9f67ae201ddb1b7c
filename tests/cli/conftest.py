"""The command line, run within the test."""

import shlex
from dataclasses import dataclass

import pytest

from tacit.cli import main


@dataclass(frozen=True)
class Run:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def run_cli(monkeypatch, capsys):
    """A function from a command line to its `Run`."""

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
