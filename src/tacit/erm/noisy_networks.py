"""Networks on perturbed data: gradient steps, and influence by products with the Hessian. Needs torch.

A network replaces the linear scores, and the loss is still one of `tacit.erm`, so guarantees read the same for both.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev

from tacit._validate import Array
from tacit.erm.influence import Times, invert, invert_leading
from tacit.erm.losses import Huber, Logistic, Loss, Multinomial, OneVsRest, SmoothHinge, Squared
from tacit.erm.noisy_data import Descent, draw_lot
from tacit.erm.problem import Problem
from tacit.erm.result import PerturbedData, Unnoised
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee
from tacit.randomness import Indices, Purpose, Source

# Networks have no smoothness constant to derive a step size from.
STEP_SIZE = 0.1
_PIECE = 4096
# The stream that draws the examples whose curvature is measured; steps count from 0 and stay far below.
_CURVATURE = 2**40


@dataclass(frozen=True, eq=False)
class NetworkResult:
    """A trained copy of the network, and the perturbed data if the method returns them. `curator` is private."""

    module: torch.nn.Module
    loss: Loss
    guarantee: Guarantee
    data: PerturbedData | None = None
    curator: Unnoised | None = field(default=None, repr=False)

    def scores(self, x: Any) -> Array:
        """The scores [examples, outputs] of new examples."""
        with torch.no_grad():
            scores: Array = _to_columns(self.module(_to_tensor(x, self.module))).double().cpu().numpy()
        return scores


def example_losses(loss: Loss, scores: Tensor, targets: Tensor) -> Tensor:
    """The loss of each example [examples], as `loss.evaluate` gives it, for torch to differentiate."""
    match loss:
        case Logistic():
            return torch.nn.functional.softplus(-targets * scores)[:, 0]
        case Squared():
            return 0.5 * (scores - targets)[:, 0] ** 2
        case Huber(threshold=threshold):
            return torch.nn.functional.huber_loss(scores, targets, reduction="none", delta=threshold)[:, 0]
        case SmoothHinge(width=width):
            missing = 1 - targets * scores
            share = ((missing + width) / (2 * width)).clamp(0, 1)
            return torch.where(missing > width, missing, width * share**2)[:, 0]
        case Multinomial():
            return torch.nn.functional.cross_entropy(scores, targets[:, 0].long(), reduction="none")
        case OneVsRest(loss=inner):
            flat = example_losses(inner, scores.reshape(-1, 1), targets.reshape(-1, 1))
            return flat.reshape(scores.shape).sum(dim=1)
    raise InvalidArgument(f"{loss!r} is not available for networks. Use one of tacit.erm's losses.")


def descend(
    module: torch.nn.Module, problem: Problem, data: PerturbedData, targets: Array, descent: Descent, source: Source
) -> torch.nn.Module:
    """A copy of the network after gradient steps without noise on the data, from its present weights.

    Those weights must not depend on the private data, because they are part of the release.
    """
    trained = copy.deepcopy(module).train()
    x, y = _to_tensor(data.x, trained), _to_tensor(targets, trained)
    size, step_size = descent.lot_size_for(len(data)), descent.step_size or STEP_SIZE
    parameters = [one for one in trained.parameters() if one.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=step_size, weight_decay=problem.regularisation)
    for step in range(descent.steps):
        lot: Any = slice(None)
        if size < len(data):
            lot = torch.from_numpy(draw_lot(len(data), size, source.stream(Purpose.LOT, step)))
        optimizer.zero_grad()
        example_losses(problem.loss, _to_columns(trained(x[lot])), y[lot]).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return trained.eval()


@dataclass(frozen=True, eq=False)
class NetworkModel:
    """A network as one vector of parameters, for influence functions. Computes in double precision.

    `training` sets how the model is first trained on the data without noise, as in the paper.
    """

    module: torch.nn.Module
    problem: Problem
    training: Descent
    source: Source

    def __post_init__(self) -> None:
        # The user's own network is not changed.
        object.__setattr__(self, "module", copy.deepcopy(self.module).double())

    def pretrain(self) -> Array:
        data = PerturbedData(self.problem.rows, self.problem.numbers)
        trained = descend(self.module, self.problem, data, self.problem.targets, self.training, self.source)
        return flat_parameters(trained)

    def gradient(self, index: int, x: Array, theta: Array) -> Array:
        found = grad(self._loss_of(index))(torch.from_numpy(theta), torch.from_numpy(x))
        return _to_numpy(found)

    def mixed_norm(self, index: int, theta: Array) -> float:
        # By features first: then there are only as many rows as features.
        by_features = grad(self._loss_of(index), argnums=1)
        mixed = jacrev(by_features, argnums=0)(torch.from_numpy(theta), torch.from_numpy(self.problem.rows[index]))
        # The largest singular value from products of the few rows: the number of parameters may be large.
        return math.sqrt(max(float(torch.linalg.eigvalsh(mixed @ mixed.T)[-1]), 0.0))

    def inverse_hessian(
        self, theta: Array, damping: float = 0.0, *, directions: int | None = None, rows: int | None = None
    ) -> Times:
        where, n = torch.from_numpy(theta), self.problem.n
        some = None
        if rows is not None and rows < n:
            some = draw_lot(n, rows, self.source.stream(Purpose.LOT, _CURVATURE))
            n = rows

        def times(vector: Array, damped: float = damping) -> Array:
            total, along = torch.zeros_like(where), torch.from_numpy(np.array(vector).ravel())
            for start in range(0, n, _PIECE):
                piece = slice(start, min(start + _PIECE, n))
                taken: slice | Indices = piece if some is None else some[piece]
                total += (piece.stop - start) / n * self._hessian_times(taken, where, along)
            return _to_numpy(total) + damped * vector.ravel()

        if directions is None or directions >= theta.size:
            return invert(times, theta.size)
        return invert_leading(
            lambda vector: times(vector, 0.0),
            theta.size,
            directions=directions,
            damping=damping,
            rest=self.problem.regularisation,
        )

    def with_parameters(self, theta: Array) -> torch.nn.Module:
        """A copy of the network that has these parameters."""
        trained = copy.deepcopy(self.module)
        where = torch.from_numpy(theta)
        with torch.no_grad():
            for name, values in _unflatten(where, trained).items():
                trained.get_parameter(name).copy_(values)
        return trained.eval()

    def _loss_of(self, index: int) -> Callable[[Tensor, Tensor], Tensor]:
        target = torch.from_numpy(self.problem.targets[index : index + 1])
        return lambda theta, x: self._mean(theta, x[None], target)

    def _hessian_times(self, piece: slice | Indices, where: Tensor, vector: Tensor) -> Tensor:
        """The gradient of (gradient of the mean loss times vector)."""
        x, y = torch.from_numpy(self.problem.rows[piece]), torch.from_numpy(self.problem.targets[piece])
        product: Tensor = grad(lambda theta: torch.dot(grad(self._mean)(theta, x, y), vector))(where)
        return product

    def _mean(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        scores = _to_columns(functional_call(self.module, _unflatten(theta, self.module), (x,)))
        fitted = example_losses(self.problem.loss, scores, y).mean()
        return fitted + 0.5 * self.problem.regularisation * torch.dot(theta, theta)


def flat_parameters(module: torch.nn.Module) -> Array:
    """All trainable parameters as one vector in double precision."""
    return _to_numpy(torch.cat([one.detach().double().reshape(-1) for _, one in _trainable(module)]))


def _trainable(module: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    return [(name, one) for name, one in module.named_parameters() if one.requires_grad]


def _unflatten(theta: Tensor, module: torch.nn.Module) -> dict[str, Tensor]:
    named = _trainable(module)
    pieces = theta.split_with_sizes([one.numel() for _, one in named])
    return {name: piece.view_as(one) for (name, one), piece in zip(named, pieces, strict=True)}


def _to_columns(scores: Tensor) -> Tensor:
    return scores[:, None] if scores.dim() == 1 else scores


def _to_tensor(values: Any, module: torch.nn.Module) -> Tensor:
    like = next(module.parameters())
    return torch.as_tensor(np.asarray(values), dtype=like.dtype, device=like.device)


def _to_numpy(values: Tensor) -> Array:
    return values.detach().cpu().numpy()
