"""What is accepted, what is refused, and what the refusal says."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tacit import _validate
from tacit.errors import InvalidArgument, TacitError

SCALAR_CHECKS = [
    _validate.positive,
    _validate.non_negative,
    _validate.open_unit,
    _validate.rate,
    _validate.unit,
    _validate.count,
]
ARRAY_CHECKS = [_validate.units, _validate.reals, _validate.non_negatives]
NOT_NUMBERS = [math.nan, "0.5", b"0.5", None, True, np.True_, 0.5 + 0j, np.complex128(0.5), [0.5]]
INFINITIES = [math.inf, -math.inf, np.float32("inf"), 10**400, -(10**400)]


@pytest.mark.parametrize("check", SCALAR_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("value", [*NOT_NUMBERS, *INFINITIES, np.array([0.5])], ids=repr)
def test_what_is_not_a_finite_number_is_refused(check, value):
    with pytest.raises(InvalidArgument, match=r"^delta must be a.* number .*\. Got "):
        check("delta", value)


@pytest.mark.parametrize("check", ARRAY_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "values",
    [math.nan, "0.5", None, True, 0.5j, [0.5, math.nan], ["0.5"], [True], [0.5j], [None], [math.inf]],
    ids=repr,
)
def test_arrays_with_anything_but_finite_numbers_are_refused(check, values):
    with pytest.raises(InvalidArgument, match=r"^alpha must be a.* number.*\. Got "):
        check("alpha", values)


@pytest.mark.parametrize(
    ("check", "inside", "outside"),
    [
        (_validate.positive, [5e-324, 1, 1e308], [0, -0.0, -1]),
        (_validate.non_negative, [0, 5e-324, 1e308], [-5e-324, -1]),
        (_validate.open_unit, [5e-324, 0.5, 1 - 2**-53], [0, 1, -0.1, 1.5]),
        (_validate.rate, [5e-324, 0.5, 1], [0, -0.1, 1.5, 1 + 2**-52]),
        (_validate.unit, [0, 0.5, 1], [-5e-324, 1 + 2**-52]),
        (_validate.units, [0, 0.5, 1, [0, 1]], [-5e-324, 1 + 2**-52, [0.5, 2]]),
        (_validate.reals, [-1e308, 0, [0, 1]], [[0, -math.inf]]),
        (_validate.non_negatives, [0, 1e308, [0, 1]], [-1, [0, -1]]),
        (_validate.count, [1, 3.0, 10**30], [0, -1, 2.5, 0.9999999]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_range_is_what_its_name_says(check, inside, outside):
    for value in inside:
        assert np.all(check("value", value) == np.asarray(value))
    for value in outside:
        with pytest.raises(InvalidArgument):
            check("value", value)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble, Fraction])
def test_every_kind_of_real_number_becomes_a_plain_float(kind):
    assert type(_validate.open_unit("delta", kind(0.5))) is float


@pytest.mark.parametrize("kind", [int, float, np.int8, np.uint64, np.float32, Fraction])
def test_every_kind_of_whole_number_becomes_a_plain_int(kind):
    assert type(_validate.count("steps", kind(3))) is int


def test_large_counts_keep_every_digit():
    assert _validate.count("steps", 2**53 + 1) == 2**53 + 1


def test_a_count_may_start_elsewhere():
    assert _validate.count("misses", 0, at_least=0) == 0
    with pytest.raises(InvalidArgument, match=r"^lots must be a whole number of at least 2\. Got 1\.$"):
        _validate.count("lots", 1, at_least=2)


def test_positive_may_have_a_ceiling():
    assert _validate.positive("step_size", 1.9, below=2) == 1.9
    with pytest.raises(InvalidArgument, match=r"^step_size must be a number above 0 and below 2\. Got 2\.$"):
        _validate.positive("step_size", 2, below=2)


@pytest.mark.parametrize("check", [_validate.positive, _validate.non_negative, _validate.reals])
def test_infinity_passes_where_it_is_admitted(check):
    assert check("mu", math.inf, infinite=True) == math.inf
    with pytest.raises(InvalidArgument):
        check("mu", math.nan, infinite=True)


def test_minus_infinity_is_never_positive():
    with pytest.raises(InvalidArgument):
        _validate.positive("mu", -(10**400), infinite=True)


def test_a_refusal_names_argument_range_value_and_remedy():
    with pytest.raises(InvalidArgument) as refusal:
        _validate.open_unit("delta", np.float64(0.0))
    assert str(refusal.value) == (
        "delta must be a number strictly between 0 and 1. Got 0.0. With delta 0 no Gaussian mechanism is "
        "private, with delta 1 every mechanism is; a common choice is below 1/(number of examples)."
    )


def test_a_refused_array_shows_its_first_bad_entry():
    with pytest.raises(InvalidArgument, match=r"^alpha must be a number from 0 to 1\. Got 1\.5\."):
        _validate.units("alpha", [0.1, 1.5, -3.0])


def test_a_refusal_is_a_value_error_and_ours():
    assert issubclass(InvalidArgument, ValueError)
    assert issubclass(InvalidArgument, TacitError)
