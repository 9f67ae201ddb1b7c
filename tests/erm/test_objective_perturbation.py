"""tacit.methods.objective_perturbation: the noise that went in can be read off the model, and is what was paid for."""

import math

import numpy as np
import pytest
from scipy import stats

from support.erm_examples import BOUNDED, table, targets_for
from tacit.accounting import Adjacency, EpsilonDelta
from tacit.erm import Huber, Logistic, Minimiser, Multinomial, Squared, prepare
from tacit.erm.objective import Setting, chaudhuri_2011, kifer_2012
from tacit.errors import InvalidArgument, NotProven
from tacit.guarantee import FIXED_SEED, Guarantee, Status
from tacit.methods.objective_perturbation import objective_perturbation

N, FEATURES = 400, 24
X = table(N, FEATURES) / math.sqrt(FEATURES)
Y = (X[:, 0] > 0).astype(int)
SETTINGS = {"loss": Logistic(), "regularisation": 0.05, "data_norm": 1.0}
REPLACE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE


def theta_of(result):
    return np.concatenate([result.coef.T, result.intercept[None]])


def linear_term(result, strength=None, **changed):
    """The random term that a minimiser gives away: minus the gradient of everything else, times n."""
    settings = {**SETTINGS, **changed}
    if strength is not None:
        settings["regularisation"] = strength / N
    problem = prepare(X, Y, **settings)
    return -N * problem.value_and_gradient(theta_of(result))[1].ravel()


def test_normal_noise_has_the_calibrated_deviation():
    """Twenty runs of 25 coefficients; false alarm below 1e-6."""
    runs = [objective_perturbation(X, Y, **SETTINGS, epsilon=1.0, delta=1e-5, seed=seed) for seed in range(20)]
    terms = np.concatenate([linear_term(run) for run in runs])
    std = Setting(Logistic(), 1.0, 0.05 * N).std(1.0, 1e-5)
    assert stats.kstest(terms / std, stats.norm.cdf).pvalue > 1e-6
    assert terms.std() == pytest.approx(std, rel=0.1)


def test_pure_noise_has_the_calibrated_scale():
    runs = [objective_perturbation(X, Y, **SETTINGS, epsilon=1.0, delta=None, seed=seed) for seed in range(60)]
    lengths = [np.linalg.norm(linear_term(run)) for run in runs]
    scale = Setting(Logistic(), 1.0, 0.05 * N).k_norm_scale(0.999)
    assert stats.kstest(lengths, stats.gamma(FEATURES + 1, scale=scale).cdf).pvalue > 1e-6
    assert runs[0].guarantee.epsilon(1e-12) == pytest.approx(1.0)


def test_noise_of_kifer_2012_is_theirs():
    runs = [
        objective_perturbation(X, Y, **SETTINGS, epsilon=1.0, delta=1e-5, mode="paper", seed=seed) for seed in range(20)
    ]
    added, std = kifer_2012(epsilon=0.999, delta=0.999e-5, lipschitz=1.0, curvature=0.25)
    terms = np.concatenate([linear_term(run, strength=0.05 * N + added) for run in runs])
    assert stats.kstest(terms / std, stats.norm.cdf).pvalue > 1e-6


def test_noise_of_chaudhuri_2011_is_theirs():
    runs = [
        objective_perturbation(X, Y, **SETTINGS, epsilon=1.0, delta=None, mode="paper", seed=seed) for seed in range(60)
    ]
    left, added = chaudhuri_2011(n=N, regularisation=0.05, epsilon=0.999, curvature=0.25)
    lengths = [np.linalg.norm(linear_term(run, strength=N * (0.05 + added))) for run in runs]
    assert stats.kstest(lengths, stats.gamma(FEATURES + 1, scale=2 / left).cdf).pvalue > 1e-6


@pytest.mark.parametrize("loss", BOUNDED, ids=str)
@pytest.mark.parametrize("delta", [1e-5, None])
def test_every_loss_keeps_its_budget(loss, delta):
    y = targets_for(loss, N, np.random.default_rng(0))
    result = objective_perturbation(
        X, y, loss=loss, regularisation=0.01, epsilon=0.5, delta=delta, data_norm=2.0, seed=0
    )
    assert 0.49 < result.guarantee.epsilon(delta or 1e-12) <= 0.5
    assert result.guarantee.adjacency is REPLACE


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0])
def test_kifer_2012_claim_more_than_is_true(epsilon):
    guarantee = objective_perturbation(X, Y, **SETTINGS, epsilon=epsilon, delta=1e-5, mode="paper", seed=0).guarantee
    assert guarantee.status is Status.PROVEN
    assert guarantee.adjacency is ADD
    assert guarantee.claim.epsilon == epsilon
    assert guarantee.epsilon(1e-5) < epsilon
    assert "on the safe side" in str(guarantee)


def test_kifer_2012_for_a_replaced_example_takes_twice_the_noise():
    one, two = (
        objective_perturbation(X, Y, **SETTINGS, epsilon=1.0, delta=1e-5, mode="paper", adjacency=adjacency, seed=0)
        for adjacency in (ADD, REPLACE)
    )
    added, _ = kifer_2012(epsilon=0.999, delta=0.999e-5, lipschitz=1.0, curvature=0.25)
    once, twice = (linear_term(result, strength=0.05 * N + added) for result in (one, two))
    # The same seed gives the same noise, stretched.
    assert twice == pytest.approx(2 * once, rel=1e-2, abs=1e-2)
    assert two.guarantee.adjacency is REPLACE


