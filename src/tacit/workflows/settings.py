"""The options of a training run, the settings that follow from them, and what is said about them.

Warnings about public numbers are `Caution`s: what is proven holds all the same. They are shown to whoever trains and
released nowhere, because the number of examples is private.
"""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

import tacit
from tacit import _validate
from tacit._files import expand_home
from tacit.datasets import FORMATS, Bounds, Data, is_table, list_names, load_images, load_table
from tacit.datasets import load as load_named
from tacit.datasets._data import TextForm, form_of
from tacit.errors import CannotResume, Caution, InvalidArgument
from tacit.guarantee import Assumption, Guarantee
from tacit.ledger import Reservation
from tacit.ledger.storage import storage_at
from tacit.methods.choices import Value, as_texts
from tacit.methods.registry import find_method
from tacit.randomness import new_salt, salted_fingerprint
from tacit.reports.scores import Score
from tacit.training.folder import RunFolder
from tacit.workflows.arguments import list_given, warn_about_delta

_SECRET = ("seed", "data_path", "ledger", "salt", "table", "dataset")
# Left out of public settings if all values of a row are these defaults.
_USUAL: tuple[dict[str, Any], ...] = (
    {"choices": {}},
    {"recipe": None},
    {"side": None},
    {"momentum": 0.0, "views": 1, "averaging": 0.0},
)
SETTINGS_VERSION = 1
ModeName = Literal["rigorous", "paper"]
ARRAYS = "arrays"
# The key of a user's own images in what is saved to read them again.
FOLDER = "images"
# Pixels a side of the user's own images: for features by filters, and for networks that were trained on public images.
_SIDE, _SIDE_FOR_NETWORKS = 32, 160
# A user's own table or arrays: what to save so that they can be read again.
Table = dict[str, str]
# What a model.safetensors says besides its weights: the form of raw rows, and how the network is made again.
FORM, NETWORK = "form", "network"

NOT_FOR_RELEASE = (
    "The seed makes the noise reproducible, so anybody who knows it can remove it: do not release this model."
)


@contextmanager
def ignore_cautions() -> Iterator[None]:
    """Load data without warnings: `warn_about` gives them later, when the options are known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        yield


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of `tacit train` and `tacit.train`; None where an option was not given."""

    data_path: Path | None = None
    method: str | None = None
    mode: ModeName | None = None
    model: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    multiplier: float | None = None
    lot_size: float | None = None
    population: float | None = None
    steps: float | None = None
    epochs: float | None = None
    clip_norm: float | None = None
    learning_rate: float | None = None
    micro_batch: float | None = None
    seed: float | None = None
    out: Path | None = None
    ledger: str | None = None
    target: str | None = None
    bounds: Path | None = None
    set: tuple[str, ...] | None = None
    momentum: float | None = None
    views: float | None = None
    averaging: float | None = None
    classes: int | None = None
    dataset: str | None = None
    memory: str | None = None
    features: str | None = None

    def list_given(self) -> list[str]:
        """The options that were given, as the command line spells them."""
        return list_given(self)


