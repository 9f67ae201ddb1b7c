"""What a method for linear models returns: public coefficients with their guarantee."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, final

import numpy as np

from tacit import _validate
from tacit._files import write_atomic
from tacit._validate import Array
from tacit.accounting.events import Adjacency, Event
from tacit.accounting.individual import CuratorOnly, ExampleCosts
from tacit.erm.losses import Loss
from tacit.erm.noise import Noisy
from tacit.erm.problem import Problem, prepare
from tacit.errors import InvalidArgument
from tacit.guarantee import FIXED_SEED, Assumption, Claim, Guarantee, Status
from tacit.randomness import Source, source_for

if TYPE_CHECKING:
    import torch

    from tacit.erm.noisy_networks import NetworkResult

Mode = Literal["rigorous", "paper"]

# A guarantee without delta is stated at this one, below anything that could matter.
NO_DELTA = 1e-12


@dataclass(frozen=True, eq=False)
class PerturbedData:
    """Features [examples, columns] and targets [examples], after noise. The guarantee says how far they are public."""

    x: Array
    y: Array

    def __len__(self) -> int:
        return len(self.x)


@final
class Unnoised(CuratorOnly):
    """Which examples were used without noise: their indices."""

    what = "Which examples had no noise"


@dataclass(frozen=True, eq=False)
class ErmResult:
    """Released coefficients [outputs, features] and intercepts [outputs]. Public: computing with them is free.

    `data` are the perturbed examples, if the method returns them. `curator` is private and part of no report: which
    examples had no noise, or what each has spent. `regularisation` is what the method used, if it chose that itself.
    """

    coef: Array
    intercept: Array
    loss: Loss
    guarantee: Guarantee
    data: PerturbedData | None = None
    curator: Unnoised | ExampleCosts | None = field(default=None, repr=False)
    regularisation: float | None = None

    @property
    def event(self) -> Event:
        """All that was released."""
        return self.guarantee.event

    def scores(self, x: Any) -> Array:
        """The scores [examples, outputs] of new examples."""
        return np.asarray(x, dtype=np.float64) @ self.coef.T + self.intercept


def save_data(result: ErmResult | NetworkResult, path: str | Path) -> None:
    """Write the perturbed data of a result with their guarantee: an .npz file of `x`, `y` and `guarantee` (JSON).

    Data of which nothing is proven, or whose labels have no noise, get a file that only its owner may read.
    """
    data, guarantee = result.data, result.guarantee
    if data is None:
        raise InvalidArgument(
            f"{guarantee.method} returned no perturbed data. data_perturbation and influence_perturbation do, and "
            "input_perturbation does in rigorous form."
        )
    content = io.BytesIO()
    np.savez_compressed(content, x=data.x, y=data.y, guarantee=np.array(guarantee.to_json()))
    exposed = bool(guarantee.unprotected) or math.isinf(guarantee.epsilon(guarantee.delta))
    write_atomic(Path(path), content.getvalue(), is_private=exposed)


def load_data(path: str | Path) -> tuple[PerturbedData, Guarantee]:
    """The perturbed data in a file of `save_data`, and their guarantee, computed again from its event."""
    try:
        with np.load(path, allow_pickle=False) as file:
            data, text = PerturbedData(file["x"], file["y"]), str(file["guarantee"])
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidArgument(f"{path} is not a file of save_data: {error}.") from error
    return data, Guarantee.from_json(text)


def make_result(
    theta: Array,
    loss: Loss,
    guarantee: Guarantee,
    *,
    intercept: bool,
    data: PerturbedData | None = None,
    curator: Unnoised | ExampleCosts | None = None,
) -> ErmResult:
    """Coefficients apart from intercepts, which are the last row of `theta`."""
    weights, ones = (theta[:-1], theta[-1]) if intercept else (theta, np.zeros(loss.outputs))
    return ErmResult(np.ascontiguousarray(weights.T), ones, loss, guarantee, data, curator)


@dataclass(frozen=True)
class Published:
    """What a method's authors claim in this setting, and the status of that claim."""

    method: str
    mode: Mode = "rigorous"
    claim: Claim | None = None
    status: Status = Status.PROVEN
    because: str = ""


