"""tacit.methods.output_perturbation: how much noise, what it costs, what its papers claim."""

import math

import numpy as np
import pytest
from scipy import stats

from support.erm_examples import BOUNDED, LOSSES, table, targets_for
from tacit.accounting import Adjacency, EpsilonDelta, Gaussian, gdp
from tacit.erm import FullDescent, Logistic, Minimiser, PermutedDescent, Squared, prepare
from tacit.errors import InvalidArgument
from tacit.guarantee import FIXED_SEED, Status
from tacit.methods.output_perturbation import output_perturbation, wu_sensitivity

X, Y = table(400), (table(400)[:, 0] > 0).astype(int)
SETTINGS = {"loss": Logistic(), "regularisation": 0.05, "data_norm": 1.0}
PROBLEM = prepare(X, Y, **SETTINGS)
TRAININGS = [
    Minimiser(),
    PermutedDescent(lot_size=7),
    PermutedDescent(lot_size=7, step_size=0.5),
    FullDescent(20),
]


def theta_of(result):
    return np.concatenate([result.coef.T, result.intercept[None]])


@pytest.mark.parametrize("training", TRAININGS, ids=str)
def test_noise_is_as_little_as_the_exact_curve_allows(training):
    """Twelve runs of four coefficients; false alarm below 1e-6."""
    runs = [
        output_perturbation(X, Y, **SETTINGS, epsilon=0.5, delta=1e-5, training=training, seed=seed)
        for seed in range(12)
    ]
    noise = np.concatenate([(theta_of(run) - training.fit(PROBLEM)).ravel() for run in runs])
    std = training.sensitivity(PROBLEM) / gdp.mu(0.5, 1e-5)
    assert stats.kstest(noise / std, stats.norm.cdf).pvalue > 1e-6
    (event,) = {run.event for run in runs}
    assert isinstance(event, Gaussian)
    assert event.adjacency is Adjacency.REPLACE_ONE
    assert 1 / event.multiplier == pytest.approx(gdp.mu(0.5, 1e-5))


def test_without_delta_the_noise_is_pure():
    runs = [output_perturbation(X, Y, **SETTINGS, epsilon=0.5, delta=None, seed=seed) for seed in range(60)]
    lengths = [np.linalg.norm(theta_of(run) - Minimiser().fit(PROBLEM)) for run in runs]
    scale = Minimiser().sensitivity(PROBLEM) / 0.5
    assert stats.kstest(lengths, stats.gamma(4, scale=scale).cdf).pvalue > 1e-6
    assert runs[0].event == EpsilonDelta(0.5, 0.0, Adjacency.REPLACE_ONE)
    assert runs[0].guarantee.epsilon(1e-12) == pytest.approx(0.5)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_every_loss_keeps_its_budget(loss):
    y = targets_for(loss, 400, np.random.default_rng(0))
    result = output_perturbation(X, y, loss=loss, regularisation=0.1, epsilon=1.0, delta=1e-5, data_norm=1.0, seed=0)
    assert 0.999 < result.guarantee.epsilon(1e-5) <= 1.0
    assert result.coef.shape == (loss.outputs, 3)
    assert result.intercept.shape == (loss.outputs,)
    assert result.scores(X).shape == (400, loss.outputs)


def test_chaudhuri_2011_claim_pure_epsilon_and_have_it():
    guarantee = output_perturbation(X, Y, **SETTINGS, epsilon=0.7, delta=None, mode="paper", seed=0).guarantee
    assert guarantee.status is Status.PROVEN
    assert guarantee.claim.epsilon == 0.7
    assert guarantee.epsilon(1e-12) == pytest.approx(0.7)
    assert guarantee.adjacency is Adjacency.REPLACE_ONE
    with pytest.raises(InvalidArgument, match="without a delta"):
        output_perturbation(X, Y, **SETTINGS, epsilon=0.7, delta=1e-5, mode="paper")


@pytest.mark.parametrize("training", TRAININGS[1:3], ids=str)
@pytest.mark.parametrize("regularisation", [0.0, 0.05])
@pytest.mark.parametrize("epsilon", [0.5, 10.0])
def test_wu_2017_is_judged_by_the_exact_curve(training, regularisation, epsilon):
    settings = {**SETTINGS, "regularisation": regularisation}
    guarantee = output_perturbation(
        X, Y, **settings, epsilon=epsilon, delta=1e-5, mode="paper", training=training, seed=0
    ).guarantee
    problem = prepare(X, Y, **settings)
    std = wu_sensitivity(training, problem) * math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
    true = gdp.epsilon(1e-5, training.sensitivity(problem) / std)
    assert guarantee.epsilon(1e-5) == pytest.approx(true)
    assert guarantee.status is (Status.PROVEN if true <= epsilon else Status.UNPROVEN)
    assert "standard deviation" in str(guarantee)


