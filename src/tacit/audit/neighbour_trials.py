"""Runs on neighbouring lots for the neighbour test: how neighbours are made, and how their releases are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from tacit.audit.runs import seed_generators
from tacit.errors import InvalidArgument, MixesExamples, OutOfOrder
from tacit.gradients.losses import Loss
from tacit.methods import dpsgd
from tacit.stages.sampling import FullBatch
from tacit.training.lots import change_leaves, leaves, restore_generators, row_count
from tacit.training.run import GradientsOf, PrivateRun

Make = Callable[[], tuple[nn.Module, Loss]]
Kind = Literal["removed", "made NaN", "replaced"]
Refusal = (MixesExamples, InvalidArgument, OutOfOrder)

# Rounding may change movements, in clip norms, by the first, and the contents of buffers by the others.
TOLERANCE = 1e-3
_RELATIVE, _ABSOLUTE = 1e-4, 1e-6
# So little noise that sums can be compared.
_MULTIPLIER = 1e-6
# Attributes are compared down to this depth.
_DEPTH = 4
# Attributes that torch itself numbers or counts.
_OF_TORCH = ("_torchdynamo", "_dynamo")


@dataclass(frozen=True, eq=False)
class Released:
    """What a run released and left: the sums of all steps, one row each, and the state of model and loss.

    `drawn` is the state of torch's generator after each step, so it tells how many random numbers the model drew.
    """

    sums: Tensor
    left: dict[str, Any]
    drawn: Tensor

    def distances(self, other: Released) -> Tensor:
        """The distance between the sums of each step."""
        return _measure_distances(self.sums, other.sums)

    def is_same_release(self, other: Released) -> bool:
        """Whether the first steps differ by no more than rounding and the noise of two seeds."""
        first, second = self.sums[:1], other.sums[:1]
        noise = 4 * _MULTIPLIER * math.sqrt(2 * first.shape[1])
        return bool((_measure_distances(first, second) <= noise + 1e-5 * (1 + _measure_lengths(first))).all())

    def changes(self, other: Released) -> tuple[str, ...]:
        """The names of parameters, buffers and attributes that differ."""
        one, two = self.left, other.left
        return tuple(
            sorted(
                name
                for name in one.keys() | two.keys()
                if name not in one or name not in two or not _is_same(one[name], two[name])
            )
        )


@dataclass(frozen=True, eq=False)
class Trial:
    """The settings under which neighbours are compared."""

    make: Make
    clip_norm: float
    steps: int
    seed: int
    micro_batch: int | None
    size: int
    gradients: GradientsOf

    def run(self, data: Any, salt: int = 0) -> Released:
        """Train with learning rate 0. With another `salt` the model draws other random numbers."""
        with restore_generators():
            seed_generators(self.seed)
            model, loss = self.make()
            run = PrivateRun(
                model,
                loss,
                data=data,
                mechanism=dpsgd(clip_norm=self.clip_norm, multiplier=_MULTIPLIER),
                sampling=FullBatch(population=self.size),
                steps=self.steps,
                seed=self.seed + 2**20 * salt,
                micro_batch=self.micro_batch,
                gradients=self.gradients,
            )
            optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
            sums, drawn = [], []
            for lot in run:
                # Every step starts from its own seed, however many numbers the step before drew.
                seed_generators(self.seed, lot.step, salt)
                run.backward(lot)
                found = [p.grad.detach().double().flatten() for p in model.parameters() if p.grad is not None]
                whole = torch.cat(found) if found else torch.zeros(0, dtype=torch.float64)
                sums.append(whole * (self.size / self.clip_norm))
                drawn.append(torch.get_rng_state())
                optimizer.step()
            left = _list_states(model, "") | (_list_states(loss, "loss.") if isinstance(loss, nn.Module) else {})
            # A parameter that is added later has no gradient before.
            width = max(map(len, sums))
            rows = [nn.functional.pad(each, (0, width - len(each))) for each in sums]
            return Released(torch.stack(rows), left, torch.stack(drawn))


def vary_rows(trial: Trial, rows: Any, examples: int, *, is_random: bool) -> Iterator[tuple[Kind, int, Any]]:
    """Neighbours of a lot: what was done to which example, and the rows. `is_random` models draw random numbers."""
    chosen = sorted({round(at) for at in np.linspace(0, trial.size - 1, examples)})
    if not is_random:
        for example in chosen:
            yield "removed", example, select_rows(rows, [at for at in range(trial.size) if at != example])
    for example in chosen:
        spoilt = _spoil_example(rows, example)
        if spoilt is not None and (is_ignored := _is_ignored(trial, spoilt, example)) is not None:
            yield ("made NaN" if is_ignored else "replaced"), example, spoilt
        elif is_random and trial.size > 1:
            yield (
                "replaced",
                example,
                select_rows(rows, [(at + (at == example)) % trial.size for at in range(trial.size)]),
            )


def _is_ignored(trial: Trial, rows: Any, example: int) -> bool | None:
    """Whether this example alone releases nothing. None if the model fails on it."""
    try:
        alone = replace(trial, steps=1).run(select_rows(rows, [example])).sums
    except Refusal:
        return True
    except Exception:
        return None
    return bool((_measure_lengths(alone) < TOLERANCE).all())


def _measure_distances(one: Tensor, other: Tensor) -> Tensor:
    if one.shape != other.shape:
        return torch.full((len(one),), math.inf, dtype=torch.float64)
    return _measure_lengths(one - other)


def _measure_lengths(rows: Tensor) -> Tensor:
    return torch.nan_to_num(rows.norm(dim=1), nan=math.inf)


def _list_states(root: nn.Module, prefix: str) -> dict[str, Any]:
    """Every parameter, buffer and attribute of a module, by name."""
    found: dict[str, Any] = {}
    own = vars(nn.Module()).keys()
    for path, module in root.named_modules():
        at = f"{prefix}{path}." if path else prefix
        tensors = {**module._parameters, **module._buffers}
        plain = {
            name: value for name, value in vars(module).items() if name not in own and not name.startswith(_OF_TORCH)
        }
        found |= {f"{at}{name}": value for name, value in {**tensors, **plain}.items()}
    return found


def _is_same(one: Any, other: Any, depth: int = 0) -> bool:
    """Whether two values are equal up to rounding. Values that cannot be inspected count as equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return _is_same(torch.from_numpy(one), torch.from_numpy(other))
    if isinstance(one, Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if not one.is_floating_point():
            return torch.equal(one, other)
        return torch.allclose(one.detach(), other.detach(), rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE) or (one != one and other != other)
    if isinstance(one, (bool, int, str, bytes, complex, set, frozenset)):
        return bool(one == other)
    if depth == _DEPTH:
        return True
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key], depth + 1) for key in one)
    if isinstance(one, Sequence):
        return len(one) == len(other) and all(_is_same(*pair, depth + 1) for pair in zip(one, other, strict=True))
    if isinstance(one, nn.Module) or callable(one) or not hasattr(one, "__dict__"):
        return True
    return _is_same(vars(one), vars(other), depth + 1)


