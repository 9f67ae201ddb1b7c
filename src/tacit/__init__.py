"""Differentially private machine learning with guarantees that can be checked.

Names load when they are first used, so a command line or an accountant never waits for what it does not need.
"""

from typing import TYPE_CHECKING

__all__ = [
    "Assumption",
    "Budget",
    "CyclicPoisson",
    "FixedLots",
    "FullBatch",
    "Guarantee",
    "Ledger",
    "Poisson",
    "PrivateRun",
    "RandomAllocation",
    "Schedule",
    "Shuffled",
    "TruncatedPoisson",
    "__version__",
    "accounting",
    "audit",
    "audit_run",
    "bounds",
    "compare",
    "datasets",
    "erm",
    "errors",
    "estimators",
    "features",
    "gradients",
    "integrations",
    "ledger",
    "load",
    "methods",
    "models",
    "predict",
    "recipes",
    "report",
    "reports",
    "stages",
    "train",
    "training",
    "tune",
    "types",
    "workflows",
]

# A module-level __getattr__ would make every misspelt name pass the type checker, so it sees plain imports.
if TYPE_CHECKING:
    import tacit.accounting as accounting
    import tacit.audit as audit
    import tacit.datasets as datasets
    import tacit.erm as erm
    import tacit.errors as errors
    import tacit.estimators as estimators
    import tacit.features as features
    import tacit.gradients as gradients
    import tacit.integrations as integrations
    import tacit.ledger as ledger
    import tacit.methods as methods
    import tacit.models as models
    import tacit.recipes as recipes
    import tacit.reports as reports
    import tacit.stages as stages
    import tacit.training as training
    import tacit.types as types
    import tacit.workflows as workflows
    from tacit.budget import Budget
    from tacit.guarantee import Assumption, Guarantee
    from tacit.ledger import Ledger
    from tacit.stages.more_samplings import CyclicPoisson, FixedLots, RandomAllocation, TruncatedPoisson
    from tacit.stages.sampling import FullBatch, Poisson, Shuffled
    from tacit.training.plan import Schedule
    from tacit.training.run import PrivateRun
    from tacit.workflows.audit import audit_run
    from tacit.workflows.bounds import bounds
    from tacit.workflows.compare import compare
    from tacit.workflows.predict import load, predict
    from tacit.workflows.report import report
    from tacit.workflows.train import train
    from tacit.workflows.tune import tune

    __version__: str
else:
    # Where a name that is not a package is defined.
    _HOMES = {
        **dict.fromkeys(("Assumption", "Guarantee"), "guarantee"),
        **dict.fromkeys(("FullBatch", "Poisson", "Shuffled"), "stages.sampling"),
        **dict.fromkeys(
            ("CyclicPoisson", "FixedLots", "RandomAllocation", "TruncatedPoisson"), "stages.more_samplings"
        ),
        **{"Budget": "budget", "Ledger": "ledger", "PrivateRun": "training.run", "Schedule": "training.plan"},
        **{"audit_run": "workflows.audit", "load": "workflows.predict"},
        **{name: f"workflows.{name}" for name in ("bounds", "compare", "predict", "report", "train", "tune")},
    }

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("tacit")
        if name in __all__:
            from importlib import import_module

            home = import_module(f"tacit.{_HOMES.get(name, name)}")
            return getattr(home, name) if name in _HOMES else home
        from difflib import get_close_matches

        # Python asks for names such as __path__ too, and drops the answer.
        close = [] if name.startswith("_") else get_close_matches(name, __all__, 1)
        hint = f". Did you mean {close[0]}?" if close else ""
        raise AttributeError(f"module 'tacit' has no attribute {name!r}{hint}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