def test_wu_2017_without_delta():
    guarantee = output_perturbation(
        X, Y, **SETTINGS, epsilon=0.5, delta=None, mode="paper", training=TRAININGS[2], seed=0
    ).guarantee
    assert guarantee.status is Status.PROVEN
    assert guarantee.epsilon(1e-12) <= 0.5


def test_textbook_noise_at_epsilon_ten_is_not_called_proven():
    """With decreasing steps of strong convexity and lots of one our sensitivity is theirs, and 10 is 10.39."""
    training = PermutedDescent(passes=1, lot_size=400, step_size=0.5)
    settings = {**SETTINGS, "regularisation": 0.0}
    guarantee = output_perturbation(
        X, Y, **settings, epsilon=10.0, delta=1e-5, mode="paper", training=training, seed=0
    ).guarantee
    assert guarantee.epsilon(1e-5) == pytest.approx(10.393882381222282)
    assert guarantee.status is Status.UNPROVEN
    assert "10.39" in guarantee.because


def test_zhang_2017_is_proven_from_some_constant_on():
    def judged(constant):
        return output_perturbation(
            X, Y, **SETTINGS, epsilon=0.5, delta=1e-5, mode="paper", training=FullDescent(500), constant=constant
        ).guarantee

    assert judged(5.0).status is Status.PROVEN
    assert judged(5.0).epsilon(1e-5) < 0.5
    assert judged(0.5).status is Status.UNPROVEN
    assert judged(0.5).epsilon(1e-5) > 0.5
    with pytest.raises(InvalidArgument, match="strongly convex"):
        output_perturbation(
            X, Y, **{**SETTINGS, "regularisation": 0.0}, epsilon=1.0, delta=1e-5, mode="paper", training=FullDescent()
        )


def test_the_solvers_tolerance_is_part_of_the_sensitivity():
    loose = Minimiser(tolerance=1e-2)
    assert loose.sensitivity(PROBLEM) - Minimiser().sensitivity(PROBLEM) == pytest.approx(2e-2 / 0.05, rel=1e-3)


def test_a_seed_is_reproducible_and_not_for_release():
    first, second = (output_perturbation(X, Y, **SETTINGS, epsilon=1, delta=1e-5, seed=3) for _ in range(2))
    assert np.array_equal(first.coef, second.coef)
    assert first.guarantee.violations == (FIXED_SEED,)


def test_without_a_seed_no_noise_comes_twice_and_it_may_be_released():
    first, second = (output_perturbation(X, Y, **SETTINGS, epsilon=1, delta=1e-5) for _ in range(2))
    assert not np.array_equal(first.coef, second.coef)
    assert first.guarantee.violations == ()


def test_a_model_without_intercept_has_none():
    result = output_perturbation(X, Y, **SETTINGS, epsilon=100, delta=1e-5, intercept=False)
    assert result.intercept.tolist() == [0.0]
    assert "intercept" not in str(result.guarantee)


@pytest.mark.parametrize("loss", BOUNDED, ids=str)
def test_as_epsilon_grows_the_model_becomes_the_one_without_noise(loss):
    y = targets_for(loss, 400, np.random.default_rng(0))
    settings = {"loss": loss, "regularisation": 0.1, "data_norm": 1.0}
    result = output_perturbation(X, y, **settings, epsilon=1e7, delta=1e-5, seed=0)
    assert theta_of(result) == pytest.approx(Minimiser().fit(prepare(X, y, **settings)), abs=1e-3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number above 0"),
        ({"delta": 1.0}, "delta must be a number strictly between 0 and 1"),
        ({"mode": "fast"}, "mode must be 'rigorous' or 'paper'"),
        ({"training": "sgd"}, "training must be one such as Minimiser"),
        ({"regularisation": 0.0}, "regularisation must be above 0"),
        ({"loss": Squared(1.0), "training": FullDescent()}, "are unbounded"),
    ],
)
def test_bad_settings_are_named(change, said):
    with pytest.raises(InvalidArgument, match=said):
        output_perturbation(X, Y, **{**SETTINGS, "epsilon": 1.0, "delta": 1e-5, **change})
