"""The folders that can be reproduced: their settings, the paper's numbers, and their code."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args

from experiments.library.records import Cell, Record, Records

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tacit.datasets import Data

Size = Literal["full", "reduced", "quick"]
SIZES: tuple[Size, ...] = get_args(Size)
SETTINGS = "settings.toml"

_LOADED: dict[str, Data] = {}


@dataclass(frozen=True)
class Order:
    """The settings of a target at one size, and the numbers that the paper reports."""

    settings: Mapping[str, Any]
    expected: Mapping[str, Any]
    size: Size = "full"

    def load(self, name: str) -> Data:
        """The data set called `name`, read once. `DataMissing` says how to get it."""
        from tacit.datasets import load

        if name not in _LOADED:
            _LOADED[name] = load(name)
        return _LOADED[name]

    def has(self, name: str) -> bool:
        """Whether a copy of this data set is on this machine. Downloads nothing."""
        from tacit.datasets import is_kept

        return is_kept(name)


class Experiment(Protocol):
    """What a target's experiment.py defines. All three are functions of what was asked for and what was found."""

    def cells(self, order: Order, records: Records) -> Iterator[Cell]:
        """Everything there is to run. Later cells may depend on the results of earlier ones."""

    def tables(self, order: Order, records: list[Record]) -> Mapping[str, str]:
        """Markdown by name: ours beside the paper's, with the certified epsilon. Runs may be missing."""

    def pictures(self, order: Order, records: list[Record]) -> Mapping[str, Figure]:
        """Figures by name."""


@dataclass(frozen=True)
class Target:
    """A folder with an experiment."""

    folder: Path

    @property
    def name(self) -> str:
        """The name on the command line."""
        return self.folder.name

    @property
    def title(self) -> str:
        """What it reproduces, in one line."""
        return str(self._settings()["title"])

    @property
    def shown(self) -> Size:
        """The size of the runs that its README shows."""
        return cast(Size, self._settings().get("shown", "full"))

    def order(self, size: Size) -> Order:
        """Its settings at this size."""
        return read_order(self.folder, size)

    def experiment(self) -> Experiment:
        """Its code. Folders may import from each other as `experiments.NAME`."""
        return cast(Experiment, importlib.import_module(f"experiments.{self.name}.experiment"))

    def _settings(self) -> dict[str, Any]:
        return _read_toml(self.folder / SETTINGS)


def all_targets(folder: Path) -> list[Target]:
    """Every target of a folder, by name."""
    return [Target(path.parent) for path in sorted(folder.glob(f"*/{SETTINGS}"))]


def find_target(folder: Path, name: str) -> Target:
    """The target called `name`, with dashes or underscores."""
    known = {target.name: target for target in all_targets(folder)}
    wanted = name.replace("-", "_")
    if wanted not in known:
        raise InvalidArgument(f"There is no experiment {name!r}. Known: {', '.join(known)}.")
    return known[wanted]


def read_order(folder: Path, size: Size) -> Order:
    """The settings in a folder, with the changes for this size applied."""
    settings, expected = _read_toml(folder / SETTINGS), _read_toml(folder / "expected.toml")
    changes = {each: settings.pop(each, {}) for each in SIZES}
    return Order(_apply_changes(settings, changes[size]), expected, size)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}. Every experiment needs this file.") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{path} is not valid TOML: {error}.") from error


def _apply_changes(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables and replace other values. A name that is not in the settings is a misspelling."""
    unknown = [name for name in changes if name not in settings]
    if unknown:
        raise InvalidArgument(
            f"A size changes {', '.join(unknown)}, which is not a setting. Known: {', '.join(settings)}."
        )
    merged = dict(settings)
    for name, value in changes.items():
        merged[name] = _apply_changes(settings[name], value) if isinstance(value, dict) else value
    return merged
