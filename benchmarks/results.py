"""RESULTS.md: every script owns what stands between its two markers there."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def environment(packages: Sequence[str]) -> str:
    """Where the numbers come from, without naming the machine."""
    threads = ", ".join(f"{name}={os.environ.get(name, 'unset')}" for name in THREADS)
    facts = (
        f"Date: {date.today().isoformat()}",
        f"CPU: {_cpu()}, {os.cpu_count()} cores",
        f"Python: {platform.python_version()} on {platform.system()}",
        f"Packages: {', '.join(f'{package} {_version(package)}' for package in packages)}",
        f"Threads: {threads}",
    )
    return "\n".join(f"- {fact}" for fact in facts)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "from source"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def show_table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that is also aligned as text."""
    safe = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in safe) for column in range(len(safe[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in safe
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def draw_growth(path: Path, across: str, up: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """A picture of lines on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = path.stem
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.6))
    styles = (("o-", "#0072B2"), ("s--", "#AA4499"), ("^:", "#117733"))
    for (name, points), (style, colour) in zip(lines.items(), styles, strict=False):
        axes.loglog(*zip(*points, strict=True), style, color=colour, label=name)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def write_section(path: Path, name: str, section: str) -> None:
    """Replace what stands between the markers of `name`; whatever else is in the file stays."""
    begin_mark, end_mark = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = path.read_text() if path.exists() else "# Results\n\nWritten by the scripts in this folder: see README.md.\n"
    marked = f"{begin_mark}\n{section}\n{end_mark}"
    before, begin, rest = text.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if begin and not end:
        raise SystemExit(f"{path.name} has {begin_mark} without {end_mark}. Restore the marker, or delete both.")
    path.write_text(f"{before}{marked}{after}" if begin else f"{text.rstrip()}\n\n{marked}\n")


def deliver(name: str, section: str, output: Path | None, printed: bool) -> None:
    """Write the section of `name` to `output` or RESULTS.md; only print it if so wished and no file is named."""
    if printed and output is None:
        print("\n" + section)
    else:
        write_section(output or RESULTS, name, section)
