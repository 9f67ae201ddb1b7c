"""What is said before a method is trained whose paper's claim does not stand: choosing one is allowed, never silent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tacit.accounting.events import Unproven
from tacit.guarantee import Status
from tacit.methods.choices import read_choices
from tacit.methods.registry import find_method
from tacit.workflows.training import mechanism_of

if TYPE_CHECKING:
    from tacit.stages.mechanism import Method
    from tacit.workflows.comparing import Comparison

_DOUBTFUL = (Status.REFUTED.value, Status.UNPROVEN.value)


@dataclass(frozen=True)
class Doubt:
    """A method as published, and why its paper's claim does not stand."""

    method: str
    source: str
    status: str
    because: str
    unprotected: tuple[str, ...]

    @staticmethod
    def of(method: Method) -> Doubt:
        """The doubt about a method that was made."""
        return Doubt(method.name, method.source, str(method.status), method.because, method.unprotected)

    def line(self, consequence: str, mode: str) -> str:
        """One line. `consequence` says what is proven all the same, `mode` what was typed to get there."""
        exposed = f" Not protected: {', '.join(self.unprotected)}." if self.unprotected else ""
        return (
            f"WARNING: what {self.source} claim about {self.method} as published is {self.status}. {self.because} "
            f"{consequence}{exposed} Leave out --mode {mode} for a form with a proof; tacit methods {self.method} "
            "explains."
        )


def is_doubtful(method: Method) -> bool:
    """Whether it is trained as published although that claim does not stand."""
    return method.mode == "paper" and method.status.value in _DOUBTFUL


def warnings(comparison: Comparison) -> list[str]:
    """A line for each method that is compared as published and whose claim does not stand."""
    if "paper" not in comparison.modes:
        return []
    mode = "both" if len(comparison.modes) > 1 else "paper"
    found = [
        _gradient(name, comparison, mode) if _is_gradient(name) else _linear(name, mode) for name in comparison.methods
    ]
    return [line for line in found if line is not None]


def _is_gradient(name: str) -> bool:
    return find_method(name).kind == "gradient"


def _gradient(name: str, comparison: Comparison, mode: str) -> str | None:
    chosen = read_choices(name, comparison.choices.get(name, ()))
    mechanism = mechanism_of(replace(comparison.settings, method=name, mode="paper", multiplier=1.0, choices=chosen))
    if not is_doubtful(mechanism.method):
        return None
    # Whether there is a proof follows from the law of the noise, whatever its size and the model's.
    is_proven = not any(isinstance(event, Unproven) for event in mechanism.noise.event(1).walk())
    consequence = "The table says what is proven." if is_proven else "Nothing is proven about these runs."
    return Doubt.of(mechanism.method).line(consequence, mode)


def _linear(name: str, mode: str) -> str | None:
    one = find_method(name)
    if one.status not in _DOUBTFUL:
        return None
    consequence = "The table says what is proven, if anything."
    return Doubt(name, one.paper, one.status, one.verdict, one.exposed).line(consequence, mode)
