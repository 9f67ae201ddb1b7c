"""Small models for the data sets that have a name, their losses and optimizers, and how they are scored."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.accounting.events import Event, covers, from_json
from tacit.datasets import Data
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.gradients.losses import Loss
from tacit.guarantee import Guarantee
from tacit.ledger import Reservation
from tacit.models import Ratings, Reviews, is_own_model, make_own_model, tempered_cnn
from tacit.randomness import Purpose, source_for
from tacit.reports.curves import finite
from tacit.reports.scores import NoisyShare, describe_score, interval_of_rmse, wilson_interval
from tacit.stages.noise import GaussianNoise
from tacit.training.plan import Plan
from tacit.training.run import PrivateRun
from tacit.types import BoundedSum, Release
from tacit.workflows.defaults import MODELS

_HIDDEN = 32
_GROUPS = 4
_IMAGE, _COLOUR = (1, 28, 28), (3, 32, 32)
# Testing needs no gradients, so memory bounds a piece, not the time.
_PIECE = 2_000


@dataclass(frozen=True)
class Score:
    """How well a model does on test examples: `name` is "accuracy" or "rmse".

    `interval` holds for 95 % what it does on others of their kind; None where that is not known. `noise_std` is the
    standard deviation of the noise on the score, where the test examples are private, and `event` is what the score
    then cost them, as its release says.
    """

    name: str
    value: float
    interval: list[float] | None = None
    noise_std: float | None = None
    event: Event | None = None

    def __str__(self) -> str:
        return describe_score(self.name, self.value)

    def as_row(self) -> dict[str, Any]:
        """All of it, as it is written; None is left out, but for the score of training that diverged."""
        event = None if self.event is None else json.loads(self.event.to_json())
        about = {"interval": self.interval, "noise_std": self.noise_std, "event": event}
        return {self.name: finite(self.value), **{name: value for name, value in about.items() if value is not None}}

    @staticmethod
    def of_row(row: dict[str, Any]) -> Score:
        """The score that `as_row` wrote; `ValueError` for another row."""
        about = {name: row[name] for name in ("interval", "noise_std", "event") if name in row}
        [(name, value)] = [(name, value) for name, value in row.items() if name not in about]
        if "event" in about:
            about["event"] = from_json(json.dumps(about["event"]))
        return Score(name, math.nan if value is None else value, **about)


def network_for(name: str, data: Data) -> nn.Module:
    """A fresh model; its first weights come from torch's generator, and never from the data."""
    if is_own_model(name):
        return make_own_model(name, data.shape, data.classes)
    if bool(data.vocabulary) != (name == "embedding"):
        fitting = "Its inputs are numbers of words or people: use embedding." if data.vocabulary else "It is for words."
        raise InvalidArgument(f"--model {name} does not fit {data.name}. {fitting}")
    outputs, inputs = data.classes or 1, math.prod(data.shape)
    match name:
        case "linear":
            return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))
        case "mlp":
            return nn.Sequential(nn.Flatten(), nn.Linear(inputs, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, outputs))
        case "cnn":
            return _convolutions(data, outputs)
        case "tempered":
            return _tempered(data, outputs)
        case "embedding":
            first, *others = data.vocabulary
            return Ratings(first, others[0], outputs) if others else Reviews(first, outputs)
    raise InvalidArgument(
        f"There is no model {name!r}. Known are {', '.join(MODELS)}; your own is net.py:make_model, a file and the "
        "function in it that makes the model."
    )


def refuse_unless_fitting(name: str, data: Data) -> None:
    """Raise `InvalidArgument` if there is no such model, or if it cannot take an input of zeros and answer it."""
    model = network_for(name, data)
    zeros = torch.zeros(2, *data.shape, dtype=torch.from_numpy(data.train[0][:0]).dtype)
    outputs = data.classes or 1
    try:
        with torch.no_grad():
            found = tuple(model(zeros).shape)
    except Exception as error:
        shown = " ".join(str(error).split())
        raise InvalidArgument(
            f"--model {name} does not take inputs of shape {data.shape}, as those of {data.name} are: {shown}."
        ) from error
    if found != (2, outputs):
        raise InvalidArgument(
            f"--model {name} must answer each input of {data.name} with {outputs} numbers, one for each class (one, "
            f"if a number is predicted). Two inputs gave {found}."
        )


