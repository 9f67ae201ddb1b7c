"""A user's own table (CSV, TSV, Parquet, npz or a DataFrame): rows to train on, and raw rows to predict.

Rows to train on are scaled by the bounds that `_bounds` reads from TOML. Nothing is computed from the rows; a hash of
each row decides how they are split. Raw rows are read as a model's form says. Everything that is wrong is said at once.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit._files import name_of
from tacit._rows import RowWriter, read_size, refuse_more_rows
from tacit.datasets._bounds import EXAMPLE, Bounds
from tacit.datasets._columns import (
    MISSING,
    Array,
    Category,
    CodeBook,
    Number,
    collect_problem,
    count_numbers,
    count_rows,
    flatten_problems,
    refuse_problems,
    suggest,
    to_labels,
)
from tacit.datasets._data import (
    ArrayForm,
    Data,
    Examples,
    Form,
    IndexForm,
    TableForm,
    TextForm,
    choose_held_out,
    encode_inputs,
    encode_targets,
    hash_rows,
)
from tacit.datasets._files import explain_errors
from tacit.datasets._read import RawTable, measure_length, name_source, read_pieces, read_table
from tacit.errors import InvalidArgument

_SHOWN = 8
_FITTING = "a table that fits its bounds"
# Words of texts are numbered by a public hash from 2 on; 0 stands after the end of a text.
_PLACES, _LENGTH = 2**16, 256
_WORD = re.compile(r"[a-z0-9']+")


def load_table(
    table: Any,
    *,
    target: str,
    bounds: str | os.PathLike[str] | Bounds,
    population: int | None = None,
    memory: str | float | None = None,
) -> Data:
    """Load a table, to predict the column `target` from the other columns that `bounds` declares.

    `table` is a DataFrame, Arrow (`datasets.Dataset`, pyarrow) or the path of a file. The ending says how a file is
    read: .npz, .parquet, .tsv with tabs; anything else as CSV in UTF-8, with the delimiter that its first line has most
    of. A file that ends in .gz is unpacked first. `InvalidArgument` lists everything in which table and bounds differ.

    Scaling, classes and population do not depend on the rows. Rows to test on are the public ones of the file that the
    bounds name, or else a share of the table, chosen by a hash of each row alone: so adding or removing a row moves no
    other row from one part to the other. `population` is the public number of rows to train on; by default it follows
    from the declared number of rows. If it is far off, there is a `tacit.errors.Caution`.

    With `memory`, such as "2GB", a Parquet file or Arrow is read in pieces, and the scaled rows are kept in a file
    without a name, which ends with the process. Its rows are not recognised in a ledger under another name. A table
    with more rows than fit into that memory is refused.
    """
    file = name_source(table)
    declared = bounds if isinstance(bounds, Bounds) else Bounds.read(bounds)
    about: dict[str, Any] = {
        "population": _choose_population(declared, population),
        "example": declared.example,
        "is_test_private": declared.test_file is None,
        "is_tested": declared.test_file is not None or declared.held_out > 0,
        "rows_per_unit": declared.rows_per_unit,
    }
    if declared.text_column is not None:
        texts = _load_texts(table, declared, target, about)
        texts.warn_if_size_differs(is_declared=True)
        return texts
    features = declared.features(target)
    share = declared.held_out if declared.test_file is None else None
    digests: tuple[str, ...] = ()
    owners: tuple[Array, Array] | None = None
    if memory is None:
        train, shape, digests, ids = _read_examples(table, target, declared)
        whole = train, train, None if ids is None else (ids, ids[:0])
        train, test, owners = whole if share is None else _hold_out(train, share, ids)
    else:
        limit = read_size(memory)
        if declared.unit is not None:
            raise InvalidArgument("A table whose rows belong to people is read as a whole. Leave out --memory.")
        with explain_errors(file, _FITTING, "Save it again."):
            refuse_more_rows(measure_length(table), limit)
        train, test = _store_examples(table, target, declared, share or 0.0)
        shape = train[0].shape[1:]
    if declared.test_file is not None:
        test, *_ = _read_examples(declared.test_file, target, replace(declared, unit=None))
    column = declared.columns[target]
    classes = column.values if isinstance(column, Category) else None
    number = column if isinstance(column, Number) else None
    data = Data(
        "table" if isinstance(file, str) else name_of(file).split(".")[0],
        (train[0].reshape(-1, *shape), train[1]),
        (test[0].reshape(-1, *shape), test[1]),
        classes=None if classes is None else len(classes),
        scaling="numbers go from declared bounds to [-1, 1], declared categories to 0 or 1",
        unit=1.0 if number is None else number.high - number.low,
        source="your own table",
        numbers=count_numbers(features) if shape == train[0].shape[1:] else 0,
        form=Form(TableForm(features, declared.ignored), target, classes, number),
        digests=digests,
        owners=owners,
        **about,
    )
    data.warn_if_size_differs(is_declared=True)
    return data


def _choose_population(declared: Bounds, given: int | None) -> int:
    if given is not None:
        return given
    what, size = ("rows", declared.rows) if declared.unit is None else ("people", declared.people)
    if size is None:
        example = EXAMPLE if declared.unit is None else "people = 400, above [columns]"
        raise InvalidArgument(
            f"The public number of {what} is missing. It is not counted from the table, as the count would reveal "
            f"whether someone is in it. Declare it in the bounds ({example}), or give --population, the number of "
            f"{what} to train on."
        )
    return max(1, round(size * (1 - declared.held_out)))


def _read_examples(
    source: Any, target: str, declared: Bounds
) -> tuple[Examples, tuple[int, ...], tuple[str, ...], Array | None]:
    """Features as one row of numbers per example, targets; the shape of an input; a hash of each row; whose it is."""
    file, features = name_source(source), declared.features(target)
    with explain_errors(file, _FITTING, "Save it again."):
        wanted = [*declared.columns, *([] if declared.unit is None else [declared.unit])]
        table = read_table(source, wanted)
        examples, shape = _encode_examples(table, features, target, wanted, declared)
        ids = None if declared.unit is None else _read_ids(declared.unit, table.columns[declared.unit])
    return examples, shape, hash_rows(table.columns), ids


def _encode_examples(
    table: RawTable, features: CodeBook, target: str, wanted: Collection[str], declared: Bounds
) -> tuple[Examples, tuple[int, ...]]:
    absent = [name for name in wanted if name not in table.columns]
    problems = [f"There is no column {name!r}, which is declared.{suggest(name, table.names)}" for name in absent]
    there = {name: column for name, column in features.items() if name in table.columns}
    if table.columns and not len(table):
        raise ValueError("there are no rows")
    with collect_problem(problems):
        inputs, shape = encode_inputs(table.columns, there) if there else (np.zeros((0, 0)), ())
    with collect_problem(problems):
        if target in table.columns:
            targets = encode_targets(target, table.columns[target], declared.columns[target])
    refuse_problems(flatten_problems(problems))
    return (inputs, targets), shape


def _store_examples(source: Any, target: str, declared: Bounds, share: float) -> tuple[Examples, Examples]:
    """Examples to train on and to test on, read in pieces; the inputs lie in files."""
    file, features, first = name_source(source), declared.features(target), 1
    with RowWriter() as for_training, RowWriter() as for_tests, explain_errors(file, _FITTING, "Save it again."):
        parts: tuple[tuple[RowWriter, list[Array]], ...] = ((for_training, []), (for_tests, []))
        for table in read_pieces(source, declared.columns):
            last = first + len(table) - 1
            try:
                examples, shape = _encode_examples(table, features, target, declared.columns, declared)
            except InvalidArgument as error:
                raise InvalidArgument(f"In rows {first:,} to {last:,}, the first called row 1: {error}") from error
            if len(shape) > 1:
                raise ValueError("it holds images, which cannot be read in pieces. Leave out --memory")
            for (writer, targets), (x, y) in zip(parts, _hold_out(examples, share, None)[:2], strict=True):
                writer.append(x)
                targets.append(y)
            first = last + 1
        train, test = ((writer.finish(), np.concatenate(targets)) for writer, targets in parts)
    return train, test


def _read_ids(name: str, values: Array) -> Array:
    """The ids of people as text, so that 3 and 3.0 are one person."""
    labels = to_labels(values)
    if absent := sum(label in MISSING for label in labels):
        raise InvalidArgument(
            f"Column {name!r}: {absent:,} rows have no id, so it is not known whose they are. Leave them out."
        )
    return np.array(labels, dtype=str)


def _hold_out(
    examples: Examples, share: float, ids: Array | None
) -> tuple[Examples, Examples, tuple[Array, Array] | None]:
    """Examples to train on and to test on; a hash of each row decides, independently of other rows.

    Of people a hash of the id decides, so all rows of a person are on one side. The ids of both sides come last.
    """
    inputs, targets = examples
    rows = (x.tobytes() + y.tobytes() for x, y in zip(*examples, strict=True))
    out = choose_held_out(rows if ids is None else (one.encode() for one in ids.tolist()), share)
    owners = None if ids is None else (ids[~out], ids[out])
    return (inputs[~out], targets[~out]), (inputs[out], targets[out]), owners


def _load_texts(table: Any, declared: Bounds, target: str, about: Mapping[str, Any]) -> Data:
    """The texts of a table, as words, with their classes. A hash of each text, or of its id, holds it out."""
    column = declared.columns.get(target)
    if not isinstance(column, Category) or len(column.values) < 2:
        raise InvalidArgument(
            f"Texts are sorted into classes, so the target {target!r} must be declared as a list of all its values."
        )
    if others := [name for name in declared.columns if name != target]:
        raise InvalidArgument(
            f"Beside the text {declared.text_column!r} only the target can be used. Declare {', '.join(others)} as "
            "{ ignore = true }."
        )
    words, labels, ids, digests = _read_words(table, declared, target)
    if declared.test_file is not None:
        test_words, test_labels, _, _ = _read_words(declared.test_file, declared, target)
        kept, out = np.ones(len(words), dtype=bool), np.zeros(len(words), dtype=bool)
    else:
        units: list[Any] = words if ids is None else ids.tolist()
        out = choose_held_out((repr(each).encode() for each in units), declared.held_out)
        kept = ~out
        test_words, test_labels = [words[row] for row in np.flatnonzero(out)], labels[out]
    train_words = [words[row] for row in np.flatnonzero(kept)]
    file = name_source(table)
    return Data(
        "texts" if isinstance(file, str) else name_of(file).split(".")[0],
        (_number_words(train_words), labels[kept]),
        (_number_words(test_words), test_labels),
        len(column.values),
        scaling="words are numbered by a public hash",
        vocabulary=(_PLACES + 2,),
        source="your own texts",
        is_text=True,
        form=Form(TextForm(), target, column.values),
        digests=digests,
        owners=None if ids is None else (ids[kept], ids[out]),
        words=(train_words, test_words),
        **about,
    )


def _read_words(
    source: Any, declared: Bounds, target: str
) -> tuple[list[list[str]], Array, Array | None, tuple[str, ...]]:
    """The words of every text, the class numbers, whose each text is, and a hash of each row."""
    wanted = [name for name in (declared.text_column, target, declared.unit) if name is not None]
    with explain_errors(name_source(source), _FITTING, "Save it again."):
        table = read_table(source, wanted)
        absent = [name for name in wanted if name not in table.columns]
        refuse_problems(
            [f"There is no column {name!r}, which is declared.{suggest(name, table.names)}" for name in absent]
        )
        texts = [str(value) for value in table.columns[str(declared.text_column)].tolist()]
        if missing := sum(text in MISSING for text in texts):
            raise InvalidArgument(f"Column {declared.text_column!r}: {count_rows(missing)} no text. Leave them out.")
        labels = encode_targets(target, table.columns[target], declared.columns[target])
        ids = None if declared.unit is None else np.array([str(one) for one in table.columns[declared.unit].tolist()])
    return [_WORD.findall(text.lower()) for text in texts], labels, ids, hash_rows(table.columns)


def _number_words(texts: list[list[str]]) -> Array:
    """[texts, 256]: the first words of each, by their hash."""
    found = np.zeros((len(texts), _LENGTH), dtype=np.int64)
    for row, words in zip(found, texts, strict=True):
        row[: len(words)] = [zlib.crc32(word.encode()) % _PLACES + 2 for word in words[:_LENGTH]]
    return found


@dataclass(frozen=True, eq=False)
class RawRows:
    """Inputs for the model, one for each row; `ids` are the ignored columns, to recognise rows by."""

    inputs: Any
    ids: Mapping[str, list[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_raw(source: Any, form: Form) -> RawRows:
    """The inputs in a file, a DataFrame or arrays, without the target. `InvalidArgument` lists everything that differs.

    A target that is there, and columns that the model does not have, are not used, and a note says so. Arrays must have
    the columns in the order of the form.
    """
    file = name_source(source) if _is_table(source) else "The array"
    with explain_errors(file, "what the model takes", "Save it again."):
        inputs = form.inputs
        if isinstance(source, (str, Path)) and Path(source).suffix.lower() == ".npy" and Path(source).is_file():
            source = np.load(source, allow_pickle=False)
        if isinstance(inputs, TextForm):
            return _read_texts(source, form)
        if isinstance(inputs, ArrayForm):
            return _read_arrays(source, inputs, form.target)
        return _read_columns(source, inputs, form)


def _is_table(source: Any) -> bool:
    return isinstance(source, (str, Path, Mapping)) or hasattr(source, "columns")


def _read_columns(source: Any, inputs: TableForm | IndexForm, form: Form) -> RawRows:
    names = inputs.names
    table = read_table(source, (*names, *inputs.ignored)) if _is_table(source) else _split_array(source, names)
    known = (*names, *inputs.ignored, form.target)
    absent = [name for name in names if name not in table.columns]
    problems = _list_columns(("There is no column", "There are no columns"), absent, table.names)
    unknown = [name for name in table.names if name not in known]
    if absent:
        # One of them may be an absent column under another name. Otherwise they are not needed.
        problems += _list_columns(("The model has no column", "The model has no columns"), unknown, absent)
    if table.columns and not len(table):
        problems.append("There are no rows.")
    with collect_problem(problems):
        encoded = _encode_present(inputs, table, absent)
    refuse_problems(flatten_problems(problems))
    ids = {name: to_labels(table.columns[name]) for name in inputs.ignored if name in table.columns}
    return RawRows(encoded, ids, (*_note_target(form.target, table.names), *_note_unknown(unknown)))


def _list_columns(beginnings: tuple[str, str], names: Sequence[str], others: Sequence[str]) -> list[str]:
    """A line for each of a few columns; of many, a line for the first ones and their number."""
    lines = [f"{beginnings[0]} {name!r}.{suggest(name, others)}" for name in names[:_SHOWN]]
    if len(names) <= _SHOWN:
        return lines
    listed = ", ".join(repr(name) for name in names[:_SHOWN])
    more = f"{beginnings[1]} {listed}, and {len(names) - _SHOWN:,} more."
    return [*(line for line in lines if not line.endswith("'.")), more]


def _encode_present(inputs: TableForm | IndexForm, table: RawTable, absent: list[str]) -> Array:
    """The inputs; of columns that are absent nothing is said here."""
    if not absent:
        return inputs.encode(table.columns)
    present = [name for name in inputs.names if name not in absent]
    if isinstance(inputs, TableForm) and present:
        TableForm({name: inputs.columns[name] for name in present}).encode(table.columns)
    return np.zeros((0, 0))


def _split_array(source: Any, names: tuple[str, ...]) -> RawTable:
    rows = np.asarray(source)
    if rows.ndim > 2:
        # Images of a table with one column per pixel.
        rows = rows.reshape(len(rows), -1)
    if rows.ndim != 2 or rows.shape[1] != len(names):
        listed = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        raise InvalidArgument(
            f"It must have one row per example with {len(names)} columns: {listed}. Got an array of shape "
            f"{np.shape(source)}."
        )
    return RawTable(names, {name: rows[:, place] for place, name in enumerate(names)})


def _note_target(target: str | None, names: tuple[str, ...]) -> tuple[str, ...]:
    return (f"Column {target} is the target and was not used.",) if target in names else ()


def _note_unknown(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    listed = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
    return (f"The model has no column {listed}, so {'it was' if len(names) == 1 else 'they were'} not used.",)


def _read_arrays(source: Any, inputs: ArrayForm, target: str | None) -> RawRows:
    if not _is_table(source):
        if np.ndim(source) < 2:
            raise InvalidArgument(f"There must be one row per example. Got shape {np.shape(source)}.")
        return RawRows(inputs.encode(np.asarray(source)))
    table = read_table(source)
    columns = [values for name, values in table.columns.items() if name != target]
    if len(columns) == 1 and columns[0].ndim > 1:
        return RawRows(inputs.encode(columns[0]), notes=_note_target(target, table.names))
    wrong = [name for name, values in table.columns.items() if values.ndim > 1]
    if wrong:
        raise InvalidArgument(f"It must hold one array of inputs. Got {', '.join(table.names)}.")
    return RawRows(inputs.encode(np.stack(columns, axis=1)), notes=_note_target(target, table.names))


def _read_texts(source: Any, form: Form) -> RawRows:
    if not _is_table(source):
        texts = [source] if isinstance(source, str) else list(source)
        wrong = next((each for each in texts if not isinstance(each, str)), None)
        if wrong is not None:
            raise InvalidArgument(f"The model takes texts. Got {wrong!r}.")
        return RawRows(texts)
    table = read_table(source)
    names = [name for name in table.names if name != form.target]
    if len(names) != 1:
        raise InvalidArgument(f"The model takes one column of texts. Got {', '.join(names) or 'none'}.")
    texts = [str(value) for value in table.columns[names[0]]]
    if absent := sum(text in MISSING for text in texts):
        raise InvalidArgument(f"Column {names[0]!r}: {absent:,} texts are missing.")
    return RawRows(texts, notes=_note_target(form.target, table.names))
