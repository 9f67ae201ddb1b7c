"""The budget of a data set, and the rule that enforces it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from tacit.accounting.calibrate import Budget
from tacit.accounting.events import Adjacency, Event, Gaussian
from tacit.accounting.rdp import RenyiProfile
from tacit.errors import NotAchievable

__all__ = ["Budget", "Terms"]

_ORDERS = np.geomspace(1e-2, 1e5, 400)


@dataclass(frozen=True)
class Terms:
    """A data set's budget, its adjacency, and the rule that enforces it.

    Without an `order`, everything ever released is composed exactly. That assumes that nobody chose the noise, lots or
    length of a run from earlier releases. With an `order`, the Rényi filter of that order keeps the budget for any such
    choice (Feldman and Zrnic 2021), at a cost of some per cent of epsilon.

    >>> from tacit.accounting import Gaussian
    >>> exact, filtered = Terms(Budget(1, 1e-5)), Terms.adaptive(Budget(1, 1e-5))
    >>> exact.allows(Gaussian(3.75)), filtered.allows(Gaussian(3.75)), filtered.allows(Gaussian(4.1))
    (True, False, True)
    """

    budget: Budget
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    order: float | None = None

    @classmethod
    def adaptive(cls, budget: Budget, adjacency: Adjacency = Adjacency.ADD_REMOVE, like: Event | None = None) -> Self:
        """Terms with a filter of the order at which most runs `like` this one fit (by default: Gaussian noise).

        The order is fixed here, before any release under these terms, as the theorem requires.
        """
        profile = RenyiProfile.of(like or Gaussian(1.0, adjacency))

        def runs(order: float) -> float:
            divergence = profile.divergence(order)
            return cls(budget, adjacency, order).allowance / divergence if divergence > 0 else 0.0

        best = max((1 + float(c) for c in _ORDERS), key=runs)
        if runs(best) <= 0:
            raise NotAchievable(
                f"With no order of the filter does such a run fit into epsilon {budget.epsilon:g} at delta "
                f"{budget.delta:g}. Raise the multiplier or the budget, or use exact composition."
            )
        return cls(budget, adjacency, best)

    def allows(self, event: Event) -> bool:
        """Whether this event, as the sum of all releases, is within the budget."""
        if self.order is None:
            return self.budget.allows(event)
        return RenyiProfile.of(event).divergence(self.order) <= self.allowance

    @property
    def allowance(self) -> float:
        """The largest Rényi divergence that the filter accepts, from which the budget follows.

        Canonne, Kamath and Steinke 2020, proposition 12, solved for the divergence.
        """
        assert self.order is not None
        c, log_delta = self.order - 1, math.log(self.budget.delta)
        return self.budget.epsilon - math.log(c / (c + 1)) + (log_delta + math.log(c + 1)) / c