def _convolutions(data: Data, outputs: int) -> nn.Module:
    if data.shape == _IMAGE:
        return _image_network(outputs)
    if data.shape == _COLOUR:
        return _colour_network(outputs)
    raise InvalidArgument(
        f"--model cnn is for images of 28 x 28 pixels, or of 32 x 32 in colour. {data.name} has inputs of shape "
        f"{data.shape}. Use --model mlp."
    )


def _tempered(data: Data, outputs: int) -> nn.Module:
    if len(data.shape) != len(_IMAGE):
        raise InvalidArgument(
            f"--model tempered is for images. {data.name} has inputs of shape {data.shape}. Use --model mlp."
        )
    channels, height, width = data.shape
    return tempered_cnn((channels, height, width), outputs, groups=_GROUPS, hidden=0)


def _colour_network(outputs: int) -> nn.Module:
    """Three pairs of convolutions that end in a mean over places, with the bounded units of Papernot et al. 2021."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.Tanh(), nn.Conv2d(after, after, 3, padding=1), nn.Tanh()]
        layers.append(nn.AvgPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, outputs))


def _image_network(outputs: int) -> nn.Module:
    """The network of Bu et al. 2019 for MNIST, with the first weights that their framework draws."""
    network = nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, kernel_size=4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, outputs),
    )
    for parameter in network.parameters():
        # Glorot and Bengio 2010; torch's own are about half as large, and cost some points of accuracy.
        nn.init.xavier_uniform_(parameter) if parameter.dim() > 1 else nn.init.zeros_(parameter)
    return network


def loss_for(data: Data) -> Loss:
    """Cross entropy for classes, the squared error for a number."""
    return F.mse_loss if data.classes is None else F.cross_entropy


def score(model: nn.Module, data: Data) -> Score:
    """Accuracy on the public test examples, or the error in the target's own unit."""
    if data.classes is not None:
        return accuracy_of(model, *data.test)
    return error_of((outputs_of(model, data.test[0]) - torch.from_numpy(data.test[1])).numpy(), data.unit)


def accuracy_of(model: nn.Module, inputs: Any, labels: Any) -> Score:
    """The share of these examples for which the model scores their own class highest; no number if it diverged."""
    outputs = outputs_of(model, inputs)
    if outputs.isnan().any():
        return Score("accuracy", math.nan, None)
    return share_of(right_ones(outputs, torch.from_numpy(labels)).numpy())


def right_ones(outputs: Tensor, labels: Tensor) -> Tensor:
    """Where the own class is scored highest. To torch the largest of scores that are no numbers is the first."""
    return (outputs.argmax(1) == labels) & ~outputs.isnan().any(1)


def share_of(right: Any) -> Score:
    """The accuracy of answers of which it is known whether each is right."""
    share = float(right.mean(dtype=np.float64))
    return Score("accuracy", share, wilson_interval(share, len(right)) if len(right) else None)


def error_of(errors: Any, unit: float) -> Score:
    """The root of the mean of squared errors, which are in this unit."""
    # What diverged may have squares that are no numbers any more.
    with np.errstate(over="ignore", invalid="ignore"):
        squared = np.square(errors)
        mean = float(squared.mean())
        ends = interval_of_rmse(squared) if math.isfinite(mean) else None
    return Score("rmse", unit * math.sqrt(mean), None if ends is None else [unit * end for end in ends])


def lot_loss(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> float | None:
    """The mean loss of private examples, for the eyes of whoever trains. None for an empty lot."""
    if not len(targets):
        return None
    with torch.no_grad():
        return float(loss(model(inputs), targets))


def outputs_of(model: nn.Module, inputs: Any) -> Tensor:
    """What the model says of every input."""
    with torch.no_grad():
        rows = torch.from_numpy(inputs)
        return torch.cat([model(rows[start : start + _PIECE]) for start in range(0, len(rows), _PIECE)])


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
