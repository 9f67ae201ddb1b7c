"""Mechanism: bound, sum, noise, post. One step of it turns private gradients into a release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeGuard, cast

import numpy as np
import torch

from tacit.accounting.calibrate import calibrate
from tacit.accounting.curve import curve
from tacit.accounting.events import Event
from tacit.budget import Budget
from tacit.errors import Asymptotic, InvalidArgument, NotAccountable, NotProven
from tacit.guarantee import Claim, Status
from tacit.randomness import Stream
from tacit.stages.bounds.clip import Clip, NormalisedClip
from tacit.stages.noise.banded import BandedNoise
from tacit.stages.noise.gaussian import GaussianNoise
from tacit.types import (
    Bound,
    BoundedSum,
    Boxed,
    Following,
    Noise,
    PerExampleGradients,
    Post,
    Release,
    Sampling,
    State,
    Steered,
    Tensors,
)

Mode = Literal["rigorous", "paper"]
NoiseName = Literal["gaussian", "banded"]


@dataclass(frozen=True, eq=False)
class Settings:
    """The public numbers of a run that a paper's own formula may use.

    `steps` is the number of steps so far (before the first, of all planned steps), and `is_scheduled` is true if they
    differ. `dimension` is the number of coordinates of a release. `budget` is what the paper claims to keep, if given.
    `gaussian(multiplier)` is the cost of the same steps if each were a Gaussian release on its lot.
    """

    lot_size: float
    population: int
    steps: int
    is_scheduled: bool
    dimension: int
    delta: float
    mechanism: Mechanism
    budget: Budget | None
    gaussian: Callable[[float], Event]

    @property
    def rate(self) -> float:
        """The expected share of the population in a lot."""
        return self.lot_size / self.population

    @property
    def multiplier(self) -> float | None:
        """The mechanism's nominal multiplier; None before calibration."""
        return self.mechanism.noise.multiplier

    @property
    def nominal(self) -> Event:
        """The releases as if they were Gaussian with the nominal multiplier: what most papers account for."""
        if self.multiplier is None:
            raise InvalidArgument("There is no multiplier yet, so its cost is unknown. Give one, or a budget.")
        return self.gaussian(self.multiplier)


class Claims(Protocol):
    """A paper's own formula, in both directions. Frozen values, so that a saved run can be read back."""

    def claim(self, settings: Settings, event: Event) -> Claim | None:
        """The paper's cost of the releases of `event`; None if its formula has no answer."""

    def calibrate(self, settings: Settings, budget: Budget) -> Mechanism:
        """The mechanism with the noise that the paper prescribes for the budget. Used in paper mode only."""


@dataclass(frozen=True)
class Method:
    """What is published about a mechanism, and how far that is true.

    `claims` is the paper's formula, `status` rates it in this `mode`, and `because` says in one sentence why it is not
    proven (docs/guarantees.md has the argument). What is proven does not depend on the method: it follows from the
    events that the noise emits, and a noise without a proof emits `Unproven` ones. In paper mode a budget is what the
    paper claims to keep, and the noise is the paper's. `attained` says whether some example really moves a sum as far
    as its events say.
    """

    name: str = "custom"
    source: str = ""
    mode: Mode = "rigorous"
    status: Status = Status.PROVEN
    claims: Claims | None = None
    because: str = ""
    unprotected: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    attained: bool = True

    def __post_init__(self) -> None:
        if self.mode not in ("rigorous", "paper"):
            raise InvalidArgument(f"mode must be 'rigorous' or 'paper'. Got {self.mode!r}.")


@dataclass(frozen=True, eq=False)
class MechanismState:
    """The state of the stages between releases. Public, because it follows from releases only (`Bound.receive`)."""

    bound: State
    post: tuple[State, ...] = ()


