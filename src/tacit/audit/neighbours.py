"""The neighbour test: remove one example, and measure how far the released sum moves.

The proof of DP-SGD needs this distance to be at most the clip norm. It is, if examples do not influence each other: not
in the model, not in the loss, and not through anything kept from one lot to the next. The test uses only `PrivateRun`,
so it does not depend on the checks inside. Its result was measured on private examples, and is not for release.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import nn

from tacit import _validate
from tacit.audit.neighbour_trials import TOLERANCE, Kind, Make, Refusal, Trial, as_rows, draw_rows, vary_rows
from tacit.errors import InvalidArgument
from tacit.gradients import per_example_gradients
from tacit.gradients.losses import Loss
from tacit.training.lots import row_count
from tacit.training.run import GradientsOf

_LOTS = (1, 2, 3, 5, 8, 64)


@dataclass(frozen=True)
class Neighbour:
    """The example that was changed, its lot size and seed, and the step with the largest movement."""

    kind: Kind
    example: int
    lot: int
    seed: int
    step: int

    def __str__(self) -> str:
        return f"example {self.example} of {self.lot} {self.kind}, seed {self.seed}, step {self.step}"


@dataclass(frozen=True)
class NeighbourTest:
    """The largest movement of the released sum by one example, in clip norms, and what else the example changed.

    `kept` names the parameters, buffers and attributes that depend on the example. `refusal` is the reason if tacit
    refuses the model; if it refuses only one of two neighbours, `is_uneven`.

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
        """Whether every released sum moved by at most one clip norm, and nothing else changed."""
        return self.movement <= 1 + TOLERANCE and not self.kept

    @property
    def passed(self) -> bool:
        """Whether the model was accepted and nothing contradicts the proof."""
        return self.is_bounded and not self.refusal

    def __or__(self, other: NeighbourTest) -> NeighbourTest:
        """Both tests together: the larger movement, and everything that either found."""
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
                "proof allows 1, so it does not apply to this model: examples influence each other, or the model "
                "keeps something of earlier lots."
            )
        if self.kept:
            names = ", ".join(f"'{name}'" for name in self.kept)
            return (
                f"Removing one example changes {names}, which no noise protects, so the proof does not apply to this "
                "model. Keep nothing of the examples in the model."
            )
        if self.refusal:
            whom = "One of two neighbours is" if self.is_uneven else "The model is"
            return f"{whom} refused, so the proof does not apply: {self.refusal}"
        movement = math.ceil(self.movement * 100 - TOLERANCE * 100) / 100
        return (
            f"Removing one example moves the released sum by at most {movement:.2f} clip norms "
            f"(tried {self.tried:,} neighbours)."
        )

    def to_json(self) -> dict[str, Any]:
        """The result as numbers and strings."""
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
    """Whether removing one example moves the released sum by at most one clip norm, for a few examples.

    `model` is a model, which is copied, or a function that makes one. `data` is as for `PrivateRun`; lots of the sizes
    `lots` are drawn from it, and up to `examples` examples of each are removed in turn. It takes seconds. Passing is no
    proof: other examples and other weights might move the sum further.

    >>> import torch
    >>> data = torch.randn(20, 4), torch.randint(3, (20,))
    >>> neighbour_test(nn.Linear(4, 3), nn.functional.cross_entropy, data).passed
    True
    """
    rows = as_rows(data, max(lots))
    sizes = [size for size in lots if size <= row_count(rows)] or [row_count(rows)]
    make = _make_copies(model, loss)
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

    The weights do not change, so all `steps` release the same sum, unless something is kept between them. A model that
    draws random numbers draws different ones for every example after the removed one; such an example is made NaN
    instead, which by contract contributes nothing. An example that still contributes, or that has no real numbers and
    gets those of another one, counts as `replaced`: that may move the sum by two clip norms, so half of its movement is
    counted. `gradients` is as for `PrivateRun`.
    """
    _validate.count("lot", lot)
    _validate.positive("clip_norm", clip_norm)
    rows = draw_rows(as_rows(data, lot), lot, seed)
    trial = Trial(make, clip_norm, steps, seed, micro_batch, lot, gradients)
    try:
        whole = trial.run(rows)
        is_random = not whole.is_same_release(replace(trial, steps=1).run(rows, salt=1))
    except Refusal as refusal:
        return NeighbourTest(refusal=str(refusal))
    result = NeighbourTest()
    for kind, example, neighbour in vary_rows(trial, rows, examples, is_random=is_random):
        try:
            other = trial.run(neighbour)
        except Refusal as refusal:
            result |= NeighbourTest(tried=1, refusal=str(refusal), is_uneven=True)
            continue
        distances = whole.distances(other) / (2 if kind == "replaced" else 1)
        step = int(distances.argmax())
        # Some models draw more or fewer random numbers depending on an example, and then all others get different ones.
        if distances[step] > 1 + TOLERANCE and not torch.equal(whole.drawn, other.drawn):
            continue
        worst = Neighbour(kind, example, lot, seed, step)
        result |= NeighbourTest(float(distances[step]), 1, worst, whole.changes(other))
    return result


def _make_copies(model: nn.Module | Callable[[], nn.Module], loss: Loss) -> Make:
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
