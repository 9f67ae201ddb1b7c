"""Data sets by name: inputs within public bounds, private examples to train on, and examples to test on.

Each file in this folder without a leading underscore is one data set: `breast_cancer.py` is breast-cancer. Its constant
`DATASET` holds the reader, the source and the training defaults; public bounds and the published size stand beside it.
Adding a file adds a data set. Code outside this package calls `register`, or names its `DataSet` in the entry-point
group "tacit.datasets".

Bounds, categories, sizes and splits are constants of this package or declared by the user. None is computed from the
examples. This module loads neither numpy nor any data set until one is asked for.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, TypeVar

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.datasets._bounds import EXAMPLE, Bounds
    from tacit.datasets._columns import Category, Date, Number, encode
    from tacit.datasets._data import Array, Data, Texts, scale_to_unit, split_rows
    from tacit.datasets._forms import Form
    from tacit.datasets._own import load_table

__all__ = [
    "EXAMPLE",
    "FORMATS",
    "SHIPPED",
    "Array",
    "Bounds",
    "Category",
    "Data",
    "DataSet",
    "Date",
    "Form",
    "Number",
    "Remote",
    "Source",
    "TrainingDefaults",
    "encode",
    "find_data_folder",
    "is_kept",
    "is_table",
    "list_names",
    "load",
    "load_table",
    "load_words",
    "read_from",
    "register",
    "scale_to_unit",
    "split_rows",
]

VARIABLE = "TACIT_DATA"
SHIPPED = tuple(sorted(each.name.replace("_", "-") for each in iter_modules(__path__) if each.name[0] != "_"))
FORMATS = ".csv, .csv.gz, .tsv, .tsv.gz, .parquet and .npz"
_GROUP = "tacit.datasets"
_SHOWN = 5
_READ = TypeVar("_READ")


@dataclass(frozen=True)
class TrainingDefaults:
    """The model and the numbers to train it with when the user gives none: constants, not computed from data.

    `adam_rate` is the learning rate of Adam. `views` of each image are averaged before clipping. Weights are averaged
    over steps with decay `averaging`, unless that is zero.
    """

    model: str
    lot_size: float
    epochs: float
    learning_rate: float
    adam_rate: float
    clip_norm: float = 1.0
    momentum: float = 0.0
    views: int = 1
    averaging: float = 0.0


@dataclass(frozen=True)
class Remote:
    """A file to download, with its SHA-256.

    `inside` names the member of an archive that has this checksum, for archives that were repacked over the years; ""
    means the content of a gzipped file.
    """

    url: str
    file: str
    sha256: str
    inside: str | None = None


@dataclass(frozen=True)
class Source:
    """The page that describes a data set and its licence, and the files to download. `remotes` may be empty."""

    page: str
    remotes: tuple[Remote, ...] = ()

    @staticmethod
    def of_files(page: str, address: str, files: dict[str, str]) -> Source:
        """A source whose files, given with their SHA-256, are all at one address."""
        return Source(page, tuple(Remote(f"{address}/{file}", file, sha256) for file, sha256 in files.items()))


@dataclass(frozen=True)
class DataSet:
    """A data set: how to read it, where it comes from, and how to train on it.

    At least one of `make` and `read` is given. `make` returns the data without any file of the user's. `read` returns
    the data in a folder or file, or None if they are not there; it looks for the names in `files`. `folders` are the
    folders that unpacked archives leave. In a folder whose only file has one of the `endings`, that file is read.

    Without `defaults`, training settings follow from the population. `read_words` reads a text data set as words, for
    `load_words`. If `edition_of` is given, `load(edition_of)` loads the edition for which `is_there` is true.
    """

    name: str
    source: Source
    make: Callable[[], Data] | None = None
    read: Callable[[Path], Data | None] | None = None
    files: str = ""
    folders: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    defaults: TrainingDefaults | None = None
    read_words: Callable[[Path], tuple[Texts, Texts] | None] | None = None
    edition_of: str = ""
    is_there: Callable[[Path], bool] | None = None


_registered: dict[str, DataSet] = {}


def register(dataset: DataSet) -> DataSet:
    """Make a data set of your own known to `load` and to every command run in this process.

    To make `tacit` know it in every process, name it in your package's metadata: the entry-point group
    "tacit.datasets", with the data set's name and the place of its `DataSet`. Registering a name twice replaces the
    first registration. The names of this package are refused.
    """
    if dataset.name in SHIPPED:
        raise InvalidArgument(f"tacit has a data set {dataset.name!r} already. Register yours under another name.")
    if dataset.make is None and dataset.read is None:
        raise InvalidArgument(f"The data set {dataset.name!r} has neither make nor read. Give one of them.")
    _registered[dataset.name] = dataset
    return dataset


def list_names() -> tuple[str, ...]:
    """The names that `load` takes: those of this package, those registered, and those of installed packages."""
    return tuple(sorted({*SHIPPED, *_registered, *entry_points(group=_GROUP).names}))


def load(name: str, path: str | os.PathLike[str] | None = None) -> Data:
    """Load the data set called `name`, from your copy in the folder or file `path` if that is given.

    Files are read as they were published: packed or unpacked. If a data set has several files, `path` may name one of
    them and the others must be in the same folder. Without `path`, `load` looks in the same way in the folder that
    `TACIT_DATA` names (or the system's cache folder), in its subfolder with the data set's name. If the files are not
    there, they are downloaded, checked and kept, unless they come with a package. `DataMissing` says which files go
    where if the download fails. `movielens` is the edition that is there, and movielens-100k if none is.

    A copy with more or fewer examples than were published gives a `tacit.errors.Caution`: the population stays the
    published one.

    >>> load("iris")
    Data(name='iris', classes=3, population=119)
    """
    where = None if path is None else Path(path).expanduser()
    dataset = _find(name) or _find_edition(name, where)
    data = replace(_load(dataset, where), source=dataset.source.page, defaults=dataset.defaults)
    if not len(data.train[0]) + len(data.test[0]):
        raise InvalidArgument(
            f"The files of {name} in {where or find_data_folder()} hold no examples. Fetch them again."
        )
    data.warn_if_size_differs(is_declared=False)
    return data


def load_words(name: str = "imdb", path: str | os.PathLike[str] | None = None) -> tuple[Texts, Texts]:
    """Load texts as lists of words, with labels: to train on, then to test on. For `tacit.features.HashedWords`."""
    dataset = _find(name)
    if dataset is None or dataset.read_words is None:
        raise InvalidArgument(f"{name!r} is no data set of texts. imdb is one.")
    return read_from(name, None if path is None else Path(path).expanduser(), dataset.read_words)


def is_kept(name: str) -> bool:
    """Whether this data set needs no download. Nothing is read."""
    dataset = _find(name)
    if dataset is None:
        return False
    kept = (place.is_dir() and any(place.iterdir()) for place in _list_places(dataset, None))
    return dataset.make is not None or any(kept)


def is_table(name: str) -> bool:
    """Whether this is the path of a table that can be read, and not the name of a data set.

    >>> is_table("patients.csv"), is_table("PATIENTS.TSV"), is_table("iris"), is_table("patients.xlsx")
    (True, True, False, False)
    """
    return name.lower().endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".npz"))


def find_data_folder() -> Path:
    """The folder in which data sets are kept, each in a subfolder with its name."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("tacit") / "data"


def read_from(name: str, where: Path | None, read: Callable[[Path], _READ | None]) -> _READ:
    """Call `read` on the files of a data set: in `where`, or else in the kept copy, which is downloaded if need be."""
    dataset = _find(name)
    if dataset is None:
        raise _unknown(name)
    folder = find_data_folder() / name if where is None else where
    found = _read_first(dataset, where, read)
    if found is None and where is None and dataset.source.remotes:
        from tacit.datasets._download import fetch

        fetch(name, dataset.source, folder, _describe_search(dataset, folder))
        found = _read_first(dataset, where, read)
    if found is None:
        absent = "" if folder.exists() else ", which does not exist"
        raise InvalidArgument(f"There is no {name} in {folder}{absent}. {_describe_search(dataset, folder)}")
    return found


def _load(dataset: DataSet, where: Path | None) -> Data:
    if dataset.read is None:
        if where is not None:
            raise InvalidArgument(f"{dataset.name} needs no files, and is not read from {where}. Leave the path out.")
        assert dataset.make is not None
        return dataset.make()
    if where is not None or dataset.make is None:
        return read_from(dataset.name, where, dataset.read)
    kept = _read_first(dataset, None, dataset.read)
    return dataset.make() if kept is None else kept


def _find(name: str) -> DataSet | None:
    if name in SHIPPED:
        shipped: DataSet = import_module(f"{__name__}.{name.replace('-', '_')}").DATASET
        return shipped
    if name not in _registered:
        for point in entry_points(group=_GROUP, name=name):
            register(point.load())
    return _registered.get(name)


def _find_edition(name: str, where: Path | None) -> DataSet:
    """The edition of a data set that is there; the first if none is and no path was given."""
    editions = [each for each in map(_find, SHIPPED) if each is not None and each.edition_of == name]
    if not editions:
        raise _unknown(name)
    there = [one for one in editions if one.is_there and any(map(one.is_there, _list_places(one, where)))]
    if len(there) > 1:
        choices = " or ".join(one.name for one in there)
        raise InvalidArgument(f"{where or find_data_folder()} holds several editions of {name}. Choose {choices}.")
    if not there and where is not None:
        searched = " ".join(_describe_search(one, where) for one in editions)
        raise InvalidArgument(f"There is no edition of {name} in {where}. {searched}")
    return (there or editions)[0]


def _unknown(name: str) -> InvalidArgument:
    close = difflib.get_close_matches(name, list_names(), n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return InvalidArgument(f"There is no data set {name!r}. Known are {', '.join(list_names())}.{hint}")


def _read_first(dataset: DataSet, where: Path | None, read: Callable[[Path], _READ | None]) -> _READ | None:
    """Read from the first place that has the files, or else from the only file with a known ending."""
    folder = find_data_folder() / dataset.name if where is None else where
    try:
        for place in _list_places(dataset, where):
            found = read(place)
            if found is not None:
                return found
        table = _only_file(folder, dataset)
        return None if table is None else read(table)
    except OSError as error:
        raise InvalidArgument(f"{folder} cannot be read: {error.strerror}. Choose another folder.") from error


def _list_places(dataset: DataSet, where: Path | None) -> list[Path]:
    """Where the files may be, in the order of the search."""
    inside = (dataset.name, dataset.name.replace("-", "_"), *dataset.folders)
    if where is not None:
        return [where, *_list_folders(where, inside)]
    kept = find_data_folder() / dataset.name
    return [kept, *_list_folders(kept, inside), *_list_folders(find_data_folder(), inside)]


def _list_folders(where: Path, inside: tuple[str, ...]) -> Iterator[Path]:
    """Those of the folders `inside` that exist. If `where` is itself called MNIST, MNIST/raw is its folder raw."""
    for each in dict.fromkeys(inside):
        first, _, rest = each.partition("/")
        here = [where / each, *([where / rest] if rest and where.name == first else [])]
        yield from (folder for folder in here if folder.is_dir())


def _only_file(folder: Path, dataset: DataSet) -> Path | None:
    """The only file in the folder with one of the data set's endings; None if there is none. Several are refused."""
    if not dataset.endings or not folder.is_dir():
        return None
    # Archives of some systems bring hidden files that are no tables.
    files = sorted(each for each in folder.iterdir() if each.name.endswith(dataset.endings) and each.name[0] != ".")
    if len(files) > 1:
        shown = ", ".join(file.name for file in files[:_SHOWN]) + (", ..." if len(files) > _SHOWN else "")
        raise InvalidArgument(
            f"{folder} holds {len(files)} tables, {shown}, and none of them is called {dataset.files}. Give the path "
            "of one table instead of the folder."
        )
    return files[0] if files else None


def _describe_search(dataset: DataSet, where: Path) -> str:
    folders = f" in {where} and in its folders {', '.join([dataset.name, *dataset.folders])},"
    endings = f", or for any one file that ends in {' or '.join(dataset.endings)}" if dataset.endings else ""
    return f"Looked{'' if where.is_file() else folders} for {dataset.files}{endings}."


if not TYPE_CHECKING:
    _HOMES = {
        **dict.fromkeys(("EXAMPLE", "Bounds"), "_bounds"),
        **dict.fromkeys(("Category", "Date", "Number", "encode"), "_columns"),
        "Form": "_forms",
        "load_table": "_own",
    }

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES.get(name, '_data')}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
