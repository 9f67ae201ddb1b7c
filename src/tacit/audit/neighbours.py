"""The neighbour test: take one example away, and measure how far the released sum moves.

The proof of DP-SGD rests on this distance being at most the clip norm. It is, if no example sees another: not in the
model, not in the loss, not through anything that is kept from one lot to the next. The test uses nothing but
`PrivateRun`, so it trusts none of the checks inside. What it finds was measured on private examples, and is not for
release.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from tacit import _validate
from tacit.errors import InvalidArgument, MixesExamples, OutOfOrder
from tacit.gradients import per_example_gradients
from tacit.gradients.losses import Loss
from tacit.methods import dpsgd
from tacit.stages.sampling import FullBatch
from tacit.training.run import GradientsOf, PrivateRun

Make = Callable[[], tuple[nn.Module, Loss]]
Kind = Literal["removed", "made NaN", "replaced"]
Refusal = (MixesExamples, InvalidArgument, OutOfOrder)

# Movements, in clip norms, and contents of buffers may differ by so much through rounding.
TOLERANCE = 1e-3
_ROUNDING, _NOTHING = 1e-4, 1e-6
# So little noise that sums can be compared.
_MULTIPLIER = 1e-6
_LOTS = (1, 2, 3, 5, 8, 64)
_DEPTH = 4
# What torch itself numbers or counts.
_OF_TORCH = ("_torchdynamo", "_dynamo")


@dataclass(frozen=True)
class Neighbour:
    """Which example was changed, in a lot of how many, with which seed, and after how many steps it showed most."""

    kind: Kind
    example: int
    lot: int
    seed: int
    step: int

    def __str__(self) -> str:
        return f"example {self.example} of {self.lot} {self.kind}, seed {self.seed}, step {self.step}"


@dataclass(frozen=True)
class NeighbourTest:
    """How far one example moved the released sum at most, in clip norms, and what else it changed.

    `kept` names the parameters, buffers and attributes that depend on whether the example was there. A model that
    tacit refuses has a `refusal`; if only one of two neighbours was refused, `is_uneven`.

    >>> print(NeighbourTest(movement=0.98, tried=64))
    Removing one example moves the released sum by at most 0.98 clip norms (tried 64 neighbours).
    """

    movement: float = 0.0
    tried: int = 0
    worst: Neighbour | None = None
    kept: tuple[str, ...] = ()
    refusal: str = ""
    is_uneven: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether everything that was released moved by one clip norm at most, and nothing else changed."""
        return self.movement <= 1 + TOLERANCE and not self.kept

    @property
    def passed(self) -> bool:
        """Whether the model was accepted and nothing contradicts the proof."""
        return self.is_bounded and not self.refusal

    def __or__(self, other: NeighbourTest) -> NeighbourTest:
        """Both tests together: the larger movement, and everything that either has found."""
        larger = self if self.movement >= other.movement else other
        return NeighbourTest(
            larger.movement,
            self.tried + other.tried,
            larger.worst,
            tuple(sorted({*self.kept, *other.kept})),
            self.refusal or other.refusal,
            self.is_uneven or other.is_uneven,
        )

    def __str__(self) -> str:
        if self.movement > 1 + TOLERANCE:
            return (
                f"Removing one example moves the released sum by {self.movement:.3g} clip norms ({self.worst}). The "
                "proof allows for 1, so it does not apply to this model: examples influence each other, or the model "
                "keeps something of earlier lots."
            )
        if self.kept:
            names = ", ".join(f"'{name}'" for name in self.kept)
            return (
                f"Removing one example changes {names}, which no noise protects. The proof does not apply to this "
                "model: keep nothing of the examples in it."
            )
        if self.refusal:
            whom = "One of two neighbours is" if self.is_uneven else "The model is"
            return f"{whom} refused, so the proof does not apply: {self.refusal}"
        shown = math.ceil(self.movement * 100 - TOLERANCE * 100) / 100
        return (
            f"Removing one example moves the released sum by at most {shown:.2f} clip norms "
            f"(tried {self.tried:,} neighbours)."
        )

    def to_json(self) -> dict[str, Any]:
        """All of it, as numbers and strings."""
        about = {"passed": self.passed, "movement": self.movement, "tried": self.tried, "kept": list(self.kept)}
        worst = None if self.worst is None else vars(self.worst)
        return {**about, "worst": worst, "refusal": self.refusal or None, "sentence": str(self)}


