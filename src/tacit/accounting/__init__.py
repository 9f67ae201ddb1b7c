"""Privacy accounting: events in, certified curves out. Needs numpy and scipy only."""

from tacit.accounting import gdp, information, selection, shuffle
from tacit.accounting.calibrate import calibrate, lot_size_for, multiplier_for, steps_for
from tacit.accounting.clt import central_limit_mu
from tacit.accounting.curve import ACCOUNTANTS, PrivacyCurve, claim_side, curve
from tacit.accounting.densities import (
    Density,
    GaussianDensity,
    LaplaceDensity,
    SechDensity,
    StudentTDensity,
    VarianceGammaDensity,
    cauchy,
    register_density,
)
from tacit.accounting.events import (
    Adaptive,
    Adjacency,
    Composed,
    EpsilonDelta,
    Event,
    Gaussian,
    Laplace,
    ProductNoise,
    RandomizedResponse,
    Repeated,
    Sampled,
    ShuffledReports,
    StudentT,
    Unproven,
    from_json,
)
from tacit.accounting.rdp import RenyiProfile

__all__ = [
    "ACCOUNTANTS",
    "Adaptive",
    "Adjacency",
    "Composed",
    "Density",
    "EpsilonDelta",
    "Event",
    "Gaussian",
    "GaussianDensity",
    "Laplace",
    "LaplaceDensity",
    "PrivacyCurve",
    "ProductNoise",
    "RandomizedResponse",
    "RenyiProfile",
    "Repeated",
    "Sampled",
    "SechDensity",
    "ShuffledReports",
    "StudentT",
    "StudentTDensity",
    "Unproven",
    "VarianceGammaDensity",
    "calibrate",
    "cauchy",
    "central_limit_mu",
    "claim_side",
    "curve",
    "from_json",
    "gdp",
    "information",
    "lot_size_for",
    "multiplier_for",
    "register_density",
    "selection",
    "shuffle",
    "steps_for",
]
