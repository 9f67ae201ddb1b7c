"""A loaded data set: examples to train on and to test on, what is public about them, and the form of raw examples.

A form says what examples look like before they are scaled, and what a model's answers mean. It is public: it holds
published or declared facts only, and is stored with every model, so that whoever has the model can give it rows as they
are.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from tacit.datasets import TrainingDefaults
from tacit.datasets._columns import (
    Array,
    Category,
    CodeBook,
    Column,
    Number,
    collect_problem,
    column_from_json,
    column_to_json,
    count_missing,
    count_rows,
    encode,
    flatten_problems,
    name_problems,
    refuse_problems,
    scale_to_unit,
    to_labels,
    to_numbers,
)
from tacit.errors import Caution, InvalidArgument
from tacit.guarantee import Assumption

Examples = tuple[Array, Array]
Texts = tuple[list[list[str]], Array]

TABLE_SCALING = "numbers go from declared ranges to [-1, 1], categories to 0 or 1"
PUBLIC_TEST = Assumption("public_test", "The test examples are public; only examples trained on are protected.")
HELD_OUT = Assumption(
    "private_test",
    "Whether a row was held out for testing depends on a hash of that row alone. A score on held-out rows is released "
    "only with noise of its own, which protects them at least as much as training protects the others.",
)
HELD_OUT_PEOPLE = Assumption(
    "private_test",
    "Whether all rows of a person were held out for testing depends on a hash of that person's id alone. A score on "
    "people who were held out is released only with noise of its own, in which a person counts as much as one row, and "
    "which protects them at least as much as training protects the others.",
)
NOT_TESTED = Assumption("not_tested", "No rows were held out for testing, and nothing was scored.")
# A declared size need only be about right; beyond this factor it was probably mistyped.
_FAR = 1.5
_COLOUR = 3


@dataclass(frozen=True)
class TableForm:
    """Rows with these columns, each encoded by its declaration. `ignored` columns may be there and are not used."""

    columns: CodeBook = field(hash=False)
    ignored: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that a table must have, in their order."""
        return tuple(self.columns)

    def encode(self, table: Mapping[str, Array]) -> Array:
        """One input per row; of one column of arrays, in their shape. `InvalidArgument` lists every problem."""
        inputs, shape = encode_inputs(table, self.columns)
        return inputs.reshape(-1, *shape)


@dataclass(frozen=True)
class ArrayForm:
    """Arrays of one shape, scaled from [low, high] to [start, 1]; used as they are if there are no bounds."""

    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None
    start: float = 0.0

    def encode(self, arrays: Array) -> Array:
        """One input per array. Colours may be the last axis, and pixels may come in one row."""
        given = arrays.shape[1:]
        # One row of numbers, or an image without the axis of its single colour, is as good.
        is_like = len(given) == 1 or self.shape in (given, (1, *given))
        if len(self.shape) == _COLOUR and given == (*self.shape[1:], self.shape[0]):
            arrays = np.moveaxis(arrays, -1, 1)
        elif not is_like or math.prod(given) != math.prod(self.shape):
            raise InvalidArgument(f"The model takes inputs of shape {self.shape}. Got {given}.")
        numbers = to_numbers(arrays).reshape(len(arrays), *self.shape)
        if np.isnan(numbers).any():
            raise InvalidArgument("Some numbers are missing (NaN), and the model has no rule for them.")
        if self.low is None or self.high is None:
            return numbers.astype(np.float32)
        shares = np.clip((numbers - self.low) / (self.high - self.low), 0, 1)
        return np.asarray(self.start + (1 - self.start) * shares, dtype=np.float32)


