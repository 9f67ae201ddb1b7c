"""Scaling and encoding inside an estimator, from what was declared about each column. Nothing is read off the rows."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_X_y, validate_data

from tacit._validate import Array
from tacit.datasets._columns import Category, Column, Date, Number, encode, is_real, to_labels, to_numbers
from tacit.erm.rows import make_dense, widen_small
from tacit.errors import Caution, InvalidArgument

BOUNDS = "bounds"
Bounds = tuple[Array, Array]
# By the name of a column of a DataFrame, or by the position of one of an array.
Columns = dict[Any, Column]
_EXAMPLE = 'bounds={"age": (0, 100), "income": {"low": 0, "high": 1e6, "log": True}, "smoker": ["no", "yes"]}'
# What scikit-learn's checks may hand on.
_KINDS: dict[str, Any] = {"dtype": [np.float64, np.float32], "accept_sparse": "csr"}
# Rows spread evenly over the bounds, to see how many are longer than the declared norm; and how many are too many.
_MADE, _NEARLY_ALL = 1000, 0.95


def read_rows(estimator: Any, x: Any, y: Any, *, y_numeric: bool = False) -> tuple[Array, NDArray[Any]]:
    """Check X and y of a `fit`, scale and encode X as declared; set `bounds_` and, for a mapping, `encoded_names_`.

    Without bounds, sparse rows stay sparse and a large table stays as it is. Scaling moves zeros: rows become dense.
    Each row is encoded by itself, so that replacing an example changes one row of the result. Missing values, and
    values of a category that were not declared, are refused: a fill or a new column would depend on the rows.
    """
    columns = read_declared_columns(estimator)
    if columns is None:
        x, y = validate_data(estimator, x, y, **_KINDS, y_numeric=y_numeric)
        estimator.bounds_ = check_bounds(estimator, x.shape[1])
        return scale_by_bounds(widen_small(x), estimator.bounds_), y
    validate_data(estimator, x, skip_check_array=True)
    rows, y = check_X_y(encode_columns(x, columns), y, dtype=np.float64, y_numeric=y_numeric, estimator=estimator)
    # In the order of `coef_`: "age", then "smoker=no" and "smoker=yes".
    numbers = [str(name) for name, column in columns.items() if not isinstance(column, Category)]
    categories = [(name, column) for name, column in columns.items() if isinstance(column, Category)]
    values = [f"{name}={value}" for name, column in categories for value in column.values]
    estimator.bounds_, estimator.encoded_names_ = columns, numbers + values
    return rows, y


def read_new_rows(estimator: Any, x: Any) -> Array:
    """Check the X of a `predict`; scale and encode it as in `fit`."""
    bounds = getattr(estimator, "bounds_", None)
    if not isinstance(bounds, dict):
        return scale_by_bounds(widen_small(validate_data(estimator, x, reset=False, **_KINDS)), bounds)
    validate_data(estimator, x, reset=False, skip_check_array=True)
    return encode_columns(x, bounds)


def read_declared_columns(estimator: Any) -> Columns | None:
    """The columns, if `bounds` declares each by name or position; all problems are listed at once."""
    given = estimator.bounds
    if estimator.scale != BOUNDS or not isinstance(given, Mapping):
        return None
    if not given:
        raise InvalidArgument(f"bounds must declare every column of X: {_EXAMPLE}. Got an empty mapping.")
    found, problems = {}, []
    for name, declared in given.items():
        try:
            found[name] = _read_column(declared)
        except InvalidArgument as error:
            problems.append(f"Column {name!r}: {error}")
    if problems:
        raise InvalidArgument(" ".join(problems))
    return found


def _read_column(declared: Any) -> Column:
    match declared:
        case Number() | Date():
            return declared
        case Category():
            return replace(declared, strict=True)
        case (low, high) if isinstance(declared, tuple) and is_real(low) and is_real(high):
            return Number(float(low), float(high))
        case {"low": low, "high": high, **others} if others.keys() <= {"log"} and is_real(low) and is_real(high):
            return Number(float(low), float(high), bool(others.get("log", False)))
        case list() | tuple() | np.ndarray() if len(declared):
            return Category(tuple(to_labels(np.array(list(declared), dtype=object))), strict=True)
    raise InvalidArgument(
        f"it must be declared by a tuple of numbers (low, high), or by a list of all its values, as in {_EXAMPLE}. Got "
        f"{declared!r}."
    )


def encode_columns(x: Any, columns: Columns) -> Array:
    """[rows, encoded columns]: numbers from their bounds to [-1, 1], then 0 or 1 for each value of each category."""
    table = _take_columns(x, columns)
    problems = [text for name, column in columns.items() if (text := _find_problem(table[name], column, name))]
    if problems:
        raise InvalidArgument(" ".join(problems))
    rows: Array = encode(table, columns).astype(np.float64)
    return rows


def _take_columns(x: Any, columns: Columns) -> dict[Any, NDArray[Any]]:
    """The columns of a DataFrame by name, or of an array by position; `InvalidArgument` unless all are declared."""
    if hasattr(x, "columns"):
        names = list(x.columns)
        _refuse_others(names, columns, "The DataFrame")
        return {name: np.asarray(x[name], dtype=object) for name in columns}
    rows = np.asarray(make_dense(x), dtype=object)
    if rows.ndim != 2:
        raise InvalidArgument(f"X must be a DataFrame or a table, one row per example. Got shape {rows.shape}.")
    _refuse_others(list(range(rows.shape[1])), columns, "X has no names for its columns, so positions count: it")
    return {name: rows[:, name] for name in columns}


def _refuse_others(names: list[Any], columns: Columns, what: str) -> None:
    missing, extra = [each for each in columns if each not in names], [each for each in names if each not in columns]
    if not missing and not extra:
        return
    told = []
    if missing:
        told.append(f"{what} has no column {_list_names(missing, names)}, which bounds declares.")
    if extra:
        told.append(f"{what} has {_list_names(extra, columns)}, which bounds does not declare: declare or drop it.")
    raise InvalidArgument(" ".join(told))


def _list_names(names: list[Any], known: Any) -> str:
    close = difflib.get_close_matches(str(names[0]), [str(each) for each in known], n=1)
    return f"{', '.join(map(repr, names))}{f' (did you mean {close[0]!r}?)' if close else ''}"


def _find_problem(values: NDArray[Any], column: Column, name: Any) -> str:
    """What is wrong with the values of a column; empty if they can be encoded."""
    try:
        if isinstance(column, Number):
            wrong = int((~np.isfinite(to_numbers(values))).sum())
            told = "no finite value"
        else:
            wrong, told = int(column.is_missing(values).sum()), "no value"
    except InvalidArgument as error:
        return f"Column {name!r}: {error}"
    remedy = "Leave them out, or fill them with a constant that does not depend on the rows."
    return f"Column {name!r}: {wrong:,} rows have {told}. {remedy}" if wrong else ""


def find_largest_norm(bounds: Bounds | Columns | None) -> float | None:
    """The largest norm of a scaled row: each number is within [-1, 1], each category has one 1. None if not scaled."""
    return None if bounds is None else math.sqrt(sum(count_kinds(bounds)))


def warn_if_mostly_clipped(bounds: Bounds | Columns | None, data_norm: float) -> None:
    """Give a `Caution` if nearly all rows that are spread evenly over the bounds are longer than the declared norm."""
    if bounds is None:
        return
    numbers, categories = count_kinds(bounds)
    made = np.random.default_rng(0).uniform(-1, 1, size=(_MADE, numbers))
    lengths = np.sqrt(np.square(made).sum(axis=1) + categories)
    share = float((lengths > data_norm).mean())
    if share < _NEARLY_ALL:
        return
    warnings.warn(
        f"data_norm={data_norm:g} scales nearly all rows down, so their lengths are lost: of rows spread evenly over "
        f"the declared bounds, {100 * share:.0f} % are longer, and half are longer than {np.median(lengths):.3g}. "
        f"Leave data_norm out, which makes it {find_largest_norm(bounds):.3g}, the largest norm within the bounds. "
        "This warning follows from bounds and data_norm alone, not from the rows.",
        Caution,
        stacklevel=5,
    )


def count_kinds(bounds: Bounds | Columns) -> tuple[int, int]:
    """How many numbers and categories there are."""
    if isinstance(bounds, tuple):
        return len(bounds[0]), 0
    categories = sum(isinstance(column, Category) for column in bounds.values())
    return len(bounds) - categories, categories


def check_bounds(estimator: Any, columns: int) -> Bounds | None:
    """The declared bounds of every column; None for an estimator that does not scale."""
    if estimator.scale is None:
        if estimator.bounds is not None:
            raise InvalidArgument("bounds are for scale='bounds', which scales every column by them. Give both.")
        return None
    if estimator.scale != BOUNDS:
        raise InvalidArgument(f"scale must be 'bounds' or None. Got {estimator.scale!r}.")
    if estimator.bounds is None:
        raise InvalidArgument(
            "scale='bounds' needs bounds=(low, high), the lowest and highest value of each column, or a mapping from "
            "each column to its bounds or categories. They must not depend on the data: bounds=(0, 100), "
            f"bounds=([0, 18], [1, 99]), or {_EXAMPLE}."
        )
    return _broadcast_bounds(estimator.bounds, columns)


def _broadcast_bounds(given: Any, columns: int) -> Bounds:
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (columns,)) for end in given)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"bounds must be a pair (low, high), each a number or one number for each of the {columns} columns, or a "
            f"mapping from each column to its bounds or categories. Got {given!r}."
        ) from None
    with np.errstate(over="ignore"):
        is_wrong = ~(np.isfinite(low) & np.isfinite(high - low) & (low < high))
    if is_wrong.any():
        column = int(is_wrong.argmax())
        raise InvalidArgument(
            f"Each lower bound must be below the upper one, and both must be finite. Got {low[column]:g} and "
            f"{high[column]:g} for column {column}."
        )
    return low.copy(), high.copy()


def scale_by_bounds(x: Array, bounds: Bounds | None) -> Array:
    """Scale every column from its bounds to [-1, 1], after moving values outside to the nearer bound.

    >>> scale_by_bounds(np.array([[0.0, 5.0], [20.0, 7.0]]), (np.array([0.0, 5.0]), np.array([10.0, 9.0])))
    array([[-1., -1.],
           [ 1.,  0.]])
    """
    if bounds is None:
        return x
    low, high = bounds
    dense = make_dense(x)
    rows = np.empty(dense.shape)
    # One copy of a large table is enough.
    np.clip(dense, low, high, out=rows)
    rows -= low
    rows *= 2
    rows /= high - low
    rows -= 1
    return rows
