"""Handwriting set upright: each image by itself, by how much its own ink leans."""

import numpy as np
import pytest
import torch

from tacit.features import Scattering
from tacit.features.upright import upright


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
    found = upright(stroke(slope)[None])[0]
    columns = torch.arange(28.0)
    middles = (found * columns).sum(1)[5:-5] / found.sum(1)[5:-5]
    assert torch.allclose(middles, torch.full_like(middles, 13.5), atol=0.1)


def test_what_stands_is_left_as_it_is():
    standing = torch.zeros(1, 12, 12)
    standing[0, 2:10, 5:7] = 0.7
    assert torch.allclose(upright(standing), standing, atol=1e-6)


def test_every_image_is_treated_by_itself_and_no_ink_is_nothing():
    images = torch.stack([stroke(0.4), torch.zeros(28, 28), stroke(-0.6)])
    together = upright(images)
    assert torch.equal(together[1], torch.zeros(28, 28))
    for image, found in zip(images, together, strict=True):
        assert torch.allclose(upright(image[None])[0], found, atol=1e-6)


def test_two_pixels_far_apart_do_not_lean_more_than_writing_does():
    image = torch.zeros(1, 28, 28)
    image[0, 13, 2] = image[0, 14, 25] = 1.0
    found = upright(image)[0]
    # Each is half a row from their middle, so at most half a pixel is theirs to go.
    assert torch.allclose(found[13, 2:4], torch.tensor([0.5, 0.5]), atol=1e-4)
    assert torch.allclose(found[14, 24:26], torch.tensor([0.5, 0.5]), atol=1e-4)


def test_no_images_at_all_are_none_afterwards():
    assert upright(torch.zeros(0, 28, 28)).shape == (0, 28, 28)


def test_colours_of_an_image_stay_together():
    one, other = stroke(0.6), stroke(-0.6)
    found = upright(torch.stack([one, other])[None])[0]
    # As much leans one way as the other, so nothing is moved.
    assert torch.allclose(found, torch.stack([one, other]), atol=1e-4)
    together = upright(torch.stack([one, one, one])[None])[0]
    assert torch.allclose(together, upright(one[None]).expand(3, -1, -1), atol=1e-5)


def test_scattering_of_upright_images():
    images = torch.stack([stroke(0.5), stroke(-0.2)])
    plain, set_upright = Scattering((28, 28)), Scattering((28, 28), is_upright=True)
    expected = plain.fit_transform(upright(images).numpy())
    assert np.allclose(set_upright.fit_transform(images.numpy()), expected, atol=1e-6)
    leaning = plain.transform(images.numpy())
    assert expected[0] @ expected[1] > 0.95 > leaning[0] @ leaning[1]
