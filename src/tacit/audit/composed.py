"""The epsilon of many steps from below, for any pair of distributions that can be cut into cells.

Cutting outcomes into cells and telling only the cell is post-processing, so what the cells show holds for the
outcomes. Numpy and scipy only.
"""

from __future__ import annotations

import math

import numpy as np

from tacit import _validate
from tacit.accounting.composition import Composition
from tacit.accounting.contour import JUMPS, draw_lines, search_epsilon, settle_epsilon
from tacit.accounting.losses import LossAtoms, thin
from tacit.audit.statistics import Floats

_SEARCH_SIZE, _SIZE = 480, 4000
_TOLERANCE = 2e-6


def cell_delta(p: Floats, q: Floats, epsilon: float) -> float:
    """delta at epsilon of one step, from below: what is likelier by more than e^epsilon, either way round."""
    growth = math.exp(epsilon)
    return max(float(np.maximum(a - growth * b, 0.0).sum()) for a, b in ((p, q), (q, p)))


def composed_epsilon(p: Floats, q: Floats, times: int, delta: float) -> float:
    """A lower bound on epsilon at `delta` of `times` steps whose outcomes fall into cells with these masses.

    Masses may sum up to less than one: what is left out could only help the attacker.
    """
    times, delta = _validate.count("times", times), _validate.open_unit("delta", delta)
    keep = (p > 0) & (q > 0)
    forward = LossAtoms(np.log(p[keep] / q[keep]), p[keep], q[keep])
    return max(_one_way(atoms, times, delta) for atoms in (forward, forward.reversed()))


def _one_way(atoms: LossAtoms, times: int, delta: float) -> float:
    rough = Composition(((thin(atoms, "estimate", _SEARCH_SIZE), times),))
    tilt, epsilon, share = search_epsilon(rough, delta)
    fine = Composition(((thin(atoms, "lower", _SIZE), times),))
    order = (share, *(other for other in (*JUMPS, math.inf) if other != share))
    lines = draw_lines(fine, tilt, epsilon, math.log(delta), _TOLERANCE, order)
    return settle_epsilon(lines, epsilon, delta, "lower")
