"""Numbers, neighbours and commands as text: upper bounds are rounded up, lower bounds down."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from tacit.accounting import Adjacency

_SMALLEST_PLAIN = -4


def up(value: float, digits: int = 5) -> str:
    """The value rounded up to `digits` significant digits, for upper bounds.

    >>> up(2.38159692), up(0.2244615, 3), up(161_234.5), up(0.0000123456)
    ('2.3816', '0.225', '161240', '1.2346e-5')
    """
    return _format(value, digits, ROUND_CEILING)


def down(value: float, digits: int = 5) -> str:
    """The value rounded down to `digits` significant digits, for lower bounds."""
    return _format(value, digits, ROUND_FLOOR)


def near(value: float, digits: int = 5) -> str:
    """The value rounded to the nearest, for numbers that are no bound."""
    return _format(value, digits, ROUND_HALF_EVEN)


def percent_up(share: float, digits: int = 3) -> str:
    """A share in per cent, rounded up.

    >>> percent_up(0.0402052), percent_up(1 - 0.99), percent_up(0.99999997)
    ('4.03 %', '1 %', '100 %')
    """
    text = _format(share, digits, ROUND_CEILING, power=2)
    return f"{text.rstrip('0').rstrip('.') if '.' in text and 'e' not in text else text} %"


def percent_near(share: float, digits: int = 2) -> str:
    """A share in per cent, rounded to the nearest.

    >>> percent_near(0.0902), percent_near(0.264)
    ('9.0 %', '26 %')
    """
    return f"{_format(share, digits, ROUND_HALF_EVEN, power=2)} %"


def interval(lower: float, upper: float) -> tuple[str, str]:
    """Both ends, rounded outwards, with 5 to 7 digits depending on their distance.

    >>> interval(2.381596921400131, 2.38159692142134)
    ('2.381596', '2.381597')
    """
    relative = (upper - lower) / upper if 0 < upper < math.inf else 1.0
    wanted = math.ceil(-math.log10(relative)) + 1 if relative > 0 else 7
    digits = min(max(wanted, 5), 7)
    return down(lower, digits), up(upper, digits)


def round_up(value: float, digits: int) -> float:
    """The value that `up` shows, as a number."""
    return float(up(value, digits))


def neighbours(adjacency: Adjacency, group: int = 1, unit: str = "example") -> str:
    """The neighbouring data sets of an adjacency.

    >>> neighbours(Adjacency.ADD_REMOVE), neighbours(Adjacency.REPLACE_ONE, 3)
    ('add/remove one example', 'replace 3 examples')
    """
    words = str(adjacency)
    return words.replace("example", unit) if group == 1 else words.replace("one example", f"{group} examples")


def about_units(text: str, unit: str) -> str:
    """A sentence about examples as one about people, if people are what is protected.

    >>> about_units("each example is in each lot of 20 examples", "person")
    'each person is in each lot of 20 people'
    """
    return text.replace("examples", "people").replace("example", unit) if unit == "person" else text


def step_words(steps: int) -> str:
    """The number of steps in words.

    >>> step_words(14_062), step_words(1)
    ('14,062 steps', '1 step')
    """
    return f"{steps:,} {'step' if steps == 1 else 'steps'}"


def _format(value: float, digits: int, rounding: str, power: int = 0) -> str:
    if math.isinf(value):
        return "infinity"
    if value == 0:
        return "0"
    # The shortest decimal of this float: 0.1 is shown as 0.1, not as 0.10001.
    exact = Decimal(repr(float(value))).scaleb(power)
    # Floating-point errors must not change the last digit: 1 - 0.99 is shown as 0.01.
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 12), ROUND_HALF_EVEN)
    rounded = rounded.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding)
    if rounded.adjusted() > exact.adjusted():
        rounded = rounded.quantize(Decimal(1).scaleb(rounded.adjusted() - digits + 1))
    return f"{rounded:f}" if rounded.adjusted() >= _SMALLEST_PLAIN else f"{rounded:.{digits - 1}e}"


def name_measure(measure: str) -> str:
    """The name of a score, as it stands in a sentence.

    >>> name_measure("rmse"), name_measure("accuracy")
    ('RMSE', 'accuracy')
    """
    return "RMSE" if measure == "rmse" else measure


def title_measure(measure: str) -> str:
    """The name of a score, as it begins a title.

    >>> title_measure("rmse"), title_measure("accuracy")
    ('RMSE', 'Accuracy')
    """
    return "RMSE" if measure == "rmse" else measure.capitalize()
