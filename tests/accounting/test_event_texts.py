"""The text form of events: what was written comes back, and what was published never changes its meaning."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accounting import (
    Adaptive,
    Adjacency,
    EpsilonDelta,
    Gaussian,
    Laplace,
    ProductNoise,
    RandomizedResponse,
    StudentT,
    Unproven,
    from_json,
    register_density,
)
from tacit.accounting.densities import (
    DENSITIES,
    GaussianDensity,
    LaplaceDensity,
    SechDensity,
    StudentTDensity,
    VarianceGammaDensity,
    cauchy,
)
from tacit.errors import AdjacencyMismatch, InvalidArgument

REPLACE = Adjacency.REPLACE_ONE
scales = st.floats(1e-6, 1e6)
rates = st.floats(1e-9, 1.0)
densities = st.one_of(
    st.builds(GaussianDensity, scales),
    st.builds(LaplaceDensity, scales),
    st.builds(StudentTDensity, scales, scales),
    st.builds(SechDensity, scales),
    st.builds(VarianceGammaDensity, scales),
    st.builds(cauchy, scales),
)


def events_under(adjacency):
    leaves = st.one_of(
        st.builds(Gaussian, scales, st.just(adjacency)),
        st.builds(RandomizedResponse, scales, st.integers(2, 50), st.just(adjacency)),
        st.builds(EpsilonDelta, st.floats(0, 100), st.floats(0, 1), st.just(adjacency)),
        st.builds(Unproven, st.text(max_size=20), st.text(max_size=20), st.just(adjacency)),
        st.builds(
            ProductNoise,
            densities,
            st.lists(st.floats(-10, 10), min_size=1, max_size=4).map(tuple),
            st.just(adjacency),
        ),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda event, times: event * times, inner, st.integers(0, 10**9)),
            st.builds(lambda event, rate: event.sampled(rate), inner, rates),
            st.builds(lambda first, second: first + second, inner, inner),
            st.builds(Adaptive, inner),
        ),
        max_leaves=6,
    )


events = st.sampled_from(Adjacency).flatmap(events_under)
# Version 1, as published. These texts and what they mean must never change.
PUBLISHED = [
    (
        Gaussian(1.1),
        '{"version": 1, "event": "gaussian", "multiplier": 1.1, "adjacency": "add_remove"}',
    ),
    (
        Gaussian(0.5, REPLACE),
        '{"version": 1, "event": "gaussian", "multiplier": 0.5, "adjacency": "replace_one"}',
    ),
    (
        Laplace(2.0),
        '{"version": 1, "event": "product_noise", "density": {"family": "laplace", "scale": 2.0}, '
        '"shifts": [1.0], "adjacency": "add_remove"}',
    ),
    (
        StudentT(9.0, 0.875, (0.6, 0.8)),
        '{"version": 1, "event": "product_noise", "density": {"family": "student_t", "dof": 9.0, "scale": 0.875}, '
        '"shifts": [0.6, 0.8], "adjacency": "add_remove"}',
    ),
    (
        ProductNoise(GaussianDensity(3.0), (1.0, 0.5)),
        '{"version": 1, "event": "product_noise", "density": {"family": "gaussian", "scale": 3.0}, '
        '"shifts": [1.0, 0.5], "adjacency": "add_remove"}',
    ),
    (
        ProductNoise(SechDensity(2.0), (1.0,)),
        '{"version": 1, "event": "product_noise", "density": {"family": "sech", "scale": 2.0}, '
        '"shifts": [1.0], "adjacency": "add_remove"}',
    ),
    (
        ProductNoise(VarianceGammaDensity(2.0), (1.0,)),
        '{"version": 1, "event": "product_noise", "density": {"family": "variance_gamma", "scale": 2.0}, '
        '"shifts": [1.0], "adjacency": "add_remove"}',
    ),
    (
        RandomizedResponse(1.5, 4),
        '{"version": 1, "event": "randomized_response", "epsilon": 1.5, "choices": 4, "adjacency": "replace_one"}',
    ),
    (
        EpsilonDelta(1.0, 1e-6),
        '{"version": 1, "event": "epsilon_delta", "epsilon": 1.0, "delta": 1e-06, "adjacency": "add_remove"}',
    ),
    (
        Unproven("(1, 1e-5)-DP", "the support leaks"),
        '{"version": 1, "event": "unproven", "claim": "(1, 1e-5)-DP", "reason": "the support leaks", '
        '"adjacency": "add_remove"}',
    ),
    (
        Adaptive(Gaussian(2.0)),
        '{"version": 1, "event": "adaptive", "inside": {"event": "gaussian", "multiplier": 2.0, '
        '"adjacency": "add_remove"}}',
    ),
    (
        Gaussian(1.1).sampled(0.25) * 100,
        '{"version": 1, "event": "repeated", "times": 100, "inside": {"event": "sampled", "rate": 0.25, '
        '"inside": {"event": "gaussian", "multiplier": 1.1, "adjacency": "add_remove"}}}',
    ),
    (
        Gaussian(1.0) + Laplace(4.0),
        '{"version": 1, "event": "composed", "parts": [{"event": "gaussian", "multiplier": 1.0, '
        '"adjacency": "add_remove"}, {"event": "product_noise", "density": {"family": "laplace", "scale": 4.0}, '
        '"shifts": [1.0], "adjacency": "add_remove"}]}',
    ),
]
KINDS = [type(event).__name__ + str(i) for i, (event, _) in enumerate(PUBLISHED)]


@pytest.mark.slow
@given(events)
def test_an_event_comes_back_from_its_text(event):
    assert from_json(event.to_json()) == event


@pytest.mark.slow
@given(events)
def test_an_event_that_comes_back_has_the_same_hash_and_the_same_text(event):
    back = from_json(event.to_json())
    assert hash(back) == hash(event)
    assert back.to_json() == event.to_json()


@pytest.mark.slow
@given(events)
def test_the_adjacency_comes_back_too(event):
    assert from_json(event.to_json()).adjacency is event.adjacency


@pytest.mark.parametrize(("event", "text"), PUBLISHED, ids=KINDS)
def test_the_text_of_a_published_event_never_changes(event, text):
    assert event.to_json() == text


@pytest.mark.parametrize(("event", "text"), PUBLISHED, ids=KINDS)
def test_a_published_text_keeps_its_meaning(event, text):
    assert from_json(text) == event


def test_every_density_family_has_a_published_text():
    assert set(DENSITIES) == {"gaussian", "laplace", "student_t", "sech", "variance_gamma"}
    assert {type(event.density) for event, _ in PUBLISHED if isinstance(event, ProductNoise)} == set(DENSITIES.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"version": 2, "event": "gaussian"}', "An event of version 2 is not known here"),
        ('{"event": "gaussian"}', "An event of version None is not known here"),
        ("[1, 2]", "An event of version None is not known here"),
        ('{"version": 1, "event": "gaussain"}', "Not an event of version 1.*gaussain.*Known events: adaptive"),
        ('{"version": 1}', "Not an event of version 1"),
        ('{"version": 1, "event": "gaussian", "adjacency": "add_remove"}', "missing or unknown: 'multiplier'"),
        ('{"version": 1, "event": "gaussian", "multiplier": 1.0}', "missing or unknown: 'adjacency'"),
        ('{"version": 1, "event": "gaussian", "multiplier": 1.0, "adjacency": "both"}', "both"),
        ('{"version": 1, "event": "sampled", "rate": 0.1}', "missing or unknown: 'inside'"),
        ('{"version": 1, "event": "composed", "parts": 3}', "Not an event of version 1"),
        ('{"version": 1, "event": ["gaussian"]}', "Not an event of version 1"),
        (
            '{"version": 1, "event": "product_noise", "density": {"family": "gumbel", "scale": 1.0}, '
            '"shifts": [1.0], "adjacency": "add_remove"}',
            "'gumbel', which is not registered",
        ),
        (
            '{"version": 1, "event": "product_noise", "density": "laplace", "shifts": [1], "adjacency": "add_remove"}',
            "Not an event of version 1",
        ),
        ("{", "This is not a JSON text"),
        ("", "This is not a JSON text"),
        (
            '{"version": 1, "event": "gaussian", "multiplier": -1.0, "adjacency": "add_remove"}',
            "multiplier must be a finite number above 0. Got -1.0",
        ),
        (
            '{"version": 1, "event": "gaussian", "multiplier": NaN, "adjacency": "add_remove"}',
            "multiplier must be a finite number above 0. Got nan",
        ),
    ],
)
def test_a_text_that_is_no_event_is_refused_with_what_is_wrong(text, said):
    with pytest.raises(InvalidArgument, match=said):
        from_json(text)


@dataclasses.dataclass(frozen=True)
class Logistic(LaplaceDensity):
    """Stands for a density that someone else wrote."""


def test_a_density_without_a_name_cannot_be_written():
    with pytest.raises(InvalidArgument, match=r"Logistic has no name.*register_density"):
        ProductNoise(Logistic(1.0), (1.0,)).to_json()


def test_a_registered_density_comes_back_from_its_text():
    register_density("test_logistic", Logistic)
    try:
        event = ProductNoise(Logistic(1.5), (1.0,))
        assert from_json(event.to_json()) == event
    finally:
        del DENSITIES["test_logistic"]


def test_the_name_of_a_density_is_never_given_away_again():
    with pytest.raises(InvalidArgument, match="'laplace' already stands for LaplaceDensity"):
        register_density("laplace", Logistic)
    register_density("laplace", LaplaceDensity)


def test_different_adjacencies_do_not_add_from_a_text_either():
    text = Gaussian(1.0).to_json()[:-1].replace('"version": 1, ', "") + "}"
    other = text.replace("add_remove", "replace_one")
    with pytest.raises(AdjacencyMismatch):
        from_json(f'{{"version": 1, "event": "composed", "parts": [{text}, {other}]}}')


def test_a_density_made_from_numpy_numbers_can_be_written():
    event = StudentT(np.int64(9), np.float32(1.0))
    assert from_json(event.to_json()) == StudentT(9.0, 1.0)


def test_equal_events_have_the_same_text():
    assert StudentT(9, 1).to_json() == StudentT(9.0, 1.0).to_json()
