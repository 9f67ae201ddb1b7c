"""The command itself: help, version, interrupts, colours."""

import io
import os
import signal
import subprocess
import sys

import pytest

import tacit as package
from tacit.cli.output import escape_unprintable, say

RUN = [sys.executable, "-c", "from tacit.cli import main; main()"]


def test_no_command_shows_the_help(run_cli):
    run = run_cli("")
    assert run == run_cli("--help")
    assert run.code == 0
    assert "epsilon" in run.out
    assert "noise" in run.out
    assert "completion" not in run.out


def test_version_is_the_one_of_the_package(run_cli):
    assert run_cli("--version").out == f"tacit {package.__version__}\n"


@pytest.mark.parametrize("line", ["epsilon --help", "noise --help"])
def test_the_help_names_every_word_that_it_uses(run_cli, line):
    out = run_cli(line).out
    for option in ("--multiplier", "--lot-size", "--population", "--rate", "--steps", "--delta", "--json", "--plot"):
        assert option in out


@pytest.mark.parametrize("line", ["epsilon", "nonsense", "epsilon --nonsense"])
def test_what_cannot_be_read_is_an_error_with_a_way_out(run_cli, line):
    run = run_cli(line)
    assert run.code == 2
    assert run.out == ""
    assert "--help" in run.err


@pytest.mark.slow
def test_an_interrupt_ends_quietly():
    program = "\n".join(
        [
            "import tacit.cli.epsilon",
            "from tacit.cli import main",
            "import tacit.workflows.epsilon as findings, time",
            "def find(*args, **kwargs):",
            "    print('working', flush=True)",
            "    time.sleep(60)",
            "findings.find = find",
            "main()",
        ]
    )
    line = ["epsilon", "--multiplier", "1", "--rate", "0.5", "--steps", "9", "--delta", "1e-5"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("line", ["epsilon --multiplier 1 --rate 1 --steps 1 --delta 1e-5", "epsilon --delta 0"])
def test_colours_are_for_terminals_that_want_them(line):
    names = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE")
    plain = {name: value for name, value in os.environ.items() if name not in names}
    printed = {}
    for setting in ("FORCE_COLOR", "NO_COLOR", ""):
        run = subprocess.run(
            [*RUN, *line.split()], capture_output=True, text=True, env={**plain, setting or "UNUSED": "1"}, check=False
        )
        printed[setting] = run.stdout + run.stderr
    assert "\x1b[" in printed["FORCE_COLOR"]
    assert "\x1b[" not in printed["NO_COLOR"] + printed[""]


def test_what_the_encoding_of_the_output_lacks_is_printed_as_an_escape(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    escape_unprintable()
    say([("ε of größe", ["\udcc3"])])
    assert written.getvalue() == b"\\u03b5 of gr\\xf6\\xdfe\n  \\udcc3\n"
