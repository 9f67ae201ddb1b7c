"""SVHN (street-view house numbers): colour images of 32 x 32 pixels, in MATLAB's .mat files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from tacit.datasets import DataSet, Source, TrainingDefaults
from tacit.datasets._data import Data, Examples
from tacit.datasets._files import File, explain_errors, find_files
from tacit.datasets._images import check_images, make_colour_data, read_colour_arrays, scale_colour

_MAT = ("train_32x32.mat", "test_32x32.mat")


def _read(where: Path) -> Data | None:
    """From one .npz file, or the two .mat files; None if they are not there."""
    parts = read_colour_arrays("svhn", where)
    if parts is None:
        found = find_files(where, _MAT)
        if found is None:
            return None
        parts = tuple(_parse(found[name]) for name in _MAT)
    return make_colour_data("svhn", parts, 73_257)


def _parse(file: File) -> Examples:
    """Images [row, column, colour, image] in X; in y, the digit 0 is called 10."""
    with explain_errors(file.path, "the arrays X and y of SVHN"):
        try:
            arrays = loadmat(io.BytesIO(file.content), variable_names=["X", "y"])
        except MatReadError as error:
            raise EOFError(str(error)) from error
        images, labels = arrays["X"], arrays["y"].reshape(-1)
        if images.shape[:3] != (32, 32, 3) or images.dtype != np.uint8 or images.shape[3] != labels.size:
            raise ValueError(f"X has shape {images.shape} and type {images.dtype}, y has {labels.size} labels")
    images = images.transpose(3, 2, 0, 1)
    return scale_colour(images), check_images(images, labels % 10, (3, 32, 32), file.path)


DATASET = DataSet(
    "svhn",
    Source.of_files(
        "http://ufldl.stanford.edu/housenumbers/",
        "http://ufldl.stanford.edu/housenumbers",
        {
            "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        },
    ),
    read=_read,
    files="svhn.npz, or else for train_32x32.mat with test_32x32.mat",
    defaults=TrainingDefaults("cnn", lot_size=1024, epochs=20, learning_rate=0.5, adam_rate=0.001),
)
