"""What to take from a comparison, in sentences: who is best where that can be told, and what no score can say."""

from __future__ import annotations

from tacit.reports.facts import Facts
from tacit.reports.spread import is_better, scored_words

NON_PRIVATE = "non_private"
# Of the epsilon that was asked for; noise is found so closely.
_ROUNDING = 1e-6
_IN_WORDS = {"add_remove": "one example added or removed", "replace_one": "one example replaced"}


def words_of(rows: list[Facts], measure: str, data: Facts, given: Facts, *, is_finished: bool) -> list[str]:
    """What to take from the table, and what not. `given` are the settings that are no defaults."""
    asked = sorted({row["epsilon"] for row in rows if _competes(row)})
    words = [part for epsilon in asked for part in _best(rows, epsilon, measure)] if is_finished else []
    idle = list(dict.fromkeys(row["label"] for row in rows if row["is_idle"]))
    if idle:
        constant = data["constant"]
        answer = f"{100 * constant:.1f} %" if measure == "accuracy" else f"{constant:.4g}"
        words.append(f"At some ε or at every one no better than one answer for all ({answer}): {', '.join(idle)}.")
    diverged = list(dict.fromkeys(row["label"] for row in rows if row["diverged"]))
    if diverged:
        words.append(
            f"At some ε or at every one the training of {', '.join(diverged)} diverged: it has no score there, and no "
            "mark in the picture. A smaller --learning-rate may help."
        )
    words += dict.fromkeys(refusals(rows))
    repaired = list(dict.fromkeys(row["method"] for row in rows if row["is_repaired"]))
    if repaired:
        beside = "" if any(row["mode"] == "paper" for row in rows) else " --mode both shows them as published, too."
        words.append(f"Refuted as published, and repaired so that a proof holds: {', '.join(repaired)}.{beside}")
    words.append(
        "The same ε means different things for an example added or removed and for one replaced: do not compare across."
    )
    used = "private rows held out, which no guarantee here covers" if data["test"] == "held out" else "test examples"
    words.append(
        f"{_settings_words(given)} Seeds were fixed, so nothing trained here is for release; and whoever chooses by "
        f"these scores has used the {used}."
    )
    return words


def _settings_words(given: Facts) -> str:
    """Whose settings those are.

    >>> _settings_words({"steps": 20, "learning_rate": 0.1})
    "Given to every method that takes them: steps 20, learning rate 0.1. All else is each method's default, but ..."
    """
    if not given:
        return "Every method has its defaults, but for what stands beside its name, and none was tuned."
    listed = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in given.items())
    return (
        f"Given to every method that takes them: {listed}. All else is each method's default, but for what stands "
        "beside its name. None was tuned here; what was given may suit one better than another."
    )


def refusals(rows: list[Facts]) -> list[str]:
    """What did not fit, in the words of whoever refused it."""
    return [f"{row['label']} does not fit: {row['refused']}" for row in rows if row["refused"]]


def is_proven(row: Facts) -> bool:
    """Whether there is a proof for everything about an example: for what it leaves out, nothing is certified."""
    return row["certified"] is not None and not row["unprotected"]


def _keeps(row: Facts) -> bool:
    """Whether it is proven to keep the epsilon that was asked for: a published form may cost more."""
    return is_proven(row) and bool(row["certified"] <= row["epsilon"] * (1 + _ROUNDING))


def _competes(row: Facts) -> bool:
    """Whether it has a score, too: who diverged has none."""
    return row["mean"] is not None and _keeps(row)


def missing_words(label: str, epsilon: float | None, seeds: int) -> str:
    """Cells that are not there yet.

    >>> missing_words("dpsgd", 0.5, 2), missing_words("without privacy", None, 1)
    ('dpsgd at ε = 0.5 (2 seeds)', 'without privacy (1 seed)')
    """
    at = "" if epsilon is None else f" at ε = {epsilon:g}"
    return f"{label}{at} ({seeds} seed{'s' if seeds > 1 else ''})"


def _listed(names: list[str]) -> str:
    """Names as they are said.

    >>> _listed(["a"]), _listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _best(rows: list[Facts], epsilon: float, measure: str) -> list[str]:
    """For each adjacency the best at this epsilon, or who cannot be told from it."""
    best, parts = (max if measure == "accuracy" else min), []
    for adjacency, shown in _IN_WORDS.items():
        at = [row for row in rows if (row["epsilon"], row["adjacency"]) == (epsilon, adjacency)]
        those = [row for row in at if _competes(row)]
        if those:
            winner = best(those, key=lambda row: row["mean"])
            unscored = sum(map(_keeps, at)) - len(those)
            parts.append(f"At ε = {epsilon:g} ({shown}) {_standing(winner, those, measure, unscored)}.")
    return parts


def _standing(winner: Facts, rows: list[Facts], measure: str, unscored: int) -> str:
    """How the one with the best mean stands among those that are proven to keep this epsilon.

    So many more are proven to, and have no score.
    """
    if len(rows) == 1:
        alone = "the only one with a score among those" if unscored else "the only one"
        return f"{alone} proven to keep it is {winner['label']} with {scored_words(winner)}"
    extreme = "highest accuracy" if measure == "accuracy" else "smallest error"
    leads = f"{winner['label']} has the {extreme}, {scored_words(winner)}"
    single = [row["label"] for row in rows if row["seeds"] == 1]
    if single:
        whose = "" if len(single) == len(rows) else f" of {', '.join(single)}"
        return f"no best can be told from one seed{whose}: of those proven to keep it, {leads}"
    near_it = [row["label"] for row in rows if row is not winner and not is_better(winner, row)]
    if not near_it:
        return f"the best of those proven to keep it is {winner['label']} with {scored_words(winner)}"
    return (
        f"none of those proven to keep it is the best for sure: {leads}, and {_listed(near_it)} cannot be told from it"
    )
