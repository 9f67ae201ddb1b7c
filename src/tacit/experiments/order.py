"""What was asked for: the settings at the size chosen, the paper's numbers, and the data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.datasets import Data

Size = Literal["full", "reduced", "quick"]
SIZES: tuple[Size, ...] = get_args(Size)

_LOADED: dict[str, Data] = {}


@dataclass(frozen=True)
class Order:
    """Settings with those of the size laid over them, and what the paper reports."""

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
        """Whether there is a copy of this data set where they are kept. Nothing is downloaded."""
        from tacit.datasets import is_kept

        return is_kept(name)


def read_order(folder: Path, size: Size) -> Order:
    """The order that a folder's files describe."""
    settings, expected = read_toml(folder / "settings.toml"), read_toml(folder / "expected.toml")
    changes = {each: settings.pop(each, {}) for each in SIZES}
    return Order(_laid_over(settings, changes[size]), expected, size)


def read_toml(path: Path) -> dict[str, Any]:
    """A file of settings, or an error that names the file and the line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}. Every experiment has this file.") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{path} is no TOML: {error}.") from error


def _laid_over(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged, everything else is replaced. What the settings do not know is a misspelling."""
    unknown = [name for name in changes if name not in settings]
    if unknown:
        raise InvalidArgument(
            f"A size changes {', '.join(unknown)}, which is no setting. Known: {', '.join(settings)}."
        )
    merged = dict(settings)
    for name, value in changes.items():
        merged[name] = _laid_over(settings[name], value) if isinstance(value, dict) else value
    return merged