def test_chaudhuri_2011_is_proven_for_replaced_examples_only():
    guarantee = objective_perturbation(X, Y, **SETTINGS, epsilon=0.5, delta=None, mode="paper", seed=0).guarantee
    assert guarantee.status is Status.PROVEN
    assert guarantee.epsilon(1e-12) <= 0.5
    with pytest.raises(InvalidArgument, match="Leave adjacency out"):
        objective_perturbation(X, Y, **SETTINGS, epsilon=0.5, delta=None, mode="paper", adjacency=ADD)


def test_papers_are_refused_for_losses_that_they_do_not_cover():
    y = np.zeros(N)
    with pytest.raises(InvalidArgument, match="one score per example"):
        objective_perturbation(
            X, y, loss=Multinomial(3), regularisation=0.1, epsilon=1, delta=1e-5, data_norm=1, mode="paper"
        )


def test_slopes_without_a_bound_are_refused():
    with pytest.raises(InvalidArgument, match="Use Huber"):
        objective_perturbation(X, Y, loss=Squared(1.0), regularisation=0.1, epsilon=1, delta=1e-5, data_norm=1)


def test_a_minimiser_taken_for_exact_is_not_called_proven():
    result = objective_perturbation(X, Y, **SETTINGS, epsilon=1.0, delta=1e-5, solver_share=0.0, seed=0)
    assert result.guarantee.status is Status.UNPROVEN
    assert result.guarantee.epsilon(1e-5) == math.inf
    assert "exact minimiser" in str(result.guarantee)
    from tacit.accounting import curve

    with pytest.raises(NotProven, match="exact minimiser"):
        curve(result.event)


def test_the_noise_that_pays_for_the_solver_is_next_to_nothing():
    """The same seed with and without: only that noise and a thousandth of the budget differ."""
    usual, exact = (
        objective_perturbation(X, Y, **SETTINGS, epsilon=1.0, delta=1e-5, solver_share=share, seed=0)
        for share in (1e-3, 0.0)
    )
    assert usual.coef == pytest.approx(exact.coef, rel=5e-3, abs=1e-3)


def test_the_event_names_both_parts():
    event = objective_perturbation(X, Y, **SETTINGS, epsilon=1.0, delta=1e-5, seed=0).event
    proper, solver = event.parts
    assert isinstance(proper, EpsilonDelta)
    assert (proper.epsilon, proper.delta) == pytest.approx((0.999, 0.999e-5))
    assert solver.multiplier > 1000


def test_more_regularisation_is_added_where_the_proof_needs_it_and_is_told():
    settings = {**SETTINGS, "regularisation": 0.0}
    guarantee = objective_perturbation(X, Y, **settings, epsilon=0.1, delta=1e-5, seed=0).guarantee
    assert guarantee.epsilon(1e-5) <= 0.1
    assert "more regularisation" in str(guarantee)


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), Multinomial(3)], ids=str)
def test_as_epsilon_grows_the_model_becomes_the_one_without_noise(loss):
    y = targets_for(loss, N, np.random.default_rng(0))
    settings = {"loss": loss, "regularisation": 0.1, "data_norm": 1.0}
    result = objective_perturbation(X, y, **settings, epsilon=1e6, delta=1e-5, seed=0)
    assert theta_of(result) == pytest.approx(Minimiser().fit(prepare(X, y, **settings)), abs=1e-2)


@pytest.mark.slow
def test_tiny_budgets_and_tiny_data_are_solved_too():
    for n in (1, 2, 5):
        for epsilon in (1e-3, 1e3):
            result = objective_perturbation(
                X[:n], Y[:n], **{**SETTINGS, "regularisation": 1e-6}, epsilon=epsilon, delta=1e-10, seed=0
            )
            assert result.guarantee.epsilon(1e-10) <= epsilon


@pytest.mark.slow
def test_the_solver_certifies_whatever_it_is_given():
    """Losses, sizes, norms, strengths and budgets over many orders of magnitude: no release may fail."""
    rng = np.random.default_rng(0)
    for turn in range(120):
        loss = BOUNDED[turn % len(BOUNDED)]
        n, features = int(rng.choice([1, 5, 200])), int(rng.choice([1, 20]))
        result = objective_perturbation(
            rng.normal(size=(n, features)) * 10 ** rng.uniform(-2, 2),
            targets_for(loss, n, rng),
            loss=loss,
            regularisation=10 ** rng.uniform(-7, 1),
            epsilon=10 ** rng.uniform(-2, 2),
            delta=None if turn % 3 == 0 else 1e-6,
            data_norm=10 ** rng.uniform(-1, 1.5),
            seed=turn,
        )
        assert np.isfinite(result.coef).all()


def test_a_seed_is_reproducible_and_not_for_release():
    first, second = (objective_perturbation(X, Y, **SETTINGS, epsilon=1, delta=1e-5, seed=3) for _ in range(2))
    assert np.array_equal(first.coef, second.coef)
    assert first.guarantee.violations == (FIXED_SEED,)
    fresh = objective_perturbation(X, Y, **SETTINGS, epsilon=1, delta=1e-5)
    assert fresh.guarantee.violations == ()
    assert not np.array_equal(fresh.coef, first.coef)


def test_the_guarantee_survives_json():
    guarantee = objective_perturbation(X, Y, **SETTINGS, epsilon=1, delta=1e-5, mode="paper", seed=3).guarantee
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"solver_share": 0.6}, "solver_share must be at most 0.5"),
        ({"solver_share": -0.1}, "solver_share must be a number from 0 to 1"),
        ({"epsilon": -1}, "epsilon must be"),
        ({"mode": "loose"}, "mode must be"),
    ],
)
def test_bad_settings_are_named(change, said):
    with pytest.raises(InvalidArgument, match=said):
        objective_perturbation(X, Y, **{**SETTINGS, "epsilon": 1.0, "delta": 1e-5, **change})
