"""The claims and certified epsilons in the encoding experiment's page, derived again."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

RESULTS = Path(__file__).parents[2] / "experiments" / "encoding" / "results.jsonl"
RATE, STEPS, DELTA = 256 / 60_000, 14_062, 1e-5


def recorded(form, multiplier):
    records = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    wanted = {"form": form, "multiplier": multiplier, "delta": DELTA, "steps": STEPS}
    [found] = [each["found"] for each in records if each["part"] == "accounting" and each["asked"] == wanted]
    return found


def renyi_epsilon(multiplier):
    """Sampled Gaussian noise at whole orders from 2 to 64, converted by Mironov 2017: the paper's Theorem 1."""
    epsilons = []
    for order in range(2, 65):
        k = np.arange(order + 1)
        terms = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1) + k * math.log(RATE)
        terms = terms + (order - k) * math.log1p(-RATE) + k * (k - 1) / (2 * multiplier**2)
        epsilons.append((STEPS * logsumexp(terms) + math.log(1 / DELTA)) / (order - 1))
    return min(epsilons)


@pytest.mark.parametrize("multiplier", [0.8, 1.1, 1.4])
def test_claims_of_gaussian_noise_are_at_the_delta_of_the_certified_column(multiplier):
    assert recorded("gaussian", multiplier)["claimed"] == pytest.approx(renyi_epsilon(multiplier), rel=1e-9)


def test_student_noise_of_scale_one_certifies_much_less_than_of_standard_deviation_one():
    """Nasr et al. have the scale; these values were derived by hand before."""
    assert recorded("student_t", 1.0)["certified"] == pytest.approx(3.015, abs=1e-3)
    assert recorded("student_t", 1.1339)["certified"] == pytest.approx(2.399, abs=1e-3)
