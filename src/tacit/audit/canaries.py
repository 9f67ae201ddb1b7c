"""Canaries: unusual examples, each included in the data by the toss of a fair coin.

A gradient canary is given by its gradient only: a random direction, longer than the clip norm. The audited sampling
draws it into lots like any other example, and the audited bound and noise process it. The attacker sees every release,
and knows the directions and the sum of the real examples of each lot, but not the coins. The guarantee allows this: it
holds for attackers who know all other examples.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit import _validate
from tacit.audit.watching import AnyWatch, BandedWatch, Watch
from tacit.errors import InvalidArgument
from tacit.gradients import per_example_gradients
from tacit.gradients.losses import Loss
from tacit.gradients.units import average_rows
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import BandedNoise
from tacit.training.lots import Examples, NoGradients, examples_from, on_device
from tacit.training.people import Owners
from tacit.training.run import PrivateRun
from tacit.types import Bound, BoundedSum, PerExampleGradients, State, Tensors, sum_pieces

# Nonzero coordinates of a direction: enough that directions hardly overlap, few enough to store thousands.
_SUPPORT = 1024


@dataclass(frozen=True, eq=False)
class Directions:
    """Random unit directions in the parameters of a model: the places and values of their nonzero entries.

    In models of more than a thousand parameters each has 1,024 nonzero entries, in random places. Two of them are as
    nearly orthogonal as if all entries were random: their inner product is about 1/sqrt(number of parameters).
    """

    like: Tensors
    places: Tensor
    values: Tensor

    @staticmethod
    def draw(like: Tensors, count: int, rng: np.random.Generator) -> Directions:
        """`count` directions in parameters of these shapes."""
        size = sum(value.numel() for value in like.values())
        support = min(size, _SUPPORT)
        places = np.stack([rng.choice(size, support, replace=False, shuffle=False) for _ in range(count)])
        values = rng.standard_normal((count, support))
        values /= np.linalg.norm(values, axis=1, keepdims=True)
        first = next(iter(like.values()))
        return Directions(
            {name: value.detach() for name, value in like.items()},
            torch.from_numpy(places).to(first.device),
            torch.from_numpy(values).to(first.device, first.dtype),
        )

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def _ends(self) -> Tensor:
        sizes = torch.tensor([value.numel() for value in self.like.values()], device=self.places.device)
        return sizes.cumsum(0)

    def owners(self, rows: Tensor) -> Tensor:
        """The number of the parameter that each entry belongs to."""
        return torch.searchsorted(self._ends, self.places[rows], right=True)

    def scatter(self, places: Tensor, values: Tensor) -> dict[str, Tensor]:
        """The sum of entries as tensors of the parameters' shapes."""
        flat = torch.zeros(int(self._ends[-1]), dtype=values.dtype, device=values.device)
        flat.index_add_(0, places.reshape(-1), values.reshape(-1))
        pieces = flat.split_with_sizes([value.numel() for value in self.like.values()])
        return {name: piece.view_as(value) for (name, value), piece in zip(self.like.items(), pieces, strict=True)}

    def project(self, values: Tensors) -> Tensor:
        """The inner product of each direction with a value of the parameters' shapes."""
        return (self.gather(values) * self.values).sum(1)

    def gather(self, values: Tensors) -> Tensor:
        """The values at the places of each direction."""
        flat = torch.cat([values[name].reshape(-1) for name in self.like])
        return flat[self.places]


