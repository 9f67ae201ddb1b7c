"""Individual accounting: each example is charged for its own contribution, and dropped when its budget is spent.

A filter sees the norm of each example's contribution and scales it, so that no example spends more than the budget.
The guarantee of everything released is then the budget itself, for any contributions (Feldman and Zrnic 2021 by Rényi
divergences; Koskela, Tobaben and Honkela 2023, Smith and Thakurta 2022 for unsampled Gaussians, without loss). It is
about one example added or removed. What an example has spent is private: it may decide only that example's own
factors, and belongs in no report.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NoReturn, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from tacit import _validate
from tacit._validate import Array
from tacit.accounting import gdp
from tacit.accounting.events import Adjacency, EpsilonDelta, Event, Gaussian
from tacit.errors import InvalidArgument, NotAchievable

_TABLE_SIZE = 2049
# Whole orders: closed forms exist, and costs are convex in the square of a norm.
_ORDERS = (*range(2, 33), *range(34, 65, 2), *range(68, 129, 4), *range(136, 257, 8))
# Costs are rounded sums, so a budget that fits exactly may be exceeded by this factor, which is charged.
_OUTWARDS = 1 + 1e-9


class CuratorOnly:
    """Numbers about single examples. Private: for the curator, or for the person whose example it is.

    They cannot be printed or saved by accident; `for_curator` returns them.
    """

    # Begins the refusal to save them.
    what: ClassVar[str]

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values

    def __repr__(self) -> str:
        return f"{type(self).__name__}(private)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self.what} is private and is not saved with a result. Call for_curator() for the numbers.")

    def for_curator(self) -> NDArray[Any]:
        """The numbers. Never publish them."""
        return self._values.copy()


@final
class ExampleCosts(CuratorOnly):
    """What each example has spent so far, in the filter's units."""

    what = "What examples have spent"

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"ExampleCosts({len(self)} examples, private)"


Spent = ExampleCosts
"""The former name of `ExampleCosts`."""


@dataclass(frozen=True)
class GaussianFilter:
    """For sums over all examples with normal noise of deviation `std`: no example spends more than `mu`.

    A contribution of norm r costs (r / std)^2; the costs add up to at most mu^2. A contribution that would exceed that
    is shrunk to what is left, or dropped with `shrink=False`. The transcript is mu-GDP.

    >>> GaussianFilter(mu=0.5, std=10.0).steps(norm=1.0), GaussianFilter(mu=0.5, std=10.0).steps(norm=0.2)
    (25, 625)
    """

    mu: float
    std: float
    shrink: bool = True

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive=("mu", "std"))

    @property
    def budget(self) -> float:
        """What an example may spend in total: mu^2."""
        return self.mu**2

    @property
    def event(self) -> Event:
        """The cost of the whole transcript, for any number of steps."""
        return Gaussian(1 / (_OUTWARDS * self.mu), Adjacency.ADD_REMOVE)

    def start(self, n: int) -> ExampleCosts:
        """The state before the first step: nothing is spent."""
        return ExampleCosts(np.zeros(_validate.count("n", n)))

    def cost(self, norms: Array) -> Array:
        """The cost of contributions of these norms in one step."""
        return np.asarray((norms / self.std) ** 2)

    def admit(self, norms: Array, spent: ExampleCosts) -> tuple[Array, ExampleCosts]:
        """The factors that scale contributions of these norms, and what each example has spent then.

        A norm that is not finite gets factor 0, because nothing bounds such a contribution.
        """
        norms, finite = _check_norms(norms, spent)
        left = np.maximum(self.budget * _OUTWARDS - spent._values, 0.0)
        longest = self.std * np.sqrt(left)
        fits = norms <= longest
        shrunk = longest / np.where(fits, 1.0, norms) if self.shrink else 0.0
        factors = np.where(finite, np.where(fits, 1.0, shrunk), 0.0)
        # A shrunk example has spent everything, and a dropped one stays out.
        after = np.where(fits, spent._values + self.cost(norms), self.budget * _OUTWARDS)
        return factors, ExampleCosts(after)

    def steps(self, norm: float) -> int:
        """The number of steps in which contributions of this norm are not shrunk."""
        return math.floor(_OUTWARDS * self.budget / (_validate.positive("norm", norm) / self.std) ** 2)


