"""The rule of Xiang et al. 2023 for isotropic noise, in many settings: it wastes noise in some, and fails in others."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accounting import Gaussian, curve, gdp, multiplier_for
from tacit.methods.directional import epsilon_of, tau

DELTA = 1e-5

# Steps, rate, claimed epsilon, beta, multiplier that the rule asks for, and certified bounds of another accountant.
SWEEP = [
    (100, 0.01, 0.5, "integer", 1.523352611, 0.279765, 0.285073),
    (100, 0.01, 1.0, "integer", 1.036437812, 0.641337, 0.646456),
    (100, 0.01, 2.0, "integer", 0.7196437937, 2.15729, 2.16233),
    (100, 0.01, 5.0, "integer", 0.4503352202, 8.73744, 8.74255),
    (100, 0.01, 10.0, "integer", 0.3173256693, 23.0874, 23.0928),
    (200, 0.01, 0.5, "integer", 2.154345923, 0.234029, 0.244798),
    (200, 0.01, 1.0, "integer", 1.46574441, 0.41126, 0.421723),
    (200, 0.01, 2.0, "integer", 1.017730013, 0.861126, 0.871334),
    (200, 0.01, 5.0, "integer", 0.636870176, 3.7076, 3.71766),
    (200, 0.01, 10.0, "integer", 0.4487662653, 10.6618, 10.6721),
    (500, 0.01, 0.5, "integer", 3.406319992, 0.200847, 0.227962),
    (500, 0.01, 1.0, "integer", 2.317545402, 0.333359, 0.359784),
    (500, 0.01, 2.0, "integer", 1.609172442, 0.554604, 0.580539),
    (500, 0.01, 5.0, "integer", 1.006980165, 1.28027, 1.30569),
    (500, 0.01, 10.0, "integer", 0.7095617677, 3.42506, 3.45023),
    (1000, 0.01, 0.5, "integer", 4.81726393, 0.170482, 0.224832),
    (1000, 0.01, 1.0, "integer", 3.277504138, 0.292211, 0.345218),
    (1000, 0.01, 2.0, "integer", 2.275713492, 0.478899, 0.530976),
    (1000, 0.01, 5.0, "integer", 1.424085006, 0.940109, 0.991322),
    (1000, 0.01, 10.0, "integer", 1.003471875, 1.76507, 1.81577),
    (3000, 0.01, 0.5, "integer", 8.34374588, 0.0671033, 0.230194),
    (3000, 0.01, 1.0, "integer", 5.67680369, 0.182381, 0.341652),
    (3000, 0.01, 2.0, "integer", 3.941651392, 0.350522, 0.507137),
    (3000, 0.01, 5.0, "integer", 2.466587585, 0.714149, 0.868364),
    (3000, 0.01, 10.0, "integer", 1.738064272, 1.19323, 1.34617),
    (100, 0.01, 2.0, "real", 0.6014844513, 3.7827, 3.78771),
    (100, 0.01, 5.0, "real", 0.3555739189, 16.9409, 16.9461),
    (100, 0.01, 10.0, "real", 0.2429623901, 46.4085, 46.4138),
    (200, 0.01, 10.0, "real", 0.3436007072, 23.2727, 23.2833),
]
# The same with real beta: steps, rate, claimed epsilon, multiplier.
REAL = [
    (100, 0.01, 0.5, 1.438535743),
    (100, 0.01, 1.0, 0.9169676974),
    (100, 0.01, 2.0, 0.6014844513),
    (100, 0.01, 5.0, 0.3555739189),
    (100, 0.01, 10.0, 0.2429623901),
    (200, 0.01, 0.5, 2.034396758),
    (200, 0.01, 1.0, 1.296788154),
    (200, 0.01, 2.0, 0.8506274686),
    (200, 0.01, 5.0, 0.5028574585),
    (200, 0.01, 10.0, 0.3436007072),
    (500, 0.01, 0.5, 3.21666371),
    (500, 0.01, 1.0, 2.050402105),
    (500, 0.01, 2.0, 1.344960121),
    (500, 0.01, 5.0, 0.7950874536),
    (500, 0.01, 10.0, 0.5432804202),
    (1000, 0.01, 0.5, 4.549049444),
    (1000, 0.01, 1.0, 2.899706465),
    (1000, 0.01, 2.0, 1.902060843),
    (1000, 0.01, 5.0, 1.12442346),
    (1000, 0.01, 10.0, 0.7683145384),
    (3000, 0.01, 0.5, 7.879184764),
    (3000, 0.01, 1.0, 5.022438924),
    (3000, 0.01, 2.0, 3.29446602),
    (3000, 0.01, 5.0, 1.947558562),
    (3000, 0.01, 10.0, 1.330759817),
]
# Published settings with w = 1: lot, examples, steps, claimed epsilon, tau, what it costs, and the multiplier needed.
PUBLISHED = [
    (512, 55000, 6445, 0.2, 0.002272802696, 0.110707, 12.2251),
    (512, 55000, 6445, 0.3, 0.003939550174, 0.14964, 8.44849),
    (512, 55000, 6445, 0.5, 0.007273045132, 0.209358, 5.3227),
    (512, 55000, 6445, 1.0, 0.01560678253, 0.318348, 2.89525),
    (256, 73257, 8585, 5.0, 0.1659807114, 0.486512, 0.6588),
    (256, 73257, 8585, 10.0, 0.3326435863, 0.749424, 0.542204),
    (256, 60000, 23438, 5.0, 0.0497405494, 0.521782, 0.866967),
    (256, 60000, 23438, 10.0, 0.09973948276, 0.774534, 0.666816),
    (256, 60000, 23438, 15.0, 0.1497384161, 0.982342, 0.590086),
]


def multiplier_of(claimed, rate, steps, beta):
    return 1 / math.sqrt(tau(claimed / rate, DELTA / rate, steps, beta))


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "rate", "claimed", "beta", "multiplier", "low", "high"), SWEEP)
def test_the_rule_and_what_it_costs(steps, rate, claimed, beta, multiplier, low, high):
    assert multiplier_of(claimed, rate, steps, beta) == pytest.approx(multiplier, rel=1e-8)
    lower, upper = curve(Gaussian(multiplier).sampled(rate) * steps).epsilon_bounds(DELTA)
    assert low * (1 - 1e-5) <= upper
    assert lower <= high * (1 + 1e-5)


@pytest.mark.parametrize(("steps", "rate", "claimed", "multiplier"), REAL)
def test_the_rule_with_real_beta(steps, rate, claimed, multiplier):
    assert multiplier_of(claimed, rate, steps, "real") == pytest.approx(multiplier, rel=1e-8)


@pytest.mark.slow
def test_the_rule_is_violated_in_some_settings_and_wastes_noise_in_others():
    violated = [row[:4] for row in SWEEP if row[5] > row[2]]
    wasteful = [row[:4] for row in SWEEP if row[6] < row[2]]
    assert len(violated) == 8
    assert len(violated) + len(wasteful) == len(SWEEP)
    for steps, rate, claimed, beta in violated:
        event = Gaussian(multiplier_of(claimed, rate, steps, beta)).sampled(rate) * steps
        assert curve(event).epsilon_bounds(DELTA)[0] > claimed


@pytest.mark.parametrize(("lot", "examples", "steps", "claimed", "value", "cost", "needed"), PUBLISHED)
def test_published_settings_cost_less_than_claimed(lot, examples, steps, claimed, value, cost, needed):
    rate = lot / examples
    assert tau(claimed / rate, DELTA / rate, steps) == pytest.approx(value, rel=1e-8)
    certified = curve(Gaussian(1 / math.sqrt(value)).sampled(rate) * steps).epsilon(DELTA)
    # Theirs is an upper bound of a grid that costs some in small epsilons.
    assert 0.9 * cost <= certified <= cost * (1 + 1e-6) < claimed
    found = multiplier_for(epsilon=claimed, delta=DELTA, rate=rate, steps=steps)
    assert found == pytest.approx(needed, rel=3e-3)


def test_tau_without_sampling():
    assert tau(1.0, 1e-5, 1) == pytest.approx(0.041623581783432576, rel=1e-12)
    assert 1 / math.sqrt(tau(1.0, 1e-5, 1)) == pytest.approx(4.9015143, rel=1e-7)
    assert tau(1.0, 1e-5, 1, "real") == pytest.approx(0.04163987667907092, rel=1e-12)
    log = math.log(1e5)
    assert math.sqrt(tau(1.0, 1e-5, 1, "real")) == pytest.approx(math.sqrt(2) * (math.sqrt(log + 1) - math.sqrt(log)))
    assert tau(1.0, 1e-5, 100) == pytest.approx(tau(1.0, 1e-5, 1) / 100)


def test_tau_of_a_budget_divided_by_the_sampling_rate():
    assert 1 / math.sqrt(tau(107.421875, 1.07421875e-3, 6445)) == pytest.approx(8.0046678, rel=1e-7)
    assert 1 / math.sqrt(tau(107.421875, 1.07421875e-3, 6445, "real")) == pytest.approx(7.0303695, rel=1e-7)
    assert 1 / math.sqrt(tau(2861.6015625, 0.0028616015625, 8585, "real")) == pytest.approx(1.281417877405489)


@pytest.mark.slow
@given(st.floats(0.01, 5000), st.floats(1e-9, 0.3), st.integers(1, 10_000))
def test_no_whole_moment_is_better_than_the_one_taken(epsilon, delta, steps):
    betas = np.arange(1, 3000)
    every = 2 * (epsilon + math.log(delta) / betas) / (steps * (1 + betas))
    best = tau(epsilon, delta, steps)
    assert best >= every.max() * (1 - 1e-12) or every.max() <= 0
    assert tau(epsilon, delta, steps, "real") >= best * (1 - 1e-12)


@given(st.floats(0.01, 5000), st.floats(1e-9, 0.3), st.sampled_from(["integer", "real"]))
def test_the_rule_read_backwards_gives_the_budget(epsilon, delta, beta):
    assert epsilon_of(tau(epsilon, delta, 1, beta), delta, beta) == pytest.approx(epsilon, rel=1e-9)


def test_tau_is_safe_for_isotropic_noise_without_sampling():
    """The Markov step is correct: the exact epsilon never exceeds the one that tau was made for."""
    for epsilon in (0.1, 1.0, 10.0):
        assert gdp.epsilon(1e-5, math.sqrt(tau(epsilon, 1e-5, 1, "real"))) < epsilon
