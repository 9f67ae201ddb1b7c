"""The commands behind a comparison as they may be given away: a path says who compared."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

# What stands for a place; for all others the last part of their path does.
_STANDS = {"--data-path": "DATA", "--out": "FOLDER", "--bounds": "bounds.toml"}
_IN_WORDS = {
    "DATA": "DATA is your copy of the data.",
    "FOLDER": "FOLDER is where the cells are kept.",
}


def without_places(command: str) -> str:
    """The same command, with names for the places that only whoever typed it has.

    >>> without_places("tacit compare adult --data-path /home/ann/adult.zip --out=../tried --epsilon 0.5,1")
    'tacit compare adult --data-path DATA --out=FOLDER --epsilon 0.5,1'
    >>> without_places("tacit compare ann/patients.csv --bounds ann/b.toml --model ~/net.py:make")
    'tacit compare patients.csv --bounds bounds.toml --model net.py:make'
    """
    told: list[str] = []
    for word in shlex.split(command):
        option, equals, value = word.partition("=")
        if equals and option.startswith("--"):
            told.append(f"{option}={_told(option, value)}")
        else:
            told.append(_told(told[-1] if told else "", word))
    return shlex.join(told)


def _told(option: str, value: str) -> str:
    return _STANDS.get(option, Path(value).name or value)


def places_in_words(commands: Sequence[str]) -> list[str]:
    """What to put for the names of places in such commands.

    >>> places_in_words(["tacit compare adult --data-path DATA", "tacit compare iris"])
    ['DATA is your copy of the data.']
    """
    words = {word.rpartition("=")[2] for command in commands for word in shlex.split(command)}
    return [said for name, said in _IN_WORDS.items() if name in words]
