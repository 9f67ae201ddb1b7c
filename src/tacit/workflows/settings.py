"""What was typed for a training run, made whole by defaults, and how it is kept beside the run for resuming."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from tacit import _validate, datasets
from tacit._files import for_the_owner
from tacit.cli.output import refuse_unless_writable
from tacit.datasets import EXAMPLE, FORMATS, Bounds, Data, is_table, load_table
from tacit.errors import CannotResume, InvalidArgument
from tacit.ledger import is_secret_salt, new_salt
from tacit.ledger.storage import storage_at
from tacit.methods.choices import Value, as_texts, read_choices
from tacit.methods.registry import find_method, list_gradient_names
from tacit.recipes.recipe import Kind, Preparation, Recipe
from tacit.workflows.cautions import said_later
from tacit.workflows.defaults import ModeName, defaults_for
from tacit.workflows.following import settle_following, share
from tacit.workflows.numbers import Plan

FILE = "settings.json"
MODEL, GUARANTEE, METRICS = "model.safetensors", "guarantee.json", "metrics.json"
_FILES = (FILE, "run.safetensors", "journal.jsonl", MODEL, GUARANTEE, METRICS)
_SECRET = ("seed", "data_path", "ledger", "salt", "table")
# What goes without saying, if all of a row do.
_USUAL: tuple[dict[str, Any], ...] = (
    {"choices": {}},
    {"recipe": None},
    {"momentum": 0.0, "views": 1, "averaging": 0.0},
)
_VERSION = 1
# Optimizers divide by small numbers; from here on steps are no numbers any more.
_NO_STEP = 1e30


@dataclass(frozen=True)
class Typed:
    """The options of `tacit train`, None where nothing was typed."""

    data_path: Path | None
    method: str | None
    mode: ModeName | None
    model: str | None
    epsilon: float | None
    delta: float | None
    multiplier: float | None
    lot_size: float | None
    population: float | None
    steps: float | None
    epochs: float | None
    clip_norm: float | None
    learning_rate: float | None
    micro_batch: float | None
    seed: float | None
    out: Path | None
    ledger: str | None
    target: str | None = None
    bounds: Path | None = None
    set: tuple[str, ...] | None = None
    momentum: float | None = None
    views: float | None = None
    averaging: float | None = None

    def given(self) -> list[str]:
        """The options that were typed, as they are spelt."""
        return [f"--{one.name.replace('_', '-')}" for one in fields(self) if getattr(self, one.name) is not None]


@dataclass(frozen=True)
class Settings:
    """Everything that a run needs beside its data; nothing in it was learnt from them.

    `epsilon` is the budget: the one typed, or what the typed multiplier costs, so that a resumed run never costs
    more than was announced; None until that is known, and where nothing finite is proven. In paper mode it is
    what the paper claims to keep. `is_declared` says that the population was declared, and is not the published one.
    `table` is where a user's own table lies, its target and its bounds. `salt` is a secret: with it, whoever trained
    can show which data the fingerprint in the report is of. `choices` are those of the method that `--set` made.
    `momentum`, `views` and `averaging` say how the model follows what is released.
    `recipe` is all that `--recipe auto` chose; None for a run without one.
    """

    data: str
    data_path: str | None
    method: str
    model: str
    epsilon: float | None
    delta: float
    multiplier: float | None
    lot_size: float
    population: int
    is_declared: bool
    steps: int
    clip_norm: float
    learning_rate: float
    micro_batch: int | None
    seed: int | None
    ledger: str | None = None
    mode: ModeName = "rigorous"
    table: dict[str, str] | None = None
    salt: str | None = None
    choices: dict[str, Value] = field(default_factory=dict)
    momentum: float = 0.0
    views: int = 1
    averaging: float = 0.0
    recipe: dict[str, Any] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """How many lots it takes until each example was in one, on average; rounded."""
        return max(1, round(self.population / self.lot_size))

    def write(self, folder: Path) -> None:
        """Keep the settings in the folder of the run, for its owner alone: the salt and paths are among them."""
        text = json.dumps({"version": _VERSION, **asdict(self)}, indent=1)
        with open(folder / FILE, "w", encoding="utf-8", opener=for_the_owner) as file:
            file.write(text)

    def public(self) -> dict[str, Any]:
        """What may be given away: a seed or the salt would take secrets along, and a path says who trained."""
        usual = [row for row in _USUAL if all(getattr(self, name) == value for name, value in row.items())]
        hidden = (*_SECRET, *(name for row in usual for name in row))
        kept = {name: value for name, value in asdict(self).items() if name not in hidden}
        return {**kept, "model": Path(self.model).name}

    @said_later()
    def load(self, data_path: Path | None = None) -> Data:
        """The data that the run is about; `data_path` says where they have moved."""
        if self.table is None:
            return datasets.load(self.data, data_path or self.data_path)
        bounds = Bounds.parse(self.table["bounds"], self.table["folder"])
        path = data_path or self.table["path"]
        return load_table(path, target=self.table["target"], bounds=bounds, population=self.population)

    @staticmethod
    def read(folder: Path) -> Settings:
        """The settings that `write` kept."""
        try:
            values: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
            version = values.pop("version")
            if version != _VERSION:
                raise CannotResume(f"{folder / FILE} has version {version}; this tacit reads version {_VERSION}.")
            return _without_known_salt(_sound(Settings(**values)))
        except OSError as error:
            raise CannotResume(
                f"There is no run to resume in {folder}: {FILE} cannot be read ({error.strerror}). "
                "Give the folder that --out named."
            ) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CannotResume(f"{folder / FILE} was not written by tacit train: {error}.") from error


def _without_known_salt(settings: Settings) -> Settings:
    """Without a salt that was made from the seed, so that no fingerprint is written with it again."""
    return settings if is_secret_salt(settings.salt, settings.seed) else replace(settings, salt=None)


def _sound(settings: Settings) -> Settings:
    """The settings, unless one of them is nothing that `settle` makes: somebody has edited them."""
    for name in ("delta", "lot_size", "clip_norm", "learning_rate"):
        _validate.positive(name, getattr(settings, name))
    for name in ("epsilon", "multiplier"):
        _validate.positive(name, _either(getattr(settings, name), 1.0))
    for name in ("momentum", "averaging"):
        share(name, getattr(settings, name))
    for name in ("population", "steps", "views"):
        _validate.count(name, getattr(settings, name))
    _validate.open_unit("delta", settings.delta)
    _validate.count("micro_batch", _either(settings.micro_batch, 1))
    _validate.count("seed", _either(settings.seed, 0), at_least=0)
    if settings.table is not None and settings.table.keys() != {"path", "target", "bounds", "folder"}:
        raise InvalidArgument("table says something else than where it lies, its target and its bounds")
    texts = [settings.data, settings.method, settings.model, *(settings.table or {}).values()]
    texts += [text for text in (settings.data_path, settings.ledger, settings.salt) if text is not None]
    if not all(isinstance(text, str) for text in texts) or settings.mode not in ("rigorous", "paper"):
        raise InvalidArgument("a name, a path or the mode is something else than text")
    bytes.fromhex(settings.salt or "")
    if read_choices(find_method(settings.method).name, as_texts(settings.choices)) != settings.choices:
        raise InvalidArgument("a choice is nothing that the method takes")
    if settings.recipe is not None:
        _sound_recipe(Recipe(**settings.recipe), settings)
    return settings


def _sound_recipe(recipe: Recipe, settings: Settings) -> None:
    """Raise `InvalidArgument` unless the recipe is one, and says the same as the settings."""
    for name in ("steps", "lot_size", "population", "clip_norm", "learning_rate"):
        if getattr(recipe, name) != getattr(settings, name):
            raise InvalidArgument(f"the recipe has another {name.replace('_', ' ')} than the settings")
    if recipe.kind not in get_args(Kind) or recipe.preparation not in get_args(Preparation):
        raise InvalidArgument("the recipe is of no known kind")
    _validate.open_unit("share", recipe.share)
    _validate.open_unit("momentum", recipe.momentum)


@said_later()
def load_typed(name: str | None, typed: Typed) -> tuple[Data, dict[str, str] | None]:
    """The data set of this name, or the table in this file; for a table also what to keep to read it again."""
    if name is None:
        raise InvalidArgument(
            f"Which data? Name one of {', '.join(datasets.names())}, or a table of your own such as patients.csv; or "
            "resume a saved run by --resume FOLDER."
        )
    if not is_table(name):
        _refuse_tables(name, is_meant=typed.target is not None or typed.bounds is not None)
        return datasets.load(name, typed.data_path), None
    if typed.target is None or typed.bounds is None:
        missing = " and ".join(f"--{each}" for each in ("target", "bounds") if getattr(typed, each) is None)
        raise InvalidArgument(
            f"{name} is a table of your own and needs {missing}: --target names the column to predict, --bounds a TOML "
            f"file that declares what is publicly known about each column. Write it like this: {EXAMPLE}."
        )
    bounds = Bounds.read(typed.bounds)
    population = None if typed.population is None else _validate.count("population", typed.population)
    path = str((typed.data_path or Path(name)).expanduser().absolute())
    data = load_table(path, target=typed.target, bounds=bounds, population=population)
    return data, {"path": path, "target": typed.target, "bounds": bounds.text, "folder": bounds.folder}


def _refuse_tables(name: str, *, is_meant: bool) -> None:
    """Raise `InvalidArgument` for a table in a form that is not read, or options for one beside a data set's name."""
    if is_meant and name in datasets.names():
        raise InvalidArgument(f"--target and --bounds are for a table of your own, such as patients.csv. Got {name}.")
    if is_meant or Path(name).suffix or Path(name).name != name:
        raise InvalidArgument(
            f"{name} is no table that can be read. Its ending says how, and those that are known are {FORMATS}. Save "
            f"the table as one of these, such as {Path(name).stem}.csv."
        )


