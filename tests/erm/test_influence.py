"""Influence: the published six examples, leave-one-out as the answer it approximates, and algorithm 2 step by step."""

import math

import numpy as np
import pytest

from tacit.audit.fixtures.kang_2021 import SIX, SIX_LABELS
from tacit.erm.influence import (
    InfluenceRule,
    LinearModel,
    contributions,
    invert,
    is_left_alone,
    kang_2021_example_std,
    ratio,
    selective_descent,
)
from tacit.erm.losses import Huber, Logistic, Multinomial, OneVsRest
from tacit.erm.noisy_data import draw_below
from tacit.erm.problem import prepare
from tacit.erm.solver import minimise
from tacit.errors import InvalidArgument, NotConverged
from tacit.randomness import Purpose, SeededSource

# Contribution, exact leave-one-out, ratio, and who gets no noise at epsilon 0.1, 0.25, 0.5, 1: literally, normalised.
TABLE = [
    ((-0.02572614, 0.02332452), (-0.03293317, 0.02683171), 1.494262496244126, "NNYY", "YYYY"),
    ((0.00713212, -0.22029662), (-0.01427438, -0.29897435), 1.0214185225351693, "YYYY", "NNYY"),
    ((-0.05061404, 0.20032989), (-0.09041093, 0.26563920), 2.290675458615527, "NNNY", "NNYY"),
    ((-0.02572614, 0.02332452), (-0.03293317, 0.02683171), 1.494262496244126, "NNYY", "YYYY"),
    ((0.08633438, 0.12747847), (0.09519659, 0.14710947), 1.9891787033589186, "NNNY", "NNYY"),
    ((0.00859982, -0.15416080), (0.00274071, -0.18651820), 1.0201730785532783, "YYYY", "NNYY"),
]


def six(intercept=False, x=SIX, y=SIX_LABELS):
    problem = prepare(x, y, loss=Logistic(), regularisation=0.1, data_norm=1.0, intercept=False)
    return LinearModel(problem, intercept)


def model_of(loss, y, n=12, d=3, intercept=True):
    x = np.random.default_rng(0).normal(size=(n, d)) / 2
    return LinearModel(prepare(x, y, loss=loss, regularisation=0.2, data_norm=1.0, intercept=False), intercept)


MODELS = {
    "logistic": model_of(Logistic(), np.arange(12) % 2),
    "bare": model_of(Logistic(), np.arange(12) % 2, intercept=False),
    "huber": model_of(Huber(10.0), np.linspace(-1, 1, 12)),
    "multinomial": model_of(Multinomial(3), np.arange(12) % 3),
    "one_vs_rest": model_of(OneVsRest(Logistic(), 3), np.arange(12) % 3),
}
EVERY = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def test_the_six_examples_have_the_published_minimiser_and_hessian():
    model = six()
    theta = model.pretrain()
    assert theta == pytest.approx([1.5172609784523796, 0.18605433152224699], abs=1e-9)
    hessian = model.problem.hessian(theta[:, None])
    expected = [[0.18975613593394713, 0.008224892233964094], [0.008224892233964094, 0.1420179302815071]]
    assert hessian == pytest.approx(np.array(expected), abs=1e-9)


@pytest.mark.parametrize("index", range(6))
def test_contributions_and_ratios_are_the_published_ones(index):
    model = six()
    theta = model.pretrain()
    found = contributions(model, theta)[index]
    contribution, left_out, measure, literal, normalised = TABLE[index]
    assert found == pytest.approx(contribution, abs=1e-8)
    assert ratio(found, theta) == pytest.approx(measure, rel=1e-8)
    for kind, expected in ((False, literal), (True, normalised)):
        measured = ratio(found, theta, normalise=kind)
        seen = "".join("Y" if is_left_alone(measured, epsilon) else "N" for epsilon in (0.1, 0.25, 0.5, 1.0))
        assert seen == expected
    # The minimiser of the sum over the other five (which keeps the divisor 6) is what a contribution approximates.
    rest = np.delete(np.arange(6), index)
    without = six(x=SIX[rest], y=SIX_LABELS[rest]).pretrain()
    assert without - theta == pytest.approx(left_out, abs=1e-8)


def test_contributions_add_up_to_nothing():
    model = six()
    assert np.abs(contributions(model, model.pretrain()).sum(axis=0)).max() < 1e-10


def test_without_influence_the_measure_is_the_root_of_the_number_of_parameters():
    theta = np.array([0.3, -2.0])
    assert ratio(np.zeros(2), theta) == pytest.approx(1.4142135623730951)
    assert ratio(np.zeros(2), theta, normalise=True) == pytest.approx(1.0)
    # Below this epsilon even an example without influence gets noise.
    assert math.log(2) / 2 == pytest.approx(0.3465735902799727)
    assert not is_left_alone(math.sqrt(2), 0.3465)
    assert is_left_alone(math.sqrt(2), 0.3466)


def test_a_coefficient_of_zero_has_a_ratio_all_the_same():
    assert math.isfinite(ratio(np.array([0.0, 1e-13]), np.array([1.0, 0.0])))


def test_the_mixed_derivative_is_the_published_one():
    model = six()
    theta = model.pretrain()
    expected = [[-0.08342448793656543, 0.02134141690458283], [0.2320504899780538, -0.229007132880662]]
    assert model.mixed_derivative(1, theta) == pytest.approx(np.array(expected), abs=1e-9)
    assert model.mixed_norm(1, theta) == pytest.approx(0.33454018767735866, abs=1e-9)


