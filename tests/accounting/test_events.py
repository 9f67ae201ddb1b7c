"""Events: their algebra, what they mean to accountants, and what they refuse."""

import dataclasses
import math

import pytest

from tacit.accounting import (
    Adaptive,
    Adjacency,
    Composed,
    EpsilonDelta,
    Gaussian,
    GaussianDensity,
    Laplace,
    LaplaceDensity,
    ProductNoise,
    RandomizedResponse,
    Repeated,
    Sampled,
    SechDensity,
    StudentT,
    Unproven,
    curve,
)
from tacit.errors import AdjacencyMismatch, InvalidArgument, NotProven

REPLACE = Adjacency.REPLACE_ONE
ACCOUNTANTS = ("pld", "rdp", "moments", "clt")
WRAPPERS = {
    "alone": lambda event: event,
    "repeated": lambda event: event * 3,
    "sampled": lambda event: event.sampled(0.1),
    "first": lambda event: event + Gaussian(1.0),
    "last": lambda event: Gaussian(1.0) + event,
    "deep": lambda event: ((Gaussian(2.0) + (event * 2).sampled(0.5)) * 7).sampled(0.3) + Gaussian(1.0),
    "never_run": lambda event: Gaussian(1.0) + event * 0,
}


def test_events_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Gaussian(1.0).multiplier = 2.0


def test_events_that_say_the_same_are_one_key():
    counts = {Gaussian(1): 1, StudentT(9, 1): 2, (Gaussian(1) * 3).sampled(0.5): 3}
    assert counts[Gaussian(1.0)] == 1
    assert counts[StudentT(9.0, 1.0)] == 2
    assert counts[Sampled(Repeated(Gaussian(1.0), 3), 0.5)] == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Gaussian(1.0), Gaussian(1.0, REPLACE)),
        (Gaussian(1.0), Gaussian(1.5)),
        (Gaussian(1.0), ProductNoise(GaussianDensity(1.0), (1.0,))),
        (LaplaceDensity(1.0), SechDensity(1.0)),
        (Gaussian(1.0) * 2, Gaussian(1.0) + Gaussian(1.0)),
        (Gaussian(1.0).sampled(0.1), Gaussian(1.0).sampled(0.2)),
        (Laplace(1.0), Laplace(1.0, REPLACE)),
    ],
)
def test_events_that_say_different_things_differ(one, other):
    assert one != other


def test_times_works_from_either_side():
    assert 3 * Gaussian(1.0) == Gaussian(1.0) * 3 == Repeated(Gaussian(1.0), 3)


def test_sums_are_flat():
    a, b, c = Gaussian(1.0), Laplace(2.0), EpsilonDelta(0.1)
    assert (a + b) + c == a + (b + c) == Composed((a, b, c))


def test_the_sign_of_a_shift_does_not_matter():
    assert ProductNoise(LaplaceDensity(1.0), (-0.5, 2)) == ProductNoise(LaplaceDensity(1.0), (0.5, 2.0))


def test_only_events_can_be_added():
    with pytest.raises(TypeError):
        Gaussian(1.0) + 1.0


