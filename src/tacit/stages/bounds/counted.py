"""Any bound, and beside its sum the number of examples that came: for a method that divides by it, as published."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tacit.stages.noise.realised import SHARE
from tacit.types import Bound, BoundedSum, PerExampleGradients, State, Tensors


@dataclass(frozen=True)
class Counted:
    """The sum of `inside`, and how many examples came over how many were expected.

    The count is private, and the sensitivity does not cover it: only a noise that claims no proof may take it.
    """

    inside: Bound

    def init(self, like: Tensors, lot_size: float) -> State:
        """What is inside remembers, and the public lot size."""
        return {**self.inside.init(like, lot_size), "lot_size": torch.tensor(lot_size, dtype=torch.float64)}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum, with the count beside it."""
        bounded = self.inside.sum(gradients, state)
        share = torch.tensor([len(gradients) / float(state["lot_size"])], dtype=torch.float64)
        return BoundedSum({**bounded.values, SHARE: share}, bounded.sensitivity)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """As inside."""
        return self.inside.receive(noisy, state)
