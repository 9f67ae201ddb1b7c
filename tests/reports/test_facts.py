"""What is said about sampling is read off the event, and nothing is said that nobody assumes."""

import pytest

from tacit.accounting import EpsilonDelta, Gaussian
from tacit.reports.facts import sampling_facts


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Gaussian(1.0).sampled(0.25) * 3, "Poisson: each example enters each lot by a coin of its own, rate 0.25"),
        (Gaussian(1.0), "every example in every release: no amplification is counted"),
        (EpsilonDelta(1.0, 1e-6), "an (ε, δ) that was found before, in which any sampling is counted already"),
    ],
)
def test_what_the_accountant_assumes_is_what_the_event_says(event, words):
    assert sampling_facts(event)["assumed"] == words


def test_where_nothing_is_proven_nothing_is_assumed():
    assert sampling_facts(Gaussian(1.0), is_proven=False) == {"assumed": None, "rates": []}
