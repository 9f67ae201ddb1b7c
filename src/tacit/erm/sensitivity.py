"""How far one replaced example moves what is trained: ours, which hold as they stand, and those that were published.

Ours are suprema over all data and proven in docs/methods/output_perturbation.md; n is the number of examples, the
Lipschitz constant that of one example's loss without the regulariser.
"""

from __future__ import annotations

import math

import numpy as np

from tacit._validate import Array
from tacit.errors import InvalidArgument

# Far above the rounding of these formulas, far below anything that matters.
_OUTWARDS = 1 + 1e-12


def of_minimiser(n: int, lipschitz: float, strong_convexity: float, tolerance: float = 0.0) -> float:
    """Of a minimiser, each time computed up to a gradient of norm `tolerance`.

    Chaudhuri et al. 2011 for tolerance 0: the gradients of both objectives differ by at most 2 L / n.

    >>> round(of_minimiser(1000, lipschitz=1.0, strong_convexity=0.01), 12)
    0.2
    """
    return _OUTWARDS * (2 * lipschitz / n + 2 * tolerance) / strong_convexity


def of_steps(
    step_sizes: Array, *, lots_per_pass: int, lot_size: float, lipschitz: float, strong_convexity: float
) -> float:
    """Of gradient steps over the same lots in every pass, sums divided by the constant `lot_size`.

    One step adds at most 2 eta L / lot_size if its lot holds the example, and shrinks what is there by
    1 - eta * strong_convexity (not at all if that is 0). The sum is taken exactly, for the worst place in a pass.
    """
    shrunk = np.log1p(-strong_convexity * step_sizes)
    later = np.concatenate([np.cumsum(shrunk[::-1])[::-1][1:], [0.0]])
    left = step_sizes * np.exp(later)
    passes = math.ceil(len(step_sizes) / lots_per_pass)
    padded = np.concatenate([left, np.zeros(passes * lots_per_pass - len(left))])
    worst = float(padded.reshape(passes, lots_per_pass).sum(axis=0).max())
    # Cumulative sums round once per step.
    return _OUTWARDS * (1 + len(step_sizes) * 2.0**-50) * 2 * lipschitz / lot_size * worst


def refuse_expanding(step_sizes: Array, smoothness: float, strong_convexity: float) -> None:
    """Raise where a step is too long for its map to bring points together, or at least not apart."""
    longest = float(step_sizes.max())
    allowed = (2 if strong_convexity == 0 else 1) / smoothness
    if longest > allowed * (1 + 1e-12):
        raise InvalidArgument(
            f"step_size must be at most {allowed:.6g} here ({'2' if strong_convexity == 0 else '1'} / smoothness): "
            f"longer ones may drive neighbouring models apart, and nothing bounds their distance then. Got {longest:g}."
        )


def decreasing_steps(steps: int, smoothness: float, strong_convexity: float, offset: float) -> Array:
    """The step sizes of Wu et al. 2017: min(1/beta, 1/(gamma t)), or 2/(beta (t + offset)) without strong convexity."""
    t = np.arange(1.0, steps + 1)
    if strong_convexity > 0:
        return np.minimum(1 / smoothness, 1 / (strong_convexity * t))
    return 2 / (smoothness * (t + offset))


def wu_constant(step_size: float, *, n: int, passes: int, lot_size: float, lipschitz: float, gamma: float) -> float:
    """Wu et al. 2017 for a constant step size: 2 k L eta / b, or with strong convexity gamma a geometric series.

    >>> round(wu_constant(0.1, n=1000, passes=5, lot_size=10, lipschitz=1.0, gamma=0.01), 8)
    0.21006671
    """
    if gamma == 0:
        return 2 * passes * lipschitz * step_size / lot_size
    left = math.pow(1 - step_size * gamma, n / lot_size)
    return 2 * step_size * lipschitz / (lot_size * (1 - left))


def wu_decreasing(*, n: int, passes: int, lipschitz: float, smoothness: float, gamma: float, exponent: float) -> float:
    """Wu et al. 2017 for decreasing step sizes: (4 L / beta)(1 / n^c + ln k / n), or 2 L / (gamma n).

    >>> settings = dict(n=1000, passes=5, lipschitz=1.0, smoothness=0.26, exponent=0.5)
    >>> round(wu_decreasing(gamma=0.0, **settings), 8), round(wu_decreasing(gamma=0.01, **settings), 8)
    (0.51126484, 0.2)
    """
    if gamma == 0:
        return 4 * lipschitz / smoothness * (math.pow(n, -exponent) + math.log(passes) / n)
    return 2 * lipschitz / (gamma * n)


def zhang(*, n: int, lipschitz: float, smoothness: float, strong_convexity: float, constant: float) -> float:
    """Zhang et al. 2017: constant * (G / n)(1 / L + 1 / Delta). The constant is what the bound depends on most."""
    return constant * lipschitz / n * (1 / smoothness + 1 / strong_convexity)


def classic_multiplier(epsilon: float, delta: float, head: float = 1.25) -> float:
    """sqrt(2 ln(head / delta)) / epsilon: the textbook's Gaussian mechanism, proven for epsilon below 1 only.

    >>> round(0.2 * classic_multiplier(0.5, 1e-5), 7)
    1.9379221
    """
    return math.sqrt(2 * math.log(head / delta)) / epsilon
