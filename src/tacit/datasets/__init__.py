"""Data sets by name: features within declared public bounds, a private part to train on, a public part to test on.

Nothing here looks at the examples to decide how to treat them: bounds, categories, sizes and the split are constants
of this package, or declared by the user. Small data sets come with scikit-learn; others are downloaded once, or read
from a copy that the user has, in the form in which they were published.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tacit.datasets import adult, cache, colour, images, kddcup99, ratings, reviews, tables
from tacit.datasets.bundled import BUNDLED, read_bundled
from tacit.datasets.data import Data
from tacit.datasets.own import is_table, load_table
from tacit.datasets.sources import SOURCES
from tacit.errors import InvalidArgument

__all__ = ["NAMES", "Data", "is_table", "load", "load_table", "load_words"]


@dataclass(frozen=True)
class _Reader:
    """Reads a data set from a file or folder (None if it is not there), and says which files it looks for."""

    read: Callable[[Path], Data | None]
    looked_for: str


_READERS = {
    "a9a": _Reader(adult.read_a9a, adult.A9A_FILES),
    "adult": _Reader(
        adult.read_adult,
        f"{adult.ADULT_FILES}, and for {adult.A9A_FILES}: a folder must hold both files of a pair",
    ),
    "cifar10": _Reader(colour.read_cifar10, colour.CIFAR_FILES),
    "imdb": _Reader(reviews.read_imdb, reviews.FILES),
    "kddcup99": _Reader(kddcup99.read_kddcup99, kddcup99.FILES),
    "svhn": _Reader(colour.read_svhn, colour.SVHN_FILES),
    **{name: _Reader(partial(images.read_images, name), images.files_of(name)) for name in images.IMAGES},
    **{name: _Reader(partial(tables.read_table, name), tables.files_of(name)) for name in tables.PUBLISHED},
    **{
        name: _Reader(partial(ratings.read_movielens, name), edition.looked_for)
        for name, edition in ratings.EDITIONS.items()
    },
}
_ALIASES = {"movielens": "movielens-100k"}

NAMES = tuple(sorted([*BUNDLED, *_READERS]))


def load(name: str, path: str | os.PathLike[str] | None = None) -> Data:
    """The data set called `name`; `path` says where the user's copy lies: a folder, or a file.

    Without one, it is looked for in the folder of `TACIT_DATA` (or that of the system for such files) and, if it is
    not there, downloaded, checked and kept. `DataMissing` says which files go where if that cannot be done.

    >>> load("iris")
    Data(name='iris', classes=3, population=119)
    """
    name = _ALIASES.get(name, name)
    if name not in NAMES:
        close = difflib.get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise InvalidArgument(f"There is no data set {name!r}. Known are {', '.join(NAMES)}.{hint}")
    if name in BUNDLED:
        if path is not None:
            raise InvalidArgument(f"{name} comes with scikit-learn and is not read from {path}. Leave the path out.")
        return read_bundled(name)
    found = _kept(name) if path is None else _READERS[name].read(Path(path).expanduser())
    if found is None:
        raise InvalidArgument(f"There is no {name} in {path}. Looked for {_READERS[name].looked_for}.")
    return replace(found, source=SOURCES[name].page)


def load_words(name: str = "imdb", path: str | os.PathLike[str] | None = None) -> tuple[reviews.Texts, reviews.Texts]:
    """Texts to train on and to test on, each cut into its words, with labels; for `tacit.features.HashedWords`."""
    if name != "imdb":
        raise InvalidArgument(f"There are texts in imdb only. Got {name!r}.")
    where = cache.folder() / name if path is None else Path(path).expanduser()
    found = reviews.read_words(where)
    if found is None and path is None:
        cache.fetch(name, SOURCES[name], where)
        found = reviews.read_words(where)
    if found is None:
        raise InvalidArgument(f"There is no {name} in {where}. Looked for {reviews.FILES}.")
    return found


def _kept(name: str) -> Data | None:
    """The copy that is kept on this machine, downloaded first if there is none."""
    where = cache.folder() / name
    found = _READERS[name].read(where)
    if found is None:
        cache.fetch(name, SOURCES[name], where)
        found = _READERS[name].read(where)
    return found
