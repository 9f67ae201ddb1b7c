"""`tacit train --recipe auto`: features, numbers and noise from public facts, a linear model, one guarantee."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

import tacit
from tacit import arguments, datasets
from tacit.cli.balance import standing
from tacit.cli.output import note, say, say_json, working
from tacit.cli.settings import GUARANTEE, METRICS, MODEL, Typed, free_folder, load_typed, refuse_unless_free
from tacit.datasets import Data
from tacit.errors import InvalidArgument
from tacit.estimators.prepared import features_for
from tacit.estimators.recipes import Trained, scores_by_recipe, train_by_recipe
from tacit.features import PrivateWhitening
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.recipe import Kind, Recipe, auto
from tacit.report.wording import up

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
)


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be trained: examples of a kind, what is public about them, and the budget."""

    data: Data
    kind: Kind
    features: Any
    train: tuple[Any, Any]
    test: tuple[Any, Any]
    recipe: Recipe
    epsilon: float
    delta: float


def train_as_typed(name: str | None, typed: Typed, as_json: bool) -> None:
    """From the command to the files: nothing is released before the ledger, if there is one, has been charged."""
    _refuse_contradictions(typed)
    refuse_unless_free(typed.out)
    with working("Reading data"):
        task = _task(name, typed)
    folder = typed.out or free_folder(task.data.name)
    if not as_json:
        say([(f"Plan: the automatic recipe for {task.kind}s on {task.data.name}", plan_lines(task))])
    charged = _charge(task, typed)
    seed = None if typed.seed is None else arguments.count("seed", typed.seed, at_least=0)
    note("Features, then training: about a minute for every ten thousand images, seconds for tables.")
    trained = train_by_recipe(
        task.recipe,
        task.train[0],
        task.train[1],
        features=task.features,
        classes=task.data.classes or 2,
        budget=(task.epsilon, task.delta),
        seed=seed,
    )
    found = _outcome(task, trained, folder)
    if as_json:
        say_json(found)
        return
    print()
    say(_paragraphs(found, _guarantee(task, trained), folder, charged))


def _refuse_contradictions(typed: Typed) -> None:
    said = [option for option in typed.given() if option in _CHOSEN_BY_RECIPE]
    if said:
        raise InvalidArgument(f"--recipe auto chooses what {', '.join(said)} would say. Leave out one or the other.")
    if typed.epsilon is None:
        raise InvalidArgument("--recipe auto needs --epsilon: the noise is found from it.")


def _task(name: str | None, typed: Typed) -> Task:
    data, _ = load_typed(name, typed)
    if data.classes is None:
        raise InvalidArgument(
            f"--recipe auto tells classes apart; the target of {data.name} is a number. Leave it out."
        )
    kind = _kind(data)
    population = arguments.count("population", typed.population or data.population)
    delta = min(1e-5, 0.1 / population) if typed.delta is None else arguments.open_unit("delta", typed.delta)
    epsilon = arguments.positive("epsilon", typed.epsilon)
    shape = data.shape[1:] if kind == "image" and data.shape[0] == 1 else data.shape
    features: Any = features_for(kind, shape, data.numbers)
    train, test = _texts(features, typed) if kind == "text" else (_flat(data.train), _flat(data.test))
    recipe = auto(kind, population=population, epsilon=epsilon, delta=delta)
    return Task(data, kind, None if kind == "text" else features, train, test, recipe, epsilon, delta)


def _kind(data: Data) -> Kind:
    if data.vocabulary:
        if data.name != "imdb":
            raise InvalidArgument(f"There is no recipe for {data.name}. Leave --recipe out.")
        return "text"
    return "table" if len(data.shape) == 1 else "image"


def _texts(features: Any, typed: Typed) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    train, test = datasets.load_words("imdb", typed.data_path)
    return (features.of_words(train[0]), train[1]), (features.of_words(test[0]), test[1])


def _flat(part: tuple[Any, Any]) -> tuple[Any, Any]:
    return part[0].reshape(len(part[0]), -1), part[1]


def plan_lines(task: Task) -> list[str]:
    """What is about to happen and what it will cost."""
    recipe = task.recipe
    preparation, step = recipe.noise(task.epsilon, task.delta)
    lines = [
        f"epsilon {up(task.epsilon)} at delta {task.delta:g} for all of it (one example added or removed, PLD).",
        f"{recipe.steps:,} steps with lots of {recipe.lot_size:,.0f} expected out of {recipe.population:,} examples, "
        f"multiplier {step:.4g}, clip norm {recipe.clip_norm:g}, learning rate {recipe.learning_rate:.4g}.",
    ]
    if preparation is not None:
        what = "mean and then second moments" if recipe.preparation == "whitening" else "mean"
        lines.insert(1, f"First the {what} of the features: noise with multiplier {preparation:.4g}.")
    return lines


def _charge(task: Task, typed: Typed) -> list[str]:
    """Enter the whole cost into the ledger before anything is released."""
    if typed.ledger is None:
        return []
    book = Ledger(typed.ledger)
    event = task.recipe.event(*task.recipe.noise(task.epsilon, task.delta))
    run = book.spend(task.data.name, event, about={"method": "dpsgd", "recipe": "auto"})
    return [standing(book, task.data.name, run)]


def _guarantee(task: Task, trained: Trained) -> Guarantee:
    return replace(trained.guarantee, assumptions=(*trained.guarantee.assumptions, *task.data.taken_for_granted))


def _outcome(task: Task, trained: Trained, folder: Path) -> dict[str, Any]:
    """Write model, guarantee and metrics; and say them."""
    guarantee = _guarantee(task, trained)
    metrics: dict[str, Any] = {"settings": {"data": task.data.name, "recipe": asdict(task.recipe)}}
    if not task.data.is_test_private:
        chosen = scores_by_recipe(replace(trained.prepared), trained.model, task.test[0]).argmax(axis=1)
        metrics["test"] = {"accuracy": float(np.mean(chosen == task.test[1])), "examples": len(task.test[1])}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(_weights(trained), folder / MODEL, metadata={"data": task.data.name, "recipe": "auto"})
    (folder / GUARANTEE).write_text(guarantee.to_json(), encoding="utf-8")
    (folder / METRICS).write_text(json.dumps(metrics, indent=1), encoding="utf-8")
    told = {"tacit": tacit.__version__, "folder": str(folder), **metrics}
    return {**told, "guarantee": json.loads(guarantee.to_json())}


def _weights(trained: Trained) -> dict[str, torch.Tensor]:
    """Those of the model, and what was released before it, or follows from that."""
    weights = {name: value.contiguous() for name, value in trained.model.state_dict().items()}
    preparation = trained.prepared.preparation
    if preparation is not None:
        weights["mean"] = torch.from_numpy(preparation.mean_)
    if isinstance(preparation, PrivateWhitening):
        roots = enumerate(preparation.roots_)
        weights |= {f"root {axis}": torch.from_numpy(root) for axis, root in roots}
    return weights


def _paragraphs(found: dict[str, Any], guarantee: Guarantee, folder: Path, charged: list[str]) -> list[Any]:
    title = "No score: rows were held out, and a score of them was not released"
    if "test" in found:
        accuracy, count = found["test"]["accuracy"], found["test"]["examples"]
        title = f"test accuracy {100 * accuracy:.2f} % on {count:,} public examples"
    return [
        (title, []),
        ("Guarantee", str(guarantee).splitlines()),
        *([("Ledger", charged)] if charged else []),
        ("Files", [f"{folder}: {MODEL}, {GUARANTEE}, {METRICS}"]),
    ]