@dataclass(frozen=True)
class Settings:
    """Everything that a run needs besides its data. Nothing in it was learnt from the data.

    `epsilon` is the budget: as given, or what the given multiplier costs, so that a resumed run never costs more than
    was announced. It is None until that is known, and where no finite epsilon is proven. In paper mode it is the
    epsilon that the paper claims. `is_declared`: the population was declared by the user, it is not a published size.
    `table`: path, target and bounds of the user's own table. `salt` is secret: with it, the owner can show which data
    the fingerprint in the report belongs to. `choices`: the options of the method that `--set` gave. `recipe`:
    everything that the automatic recipe chose; None for a run without a recipe. `dataset` is the name in the ledger, if
    it is another than that of the data. `side`: the user's own images, in the folder `data_path`, are scaled to it.
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
    dataset: str | None = None
    side: int | None = None

    @staticmethod
    def of(data: Data, options: TrainOptions, table: Table | None, **resolved: Any) -> Settings:
        """The settings that every kind of run takes from its options, and those that this kind has `resolved`."""
        population = resolve_population(data, options)
        is_folder = table is not None and FOLDER in table
        data_path = Path(table[FOLDER]) if is_folder and table is not None else options.data_path
        shared: dict[str, Any] = {
            "data": data.name,
            "data_path": None if data_path is None else str(data_path.absolute()),
            "side": data.shape[-1] if is_folder else None,
            "delta": resolve_delta(options.delta, population),
            "population": population,
            "is_declared": options.population is not None or table is not None,
            "micro_batch": None,
            "multiplier": options.multiplier,
            "seed": None if options.seed is None else _validate.count("seed", options.seed, at_least=0),
            "ledger": None if options.ledger is None else storage_at(options.ledger).saved_place,
            "table": None if is_folder else table,
            "salt": new_salt(),
            "dataset": options.dataset,
        }
        return Settings(**shared | resolved)

    @property
    def ledger_name(self) -> str:
        """The name of the data set in the ledger."""
        return self.data if self.dataset is None else self.dataset

    @property
    def steps_per_epoch(self) -> int:
        """How many lots it takes until each example was in one, on average; rounded."""
        return max(1, round(self.population / self.lot_size))

    def write(self, folder: Path) -> None:
        """Save the settings with the run, for its owner only: they contain the salt and local paths."""
        RunFolder(folder).write_settings({"version": SETTINGS_VERSION, **asdict(self)})

    def public(self) -> dict[str, Any]:
        """The settings that may be published: without seed, salt and local paths."""
        usual = [row for row in _USUAL if all(getattr(self, name) == value for name, value in row.items())]
        hidden = (*_SECRET, *(name for row in usual for name in row))
        kept = {name: value for name, value in asdict(self).items() if name not in hidden}
        return {**kept, "model": Path(self.model).name}

    @ignore_cautions()
    def load(
        self, data_path: Path | None = None, source: Any = None, classes: int | None = None, memory: str | None = None
    ) -> Data:
        """Load the data of the run; `data_path` if they have moved. `source`: arrays or a DataFrame, given again."""
        if isinstance(source, Data):
            return source
        is_in_memory = self.data == ARRAYS or (self.table is not None and not self.table["path"])
        if is_in_memory and source is None and data_path is None:
            raise CannotResume(
                "This run was trained on arrays or a DataFrame, which are not saved. Give them again as `data`."
            )
        if source is not None and not is_in_memory:
            raise InvalidArgument("A run on files reads them again when it is resumed. Leave out `data`.")
        if self.data == ARRAYS:
            return _take_arrays(source, TrainOptions(population=self.population, classes=classes))
        if self.side is not None:
            return load_images(data_path or self.data_path or "", population=self.population, side=self.side)
        if self.table is None:
            return load_named(self.data, data_path or self.data_path)
        bounds = Bounds.parse(self.table["bounds"], self.table["folder"])
        rows = source if source is not None else data_path or self.table["path"]
        how: dict[str, Any] = {"population": self.population, "memory": memory}
        return load_table(rows, target=self.table["target"], bounds=bounds, **how)


@ignore_cautions()
def load_data(source: Any, options: TrainOptions, *, hold_out: bool = True) -> tuple[Data, Table | None]:
    """Load a data set by name, a table from a file or a DataFrame, or take `Data`, or a pair of arrays, as they are.

    With `hold_out=False` every row of a table is trained on, whatever its bounds say.
    """
    if isinstance(source, Data):
        return source, None
    if isinstance(source, (str, Path)) and expand_home(source).is_dir() and str(source) not in list_names():
        population = None if options.population is None else _validate.count("population", options.population)
        folder = expand_home(source).absolute()
        side = _SIDE if options.features is None else _SIDE_FOR_NETWORKS
        return load_images(folder, population=population, side=side), {FOLDER: str(folder)}
    if isinstance(source, (str, Path)):
        name = str(source)
        if is_table(name):
            return _load_own(str(expand_home(options.data_path or name).absolute()), name, options, hold_out)
        _refuse_unless_named(name, has_table_options=options.target is not None or options.bounds is not None)
        return load_named(name, options.data_path), None
    if source is None:
        raise InvalidArgument(
            f"Which data? Give the name of a data set ({', '.join(list_names())}), a table of your own such "
            "as patients.csv, or resume a saved run with --resume FOLDER."
        )
    if isinstance(source, tuple):
        return _take_arrays(source, options), None
    return _load_own(source, "a DataFrame", options, hold_out)


def _load_own(source: Any, name: str, options: TrainOptions, hold_out: bool) -> tuple[Data, Table | None]:
    if options.target is None or options.bounds is None:
        form = "--{}" if isinstance(source, str) else "{}="
        missing = " and ".join(form.format(each) for each in ("target", "bounds") if getattr(options, each) is None)
        what = "" if options.target is not None else "The target is the column to predict. "
        template = shlex.join(["tacit", "bounds", name, "--target", options.target or "COLUMN"])
        if not isinstance(source, str):
            name, template = "The table", "tacit.bounds(table, target=..., out='bounds.toml')"
        raise InvalidArgument(
            f"{name} needs {missing}, like every table of your own. {what}The bounds are a TOML file that declares "
            f"what is public about each column. Write a template of it with: {template}"
        )
    bounds = Bounds.read(options.bounds)
    population = None if options.population is None else _validate.count("population", options.population)
    declared = bounds if hold_out else replace(bounds, held_out=0.0)
    how: dict[str, Any] = {"population": population, "memory": options.memory}
    data = load_table(source, target=options.target, bounds=declared, **how)
    path = source if isinstance(source, str) else ""
    return data, {"path": path, "target": options.target, "bounds": bounds.text, "folder": bounds.folder}


def _take_arrays(pair: tuple[Any, Any], options: TrainOptions) -> Data:
    """Inputs and targets in memory. Integer targets are classes 0, 1, ...; other targets are numbers."""
    inputs, targets = (np.asarray(part) for part in pair)
    if len(inputs) != len(targets) or inputs.ndim < 2:
        raise InvalidArgument(
            f"data must be a pair of inputs and targets with one row per example. Got shapes {inputs.shape} and "
            f"{targets.shape}."
        )
    if options.population is None:
        raise InvalidArgument("Arrays need population=N, the public number of examples: the exact count is private.")
    is_class = np.issubdtype(targets.dtype, np.integer)
    if is_class and not options.classes:
        raise InvalidArgument("Integer targets are classes: give classes=N, their public number.")
    nothing = inputs[:0].astype(np.float32), targets[:0]
    return Data(
        ARRAYS,
        (inputs.astype(np.float32), targets.astype(np.int64) if is_class else targets.astype(np.float32)),
        nothing,
        classes=options.classes if is_class else None,
        population=_validate.count("population", options.population),
        scaling="the arrays are used as given",
        source="your own arrays",
        is_test_private=True,
        is_tested=False,
    )


def _refuse_unless_named(name: str, *, has_table_options: bool) -> None:
    """Raise `InvalidArgument` for a table in an unknown format, or table options beside the name of a data set."""
    if has_table_options and name in list_names():
        raise InvalidArgument(f"--target and --bounds are for a table of your own, such as patients.csv. Got {name}.")
    if has_table_options or Path(name).suffix or Path(name).name != name:
        raise InvalidArgument(
            f"{name} is not a table that tacit can read. It reads {FORMATS}. Save the table in one of these formats, "
            f"such as {Path(name).stem}.csv."
        )


def refuse_people(data: Data, why: str) -> None:
    """Raise `InvalidArgument` for data whose unit is a person, where only rows are protected."""
    if data.owners is not None:
        raise InvalidArgument(
            f"{why}, which does not protect a person with several. Use `tacit train` with a recipe or a gradient "
            "method, or remove the column of type unit from the bounds if everybody has one row."
        )


def is_linear_method(name: str | None) -> bool:
    """Whether this method trains linear models by one release."""
    return name is not None and find_method(name).kind == "linear"


def resolve_delta(delta: float | None, population: int) -> float:
    """The given delta; by default 1e-5, or a tenth of 1 / population if that is less."""
    return min(1e-5, 0.1 / population) if delta is None else _validate.open_unit("delta", delta)


def resolve_population(data: Data, options: TrainOptions) -> int:
    """The declared population, or else the published one."""
    return _validate.count("population", or_default(options.population, data.population))


def check_share(name: str, value: Any) -> float:
    """A number in [0, 1)."""
    return 0.0 if value == 0 else _validate.open_unit(name, value)


def or_default(value: float | None, default: float) -> float:
    """The value, or the default if none was given."""
    return default if value is None else value


def add_assumptions(proven: Guarantee, settings: Settings, data: Data) -> Guarantee:
    """Add what is assumed about population, scaling and test examples."""
    source = "declared by the user" if settings.is_declared else f"the published size of {settings.data}"
    population = Assumption("public_population", f"The population of {settings.population:,} is public: {source}.")
    return replace(proven, assumptions=(*proven.assumptions, population, *data.assumptions))


def describe_data(data: Data, salt: str | None) -> dict[str, Any]:
    """What may be published about the data. The fingerprint commits to them and reveals nothing without the salt."""
    return {
        "example": data.example,
        "scaling": data.scaling,
        "source": data.source,
        "classes": data.classes,
        "shape": list(data.shape),
        "test": "held out" if data.is_test_private else "public",
        "fingerprint": None if salt is None else salted_fingerprint(salt, *data.identified),
    }


def describe_model(data: Data, settings: Settings) -> dict[str, str]:
    """What is stored beside the weights, so that they predict from raw rows. It is public: nothing depends on rows."""
    form = form_of(data)
    if settings.recipe is not None and settings.recipe["kind"] == "text":
        form = replace(form, inputs=TextForm())
    shape = {"shape": list(data.shape), "classes": data.classes, "vocabulary": list(data.vocabulary)}
    return {
        "data": settings.data,
        "model": Path(settings.model).name,
        "method": settings.method,
        FORM: json.dumps(form.to_json()),
        NETWORK: json.dumps({**shape, "is_linear": settings.recipe is None and is_linear_method(settings.method)}),
    }


def write_model(
    folder: RunFolder, data: Data, settings: Settings, weights: Mapping[str, Tensor], guarantee: Guarantee
) -> None:
    """Write the weights that are handed out, with all that is needed to predict with them, and their guarantee."""
    folder.write_model(weights, {**describe_model(data, settings), "guarantee": guarantee.to_json()})


def describe_run(
    data: Data, settings: Settings, scores: Mapping[int, Score], /, *, steps: int, is_finished: bool, **more: Any
) -> dict[str, Any]:
    """What metrics.json holds of every run: public settings, and scores by step."""
    return {
        "settings": settings.public(),
        "multiplier": settings.multiplier,
        "steps": steps,
        "is_finished": is_finished,
        "test": [{"step": step, **one.as_row()} for step, one in scores.items()],
        "test_examples": None if data.is_test_private else len(data.test[1]),
        **more,
    }


def export_run(folder: Path, metrics: dict[str, Any], score: Score | None, guarantee: Guarantee) -> dict[str, Any]:
    """What `--json` prints of a finished run."""
    about = {"tacit": tacit.__version__, "folder": str(folder)}
    found = {"score": score and score.as_row(), "guarantee": json.loads(guarantee.to_json())}
    return {**about, **metrics, **found}


def describe_method(settings: Settings) -> str:
    """The method with its options, and its form if that is the published one."""
    published = ["as published"] if settings.mode == "paper" else []
    return " ".join([settings.method, *as_texts(settings.choices), *published])


def write_resume_command(folder: Path) -> str:
    """The command that resumes the run in the folder."""
    return shlex.join(["tacit", "train", "--resume", str(folder)])


def describe_reservation(booking: Reservation | None) -> str:
    """What the ledger still reserves for a stopped run, and how to give it back."""
    if booking is None:
        return ""
    settle = shlex.join(["tacit", "ledger", "settle", str(booking.ledger.path), booking.run])
    return f" The ledger keeps the rest reserved; to give it back: {settle}."


def warn_about(data: Data, settings: Settings) -> None:
    """Warn of a population that does not fit the data, and of a large delta."""
    found = data.compare_size(settings.population, is_declared=settings.is_declared)
    if found is not None:
        warnings.warn(_explain_size(data, settings, found), Caution, stacklevel=3)
    warn_about_delta(settings.delta, settings.population)


def _explain_size(data: Data, settings: Settings, found: str) -> str:
    """What there being more or fewer examples than the population says means. It does not say how many."""
    holds = f"The guarantee holds all the same, but lots will have {found} examples than planned, with the same noise."
    lots = "" if settings.recipe is not None else ", and a --lot-size that fits"
    if settings.is_declared:
        where = "as rows in the bounds, or with --population" if settings.table is not None else "with --population"
        return (
            f"{data.name} has far {found} training examples than the declared population of {settings.population:,}. "
            f"{holds} If their approximate number may be public, declare it {where}{lots}. This message was computed "
            "from private rows and is not for release."
        )
    return (
        f"this copy of {data.name} is not the published one: it has {found} training examples than the published "
        f"{settings.population:,}. {holds} If their number may be public, declare it with --population{lots}."
    )
