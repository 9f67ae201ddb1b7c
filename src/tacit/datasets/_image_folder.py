"""A user's own images: a folder with one subfolder per class, such as pets/cat/1.jpg and pets/dog/2.jpg.

The names of the subfolders are the classes, and taken as public: which classes there are must not depend on who is in
the data. All images are scaled to one public size and to three colours. A hash of an image's pixels decides whether it
is held out, independently of other images.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from tacit import _validate
from tacit._files import expand_home, name_of
from tacit.datasets._columns import Array, refuse_problems
from tacit.datasets._data import ArrayForm, Data, Form, choose_held_out
from tacit.datasets._images import scale_colour
from tacit.errors import InvalidArgument

_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_HELD_OUT, _SHOWN = 0.2, 5


def load_images(folder: str | os.PathLike[str], *, population: int | None, side: int = 32) -> Data:
    """Load the images in `folder`, one subfolder per class, scaled to `side` pixels a side.

    A fifth is held out to test on. `population` is the public number of images to train on. Files that are no images by
    their ending are not read; `InvalidArgument` lists images that cannot be read.
    """
    place, side = expand_home(folder), _validate.count("side", side, at_least=8)
    classes = tuple(sorted(each.name for each in place.iterdir() if each.is_dir() and not each.name.startswith(".")))
    if len(classes) < 2:
        raise InvalidArgument(
            f"{place} must have one subfolder for each class, such as {place.name}/cat and {place.name}/dog, and at "
            f"least two. Found {', '.join(classes) or 'none'}. An empty subfolder declares a class without images."
        )
    if population is None:
        raise InvalidArgument(
            "The public number of images is missing. It is not counted, as the count would reveal whether an image is "
            "there. Give --population, the number of images to train on, roughly: four fifths of all."
        )
    files = [
        (path, number)
        for number, name in enumerate(classes)
        for path in sorted((place / name).rglob("*"))
        if path.suffix.lower() in _ENDINGS and path.is_file()
    ]
    images, problems = np.zeros((len(files), side, side, 3), np.uint8), list[str]()
    for row, (path, _) in zip(images, files, strict=True):
        try:
            row[:] = _read(path, side)
        except (OSError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            problems.append(f"{path} cannot be read as an image: {error}. Save it again, or remove it.")
    refuse_problems(problems[:_SHOWN])
    labels = np.array([number for _, number in files], dtype=np.int64)
    out = choose_held_out((row.tobytes() for row in images), _HELD_OUT)
    inputs = scale_colour(images.transpose(0, 3, 1, 2))
    return Data(
        name_of(place.resolve()),
        (inputs[~out], labels[~out]),
        (inputs[out], labels[out]),
        len(classes),
        population=_validate.count("population", population),
        scaling=f"images are scaled to {side} x {side} pixels in three colours, and pixels from 0..255 to [-1, 1]",
        example="image",
        source="your own images; the names of their folders are the classes, which are taken as public",
        is_test_private=True,
        form=Form(ArrayForm((3, side, side), 0, 255, start=-1), None, classes),
    )


def _read(path: Path, side: int) -> Array:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC), np.uint8)
