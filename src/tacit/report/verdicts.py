"""What to take from a comparison, in sentences: who is best where that can be told, and what no score can say."""

from __future__ import annotations

from tacit.report.facts import Facts
from tacit.report.spread import is_better, scored_words

NON_PRIVATE = "non_private"
_IN_WORDS = {"add_remove": "one example added or removed", "replace_one": "one example replaced"}


def words_of(rows: list[Facts], measure: str, data: Facts, *, is_finished: bool) -> list[str]:
    """What to take from the table, and what not."""
    rigorous = {row["epsilon"] for row in rows if is_proven(row) and row["mode"] == "rigorous"}
    words = [part for epsilon in sorted(rigorous) for part in _best(rows, epsilon, measure)] if is_finished else []
    idle = list(dict.fromkeys(row["label"] for row in rows if row["is_idle"]))
    if idle:
        constant = data["constant"]
        answer = f"{100 * constant:.1f} %" if measure == "accuracy" else f"{constant:.4g}"
        words.append(f"At some ε or at every one no better than one answer for all ({answer}): {', '.join(idle)}.")
    words += dict.fromkeys(refusals(rows))
    repaired = list(dict.fromkeys(row["method"] for row in rows if row["is_repaired"]))
    if repaired:
        beside = "" if any(row["mode"] == "paper" for row in rows) else " --mode both shows them as published, too."
        words.append(f"Refuted as published, and repaired so that a proof holds: {', '.join(repaired)}.{beside}")
    words.append(
        "The same ε means different things for an example added or removed and for one replaced: do not compare across."
    )
    words.append(
        "Every method has its defaults, but for what stands beside its name, and none was tuned. Seeds were fixed, so "
        "nothing trained here is for release; "
        "and whoever chooses by these scores has used the "
        + ("private rows held out, which no guarantee here covers." if data["test"] == "held out" else "test examples.")
    )
    return words


def refusals(rows: list[Facts]) -> list[str]:
    """What did not fit, in the words of whoever refused it."""
    return [f"{row['label']} does not fit: {row['refused']}" for row in rows if row["refused"]]


def is_proven(row: Facts) -> bool:
    """Whether there is a proof for everything about an example: for what it leaves out, nothing is certified."""
    return row["certified"] is not None and not row["unprotected"]


def missing_words(label: str, epsilon: float | None, seeds: int) -> str:
    """Cells that are not there yet.

    >>> missing_words("dpsgd", 0.5, 2), missing_words("without privacy", None, 1)
    ('dpsgd at ε = 0.5 (2 seeds)', 'without privacy (1 seed)')
    """
    at = "" if epsilon is None else f" at ε = {epsilon:g}"
    return f"{label}{at} ({seeds} seed{'s' if seeds > 1 else ''})"


def _best(rows: list[Facts], epsilon: float, measure: str) -> list[str]:
    """For each adjacency the best at this epsilon, or who cannot be told from it."""
    best, parts = (max if measure == "accuracy" else min), []
    for adjacency, shown in _IN_WORDS.items():
        at = [row for row in rows if (row["epsilon"], row["adjacency"]) == (epsilon, adjacency)]
        # Published forms cost more than the epsilon that they were asked for: they are no competitors.
        those = [row for row in at if is_proven(row) and row["mode"] == "rigorous"]
        if those:
            winner = best(those, key=lambda row: row["mean"])
            parts.append(f"At ε = {epsilon:g} ({shown}) {_standing(winner, those, measure)}.")
    return parts


def _standing(winner: Facts, rows: list[Facts], measure: str) -> str:
    """How the one with the best mean stands among those with a proof."""
    if len(rows) == 1:
        return f"the only method with a proof is {winner['label']} with {scored_words(winner)}"
    near_it = [row["label"] for row in rows if row is not winner and not is_better(winner, row)]
    if not near_it:
        return f"the best with a proof is {winner['label']} with {scored_words(winner)}"
    extreme = "highest accuracy" if measure == "accuracy" else "smallest error"
    return (
        f"no method with a proof is the best for sure: {winner['label']} has the {extreme}, {scored_words(winner)}, "
        f"and {', '.join(near_it)} cannot be told from it"
    )
