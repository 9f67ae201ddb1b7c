"""Files as they are published: plain or gzipped, alone, in a folder or in an archive. Nothing in them is executed."""

from __future__ import annotations

import csv
import gzip
import io
import math
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from tacit.datasets.data import Array
from tacit.errors import InvalidArgument

# How a page begins, and within how many bytes.
_PAGE, _PAGE_SEEN = (b"<!doctype html", b"<html"), 256
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
# Archives within archives: UCI packs some data sets twice, and whoever packs a folder with them once more.
_DEEPEST = 3
# That an archive needs a password, or is packed in a way that is not known, is a RuntimeError.
_UNREADABLE = (OSError, EOFError, UnicodeError, zlib.error, zipfile.BadZipFile, tarfile.TarError, RuntimeError)


@contextmanager
def reading(file: Path, what: str, remedy: str = "Fetch it again.") -> Iterator[None]:
    """Turn whatever a damaged or foreign file leads to into a sentence that names the file."""
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
    """All bytes of a file, unpacked, and where they come from: the file, or the archive that it is in."""

    path: Path
    content: bytes


def forms(name: str) -> tuple[str, str]:
    """What a file may be called: this, or with the ending of its gzipped form."""
    return name, f"{name}.gz"


def is_archive(name: str) -> bool:
    """Whether a file of this name holds others.

    >>> is_archive("bank+marketing.ZIP"), is_archive("bank.csv.gz")
    (True, False)
    """
    return name.lower().endswith(_ARCHIVES)


def content(file: Path) -> bytes:
    """All bytes of a file, unpacked if its name ends in .gz. A web page that was saved in its place is refused."""
    raw = file.read_bytes()
    if raw[:_PAGE_SEEN].removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_PAGE):
        raise ValueError("it is a web page: open that in a browser, and save the file that it leads to")
    return _unpacked(file.name, raw)


def _unpacked(name: str, raw: bytes) -> bytes:
    return gzip.decompress(raw) if name.lower().endswith(".gz") else raw


def contents(where: Path, names: Sequence[str], archives: Sequence[str] = ()) -> dict[str, File] | None:
    """All these files, by name: from a folder, or from one archive there. None if one is missing.

    `where` may also be one of the files, with the others beside it, or an archive. Within one, a file may lie in any
    folder, and in an archive of its own.
    """
    pointed = {name: where for name in names if where.is_file() and where.name in forms(name)}
    files = {**_named(where.parent if pointed else where, names), **pointed}
    missing = [name for name in names if name not in files]
    if not missing:
        return {name: _read(file) for name, file in files.items()}
    if pointed:
        raise InvalidArgument(
            f"{where} is one of {len(names)} files that belong together, and beside it there is no "
            f"{', no '.join(missing)}. Put all of them into one folder."
        )
    return _packed([where] if where.is_file() else [where / name for name in archives], names)


