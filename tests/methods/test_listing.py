"""What the list says of methods for linear models, against what their guarantees say."""

import numpy as np
import pytest

from tacit.erm import Logistic, NoisyDescent, NoisyLots, NoisyPass, NoisySnapshots
from tacit.guarantee import Status
from tacit.methods.gradient_perturbation import gradient_perturbation
from tacit.methods.registry import list_methods

LINEAR = [one for one in list_methods() if one.kind == "linear"]
every_linear_method = pytest.mark.parametrize("one", LINEAR, ids=lambda one: one.name)
X = np.random.default_rng(0).normal(size=(50, 2))
Y = (X[:, 0] > 0).astype(int)


def guarantee(method, **settings):
    usual = {"loss": Logistic(), "regularisation": 0.05, "data_norm": 1.0, "epsilon": 1.0, "delta": 1e-5, "seed": 0}
    return method(X, Y, **{**usual, **settings}).guarantee


@every_linear_method
def test_the_status_is_that_of_the_default_published_form(one):
    # Chaudhuri et al. 2011 publish noise on the output without a delta.
    delta = None if one.name == "output_perturbation" else 1e-5
    published = guarantee(one.load(), mode="paper", delta=delta)
    assert str(published.status) == one.status
    assert set(published.unprotected) <= set(one.exposed)


@pytest.mark.slow
@every_linear_method
def test_the_rigorous_form_is_proven_and_leaves_nothing_open(one):
    rigorous = guarantee(one.load())
    assert rigorous.status is Status.PROVEN
    assert rigorous.epsilon(1e-5) <= 1.0
    assert rigorous.unprotected == ()


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"training": NoisyDescent(10)}, Status.REFUTED),
        ({"training": NoisyDescent(10), "constant": 4.84}, Status.PROVEN),
        ({"training": NoisyDescent(10), "constant": 4.83}, Status.REFUTED),
        ({"training": NoisyPass()}, Status.PROVEN),
        ({"training": NoisyLots(steps=5, lot_size=1)}, Status.PROVEN),
        ({"training": NoisySnapshots(2, 3)}, Status.UNPROVEN),
    ],
    ids=str,
)
def test_each_published_descent_is_rated_as_the_list_says(settings, status):
    assert guarantee(gradient_perturbation, mode="paper", **settings).status is status


def test_the_epsilon_in_the_list_is_that_of_the_default_form():
    (one,) = [one for one in LINEAR if one.name == "gradient_perturbation"]
    true = guarantee(gradient_perturbation, mode="paper").epsilon(1e-5)
    assert f"the epsilon is {true:.1f} where 1 is" in one.verdict
