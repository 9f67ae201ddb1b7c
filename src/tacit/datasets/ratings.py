"""MovieLens: how many stars a person gives a film. One rating is one example, so a person is in many.

Training on ratings protects each rating. What protects a person with k ratings is `curve(event).group(k)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.datasets.data import Array, Data, private_part, split
from tacit.datasets.files import File, content, forms, is_archive, only_content, reading

_STARS = 5.0


@dataclass(frozen=True)
class _Edition:
    """The file with the ratings, what separates its fields, and how many people, films and ratings were published."""

    file: str
    archive: str
    separator: str
    people: int
    films: int
    ratings: int

    @property
    def looked_for(self) -> str:
        """The names that are looked for."""
        return f"{self.file}[.gz], {self.archive}, or else for {self.folder}.inter[.gz]"

    @property
    def folder(self) -> str:
        """What the archive leaves when it is unpacked."""
        return self.archive.removesuffix(".zip")

    @property
    def files(self) -> tuple[str, str]:
        """The names that the ratings have, the published one first."""
        return self.file, f"{self.folder}.inter"


# Films of the larger edition are numbered up to 3952, with gaps.
EDITIONS = {
    "movielens-100k": _Edition("u.data", "ml-100k.zip", r"\t", people=943, films=1_682, ratings=100_000),
    "movielens-1m": _Edition("ratings.dat", "ml-1m.zip", "::", people=6_040, films=3_952, ratings=1_000_209),
}


def read_movielens(name: str, where: Path) -> Data | None:
    """The ratings of this edition; None if they are not there."""
    edition = EDITIONS[name]
    found = _content(edition, where)
    if found is None:
        return None
    with reading(found.path, f"ratings of {name}"):
        table = _numbers(found.content, edition.separator)
        pairs, stars = table[:, :2].astype(np.int64) - 1, table[:, 2]
        beyond = (pairs < 0) | (pairs >= (edition.people, edition.films))
        if np.any(beyond) or np.any((stars < 0) | (stars > _STARS)):
            raise ValueError(f"{name} has people 1 to {edition.people}, films 1 to {edition.films} and 0 to 5 stars")
    # In the larger edition the ratings of a person stand together; the split goes through each person's.
    train, test = split(pairs, (stars / _STARS).astype(np.float32)[:, np.newaxis])
    return Data(
        name,
        train,
        test,
        classes=None,
        population=private_part(edition.ratings),
        scaling="people and films are numbers, as published",
        unit=_STARS,
        vocabulary=(edition.people, edition.films),
        example="rating",
    )


def is_there(name: str, where: Path) -> bool:
    """Whether the ratings of this edition are there. A file of another name is told by what separates its fields."""
    if not where.is_file() or is_archive(where.name):
        return _content(EDITIONS[name], where) is not None
    named = [each for each, edition in EDITIONS.items() if any(where.name in forms(file) for file in edition.files)]
    with reading(where, "ratings"):
        larger = b"::" in content(where).partition(b"\n")[0]
    return name == (named[0] if named else "movielens-1m" if larger else "movielens-100k")


def _content(edition: _Edition, where: Path) -> File | None:
    return only_content(where, edition.files, [edition.archive])


def _numbers(text: bytes, separator: str) -> Array:
    """[ratings, 4]: person, film, stars, time. A first line with names, as some copies have, is left out."""
    lines = text.decode("latin-1").strip().splitlines()
    rows = lines if lines[0][:1].isdigit() else lines[1:]
    fields = [re.split(rf"{separator}|\t", row.strip())[:4] for row in rows]
    table: Array = np.array(fields, dtype=np.float64)
    return table
