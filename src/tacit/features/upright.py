"""Handwriting set upright: every image is slanted back by how much its own ink leans. Nothing is learnt."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Nothing that is written leans by more than half a right angle; a few scattered pixels may seem to.
_MOST = 1.0
_NO_INK = 1e-6


def upright(images: Tensor) -> Tensor:
    """[N, ..., H, W] with every row moved sideways, so that the ink no longer leans ("deslanted" by LeCun et al. 1998).

    How far ink leans is the slope of its position in a row over the height of the row, by least squares over all ink of
    an example, whatever its colour.
    The centre of the ink stays where it is, and what leaves the image is cut off. An image without ink, which is
    whatever is zero, stays as it is.

    >>> leaning = torch.eye(9)[2:7][None]
    >>> upright(leaning)[0, :, 4].tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    height, width = images.shape[-2:]
    flat = images.reshape(len(images), math.prod(images.shape[1:-2]), height, width)
    ink = flat.abs().sum(1)
    down, right = torch.arange(height, dtype=ink.dtype)[:, None], torch.arange(width, dtype=ink.dtype)[None, :]
    total = ink.sum((1, 2)).clamp_min(_NO_INK)
    middle_down, middle_right = ((ink * along).sum((1, 2)) / total for along in (down, right))
    below, beside = down - middle_down[:, None, None], right - middle_right[:, None, None]
    slope = (ink * below * beside).sum((1, 2)) / (ink * below.square()).sum((1, 2)).clamp_min(_NO_INK)
    source = right + slope.clamp(-_MOST, _MOST)[:, None, None] * below
    # From pixels to what torch counts in: -1 and 1 are the outer edges of an image.
    grid = torch.stack([(2 * source + 1) / width - 1, ((2 * down + 1) / height - 1).expand_as(source)], dim=-1)
    moved = torch.nn.functional.grid_sample(flat, grid, padding_mode="zeros", align_corners=False)
    return moved.view_as(images)