@dataclass(frozen=True, eq=False)
class WithCanaries:
    """The gradients of a lot, followed by those of its canaries, which have norm `length`. Private."""

    real: PerExampleGradients
    directions: Directions
    rows: Tensor
    length: float
    # Where in the lot the canaries stand.
    places: Tensor | None = None

    def __len__(self) -> int:
        return len(self.real) + len(self.rows)

    def average(self, counts: Tensor, parameters: dict[str, Tensor]) -> WithCanaries:
        """The mean gradients of people, of whom the next `counts[i]` rows are each; a canary is a person with one."""
        assert self.places is not None
        is_canary = self.places[counts.cumsum(0) - counts]
        mine = counts[~is_canary]
        real = average_rows(self.real, mine, parameters) if len(mine) else self.real
        return replace(self, real=real, places=None)

    def norms(self) -> Tensor:
        """The norms of the examples, then of the canaries."""
        norms = self.real.norms()
        return torch.cat([norms, norms.new_full((len(self.rows),), self.length)])

    def layer_norms(self) -> dict[str, Tensor]:
        """The norms for each parameter."""
        owners = self.directions.owners(self.rows)
        squares = (self.directions.values[self.rows] * self.length).square()
        return {
            name: torch.cat([norms, torch.where(owners == number, squares, 0.0).sum(1).sqrt().to(norms.dtype)])
            for number, (name, norms) in enumerate(self.real.layer_norms().items())
        }

    def scaled_norms(self, scale: Tensors) -> Tensor:
        """The norms after every coordinate is multiplied by its scale."""
        whole = {name: factor.expand(self.directions.like[name].shape) for name, factor in scale.items()}
        norms = (self.directions.values * self.directions.gather(whole))[self.rows].norm(dim=1) * self.length
        real = self.real.scaled_norms(scale)
        return torch.cat([real, norms.to(real.dtype)])

    def products(self, vectors: Tensors) -> Tensor:
        """The inner product of each gradient with one vector."""
        real = self.real.products(vectors)
        return torch.cat([real, (self.directions.project(vectors)[self.rows] * self.length).to(real.dtype)])

    def weighted_sum(self, weights: Tensor) -> dict[str, Tensor]:
        """Sum over examples and canaries of weight times gradient."""
        count = len(self.real)
        scaled = self.directions.values[self.rows] * (self.length * weights[count:, None])
        return self._add_canaries(self.real.weighted_sum(weights[:count]), scaled)

    def weighted_sum_by_layer(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The same with separate weights for each parameter."""
        count = len(self.real)
        real = self.real.weighted_sum_by_layer({name: weight[:count] for name, weight in weights.items()})
        each = torch.stack([weights[name][count:] for name in self.directions.like], dim=1)
        scaled = self.directions.values[self.rows] * self.length * each.gather(1, self.directions.owners(self.rows))
        return self._add_canaries(real, scaled)

    def _add_canaries(self, real: Tensors, scaled: Tensor) -> dict[str, Tensor]:
        canaries = self.directions.scatter(self.directions.places[self.rows], scaled)
        return {name: value + canaries[name] for name, value in real.items()}

    def dense(self) -> dict[str, Tensor]:
        """[B, ...] for each parameter; needs the memory of B copies of the model."""
        dense = self.real.dense()
        places, values = self.directions.places, self.directions.values * self.length
        single = [self.directions.scatter(places[row], values[row]) for row in self.rows.tolist()]
        return {name: torch.cat([rows, *(one[name][None] for one in single)]) for name, rows in dense.items()}


@dataclass(frozen=True, eq=False)
class Recording:
    """A bound that sums canaries and real examples separately, and records the real part; the total is the same.

    After each release `added` holds one entry: the contribution of the real examples, which the attacker subtracts.
    `pieces` holds the real sums of the current lot. They are lists, so that every holder of this value sees them.
    """

    inside: Bound
    # Not in __init__, because settings are saved with a run, and the contribution of real examples is private.
    pieces: list[Tensors] = field(default_factory=list, init=False)
    added: list[Tensors] = field(default_factory=list, init=False)

    def init(self, like: Tensors, lot_size: float) -> State:
        """The state of the inner bound."""
        return self.inside.init(like, lot_size)

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum over both kinds, added like the pieces of a lot."""
        if not isinstance(gradients, WithCanaries):
            return self.inside.sum(gradients, state)
        real = self.inside.sum(gradients.real, state)
        if real.box is not None and not real.box.adds_up:
            # Separate sums would not add up to the release, so nothing is recorded.
            return self.inside.sum(gradients, state)
        self.pieces.append(real.values)
        canaries = self.inside.sum(replace(gradients, real=NoGradients(gradients.directions.like)), state)
        return cast(BoundedSum, sum_pieces((real, canaries), is_wide=False))

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """Receive by the inner bound; record its output for the real part alone, less its output for zero."""
        nothing = {name: torch.zeros_like(value) for name, value in noisy.items()}
        total = {name: sum((piece[name] for piece in self.pieces), zero) for name, zero in nothing.items()}
        self.pieces.clear()
        (of_nothing, _), (of_total, _) = self.inside.receive(nothing, state), self.inside.receive(total, state)
        self.added[:] = [{name: value - of_nothing[name] for name, value in of_total.items()}]
        return self.inside.receive(noisy, state)


@dataclass(frozen=True, eq=False)
class CanaryGame:
    """A data set with gradient canaries: the data for a `PrivateRun`, and the scores of its releases.

    `included` holds the coins. The run's examples are indices: of the real examples, followed by the included canaries;
    `gradients` turns indices into gradients. The declared population does not change: it is a public number, and
    canaries are ordinary examples.

    >>> from tacit.methods import dpsgd
    >>> from tacit.training.run import PrivateRun
    >>> from tacit.stages.sampling import Poisson
    >>> model = torch.nn.Linear(5, 2)
    >>> data = (torch.randn(100, 5), torch.randint(2, (100,)))
    >>> game = CanaryGame.draw(model, data, count=20, length=10.0, seed=0)
    >>> run = PrivateRun(model, torch.nn.functional.cross_entropy, data=game.data, gradients=game.gradients,
    ...                  mechanism=game.record_bound(dpsgd(1.0, 1.0)), sampling=Poisson(10, 100), steps=5)
    >>> watch, optimizer = game.watch(run), torch.optim.SGD(model.parameters(), lr=0.1)
    >>> for lot in run:
    ...     run.backward(lot)
    ...     watch.see()
    ...     optimizer.step()
    >>> len(watch.scores), int(game.included.sum()) == len(game.data[0]) - 100
    (20, True)
    """

    examples: Examples
    directions: Directions
    included: NDArray[np.bool_]
    length: float
    owners: Owners | None = None

    @staticmethod
    def draw(
        model: nn.Module, data: Any, *, count: int, length: float, seed: int | None = None, unit: Any = None
    ) -> CanaryGame:
        """Draw directions and coins; without a seed, from the operating system's randomness.

        With `unit`, whose each row is, people are protected, and every canary is a person of its own.

        `length` should be well above the clip norm, so that a clipped canary is as long as an example can be, and a
        bound that does not clip is detected.
        """
        rng = np.random.default_rng(seed)
        like = {name: value for name, value in model.named_parameters() if value.requires_grad}
        directions = Directions.draw(like, _validate.count("count", count, at_least=2), rng)
        dtype = next(iter(like.values())).dtype
        examples = examples_from(data, workers=0, dtype=dtype)
        coins = rng.integers(0, 2, len(directions)).astype(bool)
        owners = None if unit is None else Owners.of(unit, len(examples))
        return CanaryGame(examples, directions, coins, _validate.positive("length", length), owners)

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        """Indices of examples, as inputs and as targets."""
        numbers = torch.arange(len(self.examples) + int(self.included.sum()))
        return numbers, numbers

    @property
    def unit(self) -> NDArray[np.int64] | None:
        """Whose each of these indices is, if people are protected."""
        if self.owners is None:
            return None
        people = len(self.owners.sizes)
        return np.concatenate([self.owners.person, people + np.arange(int(self.included.sum()))])

    @cached_property
    def _inside(self) -> Tensor:
        return torch.from_numpy(np.flatnonzero(self.included))

    def gradients(self, model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> PerExampleGradients:
        """The gradients of the examples and canaries with these indices."""
        device = inputs.device
        numbers, count = inputs.cpu(), len(self.examples)
        rows = self._inside[numbers[numbers >= count] - count].to(device)
        kept = numbers[numbers < count].numpy()
        real: PerExampleGradients = NoGradients(self.directions.like)
        if kept.size:
            piece = next(iter(self.examples.fetch(iter([kept]))))
            real = per_example_gradients(model, loss, *on_device(piece, device))
        return WithCanaries(real, self.directions, rows, self.length, numbers.to(device) >= count)

    def record_bound(self, mechanism: Mechanism) -> Mechanism:
        """The mechanism to run: its recorded bound and its noise. Post-processing is left out: it cannot leak."""
        if mechanism.guide is not None:
            raise InvalidArgument(
                f"{mechanism.method.name} guides its bound by a release on all the data, which canaries cannot model. "
                "It has no proof anyway: tacit audit --claims shows an attack."
            )
        return replace(mechanism, bound=Recording(mechanism.bound), post=())

    def watch(self, run: PrivateRun) -> AnyWatch:
        """The attacker who sees every release of this run: one that undoes the correlation, if its noise has any."""
        bound, lot_size = run.mechanism.bound, run.sampling.lot_size
        if not isinstance(bound, Recording):
            raise InvalidArgument("The run needs mechanism=game.record_bound(mechanism).")
        like = self.directions.like
        one = WithCanaries(NoGradients(like), self.directions, torch.tensor([0]), self.length)
        sum_of_one = bound.inside.sum(one, bound.inside.init(like, lot_size)).values
        reach = float(self.directions.project({name: sum_of_one[name] for name in like})[0])
        kind = BandedWatch if isinstance(run.mechanism.noise, BandedNoise) else Watch
        return kind(self.directions, run, bound.added, reach, np.zeros(len(self.directions)))


@dataclass(frozen=True, eq=False)
class InputCanaries:
    """Examples with wrong targets, each included in the data by a coin toss.

    Inputs come from random rows of the data, and targets from other random rows: plausible but unlikely, so a model
    that predicts them was trained on them.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    included: NDArray[np.bool_]

    @staticmethod
    def draw(inputs: NDArray[Any], targets: NDArray[Any], *, count: int, rng: np.random.Generator) -> InputCanaries:
        """`count` canaries made from the data, and their coins."""
        rows = rng.choice(len(inputs), count, replace=len(inputs) < count)
        others = rng.integers(0, len(targets), count)
        # Redraw targets that happen to be right.
        for _ in range(20):
            same = np.flatnonzero([np.array_equal(targets[a], targets[b]) for a, b in zip(rows, others, strict=True)])
            if same.size == 0:
                break
            others[same] = rng.integers(0, len(targets), same.size)
        return InputCanaries(inputs[rows], targets[others], rng.integers(0, 2, count).astype(bool))

    def join(self, inputs: NDArray[Any], targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The data followed by the included canaries."""
        return (
            np.concatenate([inputs, self.inputs[self.included]]),
            np.concatenate([targets, self.targets[self.included]]),
        )
