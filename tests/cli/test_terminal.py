"""Every command in a terminal of 80 columns: no line is longer, and no word is broken."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from itertools import pairwise

import pytest
import typer

from tacit.cli import app

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


def run_in_terminal(arguments: list[str]) -> tuple[int, list[str]]:
    """The exit code and the lines that a terminal of 80 columns shows, without colours; "\\r" begins a line too."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    program = [sys.executable, "-m", "tacit", *arguments]
    with subprocess.Popen(program, stdin=theirs, stdout=theirs, stderr=theirs, env={**env, "TERM": "xterm"}) as process:
        os.close(theirs)
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
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    return process.returncode, re.split(r"[\r\n]+", text)


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("methods", 0),
        ("methods directional", 0),
        ("bounds patients.csv --target outcome --out new.toml", 0),
        ("epsilon --multiplier 1.1 --lot-size 256 --population 60000 --steps 10 --delta 1e-5", 0),
        ("noise --epsilon 1 --delta 1e-5 --families --dimension 10", 0),
        ("plan --population 2000 --epsilon 1 --features 10", 0),
        ("train patients.csv --target outcome --bounds template.toml --epsilon 1", 2),
        ("train --mode strictly", 2),
        ("train iris --epsilon 1 --method dpsg", 2),
        ("ledger budget a.ledger a --epsilon 3", 2),
    ],
)
def test_a_command_fits_into_80_columns(line, code):
    found, lines = run_in_terminal(line.split())
    assert found == code, lines
    assert list_long(lines) == []


@pytest.mark.slow
def test_training_its_predictions_report_ledger_and_audit_fit_into_80_columns(tmp_path):
    words: set[str] = set()
    for line in (
        "train patients.csv --target outcome --bounds bounds.toml --epsilon 8 --ledger a.ledger --steps 5 --out run",
        "predict run patients.csv --out predictions.csv",
        "report run",
        "ledger show a.ledger",
        "audit run --canaries 20",
    ):
        code, lines = run_in_terminal(line.split())
        assert code == 0, lines
        assert list_long(lines) == [], line
        words |= {word for each in lines for word in each.split()}
        assert list_broken(lines, words) == [], line


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
