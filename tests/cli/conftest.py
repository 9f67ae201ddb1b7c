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
def tacit(monkeypatch, capsys):
    """A function from a command line to its `Run`."""

    def run(line: str) -> Run:
        monkeypatch.setattr("sys.argv", ["tacit", *shlex.split(line)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return Run(int(stop.value.code or 0), out, err)

    return run
