"""Files as they are published: plain or gzipped, alone, in a folder or in an archive. Nothing in them is executed."""

from __future__ import annotations

import csv
import gzip
import io
import math
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tacit.datasets.data import Array
from tacit.errors import InvalidArgument

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
_UNREADABLE = (OSError, EOFError, UnicodeError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


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
        raise InvalidArgument(f"{file} does not hold {what}: {error}.") from error


class File(NamedTuple):
    """All bytes of a file, unpacked, and where they come from: the file, or the archive that it is in."""

    path: Path
    content: bytes


def forms(name: str) -> tuple[str, str]:
    """What a file may be called: this, or with the ending of its gzipped form."""
    return name, f"{name}.gz"


def content(file: Path) -> bytes:
    """All bytes of a file, unpacked if its name ends in .gz."""
    raw = file.read_bytes()
    return gzip.decompress(raw) if file.suffix.lower() == ".gz" else raw


def contents(where: Path, names: Sequence[str], archives: Sequence[str] = ()) -> dict[str, File] | None:
    """All these files, by name: from a folder, or from one archive there. None if one is missing.

    `where` may also be one of the files, with the others beside it, or an archive. Within one, a file may lie in any
    folder.
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
    """All these files from the first archive that has them."""
    for archive in archives:
        if archive.is_file() and archive.name.endswith(ARCHIVES):
            with reading(archive, f"an archive with {', '.join(names)}"):
                inside = ((Path(path).name, data) for path, data in members(archive))
                found = {name: File(archive, data) for name, data in inside if name in names}
            if len(found) == len(names):
                return found
    return None


def only_content(where: Path, names: Sequence[str], archives: Sequence[str] = ()) -> File | None:
    """The content of a data set of one file, which has any name if it is pointed to, and else the first of `names`."""
    if where.is_file() and not where.name.endswith(ARCHIVES):
        return _read(where)
    return next((found[name] for name in names if (found := contents(where, [name], archives)) is not None), None)


def _read(file: Path) -> File:
    with reading(file, "what its name says"):
        return File(file, content(file))


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Path and content of every file in an archive. Nothing is written anywhere."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                if not name.endswith("/"):
                    yield name, packed.read(name)
        return
    with tarfile.open(archive) as packed:
        for member in packed:
            inside = packed.extractfile(member)
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
