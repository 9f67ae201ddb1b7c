"""Mechanism: bound, sum, noise, post. One step of it turns private gradients into a release."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

from tacit.accounting.curve import AccountantName
from tacit.errors import InvalidArgument
from tacit.guarantee import Status
from tacit.randomness import Stream
from tacit.types import Bound, BoundedSum, Noise, PerExampleGradients, Post, Release, State, Tensors


@dataclass(frozen=True)
class Method:
    """What is published about a mechanism: its name, and by which accountant its authors state their claim."""

    name: str = "custom"
    source: str = ""
    mode: str = "rigorous"
    status: Status = Status.PROVEN
    claims_by: AccountantName | None = None
    unprotected: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class MechanismState:
    """What the stages remember from one release to the next. Public: `Bound.receive` says why."""

    bound: State
    post: tuple[State, ...] = ()


@dataclass(frozen=True)
class Mechanism:
    """The stages of one step, in the only order that the types allow."""

    bound: Bound
    noise: Noise
    post: tuple[Post, ...] = ()
    method: Method = field(default=Method())

    def __post_init__(self) -> None:
        object.__setattr__(self, "post", tuple(self.post))
        stages: list[tuple[object, type]] = [(self.bound, Bound), (self.noise, Noise)]
        for stage, kind in [*stages, *((post, Post) for post in self.post)]:
            if not isinstance(stage, kind):
                raise InvalidArgument(f"A mechanism needs a {kind.__name__} where {stage!r} stands.")

    def init(self, like: Tensors, lot_size: float) -> MechanismState:
        """The state before the first release, for parameters of these shapes."""
        return MechanismState(self.bound.init(like, lot_size), tuple(post.init(like) for post in self.post))

    def sum(self, gradients: PerExampleGradients, state: MechanismState) -> BoundedSum:
        """The bounded sum over a lot, or over a piece of it: pieces add up."""
        return self.bound.sum(gradients, state.bound)

    def release(self, bounded: BoundedSum, state: MechanismState, rng: Stream) -> tuple[Release, MechanismState]:
        """Noise, then whatever may see what has noise."""
        noisy = self.noise.add(bounded, rng)
        event = self.noise.event(bounded.dimension)
        values, bound_state = self.bound.receive(noisy, state.bound)
        post_states = []
        for post, before in zip(self.post, state.post, strict=True):
            values, after = post.apply(values, before)
            post_states.append(after)
        return Release(values, event), MechanismState(bound_state, tuple(post_states))

    def step(
        self, gradients: PerExampleGradients, state: MechanismState, rng: Stream
    ) -> tuple[Release, MechanismState]:
        """A whole lot at once: `sum`, then `release`."""
        return self.release(self.sum(gradients, state), state, rng)

    def with_multiplier(self, multiplier: float) -> Mechanism:
        """The same mechanism with another amount of noise."""
        return replace(self, noise=cast(Noise, replace(cast(Any, self.noise), multiplier=multiplier)))


def with_lot_size(state: MechanismState, lot_size: float) -> MechanismState:
    """The state for a lot of another public size, where the bound keeps one."""
    kept = state.bound.get("lot_size")
    if kept is None:
        return state
    return replace(state, bound={**state.bound, "lot_size": kept.new_tensor(lot_size)})
