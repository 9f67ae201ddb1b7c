"""Post: what may be done with a release. It sees nothing private, so it costs nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from tacit import _validate
from tacit.accounting.densities import Density, Floats, GaussianDensity
from tacit.errors import InvalidArgument
from tacit.stages.flat import flatten, mark_largest, unflatten_like
from tacit.stages.noise import BoxNoise, GaussianNoise
from tacit.types import Noise, State, Tensors

# The mean of the Kolmogorov distribution: sqrt(pi / 2) log 2.
_MEAN = 0.8687311606361592


@dataclass(frozen=True)
class TopK:
    """Keep the share `keep` of all coordinates with the largest size; add the rest to the next release.

    This is pruning with error feedback as in Xiang et al. 2023, but after the noise: the release alone determines
    which coordinates are large and what is left of the others.
    """

    keep: float = 0.1
    error_feedback: bool = True

    def __post_init__(self) -> None:
        _validate.check_fields(self, rate="keep")

    def init(self, like: Tensors) -> State:
        """A residual of zeros."""
        return {name: torch.zeros_like(value) for name, value in like.items()} if self.error_feedback else {}

    def apply(self, values: Tensors, state: State) -> tuple[Tensors, State]:
        """Exactly the k largest of release plus residual, k being at least one; ties go by torch.topk."""
        whole = {name: value + state[name].to(value.dtype) for name, value in values.items()} if state else values
        mask = mark_largest(whole, self.keep)
        kept = {name: value * mask[name] for name, value in whole.items()}
        return kept, {name: value - kept[name] for name, value in whole.items()} if self.error_feedback else {}


@dataclass(frozen=True)
class LaplacianSmoothing:
    """Solve (I + strength * L) smooth = release, where L is the Laplacian of all coordinates on a ring.

    Osher et al. 2018; with privacy: DP-LSSGD, Wang et al. 2019. The sum over all coordinates stays, and the noise
    shrinks: in high dimensions to a share of (1 + 2 strength) / (1 + 4 strength)^1.5 of its variance. Strength 0
    changes nothing.
    """

    strength: float = 1.0

    def __post_init__(self) -> None:
        _validate.check_fields(self, non_negative="strength")

    def init(self, like: Tensors) -> State:
        """No state."""
        return {}

    def apply(self, values: Tensors, state: State) -> tuple[Tensors, State]:
        """Divide the Fourier transform by 1 + 2 strength (1 - cos(2 pi j / dimension)): the matrix is circulant."""
        flat = flatten(values)
        if not flat.numel():
            return values, state
        frequency = torch.arange(flat.numel() // 2 + 1, device=flat.device, dtype=torch.float64)
        factor = 1 + 2 * self.strength * (1 - torch.cos(2 * math.pi / flat.numel() * frequency))
        smooth = torch.fft.irfft(torch.fft.rfft(flat.double()) / factor, n=flat.numel())
        return unflatten_like(smooth, values), state


@dataclass(frozen=True)
class KSDenoise:
    """Multiply a release by its Kolmogorov-Smirnov distance from the law of its noise, all coordinates pooled.

    Nasr, Shokri and Houmansadr 2020. A release that is little more than noise makes a small step. Only the law of the
    noise is used, which is public; the mechanism fills it in. The distance of pure noise in d dimensions is about
    0.87 / sqrt(d), so steps become very short: raise the learning rate, or divide by the distance of pure noise
    (`is_relative`).
    """

    is_relative: bool = False
    noise: Noise | None = None

    def following(self, noise: Noise) -> KSDenoise:
        """The same for this noise; `InvalidArgument` if its law is not the same on every coordinate."""
        if not isinstance(noise, (GaussianNoise, BoxNoise)):
            raise InvalidArgument(
                f"KSDenoise compares all coordinates with one law, and the law of {type(noise).__name__} differs "
                "between coordinates. Use it with GaussianNoise or BoxNoise."
            )
        return replace(self, noise=noise)

    def init(self, like: Tensors) -> State:
        """The size of the noise, which the mechanism fills in."""
        return {"noise_std": torch.zeros((), dtype=torch.float64)}

    def apply(self, values: Tensors, state: State) -> tuple[Tensors, State]:
        """Every coordinate times the same number: between 0 and 1, unless it is relative."""
        flat = flatten(values).double().cpu().numpy()
        if not flat.size:
            return values, state
        factor = ks_distance(flat, self._law(float(state["noise_std"])))
        if self.is_relative:
            factor *= math.sqrt(flat.size) / _MEAN
        return {name: value * factor for name, value in values.items()}, state

    def _law(self, size: float) -> Density:
        if self.noise is None or not size > 0:
            raise InvalidArgument("KSDenoise does not know its noise. Put it into a Mechanism, as one of its posts.")
        return self.noise.family.density(size) if isinstance(self.noise, BoxNoise) else GaussianDensity(size)


def ks_distance(values: Floats, law: Density) -> float:
    """The largest difference between the distribution function of the values and that of the law.

    >>> from tacit.accounting import GaussianDensity
    >>> round(ks_distance(np.array([-1.2, -0.3, 0.4, 0.9, 2.0]), GaussianDensity()), 8)
    0.25542174
    """
    ascending = np.sort(values)
    below = law.survival(-ascending)
    ranks = np.arange(ascending.size + 1) / ascending.size
    return float(max((ranks[1:] - below).max(), (below - ranks[:-1]).max()))
