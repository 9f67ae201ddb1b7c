"""Every command in a terminal of 80 columns: no line is longer, and no word is broken."""

import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from itertools import pairwise

import pytest
import typer

from tacit.cli import app
from tacit.cli.output import complain

COLUMNS = 80
GROUP = typer.main.get_command(app)
NAMES = [[], *([name] for name in GROUP.commands), *(["ledger", name] for name in GROUP.commands["ledger"].commands)]
BOUNDS = """
rows = 400
[columns]
id = { ignore = true }
admitted = { type = "date", low = 2020-01-01, high = 2025-12-31, missing = "indicator", fill = 2022-01-01 }
systolic_blood_pressure_at_admission = { low = 60, high = 220, missing = "indicator", fill = 120 }
outcome = ["well", "readmitted within thirty days"]
"""
TEMPLATE = BOUNDS.replace("{ low = 60", '"TODO" # { low = 60').replace('outcome = ["well", ', 'outcome = [1, ["x"], ')

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")


# Commands run one after the other in one process, so that torch is imported once. The separators are below.
PROGRAM = """
import shlex, sys
from tacit.cli import main
for line in sys.stdin.read().splitlines():
    sys.argv = ["tacit", *shlex.split(line)]
    print(f"@@ {line}", flush=True)
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    print(f"@@ {code}", flush=True)
"""


def run_in_terminal(commands: list[str]) -> dict[str, tuple[int, list[str]]]:
    """For each command its exit code and the lines that a terminal of 80 columns shows; "\\r" begins a line too."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    program = [sys.executable, "-c", PROGRAM]
    settings = {"stdin": subprocess.PIPE, "stdout": theirs, "stderr": theirs, "env": {**env, "TERM": "xterm"}}
    with subprocess.Popen(program, **settings) as process:
        os.close(theirs)
        process.stdin.write("\n".join(commands).encode())
        process.stdin.close()
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux: the other end was closed
                break
            if not part:
                break
            shown += part
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r", "\n")
    found = re.findall(r"^@@ (\S.*)\n((?:(?!@@).*\n)*)@@ (\d+)$", text, re.MULTILINE)
    return {line.strip(): (int(code), printed.split("\n")) for line, printed, code in found}


def list_long(lines: list[str]) -> list[str]:
    """Lines of more than 80 columns; one that is a single long word, such as a path, cannot be wrapped."""
    return [line for line in lines if len(line.rstrip()) > COLUMNS and len(line.split()) > 1]


def list_broken(lines: list[str], words: set[str]) -> list[str]:
    """Words at the end of a line that are cut: they continue on the next line to one of the known words."""
    ends = [(a.split()[-1], b.split()[0]) for a, b in pairwise(lines) if a.split() and b.split()]
    return [f"{last}|{first}" for last, first in ends if last + first in words and len(last) > 1]


@pytest.fixture(autouse=True)
def table(tmp_path):
    """A table with long names, its bounds, and bounds with several problems."""
    rows = [
        f"P{i},2023-0{1 + i % 9}-11,{'' if i % 7 == 0 else 90 + i % 100},"
        f"{'readmitted within thirty days' if i % 100 > 50 else 'well'}"
        for i in range(400)
    ]
    header = "id,admitted,systolic_blood_pressure_at_admission,outcome"
    (tmp_path / "patients.csv").write_text("\n".join([header, *rows]))
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    (tmp_path / "template.toml").write_text(TEMPLATE)


def test_the_help_of_every_command_fits_and_its_summaries_are_not_cut(run_cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    for name in NAMES:
        lines = run_cli(" ".join([*name, "--help"])).out.splitlines()
        assert list_long(lines) == [], name
        assert [line for line in lines if line.endswith("...") and "[ARGS]..." not in line] == [], name


COMMANDS = {
    "methods": 0,
    "methods directional": 0,
    "bounds patients.csv --target outcome --out new.toml": 0,
    "epsilon --multiplier 1.1 --lot-size 256 --population 60000 --steps 10 --delta 1e-5": 0,
    "noise --epsilon 1 --delta 1e-5 --rate 0.01 --steps 10": 0,
    "plan --population 2000 --epsilon 1 --features 10": 0,
    "train patients.csv --target outcome --bounds template.toml --epsilon 1": 2,
    "train --mode strictly": 2,
    "train iris --epsilon 1 --method dpsg": 2,
    "ledger budget a.ledger a --epsilon 3": 2,
    "train patients.csv --target outcome --bounds bounds.toml --epsilon 8 --ledger a.ledger --steps 5 --out run": 0,
    "predict run patients.csv --out predictions.csv": 0,
    "report run": 0,
    "ledger show a.ledger": 0,
    "audit run --canaries 20": 0,
    "compare iris --epsilon 1 --methods dpsgd,output_perturbation --seeds 1 --steps 5 --workers 1 --table": 0,
    "report comparisons/iris": 0,
    "tune iris --epsilon 3 --trials 2 --steps 5": 0,
    "reproduce": 0,
}


@pytest.mark.slow
def test_every_command_fits_into_80_columns_and_breaks_no_word():
    shown = run_in_terminal(list(COMMANDS))
    assert {line: code for line, (code, _) in shown.items()} == COMMANDS
    words = {word for _, lines in shown.values() for line in lines for word in line.split()}
    for command, (_, lines) in shown.items():
        assert list_long(lines) == [], command
        assert list_broken(lines, words) == [], command


@pytest.mark.slow
@pytest.mark.parametrize("line", ["train iris", "tune iris", "compare iris", "plan --population 10"])
def test_a_wrong_number_is_refused_before_torch_is_imported(line):
    program = (
        "import sys\nfrom tacit.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n"
        "    print(stop.code, {'torch', 'scipy', 'sklearn', 'matplotlib'} & set(sys.modules))\n"
    )
    command = [sys.executable, "-c", program, *line.split(), "--epsilon", "-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "2 set()\n"
    assert "epsilon must be a finite number above 0. Got -1." in done.stderr


def test_a_command_in_a_long_message_can_be_copied(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    command = (
        "tacit compare patients.csv --target outcome --bounds 'my bounds.toml' --epsilon 0.5,1,3 --seeds 5 --out c"
    )
    complain(f"Stopped. 3 of 15 results are kept in c. Continue with: {command}")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().err)
    assert list_long(shown.splitlines()) == []
    before, copied = shown.split("Continue with:")
    assert "tacit" not in before
    # A shell reads a backslash at the end of a line as nothing.
    assert shlex.split(copied.replace("\\\n", "")) == shlex.split(command)


def test_each_of_two_commands_in_a_message_can_be_copied(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    settle, resume = "tacit ledger settle /home/someone/team.ledger af6ee16b8a17", "tacit train --resume runs/first"
    complain(f"Stopped and saved. The ledger keeps the rest; to give it back: {settle}. Resume with: {resume}")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().err)
    assert list_long(shown.splitlines()) == []
    assert f"\n  {settle}\n" in shown
    assert shown.endswith(f"Resume with: {resume}\n")
