"""`tacit methods`: what there is, and what is true of it."""

from typing import Annotated

import typer

from tacit.cli import options


def methods(
    name: Annotated[
        str | None, typer.Argument(help="The method to explain; without a name, all are listed.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """List every method, or explain one.

    \b
    tacit methods
    tacit methods directional
    """
    from tacit.cli.output import say, say_json
    from tacit.workflows.methods import describe_all, describe_one, find_method, list_methods, to_json

    chosen = list_methods() if name is None else (find_method(name),)
    if json:
        say_json({"methods": [to_json(one) for one in chosen]})
    elif name is None:
        say(describe_all(chosen))
    else:
        say(describe_one(chosen[0]))
