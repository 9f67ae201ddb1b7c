"""Patch features: filters from a seed, mirrored images, and the steps by a slow loop."""

import math

import numpy as np
import pytest
from scipy.fft import dctn

from tacit.errors import InvalidArgument
from tacit.features import Patches
from tacit.features import patches as module
from tacit.features.patches import draw_leaves, make_filters

IMAGES = np.random.default_rng(0).uniform(0, 1, (3, 3, 12, 12)).astype(np.float32)


@pytest.fixture(autouse=True, scope="module")
def few_pictures():
    """Pictures enough for a test."""
    kept, sampled = module._PICTURES, module._SAMPLED
    module._PICTURES, module._SAMPLED = 60, 3_000
    make_filters.cache_clear()
    yield
    module._PICTURES, module._SAMPLED = kept, sampled
    make_filters.cache_clear()


def transform(images, **more):
    made = Patches(images.shape[1:], filters=7, **more)
    return made.fit_transform(images.reshape(len(images), -1))


def test_pictures_follow_from_their_seed():
    assert np.array_equal(draw_leaves(3, 5), draw_leaves(3, 5))
    assert not np.array_equal(draw_leaves(3, 5), draw_leaves(3, 6))


def test_pictures_fill_the_range_of_pixels():
    pictures = draw_leaves(20, 0)
    assert pictures.shape == (20, 3, 32, 32)
    assert pictures.min() >= 0
    assert pictures.max() <= 1
    assert pictures.std() > 0.15


def whole_filters(colours):
    """Whitening and filters in pixels, put together from their even and odd parts."""
    bank = make_filters(7, colours, 6, 0)
    even, odd = module._split_by_mirror(colours, 6)
    whitening = even @ bank.even.numpy() + odd @ bank.odd.numpy()
    filters = bank.even_filters.numpy() @ even.T + bank.odd_filters.numpy() @ odd.T
    return whitening, filters


def test_a_slow_loop_gives_the_same():
    whitening, filters = whole_filters(3)
    mirrored = filters.reshape(-1, 3, 6, 6)[..., ::-1].reshape(filters.shape)
    found = np.zeros((28, 7, 7))
    for down in range(7):
        for right in range(7):
            patch = IMAGES[0, :, down : down + 6, right : right + 6].ravel().astype(np.float64)
            patch -= patch.mean()
            patch = whitening @ (patch / math.sqrt(patch.var() + (10 / 255) ** 2))
            products = np.concatenate([f @ patch / np.linalg.norm(patch) for f in (filters, mirrored)])
            above, below = np.maximum(products - 0.1, 0), np.maximum(-products - 0.1, 0)
            found[:, down, right] = np.concatenate([above[:7], below[:7], above[7:], below[7:]])
    ends = [(0, 2), (1, 4), (3, 6), (5, 7)]
    cells = np.array([[found[:, a:b, c:d].mean((1, 2)) for c, d in ends] for a, b in ends]).transpose(2, 0, 1)
    waves = dctn(np.sqrt(cells), axes=(1, 2), norm="ortho")
    waves /= (1 + 0.5 * np.arange(4))[:, None] * (1 + 0.5 * np.arange(4))
    assert np.allclose(transform(IMAGES)[0], waves.ravel() / np.linalg.norm(waves), atol=1e-4)


def test_whitened_patches_have_no_favourite_direction_but_those_of_little_variance():
    whitening, _ = whole_filters(1)
    assert np.allclose(whitening, whitening.T, atol=1e-5)
    assert np.linalg.eigvalsh(whitening).min() > 0


def test_mirrored_images_have_the_same_features_if_asked():
    mirrored = np.ascontiguousarray(IMAGES[..., ::-1])
    assert np.allclose(transform(IMAGES, is_mirrored=True), transform(mirrored, is_mirrored=True), atol=1e-5)
    assert not np.allclose(transform(IMAGES), transform(mirrored), atol=1e-2)


def test_rows_have_norm_one_and_depend_on_no_other():
    whole = transform(IMAGES)
    assert whole.shape == (3, 28 * 16)
    assert np.allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-5)
    assert np.allclose(whole[1:2], transform(IMAGES[1:2]), atol=1e-6)


def test_an_empty_image_gives_finite_features():
    assert np.isfinite(transform(np.zeros((1, 1, 12, 12), np.float32))).all()


@pytest.mark.parametrize("shape", [(2, 32, 32), (8, 8), (3,)])
def test_shapes_without_patches_are_refused(shape):
    with pytest.raises(InvalidArgument, match="shape must be"):
        Patches(shape).fit(None)
