"""Folders that can be reproduced: where they are, and the code in them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from tacit.errors import InvalidArgument
from tacit.experiments.order import Order, Size, read_order, read_toml
from tacit.experiments.records import Cell, Record, Records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS, PACKAGE = "settings.toml", "experiments"


class Experiment(Protocol):
    """What a target's experiment.py defines. All three are functions of what was asked for and what was found."""

    def cells(self, order: Order, records: Records) -> Iterator[Cell]:
        """Everything there is to run. Later cells may look at what earlier ones found."""

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
        """What the command line calls it."""
        return self.folder.name

    @property
    def title(self) -> str:
        """What it reproduces, in a line."""
        return str(self._settings()["title"])

    @property
    def shown(self) -> Size:
        """The size of the runs that are shown in its README."""
        return cast(Size, self._settings().get("shown", "full"))

    def order(self, size: Size) -> Order:
        """What is to be done at this size."""
        return read_order(self.folder, size)

    def experiment(self) -> Experiment:
        """Its code. Folders may import from each other as `experiments.NAME`."""
        root = str(self.folder.parent.parent)
        if root not in sys.path:
            sys.path.insert(0, root)
        return cast(Experiment, importlib.import_module(f"{PACKAGE}.{self.name}.experiment"))

    def _settings(self) -> dict[str, Any]:
        return read_toml(self.folder / SETTINGS)


def find_folder(given: Path | None = None) -> Path:
    """Where experiments lie: as given, else in the clone that tacit runs from, else in the working folder."""
    clone = Path(__file__).resolve().parents[3] / PACKAGE
    looked = [given] if given is not None else [clone, Path.cwd() / PACKAGE]
    for folder in looked:
        if folder.name == PACKAGE and any(folder.glob(f"*/{SETTINGS}")):
            return folder.resolve()
    raise InvalidArgument(
        f"There are no experiments in {' or '.join(map(str, looked))}. They come with the repository, not with the "
        "installed package: clone it, and run tacit reproduce in the clone, or give --experiments CLONE/experiments."
    )


def all_targets(folder: Path) -> list[Target]:
    """Every target of a folder, by name."""
    return [Target(path.parent) for path in sorted(folder.glob(f"*/{SETTINGS}"))]


def find_target(folder: Path, name: str) -> Target:
    """The target called `name`; a dash is as good as an underscore."""
    known = {target.name: target for target in all_targets(folder)}
    wanted = name.replace("-", "_")
    if wanted not in known:
        raise InvalidArgument(f"There is no experiment {name!r}. Known: {', '.join(known)}.")
    return known[wanted]
