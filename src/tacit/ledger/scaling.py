"""The same releases with more noise: to say how much more would have fitted."""

from __future__ import annotations

from functools import singledispatch

from tacit.accounting.events import Composed, Event, Gaussian, ProductNoise, Repeated, Sampled


@singledispatch
def noisier(event: Event, factor: float) -> Event:
    """The event with `factor` times the noise; what has no noise to scale stays as it is.

    >>> noisier(Gaussian(1.1).sampled(0.1) * 5, 2.0) == Gaussian(2.2).sampled(0.1) * 5
    True
    """
    return event


@noisier.register
def _(event: Gaussian, factor: float) -> Event:
    return Gaussian(event.multiplier * factor, event.adjacency)


@noisier.register
def _(event: ProductNoise, factor: float) -> Event:
    return ProductNoise(event.density, tuple(shift / factor for shift in event.shifts), event.adjacency)


@noisier.register
def _(event: Sampled, factor: float) -> Event:
    return Sampled(noisier(event.inside, factor), event.rate)


@noisier.register
def _(event: Repeated, factor: float) -> Event:
    return Repeated(noisier(event.inside, factor), event.times)


@noisier.register
def _(event: Composed, factor: float) -> Event:
    return Composed(tuple(noisier(part, factor) for part in event.parts))
