"""Data sets by name: inputs within public bounds, private examples to train on, and examples to test on.

Each file in this folder without a leading underscore is one data set: `breast_cancer.py` is breast-cancer. Its constant
`DATASET` holds the reader, the source and the training defaults; public bounds and the published size stand beside it.
Adding a file adds a data set. Code outside this package calls `register`, or names its `DataSet` in the entry-point
group "tacit.datasets".

Bounds, categories, sizes and splits are constants of this package or declared by the user. None is computed from the
examples. This module loads neither numpy nor any data set until one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.datasets._bounds import EXAMPLE, Bounds
    from tacit.datasets._columns import Array, Category, Date, Number, encode, scale_to_unit
    from tacit.datasets._data import Data, Form, Texts, split_rows
    from tacit.datasets._files import find_data_folder, is_kept, is_table, load, load_words, read_from
    from tacit.datasets._image_folder import load_images
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
    "load_images",
    "load_table",
    "load_words",
    "read_from",
    "register",
    "scale_to_unit",
    "split_rows",
]

SHIPPED = tuple(sorted(each.name.replace("_", "-") for each in iter_modules(__path__) if each.name[0] != "_"))
FORMATS = ".csv, .csv.gz, .tsv, .tsv.gz, .parquet and .npz"
VARIABLE = "TACIT_DATA"
_GROUP = "tacit.datasets"


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


def find_registered(name: str) -> DataSet | None:
    """The data set that was registered under this name, here or by an installed package."""
    if name not in _registered:
        for point in entry_points(group=_GROUP, name=name):
            register(point.load())
    return _registered.get(name)


if not TYPE_CHECKING:
    _PLACES = {
        **dict.fromkeys(("EXAMPLE", "Bounds"), "_bounds"),
        **dict.fromkeys(("Array", "Category", "Date", "Number", "encode", "scale_to_unit"), "_columns"),
        **dict.fromkeys(("find_data_folder", "is_kept", "is_table", "load", "load_words", "read_from"), "_files"),
        "load_images": "_image_folder",
        "load_table": "_own",
    }

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_PLACES.get(name, '_data')}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
