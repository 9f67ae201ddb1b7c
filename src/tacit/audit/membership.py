"""Membership inference: was a model trained on an example?

Scores from one model (loss, entropy, gradient norm), and the likelihood-ratio attack of Carlini et al. 2022, which
calibrates each example by shadow models trained with and without it. Larger scores indicate members.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

from tacit import _validate
from tacit.audit.runs import Runs, load_results
from tacit.audit.separation import Roc, roc
from tacit.errors import InvalidArgument
from tacit.gradients import per_example_gradients
from tacit.gradients.losses import Loss, per_example_losses
from tacit.training.lots import examples_from, on_device
from tacit.training.people import Owners

Floats = NDArray[np.float64]
ScoreName = Literal["loss", "entropy", "confidence", "gradient norm"]
SCORES: tuple[ScoreName, ...] = ("loss", "entropy", "confidence", "gradient norm")
# With fewer shadows with or without an example, its own variance is too uncertain, and all examples share one.
_OWN_VARIANCE = 32
_PIECE = 1_000


def score_all(model: nn.Module, loss: Loss, data: Any, name: ScoreName = "loss", unit: Any = None) -> Floats:
    """One number per example of `data`, larger if it is more likely a member.

    "loss": minus the loss. "entropy": minus the entropy of the predicted classes. "confidence": log p / (1 - p) of the
    right class, which is nearly normal over models. "gradient norm": minus the norm of the example's gradient. Entropy
    and confidence need a model with one logit per class. With `unit`, whose each row is, there is one number per
    person, the mean over their rows, in the order of `Owners`.
    """
    if name not in SCORES:
        raise InvalidArgument(f"A score is one of {', '.join(map(repr, SCORES))}. Got {name!r}.")
    first = next(model.parameters())
    examples = examples_from(data, workers=0, dtype=first.dtype)
    rows = np.arange(len(examples), dtype=np.int64)
    fetched = examples.fetch(rows[start : start + _PIECE] for start in range(0, rows.size, _PIECE))
    pieces = (on_device(piece, first.device) for piece in fetched)
    found = [_score_piece(model, loss, inputs, targets, name) for inputs, targets in pieces]
    scores = np.concatenate(found) if found else np.zeros(0)
    if unit is None or not scores.size:
        return scores
    owners = Owners.of(unit, len(scores))
    means: Floats = np.bincount(owners.person, scores * owners.shares).astype(np.float64)
    return means


def _score_piece(model: nn.Module, loss: Loss, inputs: Any, targets: Any, name: ScoreName) -> Floats:
    if name == "gradient norm":
        return _to_numbers(-per_example_gradients(model, loss, inputs, targets).norms())
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            outputs = model(inputs)
            if name == "loss" and loss is F.cross_entropy and outputs.is_floating_point():
                # In single precision the loss of every confident prediction is rounded to zero.
                return _to_numbers(-F.cross_entropy(outputs.double(), targets, reduction="none"))
            if name == "loss":
                return _to_numbers(-per_example_losses(loss, outputs, targets, len(targets)))
            return _score_classes(outputs, targets, name)
    finally:
        model.train(was_training)


def _score_classes(outputs: Tensor, targets: Tensor, name: ScoreName) -> Floats:
    if outputs.dim() != 2 or targets.is_floating_point() or targets.dim() != 1:
        raise InvalidArgument(f"The score {name!r} needs one logit per class and a whole number as target.")
    logs = F.log_softmax(outputs.double(), dim=1)
    if name == "entropy":
        return _to_numbers((logs.exp() * logs).sum(1))
    right = logs.gather(1, targets[:, None]).squeeze(1)
    others = logs.scatter(1, targets[:, None], -math.inf).logsumexp(1)
    return _to_numbers((right - others).clamp(-1e3, 1e3))


def _to_numbers(values: Tensor) -> Floats:
    # A score that is not finite does not indicate a member.
    numbers: Floats = values.detach().double().cpu().numpy()
    return np.nan_to_num(numbers, nan=-1e30, posinf=1e30, neginf=-1e30)


def infer_membership(
    model: nn.Module,
    loss: Loss,
    *,
    members: Any,
    others: Any,
    confidence: float = 0.95,
    units: tuple[Any, Any] = (None, None),
) -> dict[str, Roc]:
    """The ROC curve of every score that this model supports, for members and other examples.

    The others must come from the same distribution as the members. Otherwise the difference of the distributions is
    measured too, and a model that has memorised nothing seems to leak. `units` says whose each row of both is, where
    people are attacked and not rows.
    """
    found: dict[str, Roc] = {}
    for name in SCORES:
        try:
            both = [
                score_all(model, loss, data, name, unit) for data, unit in zip((members, others), units, strict=True)
            ]
        except InvalidArgument:
            if name in ("loss", "gradient norm"):
                raise
            continue
        found[name] = roc(*both, confidence=confidence)
    return found


@dataclass(frozen=True, eq=False)
class Shadows:
    """Scores of the same examples by many models: `scores[model, example]`, and whether each was trained on it."""

    scores: Floats
    inside: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.scores.shape != self.inside.shape or self.scores.ndim != 2:
            raise InvalidArgument(
                "Shadows need scores and inside of the same shape, a row per model and a column per example. Got "
                f"{self.scores.shape} and {self.inside.shape}."
            )

    def ratio(self, target: Any) -> Floats:
        """The log-likelihood ratio of each example's score by the target model: member against not.

        Normal distributions are fitted to each example's scores with and without it. An example that was in all shadow
        models, or in none, has ratio 0.
        """
        target = _validate.reals("target", target).ravel()
        (inside, wide_inside), (outside, wide_outside) = (
            _fit_normal(self.scores, side) for side in (self.inside, ~self.inside)
        )
        ratio = stats.norm.logpdf(target, inside, wide_inside) - stats.norm.logpdf(target, outside, wide_outside)
        return np.asarray(np.nan_to_num(ratio, nan=0.0))


def _fit_normal(values: Floats, chosen: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each column over the chosen rows; a shared deviation if rows are few."""
    count = chosen.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(chosen, values, 0.0).sum(axis=0) / count
        square = np.where(chosen, (values - mean) ** 2, 0.0).sum(axis=0)
        if np.median(count) < _OWN_VARIANCE:
            shared = square[count > 1].sum() / max((count[count > 1] - 1).sum(), 1)
            return mean, np.full(mean.shape, math.sqrt(max(shared, 1e-12)))
        return mean, np.sqrt(np.maximum(square / (count - 1), 1e-12))


