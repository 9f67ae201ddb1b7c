"""Training by the automatic recipe: features, noise and learning rate from public facts, a linear model.

Files are written when the run is finished, or when Ctrl-C stops it between two steps: once the features are computed, a
run takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tacit import _validate, datasets
from tacit.budget import Budget
from tacit.datasets import Data
from tacit.errors import InvalidArgument
from tacit.estimators.by_recipe import ExampleForm
from tacit.ledger.book import new_salt
from tacit.ledger.storage import storage_at
from tacit.recipes.recipe import Kind, Recipe, auto
from tacit.recipes.run import (
    RecipePlan,
    choose_features,
)
from tacit.workflows.progress import (
    make_bar,
    open_console,
)
from tacit.workflows.settings import Settings, Table, TrainOptions, resolve_delta, resolve_seed

_CHOSEN_BY_RECIPE = (
    "--method",
    "--mode",
    "--set",
    "--model",
    "--multiplier",
    "--lot-size",
    "--steps",
    "--epochs",
    "--clip-norm",
    "--learning-rate",
    "--micro-batch",
    "--momentum",
    "--views",
    "--averaging",
)
# Features are computed for so many rows at a time, between two updates of the progress bar.
_PIECE = 1_600

Pair = tuple[Any, Any]


def wants_recipe(asked: str | None, options: TrainOptions, data: Data, *, is_own: bool) -> bool:
    """Whether to train by recipe: if asked for, and by default for a data set by name with an epsilon alone.

    A table of one's own is trained on as it is unless a recipe is asked for, so that the model's inputs are its
    columns. `InvalidArgument` if a recipe is asked for together with something that it chooses.
    """
    given = [option for option in options.list_given() if option in _CHOSEN_BY_RECIPE]
    if asked is None:
        return not given and not is_own and options.epsilon is not None and has_recipe(data)
    if asked == "none":
        return False
    if given:
        raise InvalidArgument(f"--recipe auto chooses {', '.join(given)} itself. Leave out one or the other.")
    if options.epsilon is None:
        raise InvalidArgument("--recipe auto needs --epsilon: the noise follows from it.")
    return True


def has_recipe(data: Data) -> bool:
    """Whether there is an automatic recipe for such data."""
    return data.classes is not None and (not data.vocabulary or data.is_text)


def _find_kind(data: Data) -> Kind:
    if data.vocabulary:
        if not data.is_text:
            raise InvalidArgument(f"There is no recipe for {data.name}. Leave --recipe out.")
        return "text"
    if len(data.shape) == 1:
        return "table"
    return "handwriting" if data.is_handwriting else "image"


def resolve_recipe(data: Data, options: TrainOptions, table: Table | None) -> Settings:
    """The settings that the recipe chooses, from public facts alone."""
    if data.classes is None:
        raise InvalidArgument(
            f"--recipe auto trains classifiers, and the target of {data.name} is a number. Leave it out."
        )
    population = _validate.count("population", data.population if options.population is None else options.population)
    delta, epsilon = resolve_delta(options.delta, population), _validate.positive("epsilon", options.epsilon)
    recipe = auto(_find_kind(data), population=population, epsilon=epsilon, delta=delta)
    return Settings(
        data=data.name,
        data_path=None if options.data_path is None else str(options.data_path.absolute()),
        method="dpsgd",
        model="linear",
        epsilon=epsilon,
        delta=delta,
        multiplier=None,
        lot_size=recipe.lot_size,
        population=population,
        is_declared=options.population is not None or table is not None,
        steps=recipe.steps,
        clip_norm=recipe.clip_norm,
        learning_rate=recipe.learning_rate,
        micro_batch=None,
        seed=resolve_seed(options.seed),
        ledger=None if options.ledger is None else storage_at(options.ledger).saved_place,
        table=table,
        salt=new_salt(),
        recipe=asdict(recipe),
        dataset=options.dataset,
    )


@dataclass(frozen=True, eq=False)
class RecipeTask:
    """The examples of a data set as a recipe takes them, with the function that computes their public features.

    `train` and `test` hold pixels or columns; for texts they hold features, which are counted while reading, and
    `features` is None.
    """

    data: Data
    settings: Settings
    recipe: Recipe
    features: Any
    train: Pair
    test: Pair

    @property
    def budget(self) -> Budget:
        """What preparation and training together may cost."""
        assert self.settings.epsilon is not None
        return Budget(self.settings.epsilon, self.settings.delta)

    @cached_property
    def plan(self) -> RecipePlan:
        """Everything that will be released."""
        return RecipePlan.of(self.recipe, self.budget)

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """The shape of an image; None if the examples are no images."""
        return _image_shape(self.data) if self.recipe.kind in ("handwriting", "image") else None

    @property
    def examples(self) -> ExampleForm:
        """What whoever loads the model has to know about inputs."""
        return ExampleForm(self.image_shape, self.data.numbers if self.recipe.kind == "table" else 0)

    def compute_features(self) -> tuple[Any, Any]:
        """The features of training and test examples, with a progress bar."""
        if self.features is None:
            return self.train[0], self.test[0]
        parts = self.train[0], self.test[0]
        self.features.fit(parts[0])
        with _show_bar(sum(len(part) for part in parts)) as advance:
            return self._transform(parts[0], advance), self._transform(parts[1], advance)

    def _transform(self, inputs: Any, advance: Callable[[int], None]) -> Any:
        if not len(inputs):
            return self.features.transform(np.zeros((1, *inputs.shape[1:]), dtype=np.float32))[:0]
        rows: Any = None
        for start in range(0, len(inputs), _PIECE):
            piece = self.features.transform(inputs[start : start + _PIECE])
            if rows is None:
                rows = np.empty((len(inputs), piece.shape[1]), dtype=piece.dtype)
            rows[start : start + len(piece)] = piece
            advance(len(piece))
        return rows


def make_task(data: Data, settings: Settings, data_path: Path | None = None) -> RecipeTask:
    """The task of a run with these settings; `data_path` if the data have moved."""
    assert settings.recipe is not None
    recipe = Recipe(**settings.recipe)
    if recipe.kind == "text":
        features = choose_features("text", None, 0)
        train, test = (
            (features.of_words(words), labels)
            for words, labels in datasets.load_words(data.name, data_path or settings.data_path)
        )
        return RecipeTask(data, settings, recipe, None, train, test)
    features = choose_features(recipe.kind, _image_shape(data), data.numbers)
    return RecipeTask(data, settings, recipe, features, _flatten(data.train), _flatten(data.test))


def _image_shape(data: Data) -> tuple[int, ...]:
    return data.shape[1:] if len(data.shape) == 3 and data.shape[0] == 1 else data.shape


def _flatten(part: Pair) -> Pair:
    return part[0].reshape(len(part[0]), math.prod(part[0].shape[1:])), part[1]


@contextmanager
def _show_bar(total: int) -> Iterator[Callable[[int], None]]:
    with make_bar(open_console()) as bar:
        task = bar.add_task("Features", total=total, seen="")
        yield lambda count: bar.advance(task, count)
