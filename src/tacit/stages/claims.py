"""What a paper says its method costs, by its own formula, from the public numbers of a run. Never a guarantee."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.accounting.calibrate import calibrate
from tacit.accounting.curve import AccountantName, curve
from tacit.accounting.events import Event
from tacit.budget import Budget
from tacit.errors import Asymptotic, NotAccountable, NotProven
from tacit.guarantee import Claim
from tacit.stages.mechanism import Mechanism, Settings


@dataclass(frozen=True)
class ByAccountant:
    """The answer of the accountant that the authors use, for the event that they account for.

    With `nominal` that is Gaussian noise of the nominal multiplier, whatever was in fact released: what a paper says of
    a release that has no proof.
    """

    by: AccountantName
    source: str
    nominal: bool = False

    def claim(self, settings: Settings, event: Event) -> Claim | None:
        """None where the accountant has no answer, as the central limit theorem without any sampling."""
        accounted = settings.nominal if self.nominal else event
        try:
            return Claim(curve(accounted, by=self.by).epsilon(settings.delta), settings.delta, self.source)
        except (Asymptotic, NotAccountable, NotProven):
            return None

    def calibrated(self, settings: Settings, budget: Budget) -> Mechanism:
        """The least noise with which this accountant stays within the claimed budget, asymptotic or not."""
        multiplier = calibrate(
            settings.gaussian, epsilon=budget.epsilon, delta=budget.delta, by=self.by, allow_asymptotic=True
        )
        return settings.mechanism.with_multiplier(multiplier)
