"""Data sets by name: features within declared public bounds, a private part to train on, a public part to test on.

Nothing here looks at the examples to decide how to treat them: bounds, categories, sizes and the split are constants
of this package. Small data sets come with scikit-learn; others are read from a copy that the user has.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from tacit.datasets.adult import read_adult
from tacit.datasets.bundled import BUNDLED, read_bundled
from tacit.datasets.data import Data
from tacit.datasets.images import IMAGES, read_images
from tacit.errors import InvalidArgument

__all__ = ["NAMES", "Data", "load"]

NAMES = tuple(sorted([*BUNDLED, *IMAGES, "adult"]))


def load(name: str, path: str | os.PathLike[str] | None = None) -> Data:
    """The data set called `name`; `path` says where the user's copy lies, for those that do not come along.

    >>> load("iris")
    Data(name='iris', classes=3, population=119)
    """
    if name not in NAMES:
        close = difflib.get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise InvalidArgument(f"There is no data set {name!r}. Known are {', '.join(NAMES)}.{hint}")
    if name in BUNDLED:
        if path is not None:
            raise InvalidArgument(f"{name} comes with scikit-learn and is not read from {path}. Leave the path out.")
        return read_bundled(name)
    if path is None:
        raise InvalidArgument(
            f"{name} does not come with tacit. Say where your copy lies: --data-path FOLDER on the command line, "
            f"load({name!r}, path) in Python."
        )
    return read_adult(Path(path)) if name == "adult" else read_images(name, Path(path))