@EVERY
def test_gradients_and_mixed_derivatives_are_finite_differences(model):
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(model.problem.rows.shape[1] + model.intercept) * model.problem.loss.outputs)
    index, h = 5, 1e-6

    def value(theta, x):
        row = np.append(x, 1.0) if model.intercept else x
        scores = row[None] @ theta.reshape(-1, model.problem.loss.outputs)
        fitted = model.problem.loss.evaluate(scores, model.problem.targets[index : index + 1])[0][0]
        return fitted + 0.1 * np.sum(theta**2)

    x = model.problem.rows[index]
    slow = [(value(theta + h * e, x) - value(theta - h * e, x)) / (2 * h) for e in np.eye(theta.size)]
    assert model.gradient(index, x, theta) == pytest.approx(slow, abs=1e-8)
    steps = np.eye(x.size) * h
    mixed = [(model.gradient(index, x + s, theta) - model.gradient(index, x - s, theta)) / (2 * h) for s in steps]
    assert model.mixed_derivative(index, theta) == pytest.approx(np.array(mixed).T, abs=1e-8)


@EVERY
def test_the_inverse_hessian_is_one_whether_built_or_not(model, monkeypatch):
    theta = model.pretrain()
    vector = np.random.default_rng(2).normal(size=theta.size)
    built = model.inverse_hessian(theta)(vector)
    monkeypatch.setattr("tacit.erm.influence._BUILT", 0)
    assert model.inverse_hessian(theta)(vector) == pytest.approx(built, rel=1e-7)
    h = 1e-6

    def mean_gradient(theta):
        return np.mean([model.gradient(i, model.problem.rows[i], theta) for i in range(model.problem.n)], axis=0)

    slow = (mean_gradient(theta + h * built) - mean_gradient(theta - h * built)) / (2 * h)
    assert slow == pytest.approx(vector, abs=1e-6)


def test_a_hessian_that_is_not_positive_is_refused(monkeypatch):
    with pytest.raises(NotConverged, match="not positive definite"):
        invert(lambda vector: -vector, 3)
    monkeypatch.setattr("tacit.erm.influence._BUILT", 0)
    with pytest.raises(NotConverged, match="not positive definite"):
        invert(lambda vector: vector * np.nan, 3)(np.ones(3))
    # By themselves conjugate gradients would find the saddle point of this one, and report success.
    bends = np.array([1.0, 2.0, -3.0])
    with pytest.raises(NotConverged, match="not positive definite"):
        invert(lambda vector: vector * bends, 3)(np.array([1.0, 1.0, 0.1]))


def test_influence_needs_regularisation():
    problem = prepare(SIX, SIX_LABELS, loss=Logistic(), regularisation=0.0, data_norm=1.0, intercept=False)
    with pytest.raises(InvalidArgument, match="regularisation must be above 0: influence divides by the Hessian"):
        LinearModel(problem, False).pretrain()


def test_the_noise_of_one_example_is_the_published_one():
    settings = {"n": 1000, "steps": 1000, "epsilon": 0.25, "delta": 1e-5, "mixed_norm": 0.5}
    assert kang_2021_example_std(**settings) == pytest.approx(0.6069708517540585, rel=1e-12)
    consistent = kang_2021_example_std(**settings, consistent=True)
    assert consistent == pytest.approx(0.6069708517540585 / math.sqrt(0.5), rel=1e-12)


def slow_algorithm_2(model, rule, epsilon, source):
    """Line by line, and with the Hessian solved afresh each time."""
    theta = minimise(model.whole, 1e-12).theta.ravel()
    hessian = model.whole.hessian(theta[:, None])
    order = draw_below(model.problem.n, rule.steps, source.stream(Purpose.LOT, 0)).tolist()
    rng = source.stream(Purpose.NOISE, 0)
    whole = local = theta
    released = {}
    for r in range(rule.rounds):
        for t in range(rule.local_steps):
            i = order[r * rule.local_steps + t]
            contribution = np.linalg.solve(hessian, model.gradient(i, model.problem.rows[i], whole)) / model.problem.n
            length = math.sqrt(sum(((c + w) / w) ** 2 for c, w in zip(contribution, whole, strict=True)))
            if rule.normalise:
                length /= math.sqrt(len(whole))
            x = model.problem.rows[i]
            if not math.exp(-epsilon) <= length <= math.exp(epsilon):
                w = np.linalg.norm(model.mixed_derivative(i, local), 2)
                std = math.sqrt(rule.steps * math.log(1e5)) / (math.sqrt(w) * model.problem.n * epsilon)
                x = x + std * rng.normal(x.size, wide=True)
            local = local - 0.1 * model.gradient(i, x, local)
            released[i] = x
        whole = local
    return local, released


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_algorithm_2_is_the_slow_one(normalise, epsilon):
    model = six(intercept=True)
    rule = InfluenceRule(rounds=3, local_steps=2, normalise=normalise)
    run = selective_descent(model, rule, epsilon=epsilon, delta=1e-5, lipschitz=1.0, source=SeededSource(8))
    theta, released = slow_algorithm_2(model, rule, epsilon, SeededSource(8))
    assert run.theta == pytest.approx(theta, rel=1e-8)
    for index in range(6):
        assert run.data.x[index] == pytest.approx(released.get(index, SIX[index]), rel=1e-8)
    noised = {i for i, x in released.items() if not np.array_equal(x, SIX[i])}
    assert set(run.unnoised.for_curator().tolist()) == set(range(6)) - noised
    assert run.data.y.tolist() == [float(label > 0) for label in SIX_LABELS.tolist()]
