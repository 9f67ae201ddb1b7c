"""What is said about sampling is read off the event, and nothing is said that nobody assumes."""

import pytest

from tacit.accounting import EpsilonDelta, Gaussian
from tacit.reports.facts import assume_sampling


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Gaussian(1.0).sampled(0.25) * 3, "Poisson: each example is in each lot independently, at rate 0.25"),
        (Gaussian(1.0), "every example in every release: no amplification by sampling"),
        (EpsilonDelta(1.0, 1e-6), "a known (ε, δ), which already includes any sampling"),
    ],
)
def test_what_the_accountant_assumes_is_what_the_event_says(event, words):
    assert assume_sampling(event)["assumed"] == words


def test_where_nothing_is_proven_nothing_is_assumed():
    assert assume_sampling(Gaussian(1.0), is_proven=False) == {"assumed": None, "rates": []}
