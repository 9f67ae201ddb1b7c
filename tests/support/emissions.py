"""What is drawn, seen from below: each draw of noise and each lot as it happens, whatever anyone says of it later."""

import sys
from collections import Counter, deque
from contextlib import contextmanager

import tacit.erm.noise
import tacit.erm.reports
from tacit.accounting import EpsilonDelta, Event, Gaussian, RandomizedResponse
from tacit.accounting.events import Composed, Repeated
from tacit.randomness import Stream
from tacit.stages.noise import BoxNoise, DirectionalNoise, GaussianNoise, NoisyMean, PrunedNoise, RealisedMeanNoise


class Emissions:
    """Events of the noise that was drawn, on the lots that were drawn; and the scales of noise that has no event yet.

    A lot belongs to the next draw that has none: every way to release draws lots and noise in one order.
    """

    def __init__(self):
        self.events, self.scales = list[Event](), list[float]()
        self._lots, self._depth = deque(), 0

    def lot(self, rate):
        if not self._depth:
            self._lots.append(rate)

    def drawn(self, event, *, is_on_lot=True):
        if not self._depth:
            self.events.append(event.sampled(self._lots.popleft()) if self._lots and is_on_lot else event)

    def scale(self, scale):
        if not self._depth:
            self.scales.append(scale)

    def taken(self) -> list[Event]:
        """The events so far; the next ones are counted from here on."""
        events, self.events = self.events, []
        return events

    @contextmanager
    def within(self):
        """Draws in here are part of one that was noted already."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1


def singles(event: Event) -> Counter:
    """How often each single release is counted in an event."""
    if isinstance(event, Composed):
        return sum(map(singles, event.parts), Counter())
    if isinstance(event, Repeated):
        return Counter({one: times * event.times for one, times in singles(event.inside).items()})
    return Counter([event])


def watch(monkeypatch) -> Emissions:
    """Note everything that is drawn from now on. What draws must have been imported before."""
    seen = Emissions()

    def noting(original, note):
        def wrapper(*args, **kwargs):
            note(*args, **kwargs)
            with seen.within():
                return original(*args, **kwargs)

        return wrapper

    # The law of plain noise is read off its scale; what other noise costs, only its own event can say.
    plain = GaussianNoise.mean_in_place
    monkeypatch.setattr(
        GaussianNoise, "mean_in_place", noting(plain, lambda self, *_: seen.drawn(Gaussian(self.multiplier)))
    )
    for noise in (BoxNoise, DirectionalNoise, PrunedNoise, RealisedMeanNoise):
        note = noting(noise.add, lambda self, bounded, _: seen.drawn(self.event(bounded.dimension)))
        monkeypatch.setattr(noise, "add", note)
    # A guide is noise on the mean of all examples, and comes before that of the lot.
    guide = noting(NoisyMean.add, lambda self, *_: seen.drawn(Gaussian(self.multiplier / 2), is_on_lot=False))
    monkeypatch.setattr(NoisyMean, "add", guide)
    monkeypatch.setattr(Stream, "coins", noting(Stream.coins, lambda self, n, rate: seen.lot(rate)))
    for original, note in (
        (
            tacit.erm.noise.add_gaussian,
            lambda values, *, multiplier, adjacency, **_: seen.drawn(Gaussian(multiplier, adjacency)),
        ),
        (
            tacit.erm.noise.add_k_norm,
            lambda values, *, epsilon, adjacency, **_: seen.drawn(EpsilonDelta(epsilon, 0.0, adjacency)),
        ),
        (tacit.erm.noise.k_norm, lambda rng, dimension, scale, count=1: seen.scale(scale)),
        (
            tacit.erm.reports.respond,
            lambda numbers, epsilon, choices, rng: seen.drawn(RandomizedResponse(epsilon, choices)),
        ),
    ):
        replace_everywhere(monkeypatch, original, noting(original, note))
    return seen


def replace_everywhere(monkeypatch, original, wrapper):
    """In every module that has imported the function by its name."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tacit":
            for attribute in [key for key, value in vars(module).items() if value is original]:
                monkeypatch.setattr(module, attribute, wrapper)
