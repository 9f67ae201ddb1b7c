"""Scattering: fixed wavelets, moduli and averages of images (Bruna and Mallat 2013). Nothing is learnt.

An image of 28 x 28 becomes 81 channels of 7 x 7: its average, 16 first-order and 64 second-order coefficients, for two
scales and eight directions. Each example is transformed by itself, so no privacy is spent. Each channel group of an
example is normalised by its own mean and deviation (as Tramèr and Boneh 2021 do with GroupNorm) and the whole is scaled
to norm 1, ready for a linear model with clipped gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from torch import Tensor

from tacit import _validate
from tacit.errors import InvalidArgument

# Images that are transformed at a time, so that their moduli fit into the processor's cache.
_PIECE = 16
_SLANT = 4.0
_WIDTH = 0.8
_FREQUENCY = 3 * math.pi / 4
# Handwriting leans by at most half a right angle; a few scattered pixels may seem to lean more.
_MOST_SLANT = 1.0
_NO_INK = 1e-6


@dataclass(frozen=True, eq=False)
class Wavelets:
    """Fourier transforms of the wavelets by scale, [directions, side, side], and the averages at each resolution."""

    wavelets: list[Tensor]
    averages: list[Tensor]


@lru_cache(maxsize=8)
def make_filters(side: int, scales: int, directions: int) -> Wavelets:
    """The filters for images of side x side, with a margin of 2^scales all around."""
    size = side + 2 * 2**scales
    wavelets = []
    for scale in range(scales):
        angles = [(directions // 2 - 1 - direction) * math.pi / directions for direction in range(directions)]
        waves = [
            _make_morlet(size, _WIDTH * 2**scale, angle, _FREQUENCY / 2**scale, _SLANT / directions) for angle in angles
        ]
        wavelets.append(torch.fft.fft2(torch.stack(waves)).real.float())
    return Wavelets(wavelets, [_make_average(side, scales, level) for level in range(scales)])


def _make_average(side: int, scales: int, level: int) -> Tensor:
    """[cells, pixels]: bells around the middle of every cell of 2^scales pixels, for pixels 2^level apart.

    Cells are in the middle of their pixels, so those of a mirrored image are the mirrored cells.
    """
    cell, apart, width = 2**scales, 2**level, _WIDTH * 2 ** (scales - 1)
    middles = cell + (cell - 1) / 2 + cell * torch.arange(side // cell, dtype=torch.float64)
    places = apart * torch.arange((side + 2 * cell) // apart, dtype=torch.float64)
    bells = torch.exp(-((middles[:, None] - places[None, :]) ** 2) / (2 * width**2))
    average: Tensor = bells * apart / (math.sqrt(2 * math.pi) * width)
    return average.float()


def _make_gabor(size: int, width: float, angle: float, frequency: float, slant: float) -> Tensor:
    """A wave under a Gaussian bell, 1 / slant times as long as wide, made periodic in the image."""
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64)
    stretch = torch.diag(torch.tensor([1.0, slant**2], dtype=torch.float64))
    bend = turn @ stretch @ turn.T / (2 * width**2)
    total = torch.zeros(size, size, dtype=torch.complex128)
    for shift_y in range(-2, 3):
        for shift_x in range(-2, 3):
            y = torch.arange(size, dtype=torch.float64)[:, None] + shift_y * size
            x = torch.arange(size, dtype=torch.float64)[None, :] + shift_x * size
            decay = bend[0, 0] * y**2 + (bend[0, 1] + bend[1, 0]) * y * x + bend[1, 1] * x**2
            phase = frequency * (math.cos(angle) * y + math.sin(angle) * x)
            total += torch.polar(torch.exp(-decay), phase)
    return total / (2 * math.pi * width**2 / slant)


def _make_morlet(size: int, width: float, angle: float, frequency: float, slant: float) -> Tensor:
    """A Gabor wave minus the multiple of its bell that makes its mean zero."""
    wave, bell = _make_gabor(size, width, angle, frequency, slant), _make_gabor(size, width, angle, 0.0, slant)
    return wave - wave.sum() / bell.sum() * bell


def to_pixels(x: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Rows of pixels; `InvalidArgument` unless every row holds an image of this shape."""
    pixels = np.ascontiguousarray(x, dtype=np.float32)
    pixels = pixels.reshape(len(pixels), math.prod(pixels.shape[1:]))
    if pixels.shape[1] != math.prod(shape):
        raise InvalidArgument(f"X must hold {math.prod(shape)} pixels a row. Got {pixels.shape[1]}.")
    return pixels


