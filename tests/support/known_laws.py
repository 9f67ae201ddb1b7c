"""Every noise density, and the same law by someone else."""

import math

import numpy as np
import pytest
from scipy import stats

from tacit.accounting.densities import (
    GaussianDensity,
    LaplaceDensity,
    SechDensity,
    StudentTDensity,
    VarianceGammaDensity,
    cauchy,
)

UNIT_VARIANCE_T9 = StudentTDensity(9.0, 0.8819171036881969)


class VarianceGamma:
    """(1 + |x|/b) exp(-|x|/b) / (4 b), the law of the sum of two Laplace variables."""

    def __init__(self, scale):
        self.scale = scale

    def logpdf(self, x):
        a = np.abs(x) / self.scale
        return np.log((1 + a) / (4 * self.scale)) - a

    def sf(self, x):
        tail = (2 + np.abs(x) / self.scale) / 4 * np.exp(-np.abs(x) / self.scale)
        return np.where(np.asarray(x) > 0, tail, 1 - tail)

    def cdf(self, x):
        return self.sf(-x)


# Our density, and the same law by someone else.
FAMILIES = {
    "gaussian": (GaussianDensity(1.3), stats.norm(scale=1.3)),
    "laplace": (LaplaceDensity(0.8), stats.laplace(scale=0.8)),
    "student_t9": (UNIT_VARIANCE_T9, stats.t(9, scale=0.8819171036881969)),
    "student_t1.5": (StudentTDensity(1.5, 2.0), stats.t(1.5, scale=2.0)),
    "cauchy": (cauchy(1.1), stats.cauchy(scale=1.1)),
    "sech": (SechDensity(0.9), stats.hypsecant(scale=2 * 0.9 / math.pi)),
    "variance_gamma": (VarianceGammaDensity(0.7), VarianceGamma(0.7)),
}
SHIFTS = (0.05, 0.7, 3.0)
CASES = [pytest.param(*pair, shift, id=f"{name}-{shift}") for name, pair in FAMILIES.items() for shift in SHIFTS]
LAWS = [pytest.param(*pair, id=name) for name, pair in FAMILIES.items()]
