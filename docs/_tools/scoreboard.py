"""Write docs/scoreboard.md from our records and published numbers: `python docs/_tools/scoreboard.py`.

Ours are the runs in experiments/best/results.jsonl, at the largest certified epsilon that is not above that of the
published number. So a comparison never gives us the larger budget.
"""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "experiments" / "best" / "results.jsonl"
ANCHORS = Path(__file__).with_name("anchors.toml")
PAGE = ROOT / "docs" / "scoreboard.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
NETWORK = "network"
COLUMNS = (
    "data", "published by", "its rules", "its ε", "its accuracy", "our ε", "our accuracy", "seeds", "minutes", "",
)  # fmt: skip


def read_ours() -> dict[str, dict[float, list[dict[str, Any]]]]:
    """Our private runs at full size: by part and by epsilon that was asked for."""
    found: dict[str, dict[float, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for line in RECORDS.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        asked = record["asked"]
        if record["part"] == NETWORK:
            # Of the networks that were tried, the one that ships: what it hands out is the mean of its weights.
            if asked.get("hidden") == 0:
                record["found"]["accuracy"] = record["found"]["averaged"]
                found[NETWORK][asked["epsilon"]].append(record)
        elif set(asked) == {"epsilon", "seed", "size"} and asked["size"] == "full" and asked["epsilon"]:
            found[record["part"]][asked["epsilon"]].append(record)
    return found


def choose(ours: dict[float, list[dict[str, Any]]], epsilon: float) -> tuple[list[dict[str, Any]], bool]:
    """The runs at the largest epsilon whose certified value is at most the published one, and whether there are any.

    If there are none, those at the smallest epsilon above it: they can only show that we are behind.
    """
    fits = [asked for asked, runs in ours.items() if max(run["found"]["certified"] for run in runs) <= epsilon]
    return ours[max(fits) if fits else min(ours)], bool(fits)


def show(values: list[float], digits: int, factor: float) -> str:
    """A mean, with the standard deviation over seeds if there are several."""
    spread = f" ± {factor * stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{factor * mean(values):.{digits}f}{spread}"


def write_row(anchor: dict[str, Any], ours: dict[str, dict[float, list[dict[str, Any]]]]) -> list[str]:
    """One published number with ours beside it."""
    runs, fits = choose(ours[anchor.get("part", anchor["data"])], anchor["epsilon"])
    theirs = f"{anchor['share']:g} %" + (f", AUC {anchor['auc']:.3f}" if "auc" in anchor else "")
    row = [anchor["data"], anchor["source"], anchor["rules"], f"{anchor['epsilon']:g}", theirs]
    if anchor.get("is_fixed"):
        return [*row, "", "not run by these rules", "", "", "not compared"]
    accuracy = [run["found"]["accuracy"] for run in runs]
    own = f"{show(accuracy, 2, 100)} %"
    if "auc" in anchor:
        own += f", AUC {show([run['found']['auc'] for run in runs], 3, 1)}"
    gap = 100 * mean(accuracy) - anchor["share"]
    verdict = "ahead" if gap > 0.05 else "**behind**" if gap < -0.05 else "equal"
    if not fits:
        verdict = "**behind**, with more ε" if gap < 0 else "not compared: more ε"
    certified = max(run["found"]["certified"] for run in runs)
    minutes = mean(run["seconds"] for run in runs) / 60
    return [*row, f"{certified:.3g}", own, str(len(runs)), f"{minutes:.1f}", f"{verdict} ({gap:+.1f})"]


def write_table() -> str:
    """The whole table, and on what machines ours were run."""
    ours = read_ours()
    anchors = tomllib.loads(ANCHORS.read_text(encoding="utf-8"))["anchor"]
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *(write_row(anchor, ours) for anchor in anchors)]
    verdicts = [row[-1].split(" ")[0].strip("*,") for row in rows[2:]]
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in ("ahead", "equal", "behind", "not"))
    machines = sorted({run["machine"] for part in ours.values() for runs in part.values() for run in runs})
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    summary = f"{counts.replace(' not', ' not compared')}, of {len(anchors)} published numbers."
    return "\n".join([summary, "", *lines, "", f"Our runs: {'; '.join(machines)}."])


def main() -> None:
    """Write the table between its markers."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{write_table()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
