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
from typing import TypeVar

from tacit.datasets import adult, cache, colour, images, kddcup99, ratings, reviews, tables
from tacit.datasets.bundled import BUNDLED, read_bundled
from tacit.datasets.data import Data
from tacit.datasets.own import is_table, load_table
from tacit.datasets.places import below, lone, spellings
from tacit.datasets.sizes import warn_of_other_size
from tacit.datasets.sources import SOURCES
from tacit.errors import InvalidArgument

__all__ = ["NAMES", "Data", "is_kept", "is_table", "load", "load_table", "load_words", "read_from"]


_READ = TypeVar("_READ")


@dataclass(frozen=True)
class _Reader:
    """Reads a data set from a file or folder (None if it is not there), and says which files it looks for.

    `inside` are folders that hold them where an archive was unpacked; of a folder with a single file of one of the
    `endings`, that file is read, whatever its name.
    """

    read: Callable[[Path], Data | None]
    looked_for: str
    inside: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()


_READERS = {
    "a9a": _Reader(adult.read_a9a, adult.A9A_FILES),
    "adult": _Reader(
        adult.read_adult,
        f"{adult.ADULT_FILES}, or else for {adult.A9A_FILES}: a folder must hold both files of a pair",
    ),
    "cifar10": _Reader(colour.read_cifar10, colour.CIFAR_FILES, colour.CIFAR_FOLDERS),
    "imdb": _Reader(reviews.read_imdb, reviews.FILES, reviews.FOLDERS),
    "kddcup99": _Reader(kddcup99.read_kddcup99, kddcup99.FILES, kddcup99.FOLDERS),
    "svhn": _Reader(colour.read_svhn, colour.SVHN_FILES),
    **{
        name: _Reader(partial(images.read_images, name), images.files_of(name), folders)
        for name, folders in images.IMAGES.items()
    },
    **{
        name: _Reader(partial(tables.read_table, name), tables.files_of(name), table.folders, tables.ENDINGS)
        for name, table in tables.PUBLISHED.items()
    },
    **{
        name: _Reader(partial(ratings.read_movielens, name), edition.looked_for, (edition.folder,))
        for name, edition in ratings.EDITIONS.items()
    },
}
_ANY_MOVIELENS = "movielens"

NAMES = tuple(sorted([*BUNDLED, *_READERS]))


def load(name: str, path: str | os.PathLike[str] | None = None) -> Data:
    """The data set called `name`; `path` says where the user's copy lies: a folder, or a file.

    It is read in the form in which it was published, from an archive or from what unpacking one left. Of files that
    belong together, one may be pointed to if the others lie beside it. Without a path, it is looked for in the same
    way in the folder of `TACIT_DATA` (or that of the system for such files), in a folder with its name, and, if it is
    not there, downloaded, checked and kept. `DataMissing` says which files go where if that cannot be done.
    `movielens` is the one edition that is there, and movielens-100k if none is. A copy with more or fewer examples than
    were published is loaded with a `tacit.errors.Caution`: the population stays the published one.

    >>> load("iris")
    Data(name='iris', classes=3, population=119)
    """
    where = None if path is None else Path(path).expanduser()
    if name == _ANY_MOVIELENS:
        name = _edition(where)
    if name not in NAMES:
        close = difflib.get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise InvalidArgument(f"There is no data set {name!r}. Known are {', '.join(NAMES)}.{hint}")
    if name in BUNDLED:
        if path is not None:
            raise InvalidArgument(f"{name} comes with scikit-learn and is not read from {path}. Leave the path out.")
        return read_bundled(name)
    data = replace(read_from(name, where, _READERS[name].read), source=SOURCES[name].page)
    if not len(data.train[0]) + len(data.test[0]):
        raise InvalidArgument(f"The files of {name} in {where or cache.folder()} hold no examples. Fetch them again.")
    warn_of_other_size(data, is_declared=False)
    return data


def load_words(name: str = "imdb", path: str | os.PathLike[str] | None = None) -> tuple[reviews.Texts, reviews.Texts]:
    """Texts to train on and to test on, each cut into its words, with labels; for `tacit.features.HashedWords`."""
    if name != "imdb":
        raise InvalidArgument(f"There are texts in imdb only. Got {name!r}.")
    return read_from(name, None if path is None else Path(path).expanduser(), reviews.read_words)


def is_kept(name: str) -> bool:
    """Whether something lies where this data set is kept. It is neither read nor downloaded."""
    return any(place.is_dir() and any(place.iterdir()) for place in _places(name, None))


def read_from(name: str, where: Path | None, read: Callable[[Path], _READ | None]) -> _READ:
    """What `read` makes of a data set's files: in `where`, or else in the copy that is kept, downloaded if need be."""
    there = cache.folder() / name if where is None else where
    try:
        found = _first(name, where, read)
        if found is None and where is None:
            cache.fetch(name, SOURCES[name], there, _looked(name, there))
            found = _first(name, where, read)
    except OSError as error:
        raise InvalidArgument(f"{there} cannot be looked into: {error.strerror}. Choose another place.") from error
    if found is None:
        absent = "" if there.exists() else ", which is not there"
        raise InvalidArgument(f"There is no {name} in {there}{absent}. {_looked(name, there)}")
    return found


def _first(name: str, where: Path | None, read: Callable[[Path], _READ | None]) -> _READ | None:
    """From the first place that has the files, or else from the only one that they may be."""
    for place in _places(name, where):
        found = read(place)
        if found is not None:
            return found
    reader, folder = _READERS[name], cache.folder() / name if where is None else where
    table = lone(folder, reader.endings, reader.looked_for) if reader.endings else None
    return None if table is None else read(table)


def _places(name: str, where: Path | None) -> list[Path]:
    """Where the files may lie, in the order of looking."""
    inside = (*spellings(name), *_READERS[name].inside)
    if where is not None:
        return [where, *below(where, inside)]
    kept = cache.folder() / name
    return [kept, *below(kept, inside), *below(cache.folder(), inside)]


def _looked(name: str, where: Path) -> str:
    reader = _READERS[name]
    folders = "" if where.is_file() else f" in {where} and in its folders {', '.join([name, *reader.inside])},"
    others = f", or for any one file that ends in {' or '.join(reader.endings)}" if reader.endings else ""
    return f"Looked{folders} for {reader.looked_for}{others}."


def _edition(where: Path | None) -> str:
    """Which MovieLens is meant: the one that is there. None is, if there are two."""
    there = [name for name in ratings.EDITIONS if any(ratings.is_there(name, each) for each in _places(name, where))]
    if len(there) > 1:
        raise InvalidArgument(f"{where or cache.folder()} holds both editions of MovieLens. Say {' or '.join(there)}.")
    if not there and where is not None:
        looked = " ".join(_looked(name, where) for name in ratings.EDITIONS)
        raise InvalidArgument(f"There is no edition of MovieLens in {where}. {looked}")
    return there[0] if there else next(iter(ratings.EDITIONS))
