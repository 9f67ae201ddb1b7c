"""The models that the paper compares with, computed by scikit-learn where it has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.decomposition import TruncatedSVD
from sklearn.naive_bayes import BernoulliNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from tacit.datasets import Array, Data

CLASSIFIERS: dict[str, Any] = {
    "k nearest neighbours": lambda seed: KNeighborsClassifier(),
    "naive Bayes": lambda seed: BernoulliNB(),
    # The paper has ID3 and C4.5; scikit-learn has CART.
    "decision tree": lambda seed: DecisionTreeClassifier(max_leaf_nodes=50, random_state=seed),
}
_FACTORS = 10
# How many made-up ratings of average height every person and film has: few ratings say little.
_PRIOR = 10.0


def accuracy(name: str, data: Data, seed: int) -> float:
    """Of one classifier in its default settings (a tree of 50 leaves) on the test rows."""
    inputs, targets = data.train
    fitted = CLASSIFIERS[name](seed).fit(inputs, targets)
    return round(float(fitted.score(*data.test)), 5)


def rmse(name: str, pairs: Array, stars: Array, tested: Array, truth: Array, size: tuple[int, int]) -> float:
    """Root mean squared error in stars: of the global average, or of biases with a truncated SVD of what they leave."""
    average = float(stars.mean())
    if name == "global average":
        return round(float(np.sqrt(np.mean((truth - average) ** 2))), 5)
    people = _biases(pairs, stars - average, 0, size)
    films = _biases(pairs, stars - average - people[pairs[:, 0]], 1, size)
    left = stars - average - people[pairs[:, 0]] - films[pairs[:, 1]]
    table = csr_matrix((left, (pairs[:, 0], pairs[:, 1])), shape=size)
    svd = TruncatedSVD(_FACTORS, random_state=0)
    factors = svd.fit_transform(table)
    found = (factors[tested[:, 0]] * svd.components_.T[tested[:, 1]]).sum(1)
    predicted = average + people[tested[:, 0]] + films[tested[:, 1]] + found
    return round(float(np.sqrt(np.mean((truth - np.clip(predicted, 1, 5)) ** 2))), 5)


def _biases(pairs: Array, centred: Array, side: int, size: tuple[int, int]) -> Array:
    """How far a person's, or a film's, ratings are above average; shrunk where there are few."""
    numbers = np.bincount(pairs[:, side], minlength=size[side])
    totals = np.bincount(pairs[:, side], weights=centred, minlength=size[side])
    return np.asarray(totals / (numbers + _PRIOR))
