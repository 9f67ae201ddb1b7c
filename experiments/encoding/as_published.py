"""What the paper runs and its proof does not cover: micro-batches of several examples, and lots drawn with replacement.

Both train here with the published noise, and nothing is certified of them: their events are `Unproven`. What they do to
the claim is computed from a pair of neighbouring data sets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import logsumexp
from scipy.stats import binom, norm

from tacit import methods
from tacit.accounting import Gaussian, curve
from tacit.accounting.densities import Floats
from tacit.accounting.events import Event, Unproven
from tacit.guarantee import Assumption
from tacit.randomness import Indices, Stream
from tacit.stages.bounds import Encode
from tacit.stages.bounds.encode import EncodingBox, dense_rows
from tacit.stages.flat import unflatten
from tacit.stages.mechanism import Mechanism
from tacit.stages.more_samplings import draw_below
from tacit.stages.noise import BoxNoise
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors

# More often than this an example is in no lot: the probability is below 1e-9 over all steps.
_MOST_TIMES = 6


@dataclass(frozen=True)
class MicroBatches:
    """Algorithm 1 with micro-batches of `examples`: the mean gradient of each is encoded, in the order of the lot."""

    encode: Encode
    examples: int

    @property
    def box(self) -> EncodingBox:
        """What one micro-batch adds. One example moves all later ones to another micro-batch, so it moves far more."""
        return self.encode.box

    def init(self, like: Tensors, lot_size: float) -> State:
        """As without micro-batches."""
        return self.encode.init(like, lot_size)

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The encodings of all micro-batches, added. The last one may be smaller."""
        dense, dimension = gradients.dense(), int(state["dimension"])
        rows = torch.cat(list(dense_rows(dense, 64)))
        means = [part.mean(0) for part in rows.split(self.examples)] if len(rows) else []
        total = self.encode.encode(torch.stack(means), dimension).sum(0) if means else rows.sum(0)
        shapes = {name: part.shape[1:] for name, part in dense.items()}
        return BoundedSum(unflatten(total, shapes), self.box.sensitivity(dimension), self.box)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """As without micro-batches."""
        return self.encode.receive(noisy, state)


@dataclass(frozen=True)
class UnprovenNoise:
    """The noise of `inside`, for a sum that moves further than it allows for."""

    inside: BoxNoise

    @property
    def multiplier(self) -> float | None:
        """That of the noise inside."""
        return self.inside.multiplier

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """As published."""
        return self.inside.add(bounded, rng)

    def event(self, dimension: int) -> Event:
        """Nothing is proven."""
        return Unproven("as private as one example an encoding", "one example moves all later micro-batches")


def micro_batches(mechanism: Mechanism, examples: int) -> Mechanism:
    """The mechanism of `methods.encoded` with micro-batches of several examples."""
    assert isinstance(mechanism.bound, Encode)
    assert isinstance(mechanism.noise, BoxNoise)
    method = replace(mechanism.method, claims=None)
    return Mechanism(MicroBatches(mechanism.bound, examples), UnprovenNoise(mechanism.noise), method=method)


@dataclass(frozen=True)
class WithReplacement:
    """Lots of `lot_size` draws with replacement, as the paper's experiments have them. Its proof has Poisson lots."""

    lot_size: float
    population: int

    @property
    def assumption(self) -> Assumption:
        """Nothing is proven."""
        return Assumption("with_replacement", f"Lots are {self.lot_size:g} draws with replacement.")

    def lot(self, n: int, rng: Stream, step: int = 0) -> Indices:
        """An example may be drawn several times, and then counts as often."""
        return draw_below(rng, int(self.lot_size), n)

    def amplify(self, event: Event) -> Event:
        """Nothing is proven."""
        return Unproven("as private as Poisson lots", "an example can be in a lot several times")

    def total(self, events: list[Event]) -> Event:
        """The first stands for all: none has a proof."""
        return events[0] if events else Unproven("nothing was released", "no step")


def counterexamples(multiplier: float, lot_size: int, population: int, steps: int, delta: float) -> dict[str, float]:
    """What both do to epsilon, for Gaussian noise.

    With replacement: an example of the largest encoding against one that encodes to zero, as all others do, by a
    numerical inversion that gives the certified epsilon for Poisson lots. The lot has it Binomial times. Renyi
    divergences of this pair are astronomical, so the paper's own accounting has no useful answer for it.
    Micro-batches: nine examples in pairs in one full lot, whose sum moves by nine times the vector (`nine_in_pairs`).
    """
    rate = lot_size / population
    often = binom.pmf(np.arange(_MOST_TIMES), lot_size, 1 / population)
    found = {
        "poisson": _inverted(np.array([1 - rate, rate]), multiplier, steps, delta),
        "with_replacement": _inverted(often, multiplier, steps, delta),
        "one_encoding": curve(Gaussian(multiplier)).epsilon(delta),
        "pairs": curve(Gaussian(multiplier / 9)).epsilon_bounds(delta)[0],
    }
    return {name: round(float(epsilon), 3) for name, epsilon in found.items()}


def _inverted(weights: Floats, multiplier: float, steps: int, delta: float) -> float:
    """Epsilon of steps whose sum is shifted by j with probability weights[j], by the Fourier transform of their loss.

    A loss is split between the two points of the grid around it, which keeps its mean: an error of 1e-3 or less.
    """
    x, times, reach, step = np.linspace(-12, 24, 36_001), np.arange(len(weights)), 40.0, 2e-4
    loss = logsumexp(times * x[:, None] / multiplier - times**2 / (2 * multiplier**2), axis=1, b=weights)
    mass = np.exp(norm.logpdf(x) + loss) * (x[1] - x[0])
    count = round(2 * reach / step)
    place = np.clip((loss + reach) / step, 0, count - 2)
    below = np.floor(place).astype(int)
    grid = np.bincount(below, mass * (1 - place + below), count) + np.bincount(below + 1, mass * (place - below), count)
    # The loss 0 stands at the first point, so that sums of losses wrap around the same way.
    total = np.fft.irfft(np.fft.rfft(np.roll(grid, -(count // 2))) ** steps, count)
    # Losses above zero, from the largest down: delta(epsilon) sums (1 - e^(epsilon - loss)) over those above epsilon.
    above = total[count // 2 - 1 : 0 : -1]
    losses = step * np.arange(count // 2 - 1, 0, -1)
    deltas = np.cumsum(above) - np.exp(losses) * np.cumsum(above * np.exp(-losses))
    return float(np.interp(delta, deltas, losses))


def nine_in_pairs() -> tuple[float, float]:
    """How far the sum of encodings moves when the first of nine examples is removed: with pairs, and one by one.

    In units of the norm of the vector. Gradients alternate and become shorter, so a pair points as its first example:
    removing the first of all turns every pair round.
    """
    encode = methods.encoded(1.0, 1.0, noise="gaussian", mode="rigorous").bound
    assert isinstance(encode, Encode)
    unit = 1e3 * torch.arange(64.0, 128.0)[None]
    rows = torch.cat([unit * (-1) ** place * (9 - place) for place in range(9)])
    moves = []
    for examples in (2, 1):
        whole, less = (_sum(encode, part, examples) for part in (rows, rows[1:]))
        moves.append(float((whole - less).norm() / encode.box.sensitivity(64)))
    return moves[0], moves[1]


def _sum(encode: Encode, rows: torch.Tensor, examples: int) -> torch.Tensor:
    return encode.encode(torch.stack([part.mean(0) for part in rows.split(examples)])).sum(0)
