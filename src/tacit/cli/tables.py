"""Tables of audits: what is claimed, proven and found, in columns."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from tacit.audit.evidence import LowerBound
from tacit.reports.wording import down


def console() -> Console:
    """As wide as the terminal; wide enough for every row where there is none."""
    found = Console()
    return found if found.is_terminal else Console(width=170)


def table(*columns: str) -> Table:
    """An empty table that folds what does not fit."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def epsilon(value: float | None, otherwise: str) -> str:
    """A number, or the word for there being none."""
    return otherwise if value is None or value == float("inf") else f"{value:.4g}"


def audited(bound: LowerBound) -> str:
    """A lower bound, rounded down, and how sure it is."""
    sure = bound.kind.value if bound.is_certain else f"{100 * bound.confidence:g} % confidence"
    if bound.gap is not None and bound.epsilon == float("inf"):
        return f"no finite epsilon: delta ≥ {bound.gap:.4g} ({sure})"
    return f"≥ {down(bound.epsilon, 4)} ({sure})"
