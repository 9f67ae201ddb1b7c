"""Reads a user's own table: CSV, TSV, Parquet, npz, Arrow or a DataFrame. Values stay as they are written."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit._files import expand_home
from tacit.datasets import FORMATS
from tacit.datasets._columns import Array, to_columns
from tacit.datasets._files import explain_errors, parse_rows, read_content, read_npz
from tacit.errors import InvalidArgument

FRAME = "The DataFrame"
_TABBED = (".tsv", ".tsv.gz")
_DELIMITERS = (",", ";", "\t")
_LONGEST_HEADER = 2**20
# Rows that are read at a time.
_ROWS = 2**16


@dataclass(frozen=True, eq=False)
class RawTable:
    """The names of all columns of a table, and the values of those that were asked for and are there."""

    names: tuple[str, ...]
    columns: Mapping[str, Array]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0


def name_source(source: Any) -> Path | str:
    """What messages call a table: its path, or "The DataFrame"."""
    return expand_home(source) if isinstance(source, (str, Path)) else FRAME


def read_table(source: Any, wanted: Collection[str] | None = None) -> RawTable:
    """The columns of a file, a DataFrame or a mapping of names to columns; all of them, or those that are wanted.

    The ending says how a file is read: .npz, .parquet, .tsv with tabs; anything else as CSV in UTF-8, with the
    delimiter that its first line has most of. A file that ends in .gz is unpacked first. Raises `ValueError` for a file
    that is no table; call it within `explain_errors`.
    """
    file = name_source(source)
    if is_arrow(source) or (isinstance(file, Path) and file.suffix.lower() == ".parquet"):
        first, *others = read_pieces(source, wanted)
        pieces = {name: [values, *(one.columns[name] for one in others)] for name, values in first.columns.items()}
        return RawTable(first.names, {name: np.concatenate(parts) for name, parts in pieces.items()})
    if isinstance(file, str):
        names = _refuse_twins(str(name) for name in source)
        kept = {str(name): _to_array(source[name]) for name in source if wanted is None or str(name) in wanted}
        return RawTable(names, kept)
    if not file.is_file():
        raise InvalidArgument(f"There is no table {file}.")
    return (_read_npz if file.suffix.lower() == ".npz" else _read_text)(file, wanted)


def read_header(source: Any) -> tuple[str, ...]:
    """The names of the columns. No value is read: of a text file the first line, of other files their metadata."""
    file = name_source(source)
    if is_arrow(source):
        return _open_batches(source, ())[0]
    if isinstance(file, str):
        return tuple(str(name) for name in source)
    with explain_errors(file, "a table", "Save it again."):
        if not file.is_file():
            raise InvalidArgument(f"There is no table {file}.")
        if file.suffix.lower() == ".parquet":
            names = _open_batches(file, ())[0]
        else:
            names = read_table(file, ()).names if file.suffix.lower() == ".npz" else _parse_header(file)
        _refuse_twins(names)
    _refuse_values(file, names)
    return names


def _parse_header(file: Path) -> tuple[str, ...]:
    with file.open("rb") as raw:
        stream = gzip.GzipFile(fileobj=raw) if file.name.lower().endswith(".gz") else raw
        lines = _take_header(iter(lambda: stream.readline(_LONGEST_HEADER + 1), b""))
    rows = parse_rows(lines, _find_delimiter(file, lines))
    if not rows:
        raise ValueError("it is empty")
    return tuple(rows[0])


def _take_header(lines: Iterator[bytes]) -> bytes:
    """The lines up to the end of the first one that is not blank; a quoted name may hold line ends."""
    header = b""
    # Some programs end lines by a carriage return alone.
    for part in (part for line in lines for part in line.replace(b"\r\n", b"\n").splitlines(keepends=True)):
        header += part
        is_blank = not header.removeprefix(b"\xef\xbb\xbf").strip(b" ,;\t\r\n")
        if len(header) > _LONGEST_HEADER or not (is_blank or header.count(b'"') % 2):
            break
    if len(header) > _LONGEST_HEADER:
        raise ValueError("its first line has more than 1,000,000 characters, so it is hardly a header")
    try:
        header.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("its first line is not text in UTF-8. Save the table in that encoding") from None
    if b"\0" in header:
        raise ValueError("its first line is not text")
    return header


def _refuse_values(file: Path, names: tuple[str, ...]) -> None:
    """Raise `InvalidArgument` if the first line holds values: they are private and must not go into a template."""
    wrong = sum(not name.strip() or name.strip().lstrip("+-").replace(".", "", 1).isdigit() for name in names)
    if wrong == len(names) or (wrong > 1 and 2 * wrong >= len(names)):
        raise InvalidArgument(
            f"The first line of {file} holds numbers instead of column names, so it is probably a row. Add a first "
            "line with the names of the columns."
        )


def _refuse_twins(names: Iterable[str]) -> tuple[str, ...]:
    """The names; `ValueError` if two columns have the same one."""
    listed = tuple(names)
    if len(set(listed)) != len(listed):
        raise ValueError("two of its columns have the same name")
    return listed


def _find_delimiter(file: Path, text: bytes) -> str:
    head = text.split(b"\n", 1)[0].decode("utf-8-sig")
    return "\t" if file.name.lower().endswith(_TABBED) else max(_DELIMITERS, key=head.count)


def _to_array(values: Any) -> Array:
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return values
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    column = np.empty(len(listed), dtype=object)
    column[:] = listed
    return column


def _read_text(file: Path, wanted: Collection[str] | None) -> RawTable:
    text = _read_utf8(file)
    whole = parse_rows(text, _find_delimiter(file, text))
    if not whole:
        raise ValueError("it is empty")
    names, *rows = whole
    _refuse_twins(names)
    columns = to_columns(rows, names)
    return RawTable(tuple(names), {name: columns[name] for name in _choose(names, wanted)})


def _choose(names: Collection[str], wanted: Collection[str] | None) -> Iterator[str]:
    return (name for name in names if wanted is None or name in wanted)


def _read_npz(file: Path, wanted: Collection[str] | None) -> RawTable:
    if not zipfile.is_zipfile(file):
        raise ValueError("it is not an npz archive")
    with np.load(file, allow_pickle=False) as arrays:
        names = _refuse_twins(arrays)
    chosen = list(_choose(names, wanted))
    table = dict(zip(chosen, read_npz(file, chosen), strict=True))
    lengths = {name: values.shape[0] if values.ndim else None for name, values in table.items()}
    if None in lengths.values() or len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {'is one value' if each is None else each}" for name, each in lengths.items())
        raise ValueError(f"its arrays must all have one entry for each row, and have different numbers: {listed}")
    return RawTable(names, table)


def _read_utf8(file: Path) -> bytes:
    """The content of a text file in UTF-8. An error names the line, and nothing of its content."""
    text = read_content(file)
    try:
        text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = text.count(b"\n", 0, error.start) + 1
    else:
        return text
    # Raised outside the clause above: the caught error holds the whole table, and would be chained to this one.
    raise InvalidArgument(
        f"{file} is not text in UTF-8: line {wrong} is the first that is not. Save the table in that encoding (CSV "
        f"UTF-8 in a spreadsheet), or in another format: {FORMATS}."
    )


def is_arrow(source: Any) -> bool:
    """Whether this is a `datasets.Dataset`, or a table or data set of pyarrow."""
    return hasattr(source, "to_batches") or (hasattr(source, "column_names") and hasattr(source, "with_format"))


def read_pieces(source: Any, wanted: Collection[str] | None = None) -> Iterator[RawTable]:
    """The same columns as `read_table`, some rows at a time: of a Parquet file, or of Arrow."""
    names, batches = _open_batches(source, wanted)
    chosen, is_empty = list(_choose(names, wanted)), True
    for batch in batches:
        if batch.num_rows:
            is_empty = False
            yield RawTable(names, {name: _from_arrow(batch.column(name)) for name in chosen})
    if is_empty:
        yield RawTable(names, {name: np.empty(0, dtype=object) for name in chosen})


def measure_length(source: Any) -> int:
    """The number of rows of a Parquet file, or of Arrow; 0 for what cannot be read in pieces."""
    if is_arrow(source):
        return int(source.count_rows()) if hasattr(source, "scanner") else len(source)
    file = expand_home(source)
    if file.suffix.lower() != ".parquet" or not file.is_file():
        return 0
    with _load_parquet(file).ParquetFile(file) as opened:
        return int(opened.metadata.num_rows)


def _open_batches(source: Any, wanted: Collection[str] | None) -> tuple[tuple[str, ...], Iterator[Any]]:
    """The names of all columns, and the wanted ones in pieces."""
    if is_arrow(source):
        names = _refuse_twins(source.column_names if hasattr(source, "column_names") else source.schema.names)
        if hasattr(source, "with_format"):
            return names, source.with_format("arrow").iter(_ROWS)
        if hasattr(source, "scanner"):
            return names, source.to_batches(columns=list(_choose(names, wanted)), batch_size=_ROWS)
        return names, iter(source.to_batches(max_chunksize=_ROWS))
    file = expand_home(source)
    if not file.is_file():
        raise InvalidArgument(f"There is no table {file}.")
    if file.suffix.lower() != ".parquet":
        raise InvalidArgument(
            f"Only Parquet and Arrow can be read in pieces, and {file} is neither. Save it as .parquet, or leave out "
            "--memory."
        )
    opened = _load_parquet(file).ParquetFile(file, pre_buffer=False)
    names = _refuse_twins(opened.schema_arrow.names)
    # One group after the other: asked for all at once, pyarrow reads ahead.
    how: dict[str, Any] = {"batch_size": _ROWS, "columns": list(_choose(names, wanted)), "use_threads": False}
    groups = range(opened.num_row_groups)
    return names, (batch for group in groups for batch in opened.iter_batches(row_groups=[group], **how))


def _from_arrow(column: Any) -> Array:
    """The values of a column as `_to_array` gives them, but for numbers, which need no Python objects."""
    import pyarrow
    from pyarrow import types

    if isinstance(column, pyarrow.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count == 0 and (types.is_integer(column.type) or types.is_floating(column.type)):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if types.is_string(column.type) or types.is_large_string(column.type):
        column = column.dictionary_encode()
    if not types.is_dictionary(column.type):
        return _to_array(column.to_pylist())
    values = np.array([*column.dictionary.to_pylist(), None], dtype=object)
    return np.asarray(values[column.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)])


def _load_parquet(file: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InvalidArgument(
            f"Reading {file} needs pyarrow, which is not installed. Run: pip install pyarrow; or save the table as CSV."
        ) from error
    return parquet
