"""Finds the methods: each file of this folder that has an ENTRY is one, and so is a module that another package names.

To add a method, write one file. It holds `ENTRY = Entry(...)` and a function of the same name as the entry:

- in this folder, it is found by listing the folder;
- in an installed package, it is found by an entry point of the group `tacit.methods` whose value is the module;
- anywhere else, the module calls `tacit.methods.register(ENTRY)`, with `module=__name__` in its ENTRY.

Listing the methods must not import torch, which takes seconds. So in the first two cases an ENTRY is parsed and not
executed: it must be a call of `Entry` with keywords, all of whose values are literals. The module is imported when
the method is first used (`Entry.load`).
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from tacit.errors import InvalidArgument

Kind = Literal["gradient", "linear"]
StatusName = Literal["proven", "asymptotic", "unproven", "refuted"]

GROUP = "tacit.methods"
_PROTECTS = {"gradient": "one example added or removed", "linear": "one example replaced by any other"}
_registered: dict[str, Entry] = {}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is known about one method. Texts are whole sentences, except `paper` and `protects`.

    `kind` is "gradient" for any differentiable model (the function takes clip_norm, multiplier and mode, and returns a
    Mechanism) and "linear" for linear models. `idea` says what the method does. `status` rates the paper's claim about
    the form that mode="paper" gives by default, and `verdict` gives the reason. `rigorous` describes the form with a
    proof, and `protects` what that form protects. `exposed` lists what the published form does not protect.
    `options` explains the function's further arguments. `page` is the documentation, by default
    docs/reference/methods/NAME.md.
    """

    name: str
    kind: Kind
    paper: str
    idea: str
    status: StatusName
    verdict: str
    rigorous: str
    protects: str = ""
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    exposed: tuple[str, ...] = ()
    page: str = ""
    module: str = ""

    def __post_init__(self) -> None:
        if self.kind not in _PROTECTS:
            raise InvalidArgument(f"kind must be 'gradient' or 'linear'. Got {self.kind!r} for method {self.name!r}.")
        object.__setattr__(self, "protects", self.protects or _PROTECTS[self.kind])
        object.__setattr__(self, "page", self.page or f"docs/reference/methods/{self.name}.md")

    def load(self) -> Callable[..., Any]:
        """Import the method's module and return its function."""
        function: Callable[..., Any] = getattr(import_module(self.module), self.name)
        return function


def register(entry: Entry) -> None:
    """Add a method from a module of your own, which must pass `module=__name__` to its `Entry`.

    The method is then listed, trained, compared and reported like the others, in this process. To have it in every
    process, and on the command line, declare the module as an entry point of the group `tacit.methods` instead.
    """
    if not entry.module:
        raise InvalidArgument(f"The entry of {entry.name!r} names no module. Write Entry(..., module=__name__).")
    known = {one.name: one for one in list_methods()}.get(entry.name, entry)
    if known.module != entry.module:
        raise _taken_name(entry.name, known.module)
    _registered[entry.name] = entry


def list_methods() -> tuple[Entry, ...]:
    """All methods: those for gradients first, then by the year of the paper and by name."""
    found = dict(_registered)
    for one in (*_read_folder(), *_read_packages()):
        if found.setdefault(one.name, one).module != one.module:
            raise _taken_name(one.name, found[one.name].module)
    years = {one.name: re.search(r"\b(19|20)\d\d\b", one.paper) for one in found.values()}
    year_of = {name: 9999 if year is None else int(year[0]) for name, year in years.items()}
    return tuple(sorted(found.values(), key=lambda one: (one.kind, year_of[one.name], one.name)))


def list_gradient_names() -> tuple[str, ...]:
    """The names of the methods that train any differentiable model."""
    return tuple(one.name for one in list_methods() if one.kind == "gradient")


def find_method(name: str) -> Entry:
    """The method of that name; `InvalidArgument` with all names if there is none."""
    # Looking through installed packages takes milliseconds, and reports ask often: our own methods come first.
    for read in (_read_folder, list_methods):
        for one in read():
            if one.name == name:
                return one
    names = [one.name for one in list_methods()]
    # Estimators call a method by the first word of its name.
    first = {each.partition("_")[0]: each for each in reversed(names)}
    close = [first[name]] if name in first else difflib.get_close_matches(name, names, 1)
    close = close or [first[word] for word in difflib.get_close_matches(name, first, 1)]
    hint = f" Did you mean {close[0]}?" if close else ""
    raise InvalidArgument(f"There is no method {name!r}.{hint} Known: {', '.join(names)}.")


@lru_cache(maxsize=1)
def _read_folder() -> tuple[Entry, ...]:
    found = ((path.stem, parse_entry(path)) for path in sorted(Path(__file__).parent.glob("*.py")))
    return tuple(replace(one, module=f"{__package__}.{stem}") for stem, one in found if one is not None)


def _read_packages() -> Iterator[Entry]:
    """The methods of other installed packages. Not cached: packages can be put on the path later."""
    for point in entry_points(group=GROUP):
        spec = find_spec(point.module)
        one = None if spec is None or spec.origin is None else parse_entry(Path(spec.origin))
        if one is None:
            raise InvalidArgument(
                f"The entry point {point.name!r} of the group {GROUP!r} names the module {point.module}, which has no "
                "ENTRY written in literals. Write `ENTRY = Entry(...)` there, or uninstall the package."
            )
        yield replace(one, module=point.module)


def parse_entry(path: Path) -> Entry | None:
    """The ENTRY that a Python file assigns, without executing the file. None if it assigns none."""
    source = path.read_text(encoding="utf-8")
    if "\nENTRY = " not in source:
        return None
    for node in ast.parse(source, str(path)).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="ENTRY")], value=ast.Call(args=[], keywords=keywords)):
                try:
                    return Entry(
                        **{str(one.arg): ast.literal_eval(one.value) for one in keywords if one.arg != "module"}
                    )
                except (ValueError, TypeError) as error:
                    raise InvalidArgument(
                        f"The ENTRY in {path} cannot be read without executing the file: {error}. Use keywords with "
                        "literal values only."
                    ) from error
    return None


def _taken_name(name: str, module: str) -> InvalidArgument:
    return InvalidArgument(
        f"There is already a method {name!r}, in {module}. Runs are stored under the name of their method, so a name "
        "cannot be reused: choose another."
    )
