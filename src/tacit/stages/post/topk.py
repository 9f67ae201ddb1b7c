"""Only the largest coordinates of a release, with what was left out carried on to the next one."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tacit import _validate
from tacit.stages.flat import largest
from tacit.types import State, Tensors


@dataclass(frozen=True)
class TopK:
    """Keep the share `keep` of all coordinates with the largest size; the rest waits for the next step.

    This is pruning with error feedback as Xiang et al. 2023 use it, but after the noise: which coordinates are large,
    and what is left of the others, is then known from the release alone.
    """

    keep: float = 0.1
    error_feedback: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", _validate.rate("keep", self.keep))

    def init(self, like: Tensors) -> State:
        """Nothing is left over yet."""
        return {name: torch.zeros_like(value) for name, value in like.items()} if self.error_feedback else {}

    def apply(self, values: Tensors, state: State) -> tuple[Tensors, State]:
        """Exactly the k largest of release plus residual, k being at least one; ties go by torch.topk."""
        given = {name: value + state[name].to(value.dtype) for name, value in values.items()} if state else values
        mask = largest(given, self.keep)
        kept = {name: value * mask[name] for name, value in given.items()}
        return kept, {name: value - kept[name] for name, value in given.items()} if self.error_feedback else {}
