"""The scoreboard: its table is what the script makes of the records, and never compares at a larger budget of ours."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOL = runpy.run_path(str(ROOT / "docs" / "_tools" / "scoreboard.py"))


def test_the_page_holds_the_table_that_the_records_give():
    assert TOOL["write_table"]() in (ROOT / "docs" / "scoreboard.md").read_text(encoding="utf-8")


def test_no_row_is_ahead_with_more_epsilon():
    rows = [line.strip("| ").split(" | ") for line in TOOL["write_table"]().splitlines() if line.startswith("| ")][1:]
    compared = [row for row in rows if row[-1].startswith(("ahead", "equal"))]
    assert len(compared) > 10
    assert all(float(row[5]) <= float(row[3]) for row in compared)
