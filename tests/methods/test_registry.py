"""The list of methods against the methods themselves."""

import inspect
import math
from pathlib import Path

import pytest

from tacit import Poisson, methods
from tacit.accounting import curve
from tacit.errors import InvalidArgument
from tacit.methods.registry import find_method, list_gradient_names, list_methods
from tacit.stages.mechanism import Mechanism
from tacit.training.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
GRADIENT = [one for one in list_methods() if one.kind == "gradient"]
every_gradient_method = pytest.mark.parametrize("one", GRADIENT, ids=lambda one: one.name)
every_method = pytest.mark.parametrize("one", list_methods(), ids=lambda one: one.name)


def test_every_public_method_is_listed_once():
    listed = [one.name for one in list_methods()]
    assert len(set(listed)) == len(listed)
    assert set(listed) <= set(dir(methods))


@every_method
def test_it_loads(one):
    assert one.load() is getattr(methods, one.name)


@every_gradient_method
def test_a_gradient_method_takes_clip_norm_multiplier_and_mode(one):
    for mode in ("rigorous", "paper"):
        mechanism = one.load()(0.7, 1.3, mode=mode)
        assert isinstance(mechanism, Mechanism)
        assert mechanism.noise.multiplier == 1.3
        assert mechanism.method.mode == mode


@every_gradient_method
def test_status_and_paper_are_those_of_the_published_form(one):
    published = one.load()(mode="paper").method
    assert published.name == one.name
    assert published.source == one.paper
    assert str(published.status) == one.status
    assert published.unprotected == one.exposed


@pytest.mark.slow
@every_gradient_method
def test_the_rigorous_form_has_a_proof_whatever_its_papers_formula_is_worth(one):
    mechanism = one.load()(1.0, 2.0)
    plan = Plan(mechanism, Poisson(16, 1_000), 10, 50)
    assert math.isfinite(curve(plan.total(10)).epsilon(1e-5))
    method = mechanism.method
    assert (method.unprotected, method.violations) == ((), ())
    assert method.claims.claim(plan.settings(), plan.total(10)).epsilon > 0
    assert method.because or str(method.status) == "proven"


@every_method
def test_its_options_are_arguments(one):
    assert set(dict(one.options)) <= set(inspect.signature(one.load()).parameters)


@every_method
def test_it_is_explained_in_whole_sentences(one):
    for text in (one.idea, one.verdict, one.rigorous):
        assert text.endswith(".")
    assert not one.protects.endswith(".")


@every_gradient_method
def test_its_argument_is_written_down(one):
    assert (ROOT / one.page).is_file()


def test_a_name_that_is_not_there_is_answered_with_all_that_are():
    with pytest.raises(InvalidArgument, match="Known: dpsgd, adaclip"):
        find_method("sgd")


def test_gradient_methods_are_those_of_the_package():
    assert set(list_gradient_names()) == set(methods.GRADIENT_METHODS)