def transform_images(
    x: Any, shape: tuple[int, ...], at_once: int, transform: Callable[[Tensor], Tensor]
) -> NDArray[np.float32]:
    """The features of images that are given as rows of pixels; so many images are transformed at once."""
    images = torch.from_numpy(to_pixels(x, shape)).view(-1, *shape)
    with torch.no_grad():
        found = torch.empty(len(images), transform(torch.zeros(1, *shape)).shape[1])
        for start in range(0, len(images), at_once):
            found[start : start + at_once] = transform(images[start : start + at_once])
    return found.numpy()


def scatter(images: Tensor, scales: int = 2, directions: int = 8) -> Tensor:
    """[..., H, W] to [..., channels, H / 2^scales, W / 2^scales], for square images whose side 2^scales divides.

    Channels: the average; first order by scale and direction; second order by both scales and both directions.
    """
    side, coarse = images.shape[-1], 2**scales
    padded = torch.nn.functional.pad(images.reshape(-1, 1, side, side), (coarse,) * 4, mode="reflect")
    bank = make_filters(side, scales, directions)
    spectrum = torch.fft.fft2(padded)
    channels, seconds = [_take_averages(padded, bank.averages[0])], []
    for scale in range(scales):
        modulus = _take_modulus(spectrum, bank.wavelets[scale], 2**scale)
        channels.append(_take_averages(modulus, bank.averages[scale]))
        if scale + 1 < scales:
            spread = torch.fft.fft2(modulus)[:, :, None]
        for later in range(scale + 1, scales):
            inner = _take_modulus(spread, _fold(bank.wavelets[later], 2**scale), 2 ** (later - scale))
            seconds.append(_take_averages(inner, bank.averages[later]).flatten(1, 2))
    result = torch.cat([*channels, *seconds], dim=1)
    return result.reshape(*images.shape[:-2], *result.shape[1:])