def settle(data: Data, typed: Typed, table: dict[str, str] | None = None) -> Settings:
    """What was typed with the data set's defaults; `InvalidArgument` for what means nothing."""
    defaults = defaults_for(data, typed.model)
    method, mode = _method(typed.method), typed.mode or "rigorous"
    population = _validate.count("population", _either(typed.population, data.population))
    # Smaller than the default lots, a declared population is drawn from in tenths.
    lot_size = _either(typed.lot_size, defaults.lot_size if defaults.lot_size <= population else population / 10)
    epochs = typed.epochs if typed.epochs is not None or typed.steps is not None else defaults.epochs
    plan = Plan(typed.multiplier, None, lot_size, population, typed.steps, epochs)
    following = settle_following(typed, defaults, data, method)
    steps, delta = plan.step_count(), settled_delta(typed.delta, population)
    default_rate = defaults.adam_rate if method == "noisy_adam" else defaults.learning_rate
    plan.sampling_rate()
    return Settings(
        data=data.name,
        data_path=None if typed.data_path is None else str(typed.data_path.absolute()),
        method=method,
        model=_model(typed.model) or defaults.model,
        epsilon=_budget(typed),
        delta=delta,
        multiplier=typed.multiplier,
        lot_size=float(lot_size),
        population=population,
        is_declared=typed.population is not None or table is not None,
        steps=steps,
        clip_norm=_validate.positive("clip_norm", _either(typed.clip_norm, defaults.clip_norm)),
        learning_rate=_validate.positive("learning_rate", _either(typed.learning_rate, default_rate), below=_NO_STEP),
        micro_batch=following.micro_batch,
        seed=None if typed.seed is None else _validate.count("seed", typed.seed, at_least=0),
        ledger=None if typed.ledger is None else storage_at(typed.ledger).saved_place,
        mode=mode,
        table=table,
        salt=new_salt(),
        choices=_choices(method, mode, typed.set or ()),
        momentum=following.momentum,
        views=following.views,
        averaging=following.averaging,
    )


