"""Scattering against what is known of it: zero means, kept energy, and convolutions done by hand."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from tacit.errors import InvalidArgument
from tacit.features import Scattering
from tacit.features.scattering import _make_gabor, _make_morlet, find_mirrors, make_filters, scatter, set_upright

IMAGES = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_wavelets_have_no_mean_and_the_average_has_mean_one():
    bank = make_filters(16, 2, 8)
    for waves in bank.wavelets:
        assert float(waves[:, 0, 0].abs().max()) < 1e-6
    for average in bank.averages:
        assert torch.allclose(average.sum(1), torch.ones(4), atol=2e-3)


def test_no_frequency_is_amplified():
    bank = make_filters(28, 2, 8)
    bell = torch.fft.fft2(_make_gabor(36, 1.6, 0.0, 0.0, 1.0)).real
    total = bell**2
    for waves in bank.wavelets:
        for wave in waves:
            mirrored = torch.roll(torch.flip(wave, (0, 1)), (1, 1), (0, 1))
            total = total + (wave**2 + mirrored**2) / 2
    assert float(total.max()) <= 1.001


def test_a_constant_image_has_an_average_only():
    found = scatter(torch.full((1, 16, 16), 0.7))
    assert found.shape == (1, 81, 4, 4)
    assert torch.allclose(found[:, 0], torch.tensor(0.7), atol=2e-3)
    assert float(found[:, 1:].abs().max()) < 1e-5


def test_orders_are_moduli_of_convolutions_averaged_around_the_middle_of_each_cell():
    side, margin = 16, 4
    image = torch.nn.functional.pad(IMAGES[:1, None], (margin,) * 4, mode="reflect")[0, 0].double()
    size = side + 2 * margin
    first = _circular(image, _make_morlet(size, 0.8, 3 * torch.pi / 8, 3 * torch.pi / 4, 0.5)).abs()
    second = _circular(first, _make_morlet(size, 1.6, 2 * torch.pi / 8, 3 * torch.pi / 8, 0.5)).abs()[::2, ::2]
    found = scatter(IMAGES[:1])[0].double()
    # Direction 0 of the first scale; then direction 0 with direction 1 of the second.
    assert torch.allclose(found[1], _bell_means(first, 1), atol=1e-5)
    assert torch.allclose(found[18], _bell_means(second, 2), atol=1e-5)


def _circular(image, kernel):
    """sum_ab kernel[a, b] image[. - a, . - b], shift by shift."""
    total = torch.zeros_like(kernel)
    for a in range(kernel.shape[0]):
        for b in range(kernel.shape[1]):
            total += kernel[a, b] * torch.roll(image, (a, b), (0, 1))
    return total


def _bell_means(values, apart):
    """Weighted by a normal density of deviation 1.6 around the middles 5.5, 9.5, ... of the padded image."""
    means = torch.zeros(4, 4, dtype=torch.float64)
    places = apart * torch.arange(len(values)).double()
    for row in range(4):
        for column in range(4):
            bells = [
                torch.exp(-((places - 5.5 - 4 * i) ** 2) / 5.12) * apart / (5.12 * torch.pi) ** 0.5
                for i in (row, column)
            ]
            means[row, column] = bells[0] @ values @ bells[1]
    return means


def test_three_scales_see_a_wave_of_the_third():
    places = torch.arange(32).float()
    image = torch.cos(3 * torch.pi / 16 * places)[:, None].expand(32, 32)
    found = scatter(image[None], scales=3, directions=4)[0].mean((1, 2))
    # Directions are 45, 0, -45 and -90 degrees from the vertical axis: 0 is the second.
    assert int(found[1:13].argmax()) == 2 * 4 + 1
    assert found.shape == (1 + 12 + 3 * 16,)


def test_a_mirrored_image_has_the_mirrored_coefficients():
    plain, mirrored = scatter(IMAGES).flatten(1), scatter(IMAGES.flip(-1)).flatten(1)
    partners = find_mirrors(16, 2, 8)
    assert torch.equal(partners[partners], torch.arange(len(partners)))
    # Keeping one pixel in two, of a modulus that is smooth, loses next to nothing.
    assert float((plain[:, partners] - mirrored).norm() / mirrored.norm()) < 0.01
    features = Scattering(shape=(3, 16, 16), is_mirrored=True)
    pixels = torch.rand(2, 3, 16, 16)
    here, there = (features.fit_transform(x.flatten(1)) for x in (pixels, pixels.flip(-1)))
    assert here.shape == (2, 3 * 81 * 16 // 2)
    assert np.linalg.norm(here - there) < 0.06 < 0.3 < np.linalg.norm(here[0] - here[1])


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


def stroke(slope: float, side: int = 28) -> torch.Tensor:
    """A line through the middle, one pixel of ink a row, shared by two pixels where it passes between them."""
    image = torch.zeros(side, side)
    for row in range(4, side - 4):
        place = (side - 1) / 2 + slope * (row - (side - 1) / 2)
        left = int(np.floor(place))
        image[row, left] += 1 - (place - left)
        image[row, left + 1] += place - left
    return image


@pytest.mark.parametrize("slope", [-0.8, -0.3, 0.0, 0.5])
def test_a_leaning_stroke_stands(slope):
    found = set_upright(stroke(slope)[None])[0]
    columns = torch.arange(28.0)
    middles = (found * columns).sum(1)[5:-5] / found.sum(1)[5:-5]
    assert torch.allclose(middles, torch.full_like(middles, 13.5), atol=0.1)


def test_what_stands_is_left_as_it_is():
    standing = torch.zeros(1, 12, 12)
    standing[0, 2:10, 5:7] = 0.7
    assert torch.allclose(set_upright(standing), standing, atol=1e-6)


def test_every_image_is_treated_by_itself_and_no_ink_is_nothing():
    images = torch.stack([stroke(0.4), torch.zeros(28, 28), stroke(-0.6)])
    together = set_upright(images)
    assert torch.equal(together[1], torch.zeros(28, 28))
    for image, found in zip(images, together, strict=True):
        assert torch.allclose(set_upright(image[None])[0], found, atol=1e-6)


def test_two_pixels_far_apart_do_not_lean_more_than_writing_does():
    image = torch.zeros(1, 28, 28)
    image[0, 13, 2] = image[0, 14, 25] = 1.0
    found = set_upright(image)[0]
    # Each is half a row from their middle, so at most half a pixel is theirs to go.
    assert torch.allclose(found[13, 2:4], torch.tensor([0.5, 0.5]), atol=1e-4)
    assert torch.allclose(found[14, 24:26], torch.tensor([0.5, 0.5]), atol=1e-4)


def test_no_images_at_all_are_none_afterwards():
    assert set_upright(torch.zeros(0, 28, 28)).shape == (0, 28, 28)


def test_colours_of_an_image_stay_together():
    one, other = stroke(0.6), stroke(-0.6)
    found = set_upright(torch.stack([one, other])[None])[0]
    # As much leans one way as the other, so nothing is moved.
    assert torch.allclose(found, torch.stack([one, other]), atol=1e-4)
    together = set_upright(torch.stack([one, one, one])[None])[0]
    assert torch.allclose(together, set_upright(one[None]).expand(3, -1, -1), atol=1e-5)


def test_scattering_of_upright_images():
    images = torch.stack([stroke(0.5), stroke(-0.2)])
    plain, upright = Scattering((28, 28)), Scattering((28, 28), is_upright=True)
    expected = plain.fit_transform(set_upright(images).numpy())
    assert np.allclose(upright.fit_transform(images.numpy()), expected, atol=1e-6)
    leaning = plain.transform(images.numpy())
    assert expected[0] @ expected[1] > 0.95 > leaning[0] @ leaning[1]
