"""Banded noise: its law, its secrecy, and planted bugs that must be seen."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import linalg, stats

from tacit.accounting import Correlated, Gaussian
from tacit.errors import InvalidArgument
from tacit.methods import GRADIENT_METHODS, encoded
from tacit.methods.choices import read_choices
from tacit.randomness import Purpose, SecureSource, SeededSource
from tacit.stages.noise import BandedNoise
from tacit.stages.noise.banded import PastNoise
from tacit.types import BoundedSum

FALSE_ALARM = 1e-6
SIZE = 20_000


def releases(noise, steps, *, source=None, first=0, size=SIZE, sensitivity=2.0):
    source = source or SeededSource(3)
    zeros = BoundedSum({"w": torch.zeros(size)}, sensitivity)
    return np.stack(
        [noise.add(zeros, source.stream(Purpose.NOISE, step))["w"].numpy() for step in range(first, first + steps)]
    )


def strategy(noise, steps):
    column = np.zeros(steps)
    count = min(len(noise.coefficients), steps)
    column[:count] = noise.coefficients[:count]
    return linalg.toeplitz(column, np.zeros(steps))


def is_fresh(drawn, noise, std):
    """Whether C w is independent noise of the stated scale: variances and correlations over steps."""
    z = strategy(noise, len(drawn)) @ drawn / std
    limit = stats.norm.isf(FALSE_ALARM / (2 * len(z) ** 2)) / np.sqrt(z.shape[1])
    correlations = np.cov(z) - np.eye(len(z))
    return bool(np.abs(correlations).max() < 2 * limit)


@pytest.mark.parametrize("bands", [1, 2, 5])
def test_undone_it_is_independent_noise_of_the_multiplier(bands):
    noise = BandedNoise(1.5, bands=bands, steps=64)
    assert is_fresh(releases(noise, 12), noise, 3.0)


def test_secure_noise_hangs_together_too():
    # Undone, secure noise of one step hardly depends on the step before; as it is, it does by about -0.6.
    noise = BandedNoise(1.5, bands=4, steps=64)
    drawn = releases(noise, 2, source=SecureSource())
    assert np.corrcoef(drawn)[0, 1] < -0.4
    assert abs(np.corrcoef(strategy(noise, 2) @ drawn)[0, 1]) < 0.1


def test_sums_of_releases_have_less_noise():
    noise = BandedNoise(1.0, bands=16, steps=64)
    total = releases(noise, 64).sum(axis=0)
    assert total.std() < 0.55 * 2.0 * np.sqrt(64)


def test_each_release_has_at_least_the_noise_of_its_multiplier():
    assert (releases(BandedNoise(1.0, bands=8, steps=64), 20).std(axis=1) > 0.97 * 2.0).all()


def test_past_noise_with_the_wrong_sign_is_seen(monkeypatch):
    noise = BandedNoise(1.5, bands=4, steps=64)

    def wrong(self, past, fresh, step):
        flipped = [-one for one in past]
        drawn = right(self, flipped, fresh, step)
        past[:] = [drawn, *(-one for one in flipped[1:])]
        return drawn

    right = BandedNoise.advance
    monkeypatch.setattr(BandedNoise, "advance", wrong)
    assert not is_fresh(releases(noise, 12), noise, 3.0)


def test_noise_drawn_twice_is_seen():
    noise = BandedNoise(1.5, bands=4, steps=64)
    drawn = releases(noise, 12)
    drawn[7] = drawn[3]
    assert not is_fresh(drawn, noise, 3.0)


def test_a_band_restarted_without_notice_is_seen():
    noise = BandedNoise(1.5, bands=8, steps=64)
    drawn = np.concatenate([releases(noise, 6), releases(noise, 6, source=SeededSource(4))])
    assert not is_fresh(drawn, noise, 3.0)
    # With the restart known, both parts are fresh by themselves.
    assert is_fresh(drawn[:6], noise, 3.0)
    assert is_fresh(drawn[6:], noise, 3.0)


def test_a_seeded_band_is_drawn_again_from_its_first_step():
    noise = BandedNoise(1.5, bands=4, steps=64)
    whole = releases(noise, 10, size=50)
    assert np.array_equal(whole[6:], releases(noise, 4, source=SeededSource(3), first=6, size=50))


def test_past_noise_cannot_be_saved_or_copied():
    source = SecureSource()
    stream = source.stream(Purpose.NOISE, 0)
    BandedNoise(1.0, bands=3).add(BoundedSum({"w": torch.zeros(3)}, 1.0), stream)
    with pytest.raises(TypeError, match="subtract it"):
        pickle.dumps(stream.recall("past noise", PastNoise))


def test_its_event_is_good_only_for_steps_as_far_apart_as_its_bands():
    assert BandedNoise(1.5, bands=4).event(10) == Correlated(Gaussian(1.5), bands=4)


def test_another_dimension_in_one_run_is_refused():
    source, noise = SeededSource(0), BandedNoise(1.0, bands=3)
    noise.add(BoundedSum({"w": torch.zeros(3)}, 1.0), source.stream(Purpose.NOISE, 0))
    with pytest.raises(InvalidArgument, match="another dimension"):
        noise.add(BoundedSum({"w": torch.zeros(4)}, 1.0), source.stream(Purpose.NOISE, 1))


def test_values_keep_their_double_precision():
    drawn = BandedNoise(1.0, bands=3).add(
        BoundedSum({"w": torch.zeros(3, dtype=torch.float64)}, 1.0), SeededSource(0).stream(Purpose.NOISE, 0)
    )
    assert drawn["w"].dtype == torch.float64


def test_methods_with_other_noise_cannot_be_banded():
    with pytest.raises(InvalidArgument, match="Only Gaussian noise"):
        encoded().with_bands(4)


@pytest.mark.parametrize("name", [name for name in GRADIENT_METHODS if name != "encoded"])
def test_every_method_with_gaussian_noise_takes_bands_by_name(name):
    made = GRADIENT_METHODS[name](0.5, 1.1, noise="banded", bands=4)
    assert made == replace(GRADIENT_METHODS[name](0.5, 1.1), noise=BandedNoise(1.1, bands=4))
    assert read_choices(name, ["noise=banded", "bands=4"]) == {"noise": "banded", "bands": 4}
    with pytest.raises(InvalidArgument, match="gaussian"):
        GRADIENT_METHODS[name](0.5, 1.1, noise="tree")


@pytest.mark.parametrize("name", ["pruned", "directional"])
def test_published_noise_that_is_not_gaussian_cannot_be_banded(name):
    with pytest.raises(InvalidArgument, match="Only Gaussian noise"):
        GRADIENT_METHODS[name](0.5, 1.1, mode="paper", noise="banded")