@dataclass(frozen=True)
class ErmBudget:
    """The (epsilon, delta) that a method may spend; without delta the guarantee is pure."""

    epsilon: float
    delta: float | None

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="epsilon")
        if self.delta is not None:
            _validate.check_fields(self, open_unit="delta")

    @property
    def stated_delta(self) -> float:
        """The delta at which the guarantee is stated."""
        return NO_DELTA if self.delta is None else self.delta

    def claim(self, source: str) -> Claim:
        """A paper's claim to keep this budget."""
        return Claim(self.epsilon, self.stated_delta, source)


def check_mode(mode: str) -> Mode:
    """`mode`, if it is valid."""
    if mode not in ("rigorous", "paper"):
        raise InvalidArgument(f"mode must be 'rigorous' or 'paper'. Got {mode!r}.")
    return cast(Mode, mode)


def refuse_network(module: object, why: str) -> None:
    """Raise for a model that is not linear."""
    if module is not None:
        raise InvalidArgument(
            f"This method is for linear models and takes no module: {why} Train networks with tacit.PrivateRun and a "
            "gradient method such as methods.dpsgd, or with PrivateClassifier(module=...)."
        )


@dataclass(frozen=True, eq=False)
class Setup:
    """The clipped data, the budget, and the model: `module`, or a linear one. Private.

    If `is_joint`, the problem has the column of the intercept, which is clipped with the features.
    """

    problem: Problem
    budget: ErmBudget
    intercept: bool
    source: Source
    is_joint: bool
    module: torch.nn.Module | None = None

    @staticmethod
    def of(
        x: Any,
        y: Any,
        *,
        epsilon: float,
        delta: float | None,
        intercept: bool,
        seed: int | None,
        is_joint: bool = True,
        module: torch.nn.Module | None = None,
        **about: Any,
    ) -> Setup:
        """Clip the data; `about` are the loss, the regularisation and the norm.

        An example that is not finite becomes a row of zeros, with the first label unless `is_joint`.
        """
        budget, intercept = ErmBudget(epsilon, delta), _validate.flag("intercept", intercept)
        problem = prepare(x, y, intercept=intercept and is_joint, may_stay=is_joint, **about)
        return Setup(problem, budget, intercept, source_for(seed), is_joint, module)

    @property
    def length(self) -> float:
        """The largest norm of a row, the 1 of its intercept included."""
        return math.sqrt(self.problem.data_norm**2 + (self.intercept and not self.is_joint))

    @property
    def violations(self) -> tuple[str, ...]:
        return () if self.source.is_secret else (FIXED_SEED,)

    def longest_gradient(self, declared: float | None) -> float:
        """The G of the papers: declared, or the largest slope times the longest row, or 1 for a network."""
        if declared is not None:
            return _validate.positive("lipschitz", declared)
        if self.module is not None:
            return 1.0
        found = self.problem.loss.slope_bound * self.length
        if not math.isfinite(found):
            raise InvalidArgument(
                f"Slopes of {self.problem.loss!r} are unbounded, and the papers' noise grows with the longest gradient "
                "G. Use Huber, or declare a G for the formula, as in rule=InputRule(lipschitz=1.0)."
            )
        return found

    def list_assumptions(self, adjacency: Adjacency = Adjacency.REPLACE_ONE) -> tuple[Assumption, ...]:
        """The assumptions of every guarantee about such neighbours."""
        rows = "The features of every example were"
        if self.is_joint:
            rows = f"Every row{', the 1 of its intercept included,' if self.intercept else ''} was"
        clipped = f"{rows} clipped to a norm of {self.problem.data_norm:g}, which was declared and not looked up."
        count = "The number of examples is public."
        if adjacency is Adjacency.ADD_REMOVE:
            count = "The number of rows is public: an example that is removed leaves a row of zeros in its place."
        return Assumption("rows_clipped", clipped), Assumption("public_count", count)

    def release(
        self,
        noisy: Noisy,
        published: Published,
        *,
        assumptions: Sequence[Assumption] = (),
        notes: Sequence[str] = (),
        curator: ExampleCosts | None = None,
    ) -> ErmResult:
        """The released coefficients with the guarantee of their event."""
        guarantee = Guarantee(
            event=noisy.event,
            delta=self.budget.stated_delta,
            method=published.method,
            mode=published.mode,
            status=published.status,
            claim=published.claim,
            because=published.because,
            assumptions=(*self.list_assumptions(noisy.event.adjacency), *assumptions),
            violations=self.violations,
            notes=tuple(notes),
            # Sensitivities are upper bounds, and only the last iterate of a descent is released.
            attained=False,
        )
        return make_result(noisy.values, self.problem.loss, guarantee, intercept=self.intercept, curator=curator)
