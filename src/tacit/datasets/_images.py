"""Images with one of ten labels each: from an .npz file of four arrays, or from the files of MNIST."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tacit.datasets._columns import Array
from tacit.datasets._data import ArrayForm, Data, Examples, Form
from tacit.datasets._files import File, find_files, read_npz
from tacit.errors import InvalidArgument

CLASSES = 10
DIGITS = tuple(map(str, range(CLASSES)))
_KEYS = ("x_train", "y_train", "x_test", "y_test")
_ORIGINAL = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
# Some archives spell the names with a dot.
_DOTTED = tuple(name.replace("-idx", ".idx") for name in _ORIGINAL)


def list_mnist_files(*npz_files: str) -> str:
    """The files of MNIST's form, as text."""
    originals = ", ".join(f"{file}[.gz]" for file in _ORIGINAL)
    return f"{' or '.join(npz_files)}, or else for all of {originals} (or with .idx in place of -idx)"


def read_mnist_form(
    name: str, where: Path, *, classes: tuple[str, ...] = DIGITS, is_handwriting: bool = False
) -> Data | None:
    """Grey images of 28 x 28 pixels in `where`: an .npz file, or a folder with one or with the four original files."""
    arrays = read_arrays(name, where)
    if arrays is None:
        found = find_files(where, _ORIGINAL) or find_files(where, _DOTTED)
        if found is None:
            return None
        arrays = [_parse_idx(file) for file in found.values()]
    images, labels, test_images, test_labels = arrays
    return Data(
        name,
        train=_scale_grey(images, labels, where),
        test=_scale_grey(test_images, test_labels, where),
        classes=CLASSES,
        population=60_000,
        scaling="pixels go from 0..255 to [0, 1]",
        example="image",
        is_handwriting=is_handwriting,
        form=Form(ArrayForm((1, 28, 28), 0, 255), None, classes),
    )


def read_arrays(name: str, where: Path) -> list[Array] | None:
    """The four arrays of an .npz file, or of one with the data set's name in a folder; None if there is none."""
    if where.is_file():
        return read_npz(where, _KEYS) if where.suffix == ".npz" else None
    files = [where / f"{spelling}.npz" for spelling in (name, name.replace("-", "_"))]
    file = next((each for each in files if each.is_file()), None)
    return None if file is None else read_npz(file, _KEYS)


def check_images(images: Array, labels: Array, shape: tuple[int, ...], where: Path) -> Array:
    """The labels, as class numbers; `InvalidArgument` unless images are bytes of this shape with one label each."""
    if images.shape[1:] != shape or images.dtype != np.uint8 or labels.size != len(images):
        raise InvalidArgument(
            f"{where} must hold images of {' x '.join(map(str, shape))} bytes with one label each. Got images of shape "
            f"{images.shape} and type {images.dtype}, and labels of shape {labels.shape}."
        )
    if labels.dtype.kind not in "iu" or np.any((labels < 0) | (labels >= CLASSES)):
        raise InvalidArgument(f"{where} must hold labels from 0 to {CLASSES - 1}, as whole numbers. It holds others.")
    return labels.reshape(-1).astype(np.int64)


def _scale_grey(images: Array, labels: Array, where: Path) -> Examples:
    numbers = check_images(images, labels, (28, 28), where)
    return (images[:, np.newaxis] / np.float32(255)).astype(np.float32), numbers


def _parse_idx(file: File) -> Array:
    """The array of an idx file: two zeros, the type (8 for bytes), the number of axes, their lengths, the bytes."""
    content = file.content
    axes = content[3] if content[:3] == b"\x00\x00\x08" and len(content) > 3 else 0
    start = 4 + 4 * axes
    shape = tuple(int.from_bytes(content[place : place + 4], "big") for place in range(4, start, 4))
    if not axes or len(content) - start != math.prod(shape):
        raise InvalidArgument(f"{file.path} is not an idx file of bytes, or not a whole one. Fetch it again.")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def scale_colour(images: Array) -> Array:
    """Pixels from 0..255 to [-1, 1]."""
    scaled = np.ascontiguousarray(images, dtype=np.float32)
    scaled /= np.float32(127.5)
    scaled -= np.float32(1)
    return scaled


def read_colour_arrays(name: str, where: Path) -> tuple[Examples, ...] | None:
    """Colour images of 32 x 32 pixels, [image, row, column, colour], in an .npz file; None if there is none."""
    arrays = read_arrays(name, where)
    if arrays is None:
        return None
    parts = []
    for images, labels in (arrays[:2], arrays[2:]):
        numbers = check_images(images, labels, (32, 32, 3), where)
        parts.append((scale_colour(images.transpose(0, 3, 1, 2)), numbers))
    return tuple(parts)


def make_colour_data(
    name: str, parts: tuple[Examples, ...], population: int, classes: tuple[str, ...] = DIGITS
) -> Data:
    """The data set of these two parts."""
    train, test = parts
    scaling = "pixels go from 0..255 to [-1, 1]"
    form = Form(ArrayForm((3, 32, 32), 0, 255, start=-1), None, classes)
    return Data(name, train, test, CLASSES, population=population, scaling=scaling, example="image", form=form)
