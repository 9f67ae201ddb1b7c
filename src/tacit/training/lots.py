"""Lots: the examples of one step, fetched from tensors, arrays or a data set. Private, like all that they hold."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from tacit._rows import StoredRows
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.gradients.checks import make_examples_like
from tacit.gradients.model_loss import ModelLoss, add_decoder_inputs, find_model_loss, needs_decoder
from tacit.guarantee import Assumption
from tacit.randomness import Indices
from tacit.stages.bounds.clip import finite_only
from tacit.types import BoundedSum, PerExampleGradients, Tensors

LOADER_REPLACED = Assumption(
    "loader_replaced",
    "Of the DataLoader, the data set, collate_fn and workers are used; lots drawn by this run replace its sampler and "
    "batch size. Each item of the data set depends on one example only, and collate_fn is called for one at a time.",
)
# Samplers that visit every example, so that drawing lots from all examples replaces them.
_PLAIN_SAMPLERS = (RandomSampler, SequentialSampler, DistributedSampler)
# Settings of a DataLoader that decide how examples are fetched, not which.
_KEPT = ("worker_init_fn", "multiprocessing_context", "prefetch_factor", "timeout", "pin_memory")


# Columns that hold what a model is to predict.
_TARGETS = ("labels", "label", "label_ids", "start_positions", "end_positions")


@dataclass(frozen=True, eq=False, repr=False)
class Lot:
    """The examples of one step. How many there are is private, so it is not shown.

    If people are protected, `size` is their number, and `counts` holds the number of rows of each; rows are in the same
    order.
    """

    inputs: Any
    targets: Any
    step: int
    size: int
    counts: Tensor | None = None

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        """An empty lot is a lot like any other."""
        return True

    def __repr__(self) -> str:
        return f"Lot(step={self.step})"

    def pieces(self, micro_batch: int | None) -> Iterator[tuple[Any, Any, Tensor | None]]:
        """The lot in pieces of at most `micro_batch` examples; an empty lot has none.

        The rows of a person stay together, so a piece holds at least one person.
        """
        length = micro_batch or max(self.size, 1)
        if self.counts is not None and self.size:
            yield from self._pieces_of_people(self.counts, micro_batch)
            return
        if 0 < self.size <= length:
            yield self.inputs, self.targets, None
            return
        for start in range(0, self.size, length):
            part = slice(start, start + length)
            yield _rows(self.inputs, part), _rows(self.targets, part), None

    def _pieces_of_people(self, counts: Tensor, length: int | None) -> Iterator[tuple[Any, Any, Tensor]]:
        if length is None:
            yield self.inputs, self.targets, counts
            return
        sizes, ends = counts.tolist(), [0, *counts.cumsum(0).tolist()]
        start = 0
        while start < self.size:
            stop, most = start + 1, sizes[start]
            # Every person in a piece takes up as many places as the one with most rows.
            while stop < self.size and max(most, sizes[stop]) * (stop + 1 - start) <= length:
                most, stop = max(most, sizes[stop]), stop + 1
            part = slice(ends[start], ends[stop])
            yield _rows(self.inputs, part), _rows(self.targets, part), counts[start:stop]
            start = stop


def refuse_lot(lot: object, step: int, steps: int) -> NoReturn:
    """Raise `OutOfOrder` that explains why this lot cannot be used now."""
    if not isinstance(lot, Lot):
        raise OutOfOrder(f"run.backward needs the lot that `for lot in run` just gave. Got {type(lot)!r}.")
    if step >= steps:
        raise OutOfOrder(
            f"All {steps} planned steps are done. Another step would exceed the plan, and choosing the number of steps "
            "by released results is not covered. Start another run with its own budget."
        )
    if lot.step < step:
        raise OutOfOrder(
            f"The lot of step {lot.step} was used already, and a second release from it is not paid for. "
            "Use the next lot."
        )
    raise OutOfOrder("run.backward needs the lot that `for lot in run` just gave. Got another one.")


class Examples(Protocol):
    """Where examples are fetched from. With `seeds`, one a lot, transforms that draw at random draw the same again."""

    def __len__(self) -> int: ...
    def fetch(self, lots: Iterator[Indices], seeds: Iterator[int] | None = None) -> Iterator[tuple[Any, ...]]: ...


@dataclass(frozen=True, eq=False)
class TensorExamples:
    """Inputs and targets as tensors (or tuples, lists and dicts of them) with one row per example."""

    inputs: Any
    targets: Any

    def __post_init__(self) -> None:
        tensors = leaves((self.inputs, self.targets))
        if any(tensor.dim() == 0 for tensor in tensors):
            raise InvalidArgument("data must have one row per example in every tensor. Got a single number.")
        lengths = {len(tensor) for tensor in tensors}
        if len(lengths) != 1:
            raise InvalidArgument(
                "data must have one row per example in every tensor. Got "
                f"{' and '.join(map(str, sorted(lengths)))} rows."
            )

    def __len__(self) -> int:
        return row_count(self.targets)

    def fetch(self, lots: Iterator[Indices], seeds: Iterator[int] | None = None) -> Iterator[tuple[Any, Any]]:
        """The rows of each lot. Nothing is drawn here."""
        for indices in lots:
            rows = torch.from_numpy(indices)
            yield _rows(self.inputs, rows), _rows(self.targets, rows)


@dataclass(frozen=True, eq=False)
class StoredExamples:
    """Inputs in a file, with their targets in memory. The inputs of a lot are read piece by piece, when they are used.

    So a run on these examples needs a micro-batch.
    """

    inputs: NDArray[np.float32]
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def fetch(self, lots: Iterator[Indices], seeds: Iterator[int] | None = None) -> Iterator[tuple[Any, Any]]:
        """The places of the rows of each lot, and the targets."""
        for indices in lots:
            yield StoredRows(self.inputs, indices), self.targets[torch.from_numpy(indices)]


@dataclass(frozen=True, eq=False)
class DatasetExamples:
    """A map-style data set of (input, target) pairs, fetched by `workers` processes."""

    dataset: Dataset[Any]
    workers: int = 0
    collate: Callable[[list[Any]], Any] = default_collate
    how: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def fetch(self, lots: Iterator[Indices], seeds: Iterator[int] | None = None) -> Iterator[tuple[Any, Any]]:
        """The examples of each lot, collated; workers read ahead.

        With `seeds`, what transforms draw from the global generators of torch, numpy and Python is a function of the
        lot's own seed, however many workers there are. What a data set draws from a generator of its own is not.
        """
        # Left alone, a loader would take its seed from torch's global generator, and change what dropout draws.
        generator = torch.Generator()
        generator.seed()
        yield from DataLoader(
            _ByLot(self.dataset),
            batch_sampler=_Sampler(lots, repeat(None) if seeds is None else seeds),
            num_workers=self.workers,
            collate_fn=_Collate(self.collate),
            generator=generator,
            **self.how,
        )


@dataclass(frozen=True, eq=False)
class _Sampler:
    """Lots of indices, each with the seed of its transforms, as a loader wants them."""

    lots: Iterator[Indices]
    seeds: Iterator[int | None]

    def __iter__(self) -> Iterator[list[Any]]:
        return ([indices.tolist(), seed] for indices, seed in zip(self.lots, self.seeds, strict=False))


@dataclass(frozen=True, eq=False)
class _ByLot(Dataset[Any]):
    """The data set, asked for a whole lot at a time."""

    dataset: Dataset[Any]

    def __getitems__(self, lot: list[Any]) -> list[Any]:
        """What a loader calls, in whichever process it fetches."""
        indices, seed = lot
        if seed is None:
            return self._examples(indices)
        with restore_generators():
            random.seed(seed)
            np.random.seed([seed >> 32, seed % 2**32])  # noqa: NPY002
            torch.default_generator.manual_seed(seed)
            return self._examples(indices)

    def _examples(self, indices: list[int]) -> list[Any]:
        together = getattr(self.dataset, "__getitems__", None)
        if together is not None and indices:
            return list(together(indices))
        return [self.dataset[index] for index in indices]


@contextmanager
def restore_generators() -> Iterator[None]:
    """Restore the generators of Python, numpy and torch's processor at the end."""
    # The old generator of numpy, because it is the one that transforms share.
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])


