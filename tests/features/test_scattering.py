"""Scattering against what is known of it: zero means, kept energy, and convolutions done by hand."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from tacit.errors import InvalidArgument
from tacit.features import Scattering
from tacit.features.scattering import _gabor, _morlet, filters, scatter

IMAGES = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_wavelets_have_no_mean_and_the_average_has_mean_one():
    bank = filters(24, 2, 8)
    assert float(bank.average[0][0, 0]) == pytest.approx(1.0, abs=1e-3)
    for scale in bank.wavelets:
        for wave in scale:
            assert abs(float(wave[0][0, 0])) < 1e-6


def test_no_frequency_is_amplified():
    bank = filters(36, 2, 8)
    total = bank.average[0] ** 2
    for scale in bank.wavelets:
        for wave in scale:
            mirrored = torch.roll(torch.flip(wave[0], (0, 1)), (1, 1), (0, 1))
            total = total + (wave[0] ** 2 + mirrored**2) / 2
    assert float(total.max()) <= 1.001


def test_a_constant_image_has_an_average_only():
    found = scatter(torch.full((1, 16, 16), 0.7))
    assert found.shape == (1, 81, 4, 4)
    assert torch.allclose(found[:, 0], torch.tensor(0.7), atol=2e-3)
    assert float(found[:, 1:].abs().max()) < 1e-5


def test_first_order_is_the_modulus_of_a_convolution_averaged():
    side, margin = 16, 4
    image = torch.nn.functional.pad(IMAGES[:1, None], (margin,) * 4, mode="reflect")[0, 0].double()
    size = side + 2 * margin
    wave = _morlet(size, 0.8, 3 * torch.pi / 8, 3 * torch.pi / 4, 0.5)
    bell = _gabor(size, 1.6, 0.0, 0.0, 1.0).real
    modulus = _circular(image.to(torch.complex128), wave).abs()
    expected = _circular(modulus.to(torch.complex128), bell.to(torch.complex128)).real[::4, ::4][1:-1, 1:-1]
    found = scatter(IMAGES[:1])[0, 1]
    assert torch.allclose(found.double(), expected, atol=1e-5)


def _circular(image, kernel):
    """sum_ab kernel[a, b] image[. - a, . - b], shift by shift."""
    total = torch.zeros_like(image)
    for a in range(kernel.shape[0]):
        for b in range(kernel.shape[1]):
            total += kernel[a, b] * torch.roll(image, (a, b), (0, 1))
    return total


def test_an_image_turned_over_has_its_directions_turned_over():
    plain, turned = scatter(IMAGES), scatter(IMAGES.transpose(1, 2))
    assert torch.allclose(plain[:, 0], turned[:, 0].transpose(1, 2), atol=1e-5)
    # 16 first-order channels: transposing maps each direction to another one of the same scale.
    for scale in range(2):
        here = plain[:, 1 + 8 * scale : 9 + 8 * scale].sum(1)
        there = turned[:, 1 + 8 * scale : 9 + 8 * scale].sum(1).transpose(1, 2)
        assert torch.allclose(here, there, atol=1e-4)


def test_every_example_is_transformed_by_itself():
    pixels = IMAGES.flatten(1).numpy()
    whole = Scattering(shape=(16, 16)).fit_transform(pixels)
    alone = [Scattering(shape=(16, 16)).fit_transform(pixels[i : i + 1])[0] for i in range(3)]
    assert np.allclose(whole, np.stack(alone), atol=1e-6)
    assert np.allclose(np.linalg.norm(whole, axis=1), 1.0, atol=1e-5)


def test_colours_and_other_settings():
    pixels = torch.rand(2, 3 * 16 * 16).numpy()
    assert Scattering(shape=(3, 16, 16)).fit_transform(pixels).shape == (2, 3 * 81 * 16)
    raw = clone(Scattering(shape=(3, 16, 16), groups=0, scales=1, directions=4)).fit_transform(pixels)
    assert raw.shape == (2, 3 * 5 * 64)
    assert Scattering(shape=(16, 16)).fit(pixels[:, :256]).transform(pixels[:0, :256]).shape == (0, 81 * 16)


@pytest.mark.parametrize("shape", [(28, 27), (30, 30), (4, 4), (28,)])
def test_shapes_that_do_not_fit_are_refused(shape):
    with pytest.raises(InvalidArgument, match="square images whose side 4 divides"):
        Scattering(shape=shape).fit(np.zeros((1, 10)))


def test_rows_of_another_length_are_refused():
    with pytest.raises(InvalidArgument, match="must hold 256 pixels a row"):
        Scattering(shape=(16, 16)).fit(np.zeros((1, 256))).transform(np.zeros((1, 255)))