def test_walk_sees_everything_inside():
    inner = Gaussian(1.0)
    event = Adaptive((inner.sampled(0.5) + Laplace(1.0)) * 2)
    assert [type(one).__name__ for one in event.walk()] == [
        "Adaptive",
        "Repeated",
        "Composed",
        "Sampled",
        "Gaussian",
        "ProductNoise",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((Gaussian(2.0).sampled(0.05) * 3) * 4, Gaussian(2.0).sampled(0.05) * 12),
        (
            Gaussian(2.0).sampled(0.05) + Gaussian(2.0).sampled(0.05) + Gaussian(2.0).sampled(0.05),
            Gaussian(2.0).sampled(0.05) * 3,
        ),
        (
            Gaussian(2.0).sampled(0.05) * 5 + Laplace(3.0) * 2 + Gaussian(4.0),
            Laplace(3.0) + Gaussian(4.0) + Gaussian(2.0).sampled(0.05) * 5 + Laplace(3.0),
        ),
        ((Gaussian(2.0).sampled(0.05) + Laplace(3.0)) * 4, Laplace(3.0) * 4 + Gaussian(2.0).sampled(0.05) * 4),
        (Gaussian(2.0).sampled(0.2).sampled(0.25) * 10, Gaussian(2.0).sampled(0.05) * 10),
        (Laplace(2.0).sampled(1.0) * 3, Laplace(2.0) * 3),
        ((Gaussian(1.0) + Gaussian(0.75)).sampled(0.05) * 9, Gaussian(0.6).sampled(0.05) * 9),
        ((Gaussian(1.0) * 4).sampled(0.05) * 9, Gaussian(0.5).sampled(0.05) * 9),
        (ProductNoise(GaussianDensity(2.0), (0.6, 0.8)).sampled(0.05) * 9, Gaussian(2.0).sampled(0.05) * 9),
        (ProductNoise(LaplaceDensity(2.0), (0.5, 0.5)), ProductNoise(LaplaceDensity(2.0), (0.5,)) * 2),
        (ProductNoise(LaplaceDensity(2.0), (0.5, 0.0)), ProductNoise(LaplaceDensity(2.0), (0.5,))),
    ],
    ids=[
        "repeats_multiply",
        "sums_are_repeats",
        "order",
        "repeated_sum",
        "lot_of_a_lot",
        "lot_of_everything",
        "one_lot_one_gaussian",
        "one_lot_repeated",
        "gaussian_box",
        "coordinates_compose",
        "unmoved_coordinate",
    ],
)
def test_two_ways_to_say_the_same_have_the_same_epsilon(one, other):
    assert curve(one).epsilon_bounds(1e-6) == pytest.approx(curve(other).epsilon_bounds(1e-6), rel=1e-6)


def test_a_count_on_the_same_lot_joins_the_gradient_to_one_gaussian():
    # METHODS 1.7: mu 0.3 and 0.9 together have multiplier 1.0540926.
    joint = (Gaussian(1 / 0.3) + Gaussian(1 / 0.9)).sampled(0.01) * 100
    alone = Gaussian(1.0540925533894598).sampled(0.01) * 100
    assert curve(joint).epsilon(1e-5) == pytest.approx(curve(alone).epsilon(1e-5), rel=1e-11)