@dataclass(frozen=True, eq=False)
class _Collate:
    """Examples as one pair of inputs and targets, in which each example has one row that depends on it alone.

    A function of the user's is called for one example at a time: given a whole lot, it could pad to the longest or
    subtract a mean, and one example would change the gradients of others.
    """

    function: Callable[[list[Any]], Any]

    def __call__(self, examples: list[Any]) -> tuple[Any, Any]:
        if not examples:
            return torch.empty(0), torch.empty(0)
        if self.function is default_collate:
            if isinstance(examples[0], Mapping):
                return split_columns({name: _stack(name, [row[name] for row in examples]) for name in examples[0]})
            _refuse_unless_pair(examples[0], "Every item of the data set")
            inputs, targets = default_collate(examples)
            return inputs, targets
        rows = [self._one(example) for example in examples]
        return _join([row[0] for row in rows]), _join([row[1] for row in rows])

    def _one(self, example: Any) -> Any:
        row = self.function([example])
        row = split_columns(dict(row)) if isinstance(row, Mapping) else row
        _refuse_unless_pair(row, "collate_fn must return a pair, and what it returns")
        if any(tensor.dim() == 0 or len(tensor) != 1 for tensor in leaves(row)):
            raise InvalidArgument(
                "collate_fn must give one row for each example: the noise hides one. Called with a list of one example "
                "it returned another number of rows. Put several views of an example into one row."
            )
        return row


