"""CIFAR-10 and SVHN: colour images of 32 x 32 pixels, in the binary form of the one and the .mat files of the other.

The pickled form of CIFAR-10 is refused: to read it would mean to execute it.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from tacit.datasets.data import Array, Data, Examples
from tacit.datasets.files import File, contents, reading
from tacit.datasets.images import CLASSES, check_labels, packed
from tacit.errors import InvalidArgument

CIFAR_FILES = (
    "cifar10.npz, for cifar-10-binary.tar.gz, or else for all of data_batch_1.bin to data_batch_5.bin and "
    "test_batch.bin (the binary form; the one for Python is pickled, and is not read)"
)
CIFAR_FOLDERS = ("cifar-10-batches-bin",)
SVHN_FILES = "svhn.npz, or else for train_32x32.mat with test_32x32.mat"
_BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
_MAT = ("train_32x32.mat", "test_32x32.mat")
_SIDE = 32
_BYTES = 3 * _SIDE * _SIDE
_SIZES = {"cifar10": 50_000, "svhn": 73_257}


def read_cifar10(where: Path) -> Data | None:
    """From one .npz file, the archive or its six files; None if they are not there."""
    arrays = packed("cifar10", where)
    if arrays is not None:
        return _from_arrays("cifar10", arrays, where)
    found = contents(where, _BATCHES, ["cifar-10-binary.tar.gz"])
    if found is None:
        return None
    for name, file in found.items():
        if len(file.content) % (1 + _BYTES):
            raise InvalidArgument(f"{name} in {file.path} is not a whole number of images. Fetch it again.")
    train = b"".join(found[name].content for name in _BATCHES[:-1])
    return _data("cifar10", *(_from_bytes(part, where) for part in (train, found[_BATCHES[-1]].content)))


def read_svhn(where: Path) -> Data | None:
    """From one .npz file, or the two .mat files; None if they are not there."""
    arrays = packed("svhn", where)
    if arrays is not None:
        return _from_arrays("svhn", arrays, where)
    found = contents(where, _MAT)
    if found is None:
        return None
    return _data("svhn", *(_from_mat(found[name]) for name in _MAT))


def _data(name: str, train: Examples, test: Examples) -> Data:
    scaling = "pixels go from 0..255 to [-1, 1]"
    return Data(name, train, test, CLASSES, population=_SIZES[name], scaling=scaling, example="image")


def _from_bytes(content: bytes, where: Path) -> Examples:
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + _BYTES)
    return _scaled(rows[:, 1:].reshape(-1, 3, _SIDE, _SIDE)), check_labels(rows[:, 0], where)


def _from_mat(file: File) -> Examples:
    """Images [row, column, colour, image] in X; in y, the digit 0 is called 10."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    with reading(file.path, "the arrays X and y of SVHN"):
        try:
            arrays = loadmat(io.BytesIO(file.content), variable_names=["X", "y"])
        except MatReadError as error:
            raise EOFError(str(error)) from error
        images, labels = arrays["X"], arrays["y"].reshape(-1)
        if images.shape[:3] != (_SIDE, _SIDE, 3) or images.dtype != np.uint8 or images.shape[3] != labels.size:
            raise ValueError(f"X has shape {images.shape} and type {images.dtype}, y has {labels.size} labels")
    return _scaled(images.transpose(3, 2, 0, 1)), check_labels(labels % 10, file.path)


def _from_arrays(name: str, arrays: list[Array], where: Path) -> Data:
    """Images [image, row, column, colour], as most libraries have them."""
    parts = []
    for images, labels in (arrays[:2], arrays[2:]):
        if images.shape[1:] != (_SIDE, _SIDE, 3) or images.dtype != np.uint8 or labels.size != len(images):
            raise InvalidArgument(
                f"{where} must hold images of 32 x 32 x 3 bytes with one label each. Got images of shape "
                f"{images.shape} and type {images.dtype}, and labels of shape {labels.shape}."
            )
        parts.append((_scaled(images.transpose(0, 3, 1, 2)), check_labels(labels.reshape(-1), where)))
    return _data(name, *parts)


def _scaled(images: Array) -> Array:
    scaled: Array = np.ascontiguousarray(images, dtype=np.float32)
    scaled /= np.float32(127.5)
    scaled -= np.float32(1)
    return scaled
