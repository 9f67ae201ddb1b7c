"""Rows of numbers in a file, for tables larger than memory: written in pieces, and read in pieces.

The file has no name. Nobody else can open it, and the system frees its space when the process ends, however it ends. It
lies in the folder for temporary files (TMPDIR). Pages that were read or written are given back after every piece, so
that the memory of the process does not grow with the table; the system may keep them in its cache.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidArgument

# The bytes of the rows that are in memory at a time: temporary copies take some times more.
PIECE_BYTES = 2**24
# A multiple of every length of a piece elsewhere, so that the same blocks of rows are multiplied at a time.
_MULTIPLE = 256
_LEAST_MEMORY = 10**9
# What training takes whatever the number of rows, and for each row: rounded up from benchmarks/large_table.py.
_FIXED_MEMORY, _ROW_MEMORY = 8 * 10**8, 100
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def read_size(size: str | float) -> int:
    """Bytes, from a number or from a text such as "2GB". `InvalidArgument` below 1 GB, which is needed to train at all.

    >>> read_size("1.5 GB")
    1500000000
    """
    text = str(size).replace(" ", "").upper()
    unit = text.lstrip("0123456789.E+-_")
    try:
        found = int(float(text.removesuffix(unit)) * _UNITS[unit.strip()])
    except (ValueError, KeyError, OverflowError):
        raise InvalidArgument(f"memory must be a size such as 2GB or 1500MB. Got {size!r}.") from None
    if found < _LEAST_MEMORY:
        raise InvalidArgument(f"memory must be at least 1GB, of which Python and torch take half. Got {size!r}.")
    return found


def refuse_more_rows(rows: int, memory: int) -> None:
    """Raise `InvalidArgument` if training on so many rows in pieces takes more than this memory.

    >>> refuse_more_rows(10**7, read_size("2GB"))
    """
    needed = _FIXED_MEMORY + rows * _ROW_MEMORY
    if needed > memory:
        raise InvalidArgument(
            f"{rows:,} rows need {needed / 1e9:.1f} GB of memory: {_FIXED_MEMORY / 1e9:g} GB for Python, torch and the "
            f"pieces, and {_ROW_MEMORY} bytes for the target and the scores of each row. memory is {memory / 1e9:g} "
            "GB. Raise it, or train on fewer rows."
        )


def make_stored(shape: tuple[int, ...], kind: Any = np.float32) -> NDArray[Any]:
    """An array of zeros in a file without a name."""
    if 0 in shape:
        return np.zeros(shape, dtype=kind)
    with tempfile.TemporaryFile(prefix="tacit-") as file:
        return _remember(np.memmap(file, dtype=kind, mode="w+", shape=shape))


def make_rows(shape: tuple[int, ...], like: Any) -> NDArray[np.float32]:
    """An array to be filled with rows: in a file if those of `like` are, and else in memory."""
    return make_stored(shape) if is_stored(like) else np.empty(shape, dtype=np.float32)


def is_stored(array: Any) -> bool:
    """Whether the array lies in a file."""
    return _find_map(array) is not None


def drop_pages(*arrays: Any) -> None:
    """Give back the memory of everything that was read from these stored arrays, or written to them."""
    for array in arrays:
        found = _find_map(array)
        if found is not None and hasattr(found, "madvise"):
            found.madvise(mmap.MADV_DONTNEED)


# By the address where they begin: an array that has been a tensor in between does not say whose memory it is.
_MAPS: weakref.WeakValueDictionary[int, mmap.mmap] = weakref.WeakValueDictionary()


def _remember(stored: NDArray[Any]) -> NDArray[Any]:
    found = _find_map(stored)
    assert found is not None
    _MAPS[stored.ctypes.data] = found
    return stored


def _find_map(array: Any) -> mmap.mmap | None:
    """The file's map that the array lies in; None if it lies in memory."""
    if not isinstance(array, np.ndarray):
        return None
    place: Any = array
    while isinstance(place, np.ndarray):
        place = place.base
        if isinstance(place, memoryview):
            place = place.obj
    if isinstance(place, mmap.mmap):
        return place
    address = array.ctypes.data
    return next((found for start, found in _MAPS.items() if start <= address < start + len(found)), None)


def count_rows_at_once(width: int, most: int | None = None) -> int:
    """How many rows of so many numbers are worked on at a time: `PIECE_BYTES`, and at most so many rows."""
    fitting = max(PIECE_BYTES // (4 * max(width, 1)) // _MULTIPLE, 1) * _MULTIPLE
    return fitting if most is None else min(most, fitting)


def walk_pieces(rows: Any, *filled: Any) -> Iterator[slice]:
    """The places of rows, piece by piece; pages of `rows` and of the arrays that are being filled are given back."""
    size = count_rows_at_once(rows.shape[1])
    for start in range(0, rows.shape[0], size):
        yield slice(start, start + size)
        drop_pages(rows, *filled)


@final
class RowWriter:
    """Appends rows to a file, which is closed at the end of a `with`; `finish` gives them as one array."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tacit-")  # noqa: SIM115 - closed on exit
        self._rows = 0
        self._shape: tuple[int, ...] = (0,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, rows: NDArray[Any]) -> None:
        """Write more rows."""
        self._shape = rows.shape[1:]
        self._rows += len(rows)
        self._file.write(np.ascontiguousarray(rows, dtype=np.float32).tobytes())

    def finish(self) -> NDArray[np.float32]:
        """All rows, also after the file was closed. Nothing can be appended after that."""
        shape = (self._rows, *self._shape)
        self._file.flush()
        if 0 in shape:
            return np.zeros(shape, dtype=np.float32)
        return _remember(np.memmap(self._file, dtype=np.float32, mode="r+", shape=shape))


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Some rows of a stored array, in their order. They are read when a part is asked for."""

    table: NDArray[Any]
    places: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.places)

    def read(self, part: slice) -> NDArray[Any]:
        """A copy of this part of the rows, in memory."""
        places = self.places[part]
        found = np.empty((len(places), *self.table.shape[1:]), dtype=self.table.dtype)
        # Rows lie apart, and the system reads their neighbours too.
        for start in range(0, len(places), _NEIGHBOURS):
            np.take(self.table, places[start : start + _NEIGHBOURS], axis=0, out=found[start : start + _NEIGHBOURS])
            drop_pages(self.table)
        return found


_NEIGHBOURS = 2**12
