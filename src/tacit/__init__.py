"""Differentially private machine learning with guarantees that can be checked.

Names load when they are first used, so a command line or an accountant never waits for what it does not need.
"""

from typing import TYPE_CHECKING

__all__ = [
    "Assumption",
    "Budget",
    "FullBatch",
    "Guarantee",
    "Ledger",
    "Poisson",
    "PrivateRun",
    "Schedule",
    "Shuffled",
    "__version__",
    "accounting",
    "audit",
    "bounds",
    "convex",
    "datasets",
    "errors",
    "estimators",
    "features",
    "gradients",
    "inputs",
    "ledger",
    "load",
    "methods",
    "networks",
    "noise",
    "post",
    "recipe",
    "report",
    "sampling",
    "tuning",
    "types",
]

# A module-level __getattr__ would make every misspelt name pass the type checker, so it sees plain imports.
if TYPE_CHECKING:
    import tacit.accounting as accounting
    import tacit.audit as audit
    import tacit.bounds as bounds
    import tacit.convex as convex
    import tacit.datasets as datasets
    import tacit.errors as errors
    import tacit.estimators as estimators
    import tacit.features as features
    import tacit.gradients as gradients
    import tacit.inputs as inputs
    import tacit.ledger as ledger
    import tacit.methods as methods
    import tacit.networks as networks
    import tacit.noise as noise
    import tacit.post as post
    import tacit.recipe as recipe
    import tacit.report as report
    import tacit.sampling as sampling
    import tacit.tuning as tuning
    import tacit.types as types
    from tacit.estimators import load
    from tacit.guarantee import Assumption, Guarantee
    from tacit.ledger import Budget, Ledger
    from tacit.plan import Schedule
    from tacit.run import PrivateRun
    from tacit.sampling import FullBatch, Poisson, Shuffled

    __version__: str
else:
    # Where a name that is no module is found.
    _HOMES = {
        "Assumption": "guarantee",
        "Budget": "ledger",
        "FullBatch": "sampling",
        "Guarantee": "guarantee",
        "Ledger": "ledger",
        "Poisson": "sampling",
        "PrivateRun": "run",
        "Schedule": "plan",
        "Shuffled": "sampling",
        "load": "estimators",
    }

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("tacit")
        if name in __all__:
            from importlib import import_module

            home = import_module(f"tacit.{_HOMES.get(name, name)}")
            return getattr(home, name) if name in _HOMES else home
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
