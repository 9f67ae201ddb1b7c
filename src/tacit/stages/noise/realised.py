"""Gaussian noise on a sum that is then divided by the number of examples that came, as Bu et al. 2019 print it."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.accounting.events import Event, Unproven
from tacit.errors import InvalidArgument
from tacit.randomness import Stream
from tacit.stages.noise.gaussian import GaussianNoise
from tacit.types import BoundedSum, Tensors

# Where a sum holds the number of examples that came. No parameter has this name: dots and letters only, in those.
SHARE = "<examples that came, over the lot size>"
_CLAIM = "as private as a sum with this noise"
_REASON = (
    "it was divided by the number of examples that came, which moves all others: the mean moves by up to twice what "
    "the noise is for"
)


@dataclass(frozen=True)
class RealisedMeanNoise:
    """Noise for the sum, then the mean over the examples that came instead of the expected number.

    One more example moves that mean by up to 2 * clip_norm / (number of examples), twice what the noise is for: if all
    others point one way and it points the other. Nothing is proven. A lot without examples is not divided.
    """

    multiplier: float | None = None

    def __post_init__(self) -> None:
        # Checked where it is used, and here too, so that a wrong number is refused at once.
        GaussianNoise(self.multiplier)

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The noisy sum, as if the examples that came were as many as were expected."""
        if SHARE not in bounded.values:
            raise InvalidArgument(
                "This noise divides by the number of examples: wrap the bound, as in Counted(Clip())."
            )
        share = float(bounded.values[SHARE])
        values = {name: value for name, value in bounded.values.items() if name != SHARE}
        noisy = GaussianNoise(self.multiplier).add(BoundedSum(values, bounded.sensitivity), rng)
        return {name: value / share for name, value in noisy.items()} if share else noisy

    def event(self, dimension: int) -> Event:
        """A release that no accountant will sum up."""
        return Unproven(_CLAIM, _REASON)