def as_rows(data: Any, most: int) -> Any:
    """The data as a pair of trees of tensors; of a data set, the first `most` examples."""
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return map_tree(data, lambda tensor: tensor)
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise InvalidArgument(
            "data must be a pair (inputs, targets) of tensors or arrays, or a data set with a length."
        )
    return tuple(default_collate([data[at] for at in range(min(most, len(data)))]))


def draw_rows(rows: Any, size: int, seed: int) -> Any:
    """A lot of `size` random rows."""
    count = row_count(rows)
    if size > count:
        raise InvalidArgument(f"lot must be at most the number of examples. Got {size}, and {count} examples.")
    return select_rows(rows, np.random.default_rng([seed, size]).permutation(count)[:size].tolist())


def map_tree(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same tree of dicts, lists and tuples with every tensor changed; arrays become tensors."""

    def convert(leaf: Tensor | np.ndarray[Any, Any]) -> Tensor:
        tensor = torch.from_numpy(np.array(leaf)) if isinstance(leaf, np.ndarray) else leaf
        # Single precision, like the weights of most models.
        is_wide = isinstance(leaf, np.ndarray) and tensor.is_floating_point()
        return change(tensor.float() if is_wide else tensor)

    return change_leaves(tree, convert)


def select_rows(rows: Any, which: list[int]) -> Any:
    """These rows of every tensor of a tree."""
    return map_tree(rows, lambda tensor: tensor[torch.tensor(which, dtype=torch.int64)])


def _spoil_example(rows: Any, example: int) -> Any | None:
    """The rows with every real number of one example set to NaN; None if there are no real numbers."""

    def spoil(tensor: Tensor) -> Tensor:
        spoilt = tensor.clone()
        if tensor.is_floating_point():
            spoilt[example] = math.nan
        return spoilt

    return map_tree(rows, spoil) if any(tensor.is_floating_point() for tensor in leaves(rows)) else None
