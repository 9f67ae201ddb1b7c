"""Patch features of images: every patch is compared with filters that were cut from drawn pictures.

The pictures are dead leaves: shapes of random size, colour and texture that cover one another (Lee, Mumford and Huang
2001). Their edges, corners and colours are like those of photographs, and no photograph is needed. Pictures and filters
follow from a seed, so they cost no privacy and need no download. The settings of the generator follow from what is
known about all photographs: radii have the density r^-3, because scenes look alike at every distance, and the
amplitude of textures falls as 1 / frequency. The number of shapes covers a picture about twice.

Each patch of an image loses its mean, is divided by its contrast, whitened as the drawn patches are, and scaled to norm
1 (Coates and Ng 2012). An inner product with a filter becomes two numbers: by how much it is above a threshold, and by
how much below its negative. Both are averaged over cells of the image, and square roots are taken. A cosine transform
over the cells sorts these by spatial frequency, and high frequencies count less. The row is scaled to norm 1.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from torch import Tensor
from torch.nn import functional as F

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.features.scattering import transform_images

# Pictures are drawn at twice this side and averaged, so that edges are soft, as a lens makes them.
_SIDE, _PICTURES, _SHAPES, _TEXTURES, _DRAWN = 32, 2_000, 35, 64, 50
_RADII = (4.0, 32.0)
_SAMPLED = 100_000
# Added to the variance of a patch: contrasts below ten grey levels of 255 count as noise.
_CONTRAST = (10 / 255) ** 2
# Added to the eigenvalues of the drawn patches before whitening, as a share of the mean one.
_RIDGE = 0.1
_THRESHOLD = 0.1
# Along each axis, a spatial frequency of k half waves counts 1 / (1 + _DAMPING k).
_DAMPING = 0.5
# Images that are transformed at a time: the patches of one fit into the processor's cache, those of two do not.
_PIECE = 1
Matrix = NDArray[np.float64]


def draw_leaves(count: int, seed: int) -> NDArray[np.float32]:
    """[count, 3, 32, 32]: colour pictures of dead leaves, with values in [0, 1]."""
    rng, side = np.random.default_rng(seed), 2 * _SIDE
    textures = _draw_textures(rng, side)
    pictures = np.empty((count, 3, _SIDE, _SIDE), dtype=np.float32)
    for start in range(0, count, _DRAWN):
        part = pictures[start : start + _DRAWN]
        large = np.broadcast_to(rng.uniform(0, 1, (len(part), 3, 1, 1)), (len(part), 3, side, side)).astype(np.float32)
        for _ in range(_SHAPES):
            _draw_shape(rng, large, textures)
        part[:] = np.clip(large.reshape(len(part), 3, _SIDE, 2, _SIDE, 2).mean(axis=(3, 5)), 0, 1)
    return pictures


def _draw_textures(rng: np.random.Generator, side: int) -> NDArray[np.float32]:
    """[textures, 3, side, side]: noise whose amplitude falls as 1 / frequency, with standard deviation 1."""
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None, :])
    frequency[0, 0] = np.inf
    white = rng.normal(size=(_TEXTURES, 3, side, side))
    waves = np.fft.ifft2(np.fft.fft2(white) / frequency).real
    return np.asarray(waves / waves.std(axis=(2, 3), keepdims=True), dtype=np.float32)


def _draw_shape(rng: np.random.Generator, pictures: NDArray[np.float32], textures: NDArray[np.float32]) -> None:
    """Put one more shape, an ellipse or a box, on top of every picture."""
    count, side = len(pictures), pictures.shape[-1]
    low, high = (radius**-2.0 for radius in _RADII)
    radius = (low - rng.uniform(0, 1, count) * (low - high)) ** -0.5
    (middle, beside), angle = rng.uniform(0, side, (2, count)), rng.uniform(0, math.pi, count)
    slimness, is_box = rng.uniform(0.5, 1, count), rng.uniform(0, 1, count) < 0.5
    colour, contrast = rng.uniform(0, 1, (count, 3)), rng.uniform(0, 0.25, count)
    which = rng.integers(len(textures), size=count)
    places = np.arange(side, dtype=np.float32)
    down, right = places[None, :, None] - middle[:, None, None], places[None, None, :] - beside[:, None, None]
    cos, sin = np.cos(angle)[:, None, None], np.sin(angle)[:, None, None]
    along = np.abs(cos * down + sin * right) / radius[:, None, None]
    across = np.abs(cos * right - sin * down) / (radius * slimness)[:, None, None]
    inside = np.where(is_box[:, None, None], np.maximum(along, across), along**2 + across**2) < 1
    surface = colour[:, :, None, None] + contrast[:, None, None, None] * textures[which]
    np.copyto(pictures, surface.astype(np.float32), where=inside[:, None])


@dataclass(frozen=True, eq=False)
class PatchFilters:
    """Whitening and filters for patches, split into parts that are even and odd under mirroring left to right.

    Mirrored patches are as likely as the patches, so whitening leaves both parts apart. `even` and `odd` map a patch of
    `size` x `size` to the coordinates of its whitened parts; `even_filters` and `odd_filters` are the same coordinates
    of the filters. Their sum is the product with a filter, and their difference the product with its mirror image.
    """

    size: int
    even: Tensor
    odd: Tensor
    even_filters: Tensor
    odd_filters: Tensor


@lru_cache(maxsize=4)
def make_filters(count: int, colours: int, size: int, seed: int) -> PatchFilters:
    """Draw the pictures, whiten 100,000 of their patches, and take `count` of them with enough contrast as filters."""
    rng = np.random.default_rng([seed, 1])
    pictures = draw_leaves(_PICTURES, seed)
    pictures = pictures if colours == 3 else pictures.mean(axis=1, keepdims=True)
    # From random places of random pictures, a row each; less their mean, divided by their contrast.
    which = rng.integers(len(pictures), size=_SAMPLED)
    down, right = rng.integers(pictures.shape[-1] - size + 1, size=(2, _SAMPLED))
    views = np.lib.stride_tricks.sliding_window_view(pictures, (size, size), axis=(2, 3))
    cut = views[which, :, down, right].reshape(_SAMPLED, -1).astype(np.float64)
    cut -= cut.mean(axis=1, keepdims=True)
    patches = np.asarray(cut / np.sqrt(np.square(cut).mean(axis=1, keepdims=True) + _CONTRAST))
    mirrored = patches.reshape(-1, colours, size, size)[..., ::-1].reshape(patches.shape)
    moment = (patches.T @ patches + mirrored.T @ mirrored) / (2 * len(patches))
    values, vectors = np.linalg.eigh(moment)
    whitening = (vectors * (values.clip(0) + _RIDGE * values.mean()) ** -0.5) @ vectors.T
    white = patches @ whitening
    norms = np.linalg.norm(white, axis=1)
    chosen = rng.choice(np.flatnonzero(norms >= np.median(norms) / 2), count, replace=False)
    filters = white[chosen] / norms[chosen, None]
    bases = _split_by_mirror(colours, size)
    maps = [torch.from_numpy((basis.T @ whitening).astype(np.float32)) for basis in bases]
    parts = [torch.from_numpy((filters @ basis).astype(np.float32)) for basis in bases]
    return PatchFilters(size, *maps, *parts)


def _split_by_mirror(colours: int, size: int) -> tuple[Matrix, Matrix]:
    """Orthonormal bases, as columns, of patches that mirroring leaves as they are, and that it negates."""
    cells = np.eye(colours * size * size).reshape(-1, colours, size, size)
    bases = []
    for sign in (1, -1):
        turned = (cells + sign * cells[..., ::-1]).reshape(len(cells), -1)
        _, first = np.unique(np.argmax(np.abs(turned) > 0, axis=1), return_index=True)
        kept = turned[first][np.linalg.norm(turned[first], axis=1) > 0]
        bases.append((kept / np.linalg.norm(kept, axis=1, keepdims=True)).T)
    return bases[0], bases[1]


@lru_cache(maxsize=8)
def make_cosines(cells: int) -> Tensor:
    """[cells, cells]: the orthonormal cosine transform, with high frequencies damped."""
    places, waves = np.arange(cells), np.arange(cells)[:, None]
    rows = np.cos(math.pi * waves * (2 * places + 1) / (2 * cells)) * math.sqrt(2 / cells)
    rows[0] /= math.sqrt(2)
    return torch.from_numpy((rows / (1 + _DAMPING * waves)).astype(np.float32))


@dataclass(eq=False, repr=False)
class Patches(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns images, given as rows of pixels in [0, 1], into rows of patch features of norm 1.

    `shape` is that of an image: (28, 28), or (channels, height, width) with 1 or 3 channels. There are `filters` and
    their mirror images, cut from pictures that follow from `seed`. With `is_mirrored`, the features of an image and of
    its mirror image are averaged: for scenes, where left and right do not matter. Nothing is learnt, so no privacy is
    spent.

    >>> Patches(shape=(28, 28), filters=10).fit_transform(np.zeros((2, 784))).shape
    (2, 640)
    """

    shape: tuple[int, ...] = (3, 32, 32)
    _: KW_ONLY
    filters: int = 200
    size: int = 6
    cells: int = 4
    is_mirrored: bool = False
    seed: int = 0

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Nothing to learn; the settings are checked."""
        _validate.count("filters", self.filters)
        _validate.count("size", self.size, at_least=2)
        _validate.count("cells", self.cells)
        colours = self.shape[0] if len(self.shape) == 3 else 1
        if len(self.shape) not in (2, 3) or colours not in (1, 3) or min(self.shape[-2:]) < self.size + self.cells - 1:
            raise InvalidArgument(
                f"shape must be that of grey or colour images of at least {self.size + self.cells - 1} pixels a side, "
                f"such as (28, 28) or (3, 32, 32). Got {self.shape!r}."
            )
        self.n_features_in_ = math.prod(self.shape)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """One row of features for every row of pixels."""
        return transform_images(X, self.shape, _PIECE, self._transform_piece)

    def _transform_piece(self, images: Tensor) -> Tensor:
        """[images, channels * cells^2]."""
        images = images.view(len(images), -1, *self.shape[-2:])
        bank = make_filters(self.filters, images.shape[1], self.size, self.seed)
        count, (height, width) = len(images), (side - bank.size + 1 for side in self.shape[-2:])
        patches = F.unfold(images, bank.size).transpose(1, 2).reshape(count * height * width, -1)
        patches -= patches.mean(1, keepdim=True)
        length = patches.square().mean(1, keepdim=True).add_(_CONTRAST).sqrt_()
        patches /= length
        even, odd = patches @ bank.even.T, patches @ bank.odd.T
        length = (even.square().sum(1) + odd.square().sum(1)).sqrt_().clamp_min_(1e-12)[:, None]
        same, turned = even.div_(length) @ bank.even_filters.T, odd.div_(length) @ bank.odd_filters.T
        sizes = count, height, width
        if self.is_mirrored:
            channels = (self._pool(same + turned, sizes) + self._pool(same.sub_(turned), sizes).flip(2)) / 2
        else:
            channels = torch.cat([self._pool(same + turned, sizes), self._pool(same.sub_(turned), sizes)], dim=3)
        waves = make_cosines(self.cells)
        # Rounding may leave a mean just below zero.
        spread = waves @ channels.clamp_min_(0).sqrt_().permute(0, 3, 1, 2) @ waves.T
        return F.normalize(spread.flatten(1), dim=1)

    def _pool(self, products: Tensor, sizes: tuple[int, int, int]) -> Tensor:
        """[images, cells, cells, 2 filters]: means of what is above the threshold, and of what is below its negative.

        The mean of relu(a - t) is the mean of max(a, t), less t.
        """
        count, height, width = sizes
        found = []
        for ends in (products.clamp_min(_THRESHOLD), products.clamp_max_(-_THRESHOLD)):
            rows = _make_means(height, self.cells) @ ends.view(count, height, -1)
            found.append(_make_means(width, self.cells) @ rows.view(count, self.cells, width, -1))
        return torch.cat([found[0] - _THRESHOLD, -_THRESHOLD - found[1]], dim=3)

    @property
    def axes(self) -> tuple[int, int]:
        """The shape of the tensor in a row: channels, cells."""
        return (2 if self.is_mirrored else 4) * self.filters, self.cells**2

    @property
    def columns(self) -> None:
        """Every entry of that tensor has a column of its own."""
        return


@lru_cache(maxsize=8)
def _make_means(places: int, cells: int) -> Tensor:
    """[cells, places]: the mean over every cell. Cells that divide a place share it, so mirroring turns them round."""
    found = torch.zeros(cells, places)
    for cell in range(cells):
        start, stop = cell * places // cells, -(-(cell + 1) * places // cells)
        found[cell, start:stop] = 1 / (stop - start)
    return found
