"""Reads raw examples, as a user has them, into inputs of a model; everything that differs is said at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tacit.datasets._bounds import suggest
from tacit.datasets._columns import MISSING, Array, refuse_problems, to_labels
from tacit.datasets._data import ArrayForm, Form, IndexForm, TableForm, TextForm
from tacit.datasets._files import explain_errors
from tacit.datasets._own import flatten_problems
from tacit.datasets._read import RawTable, name_source, read_table
from tacit.errors import InvalidArgument

_SHOWN = 8


@dataclass(frozen=True, eq=False)
class RawRows:
    """Inputs for the model, one for each row; `ids` are the ignored columns, to recognise rows by."""

    inputs: Any
    ids: Mapping[str, list[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_raw(source: Any, form: Form) -> RawRows:
    """The inputs in a file, a DataFrame or arrays, without the target. `InvalidArgument` lists everything that differs.

    A target that is there is not used, and a note says so. Arrays must have the columns in the order of the form.
    """
    file = name_source(source) if _is_table(source) else "The array"
    with explain_errors(file, "what the model takes", "Save it again."):
        inputs = form.inputs
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
    problems = [f"There is no column {name!r}.{suggest(name, table.names)}" for name in absent]
    problems += [
        f"The model knows no column {name!r}.{suggest(name, names)} Leave it out."
        for name in table.names
        if name not in known
    ]
    if not len(table):
        problems.append("There are no rows.")
    try:
        encoded = _encode_present(inputs, table, absent)
    except InvalidArgument as error:
        problems.append(str(error))
    refuse_problems(flatten_problems(problems))
    ids = {name: to_labels(table.columns[name]) for name in inputs.ignored if name in table.columns}
    return RawRows(encoded, ids, _note_target(form.target, table.names))


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
    if rows.ndim != 2 or rows.shape[1] != len(names):
        listed = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        raise InvalidArgument(
            f"It must have one row per example with {len(names)} columns: {listed}. Got {rows.shape}."
        )
    return RawTable(names, {name: rows[:, place] for place, name in enumerate(names)})


def _note_target(target: str | None, names: tuple[str, ...]) -> tuple[str, ...]:
    return (f"Column {target} is the target and was not used.",) if target in names else ()


def _read_arrays(source: Any, inputs: ArrayForm, target: str | None) -> RawRows:
    if not _is_table(source):
        return RawRows(inputs.encode(_at_least_2d(np.asarray(source))))
    if isinstance(source, (str, Path)) and Path(source).suffix.lower() == ".npy":
        return RawRows(inputs.encode(_at_least_2d(np.load(source, allow_pickle=False))))
    table = read_table(source)
    columns = [values for name, values in table.columns.items() if name != target]
    if len(columns) == 1 and columns[0].ndim > 1:
        return RawRows(inputs.encode(columns[0]), notes=_note_target(target, table.names))
    wrong = [name for name, values in table.columns.items() if values.ndim > 1]
    if wrong:
        raise InvalidArgument(f"It must hold one array of inputs. Got {', '.join(table.names)}.")
    return RawRows(inputs.encode(np.stack(columns, axis=1)), notes=_note_target(target, table.names))


def _at_least_2d(arrays: Array) -> Array:
    if arrays.ndim < 2:
        raise InvalidArgument(f"There must be one row per example. Got shape {arrays.shape}.")
    return arrays


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
