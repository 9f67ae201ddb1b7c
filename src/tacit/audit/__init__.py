"""Audits: attacks on trained models and on mechanisms, and the statistics of their results.

An attack gives a lower bound on epsilon, an accountant an upper bound. Names load when they are first used: the
statistics need only numpy and scipy, the attacks torch.
"""

from typing import TYPE_CHECKING

__all__ = [
    "AuditReport",
    "Canaries",
    "CanaryGame",
    "Finding",
    "Fixture",
    "Kind",
    "LowerBound",
    "ManyRuns",
    "NeighbourTest",
    "ReleaseTest",
    "Roc",
    "Runs",
    "Shadows",
    "Training",
    "Verdict",
    "all_fixtures",
    "audit",
    "audit_training",
    "distinguish",
    "infer_membership",
    "judge",
    "neighbour_test",
    "one_run",
    "record_audit",
    "release_test",
    "roc",
    "train_shadows",
]

# A module-level __getattr__ would make every misspelt name pass the type checker, so it sees plain imports.
if TYPE_CHECKING:
    from tacit.audit.attacks import Canaries, ManyRuns, audit, record_audit
    from tacit.audit.canaries import CanaryGame
    from tacit.audit.evidence import AuditReport, Finding, Kind, LowerBound, Verdict, judge
    from tacit.audit.fixtures import Fixture, all_fixtures
    from tacit.audit.guessing import one_run
    from tacit.audit.membership import Shadows, infer_membership, train_shadows
    from tacit.audit.neighbours import NeighbourTest, neighbour_test
    from tacit.audit.releases import ReleaseTest, release_test
    from tacit.audit.runs import Runs
    from tacit.audit.separation import Roc, roc
    from tacit.audit.statistics import distinguish
    from tacit.audit.white_box import Training, audit_training
else:
    _HOMES = {
        "attacks": ("Canaries", "ManyRuns", "audit", "record_audit"),
        "canaries": ("CanaryGame",),
        "evidence": ("AuditReport", "Finding", "Kind", "LowerBound", "Verdict", "judge"),
        "fixtures": ("Fixture", "all_fixtures"),
        "guessing": ("one_run",),
        "membership": ("Shadows", "infer_membership", "train_shadows"),
        "neighbours": ("NeighbourTest", "neighbour_test"),
        "releases": ("ReleaseTest", "release_test"),
        "runs": ("Runs",),
        "separation": ("Roc", "roc"),
        "statistics": ("distinguish",),
        "white_box": ("Training", "audit_training"),
    }

    def __getattr__(name: str) -> object:
        for home, names in _HOMES.items():
            if name in names:
                from importlib import import_module

                return getattr(import_module(f"tacit.audit.{home}"), name)
        raise AttributeError(f"module 'tacit.audit' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
