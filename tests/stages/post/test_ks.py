"""Denoising: the distance against worked numbers and scipy, and what it does to signal and noise."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.accounting import GaussianDensity, StudentTDensity
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, SeededSource
from tacit.stages.bounds import Clip, Encode
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import BoxNoise, GaussianNoise, PrunedNoise, StudentT, list_families
from tacit.stages.post import KSDenoise, ks_distance
from tacit.types import BoundedSum

WORKED = np.array([-1.2, -0.3, 0.4, 0.9, 2.0])


def denoised(values, mechanism, size):
    post = mechanism.post[0]
    return post.apply(values, {"noise_std": torch.tensor(size, dtype=torch.float64)})[0]


def test_the_worked_distances():
    assert ks_distance(WORKED, GaussianDensity()) == pytest.approx(0.25542174161032416, rel=1e-12)
    assert ks_distance(WORKED, StudentTDensity(9.0, math.sqrt(7 / 9))) == pytest.approx(0.2695571787185066, rel=1e-10)


def test_the_worked_release():
    mechanism = Mechanism(Clip(1.0), GaussianNoise(1.0), (KSDenoise(),))
    found = denoised({"w": torch.from_numpy(WORKED)}, mechanism, 1.0)["w"]
    expected = [-0.306506089932389, -0.07662652248309725, 0.10216869664412967, 0.22987956744929175, 0.5108434832206483]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_the_distance_is_scipys(size):
    values = np.random.default_rng(size).standard_normal(size)
    assert ks_distance(values, GaussianDensity(1.3)) == pytest.approx(
        stats.kstest(values, stats.norm(scale=1.3).cdf).statistic, rel=1e-12
    )


@pytest.mark.parametrize("family", list_families().values(), ids=list_families())
def test_pure_noise_is_shrunk_to_next_to_nothing(family):
    """Of pure noise in 10,000 dimensions the distance is 0.0087 on average; above 0.03 once in 10^7 times."""
    box = Encode().box
    noise = BoxNoise(family, box, 1.3)
    mechanism = Mechanism(Encode(), noise, (KSDenoise(),))
    drawn = noise.add(BoundedSum({"w": torch.zeros(10_000)}, 1.0, box), SeededSource(0).stream(Purpose.NOISE, 0))
    found = denoised(drawn, mechanism, 1.3)["w"]
    factor = float(found[0] / drawn["w"][0])
    assert 0 < factor < 0.03
    torch.testing.assert_close(found, drawn["w"] * factor)


def test_relative_to_pure_noise_its_step_has_about_its_own_length():
    values = torch.from_numpy(np.random.default_rng(1).standard_normal(10_000))
    mechanism = Mechanism(Clip(1.0), GaussianNoise(1.0), (KSDenoise(is_relative=True),))
    assert 0.5 < float(denoised({"w": values}, mechanism, 1.0)["w"][0] / values[0]) < 2


def test_a_release_unlike_noise_keeps_its_length():
    mechanism = Mechanism(Clip(1.0), GaussianNoise(1.0), (KSDenoise(),))
    values = torch.full((100,), 50.0)
    torch.testing.assert_close(denoised({"w": values}, mechanism, 1.0)["w"], values)


def test_it_follows_the_noise_through_calibration_and_the_sum_through_its_sensitivity():
    mechanism = Mechanism(Encode(norm=0.5), BoxNoise(StudentT(), Encode(norm=0.5).box), (KSDenoise(),))
    calibrated = mechanism.with_multiplier(3.0)
    assert calibrated.post[0].noise.multiplier == 3.0
    state = calibrated.init({"w": torch.zeros(200)}, 10.0)
    bounded = BoundedSum({"w": torch.zeros(200)}, 0.5, Encode(norm=0.5).box)
    release, after = calibrated.release(bounded, state, SeededSource(0).stream(Purpose.NOISE, 0))
    assert float(after.post[0]["noise_std"]) == 1.5
    plain = BoxNoise(StudentT(), Encode(norm=0.5).box, 3.0).add(bounded, SeededSource(0).stream(Purpose.NOISE, 0))["w"]
    distance = stats.kstest(plain.numpy(), stats.t(9, scale=1.5 * math.sqrt(7 / 9)).cdf).statistic
    torch.testing.assert_close(release.values["w"], plain * distance, rtol=1e-5, atol=0)


def test_noise_without_one_law_for_all_coordinates_is_refused():
    with pytest.raises(InvalidArgument, match="one law"):
        Mechanism(Clip(1.0), PrunedNoise(1.0), (KSDenoise(),))


def test_outside_a_mechanism_it_does_not_know_its_noise():
    with pytest.raises(InvalidArgument, match="does not know its noise"):
        KSDenoise().apply({"w": torch.zeros(3)}, KSDenoise().init({}))
