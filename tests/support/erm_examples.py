"""Small problems for the tests of convex methods, and slow answers to compare with."""

import numpy as np

from tacit.erm import Huber, Logistic, Multinomial, OneVsRest, SmoothHinge, Squared

LOSSES = [
    Logistic(),
    Multinomial(3),
    SmoothHinge(0.5),
    SmoothHinge(0.1),
    Huber(1.0),
    Huber(0.3),
    Squared(2.0),
    OneVsRest(SmoothHinge(0.5), 3),
    OneVsRest(Logistic(), 4),
]
BOUNDED = [loss for loss in LOSSES if not isinstance(loss, Squared)]


def targets_for(loss, n, rng):
    """Targets as a user would give them."""
    if isinstance(loss, Logistic | SmoothHinge):
        return rng.integers(0, 2, n)
    if isinstance(loss, Multinomial | OneVsRest):
        return rng.integers(0, loss.classes, n)
    return rng.normal(size=n)


def table(n=60, features=3, seed=0):
    """Features, some of them longer than 1."""
    return np.random.default_rng(seed).normal(size=(n, features)) * 0.7


def replaced(x, y, loss, rng, far=10.0):
    """A neighbouring data set: one example has become another, often an extreme one."""
    x, y = x.copy(), y.copy()
    place = rng.integers(len(x))
    x[place] = far * rng.normal(size=x.shape[1])
    y[place] = targets_for(loss, 1, rng)[0]
    return x, y
