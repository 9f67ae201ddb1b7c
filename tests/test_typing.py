"""A wrong order of the stages does not pass the type checker."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def reports():
    """What mypy says of both pages. It runs with the project's settings, so that it finds what it checked before."""
    pages = [f"tests/typing/{name}" for name in ("right_order.py", "wrong_order.py")]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", *pages],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert not run.stderr, run.stderr
    return run.stdout


def lines_reported(name, reports):
    return {int(number) for number in re.findall(rf"{name}:(\d+): error", reports)}


def lines_marked(name):
    text = (ROOT / "tests" / "typing" / name).read_text(encoding="utf-8")
    return {number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# wrong")}


@pytest.mark.slow
def test_every_wrong_order_is_reported(reports):
    assert lines_reported("wrong_order.py", reports) == lines_marked("wrong_order.py") != set()


@pytest.mark.slow
def test_the_right_order_passes(reports):
    assert lines_reported("right_order.py", reports) == set()