@dataclass(frozen=True)
class IndexForm:
    """Numbers of things, such as people and films: each column counts from `first` to the number of its things."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    first: int = 0
    ignored: tuple[str, ...] = ()

    def encode(self, table: Mapping[str, Array]) -> Array:
        """One row of whole numbers from 0 on per row of the table."""
        problems, parts = [], []
        for name, size in zip(self.names, self.sizes, strict=True):
            numbers = to_numbers(table[name]) - self.first
            if np.any((numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= size)):
                end = self.first + size - 1
                problems.append(f"Column {name!r} must hold whole numbers from {self.first} to {end}.")
            parts.append(np.nan_to_num(numbers).astype(np.int64))
        refuse_problems(problems)
        return np.stack(parts, axis=1)


@dataclass(frozen=True)
class TextForm:
    """Texts as they are written."""


Inputs = TableForm | ArrayForm | IndexForm | TextForm
_KINDS: dict[str, type[Inputs]] = {"table": TableForm, "array": ArrayForm, "index": IndexForm, "text": TextForm}


@dataclass(frozen=True)
class Form:
    """The form of inputs, and what targets mean: the names of the classes, or the range of a number.

    `target` is the column of the target, which raw rows need not have. Without a range, numbers are as the model gives
    them.
    """

    inputs: Inputs
    target: str | None = None
    classes: tuple[str, ...] | None = None
    range: Number | None = None

    def to_json(self) -> dict[str, Any]:
        """The form as JSON values; `from_json` gives back an equal one."""
        inputs = {each.name: getattr(self.inputs, each.name) for each in fields(self.inputs)}
        if isinstance(self.inputs, TableForm):
            inputs["columns"] = {name: column_to_json(column) for name, column in self.inputs.columns.items()}
        kind = next(name for name, form in _KINDS.items() if isinstance(self.inputs, form))
        return {
            "inputs": {"kind": kind, **inputs},
            "target": self.target,
            "classes": None if self.classes is None else list(self.classes),
            "range": None if self.range is None else column_to_json(self.range),
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Form:
        """The form that `to_json` wrote."""
        classes, ends = values["classes"], values["range"]
        number = None if ends is None else column_from_json(ends)
        assert number is None or isinstance(number, Number)
        return Form(
            _read_inputs(values["inputs"]), values["target"], None if classes is None else tuple(classes), number
        )


def _read_inputs(written: Mapping[str, Any]) -> Inputs:
    values: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in written.items()}
    kind = values.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"inputs of an unknown kind: {kind!r}")
    if kind == "table":
        values["columns"] = {name: column_from_json(each) for name, each in values["columns"].items()}
    return _KINDS[kind](**values)


def encode_inputs(table: Mapping[str, Array], features: CodeBook) -> tuple[Array, tuple[int, ...]]:
    """One row of numbers per example, and the shape of an input: that of the array if it is the only feature."""
    arrays = {name: table[name] for name in features if table[name].ndim > 1}
    flat = {name: column for name, column in features.items() if name not in arrays}
    problems, parts = list[str](), list[Array]()
    for name, values in arrays.items():
        with collect_problem(problems):
            parts.append(_scale_array(name, values, features))
    with collect_problem(problems):
        parts += [encode(table, flat)] if flat else []
    refuse_problems(problems)
    inputs = np.concatenate(parts, axis=1)
    is_alone = len(arrays) == 1 and not flat
    return inputs, next(iter(arrays.values())).shape[1:] if is_alone else inputs.shape[1:]


def _scale_array(name: str, values: Array, features: CodeBook) -> Array:
    column = features[name]
    if not isinstance(column, Number) or column.logarithmic:
        raise InvalidArgument(
            f"Column {name!r} is an array of shape {values.shape[1:]} for each row. Declare it by low and high."
        )
    numbers = to_numbers(values)
    if np.isnan(numbers).any() and column.missing != "zero":
        raise InvalidArgument(f"Column {name!r}: some numbers are missing (NaN). Fill them in before.")
    return scale_to_unit(numbers, column.low, column.high).reshape(len(values), -1)


def encode_targets(name: str, values: Array, column: Column) -> Array:
    """Class numbers, or the number's share of its range. `InvalidArgument` where one is missing."""
    problems = list[str]()
    absent = count_missing(values, column.values if isinstance(column, Category) else ())
    with collect_problem(problems), name_problems(name):
        if isinstance(column, Category):
            targets = replace(column, missing="zero", strict=True).find_places(values)
        else:
            filled = replace(column, missing="zero")
            absent = int(filled.is_missing(values).sum())
            targets = (filled.encode(values) + 1) / 2
    if absent:
        those = "it" if absent == 1 else "them"
        problems.append(
            f"Column {name!r}: {count_rows(absent)} no value, so nothing can be learnt from {those}. Leave {those} out "
            "of the table."
        )
    refuse_problems(flatten_problems(problems))
    return targets


