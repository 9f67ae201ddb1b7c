"""Fill pages of the site with what the program knows about itself: commands, methods, public names, the changelog.

A page asks for it by a line `<!-- generated: NAME -->`. Pages of methods get the card of their method below the title.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

import tacit  # noqa: E402
from tacit.methods.registry import Entry, list_methods  # noqa: E402

METHODS = "reference/methods/"
PACKAGE_PAGES = {
    "erm": "linear",
    "errors": "errors",
    "features": "recipes",
    "models": "recipes",
    "recipes": "recipes",
    "reports": "workflows",
    "types": "stages",
    "methods": "methods",
}


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Replace the markers of a page, and put the card of a method below its title."""
    path = page.file.src_uri
    if path.startswith(METHODS):
        markdown = add_cards(markdown, path)
    return re.sub(r"^<!-- generated: (\w+) -->$", lambda found: WRITERS[found[1]](), markdown, flags=re.MULTILINE)


def add_cards(markdown: str, path: str) -> str:
    """The page with a card for each method that it documents, and the arguments of their functions at its end."""
    found = [one for one in list_methods() if one.page == f"docs/{path}"]
    if not found:
        return markdown
    title, rest = markdown.split("\n", 1)
    cards = "\n\n".join(write_card(one) for one in found)
    arguments = "\n\n".join(f"::: {one.module}.{one.name}" for one in found)
    return f"{title}\n\n{cards}\n{rest}\n\n## In Python\n\n{arguments}\n"


def write_card(one: Entry) -> str:
    """What `tacit methods NAME` says, as a table."""
    rows = [
        ("Idea", one.idea),
        ("Paper", one.paper),
        ("The paper's claim", f"**{one.status}**. {one.verdict}"),
        ("Form with a proof", one.rigorous),
        ("Protects", one.protects),
        *(("Published form does not protect", text) for text in one.exposed),
        *((f"`{name}`", text) for name, text in one.options.items()),
    ]
    return "\n".join([f"| `{one.name}` | |", "|---|---|", *(f"| {name} | {cell(text)} |" for name, text in rows)])


def write_methods() -> str:
    """All methods in one table."""
    lines = ["| method | paper | for | the paper's claim |", "|---|---|---|---|"]
    kinds = {"gradient": "any differentiable model", "linear": "linear models"}
    for one in list_methods():
        page = one.page.removeprefix(f"docs/{METHODS}")
        lines.append(f"| [`{one.name}`]({page}) | {cell(one.paper)} | {kinds[one.kind]} | {one.status} |")
    return "\n".join(lines)


def write_commands() -> str:
    """Every command with its help text, arguments and options, as the command line itself knows them."""
    import typer

    from tacit.cli import app

    return "\n\n".join(describe(command, name) for name, command in walk(typer.main.get_command(app), "tacit"))


def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The commands below this one, each with all its words."""
    for word, child in sorted(getattr(command, "commands", {}).items()):
        if getattr(child, "commands", None):
            yield from walk(child, f"{name} {word}")
        else:
            yield f"{name} {word}", child


def describe(command: Any, name: str) -> str:
    """One command as a section."""
    context = command.context_class(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"## {name}", write_help(command.help or ""), f"```text\n{name} {usage}\n```", "| | |\n|---|---|"]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            lines[-1] += f"\n| `{code(record[0])}` | {cell(record[1])} |"
    return "\n\n".join(lines)


def write_help(text: str) -> str:
    """The help text of a command; its examples, which it marks by a backspace, as code."""
    paragraphs = (part.strip("\n") for part in text.split("\n\n"))
    return "\n\n".join(
        "```text\n" + part.replace("\b\n", "") + "\n```" if part.startswith("\b") else part for part in paragraphs
    )


def write_names() -> str:
    """The names of the package `tacit` with the first sentence of their documentation. Reads the source only."""
    package = griffe.load("tacit", search_paths=[ROOT / "src"])
    lines = ["| name | what it is |", "|---|---|"]
    for name in tacit.__all__:
        if name == "__version__":
            lines.append("| `tacit.__version__` | The installed version, as text. |")
            continue
        one = package[name]
        one = one.final_target if one.is_alias else one
        summary = cell(one.docstring.value.split("\n\n")[0]) if one.docstring else ""
        page = f"({PACKAGE_PAGES.get(name, name)}.md)" if one.is_module else f"[{one.canonical_path}]"
        lines.append(f"| [`tacit.{name}`]{page} | {summary} |")
    return "\n".join(lines)


def write_changelog() -> str:
    """The changelog without its title."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n", 1)[1]


def cell(text: str) -> str:
    """A text that fits in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Code that fits in a cell of a table."""
    return text.replace("|", "\\|")


WRITERS = {
    "changelog": write_changelog,
    "commands": write_commands,
    "methods": write_methods,
    "names": write_names,
}