def _named(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Those of the files that lie in the folder, plain or gzipped."""
    files = {name: [folder / form for form in forms(name) if (folder / form).is_file()] for name in names}
    return {name: found[0] for name, found in files.items() if found}


def _packed(archives: Sequence[Path], names: Sequence[str]) -> dict[str, File] | None:
    """All these files, plain or gzipped, from the first archive that has them."""
    for archive in archives:
        if archive.is_file() and is_archive(archive.name):
            found = _packed_in(archive, names)
            if found is not None:
                return found
    return None


def _packed_in(archive: Path, names: Sequence[str]) -> dict[str, File] | None:
    called, found = {form: name for name in names for form in forms(name)}, dict[str, File]()
    with reading(archive, f"an archive with {', '.join(names)}"):
        for path, data in members(archive, called):
            form = Path(path).name
            found.setdefault(called[form], File(archive, _unpacked(form, data)))
            if len(found) == len(names):
                # What comes after them, and whether it can be read, does not matter.
                return found
    return None


def only_content(where: Path, names: Sequence[str], archives: Sequence[str] = ()) -> File | None:
    """The content of a data set of one file, which has any name if it is pointed to, and else the first of `names`."""
    if where.is_file() and not is_archive(where.name):
        return _read(where)
    unread: InvalidArgument | None = None
    for name in names:
        try:
            found = contents(where, [name], archives)
        except InvalidArgument as error:
            # What cannot be read of an archive may have held this name, and another may be there all the same.
            unread = unread or error
            continue
        if found is not None:
            return found[name]
    if unread is not None:
        raise unread
    return None


def _read(file: Path) -> File:
    with reading(file, "what its name says"):
        return File(file, content(file))


def members(archive: Path, names: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Path and content of the files in an archive that have one of these names, or of all. Nothing is written anywhere.

    Archives in it are looked into in their turn. One that cannot be read raises an `OSError` after everything else was
    given: it may be none that anybody wants.
    """
    with archive.open("rb") as file:
        yield from _members(file, archive.name, names, _DEEPEST)


def _members(file: BinaryIO, name: str, names: Collection[str] | None, deep: int) -> Iterator[tuple[str, bytes]]:
    def is_wanted(path: str) -> bool:
        is_sought = (deep > 0 and is_archive(path)) or names is None or Path(path).name in names
        return is_sought and not _is_shadow(path)

    unread: list[str] = []
    for path, data in (_zipped if name.lower().endswith(".zip") else _tarred)(file, is_wanted):
        if deep and is_archive(path):
            try:
                yield from _members(io.BytesIO(data), path, names, deep - 1)
            except _UNREADABLE as error:
                unread.append(f"{path} in it: {error}")
        else:
            yield path, data
    if unread:
        raise OSError("; ".join(unread))


def _is_shadow(path: str) -> bool:
    """Whether it is what a Mac packs beside a file, under the file's own name: attributes, and nothing of the file.

    >>> _is_shadow("__MACOSX/data/._adult.zip"), _is_shadow("data/._adult.zip"), _is_shadow("data/adult.zip")
    (True, True, False)
    """
    return path.startswith("__MACOSX/") or Path(path).name.startswith("._")


def _zipped(file: BinaryIO, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(file) as packed:
        for path in packed.namelist():
            if not path.endswith("/") and is_wanted(path):
                yield path, packed.read(path)


def _tarred(file: BinaryIO, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=file) as packed:
        for member in packed:
            inside = packed.extractfile(member) if is_wanted(member.name) else None
            if inside is not None:
                yield member.name, inside.read()


def rows_of(text: bytes, delimiter: str = ",") -> list[list[str]]:
    """The rows of a table as text, without the empty ones; blanks around a field are not part of it."""
    lines = io.StringIO(text.decode("utf-8-sig"), newline="")
    rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    return [[field.strip() for field in row] for row in rows if any(row)]


def libsvm(text: bytes, features: int) -> tuple[Array, list[str]]:
    """Features, dense and counted from 1 in the file, and labels as text."""
    rows = [line.split() for line in text.decode("ascii").splitlines() if line.strip()]
    if not rows:
        raise ValueError("there are no rows")
    inputs = np.zeros((len(rows), features), dtype=np.float32)
    for index, (_, *pairs) in enumerate(rows):
        for pair in pairs:
            place, _, value = pair.partition(":")
            if not 1 <= int(place) <= features:
                raise ValueError(f"feature {place} is not one of {features}")
            inputs[index, int(place) - 1] = float(value)
    return inputs, [row[0] for row in rows]


def npz(path: Path, keys: Sequence[str]) -> list[Array]:
    """Arrays of numbers or text by their names; what would have to be unpickled is refused."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[key] for key in keys]
    except KeyError as error:
        raise InvalidArgument(f"{path} must hold the arrays {', '.join(keys)}. {error.args[0]}.") from error
    except (*_UNREADABLE, ValueError, AttributeError, TypeError) as error:
        raise InvalidArgument(f"{path} is not an .npz file of numbers: {error}.") from error


def idx(file: File) -> Array:
    """The array of an idx file: two zeros, the type (8 for bytes), the number of axes, their lengths, the bytes."""
    content = file.content
    axes = content[3] if content[:3] == b"\x00\x00\x08" and len(content) > 3 else 0
    start = 4 + 4 * axes
    shape = tuple(int.from_bytes(content[place : place + 4], "big") for place in range(4, start, 4))
    if not axes or len(content) - start != math.prod(shape):
        raise InvalidArgument(f"{file.path} is not an idx file of bytes, or not a whole one. Fetch it again.")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
