"""Scattering: images through fixed wavelets, moduli and averages (Bruna and Mallat 2013). Nothing is learnt.

An image of 28 x 28 becomes 81 channels of 7 x 7: its average, 16 first-order and 64 second-order coefficients, for two
scales and eight directions. Each example is treated by itself, so no privacy is spent. Normalising every channel group
of an example by its own mean and deviation (Tramèr and Boneh 2021 do so with GroupNorm) and scaling the whole to norm 1
makes the features ready for a linear model with clipped gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from torch import Tensor

from tacit import arguments
from tacit.errors import InvalidArgument

# Images that are transformed at a time: few enough for their moduli to fit into memory.
_PIECE = 256
_SLANT = 4.0
_WIDTH = 0.8
_FREQUENCY = 3 * math.pi / 4


@dataclass(frozen=True, eq=False)
class Filters:
    """Fourier transforms of the wavelets, by scale and direction and by the resolution they are used at."""

    average: list[Tensor]
    wavelets: list[list[list[Tensor]]]


@lru_cache(maxsize=8)
def filters(size: int, scales: int, directions: int) -> Filters:
    """The filters for padded images of size x size."""
    average = [_at(_gabor(size, _WIDTH * 2 ** (scales - 1), 0.0, 0.0, 1.0), level) for level in range(scales)]
    wavelets = []
    for scale in range(scales):
        turned = []
        for direction in range(directions):
            angle = (directions // 2 - 1 - direction) * math.pi / directions
            wave = _morlet(size, _WIDTH * 2**scale, angle, _FREQUENCY / 2**scale, _SLANT / directions)
            turned.append([_at(wave, level) for level in range(max(scale, 1))])
        wavelets.append(turned)
    return Filters(average, wavelets)


def _gabor(size: int, width: float, angle: float, frequency: float, slant: float) -> Tensor:
    """A wave under a Gaussian bell, longer than wide by 1 / slant, periodised to the image."""
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


def _morlet(size: int, width: float, angle: float, frequency: float, slant: float) -> Tensor:
    """A Gabor wave less as much of its bell as brings its mean to zero."""
    wave, bell = _gabor(size, width, angle, frequency, slant), _gabor(size, width, angle, 0.0, slant)
    return wave - wave.sum() / bell.sum() * bell


def _at(wave: Tensor, level: int) -> Tensor:
    """The (real) Fourier transform of a filter at a resolution that is 2^level times coarser."""
    spectrum = torch.fft.fft2(wave).real
    return _folded(spectrum[None], 2**level)[0].float()


def _folded(spectrum: Tensor, by: int) -> Tensor:
    """The spectrum of an image of which one pixel in `by` is kept along each axis."""
    if by == 1:
        return spectrum
    *lead, height, width = spectrum.shape
    return spectrum.view(*lead, by, height // by, by, width // by).mean(dim=(-4, -2))


def scatter(images: Tensor, scales: int = 2, directions: int = 8) -> Tensor:
    """[..., H, W] to [..., channels, H / 2^scales, W / 2^scales], for square images whose side 2^scales divides."""
    side, coarse = images.shape[-1], 2**scales
    margin = coarse
    padded = torch.nn.functional.pad(images.reshape(-1, 1, side, side), (margin,) * 4, mode="reflect")[:, 0]
    bank = filters(side + 2 * margin, scales, directions)
    spectrum = torch.fft.fft2(padded)
    channels = [_averaged(spectrum, bank.average[0], coarse)]
    seconds: list[Tensor] = []
    for scale in range(scales):
        for wave in bank.wavelets[scale]:
            modulus = torch.fft.fft2(torch.fft.ifft2(_folded(spectrum * wave[0], 2**scale)).abs())
            channels.append(_averaged(modulus, bank.average[scale], 2 ** (scales - scale)))
            for later in range(scale + 1, scales):
                for other in bank.wavelets[later]:
                    inner = torch.fft.ifft2(_folded(modulus * other[scale], 2 ** (later - scale))).abs()
                    spread = torch.fft.fft2(inner)
                    seconds.append(_averaged(spread, bank.average[later], 2 ** (scales - later)))
    result = torch.stack([*channels, *seconds], dim=1)
    return result.reshape(*images.shape[:-2], *result.shape[1:])


def _averaged(spectrum: Tensor, average: Tensor, by: int) -> Tensor:
    """Low-pass, one pixel in `by` kept, without the margin."""
    smooth: Tensor = torch.fft.ifft2(_folded(spectrum * average, by)).real
    return smooth[:, 1:-1, 1:-1]


class Scattering(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Images as rows of pixels to rows of scattering coefficients, each normalised by itself.

    `shape` is that of an image: (28, 28), or (channels, height, width). `groups` channels-wise groups are centred and
    scaled within each example, and rows are scaled to norm 1; 0 groups leave the coefficients as they are. Nothing is
    learnt from the data, so nothing is spent.

    >>> Scattering(shape=(28, 28)).fit_transform(np.zeros((2, 784))).shape
    (2, 3969)
    """

    def __init__(self, shape: tuple[int, ...] = (28, 28), *, scales: int = 2, directions: int = 8, groups: int = 27):
        self.shape = shape
        self.scales = scales
        self.directions = directions
        self.groups = groups

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Nothing to learn; the settings are checked."""
        arguments.count("scales", self.scales)
        arguments.count("directions", self.directions, at_least=2)
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
        pixels = np.asarray(X, dtype=np.float32)
        pixels = pixels.reshape(len(pixels), math.prod(pixels.shape[1:]))
        if pixels.shape[1] != math.prod(self.shape):
            raise InvalidArgument(f"X must hold {math.prod(self.shape)} pixels a row. Got {pixels.shape[1]}.")
        images = torch.from_numpy(np.ascontiguousarray(pixels)).view(len(pixels), *self.shape)
        pieces = [self._rows(images[start : start + _PIECE]) for start in range(0, len(images), _PIECE)]
        return torch.cat(pieces).numpy() if pieces else np.zeros((0, self._count()), dtype=np.float32)

    def _count(self) -> int:
        """How many coefficients an image has."""
        scales, directions, colours = self.scales, self.directions, math.prod(self.shape[:-2])
        channels = 1 + scales * directions + scales * (scales - 1) // 2 * directions**2
        return int(colours * channels * (self.shape[-1] >> scales) ** 2)

    def _rows(self, images: Tensor) -> Tensor:
        found = scatter(images, self.scales, self.directions)
        found = found.flatten(1, 2) if len(self.shape) == 3 else found
        if not self.groups:
            return found.flatten(1)
        normal = torch.nn.functional.group_norm(found, math.gcd(self.groups, found.shape[1])).flatten(1)
        return torch.nn.functional.normalize(normal, dim=1)