@dataclass(frozen=True)
class RenyiFilter:
    """For sums over Poisson lots: no example spends more than a Rényi divergence of `budget` at one whole `order`.

    Every active example is charged in every step, drawn or not, for the norm that its contribution has or would have,
    at most `clip_norm`. Charging only drawn examples would void the proof. An example whose budget does not cover its
    norm is dropped from all later steps.
    """

    epsilon: float
    delta: float
    order: int
    std: float
    rate: float
    clip_norm: float

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive=("epsilon", "std", "clip_norm"), open_unit="delta", rate="rate")
        object.__setattr__(self, "order", _validate.count("order", self.order, at_least=2))
        if self.budget <= 0:
            raise NotAchievable(
                f"At order {self.order} nothing is left of epsilon {self.epsilon:g} at delta {self.delta:g}. Take a "
                "larger order."
            )

    @staticmethod
    def best(*, epsilon: float, delta: float, std: float, rate: float, clip_norm: float) -> RenyiFilter:
        """The filter of the order at which contributions of full norm last longest, fixed before seeing data."""
        found: RenyiFilter | None = None
        for order in _ORDERS:
            if renyi_budget(epsilon, delta, order) <= 0:
                continue
            one = RenyiFilter(epsilon, delta, order, std, rate, clip_norm)
            if found is None or one.lasts > found.lasts:
                found = one
        if found is None:
            raise NotAchievable(f"No order up to {_ORDERS[-1]} leaves anything of epsilon {epsilon:g}. Raise epsilon.")
        return found

    @property
    def budget(self) -> float:
        """The divergence that (epsilon, delta) allows at this order."""
        return renyi_budget(self.epsilon, self.delta, self.order)

    @property
    def event(self) -> Event:
        """The cost of the whole transcript, for any number of steps."""
        return EpsilonDelta(self.epsilon, self.delta, Adjacency.ADD_REMOVE)

    @property
    def lasts(self) -> float:
        """The number of steps that the budget covers at full norm."""
        cost = float(self.divergence(np.array([self.clip_norm]))[0])
        return self.budget / cost if cost > 0 else math.inf

    def start(self, n: int) -> ExampleCosts:
        """The state before the first step: nothing is spent."""
        return ExampleCosts(np.zeros(_validate.count("n", n)))

    def divergence(self, norms: Array) -> Array:
        """The Rényi divergence of one step for contributions of these norms, exactly (Mironov et al. 2019)."""
        order, k = self.order, np.arange(self.order + 1)
        log_choices = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        if self.rate == 1:
            return np.asarray(order * (norms / self.std) ** 2 / 2)
        log_weights = log_choices + k * math.log(self.rate) + (order - k) * math.log1p(-self.rate)
        growth = np.multiply.outer((np.asarray(norms) / self.std) ** 2, k * (k - 1) / 2)
        return np.asarray(np.maximum(logsumexp(log_weights + growth, axis=-1), 0.0) / (order - 1))

    def cost(self, norms: Array) -> Array:
        """An upper bound of `divergence` from a table: it is convex in the squared norm, so chords are above it."""
        squares, costs = self._table
        return np.asarray(np.interp(np.minimum(norms, self.clip_norm) ** 2, squares, costs))

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        squares = np.linspace(0.0, self.clip_norm**2, _TABLE_SIZE)
        return squares, self.divergence(np.sqrt(squares)) * (1 + 1e-10)

    def admit(self, norms: Array, spent: ExampleCosts) -> tuple[Array, ExampleCosts]:
        """The factors (1 or 0) of the contributions, and what each example has spent then.

        Clip contributions to `clip_norm` first; longer ones are refused.
        """
        norms, finite = _check_norms(norms, spent)
        if np.any(norms > self.clip_norm * (1 + 1e-9)):
            raise InvalidArgument(
                f"A contribution is longer than clip_norm {self.clip_norm:g}. Clip it before it is charged."
            )
        cost = self.cost(norms)
        fits = finite & (spent._values + cost <= self.budget)
        # An example that does not fit, or is not finite, takes no part in later steps.
        after = np.where(fits, spent._values + cost, math.inf)
        return np.where(fits, 1.0, 0.0), ExampleCosts(after)


def renyi_budget(epsilon: float, delta: float, order: float) -> float:
    """The Rényi divergence at `order` that implies (epsilon, delta)-DP, by Canonne, Kamath and Steinke 2020."""
    return epsilon - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)


def filter_mu(epsilon: float, delta: float, adjacency: Adjacency) -> float:
    """The mu that each example may spend for (epsilon, delta)-DP under `adjacency`.

    Replacing an example is removing one and adding another: mu-GDP each makes 2 mu together.
    """
    whole = gdp.mu(epsilon, delta) / (_OUTWARDS * (1 + 1e-11))
    return whole if adjacency is Adjacency.ADD_REMOVE else whole / 2


def _check_norms(norms: Any, spent: ExampleCosts) -> tuple[Array, Any]:
    values = np.asarray(norms, dtype=np.float64)
    if values.shape != spent._values.shape:
        raise InvalidArgument(
            f"There must be one norm per example, drawn or not: {len(spent)} of them. Got shape {values.shape}."
        )
    finite = np.isfinite(values)
    return np.where(finite, np.abs(values), 0.0), finite