def neighbour_test(
    model: nn.Module | Callable[[], nn.Module],
    loss: Loss,
    data: Any,
    *,
    clip_norm: float = 1.0,
    lots: Sequence[int] = _LOTS,
    seeds: Sequence[int] = (0, 1),
    examples: int = 4,
    micro_batch: int | None = None,
) -> NeighbourTest:
    """Whether removing one example moves the released sum by at most one clip norm, tried on a few examples.

    `model` is a model, of which copies are used, or a function that makes one. `data` is what `PrivateRun` takes; lots
    of the sizes `lots` are drawn from it, and in each of them up to `examples` examples are taken away in turn. It
    takes seconds. Passing is no proof: other examples and other weights might show more.

    >>> data = torch.randn(20, 4), torch.randint(3, (20,))
    >>> neighbour_test(nn.Linear(4, 3), nn.functional.cross_entropy, data).passed
    True
    """
    rows = _rows_of(data, max(lots))
    sizes = [size for size in lots if size <= _count(rows)] or [_count(rows)]
    make = _copies(model, loss)
    found = (
        measure_movement(
            make, rows, lot=size, seed=seed, clip_norm=clip_norm, examples=examples, micro_batch=micro_batch
        )
        for seed in seeds
        for size in sizes
    )
    return reduce(NeighbourTest.__or__, found, NeighbourTest())


def measure_movement(
    make: Make,
    data: Any,
    *,
    lot: int,
    seed: int = 0,
    clip_norm: float = 1.0,
    steps: int = 3,
    examples: int = 4,
    micro_batch: int | None = None,
    gradients: GradientsOf = per_example_gradients,
) -> NeighbourTest:
    """The same for one lot size and one seed. `make` makes a fresh model and a fresh loss, with the same weights.

    The weights stay what they are, so all of the `steps` release the same sum, unless something is kept in between. A
    model that draws random numbers draws others for every example once one is gone; such an example is not removed but
    made NaN, which by contract contributes nothing. One that contributes all the same, and one that has no numbers to
    be made NaN and gets those of another example, is `replaced`: that may move the sum by two clip norms, so
    half of its movement is counted. `gradients` is as for `PrivateRun`.
    """
    _validate.count("lot", lot)
    _validate.positive("clip_norm", clip_norm)
    rows = _drawn(_rows_of(data, _count(data) if _is_pair(data) else lot), lot, seed)
    trial = _Trial(make, clip_norm, steps, seed, micro_batch, lot, gradients)
    try:
        whole = trial.run(rows)
        is_random = not _is_same_release(whole, replace(trial, steps=1).run(rows, salt=1))
    except Refusal as refusal:
        return NeighbourTest(refusal=str(refusal))
    tests = (trial.compare(whole, *each) for each in _neighbours(trial, rows, examples, is_random=is_random))
    return reduce(NeighbourTest.__or__, tests, NeighbourTest())


@dataclass(frozen=True, eq=False)
class _Released:
    """What a run handed out: the sums of all steps, one row each, and what is left in model and loss.

    `drawn` is where torch's generator stood after each step: how many random numbers the model drew.
    """

    sums: Tensor
    left: dict[str, Any]
    drawn: Tensor


