"""Audits: attacks on trained models and on mechanisms, with honest statistics about what they show.

An attack gives a lower bound on epsilon, an accountant an upper one; a proven guarantee keeps them in this order.
Names load when they are first used: the statistics need numpy and scipy only, the attacks torch.
"""

from typing import TYPE_CHECKING

__all__ = ["Fixture", "Kind", "LowerBound", "Verdict", "all_fixtures", "judge"]

if TYPE_CHECKING:
    from tacit.audit.evidence import Kind, LowerBound, Verdict, judge
    from tacit.audit.fixtures import Fixture, all_fixtures
else:
    _HOMES = {
        "Fixture": "fixtures",
        "Kind": "evidence",
        "LowerBound": "evidence",
        "Verdict": "evidence",
        "all_fixtures": "fixtures",
        "judge": "evidence",
    }

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            from importlib import import_module

            return getattr(import_module(f"tacit.audit.{_HOMES[name]}"), name)
        raise AttributeError(f"module 'tacit.audit' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