def _take_modulus(spectrum: Tensor, wavelets: Tensor, by: int) -> Tensor:
    """|image * wavelet| for every wavelet, one pixel in `by` kept along each axis."""
    height, width = (size // by for size in wavelets.shape[-2:])
    images, waves = (each.view(*each.shape[:-2], by, height, by, width) for each in (spectrum, wavelets))
    # Keeping one pixel in `by` folds the spectrum. Summing fold by fold needs no large array.
    total = images[..., 0, :, 0, :] * waves[..., 0, :, 0, :]
    for fold in range(1, by * by):
        row, column = divmod(fold, by)
        total += images[..., row, :, column, :] * waves[..., row, :, column, :]
    filtered: Tensor = torch.fft.ifft2(total)
    return filtered.abs() / by**2


def _fold(spectrum: Tensor, by: int) -> Tensor:
    """The spectrum of a filter, at a resolution at which one pixel in `by` is kept along each axis."""
    height, width = (size // by for size in spectrum.shape[-2:])
    return spectrum.view(*spectrum.shape[:-2], by, height, by, width).sum(dim=(-4, -2))


def _take_averages(values: Tensor, average: Tensor) -> Tensor:
    """The mean under a bell around every cell, along both axes."""
    return average @ values @ average.T


@lru_cache(maxsize=8)
def find_mirrors(side: int, scales: int, directions: int) -> Tensor:
    """For each coefficient of an image, its place among the coefficients of the image mirrored left to right.

    Mirroring turns the cells round, and every direction the other way.
    """
    cells, above = side >> scales, scales * (scales - 1) // 2
    turned = (directions - 2 - torch.arange(directions)) % directions
    pairs = (turned[:, None] * directions + turned[None, :]).flatten()
    first = [1 + scale * directions + turned for scale in range(scales)]
    second = [1 + scales * directions + pair * directions**2 + pairs for pair in range(above)]
    channels = torch.cat([torch.zeros(1, dtype=torch.long), *first, *second])
    rows, columns = torch.arange(cells)[:, None], torch.arange(cells).flip(0)[None, :]
    return ((channels[:, None, None] * cells + rows) * cells + columns).flatten()


def set_upright(images: Tensor) -> Tensor:
    """Shear images [N, ..., H, W] so that their ink no longer leans ("deslanting", LeCun et al. 1998).

    The slant is the slope of the ink's horizontal position over its height, by least squares over all ink of an
    example, in all colours. The centre of the ink stays in place, and what leaves the image is cut off. The background
    is zero; an image without ink stays as it is.

    >>> leaning = torch.eye(9)[2:7][None]
    >>> set_upright(leaning)[0, :, 4].tolist()
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
    source = right + slope.clamp(-_MOST_SLANT, _MOST_SLANT)[:, None, None] * below
    # torch measures from -1 to 1, the outer edges of an image.
    grid = torch.stack([(2 * source + 1) / width - 1, ((2 * down + 1) / height - 1).expand_as(source)], dim=-1)
    moved = torch.nn.functional.grid_sample(flat, grid, padding_mode="zeros", align_corners=False)
    return moved.view_as(images)


@dataclass(eq=False, repr=False)
class Scattering(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns images, given as rows of pixels, into rows of scattering coefficients, each normalised by itself.

    `shape` is that of an image: (28, 28), or (channels, height, width). Channels are centred and scaled in `groups`
    within each example, and rows are scaled to norm 1; with 0 groups the coefficients stay as they are. With
    `is_mirrored`, the coefficients of an image and of its mirror image are averaged, which halves their number: for
    scenes, where left and right do not matter, not for letters. With `is_upright`, each image is first sheared until
    its ink no longer leans: for handwriting on an empty background. Nothing is learnt, so no privacy is spent.

    >>> Scattering(shape=(28, 28)).fit_transform(np.zeros((2, 784))).shape
    (2, 3969)
    """

    shape: tuple[int, ...] = (28, 28)
    _: KW_ONLY
    scales: int = 2
    directions: int = 8
    groups: int = 27
    is_mirrored: bool = False
    is_upright: bool = False

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Nothing to learn; the settings are checked."""
        _validate.count("scales", self.scales)
        _validate.count("directions", self.directions, at_least=2)
        side, coarse = self.shape[-1], 2**self.scales
        if len(self.shape) not in (2, 3) or self.shape[-2] != side or side % coarse or side <= coarse:
            raise InvalidArgument(
                f"shape must be that of square images whose side {coarse} divides, such as (28, 28) or (3, 32, 32). "
                f"Got {self.shape!r}."
            )
        self.n_features_in_ = math.prod(self.shape)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """One row of coefficients for every row of pixels."""
        return transform_images(X, self.shape, _PIECE, self._transform_piece)

    def _transform_piece(self, images: Tensor) -> Tensor:
        images = set_upright(images) if self.is_upright else images
        found = scatter(images, self.scales, self.directions).reshape(len(images), -1, *self._cells())
        places: Tensor | slice = slice(None)
        if self.is_mirrored:
            places, partners = self._find_mirrors()
            found = (found + found.flatten(1)[:, partners].view_as(found)) / 2
        if self.groups:
            found = torch.nn.functional.group_norm(found, math.gcd(self.groups, found.shape[1]))
        flat = found.flatten(1)[:, places]
        return torch.nn.functional.normalize(flat, dim=1) if self.groups else flat

    @property
    def axes(self) -> tuple[int, ...]:
        """The shape of the tensor in a row: colours if there are several, channels, cells."""
        above = self.scales * (self.scales - 1) // 2
        channels = 1 + self.scales * self.directions + above * self.directions**2
        colours = tuple(size for size in self.shape[:-2] if size > 1)
        return (*colours, channels, math.prod(self._cells()))

    @property
    def columns(self) -> NDArray[np.int64] | None:
        """For every entry of that tensor its column, if a row holds half of the entries; else None."""
        if not self.is_mirrored:
            return None
        places, partners = self._find_mirrors()
        found = np.empty(len(partners), dtype=np.int64)
        found[places.numpy()] = found[partners[places].numpy()] = np.arange(len(places))
        return found

    def _cells(self) -> tuple[int, int]:
        side = self.shape[-1] >> self.scales
        return side, side

    def _find_mirrors(self) -> tuple[Tensor, Tensor]:
        """Which coefficient of each mirrored pair to keep, and the partner of every coefficient, over all colours."""
        partners = find_mirrors(self.shape[-1], self.scales, self.directions)
        starts = len(partners) * torch.arange(math.prod(self.shape[:-2]))
        every = (starts[:, None] + partners[None, :]).flatten()
        return torch.nonzero(torch.arange(len(every)) <= every)[:, 0], every
