"""MovieLens: how many stars a person gives a film. One rating is one example, so a person has many.

Training protects each rating. A person with k ratings is protected by `curve(event).group(k)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.datasets import DataSet, Source, TrainingDefaults
from tacit.datasets._columns import Array, Number
from tacit.datasets._data import Data, Form, IndexForm, count_training_rows, split_rows
from tacit.datasets._files import File, explain_errors, find_one_file, is_archive, list_forms, read_content

_STARS = 5.0


@dataclass(frozen=True)
class Edition:
    """An edition: the file with the ratings, the separator of its fields, its published numbers, its archive's hash."""

    name: str
    file: str
    separator: str
    people: int
    films: int
    ratings: int
    folder: str
    sha256: str

    def dataset(self) -> DataSet:
        """The data set of this edition."""
        archive = f"{self.folder}.zip"
        page = f"https://grouplens.org/datasets/movielens/{self.name.removeprefix('movielens-')}/"
        return DataSet(
            self.name,
            Source.of_files(page, "https://files.grouplens.org/datasets/movielens", {archive: self.sha256}),
            read=self.read,
            files=f"{self.file}[.gz], {archive}, or else for {self.folder}.inter[.gz]",
            folders=(self.folder,),
            defaults=TrainingDefaults("embedding", lot_size=1_000, epochs=20, learning_rate=1.0, adam_rate=0.01),
            edition_of="movielens",
            is_there=self.is_there,
        )

    def read(self, where: Path) -> Data | None:
        """The ratings of this edition; None if they are not there."""
        found = self._find(where)
        if found is None:
            return None
        with explain_errors(found.path, f"ratings of {self.name}"):
            table = _parse(found.content, self.separator)
            pairs, stars = table[:, :2].astype(np.int64) - 1, table[:, 2]
            beyond = (pairs < 0) | (pairs >= (self.people, self.films))
            if np.any(beyond) or np.any((stars < 0) | (stars > _STARS)):
                raise ValueError(f"{self.name} has people 1 to {self.people}, films 1 to {self.films} and 0 to 5 stars")
        # In movielens-1m the ratings of a person are consecutive; the split goes through each person's.
        train, test = split_rows(pairs, (stars / _STARS).astype(np.float32)[:, np.newaxis])
        return Data(
            self.name,
            train,
            test,
            classes=None,
            population=count_training_rows(self.ratings),
            scaling="people and films are numbers, as published",
            unit=_STARS,
            vocabulary=(self.people, self.films),
            example="rating",
            form=Form(
                IndexForm(("person", "film"), (self.people, self.films), first=1, ignored=("time",)),
                "stars",
                range=Number(0, _STARS),
            ),
        )

    def is_there(self, where: Path) -> bool:
        """Whether the ratings of this edition are there. A file of any other name is recognised by its separator."""
        if not where.is_file() or is_archive(where.name):
            return self._find(where) is not None
        if any(where.name in list_forms(file) for file in self._files()):
            return True
        with explain_errors(where, "ratings"):
            first_line = read_content(where).partition(b"\n")[0]
        is_of_another = where.name.partition(".gz")[0] in _RESERVED
        return not is_of_another and (b"::" in first_line) == (self.separator == "::")

    def _files(self) -> tuple[str, str]:
        """The names of the file with the ratings, the published one first."""
        return self.file, f"{self.folder}.inter"

    def _find(self, where: Path) -> File | None:
        return find_one_file(where, self._files(), [f"{self.folder}.zip"])


_RESERVED = ("u.data", "ml-100k.inter", "ratings.dat", "ml-1m.inter")


def _parse(text: bytes, separator: str) -> Array:
    """[ratings, 4]: person, film, stars, time. A first line with names, as some copies have, is left out."""
    lines = text.decode("latin-1").strip().splitlines()
    rows = lines if lines[0][:1].isdigit() else lines[1:]
    return np.array([re.split(rf"{separator}|\t", row.strip())[:4] for row in rows], dtype=np.float64)


DATASET = Edition(
    "movielens-100k",
    "u.data",
    r"\t",
    people=943,
    films=1_682,
    ratings=100_000,
    folder="ml-100k",
    sha256="50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
).dataset()
