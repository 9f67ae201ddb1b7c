"""From what was typed to what will happen: how lots are drawn, how many, and the event that pays for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from tacit import _validate
from tacit.accounting import Adjacency, Event, Gaussian, from_json
from tacit.errors import InvalidArgument, TacitError
from tacit.workflows.arguments import list_given


@dataclass(frozen=True)
class RunNumbers:
    """The numbers of a training run, as far as they were typed."""

    multiplier: float | None = None
    rate: float | None = None
    lot_size: float | None = None
    population: float | None = None
    steps: float | None = None
    epochs: float | None = None
    adjacency: str | None = None

    def given(self) -> list[str]:
        """The options that were typed, as they are spelt."""
        return list_given(self)

    def sampling_rate(self) -> float:
        """The rate itself, or lot size over population."""
        lots = [option for option in self.given() if option in ("--lot-size", "--population")]
        if self.rate is not None:
            if lots:
                raise InvalidArgument(
                    f"--rate and {' and '.join(lots)} were given, which say the same thing twice. "
                    "Give either --rate, or --lot-size and --population."
                )
            return _validate.rate("rate", self.rate)
        if len(lots) < 2:
            raise InvalidArgument(
                f"The sampling rate is not known{f': only {lots[0]} was given' if lots else ''}. "
                "Give either --rate, or --lot-size and --population."
            )
        return self._share()

    def _share(self) -> float:
        lot_size = _validate.positive("lot_size", self.lot_size)
        population = _validate.count("population", self.population)
        if lot_size > population:
            raise InvalidArgument(
                f"lot_size must be at most the population. Got {self.lot_size} out of {population}. "
                "An example enters a lot at most once, so no lot holds more examples than there are."
            )
        return lot_size / population

    def step_count(self) -> int:
        """The steps themselves, or as many as the epochs take."""
        if (self.steps is None) == (self.epochs is None):
            raise InvalidArgument(
                f"{'Both' if self.steps is not None else 'Neither'} of --steps and --epochs "
                "were given, and one of them says how long the run is. Give exactly one."
            )
        if self.steps is not None:
            return _validate.count("steps", self.steps)
        epochs = _validate.positive("epochs", self.epochs)
        self.sampling_rate()
        # In decimals as typed: 1.1 / 0.1 is 11 steps, while in binary it is a little more.
        if self.rate is not None:
            return math.ceil(_make_fraction(epochs) / _make_fraction(self.rate))
        assert self.lot_size is not None
        assert self.population is not None
        return math.ceil(_make_fraction(epochs) * int(self.population) / _make_fraction(self.lot_size))

    def neighbours(self) -> Adjacency:
        """The adjacency; add/remove unless another one was typed."""
        return Adjacency(self.adjacency or "add_remove")

    def event(self) -> Event:
        """Poisson-sampled Gaussian steps, as many as planned."""
        if self.multiplier is None:
            raise InvalidArgument("The noise is not known. Give --multiplier, or an event by --event FILE.")
        noise = Gaussian(_validate.positive("multiplier", self.multiplier), self.neighbours())
        return noise.sampled(self.sampling_rate()) * self.step_count()


def read_event(path: Path) -> Event:
    """The event in a file that `Event.to_json` wrote."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(
            f"The event file {path} cannot be read: {error.strerror}. Write one with Event.to_json()."
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} is not a text file. Write one with Event.to_json().") from error
    try:
        return from_json(text)
    except TacitError as error:
        raise InvalidArgument(f"{path} holds no event. {error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"{path} holds no event that could be read: {error}. Write one with Event.to_json()."
        ) from error


def _make_fraction(value: float) -> Fraction:
    return Fraction(repr(value))
