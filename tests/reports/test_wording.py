"""Numbers as text: bounds are never made better by rounding."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.reports import wording

values = st.floats(min_value=1e-30, max_value=1e30)
digits = st.integers(min_value=1, max_value=8)
# What arithmetic in floats may be off by is not made visible.
TOLERANCE = Fraction(1, 10**12)


@given(values, digits)
def test_up_is_never_below_and_less_than_one_digit_above(value, digits):
    shown = Fraction(wording.up(value, digits))
    exact = Fraction(value)
    assert exact * (1 - TOLERANCE) <= shown <= exact * (1 + Fraction(10, 10**digits))


@given(values, digits)
def test_down_is_never_above_and_less_than_one_digit_below(value, digits):
    shown = Fraction(wording.down(value, digits))
    exact = Fraction(value)
    assert exact * (1 - Fraction(10, 10**digits)) <= shown <= exact * (1 + TOLERANCE)


@given(values, digits)
def test_the_number_behind_up_is_the_one_shown(value, digits):
    assert wording.round_up(value, digits) == float(wording.up(value, digits))


@given(values, st.floats(min_value=0, max_value=1))
def test_an_interval_is_rounded_outwards(lower, width):
    upper = lower * (1 + width)
    shown = [Fraction(end) for end in wording.interval(lower, upper)]
    assert shown[0] <= Fraction(lower) * (1 + TOLERANCE)
    assert shown[1] >= Fraction(upper) * (1 - TOLERANCE)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.10000"), (0.0, "0"), (9.999999, "10.000"), (float("inf"), "infinity"), (1234567.0, "1234600")],
)
def test_up_reads_as_a_person_would_write_it(value, text):
    assert wording.up(value) == text


def test_a_rounding_error_is_not_shown():
    assert wording.percent_up(1 - 0.99) == "1 %"