def split_columns(columns: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Named columns as inputs and targets: the columns with labels, as one tensor if there is only one of them."""
    targets = {name: columns[name] for name in _TARGETS if name in columns}
    if not targets:
        raise InvalidArgument(
            f"data has the columns {', '.join(columns)}, and none of them says what to predict. Name that column "
            "'labels', or give a pair (inputs, targets)."
        )
    inputs = {name: value for name, value in columns.items() if name not in targets}
    return inputs, next(iter(targets.values())) if len(targets) == 1 else targets


def _stack(name: str, rows: list[Any]) -> Tensor:
    """One column of a lot as a tensor."""
    try:
        return torch.stack([torch.as_tensor(row) for row in rows])
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"Column {name!r} holds {_name_type(rows[0])}, not numbers. Remove the column, or turn it into numbers."
        ) from error
    except RuntimeError as error:
        raise InvalidArgument(
            f"Column {name!r} has rows of different lengths. Pad or cut all to one public length, such as by "
            "tokenizer(..., padding='max_length', truncation=True, max_length=128)."
        ) from error


def _refuse_unless_pair(value: Any, what: str) -> None:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise InvalidArgument(
            f"{what} must be a pair (input, target); several inputs go into one tuple or dict. Got {_name_type(value)}."
        )


def _join(rows: list[Any]) -> Any:
    """The rows of single examples as one tree of tensors."""
    first = rows[0]
    if isinstance(first, Tensor):
        if len({row.shape for row in rows}) > 1:
            raise InvalidArgument(
                "collate_fn gives rows of different shapes. It is called for one example at a time, so it cannot pad "
                "to the longest of a lot: that length would depend on other examples. Pad or cut all to one length."
            )
        return torch.cat(rows)
    if isinstance(first, dict):
        return {key: _join([row[key] for row in rows]) for key in first}
    return type(first)(_join(list(parts)) for parts in zip(*rows, strict=True))


def examples_from(data: Any, *, workers: int, dtype: torch.dtype) -> Examples:
    """Tensors, arrays, a map-style data set or a loader of one.

    Floating-point arrays take the model's `dtype`; tensors keep theirs.
    """
    if isinstance(data, StoredExamples):
        return data
    if isinstance(data, DataLoader):
        return _examples_of_loader(data, workers, dtype)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        inputs, targets = (_each_array(part, dtype) for part in data)
        return TensorExamples(inputs, targets)
    if isinstance(data, Mapping):
        columns = {
            name: value if isinstance(value, (Tensor, np.ndarray)) else _stack(name, list(value))
            for name, value in data.items()
        }
        return TensorExamples(*_each_array(split_columns(columns), dtype))
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return TensorExamples(*data.tensors)
    # An iterable data set may have a length, but no example by its index.
    is_alone = isinstance(data, (str, Tensor, np.ndarray, IterableDataset))
    if not is_alone and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return DatasetExamples(data, workers)
    raise InvalidArgument(
        "data must be a pair (inputs, targets) of tensors or arrays, a dictionary of them with 'labels', a data set "
        "with a length, or a DataLoader. Got "
        f"{_name_type(data)}. Lots are drawn by index, so a stream of examples will not do."
    )


def _examples_of_loader(loader: DataLoader[Any], workers: int, dtype: torch.dtype) -> Examples:
    """The examples of a loader; `InvalidArgument` if its sampler chooses among them."""
    chooser = loader.sampler if type(loader.batch_sampler) is BatchSampler else loader.batch_sampler
    if loader.batch_size is None and chooser is None:
        raise InvalidArgument(
            "The DataLoader has batch_size=None, so an item of its data set may hold several examples. Give it a batch "
            "size (lots replace it), or give the data set itself, with one example per item."
        )
    if not isinstance(loader.dataset, IterableDataset) and not isinstance(chooser, _PLAIN_SAMPLERS):
        raise InvalidArgument(
            f"The DataLoader chooses examples by {type(chooser).__name__}, which lots would replace by a draw from the "
            "whole data set. Give the data set itself, or torch.utils.data.Subset(dataset, indices) of the examples to "
            "train on."
        )
    found = examples_from(loader.dataset, workers=workers or loader.num_workers, dtype=dtype)
    is_default = loader.collate_fn is default_collate
    if isinstance(found, TensorExamples) and is_default:
        return found
    how = {name: getattr(loader, name) for name in _KEPT}
    return DatasetExamples(loader.dataset, workers or loader.num_workers, loader.collate_fn, how)


def _name_type(value: Any) -> str:
    kind = type(value).__name__
    return f"a {kind} of {len(value)}" if isinstance(value, (tuple, list)) else f"a {kind}"


@dataclass(frozen=True, eq=False)
class NoGradients:
    """The gradients of an empty lot: no model is asked to cope with no input."""

    like: Tensors

    def __len__(self) -> int:
        return 0

    def norms(self) -> Tensor:
        """None."""
        return next(iter(self.like.values())).new_zeros(0)

    def layer_norms(self) -> dict[str, Tensor]:
        """None, for every parameter."""
        return {name: value.new_zeros(0) for name, value in self.like.items()}

    def scaled_norms(self, scale: Tensors) -> Tensor:
        """None."""
        return self.norms()

    def products(self, vectors: Tensors) -> Tensor:
        """None."""
        return self.norms()

    def weighted_sum(self, weights: Tensor) -> dict[str, Tensor]:
        """Zeros."""
        return {name: torch.zeros_like(value) for name, value in self.like.items()}

    def weighted_sum_by_layer(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Zeros."""
        return {name: torch.zeros_like(value) for name, value in self.like.items()}

    def dense(self) -> dict[str, Tensor]:
        """No rows."""
        return {name: value.new_zeros((0, *value.shape)) for name, value in self.like.items()}


@dataclass(frozen=True, eq=False)
class PreparedExamples:
    """Examples whose inputs are changed by a function of inputs and targets, each example by itself."""

    examples: Examples
    prepare: Callable[[Any, Any], Any]

    def __len__(self) -> int:
        return len(self.examples)

    def fetch(self, lots: Iterator[Indices], seeds: Iterator[int] | None = None) -> Iterator[tuple[Any, Any]]:
        """The examples of each lot, prepared."""
        return ((self.prepare(*pair), pair[1]) for pair in self.examples.fetch(lots, seeds))


def use_model_loss(model: nn.Module, examples: Examples) -> tuple[Examples, ModelLoss]:
    """The model's own loss per example, found on made-up ones, and the examples as the model takes them."""
    if not len(examples):
        raise InvalidArgument("loss='model' needs at least one example, whose shape says how the model is called.")
    prepared = PreparedExamples(examples, partial(add_decoder_inputs, model)) if needs_decoder(model) else examples
    # Only shapes and types of the first example are used.
    shaped = next(prepared.fetch(iter([np.zeros(1, dtype=np.int64)]), iter([0])))
    made = on_device(make_examples_like(shaped), next(model.parameters()).device)
    return prepared, find_model_loss(model, *made)


def on_device(tree: Any, device: torch.device) -> Any:
    """Every tensor of a tree, on the device."""
    if isinstance(tree, Tensor) and tree.device == device:
        return tree
    if isinstance(tree, StoredRows):
        tree = _rows(tree, slice(None))
    return change_leaves(tree, lambda tensor: tensor if tensor.device == device else tensor.to(device))


def row_count(tree: Any) -> int:
    """How many examples a tree of tensors holds."""
    return len(tree if isinstance(tree, Tensor) else leaves(tree)[0])


def change_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The same tree of dicts, lists and tuples with every tensor or array changed; anything else in it is refused."""
    if isinstance(tree, (Tensor, np.ndarray)):
        return change(tree)
    if isinstance(tree, dict):
        return {key: change_leaves(value, change) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(change_leaves(value, change) for value in tree)
    raise InvalidArgument(f"Examples must be made of tensors or arrays. Got {_name_type(tree)}.")


def _rows(tree: Any, rows: Tensor | slice) -> Any:
    if isinstance(tree, StoredRows) and isinstance(rows, slice):
        return torch.from_numpy(tree.read(rows))
    if isinstance(rows, slice):
        return change_leaves(tree, lambda tensor: tensor[rows])
    return change_leaves(tree, lambda tensor: tensor.index_select(0, rows))


def leaves(tree: Any) -> list[Tensor]:
    """Every tensor of a tree, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    if not isinstance(tree, (tuple, list)):
        raise InvalidArgument(f"Examples must be made of tensors or arrays. Got {_name_type(tree)}.")
    return [leaf for part in tree for leaf in leaves(part)]


def _each_array(tree: Any, dtype: torch.dtype) -> Any:
    if isinstance(tree, np.ndarray):
        # Torch cannot promise to leave a read-only array alone, and warns: it gets a copy.
        tensor = torch.from_numpy(np.require(tree, requirements=["C", "W"]))
        return tensor.to(dtype) if tensor.is_floating_point() else tensor
    if isinstance(tree, dict):
        return {key: _each_array(value, dtype) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(_each_array(value, dtype) for value in tree)
    return tree


# How many examples go through the model at once, unless a micro-batch is declared.
_AT_ONCE = 1024


def mean_gradient(
    examples: Examples,
    gradients: Callable[[Any, Any], PerExampleGradients],
    like: Tensors,
    population: int,
    *,
    micro_batch: int | None,
    seeds: Iterator[int] | None,
) -> BoundedSum:
    """The sum of all gradients over the public population. Nothing bounds what one example does to it.

    An example whose gradient is not finite counts zero. `seeds`, one a piece, are for random transforms of the data.
    """
    size = micro_batch or _AT_ONCE
    device = next(iter(like.values())).device
    total = {name: torch.zeros_like(value) for name, value in like.items()}
    pieces = (np.arange(start, min(start + size, len(examples))) for start in range(0, len(examples), size))
    for inputs, targets in examples.fetch(pieces, seeds):
        found = gradients(*on_device((inputs, targets), device))
        norms = found.norms()
        for name, value in found.weighted_sum(finite_only(norms, torch.ones_like(norms))).items():
            total[name] += value
    return BoundedSum({name: value / population for name, value in total.items()}, math.inf)
