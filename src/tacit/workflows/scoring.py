"""Scores of a model: on public test examples, or on held-out private rows, released with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.accounting.events import Event, covers
from tacit.datasets import Data
from tacit.errors import OutOfOrder
from tacit.gradients.losses import Loss
from tacit.guarantee import Guarantee
from tacit.ledger import Reservation
from tacit.randomness import Purpose, source_for
from tacit.reports.scores import DEVIATIONS, Score, accuracy_of, error_of, is_right, predict_outputs
from tacit.stages.noise import GaussianNoise
from tacit.training.folder import RunFolder
from tacit.training.people import Owners
from tacit.training.plan import Plan
from tacit.training.run import PrivateRun
from tacit.types import BoundedSum, Release


@dataclass(frozen=True)
class NoisyShare:
    """`part` of `whole`: two sums over several `lots`, each drawn at a `rate`, that were released with noise.

    `noise_variance` (a, b, c) is the variance a + b p + c p^2 of the noise on part - p whole. Everything here is a
    function of released and public numbers, so it costs no privacy.
    """

    part: float
    whole: float
    noise_variance: tuple[float, float, float]
    lots: int
    rate: float

    @property
    def value(self) -> float:
        """The share, clipped to [0, 1]: noise may make either sum negative."""
        return min(max(self.part, 0.0) / self.whole, 1.0) if self.whole > 0 else 0.0

    @property
    def noise_std(self) -> float | None:
        """The standard deviation of the share due to noise; None if the noisy whole is not positive."""
        if self.whole <= 0:
            return None
        constant, linear, square = self.noise_variance
        return math.sqrt(constant + linear * self.value + square * self.value**2) / self.whole

    @property
    def interval(self) -> list[float]:
        """A 95 % interval for the share in the population (Fieller 1954).

        It covers the noise, the random lots, and the finite number of rows, which is estimated from the whole. A row
        adds a number in [0, 1], so its variance is at most p (1 - p), which is exact for counts.
        """
        if self.whole <= 0:
            return [0.0, 1.0]
        # A row is in lots x rate of the lots on average; if it were in exactly one, this would be 1 / rows.
        few = (self.lots * self.rate + 1 - self.rate) / self.whole
        part, whole = self.value * self.whole, self.whole
        constant, linear, square = (DEVIATIONS**2 * one for one in self.noise_variance)
        # The shares p for which (part - p whole)^2 <= z^2 (noise + few whole^2 p (1 - p)).
        a = whole**2 * (1 + DEVIATIONS**2 * few) - square
        half_b = -(part * whole + (DEVIATIONS**2 * few * whole**2 + linear) / 2)
        c = part**2 - constant
        if a <= 0 or half_b**2 <= a * c:
            return [0.0, 1.0]
        root = math.sqrt(half_b**2 - a * c)
        return [max(0.0, (-half_b - root) / a), min(1.0, (-half_b + root) / a)]


def loss_for(data: Data) -> Loss:
    """Cross entropy for classes, the squared error for a number."""
    return F.mse_loss if data.classes is None else F.cross_entropy


def score(model: nn.Module, data: Data) -> Score:
    """Accuracy on the public test examples, or the error in the target's own unit."""
    if data.classes is not None:
        return accuracy_of(model, *data.test)
    return error_of((predict_outputs(model, data.test[0]) - torch.from_numpy(data.test[1])).numpy(), data.unit)