def hash_rows(table: Mapping[str, Array]) -> tuple[str, ...]:
    """A hash of each row's values, whatever the order of the columns. It is as private as the rows."""
    columns = [
        to_labels(values) if values.ndim == 1 else [np.ascontiguousarray(each).tobytes().hex() for each in values]
        for _, values in sorted(table.items())
    ]
    rows = ("\x1f".join(row).encode("utf-8", "surrogatepass") for row in zip(*columns, strict=True))
    return tuple(hashlib.blake2b(row, digest_size=16).hexdigest() for row in rows)


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs and targets to train on, which are private, and to test on.

    `population` is the published or declared number of training examples, a constant: the number of examples in the
    copy at hand is private. `classes` is None if the target is a number; it was then divided by `unit`. If inputs are
    numbers of words, people or things, `vocabulary` holds how many there are of each kind. `example` is the unit that
    the guarantee protects. With `is_test_private`, scores on the test examples need noise too. `is_tested` declares
    whether there are test examples; whether some came is then private too. The first `numbers` columns of a table are
    numbers in [-1, 1], the others 0 or 1. `is_text` says that `load_words` reads the texts themselves, `is_handwriting`
    that images show ink on a background of 0. `load` sets `source` and `defaults`. `form` says what an example looks
    like before it is scaled, and what targets mean; None if that is not known. `digests` holds a hash of each row of
    the user's own table, to recognise the table again; it is as private as the rows.
    `words` holds the user's own texts to train on and to test on, as words. `owners` holds the id of a person for each
    row to train on and to test on, if people are protected and not rows; then `population` counts people, and at most
    `rows_per_unit` rows of each enter a step.
    """

    name: str
    train: Examples = field(repr=False)
    test: Examples = field(repr=False)
    classes: int | None
    population: int
    scaling: str = field(repr=False)
    unit: float = field(default=1.0, repr=False)
    vocabulary: tuple[int, ...] = field(default=(), repr=False)
    example: str = field(default="row", repr=False)
    source: str = field(default="", repr=False)
    is_test_private: bool = field(default=False, repr=False)
    is_tested: bool = field(default=True, repr=False)
    numbers: int = field(default=0, repr=False)
    is_text: bool = field(default=False, repr=False)
    is_handwriting: bool = field(default=False, repr=False)
    defaults: TrainingDefaults | None = field(default=None, repr=False)
    form: Form | None = field(default=None, repr=False)
    digests: tuple[str, ...] = field(default=(), repr=False)
    owners: tuple[Array, Array] | None = field(default=None, repr=False)
    words: tuple[list[list[str]], list[list[str]]] | None = field(default=None, repr=False)
    rows_per_unit: int | None = field(default=None, repr=False)

    @property
    def people(self) -> dict[str, Any]:
        """The arguments of `PrivateRun` that say whose each row is; empty if rows are protected."""
        return {} if self.owners is None else {"unit": self.owners[0], "rows_per_unit": self.rows_per_unit}

    @property
    def unit_name(self) -> str:
        """What the guarantee protects."""
        return "example" if self.owners is None else "person"

    @property
    def units_name(self) -> str:
        """The same, of several."""
        return "examples" if self.owners is None else "people"

    @property
    def identified(self) -> tuple[Array, ...]:
        """The training data as arrays that tell them from others; whose each row is belongs to them."""
        return self.train if self.owners is None else (*self.train, np.unique(self.owners[0], return_inverse=True)[1])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train[0].shape[1:])

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The assumptions of a guarantee about these examples."""
        held_out = HELD_OUT if self.owners is None else HELD_OUT_PEOPLE
        tested = held_out if self.is_test_private else PUBLIC_TEST
        unit = (
            f"What is protected is one {self.example}; a person with several examples in the data is protected less."
            if self.owners is None
            else "What is protected is one person: all rows with one id. Ids are right, and nobody has two."
        )
        return (
            Assumption("public_scaling", f"Inputs were scaled without looking at them: {self.scaling}."),
            tested if self.is_tested else NOT_TESTED,
            Assumption("one_unit", unit),
        )

    def compare_size(self, population: int, *, is_declared: bool) -> Literal["fewer", "more"] | None:
        """Whether there are "fewer" or "more" training examples than `population`; None if it fits.

        A published number must be met exactly, a declared one up to a factor of 1.5. The number of examples is private:
        it is not returned and does not replace the population.
        """
        size = len(self.train[0]) if self.owners is None else len(np.unique(self.owners[0]))
        leeway = _FAR if is_declared else 1.0
        if size * leeway < population:
            return "fewer"
        return "more" if size > population * leeway else None

    def warn_if_size_differs(self, *, is_declared: bool) -> None:
        """Give a `Caution`, at the line that called the caller, if the population does not fit the examples.

        The guarantee holds for any number of examples, as lots are drawn at the rate lot_size / population. With fewer
        examples, lots are smaller than planned, with the same noise.
        """
        found = self.compare_size(self.population, is_declared=is_declared)
        if found is None:
            return
        what = (
            f"{self.name} has far {found} rows to train on than the {self.population:,} that were declared"
            if is_declared
            else f"This copy of {self.name} is not the published one: it has {found} examples to train on than the "
            f"{self.population:,} of its population"
        )
        remedy = "declare that" if is_declared else "give it as the population"
        warnings.warn(
            f"{what}. A guarantee for that population still holds, but lots will hold {found} examples than planned, "
            f"with the same noise. If their approximate number may be public, {remedy} instead. This warning depends "
            "on private data: do not release it.",
            Caution,
            stacklevel=3,
        )