@dataclass(frozen=True, eq=False)
class _ShadowJob:
    """Trains on a random half of the examples, and scores all of them."""

    train: Callable[[Any], nn.Module]
    loss: Loss
    data: tuple[NDArray[Any], NDArray[Any]]
    coins: NDArray[np.bool_]
    name: ScoreName
    owners: Owners | None = None

    def __call__(self, index: int) -> Floats:
        inputs, targets = self.data
        half = self.coins[index]
        if self.owners is None:
            return score_all(self.train((inputs[half], targets[half])), self.loss, self.data, self.name)
        person = self.owners.person
        half = half[person]
        model = self.train((inputs[half], targets[half], person[half]))
        return score_all(model, self.loss, self.data, self.name, unit=person)


def train_shadows(
    train: Callable[[Any], nn.Module],
    loss: Loss,
    data: tuple[NDArray[Any], NDArray[Any]],
    *,
    count: int,
    runs: Runs,
    name: ScoreName = "confidence",
    unit: Any = None,
) -> Shadows:
    """`count` models, each trained on a random half of `data`; every example is in half of them.

    Halves come in complementary pairs, so every example is a member as often as not. The folder of `runs` keeps the
    results and the halves: an interrupted call resumes with the same ones. With `unit`, whose each row is, halves are
    of people, and `train` is given whose each row is as a third array.
    """
    count = _validate.count("count", count, at_least=2)
    owners = None if unit is None else Owners.of(unit, len(data[1]))
    coins = _draw_coins(runs, count, len(data[1]) if owners is None else len(owners.sizes))
    paths = runs.results("shadow-models", _ShadowJob(train, loss, data, coins, name, owners), count)
    return Shadows(load_results(paths), coins)


def _draw_coins(runs: Runs, count: int, examples: int) -> NDArray[np.bool_]:
    runs.folder.mkdir(parents=True, exist_ok=True)
    path = runs.folder / "shadow-coins.npy"
    if path.exists():
        kept: NDArray[np.bool_] = np.load(path)
        if kept.shape == (count, examples):
            return kept
        raise InvalidArgument(
            f"{runs.folder} holds shadow models of another audit ({kept.shape[0]} of them, {kept.shape[1]} examples), "
            f"and this one has {count} and {examples}. Choose another folder, or remove its shadow-* files."
        )
    rng = np.random.default_rng(runs.seed)
    half = rng.integers(0, 2, ((count + 1) // 2, examples)).astype(bool)
    coins = np.concatenate([half, ~half])[:count]
    np.save(path, coins)
    return coins