@dataclass(frozen=True, eq=False)
class _Trial:
    """One setting in which neighbours are compared."""

    make: Make
    clip_norm: float
    steps: int
    seed: int
    micro_batch: int | None
    size: int
    gradients: GradientsOf

    def run(self, data: Any, salt: int = 0) -> _Released:
        """Train with a learning rate of 0. With another `salt` the model draws other random numbers."""
        with _generators_kept():
            _seed_all(self.seed)
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
                # Whatever a step has drawn, the next one starts alike.
                _seed_all(self.seed, lot.step, salt)
                run.backward(lot)
                sums.append(_gradient(model) * (self.size / self.clip_norm))
                drawn.append(torch.get_rng_state())
                optimizer.step()
            return _Released(_stacked(sums), _state_of(model, loss), torch.stack(drawn))

    def compare(self, whole: _Released, kind: Kind, example: int, data: Any) -> NeighbourTest:
        """How far the neighbour `data` is from the whole lot."""
        try:
            other = self.run(data)
        except Refusal as refusal:
            return NeighbourTest(tried=1, refusal=str(refusal), is_uneven=True)
        distances = _distances(whole.sums, other.sums) / (2 if kind == "replaced" else 1)
        step = int(distances.argmax())
        # Some models draw more or fewer numbers by what an example holds, and then all others get other ones.
        if distances[step] > 1 + TOLERANCE and not torch.equal(whole.drawn, other.drawn):
            return NeighbourTest()
        where = Neighbour(kind, example, self.size, self.seed, step)
        kept = tuple(sorted(_differences(whole.left, other.left)))
        return NeighbourTest(float(distances[step]), 1, where, kept)


def _neighbours(trial: _Trial, rows: Any, examples: int, *, is_random: bool) -> Iterator[tuple[Kind, int, Any]]:
    chosen = sorted({round(at) for at in np.linspace(0, trial.size - 1, examples)})
    if not is_random:
        yield from (("removed", example, _without(rows, example)) for example in chosen)
    for example in chosen:
        spoilt = _made_nan(rows, example)
        if spoilt is not None and (is_ignored := _is_ignored(trial, spoilt, example)) is not None:
            yield ("made NaN" if is_ignored else "replaced"), example, spoilt
        elif is_random and trial.size > 1:
            yield "replaced", example, _picked(rows, [(at + (at == example)) % trial.size for at in range(trial.size)])


def _is_ignored(trial: _Trial, rows: Any, example: int) -> bool | None:
    """Whether this example alone releases nothing. None if the model cannot take it."""
    try:
        alone = replace(trial, steps=1).run(_picked(rows, [example])).sums
    except Refusal:
        return True
    except Exception:
        return None
    return bool((_lengths(alone) < TOLERANCE).all())


