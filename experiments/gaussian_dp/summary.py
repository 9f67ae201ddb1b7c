"""The numbers of the summary: by name, for the sentences in expected.toml."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

from experiments.library import Order, Record

from .accounting import Steps, accounted


def values(order: Order, records: list[Record]) -> dict[str, float]:
    """Means over runs, accuracies in per cent; what each of table 1 misses, and what accountants say of figure 4."""
    found = {**_table_1(order, records), **_figure_4(order, records)}
    for name, number, wanted in _SHOWN:
        runs = [one.found for one in records if one.part == f"table {number}" and _fits(one.asked, wanted)]
        if runs:
            scale = 1 if number == "4" else 100
            found[name] = scale * mean(run["scores"][-1] for run in runs)
        likeliest = [run["likeliest"] for run in runs if "likeliest" in run]
        if likeliest:
            found[f"{name}_likeliest"] = mean(likeliest)
    for record in records:
        if record.part == "figure 3":
            found |= {f"sum_{name}": value for name, value in record.found.items()}
    return found


_RATINGS = {"data": "movielens-100k", "predicts": "classes"}
# The name of a value, its table, and what its runs were asked for.
_SHOWN: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("adult", "2", {"data": "a9a", "epochs": int}),
    ("adult_bare", "2", {"data": "a9a", "bare_epochs": int}),
    ("neighbours", "2", {"baseline": "k nearest neighbours"}),
    ("bayes", "2", {"baseline": "naive Bayes"}),
    ("tree", "2", {"baseline": "decision tree"}),
    ("imdb", "3", {"words": "last", "epochs": int, "adam": None}),
    ("imdb_printed", "3", {"words": "last", "epochs": int, "adam": "printed"}),
    ("stars", "4", {**_RATINGS, "epochs": int, "adam": None}),
    ("stars_printed", "4", {**_RATINGS, "epochs": int, "adam": "printed"}),
    ("stars_bare", "4", {**_RATINGS, "bare_epochs": int}),
    ("svd", "4", {**_RATINGS, "baseline": "SVD"}),
    ("average", "4", {**_RATINGS, "baseline": "global average"}),
)


def _fits(asked: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(
        isinstance(asked.get(name), int) if value is int else asked.get(name) == value for name, value in wanted.items()
    )


def _table_1(order: Order, records: list[Record]) -> dict[str, float]:
    """The largest difference between an accuracy of table 1 and ours."""
    paper = {row["multiplier"]: row["accuracy"] for row in order.expected["table1"]}
    runs = [one for one in records if one.part == "table 1" and "scores" in one.found]
    missed = [abs(100 * one.found["scores"][-1] - paper[one.asked["multiplier"]]) for one in runs]
    return {"missed": max(missed), "rows": len(missed)} if missed else {}


def _figure_4(order: Order, records: list[Record]) -> dict[str, float]:
    found = {}
    for row in order.settings["figure4"]:
        for name in ("multiplier", "lower_multiplier"):
            steps = Steps.of(row[name], order.settings["mnist"]["lot_size"], 60_000, row["epochs"])
            certified = accounted(steps, order.settings["delta"])["certified"]
            found[f"{name}_{row['epochs']}"] = certified
    for record in records:
        if record.part == "figure 4":
            reached = [number for number, score in enumerate(record.found["scores"], 1) if score >= 0.97]
            is_lower = record.asked["trained_with"] == record.asked["lower_multiplier"]
            if reached:
                found["epochs_lower" if is_lower else "epochs_higher"] = reached[0]
    return found
