"""Small figures say what large ones say."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from tacit.accounting import EpsilonDelta, Gaussian, Laplace, Repeated, Sampled, curve
from tacit.reports.curves import Tradeoff
from tacit.reports.facts import _sparse_tradeoff
from tacit.reports.svg import sketch_tradeoff

SVG = "{http://www.w3.org/2000/svg}"
WORDS = "Missed & found <here>."


@pytest.fixture(scope="module")
def found() -> Tradeoff:
    return Tradeoff.of(curve(Gaussian(1.0)), 1e-5, np.linspace(0.0, 1.0, 21))


@pytest.fixture(scope="module")
def drawn(found) -> ElementTree.Element:
    return ElementTree.fromstring(sketch_tradeoff(found, key="k", description=WORDS))


def points(element) -> list[list[float]]:
    return [[float(number) for number in point.split(",")] for point in element.get("points").split()]


def test_the_line_is_the_curve(drawn, found):
    guessing, line = [each for each in drawn.iter(f"{SVG}polyline") if "grid" not in each.get("stroke")]
    (left, top), (right, bottom) = points(guessing)
    alarms = [(x - left) / (right - left) for x, _ in points(line)]
    missed = [(y - bottom) / (top - bottom) for _, y in points(line)]
    assert alarms == pytest.approx(found.false_alarms, abs=1e-3)
    assert missed == pytest.approx(found.missed_lower, abs=1e-3)
    band = points(drawn.find(f"{SVG}polygon"))
    assert band[: len(missed)] == points(line)
    assert len(band) == 2 * len(missed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "event",
    [
        Gaussian(0.2),
        Gaussian(5.0),
        Laplace(0.5),
        EpsilonDelta(0.5, 0.0),
        EpsilonDelta(3.0, 1e-5),
        Repeated(Sampled(Gaussian(1.0), 0.1), 4),
    ],
    ids=str,
)
def test_between_its_points_it_is_off_the_curve_by_less_than_its_width(event):
    certified = curve(event)
    found = _sparse_tradeoff(certified, 1e-5)
    alarms = np.unique([*np.linspace(0.0, 1.0, 1001), *np.geomspace(1e-5, 0.1, 200)])
    truth = np.asarray(certified.tradeoff_bounds(alarms)[0])
    drawn = np.interp(alarms, found.false_alarms, found.missed_lower)
    steepness = np.diff(found.missed_lower) / np.diff(found.false_alarms)
    piece = np.clip(np.searchsorted(found.false_alarms, alarms, side="right") - 1, 0, len(steepness) - 1)
    # A square of 270 dots, and a line that is 2.2 wide.
    off = 270 * (drawn - truth) / np.hypot(1.0, steepness[piece])
    assert np.max(off) < 0.5


def test_it_is_named_for_screen_readers_and_all_its_text_is_within(drawn):
    named = {each.get("id"): each.text for each in drawn.iter() if each.get("id")}
    assert named == {"k-title": "What an attacker can do", "k-words": WORDS}
    assert drawn.get("aria-labelledby").split() == list(named)
    _, _, wide, high = map(float, drawn.get("viewBox").split())
    for each in drawn.findall(f"{SVG}text"):
        # No letter of this size is wider than this.
        long = 7.5 * len(each.text)
        ends = {"end": (long, 0.0), "middle": (long / 2, long / 2)}[each.get("text-anchor")]
        assert float(each.get("x")) - ends[0] >= 0
        assert float(each.get("x")) + ends[1] <= wide
        assert 10 < float(each.get("y")) < high


def test_its_colours_are_those_of_the_page(drawn):
    text = ElementTree.tostring(drawn, encoding="unicode")
    assert not re.search(r"#[0-9a-fA-F]{3,6}", text)
    assert {"var(--blue)", "var(--faint)", "var(--grid)"} <= set(re.findall(r"var\(--\w+\)", text))
