"""How well a model does on private rows that were held out: measured as it was trained, in lots and with noise.

A row is either trained on or held out, and its own hash says which. So if the score costs held-out rows no more than
training costs the others, one guarantee covers every row. It does: the score is read off as many lots, drawn at the
same rate, whose two counts (or sums) get the same noise over the same sensitivity as the gradients had. What it cost is
the event of its release; whoever states a guarantee, or has charged a ledger, holds that against what training cost.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tacit.accounting.events import Event, covers
from tacit.errors import OutOfOrder
from tacit.randomness import Purpose, source_for
from tacit.reports.scores import NoisyShare
from tacit.stages.noise import GaussianNoise
from tacit.types import BoundedSum, Release
from tacit.workflows.scoring import Score, outputs_of, right_ones

if TYPE_CHECKING:
    from tacit.datasets import Data
    from tacit.guarantee import Guarantee
    from tacit.ledger import Reservation
    from tacit.training.plan import Plan
    from tacit.training.run import PrivateRun

_TERMS = "terms"


def held_out_score(model: nn.Module, data: Data, run: PrivateRun, seed: int | None) -> Score | None:
    """The score, with noise. None where no rows were to be held out, or the method's noise is not Gaussian.

    Both are public. That no row happens to be held out is not, and then there is a score of nothing but noise.
    Every call is a release: call it once. Its interval is made of what is released, and so costs nothing more.
    """
    release = release_terms(model, data, run.plan, seed)
    return None if release is None else score_of(release, data, run.plan)


def release_terms(model: nn.Module, data: Data, plan: Plan, seed: int | None) -> Release | None:
    """Two sums over lots of the held-out rows, with noise, and what that costs these rows. None as above."""
    if not isinstance(plan.mechanism.noise, GaussianNoise) or plan.mechanism.guide is not None or not data.is_tested:
        return None
    terms = _terms(model, data)
    # With a seed, other noise than the one that the gradients had.
    source = source_for(None if seed is None else seed + 2**64)
    total, events = torch.zeros(2, dtype=torch.float64), list[Event]()
    for step in range(plan.steps):
        noise, sampling = plan.mechanism_at(step).noise, plan.sampling_at(step)
        assert isinstance(noise, GaussianNoise)
        lot = sampling.lot(len(terms), source.stream(Purpose.LOT, step), step)
        bounded = BoundedSum({_TERMS: terms[torch.from_numpy(lot)].sum(0)}, _sensitivity(data))
        drawn = noise.release(bounded, source.stream(Purpose.NOISE, step))
        total += drawn.values[_TERMS]
        events.append(sampling.amplify(drawn.event))
    return Release({_TERMS: total}, plan.sampling.total(events))


def score_of(release: Release, data: Data, plan: Plan) -> Score:
    """What the two sums say of the model, with its interval. Free of charge: it is made of the release alone."""
    first, second = release.values[_TERMS].tolist()
    multiplier = plan.mechanism.noise.multiplier
    assert multiplier is not None
    variance = plan.steps * (multiplier * _sensitivity(data)) ** 2
    sampled = plan.steps, plan.sampling.lot_size / plan.sampling.population
    if data.classes is None:
        return _error(NoisyShare(first, second, (variance, 0.0, variance), *sampled), data.unit, release.event)
    found = NoisyShare(first, first + second, (variance, -2 * variance, 2 * variance), *sampled)
    return Score("accuracy", found.value, found.interval, found.noise_std, release.event)


def with_score(guarantee: Guarantee, score: Score | None) -> Guarantee:
    """The guarantee of training, if it covers the rows held out too; `OutOfOrder` if their score cost them more.

    A row is trained on or held out, never both, so it pays for the dearer of the two.
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
            "score was not handed out. Train with Poisson lots and Gaussian noise, or declare held_out = 0."
        )


def _error(mean: NoisyShare, unit: float, event: Event) -> Score:
    """The root of a mean squared error that lies in [0, 1], in the target's own unit."""
    root, std = math.sqrt(mean.value), mean.noise_std
    # Of a root, the noise is that of the mean over twice the root; at 0 it has no such scale.
    scale = None if std is None or root == 0 else unit * std / (2 * root)
    return Score("rmse", unit * root, [unit * math.sqrt(end) for end in mean.interval], scale, event)


def _sensitivity(data: Data) -> float:
    """How long the two terms of a row are together, at most."""
    return 1.0 if data.classes is not None else math.sqrt(2)


def _terms(model: nn.Module, data: Data) -> Tensor:
    """Two numbers per row, whose sums make the score."""
    if not len(data.test[1]):
        # Not every network takes a batch of none.
        return torch.zeros(0, 2, dtype=torch.float64)
    outputs, targets = outputs_of(model, data.test[0]), torch.from_numpy(data.test[1])
    if data.classes is None:
        squared = torch.nan_to_num((outputs - targets).square().double(), nan=1.0).clamp(0, 1)
        return torch.cat([squared, torch.ones_like(squared)], 1)
    right = right_ones(outputs, targets).double()
    return torch.stack([right, 1 - right], 1)
