"""What `--recipe auto` trains on: the examples of a data set as a recipe's linear model takes them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tacit import _validate, datasets
from tacit.budget import Budget
from tacit.cli.progress import bar_on
from tacit.datasets import Data
from tacit.errors import InvalidArgument
from tacit.estimators.by_recipe import ExampleForm
from tacit.ledger import new_salt
from tacit.ledger.storage import storage_at
from tacit.recipes.recipe import Kind, Recipe, auto
from tacit.recipes.run import RecipePlan, features_for
from tacit.workflows.settings import Settings, Typed, settled_delta

# Rows whose features are computed between two signs of life; a multiple of what scattering takes at once.
_PIECE = 1_600

Pair = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Task:
    """Examples of a kind with their public features: a function of one example at a time, None for texts.

    `train` and `test` hold pixels or columns, and of texts their features, which are counted as they are read.
    """

    data: Data
    settings: Settings
    recipe: Recipe
    features: Any
    train: Pair
    test: Pair

    @property
    def budget(self) -> tuple[float, float]:
        """What all of it may cost."""
        assert self.settings.epsilon is not None
        return self.settings.epsilon, self.settings.delta

    @cached_property
    def plan(self) -> RecipePlan:
        """Everything that will be released."""
        return RecipePlan.of(self.recipe, Budget(*self.budget))

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """That of the pictures; None if there are none."""
        return _image_shape(self.data) if self.recipe.kind in ("handwriting", "image") else None

    @property
    def examples(self) -> ExampleForm:
        """What they are, as whoever loads the model has to know."""
        return ExampleForm(self.image_shape, self.data.numbers if self.recipe.kind == "table" else 0)

    def rows(self) -> tuple[Any, Any]:
        """The features of what is trained on and of what is tested on; with a bar where that takes time."""
        if self.features is None:
            return self.train[0], self.test[0]
        parts = self.train[0], self.test[0]
        self.features.fit(parts[0])
        with _bar(sum(len(part) for part in parts)) as advance:
            return self._features(parts[0], advance), self._features(parts[1], advance)

    def _features(self, inputs: Any, advance: Any) -> Any:
        if not len(inputs):
            return self.features.transform(np.zeros((1, *inputs.shape[1:]), dtype=np.float32))[:0]
        found: Any = None
        for start in range(0, len(inputs), _PIECE):
            piece = self.features.transform(inputs[start : start + _PIECE])
            if found is None:
                found = np.empty((len(inputs), piece.shape[1]), dtype=piece.dtype)
            found[start : start + len(piece)] = piece
            advance(len(piece))
        return found


def task_of(data: Data, settings: Settings, data_path: Path | None = None) -> Task:
    """The task of a run with these settings; `data_path` says where the data have moved."""
    assert settings.recipe is not None
    recipe = Recipe(**settings.recipe)
    if recipe.kind == "text":
        features = features_for("text", None, 0)
        train, test = (
            (features.of_words(words), labels)
            for words, labels in datasets.load_words(data.name, data_path or settings.data_path)
        )
        return Task(data, settings, recipe, None, train, test)
    features = features_for(recipe.kind, _image_shape(data), data.numbers)
    return Task(data, settings, recipe, features, _flat(data.train), _flat(data.test))


def settle_recipe(data: Data, typed: Typed, table: dict[str, str] | None) -> Settings:
    """What was typed with what the recipe chooses, from public facts alone."""
    if data.classes is None:
        raise InvalidArgument(
            f"--recipe auto tells classes apart; the target of {data.name} is a number. Leave it out."
        )
    population = _validate.count("population", data.population if typed.population is None else typed.population)
    delta, epsilon = settled_delta(typed.delta, population), _validate.positive("epsilon", typed.epsilon)
    recipe = auto(_kind(data), population=population, epsilon=epsilon, delta=delta)
    return Settings(
        data=data.name,
        data_path=None if typed.data_path is None else str(typed.data_path.absolute()),
        method="dpsgd",
        model="linear",
        epsilon=epsilon,
        delta=delta,
        multiplier=None,
        lot_size=recipe.lot_size,
        population=population,
        is_declared=typed.population is not None or table is not None,
        steps=recipe.steps,
        clip_norm=recipe.clip_norm,
        learning_rate=recipe.learning_rate,
        micro_batch=None,
        seed=None if typed.seed is None else _validate.count("seed", typed.seed, at_least=0),
        ledger=None if typed.ledger is None else storage_at(typed.ledger).saved_place,
        table=table,
        salt=new_salt(),
        recipe=asdict(recipe),
    )


def has_recipe(data: Data) -> bool:
    """Whether the automatic recipe knows what to do with such data."""
    return data.classes is not None and (not data.vocabulary or data.is_text)


def _kind(data: Data) -> Kind:
    if data.vocabulary:
        if not data.is_text:
            raise InvalidArgument(f"There is no recipe for {data.name}. Leave --recipe out.")
        return "text"
    if len(data.shape) == 1:
        return "table"
    return "handwriting" if data.is_handwriting else "image"


def _image_shape(data: Data) -> tuple[int, ...]:
    return data.shape[1:] if len(data.shape) == 3 and data.shape[0] == 1 else data.shape


def _flat(part: Pair) -> Pair:
    return part[0].reshape(len(part[0]), math.prod(part[0].shape[1:])), part[1]


@contextmanager
def _bar(total: int) -> Iterator[Any]:
    """A bar on standard error, if someone is watching."""
    with bar_on(Console(stderr=True)) as bar:
        task = bar.add_task("Features", total=total, seen="")
        yield lambda count: bar.advance(task, count)
