"""MNIST and Fashion-MNIST from a copy of the user's: one .npz file, or the four files of the original."""

from __future__ import annotations

import gzip
import math
import zipfile
from pathlib import Path

import numpy as np

from tacit.datasets.data import Array, Data
from tacit.errors import InvalidArgument

IMAGES = ("fashion-mnist", "mnist")
_KEYS = ("x_train", "y_train", "x_test", "y_test")
_ORIGINAL = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_PUBLISHED_SIZE = 60_000
_CLASSES = 10


def read_images(name: str, path: Path) -> Data:
    """The data set in `path`: an .npz file, or a folder with one or with the four original files."""
    images, labels, test_images, test_labels = _arrays(name, path)
    return Data(
        name,
        train=_examples(images, labels, path),
        test=_examples(test_images, test_labels, path),
        classes=_CLASSES,
        population=_PUBLISHED_SIZE,
        scaling="pixels go from 0..255 to [0, 1]",
    )


def _arrays(name: str, path: Path) -> list[Array]:
    if path.is_file():
        return _from_npz(path)
    packed = [path / f"{spelling}.npz" for spelling in dict.fromkeys((name, name.replace("-", "_")))]
    for file in packed:
        if file.is_file():
            return _from_npz(file)
    originals = [_first_file(path / original) for original in _ORIGINAL]
    missing = [f"{original}[.gz]" for original, file in zip(_ORIGINAL, originals, strict=True) if file is None]
    if missing:
        raise InvalidArgument(
            f"There is no {name} in {path}. Looked for {' or '.join(file.name for file in packed)}, or else for all of "
            f"{', '.join(f'{original}[.gz]' for original in _ORIGINAL)}, of which {len(missing)} are missing "
            f"(such as {missing[0]})."
        )
    return [_from_idx(file) for file in originals if file is not None]


def _first_file(path: Path) -> Path | None:
    both = (path.with_name(f"{path.name}.gz"), path)
    return next((file for file in both if file.is_file()), None)


def _from_npz(path: Path) -> list[Array]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[key] for key in _KEYS]
    except KeyError as error:
        raise InvalidArgument(f"{path} must hold the arrays {', '.join(_KEYS)}. {error.args[0]}.") from error
    except (OSError, ValueError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidArgument(f"{path} is not an .npz file of numbers: {error}.") from error


def _from_idx(path: Path) -> Array:
    """The array of an idx file: two zeros, the type (8 for bytes), the number of axes, their lengths, the bytes."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}.") from error
    axes = content[3] if content[:3] == b"\x00\x00\x08" and len(content) > 3 else 0
    start = 4 + 4 * axes
    shape = tuple(int.from_bytes(content[place : place + 4], "big") for place in range(4, start, 4))
    if not axes or len(content) - start != math.prod(shape):
        raise InvalidArgument(f"{path} is not an idx file of bytes, or not a whole one. Fetch it again.")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _examples(images: Array, labels: Array, path: Path) -> tuple[Array, Array]:
    if images.shape[1:] != (28, 28) or labels.shape != images.shape[:1] or images.dtype != np.uint8:
        raise InvalidArgument(
            f"{path} must hold images of 28 x 28 bytes with one label each. Got images of shape {images.shape} and "
            f"type {images.dtype}, and labels of shape {labels.shape}."
        )
    if labels.dtype.kind not in "iu" or np.any((labels < 0) | (labels >= _CLASSES)):
        raise InvalidArgument(f"{path} must hold labels from 0 to {_CLASSES - 1}, as whole numbers. It holds others.")
    return (images[:, np.newaxis] / np.float32(255)).astype(np.float32), labels.astype(np.int64)
