"""`tacit methods`: what there is, and what is true of it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options

if TYPE_CHECKING:
    from tacit.cli.statement import Paragraph
    from tacit.methods.registry import Entry

_KINDS = {"gradient": "For any differentiable model", "linear": "For linear models"}
_USES = {
    "gradient": "tacit train DATA --method {name}; tacit.methods.{name}() for PrivateRun.",
    "linear": "tacit.methods.{name}(x, y, ...); by name in tacit.estimators.",
}

_CHOICES = {
    "gradient": "Choices: --set NAME=VALUE, or arguments of tacit.methods.{name}()",
    "linear": "Arguments of tacit.methods.{name}()",
}


def methods(
    name: Annotated[
        str | None, typer.Argument(help="Explain this one; without a name, list all.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """Every method: its paper, whether its claim stands, what it protects.

    \b
    tacit methods
    tacit methods directional
    """
    from tacit.cli.output import say, say_json
    from tacit.methods.registry import find_method, list_methods

    chosen = list_methods() if name is None else (find_method(name),)
    if json:
        say_json({"methods": [_as_json(one) for one in chosen]})
    elif name is None:
        say(_listed(chosen))
    else:
        say(_explained(chosen[0]))


def _listed(entries: tuple["Entry", ...]) -> list["Paragraph"]:
    """One line a method, by kind."""
    names, papers = (max(len(getattr(one, field)) for one in entries) + 2 for field in ("name", "paper"))
    head = f"{'method':<{names}}{'paper':<{papers}}{'as published':<14}protects"
    paragraphs = []
    for kind, title in _KINDS.items():
        rows = [
            f"{one.name:<{names}}{one.paper:<{papers}}{one.status:<14}{one.protects}"
            for one in entries
            if one.kind == kind
        ]
        paragraphs.append((title, [head, *rows]))
    note = (
        "'as published' rates the paper's own claim about its own form (mode 'paper', with its default settings). "
        "Every method runs in a form with a proof (mode 'rigorous') unless that is asked for: whom it protects then "
        "stands at the right."
    )
    return [*paragraphs, ("What the words mean", [note, "tacit methods NAME explains one of them."])]


def _explained(one: "Entry") -> list["Paragraph"]:
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
    return [*paragraphs, ("Use", [_USES[one.kind].format(name=one.name), f"The argument: {one.page}"])]


def _as_json(one: "Entry") -> dict[str, Any]:
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
