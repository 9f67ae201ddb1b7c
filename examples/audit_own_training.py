"""Attack a training function that does not use tacit: `python examples/audit_own_training.py`.

The function clips and adds noise, but divides only the noise by the number of examples. The audit shows it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from tacit.accounting import Gaussian, curve
from tacit.audit import ManyRuns, audit

NOISE, STEPS, DELTA = 16.0, 20, 1e-5
Examples = tuple[NDArray[Any], NDArray[Any]]


def train(data: Examples, *, is_repaired: bool = False) -> NDArray[Any]:
    """Noisy gradient descent for logistic regression; returns everything that an observer sees."""
    inputs, targets = data
    weights, released = np.zeros(inputs.shape[1]), []
    for _ in range(STEPS):
        margins = targets * (inputs @ weights)
        gradients = -(targets / (1 + np.exp(margins)))[:, None] * inputs
        gradients /= np.maximum(1, np.linalg.norm(gradients, axis=1, keepdims=True))
        scale = NOISE if is_repaired else NOISE / len(inputs)  # the mistake
        noisy = gradients.sum(0) + np.random.normal(size=len(weights)) * scale  # noqa: NPY002 - the audit seeds the global generator
        weights = weights - 0.005 * noisy
        released.append(noisy)
    return np.concatenate(released)


def train_repaired(data: Examples) -> NDArray[Any]:
    """The same with the full noise."""
    return train(data, is_repaired=True)


def main() -> None:
    """Audit both functions against the epsilon that the algorithm has on paper."""
    x, y = load_breast_cancer(return_X_y=True)
    data = x[:200, :4] / np.array([40.0, 50.0, 250.0, 3000.0]), 2.0 * y[:200] - 1
    claim = curve(Gaussian(multiplier=NOISE) * STEPS).epsilon(delta=DELTA)
    print(f"claimed: epsilon {claim:.2f} at delta {DELTA:g}\n")
    for function in (train, train_repaired):
        print(function.__name__)
        print(audit(function, data, delta=DELTA, claim=claim, attack=ManyRuns(runs=300, seed=0)), "\n")


if __name__ == "__main__":
    main()
