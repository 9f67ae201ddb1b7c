"""An accountant, or a noise density, from outside the package takes one file and no edit of the package."""

import importlib
import math
import sys
from dataclasses import dataclass
from textwrap import dedent

import pytest

from tacit.accounting import (
    ACCOUNTANTS,
    Accountant,
    Certifies,
    Gaussian,
    ProductNoise,
    accountant_named,
    curve,
    from_json,
    other_accountants,
    register_accountant,
    register_density,
)
from tacit.accounting.densities import DENSITIES, LaplaceDensity
from tacit.errors import Asymptotic, InvalidArgument
from tacit.workflows.epsilon import find

TOY = """
    import math
    from dataclasses import dataclass

    from tacit.accounting import Accountant, Bounds, Certifies, Event, Gaussian, register_accountant
    from tacit.errors import NotAccountable

    @dataclass(frozen=True)
    class ToyProfile:
        '''Dwork and Roth 2014, theorem A.1: sqrt(2 log(1.25 / delta)) / multiplier, for epsilon below 1.'''

        event: Event

        def __post_init__(self):
            if not isinstance(self.event, Gaussian):
                raise NotAccountable("The toy knows one Gaussian release.")

        def epsilon(self, delta):
            value = math.sqrt(2 * math.log(1.25 / delta)) / self.event.multiplier
            return Bounds(0.0, value, value)

        def delta(self, epsilon):
            value = min(1.25 * math.exp(-((epsilon * self.event.multiplier) ** 2) / 2), 1.0)
            return Bounds(0.0, value, value)

    register_accountant(Accountant("toy", "toy bound", ToyProfile, Certifies.ABOVE, line={"color": "black"}))
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    (tmp_path / "toy_accountant.py").write_text(dedent(TOY))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("toy_accountant")
    yield accountant_named("toy")
    del ACCOUNTANTS["toy"], sys.modules["toy_accountant"]


def test_one_file_from_outside_adds_an_accountant(toy):
    found = curve(Gaussian(10.0), by="toy")
    expected = math.sqrt(2 * math.log(1.25e5)) / 10
    assert found.epsilon(1e-5) == expected
    assert found.epsilon(1e-5) > curve(Gaussian(10.0)).epsilon(1e-5)
    assert found.epsilon_bounds(1e-5) == (0.0, expected)
    assert found.group(2).epsilon(1e-5) > 2 * expected


@pytest.mark.slow
def test_a_new_accountant_is_compared_with_the_others(toy):
    assert [other.name for other in other_accountants()] == ["clt", "moments", "rdp", "toy"]
    answers = find(Gaussian(10.0), delta=1e-5).answers
    assert answers["toy"].epsilon == pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 10)
    assert "one Gaussian release" in find(Gaussian(10.0) * 2, delta=1e-5).answers["toy"].refusal


def test_an_unknown_accountant_is_refused_with_the_names_of_all():
    with pytest.raises(InvalidArgument, match=r"'clt', 'moments', 'pld', 'rdp'\. Got 'toy'"):
        curve(Gaussian(1.0), by="toy")


def test_a_name_is_given_to_one_accountant_only():
    with pytest.raises(InvalidArgument, match="already an accountant 'pld'"):
        register_accountant(Accountant("pld", "mine", ACCOUNTANTS["rdp"].profile, Certifies.ABOVE))
    assert ACCOUNTANTS["pld"].label == "PLD"
    assert register_accountant(ACCOUNTANTS["pld"]) is ACCOUNTANTS["pld"]


def test_what_certifies_nothing_gives_no_bounds():
    assert [name for name, one in ACCOUNTANTS.items() if one.is_asymptotic] == ["clt"]
    with pytest.raises(Asymptotic):
        curve(Gaussian(1.0), by="clt").epsilon_bounds(1e-5)


@dataclass(frozen=True)
class Wide(LaplaceDensity):
    """A density that someone else wrote."""


def test_one_file_from_outside_adds_a_density():
    register_density("test_wide", Wide)
    try:
        event = ProductNoise(Wide(2.0), (1.0,)) * 3
        text = event.to_json()
        assert from_json(text) == event
        assert curve(from_json(text)).epsilon_bounds(1e-5) == curve(
            ProductNoise(LaplaceDensity(2.0), (1.0,)) * 3
        ).epsilon_bounds(1e-5)
    finally:
        del DENSITIES["test_wide"]
    with pytest.raises(InvalidArgument, match=r"'test_wide', which is not registered"):
        from_json(text)
