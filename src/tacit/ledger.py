"""What may be spent on a data set."""

from __future__ import annotations

from dataclasses import dataclass

from tacit import arguments


@dataclass(frozen=True)
class Budget:
    """The (epsilon, delta) that training may cost at most.

    >>> Budget(epsilon=3, delta=1e-5)
    Budget(epsilon=3.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", arguments.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", arguments.open_unit("delta", self.delta))
