"""MNIST and Fashion-MNIST: one .npz file, or the four files of the original.

Both are published under the same file names. So only folders are looked into whose names tell which of the two it is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tacit.datasets.data import Array, Data, Examples
from tacit.datasets.files import contents, idx, npz
from tacit.datasets.places import spellings
from tacit.errors import InvalidArgument

# Each with the folders that torchvision and the authors' own repository have for it.
IMAGES = {"fashion-mnist": ("FashionMNIST/raw", "data/fashion"), "mnist": ("MNIST/raw",)}
KEYS = ("x_train", "y_train", "x_test", "y_test")
_ORIGINAL = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
# As some archives spell them.
_DOTTED = tuple(name.replace("-idx", ".idx") for name in _ORIGINAL)
_PUBLISHED_SIZE = 60_000
CLASSES = 10


def read_images(name: str, where: Path) -> Data | None:
    """The data set in `where`: an .npz file, or a folder with one or with the four original files."""
    arrays = packed(name, where)
    if arrays is None:
        found = contents(where, _ORIGINAL) or contents(where, _DOTTED)
        if found is None:
            return None
        arrays = [idx(found[file]) for file in found]
    images, labels, test_images, test_labels = arrays
    return Data(
        name,
        train=_examples(images, labels, where),
        test=_examples(test_images, test_labels, where),
        classes=CLASSES,
        population=_PUBLISHED_SIZE,
        scaling="pixels go from 0..255 to [0, 1]",
        example="image",
    )


def files_of(name: str) -> str:
    """The names that are looked for."""
    originals = ", ".join(f"{file}[.gz]" for file in _ORIGINAL)
    return f"{' or '.join(npz_names(name))}, or else for all of {originals} (or with .idx in place of -idx)"


def npz_names(name: str) -> list[str]:
    """Both spellings of a name."""
    return [f"{spelling}.npz" for spelling in spellings(name)]


def packed(name: str, where: Path) -> list[Array] | None:
    """The four arrays of an .npz file, or of one with the right name in the folder; None if there is none."""
    if where.is_file():
        return npz(where, KEYS) if where.suffix == ".npz" else None
    file = next((where / each for each in npz_names(name) if (where / each).is_file()), None)
    return None if file is None else npz(file, KEYS)


def check_labels(labels: Array, where: Path) -> Array:
    """Class numbers from 0 to 9."""
    if labels.dtype.kind not in "iu" or np.any((labels < 0) | (labels >= CLASSES)):
        raise InvalidArgument(f"{where} must hold labels from 0 to {CLASSES - 1}, as whole numbers. It holds others.")
    return labels.astype(np.int64)


def _examples(images: Array, labels: Array, where: Path) -> Examples:
    if images.shape[1:] != (28, 28) or labels.shape != images.shape[:1] or images.dtype != np.uint8:
        raise InvalidArgument(
            f"{where} must hold images of 28 x 28 bytes with one label each. Got images of shape {images.shape} and "
            f"type {images.dtype}, and labels of shape {labels.shape}."
        )
    return (images[:, np.newaxis] / np.float32(255)).astype(np.float32), check_labels(labels, where)