def test_different_adjacencies_do_not_add():
    with pytest.raises(AdjacencyMismatch, match="add/remove one example and replace one example"):
        Gaussian(1.0) + Gaussian(1.0, REPLACE)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_the_adjacency_travels_with_the_event(adjacency):
    inner = Gaussian(1.0, adjacency)
    for event in (inner * 2, inner.sampled(0.1), inner + inner, Adaptive(inner), (inner + inner).sampled(0.5) * 3):
        assert event.adjacency is adjacency


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Gaussian(-1.0), "multiplier must be a finite number above 0. Got -1.0. "),
        (lambda: Gaussian(0), "multiplier must be a finite number above 0. Got 0. "),
        (lambda: Gaussian(math.nan), "multiplier must be a finite number above 0. Got nan. "),
        (lambda: Gaussian(math.inf), "multiplier must be a finite number above 0. Got inf. "),
        (lambda: Gaussian(True), "multiplier must be a finite number above 0. Got True. "),
        (lambda: Gaussian("1"), "multiplier must be a finite number above 0. Got '1'. "),
        (lambda: Gaussian(None), "multiplier must be a finite number above 0. Got None. "),
        (lambda: Laplace(-2.0), "multiplier must be a finite number above 0. Got -2.0. "),
        (lambda: StudentT(-9.0, 1.0), "dof must be a finite number above 0. Got -9.0"),
        (lambda: StudentT(9.0, 0.0), "scale must be a finite number above 0. Got 0.0"),
        (lambda: StudentT(9.0, 1.0, (math.nan,)), "shifts must be a finite number. Got nan"),
        (lambda: StudentT(9.0, 1.0, ()), "shifts must hold at least one number"),
        (lambda: ProductNoise(1.0, (1.0,)), "density must be one of tacit.accounting's densities.*Got 1.0"),
        (lambda: LaplaceDensity(math.inf), "scale must be a finite number above 0. Got inf"),
        (lambda: RandomizedResponse(0.0), "epsilon must be a finite number above 0. Got 0.0"),
        (lambda: RandomizedResponse(1.0, 1), "choices must be a whole number of at least 2. Got 1"),
        (lambda: RandomizedResponse(1.0, 2.5), "choices must be a whole number of at least 2. Got 2.5"),
        (lambda: EpsilonDelta(-0.1), "epsilon must be a finite number of at least 0. Got -0.1"),
        (lambda: EpsilonDelta(1.0, 1.5), "delta must be a number from 0 to 1. Got 1.5"),
        (lambda: Gaussian(1.0).sampled(1.5), "rate must be a number above 0 and at most 1. Got 1.5. "),
        (lambda: Gaussian(1.0).sampled(0.0), "rate must be a number above 0 and at most 1. Got 0.0. "),
        (lambda: Gaussian(1.0).sampled(math.nan), "rate must be a number above 0 and at most 1. Got nan. "),
        (lambda: Gaussian(1.0).sampled(True), "rate must be a number above 0 and at most 1. Got True. "),
        (lambda: Gaussian(1.0) * 2.5, "times must be a whole number of at least 0. Got 2.5"),
        (lambda: Gaussian(1.0) * -1, "times must be a whole number of at least 0. Got -1"),
        (lambda: Gaussian(1.0) * True, "times must be a whole number of at least 0. Got True"),
        (lambda: curve(Gaussian(1.0)).epsilon(0), "delta must be a number strictly between 0 and 1. Got 0. "),
        (lambda: curve(Gaussian(1.0)).epsilon(1), "delta must be a number strictly between 0 and 1. Got 1. "),
        (lambda: curve(Gaussian(1.0)).epsilon(math.nan), "delta must be a number strictly between 0 and 1. Got nan"),
        (lambda: curve(Gaussian(1.0)).epsilon_bounds(True), "delta must be a number strictly between 0 and 1. Got Tru"),
        (lambda: curve(Gaussian(1.0)).delta(-0.5), "epsilon must be a finite number of at least 0. Got -0.5"),
        (lambda: curve(Gaussian(1.0)).tradeoff(1.2), "alpha must be a number from 0 to 1. Got 1.2"),
        (lambda: curve(Gaussian(1.0)).true_positive_rate(-1), "false_positive_rate must be a number from 0 to 1"),
        (lambda: curve(Gaussian(1.0)).group(0), "size must be a whole number of at least 1. Got 0"),
        (lambda: curve(Gaussian(1.0)).mu(-1e-3), "regret must be a finite number of at least 0. Got -0.001"),
    ],
)
def test_bad_input_is_named_with_its_value_and_range(make, said):
    with pytest.raises(InvalidArgument, match=said):
        make()


@pytest.mark.parametrize("shifts", [(True,), ("a",), (None,)], ids=str)
def test_a_shift_that_is_no_number_is_named_with_its_value(shifts):
    with pytest.raises(InvalidArgument, match=r"shifts must be a finite number\. Got "):
        StudentT(9.0, 1.0, shifts)


@pytest.mark.parametrize("by", ACCOUNTANTS)
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_what_is_unproven_is_found_through_every_wrapper_by_every_accountant(wrap, by):
    event = wrap(Unproven("(1, 1e-5)-DP", "nobody proved it"))
    with pytest.raises(NotProven, match=r"claimed to be \(1, 1e-5\)-DP, but nobody proved it"):
        curve(event, by).epsilon(1e-5)


@pytest.mark.parametrize("by", ACCOUNTANTS)
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_schedule_chosen_from_releases_is_refused_by_every_accountant(wrap, by):
    with pytest.raises(NotProven, match="chosen after seeing earlier releases"):
        curve(wrap(Adaptive(Gaussian(1.0))), by).epsilon(1e-5)
