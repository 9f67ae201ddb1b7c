"""Examples as features of norm 1, computed once and kept: a public function of each example, so nothing is spent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from experiments.library import Order
from numpy.typing import NDArray

from tacit.datasets import find_data_folder, load_words
from tacit.errors import DataMissing, InvalidArgument
from tacit.recipes.recipe import Features, Kind, Recipe, auto
from tacit.recipes.run import choose_features

Labels = NDArray[np.int64]
_PIECE = 1_000
_READ: dict[tuple[str, int], Featured] = {}


@dataclass(frozen=True, eq=False)
class Featured:
    """Features and labels to train on, which are private, and to test on."""

    train: tuple[Any, Labels]
    test: tuple[Any, Labels]
    classes: int
    population: int


def read(order: Order, name: str) -> Featured:
    """The features of a data set, as the recipe for its kind has them; of a table, the rows themselves.

    Features of tables take no time, and which ones a recipe uses depends on the budget.
    """
    about, most = order.settings["data"][name], order.settings["most_rows"]
    if (name, most) not in _READ:
        _READ.clear()
        _READ[name, most] = _words(about, most) if about["kind"] == "text" else _rows(order, about, most)
    return _READ[name, most]


def _rows(order: Order, about: dict[str, Any], most: int) -> Featured:
    data = order.load(about["data"])
    shape = tuple(about["shape"]) if "shape" in about else None
    parts = [(inputs[:most], labels[:most]) for inputs, labels in (data.train, data.test)]
    if about["kind"] == "table":
        return Featured(parts[0], parts[1], data.classes, min(data.population, most))
    features = choose_features(any_recipe(about["kind"], shape, about.get("features")), shape, 0)
    # An encoder keeps its features itself.
    compute = partial(kept, about["data"], features) if about.get("features") is None else partial(_encode, features)
    made = [(compute(inputs), labels) for inputs, labels in parts]
    return Featured(made[0], made[1], data.classes, min(data.population, most))


def _encode(features: Any, inputs: NDArray[Any]) -> NDArray[np.float32]:
    try:
        features.fit()
    except InvalidArgument as error:
        # The weights come in a package that is not installed: only this data set is left out.
        raise DataMissing(str(error), "") from error
    found: NDArray[np.float32] = features.transform(inputs.reshape(len(inputs), -1))
    return found


def any_recipe(kind: Kind, shape: tuple[int, ...] | None = None, features: Features | None = None) -> Recipe:
    """A recipe of this kind: features of images and texts are the same at every budget."""
    return auto(kind, population=1_000, epsilon=1.0, delta=1e-5, shape=shape, features=features)


def kept(name: str, features: Any, inputs: NDArray[Any]) -> NDArray[np.float32]:
    """Features of these inputs, from the cache of data sets if they were computed before."""
    flat = inputs.reshape(len(inputs), -1)
    features.fit(flat[:1])
    # Told apart by what they are: a description would stay the same where a default of theirs changes.
    about = (
        f"{inputs.shape}".encode() + np.ascontiguousarray(flat[:100]).tobytes() + features.transform(flat[:8]).tobytes()
    )
    path = find_data_folder() / "features" / f"{name}-{hashlib.sha256(about).hexdigest()[:16]}.npy"
    if not path.is_file():
        pieces = [features.transform(flat[start : start + _PIECE]) for start in range(0, len(flat), _PIECE)]
        _write(path, np.concatenate(pieces))
    found: NDArray[np.float32] = np.load(path)
    return found


def _write(path: Path, rows: NDArray[np.float32]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished.npy")
    np.save(unfinished, rows)
    unfinished.replace(path)


def _words(about: dict[str, Any], most: int) -> Featured:
    features = choose_features(any_recipe("text"), None, 0)
    # Reviews come sorted by label: every other one keeps both kinds, where not all are taken.
    parts = []
    for texts, labels in load_words(about["data"]):
        step = max(1, len(labels) // most)
        parts.append((features.of_words(texts[::step]), labels[::step]))
    return Featured(parts[0], parts[1], 2, len(parts[0][1]) if most < 25_000 else 25_000)
