"""Where the files of a data set may lie: in a folder, or in those that unpacking an archive leaves in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tacit.errors import InvalidArgument

_SHOWN = 5


def spellings(name: str) -> tuple[str, ...]:
    """The name of a data set as such, and as a file system may have it.

    >>> spellings("mnist"), spellings("fashion-mnist")
    (('mnist',), ('fashion-mnist', 'fashion_mnist'))
    """
    return tuple(dict.fromkeys((name, name.replace("-", "_"))))


def below(where: Path, inside: Sequence[str]) -> Iterator[Path]:
    """Those of the folders `inside` that are there. What is called MNIST may itself be the first part of MNIST/raw."""
    for each in inside:
        first, _, rest = each.partition("/")
        here = [where / each, *([where / rest] if rest and where.name == first else [])]
        yield from (folder for folder in here if folder.is_dir())


def lone(folder: Path, endings: tuple[str, ...], known: str) -> Path | None:
    """The only file with one of these endings, whatever its name. None if there is none; several are refused.

    `known` says the names by which one of several would have been recognised.
    """
    if not folder.is_dir():
        return None
    # Archives of some systems bring hidden files that are no tables.
    files = sorted(file for file in folder.iterdir() if file.name.endswith(endings) and not file.name.startswith("."))
    if len(files) > 1:
        shown = ", ".join(file.name for file in files[:_SHOWN]) + (", ..." if len(files) > _SHOWN else "")
        raise InvalidArgument(
            f"{folder} holds {len(files)} tables, {shown}, and none of them is called {known}. Give the path of the "
            "one that is meant instead of the folder's."
        )
    return files[0] if files else None
