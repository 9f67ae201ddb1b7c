"""Privacy accounting: events in, certified curves out. Needs numpy and scipy only."""

from importlib import import_module
from pkgutil import iter_modules

from tacit.accounting import gdp, individual, information, selection, shuffle
from tacit.accounting.calibrate import calibrate, lot_size_for, multiplier_for, steps_for
from tacit.accounting.clt import central_limit_mu
from tacit.accounting.curve import (
    ACCOUNTANTS,
    Accountant,
    Bounds,
    Certifies,
    PrivacyCurve,
    Profile,
    accountant_named,
    claim_side,
    curve,
    other_accountants,
    register_accountant,
)
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
from tacit.accounting.lots import Allocated, Correlated, FixedSize, Truncated
from tacit.accounting.rdp import RenyiProfile

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Adaptive",
    "Adjacency",
    "Allocated",
    "Bounds",
    "Certifies",
    "Composed",
    "Correlated",
    "Density",
    "EpsilonDelta",
    "Event",
    "FixedSize",
    "Gaussian",
    "GaussianDensity",
    "Laplace",
    "LaplaceDensity",
    "PrivacyCurve",
    "ProductNoise",
    "Profile",
    "RandomizedResponse",
    "RenyiProfile",
    "Repeated",
    "Sampled",
    "SechDensity",
    "ShuffledReports",
    "StudentT",
    "StudentTDensity",
    "Truncated",
    "Unproven",
    "VarianceGammaDensity",
    "accountant_named",
    "calibrate",
    "cauchy",
    "central_limit_mu",
    "claim_side",
    "curve",
    "from_json",
    "gdp",
    "individual",
    "information",
    "lot_size_for",
    "multiplier_for",
    "other_accountants",
    "register_accountant",
    "register_density",
    "selection",
    "shuffle",
    "steps_for",
]

# Every module registers the accountants that it defines.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
