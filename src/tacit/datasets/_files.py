"""Loads data sets: finds their files, plain or gzipped, in a folder or in an archive, and reads them.

Nothing in a file is executed.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar, cast

import numpy as np
from platformdirs import user_cache_path

from tacit._files import expand_home
from tacit.datasets import SHIPPED, VARIABLE, DataSet, find_registered, list_names
from tacit.datasets._columns import Array, suggest
from tacit.datasets._data import Data, Texts
from tacit.errors import InvalidArgument

_SHOWN = 5
_READ = TypeVar("_READ")
# How a web page begins, and within how many bytes.
_PAGE, _PAGE_SEEN = (b"<!doctype html", b"<html"), 256
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
# Archives within archives: UCI packs some data sets twice, and users may pack them once more.
_DEEPEST = 3
# zipfile raises RuntimeError for a password or an unknown compression.
_UNREADABLE = (OSError, EOFError, UnicodeError, zlib.error, zipfile.BadZipFile, tarfile.TarError, RuntimeError)


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
    where = None if path is None else expand_home(path)
    dataset = find_dataset(name) or _find_edition(name, where)
    data = replace(_load(dataset, where), source=dataset.source.page, defaults=dataset.defaults)
    if not len(data.train[0]) + len(data.test[0]):
        raise InvalidArgument(
            f"The files of {name} in {where or find_data_folder()} hold no examples. Fetch them again."
        )
    data.warn_if_size_differs(is_declared=False)
    return data


def load_words(name: str = "imdb", path: str | os.PathLike[str] | None = None) -> tuple[Texts, Texts]:
    """Load texts as lists of words, with labels: to train on, then to test on. For `tacit.features.HashedWords`."""
    dataset = find_dataset(name)
    if dataset is None or dataset.read_words is None:
        raise InvalidArgument(f"{name!r} is no data set of texts. imdb is one.")
    return read_from(name, None if path is None else expand_home(path), dataset.read_words)


def is_kept(name: str) -> bool:
    """Whether this data set needs no download. Nothing is read."""
    dataset = find_dataset(name)
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
        return expand_home(chosen)
    return user_cache_path("tacit") / "data"


def read_from(name: str, where: Path | None, read: Callable[[Path], _READ | None]) -> _READ:
    """Call `read` on the files of a data set: in `where`, or else in the kept copy, which is downloaded if need be."""
    dataset = find_dataset(name)
    if dataset is None:
        raise _explain_unknown(name)
    folder = find_data_folder() / name if where is None else where
    found = _read_first(dataset, where, read)
    if found is None and where is None and dataset.source.remotes:
        # Downloads read files too.
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


def find_dataset(name: str) -> DataSet | None:
    """The data set of this name; None if there is none."""
    if name in SHIPPED:
        return cast(DataSet, import_module(f"{__package__}.{name.replace('-', '_')}").DATASET)
    return find_registered(name)


def _find_edition(name: str, where: Path | None) -> DataSet:
    """The edition of a data set that is there; the first if none is and no path was given."""
    editions = [each for each in map(find_dataset, SHIPPED) if each is not None and each.edition_of == name]
    if not editions:
        raise _explain_unknown(name)
    there = [one for one in editions if one.is_there and any(map(one.is_there, _list_places(one, where)))]
    if len(there) > 1:
        choices = " or ".join(one.name for one in there)
        raise InvalidArgument(f"{where or find_data_folder()} holds several editions of {name}. Choose {choices}.")
    if not there and where is not None:
        searched = " ".join(_describe_search(one, where) for one in editions)
        raise InvalidArgument(f"There is no edition of {name} in {where}. {searched}")
    return (there or editions)[0]


def _explain_unknown(name: str) -> InvalidArgument:
    known = list_names()
    return InvalidArgument(f"There is no data set {name!r}.{suggest(name, known)} Known: {', '.join(known)}.")


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


@contextmanager
def explain_errors(file: Path | str, what: str, remedy: str = "Fetch it again.") -> Iterator[None]:
    """Turn any error that a damaged or foreign file causes into an `InvalidArgument` that names the file."""
    try:
        yield
    except InvalidArgument as error:
        if str(file) in str(error):
            raise
        raise InvalidArgument(f"{file} does not hold {what}: {error}") from error
    except _UNREADABLE as error:
        raise InvalidArgument(f"{file} cannot be read: {error}. {remedy}") from error
    except (ValueError, LookupError, TypeError, AttributeError, csv.Error) as error:
        raise InvalidArgument(f"{file} does not hold {what}: {str(error).rstrip('.')}.") from error


class File(NamedTuple):
    """The unpacked content of a file, and its path or that of the archive that holds it."""

    path: Path
    content: bytes


def list_forms(name: str) -> tuple[str, str]:
    """The names that a file may have: plain and gzipped."""
    return name, f"{name}.gz"


def is_archive(name: str) -> bool:
    """Whether a file of this name holds others.

    >>> is_archive("bank+marketing.ZIP"), is_archive("bank.csv.gz")
    (True, False)
    """
    return name.lower().endswith(_ARCHIVES)


def read_content(file: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz. A saved web page is refused."""
    raw = file.read_bytes()
    if raw[:_PAGE_SEEN].removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_PAGE):
        raise ValueError("it is a web page: open it in a browser, and save the file that it links to")
    return _unpack(file.name, raw)


def _unpack(name: str, raw: bytes) -> bytes:
    return gzip.decompress(raw) if name.lower().endswith(".gz") else raw


