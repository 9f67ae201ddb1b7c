"""NoisyAdam (Bu, Dong, Long, Su 2019): the noisy gradients of NoisySGD, given to Adam."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tacit.methods.dpsgd import Clipping
from tacit.methods.noisy_sgd import bu_mechanism
from tacit.methods.registry import Entry
from tacit.stages.mechanism import Mechanism, Mode, NoiseName

ENTRY = Entry(
    name="noisy_adam",
    kind="gradient",
    paper="Bu et al. 2019",
    idea="The same noisy gradients as noisy_sgd, given to Adam.",
    status="refuted",
    verdict="As for noisy_sgd: the optimizer costs nothing, and the denominator is the same.",
    rigorous="A constant denominator, which costs nothing, and the exact privacy curve.",
    options={
        "clipping": "flat, per_layer, normalised or quantile",
        "noise": "gaussian, or banded: correlated over steps, on cyclic Poisson lots",
        "bands": "the number of steps over which banded noise is correlated",
    },
    page="docs/reference/methods/dpsgd.md",
)


def noisy_adam(
    clip_norm: float = 1.0,
    multiplier: float | None = None,
    *,
    clipping: Clipping = "flat",
    mode: Mode = "rigorous",
    noise: NoiseName = "gaussian",
    bands: int = 8,
) -> Mechanism:
    """NoisyAdam, to be used with torch.optim.Adam. It costs what NoisySGD costs.

    The paper prints Adam without bias correction: `PrintedAdam`, which `tacit train --mode paper` uses.
    """
    return bu_mechanism("noisy_adam", clip_norm, multiplier, clipping, mode).with_noise(noise, bands)


class PrintedAdam(torch.optim.Optimizer):
    """Adam as Bu et al. 2019 print it in their algorithm 2: without bias correction.

    m = b1 m + (1 - b1) g, u = b2 u + (1 - b2) g², and weights move by lr * m / (sqrt(u) + eps), with m = u = 0 at the
    start. The first steps are longer than those of torch.optim.Adam, by up to (1 - b1) / sqrt(1 - b2) = 3.2. It sees
    released gradients only, so it costs no privacy.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move all weights that have a gradient."""
        for group in self.param_groups:
            (b1, b2), rate, eps = group["betas"], group["lr"], group["eps"]
            for weights in group["params"]:
                if weights.grad is None:
                    continue
                state: dict[str, Any] = self.state[weights]
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(weights), torch.zeros_like(weights)
                mean = state["mean"].lerp_(weights.grad, 1 - b1)
                square = state["square"].mul_(b2).addcmul_(weights.grad, weights.grad, value=1 - b2)
                weights.addcdiv_(mean, square.sqrt().add_(eps), value=-rate)