def _choices(method: str, mode: ModeName, texts: tuple[str, ...]) -> dict[str, Value]:
    """What was chosen of the method, made once so that what does not fit together is refused before anything else."""
    if not texts:
        return {}
    chosen = read_choices(method, texts)
    find_method(method).load()(mode=mode, **chosen)
    return chosen


def _model(typed: str | None) -> str | None:
    """A model's name as it is, or the place of the user's own wherever the run is resumed from."""
    if typed is None or ":" not in typed:
        return typed
    path, _, function = typed.rpartition(":")
    return f"{Path(path).expanduser().absolute()}:{function}"


def _method(typed: str | None) -> str:
    """The name of a method that trains any model."""
    chosen = find_method(typed or "dpsgd")
    if chosen.kind != "gradient":
        raise InvalidArgument(
            f"{chosen.name} is for linear models, and does not train by noisy gradients of any model: use it from "
            f"tacit.estimators. `tacit train` takes {', '.join(list_gradient_names())}."
        )
    return chosen.name


def _budget(typed: Typed) -> float | None:
    if (typed.epsilon is None) == (typed.multiplier is None):
        both = typed.epsilon is not None
        raise InvalidArgument(
            f"{'Both' if both else 'Neither'} of --epsilon and --multiplier {'were' if both else 'was'} given, and one "
            "of them says how much "
            "noise there is. Give a budget (--epsilon, and --delta) to have the multiplier found, or --multiplier."
        )
    if typed.multiplier is not None:
        _validate.positive("multiplier", typed.multiplier)
    return None if typed.epsilon is None else _validate.positive("epsilon", typed.epsilon)


def settled_delta(typed: float | None, population: int) -> float:
    """What was typed, or else 1e-5, but always below a tenth of 1 / population."""
    return min(1e-5, 0.1 / population) if typed is None else _validate.open_unit("delta", typed)


def _either(typed: float | None, default: float) -> float:
    return default if typed is None else typed


def refuse_unless_free(folder: Path | None) -> None:
    """Raise `InvalidArgument`, before anything is worked out, if the folder cannot take a new run."""
    refuse_unless_writable(folder or Path("runs"))
    if folder is None:
        return
    there = [name for name in _FILES if (folder / name).exists()]
    if there:
        raise InvalidArgument(
            f"--out {folder} holds a run already ({', '.join(there)}). Go on with it by --resume {folder}, or choose "
            "another folder."
        )


def free_folder(data: str) -> Path:
    """A folder of that name that is not there yet."""
    number = 1
    while (folder := Path("runs") / f"{data}-{number}").exists():
        number += 1
    return folder
