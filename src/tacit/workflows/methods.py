"""The list of methods and the card of each: what `tacit methods` shows. Loads no torch."""

from __future__ import annotations

import textwrap
from typing import Any

from tacit.methods.registry import Entry, find_method, list_methods
from tacit.workflows.text import Paragraph

__all__ = ["describe_all", "describe_one", "find_method", "list_methods", "to_json"]

_KINDS = {"gradient": "For any differentiable model", "linear": "For linear models"}
_USES = {
    "gradient": "tacit train DATA --method {name}; tacit.methods.{name}() for PrivateRun.",
    "linear": "tacit train DATA --method {name}; tacit.methods.{name}(x, y, ...); by name in tacit.estimators.",
}

_CHOICES = {
    "gradient": "Choices: --set NAME=VALUE, or arguments of tacit.methods.{name}()",
    "linear": "Arguments of tacit.methods.{name}()",
}


def describe_all(entries: tuple[Entry, ...]) -> list[Paragraph]:
    """One line per method, by kind and by what it protects; lines have at most 78 columns."""
    width = max(len(one.name) for one in entries) + 2
    paragraphs = []
    for kind, title in _KINDS.items():
        for protects in dict.fromkeys(one.protects for one in entries if one.kind == kind):
            chosen = [one for one in entries if (one.kind, one.protects) == (kind, protects)]
            lines = [f"{'method':<{width}}{'as published':<14}paper"]
            for one in chosen:
                first, *more = textwrap.wrap(one.paper, 64 - width)
                lines += [f"{one.name:<{width}}{one.status:<14}{first}", *(" " * (width + 14) + each for each in more)]
            paragraphs.append((f"{title}, protecting {protects}", lines))
    note = (
        "'as published' is our verdict on the paper's own claim. Every method has a form with a proof, and tacit uses "
        "that form unless you ask for --mode paper."
    )
    return [*paragraphs, ("What the words mean", [note, "tacit methods NAME explains one of them."])]


def describe_one(one: Entry) -> list[Paragraph]:
    """The idea, the claim, the form with a proof and the options of a method."""
    verdict = [f"{one.status}: {one.verdict}"]
    if one.exposed:
        verdict.append(f"Not protected in that form: {', '.join(one.exposed)}.")
    paragraphs = [
        (f"{one.name} ({one.paper})", [one.idea]),
        ("Its claim, as published", verdict),
        ("With a proof", [f"{one.rigorous} Protects {one.protects}."]),
    ]
    if one.options:
        width = max(len(option) for option in one.options) + 2
        lines = [f"{option:<{width}}{meaning}" for option, meaning in one.options.items()]
        paragraphs.append((_CHOICES[one.kind].format(name=one.name), lines))
    return [*paragraphs, ("Use", [_USES[one.kind].format(name=one.name), f"Claim and proof in full: {one.page}"])]


def to_json(one: Entry) -> dict[str, Any]:
    """The same for machines."""
    return {
        "name": one.name,
        "kind": one.kind,
        "paper": one.paper,
        "idea": one.idea,
        "published": {"status": one.status, "verdict": one.verdict, "unprotected": list(one.exposed)},
        "rigorous": {"form": one.rigorous, "protects": one.protects},
        "options": dict(one.options),
        "page": one.page,
    }