@dataclass(frozen=True)
class Mechanism:
    """The stages of one step, in the only order that the types allow.

    A `guide` is noise for the mean gradient of all the data, released before each lot to steer the bound (Xiang et al.
    2023). It is charged in full, without sampling.
    """

    bound: Bound
    noise: Noise
    post: tuple[Post, ...] = ()
    method: Method = field(default=Method())
    guide: Noise | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "post", tuple(self.post))
        stages: list[tuple[object, type]] = [(self.bound, Bound), (self.noise, Noise)]
        if self.guide is not None:
            stages += [(self.guide, Noise), (self.bound, Steered)]
        for stage, kind in [*stages, *((post, Post) for post in self.post)]:
            if not isinstance(stage, kind):
                raise InvalidArgument(f"A mechanism needs a {kind.__name__} in place of {stage!r}.")
        is_boxed = isinstance(self.bound, Boxed) and isinstance(self.noise, Boxed) and self.bound.box == self.noise.box
        if isinstance(self.noise, Boxed) and not is_boxed:
            raise InvalidArgument(
                f"{type(self.noise).__name__} is accounted for on {self.noise.box!r}, but {self.bound!r} does not keep "
                "examples within it. Use the box of the bound, as in BoxNoise(StudentT(), bound.box)."
            )
        posts = (post.following(self.noise) if isinstance(post, Following) else post for post in self.post)
        object.__setattr__(self, "post", tuple(posts))

    def init(self, like: Tensors, lot_size: float) -> MechanismState:
        return MechanismState(self.bound.init(like, lot_size), tuple(post.init(like) for post in self.post))

    def sum(self, gradients: PerExampleGradients, state: MechanismState) -> BoundedSum:
        """The bounded sum over a lot, or over a piece of it; pieces can be added."""
        return self.bound.sum(gradients, state.bound)

    def release(self, bounded: BoundedSum, state: MechanismState, rng: Stream) -> tuple[Release, MechanismState]:
        """Add noise, update the bound's state, and post-process."""
        noisy = bounded.rounded(self.noise.add(bounded, rng))
        std = (self.noise.multiplier or 0.0) * bounded.sensitivity
        before = _with_number(state.bound, "noise_std", std)
        event = self.noise.event(bounded.dimension)
        # Noise whose scale depends on earlier releases says what each came to. Asking isinstance of a protocol takes
        # as long as all the noise of a small model.
        meter = getattr(self.noise, "meter", None)
        realised = None if meter is None else meter(bounded)
        values, bound_state = self.bound.receive(noisy, before)
        post_states = []
        for post, kept in zip(self.post, state.post, strict=True):
            values, after = post.apply(values, _with_number(kept, "noise_std", std))
            post_states.append(after)
        return Release(values, event, realised), MechanismState(bound_state, tuple(post_states))

    def release_mean(
        self, bounded: BoundedSum, state: MechanismState, rng: Stream, lot_size: float, *, is_ours: bool
    ) -> tuple[Release, MechanismState]:
        """The release over the public lot size. If `is_ours`, the sum may be overwritten."""
        if is_ours and not self.post and _is_plain(self.noise) and type(self.bound) in (Clip, NormalisedClip):
            noisy = self.noise.mean_in_place(bounded, rng, lot_size)
            return Release(bounded.rounded(noisy), self.noise.event(bounded.dimension)), state
        release, state = self.release(bounded, state, rng)
        # Numpy's calls cost half of torch's, which matters for small models.
        mean = {
            name: torch.from_numpy(np.asarray(np.divide(value.numpy(), lot_size))) if value.is_cpu else value / lot_size
            for name, value in release.values.items()
        }
        return replace(release, values=mean), state

    def steer(self, whole: BoundedSum, state: MechanismState, rng: Stream) -> MechanismState:
        """Release the mean gradient of all the data and steer the bound by it. Without a guide, nothing happens."""
        if self.guide is None or not isinstance(self.bound, Steered):
            return state
        return replace(state, bound=self.bound.steer(self.guide.add(whole, rng), state.bound))

    def cost(self, event: Event, sampling: Sampling, dimension: int) -> Event:
        """The cost of a step whose noise emitted `event`: amplified by sampling, plus the guide's release in full."""
        amplified = sampling.amplify(event)
        return amplified if self.guide is None else amplified + self.guide.event(dimension)

    def step(
        self, gradients: PerExampleGradients, state: MechanismState, rng: Stream
    ) -> tuple[Release, MechanismState]:
        """A whole lot at once: `sum`, then `release`."""
        return self.release(self.sum(gradients, state), state, rng)

    def with_multiplier(self, multiplier: float) -> Mechanism:
        """The same mechanism with another amount of noise."""
        return replace(self, noise=cast(Noise, replace(cast(Any, self.noise), multiplier=multiplier)))

    def with_noise(self, noise: NoiseName, bands: int) -> Mechanism:
        """The same mechanism with Gaussian noise, independent or correlated over `bands` steps."""
        if noise not in ("gaussian", "banded"):
            raise InvalidArgument(f"noise must be 'gaussian' or 'banded'. Got {noise!r}.")
        return self.with_bands(bands) if noise == "banded" else self

    def with_bands(self, bands: int, *, steps: int = 4096, rates: Sequence[float] = ()) -> Mechanism:
        """The same mechanism with Gaussian noise correlated over `bands` steps: see `BandedNoise`.

        It needs `CyclicPoisson` lots with at least as many groups. `steps` is what the correlation is optimised for,
        and `rates` are public learning rates, one for each step, if they vary.
        """
        if not isinstance(self.noise, (GaussianNoise, BandedNoise)):
            raise InvalidArgument(
                f"Only Gaussian noise can be correlated over steps with a proof. Got {type(self.noise).__name__}. Use "
                "a method with Gaussian noise, such as dpsgd."
            )
        return replace(self, noise=BandedNoise(self.noise.multiplier, bands=bands, steps=steps, rates=tuple(rates)))


@dataclass(frozen=True)
class ByAccountant:
    """The answer of the accountant that the authors use.

    With `nominal` it is for Gaussian noise of the nominal multiplier, which is what papers account for in releases that
    have no proof.
    """

    by: str
    source: str
    nominal: bool = False

    def claim(self, settings: Settings, event: Event) -> Claim | None:
        """None if the accountant has no answer, such as the central limit theorem without sampling."""
        accounted = settings.nominal if self.nominal else event
        try:
            return Claim(curve(accounted, by=self.by).epsilon(settings.delta), settings.delta, self.source)
        except (Asymptotic, NotAccountable, NotProven):
            return None

    def calibrate(self, settings: Settings, budget: Budget) -> Mechanism:
        """The least noise with which this accountant stays within the claimed budget, asymptotic or not."""
        multiplier = calibrate(
            settings.gaussian, epsilon=budget.epsilon, delta=budget.delta, by=self.by, allow_asymptotic=True
        )
        return settings.mechanism.with_multiplier(multiplier)


def _is_plain(noise: Noise) -> TypeGuard[GaussianNoise]:
    """Whether it is exactly GaussianNoise: a derived class may add something else."""
    return type(noise) is GaussianNoise


def with_lot_size(state: MechanismState, lot_size: float) -> MechanismState:
    """The state for a lot of another public size, if the bound stores one."""
    bound = _with_number(state.bound, "lot_size", lot_size)
    return state if bound is state.bound else replace(state, bound=bound)


def _with_number(state: State, name: str, value: float) -> State:
    """The state with a public number of the mechanism, if the state stores it."""
    kept = state.get(name)
    return state if kept is None else {**state, name: kept.new_tensor(value)}