def is_test_row(rows: int) -> Array:
    """Which rows of a published table are for testing: about a fifth, chosen by their row numbers alone.

    >>> is_test_row(25).nonzero()[0]
    array([ 0,  5, 10, 13, 18])
    """
    # Multiples of the golden ratio spread evenly.
    places = np.arange(rows, dtype=np.uint64)
    return (places * np.uint64(2_654_435_769)) % np.uint64(2**32) < np.uint64(2**32 // 5)


def split_rows(inputs: Array, targets: Array) -> tuple[Examples, Examples]:
    """Examples to train on and to test on, from a table that is published in one piece."""
    is_test = is_test_row(len(inputs))
    return (inputs[~is_test], targets[~is_test]), (inputs[is_test], targets[is_test])


def choose_held_out(rows: Iterable[bytes], share: float) -> Array:
    """Which rows of a user's own data are for testing: a hash of each decides, independently of other rows."""
    hashes = (hashlib.blake2b(row, digest_size=8).digest() for row in rows)
    limit = round(share * 2**64)
    return np.fromiter((int.from_bytes(each, "big") < limit for each in hashes), dtype=bool)


def count_training_rows(rows: int) -> int:
    """How many of so many published rows `split_rows` trains on."""
    return int((~is_test_row(rows)).sum())


def form_of(data: Data) -> Form:
    """The form of the data's raw examples; without a known form, raw examples are the inputs themselves."""
    if data.form is not None:
        return data.form
    inputs: Inputs = ArrayForm(data.shape)
    if data.vocabulary:
        width = data.shape[0]
        sizes = data.vocabulary if len(data.vocabulary) == width else (max(data.vocabulary),) * width
        inputs = IndexForm(tuple(f"column{place}" for place in range(1, width + 1)), sizes)
    return Form(inputs, range=None if data.classes is not None else Number(0.0, data.unit))
