"""Reads files as they are published: plain or gzipped, in a folder or in an archive. Nothing in them is executed."""

from __future__ import annotations

import csv
import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from tacit.datasets._data import Array
from tacit.errors import InvalidArgument

# How a web page begins, and within how many bytes.
_PAGE, _PAGE_SEEN = (b"<!doctype html", b"<html"), 256
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
# Archives within archives: UCI packs some data sets twice, and users may pack them once more.
_DEEPEST = 3
# zipfile raises RuntimeError for a password or an unknown compression.
_UNREADABLE = (OSError, EOFError, UnicodeError, zlib.error, zipfile.BadZipFile, tarfile.TarError, RuntimeError)


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
    files = {**_find_named(where.parent if pointed else where, names), **pointed}
    missing = [name for name in names if name not in files]
    if not missing:
        return {name: _read(file) for name, file in files.items()}
    if pointed:
        raise InvalidArgument(
            f"{where} is one of {len(names)} files that belong together, and its folder has no "
            f"{', no '.join(missing)}. Put all of them into one folder."
        )
    return _search_archives([where] if where.is_file() else [where / name for name in archives], names)


def _find_named(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Those of the files that are in the folder, plain or gzipped."""
    files = {name: [folder / form for form in list_forms(name) if (folder / form).is_file()] for name in names}
    return {name: found[0] for name, found in files.items() if found}


def _search_archives(archives: Sequence[Path], names: Sequence[str]) -> dict[str, File] | None:
    """All these files, plain or gzipped, from the first archive that has them."""
    for archive in archives:
        if archive.is_file() and is_archive(archive.name):
            found = _search_archive(archive, names)
            if found is not None:
                return found
    return None


def _search_archive(archive: Path, names: Sequence[str]) -> dict[str, File] | None:
    called, found = {form: name for name in names for form in list_forms(name)}, dict[str, File]()
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
    for path, data in (_list_zip if name.lower().endswith(".zip") else _list_tar)(file, is_wanted):
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


def _list_zip(file: BinaryIO, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(file) as packed:
        for path in packed.namelist():
            if not path.endswith("/") and is_wanted(path):
                yield path, packed.read(path)


def _list_tar(file: BinaryIO, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
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
