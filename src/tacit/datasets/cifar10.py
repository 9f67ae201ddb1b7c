"""CIFAR-10: colour images of 32 x 32 pixels, in binary form. The pickled form is refused: reading would execute it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tacit.datasets import DataSet, Source, TrainingDefaults
from tacit.datasets._data import Data, Examples
from tacit.datasets._files import find_files
from tacit.datasets._images import check_images, make_colour_data, read_colour_arrays, scale_colour
from tacit.errors import InvalidArgument

_ARCHIVE = "cifar-10-binary.tar.gz"
_BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_IMAGE = (3, 32, 32)
_BYTES = 3 * 32 * 32


def _read(where: Path) -> Data | None:
    """From one .npz file, the archive or its six files; None if they are not there."""
    parts = read_colour_arrays("cifar10", where)
    if parts is None:
        found = find_files(where, _BATCHES, [_ARCHIVE])
        if found is None:
            return None
        for name, file in found.items():
            if len(file.content) % (1 + _BYTES):
                raise InvalidArgument(f"{name} in {file.path} is not a whole number of images. Fetch it again.")
        train = b"".join(found[name].content for name in _BATCHES[:-1])
        parts = tuple(_parse(part, where) for part in (train, found[_BATCHES[-1]].content))
    return make_colour_data("cifar10", parts, 50_000, _CLASSES)


def _parse(content: bytes, where: Path) -> Examples:
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + _BYTES)
    images = rows[:, 1:].reshape(-1, *_IMAGE)
    return scale_colour(images), check_images(images, rows[:, 0], _IMAGE, where)


DATASET = DataSet(
    "cifar10",
    Source.of_files(
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "https://www.cs.toronto.edu/~kriz",
        {_ARCHIVE: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
    ),
    read=_read,
    files=f"cifar10.npz, for {_ARCHIVE}, or else for all of data_batch_1.bin to data_batch_5.bin and test_batch.bin "
    "(the binary form; the Python form is pickled, and is not read)",
    folders=("cifar-10-batches-bin",),
    defaults=TrainingDefaults("cnn", lot_size=1024, epochs=20, learning_rate=0.5, adam_rate=0.001),
)