def measure_lot_loss(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> float | None:
    """The mean loss of private examples, shown only to whoever trains. None for an empty lot."""
    if not len(targets):
        return None
    with torch.no_grad():
        return float(loss(model(inputs), targets))


_TERMS = "terms"


def held_out_score(model: nn.Module, data: Data, run: PrivateRun, seed: int | None) -> Score | None:
    """The score, with noise. None where no rows were to be held out, or the method's noise is not Gaussian.

    Both are public. That no row happens to be held out is not, and then there is a score of nothing but noise.
    Every call is a release: call it once. Its interval is made of what is released, and so costs nothing more.
    """
    release = release_terms(model, data, run.plan, seed)
    return None if release is None else read_score(release, data, run.plan)


def release_terms(model: nn.Module, data: Data, plan: Plan, seed: int | None) -> Release | None:
    """Two sums over lots of the held-out rows, with noise, and what that costs these rows. None as above."""
    if not isinstance(plan.mechanism.noise, GaussianNoise) or plan.mechanism.guide is not None or not data.is_tested:
        return None
    terms = _find_terms(model, data)
    # With a seed, other noise than the one that the gradients had.
    source = source_for(None if seed is None else seed + 2**64)
    total, events = torch.zeros(2, dtype=torch.float64), list[Event]()
    for step in range(plan.steps):
        noise, sampling = plan.mechanism_at(step).noise, plan.sampling_at(step)
        assert isinstance(noise, GaussianNoise)
        lot = sampling.lot(len(terms), source.stream(Purpose.LOT, step), step)
        bounded = BoundedSum({_TERMS: terms[torch.from_numpy(lot)].sum(0)}, _bound_terms(data))
        drawn = noise.release(bounded, source.stream(Purpose.NOISE, step))
        total += drawn.values[_TERMS]
        events.append(sampling.amplify(drawn.event))
    return Release({_TERMS: total}, plan.sampling.total(events))


def read_score(release: Release, data: Data, plan: Plan) -> Score:
    """What the two sums say of the model, with its interval. Free of charge: it is made of the release alone."""
    first, second = release.values[_TERMS].tolist()
    multiplier = plan.mechanism.noise.multiplier
    assert multiplier is not None
    variance = plan.steps * (multiplier * _bound_terms(data)) ** 2
    sampled = plan.steps, plan.sampling.lot_size / plan.sampling.population
    if data.classes is None:
        # The root of a mean squared error that lies in [0, 1], in the target's own unit.
        mean = NoisyShare(first, second, (variance, 0.0, variance), *sampled)
        root, std, unit = math.sqrt(mean.value), mean.noise_std, data.unit
        # Of a root, the noise is that of the mean over twice the root; at 0 it has no such scale.
        scale = None if std is None or root == 0 else unit * std / (2 * root)
        return Score("rmse", unit * root, [unit * math.sqrt(end) for end in mean.interval], scale, release.event)
    found = NoisyShare(first, first + second, (variance, -2 * variance, 2 * variance), *sampled)
    return Score("accuracy", found.value, found.interval, found.noise_std, release.event)


def with_score(guarantee: Guarantee, score: Score | None) -> Guarantee:
    """The guarantee of training, if it covers the rows held out too; `OutOfOrder` if their score cost them more.

    A row is trained on or held out, never both, so it pays for the more expensive of the two.
    """
    if score is not None and score.event is not None:
        _refuse_unless_covered(guarantee.event, score.event, "training cost the others")
    return guarantee


def refuse_unless_charged(booking: Reservation | None, score: Score | None) -> None:
    """Raise `OutOfOrder` if there is a ledger, and it has charged the data set less than the score cost."""
    if booking is None or score is None or score.event is None or booking.dataset is None:
        return
    charges = booking.ledger.account(booking.dataset).charges
    charged = next(charge.event for charge in charges if charge.run == booking.run)
    _refuse_unless_covered(charged, score.event, "the ledger has charged")


def _refuse_unless_covered(whole: Event, event: Event, what: str) -> None:
    if not covers(whole, event):
        raise OutOfOrder(
            f"The score of the rows held out cost them {event}, and {what} {whole}, which does not cover that. The "
            "score was not released. Train with Poisson lots and Gaussian noise, or declare held_out = 0."
        )


def _bound_terms(data: Data) -> float:
    """How long the two terms of a row are together, at most."""
    return 1.0 if data.classes is not None else math.sqrt(2)


def _find_terms(model: nn.Module, data: Data) -> Tensor:
    """Two numbers per row, whose sums make the score; of people the mean over the rows of each, which is no longer."""
    terms = _find_row_terms(model, data)
    if data.owners is None or not len(terms):
        return terms
    owners = Owners.of(data.owners[1], len(terms))
    total = torch.zeros(len(owners.sizes), 2, dtype=terms.dtype)
    return total.index_add_(0, torch.from_numpy(owners.person), terms * torch.from_numpy(owners.shares)[:, None])


def _find_row_terms(model: nn.Module, data: Data) -> Tensor:
    """Two numbers per row, of which the second is what is missing to the first."""
    if not len(data.test[1]):
        # Not every network takes a batch of none.
        return torch.zeros(0, 2, dtype=torch.float64)
    outputs, targets = predict_outputs(model, data.test[0]), torch.from_numpy(data.test[1])
    if data.classes is None:
        squared = torch.nan_to_num((outputs - targets).square().double(), nan=1.0).clamp(0, 1)
        return torch.cat([squared, torch.ones_like(squared)], 1)
    right = is_right(outputs, targets).double()
    return torch.stack([right, 1 - right], 1)


def read_scores(folder: RunFolder) -> dict[int, Score]:
    """The scores of a saved run, by step; none if a crash has damaged the file."""
    try:
        return {int(row.pop("step")): Score.of_row(row) for row in folder.read_metrics()["test"]}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
