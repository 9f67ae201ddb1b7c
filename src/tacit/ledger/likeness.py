"""Recognises a table that a ledger knows under another name: by its columns, its bounds and a sample of its rows.

Everything is keyed with the ledger's secret, like fingerprints. Of the rows a ledger keeps the smallest keyed hashes,
which are the same sample of rows for every table that has them (bottom-k sketch).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tacit.ledger.book import Book

_SAMPLE = 256
# So many sampled rows in common are no accident, unless a table has few different rows.
_FEW = 3


@dataclass(frozen=True)
class Traits:
    """What tells a table from others: its column names, the text of its bounds, and a hash of each row.

    It is as private as the rows. A ledger stores it keyed only.
    """

    columns: tuple[str, ...]
    bounds: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Similar:
    """A data set in the ledger that looks like a table: in its columns, its bounds, and this share of sampled rows."""

    dataset: str
    has_same_columns: bool
    has_same_bounds: bool
    share: float

    def __str__(self) -> str:
        found = [f"about {100 * self.share:.0f} % of the rows"] if self.share else []
        found += ["the columns"] if self.has_same_columns else []
        found += ["the bounds file"] if self.has_same_bounds else []
        listed = " and ".join(filter(None, [", ".join(found[:-1]), found[-1]]))
        return f"{self.dataset!r} ({listed} are the same)"


def key_traits(book: Book, traits: Traits) -> dict[str, Any]:
    """The traits as a row of the ledger stores them."""
    hashes = {book.key_fingerprint(f"row {row}") for row in traits.rows}
    return {
        "columns": book.key_fingerprint(f"columns {json.dumps(sorted(traits.columns))}"),
        "bounds": book.key_fingerprint(f"bounds {traits.bounds}"),
        "rows": sorted(hashes)[:_SAMPLE],
    }


def find_similar(book: Book, dataset: str, found: dict[str, Any]) -> list[Similar]:
    """Other data sets with charges that share rows or bounds with these keyed traits."""
    charged = {entry.dataset for entry in book.entries if entry.kind in ("reserve", "settle")}
    known = {entry.dataset: entry.content for entry in book.entries if entry.kind == "table"}
    alike = []
    for name, traits in known.items():
        if name != dataset and name in charged:
            ours, theirs = set(found["rows"]), set(traits["rows"])
            sample = set(sorted(ours | theirs)[:_SAMPLE])
            common = sample & ours & theirs
            share = len(common) / len(sample) if len(common) >= _FEW else 0.0
            same = traits["columns"] == found["columns"], traits["bounds"] == found["bounds"]
            alike.append(Similar(name, *same, share))
    return [one for one in alike if one.share or one.has_same_bounds or one.has_same_columns]