def _gradient(model: nn.Module) -> Tensor:
    found = [p.grad.detach().double().flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat(found) if found else torch.zeros(0, dtype=torch.float64)


def _stacked(sums: list[Tensor]) -> Tensor:
    """One row a step. A parameter that comes later has no gradient before."""
    width = max(map(len, sums))
    return torch.stack([nn.functional.pad(each, (0, width - len(each))) for each in sums])


def _distances(one: Tensor, other: Tensor) -> Tensor:
    if one.shape != other.shape:
        return torch.full((len(one),), math.inf, dtype=torch.float64)
    return _lengths(one - other)


def _lengths(rows: Tensor) -> Tensor:
    return torch.nan_to_num(rows.norm(dim=1), nan=math.inf)


def _is_same_release(one: _Released, other: _Released) -> bool:
    """Whether the first steps differ by no more than rounding and the noise of two seeds."""
    first, second = one.sums[:1], other.sums[:1]
    noise = 4 * _MULTIPLIER * math.sqrt(2 * first.shape[1])
    return bool((_distances(first, second) <= noise + 1e-5 * (1 + _lengths(first))).all())


def _copies(model: nn.Module | Callable[[], nn.Module], loss: Loss) -> Make:
    if not isinstance(model, nn.Module):
        return lambda: (model(), copy.deepcopy(loss))
    try:
        copy.deepcopy((model, loss))
    except Exception as error:
        raise InvalidArgument(
            f"The model cannot be copied ({type(error).__name__}: {error}), and every neighbour needs a fresh one. "
            "Give a function that makes the model instead."
        ) from error
    return lambda: copy.deepcopy((model, loss))


def _state_of(model: nn.Module, loss: Loss) -> dict[str, Any]:
    """Every parameter, buffer and attribute of the model, and of a loss that is a module."""
    found = _states(model, "")
    return {**found, **_states(loss, "loss.")} if isinstance(loss, nn.Module) else found


def _states(root: nn.Module, prefix: str) -> dict[str, Any]:
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


def _differences(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    for name in one.keys() | other.keys():
        if name not in one or name not in other or not _is_same(one[name], other[name]):
            yield name


def _is_same(one: Any, other: Any, depth: int = 0) -> bool:
    """Whether two values are equal up to rounding. What cannot be looked into is taken for equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return _is_same(torch.from_numpy(one), torch.from_numpy(other))
    if isinstance(one, Tensor):
        return _is_same_tensor(one.detach(), other.detach())
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_NOTHING) or (one != one and other != other)
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


def _is_same_tensor(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=_ROUNDING, atol=_NOTHING, equal_nan=True)


def _is_pair(data: Any) -> bool:
    return isinstance(data, (tuple, list)) and len(data) == 2


def _rows_of(data: Any, most: int) -> Any:
    """A pair of trees of tensors. Of a data set, the first `most` examples."""
    if _is_pair(data):
        return _each(data, lambda tensor: tensor)
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise InvalidArgument(
            "data must be a pair (inputs, targets) of tensors or arrays, or a data set with a length."
        )
    return tuple(default_collate([data[at] for at in range(min(most, len(data)))]))


def _each(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(tree, np.ndarray):
        # Single precision, like the weights of nearly every model.
        tensor = torch.from_numpy(np.array(tree))
        return change(tensor.float() if tensor.is_floating_point() else tensor)
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _each(value, change) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(_each(value, change) for value in tree)
    raise InvalidArgument(f"Examples must be made of tensors or arrays. Got {type(tree).__name__}.")


def _leaves(tree: Any) -> list[Tensor]:
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    _each(tree, note)
    return found


def _count(rows: Any) -> int:
    return len(_leaves(rows)[0])


def _picked(rows: Any, which: list[int]) -> Any:
    return _each(rows, lambda tensor: tensor[torch.tensor(which, dtype=torch.int64)])


def _drawn(rows: Any, size: int, seed: int) -> Any:
    count = _count(rows)
    if size > count:
        raise InvalidArgument(f"lot must be at most the number of examples. Got {size}, and {count} examples.")
    return _picked(rows, np.random.default_rng([seed, size]).permutation(count)[:size].tolist())


def _without(rows: Any, example: int) -> Any:
    return _picked(rows, [at for at in range(_count(rows)) if at != example])


def _made_nan(rows: Any, example: int) -> Any | None:
    """The same rows with an example whose every real number is NaN; None if there are no real numbers."""

    def spoil(tensor: Tensor) -> Tensor:
        spoilt = tensor.clone()
        if tensor.is_floating_point():
            spoilt[example] = math.nan
        return spoilt

    return _each(rows, spoil) if any(tensor.is_floating_point() for tensor in _leaves(rows)) else None


def _seed_all(*words: int) -> None:
    """What torch, numpy and Python draw from now on is a function of these words."""
    first, second, third, fourth = (int(word) for word in np.random.SeedSequence(words).generate_state(4))
    random.seed(first)
    np.random.seed(second)  # noqa: NPY002 - a user's model may draw from numpy's global generator
    torch.default_generator.manual_seed(third << 31 | fourth)


@contextmanager
def _generators_kept() -> Iterator[None]:
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])
