"""NoisyAdam (Bu, Dong, Long, Su 2019): the noisy gradients of NoisySGD, given to Adam."""

from __future__ import annotations

from tacit.methods.dpsgd import Clipping
from tacit.methods.noisy_sgd import bu_mechanism
from tacit.methods.registry import Entry
from tacit.stages.mechanism import Mechanism, Mode

ENTRY = Entry(
    name="noisy_adam",
    kind="gradient",
    paper="Bu et al. 2019",
    idea="The same noisy gradients as noisy_sgd, given to Adam.",
    status="refuted",
    verdict="As for noisy_sgd: the optimizer costs nothing, and the denominator is the same.",
    rigorous="A constant denominator, which costs nothing, and the exact privacy curve.",
    options={"clipping": "flat, per_layer, normalised or quantile"},
    page="docs/reference/methods/dpsgd.md",
)


def noisy_adam(
    clip_norm: float = 1.0, multiplier: float | None = None, *, clipping: Clipping = "flat", mode: Mode = "rigorous"
) -> Mechanism:
    """NoisyAdam, to be used with torch.optim.Adam. It costs what NoisySGD costs."""
    return bu_mechanism("noisy_adam", clip_norm, multiplier, clipping, mode)