def find_files(where: Path, names: Sequence[str], archives: Sequence[str] = ()) -> dict[str, File] | None:
    """All these files, by name, from a folder or from one archive in it. None if one is missing.

    `where` may also be one of the files, with the others in the same folder, or an archive. In an archive, files may be
    in any folder and in archives of their own.
    """
    pointed = {name: where for name in names if where.is_file() and where.name in list_forms(name)}
    folder = where.parent if pointed else where
    forms = {name: [folder / form for form in list_forms(name) if (folder / form).is_file()] for name in names}
    files = {**{name: found[0] for name, found in forms.items() if found}, **pointed}
    missing = [name for name in names if name not in files]
    if not missing:
        return {name: _read(file) for name, file in files.items()}
    if pointed:
        raise InvalidArgument(
            f"{where} is one of {len(names)} files that belong together, and its folder has no "
            f"{', no '.join(missing)}. Put all of them into one folder."
        )
    return _search_archives([where] if where.is_file() else [where / name for name in archives], names)


def find_parts(
    where: Path, names: Sequence[str], archive: str, what: str, parse: Callable[[bytes], _READ]
) -> list[_READ] | None:
    """All these files, each parsed; None if one is missing. An error says that a file holds no `what`."""
    found = find_files(where, names, [archive])
    if found is None:
        return None
    parts = []
    for name in names:
        with explain_errors(found[name].path, what):
            parts.append(parse(found[name].content))
    return parts


def _search_archives(archives: Sequence[Path], names: Sequence[str]) -> dict[str, File] | None:
    """All these files, plain or gzipped, from the first archive that has them."""
    called = {form: name for name in names for form in list_forms(name)}
    for archive in (each for each in archives if each.is_file() and is_archive(each.name)):
        found = dict[str, File]()
        with explain_errors(archive, f"an archive with {', '.join(names)}"):
            for path, data in list_members(archive, called):
                form = Path(path).name
                found.setdefault(called[form], File(archive, _unpack(form, data)))
                if len(found) == len(names):
                    # The rest of the archive, even if damaged, does not matter.
                    return found
    return None


def find_one_file(where: Path, names: Sequence[str], archives: Sequence[str] = ()) -> File | None:
    """The file of a data set that has one: `where` itself under any name, or the first of `names` in a folder."""
    if where.is_file() and not is_archive(where.name):
        return _read(where)
    unread: InvalidArgument | None = None
    for name in names:
        try:
            found = find_files(where, [name], archives)
        except InvalidArgument as error:
            # The unreadable part of an archive may hold this name, and another name may be readable.
            unread = unread or error
            continue
        if found is not None:
            return found[name]
    if unread is not None:
        raise unread
    return None


def _read(file: Path) -> File:
    with explain_errors(file, "what its name says"):
        return File(file, read_content(file))


def list_members(archive: Path, names: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Path and content of the files in an archive that have one of these names, or of all. Nothing is written.

    Archives in the archive are searched too. An unreadable one raises `OSError` after everything else was listed, as it
    may not matter.
    """
    with archive.open("rb") as file:
        yield from _list_members(file, archive.name, names, _DEEPEST)


def _list_members(file: BinaryIO, name: str, names: Collection[str] | None, deep: int) -> Iterator[tuple[str, bytes]]:
    def is_wanted(path: str) -> bool:
        is_sought = (deep > 0 and is_archive(path)) or names is None or Path(path).name in names
        return is_sought and not _is_shadow(path)

    unread: list[str] = []
    for path, data in _unpack_members(file, name, is_wanted):
        if deep and is_archive(path):
            try:
                yield from _list_members(io.BytesIO(data), path, names, deep - 1)
            except _UNREADABLE as error:
                unread.append(f"{path} in it: {error}")
        else:
            yield path, data
    if unread:
        raise OSError("; ".join(unread))


def _is_shadow(path: str) -> bool:
    """Whether this is the file of attributes that macOS packs beside a file, under the same name.

    >>> _is_shadow("__MACOSX/data/._adult.zip"), _is_shadow("data/._adult.zip"), _is_shadow("data/adult.zip")
    (True, True, False)
    """
    return path.startswith("__MACOSX/") or Path(path).name.startswith("._")


def _unpack_members(file: BinaryIO, name: str, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    if name.lower().endswith(".zip"):
        with zipfile.ZipFile(file) as zipped:
            yield from ((path, zipped.read(path)) for path in zipped.namelist() if path[-1] != "/" and is_wanted(path))
        return
    with tarfile.open(fileobj=file) as packed:
        for member in packed:
            inside = packed.extractfile(member) if is_wanted(member.name) else None
            if inside is not None:
                yield member.name, inside.read()


def parse_rows(text: bytes, delimiter: str = ",") -> list[list[str]]:
    """The rows of a table as text, without empty rows and without blanks around fields."""
    lines = io.StringIO(text.decode("utf-8-sig"), newline="")
    rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    return [[field.strip() for field in row] for row in rows if any(row)]


def read_npz(path: Path, keys: Sequence[str]) -> list[Array]:
    """Arrays of numbers or text by their names. Pickled objects are refused."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[key] for key in keys]
    except KeyError as error:
        raise InvalidArgument(f"{path} must hold the arrays {', '.join(keys)}. {error.args[0]}.") from error
    except (*_UNREADABLE, ValueError, AttributeError, TypeError) as error:
        raise InvalidArgument(f"{path} is not an .npz file of numbers: {error}.") from error
