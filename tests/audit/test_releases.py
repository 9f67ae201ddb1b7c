"""The release test: nothing is found in what is right, and each mistake is named. False alarms: 1e-9 a test."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from support.broken_stages import ForgottenNoise, HalvedNoise, InOrder
from tacit.accounting import Gaussian, curve
from tacit.audit import Training, release_test
from tacit.audit.release_statistics import check_composition, check_grid, check_lots, check_noise
from tacit.methods import adaclip, dpsgd
from tacit.randomness import SeededSource, Stream
from tacit.stages.bounds import Clip, NormalisedClip
from tacit.stages.mechanism import Mechanism
from tacit.stages.more_samplings import CyclicPoisson, RandomAllocation
from tacit.stages.noise import BandedNoise, GaussianNoise
from tacit.stages.sampling import FullBatch, Poisson, Shuffled
from tacit.training.people import Owners
from tacit.training.plan import Plan

ALPHA, N = 1e-9, 400
RNG = np.random.default_rng(0)


def training(mechanism=None, sampling=None, model=None):
    torch.manual_seed(0)
    data = torch.randn(N, 5), torch.randint(3, (N,))
    return Training(
        model or nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)),
        nn.functional.cross_entropy,
        data,
        mechanism or dpsgd(clip_norm=0.5, multiplier=1.1),
        sampling or Poisson(40, N),
        12,
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "right",
    [
        {},
        {"sampling": FullBatch(N)},
        {"sampling": Shuffled(40, N)},
        {"mechanism": Mechanism(Clip(0.5, per_layer=True), GaussianNoise(1.0))},
        {"mechanism": Mechanism(NormalisedClip(0.5), GaussianNoise(1.0))},
        {"sampling": CyclicPoisson(40, N, groups=3), "mechanism": dpsgd(0.5, 1.1, noise="banded", bands=3)},
        {"sampling": RandomAllocation(40, N)},
    ],
    ids=["plain", "all examples", "shuffled", "by layer", "normalised", "banded", "allocated"],
)
def test_nothing_is_found_where_all_is_right(right):
    found = release_test(training(**right))
    assert found.passed, str(found)
    assert "noise" in found.checked


def test_what_cannot_be_tested_is_said():
    dropping = nn.Sequential(nn.Linear(5, 6), nn.Dropout(), nn.Linear(6, 3))
    found = release_test(training(model=dropping)) | release_test(training(adaclip(multiplier=1.0)))
    assert found.passed
    assert len([text for text in found.left_out if text.startswith("sums and noise")]) == 2


def test_correlated_noise_that_is_not_as_accounted_for_is_found(monkeypatch):
    banded = {"sampling": CyclicPoisson(40, N, groups=3), "mechanism": dpsgd(0.5, 1.1, noise="banded", bands=3)}
    right = BandedNoise.advance
    with monkeypatch.context() as patch:
        patch.setattr(BandedNoise, "advance", lambda self, past, fresh, step: right(self, past, fresh / 2, step))
        assert "times as large as was accounted for" in str(release_test(training(**banded)))
    with monkeypatch.context() as patch:
        patch.setattr(
            BandedNoise, "advance", lambda self, past, fresh, step: right(self, [-p for p in past], fresh, step)
        )
        assert not release_test(training(**banded)).passed


def test_groups_that_are_drawn_anew_in_every_step_are_found(monkeypatch):
    def forget(self, n, rng, step=0):
        members = self._draw_groups(n, rng)[step % self.groups]
        return members[rng.coins(len(members), self.rate)]

    monkeypatch.setattr(CyclicPoisson, "lot", forget)
    assert "lots of two groups" in str(release_test(training(sampling=CyclicPoisson(40, N, groups=3))))


def test_a_restart_that_is_not_charged_is_seen_in_the_count(monkeypatch):
    monkeypatch.setattr(Plan, "restart", lambda self, step: self)
    sampling, mechanism = CyclicPoisson(40, N, groups=5), dpsgd(0.5, 1.1, noise="banded", bands=5)
    assert "a crash lost" in str(release_test(training(mechanism, sampling)))


PLAIN = dpsgd(clip_norm=0.5, multiplier=1.1)
EXACT, CLIPPED = GaussianNoise.mean_in_place, Clip.sum


def test_lots_that_are_not_what_is_accounted_for_are_found():
    assert "lots repeat" in str(release_test(training(sampling=InOrder(40, N))))


@pytest.mark.parametrize("noise", [HalvedNoise, ForgottenNoise])
def test_noise_of_the_users_own_that_is_not_what_its_event_says_is_found(noise):
    assert "times as large as was accounted for" in str(release_test(training(replace(PLAIN, noise=noise(1.1)))))


def test_sums_that_are_not_bounded_or_divided_as_they_should_be_are_found(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(
            Clip, "sum", lambda self, *args: replace(CLIPPED(replace(self, norm=1.0), *args), sensitivity=0.5)
        )
        assert "clip norms from that of single passes" in str(release_test(training()))
    with monkeypatch.context() as patch:
        patch.setattr(GaussianNoise, "mean_in_place", lambda self, *args: EXACT(self, *args[:-1], args[-1] * 1.1))
        assert "clip norms from that of single passes" in str(release_test(training()))


def noise_of(steps, size=300, std=2.0, seed=0):
    return [
        {"a": SeededSource(seed + step).stream(2, step).normal(size, wide=True, scale=std)} for step in range(steps)
    ]


def test_noise_that_repeats_or_is_not_normal_is_found():
    right = noise_of(8)
    assert check_noise(right, [2.0] * 8, ALPHA) == []
    [repeated] = check_noise([*right, right[5]], [2.0] * 9, ALPHA)
    assert repeated == "the noise repeats: that of step 8 agrees with that of step 5"
    flat = [{"a": RNG.uniform(-math.sqrt(12), math.sqrt(12), 3000)} for _ in range(4)]
    assert "not normal" in check_noise(flat, [2.0] * 4, ALPHA)[0]


def draw(steps, n, rate, seed=0):
    return [SeededSource(seed).stream(1, step).coins(n, rate) for step in range(steps)]


def test_lots_of_every_wrong_kind_are_found():
    n, rate = 2000, 0.05
    right = draw(60, n, rate)
    assert check_lots(right, n, rate, ALPHA) == []
    assert "rate 0.04" in check_lots(right, n, 0.04, ALPHA)[0]
    assert "twice" in check_lots([*right, np.append(right[0], right[0][:1])], n, rate, ALPHA)[0]
    assert "lots repeat" in check_lots([*right, right[7]], n, rate, ALPHA)[-1]
    fixed = [np.sort(RNG.choice(n, 100, replace=False)) for _ in range(60)]
    assert "differ too little" in check_lots(fixed, n, rate, ALPHA)[0]


def test_false_alarms_of_lots_and_noise_are_as_rare_as_they_say():
    # With alpha 0.05, 60 trials of each blame at most 11 (probability of more: 1e-4).
    lots = sum(bool(check_lots(draw(6, 300, 0.1, seed), 300, 0.1, 0.05)) for seed in range(60))
    noise = sum(bool(check_noise(noise_of(3, 40, 1.0, seed=9 * seed), [1.0] * 3, 0.05)) for seed in range(60))
    assert max(lots, noise) <= 11


def test_a_curve_that_composes_too_few_steps_is_found():
    step = Gaussian(2.0).sampled(0.1)
    assert check_composition(curve(step * 200), 2.0, 0.1, 200, ALPHA) == []
    assert "simulated steps need" in check_composition(curve(step * 100), 2.0, 0.1, 200, ALPHA)[0]


def test_released_numbers_off_the_grid_are_found():
    values = Stream(bytes(32), 0).normal(1000, wide=True)
    assert check_grid(values, 1.0)
    assert check_grid(np.rint(values * 64) / 64, 1.0) == []


def people(**changes):
    """Each of 120 people has one to nine rows, of which three at most enter a step."""
    rows = np.repeat(np.arange(120), np.random.default_rng(0).integers(1, 10, 120))
    data = torch.randn(len(rows), 5), torch.randint(3, (len(rows),))
    return replace(training(sampling=Poisson(30, 120)), data=data, unit=rows, rows_per_unit=3, **changes)


@pytest.mark.slow
def test_nothing_is_found_where_people_are_protected_as_they_should_be():
    found = release_test(people())
    assert found.passed, str(found)
    assert {"lots", "sums", "noise"} <= set(found.checked)


def test_people_whose_rows_are_not_averaged_or_not_drawn_as_declared_are_found(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("tacit.gradients.units._Places.shares", lambda self, values: torch.ones_like(values))
        # Not so short that a sum of rows, once it is clipped, is their mean.
        long = people(mechanism=dpsgd(clip_norm=5.0, multiplier=1.1))
        assert "clip norms from that of single passes" in str(release_test(long))
    draw = Owners.draw
    with monkeypatch.context() as patch:
        patch.setattr(Owners, "draw", lambda self, lot, most, rng: draw(self, lot, most + 1, rng))
        assert "other rows of a person than were declared" in str(release_test(people()))
