"""tacit.methods.gradient_perturbation: budgets are kept, papers are judged."""

import math

import numpy as np
import pytest

from support.erm_examples import LOSSES, table, targets_for
from tacit.accounting import Adjacency, gdp
from tacit.erm import Logistic, NoisyLots, NoisyPass, NoisySnapshots, Squared
from tacit.errors import InvalidArgument
from tacit.guarantee import FIXED_SEED, Guarantee, Status
from tacit.methods.gradient_perturbation import gradient_perturbation

N = 300
X, Y = table(N), (table(N)[:, 0] > 0).astype(int)
SETTINGS = {"loss": Logistic(), "regularisation": 0.05, "data_norm": 1.0}
ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_every_loss_keeps_its_budget(loss):
    y = targets_for(loss, N, np.random.default_rng(0))
    result = gradient_perturbation(X, y, loss=loss, regularisation=0.1, epsilon=1.0, delta=1e-5, data_norm=1.0, seed=0)
    assert 0.999 < result.guarantee.epsilon(1e-5) <= 1.0
    assert result.guarantee.adjacency is REPLACE


@pytest.mark.parametrize(
    "training",
    [NoisyLots(20, lot_size=30), NoisySnapshots(rounds=2, inner=5, lot_size=30), NoisyPass(passes=2, lot_size=30)],
    ids=str,
)
def test_every_descent_keeps_its_budget(training):
    adjacency = REPLACE if isinstance(training, NoisyPass) else ADD
    result = gradient_perturbation(
        X, Y, **SETTINGS, epsilon=1.0, delta=1e-5, training=training, adjacency=adjacency, seed=0
    )
    assert 0.99 < result.guarantee.epsilon(1e-5) <= 1.0
    assert result.guarantee.adjacency is adjacency


def test_a_pass_needs_no_delta():
    result = gradient_perturbation(X, Y, **SETTINGS, epsilon=1.0, delta=None, training=NoisyPass(passes=2), seed=0)
    assert result.guarantee.epsilon(1e-12) == pytest.approx(1.0)
    with pytest.raises(InvalidArgument, match="never private without a delta"):
        gradient_perturbation(X, Y, **SETTINGS, epsilon=1.0, delta=None)


@pytest.mark.parametrize(
    ("constant", "epsilon", "status", "true"),
    [
        (1.0, 0.25, Status.REFUTED, 0.5197713764133511),
        (1.0, 1.0, Status.REFUTED, 2.3965722184026856),
        (4.836, 1.0, Status.PROVEN, 1.0),
        (10.0, 1.0, Status.PROVEN, None),
    ],
)
def test_wang_2017_is_judged_by_its_constant(constant, epsilon, status, true):
    guarantee = gradient_perturbation(
        X, Y, **SETTINGS, epsilon=epsilon, delta=1e-5, mode="paper", constant=constant, seed=0
    ).guarantee
    assert guarantee.status is status
    assert guarantee.claim.epsilon == epsilon
    if true is not None:
        assert guarantee.epsilon(1e-5) == pytest.approx(true, rel=1e-4)
    assert ("smaller than the certified bound" in guarantee.verdict) is (status is Status.REFUTED)


def test_the_loss_that_refutes_wang_2017():
    """Steady gradients of opposite sign: the last iterate alone is Gaussian, T eta 2 G / n apart."""
    n, steps, epsilon = 1000, 50, 0.25
    std = math.sqrt(steps * math.log(1e5)) / (n * epsilon)
    mu = (steps * 2 / n) / (math.sqrt(steps) * std)
    assert gdp.epsilon(1e-5, mu) == pytest.approx(0.5197713764133511)


def test_song_2013_costs_epsilon_in_every_pass():
    guarantee = gradient_perturbation(
        X, Y, **SETTINGS, epsilon=0.9, delta=None, mode="paper", training=NoisyPass(passes=3), seed=0
    ).guarantee
    assert guarantee.status is Status.PROVEN
    assert guarantee.event.inside.epsilon == pytest.approx(0.3)
    assert guarantee.epsilon(1e-12) == pytest.approx(0.9)


def test_bassily_2014_is_proven_and_loose():
    training = NoisyLots(steps=200, lot_size=1)
    guarantee = gradient_perturbation(
        X, Y, **SETTINGS, epsilon=1.0, delta=1e-5, mode="paper", training=training, seed=0
    ).guarantee
    assert guarantee.status is Status.PROVEN
    assert guarantee.epsilon(1e-5) < 0.1
    with pytest.raises(InvalidArgument, match="one example per step"):
        gradient_perturbation(X, Y, **SETTINGS, epsilon=1.0, delta=1e-5, mode="paper", training=NoisyLots())


def test_dp_svrg_as_published_proves_nothing():
    guarantee = gradient_perturbation(
        X, Y, **SETTINGS, epsilon=1.0, delta=1e-5, mode="paper", training=NoisySnapshots(2, 5), seed=0
    ).guarantee
    assert guarantee.status is Status.UNPROVEN
    assert guarantee.epsilon(1e-5) == math.inf
    assert str(guarantee).startswith("Proven: nothing.")


def test_papers_that_do_not_clip_are_refused_for_gradients_without_a_bound():
    for training in (NoisyLots(10, lot_size=1), NoisySnapshots(2, 2)):
        with pytest.raises(InvalidArgument, match="does not clip them"):
            gradient_perturbation(
                X, Y, **{**SETTINGS, "loss": Squared(1.0)}, epsilon=1, delta=1e-5, mode="paper", training=training
            )


def test_a_seed_is_reproducible_and_not_for_release():
    first, second = (gradient_perturbation(X, Y, **SETTINGS, epsilon=1, delta=1e-5, seed=3) for _ in range(2))
    assert np.array_equal(first.coef, second.coef)
    assert first.guarantee.violations == (FIXED_SEED,)
    fresh = gradient_perturbation(X, Y, **SETTINGS, epsilon=1, delta=1e-5)
    assert fresh.guarantee.violations == ()
    assert Guarantee.from_json(fresh.guarantee.to_json()) == fresh.guarantee


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"training": "gd"}, "training must be one such as NoisyDescent"),
        ({"constant": 0.0, "mode": "paper"}, "constant must be"),
        ({"delta": None, "mode": "paper"}, "need no delta"),
        ({"mode": ""}, "mode must be"),
    ],
)
def test_bad_settings_are_named(change, said):
    with pytest.raises(InvalidArgument, match=said):
        gradient_perturbation(X, Y, **{**SETTINGS, "epsilon": 1.0, "delta": 1e-5, **change})
