"""The documentation site: every page is listed, every public name is there, and a strict build needs no network."""

import ast
import pkgutil
import re
import subprocess
import sys
import zlib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from docs._tools.doctests import fence
from docs._tools.tutorials import list_tutorials, run_page

import tacit
from tacit.methods.registry import list_methods

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
# The command line's own layers: of these, what `tacit` itself names is public.
INTERNAL = {"reports", "workflows"}


def pages_of(nav: object) -> list[str]:
    """All paths in the navigation, in order."""
    match nav:
        case str():
            return [nav]
        case dict():
            return [page for value in nav.values() for page in pages_of(value)]
        case list():
            return [page for value in nav for page in pages_of(value)]
    raise TypeError(nav)


def test_the_navigation_lists_every_page_once():
    written = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
    assert sorted(pages_of(SETTINGS["nav"])) == written


def test_the_four_parts_are_there():
    parts = [name for entry in SETTINGS["nav"] for name in entry]
    assert parts == ["Home", "Tutorials", "How-to guides", "Reference", "Explanations"]


def test_every_method_has_a_page():
    for one in list_methods():
        assert (ROOT / one.page).is_relative_to(DOCS / "reference" / "methods"), one.name
        assert (ROOT / one.page).is_file(), one.name


def test_doctests_are_fenced_up_to_the_next_empty_line():
    assert fence("Text.\n\n>>> 1 + 1\n2\n\nMore.") == "Text.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."


@pytest.mark.slow
@pytest.mark.parametrize("page", list_tutorials(), ids=lambda page: page.stem)
def test_a_tutorial_runs_from_its_first_block_to_its_last(page, tmp_path):
    ran = run_page(page, tmp_path)
    outputs = re.findall(r"^```text\n(.*?)^```", ran, re.MULTILINE | re.DOTALL)
    assert outputs
    assert all(text.strip() for text in outputs)


def public_modules() -> list[ModuleType]:
    """The packages that `tacit` names; of those without `__all__`, their modules too."""
    found = []
    for name in tacit.__all__:
        one = getattr(tacit, name)
        if not isinstance(one, ModuleType) or name in INTERNAL:
            continue
        found.append(one)
        if not hasattr(one, "__all__") and hasattr(one, "__path__") and name != "methods":
            inside = pkgutil.walk_packages(one.__path__, f"{one.__name__}.")
            found += [import_module(each.name) for each in inside if "._" not in each.name]
    # Modules below one that has `__all__` are internal to it.
    parents = {one.__name__ for one in found if hasattr(one, "__all__")}
    return [one for one in found if one.__name__.rpartition(".")[0] not in parents]


def public_names() -> set[str]:
    """Every name that users may rely on, by the place where it is offered."""
    names = {f"tacit.{name}" for name in tacit.__all__ if name != "__version__"}
    for module in public_modules():
        listed = getattr(module, "__all__", None)
        if listed is None:
            source = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
            listed = [one.name for one in source.body if isinstance(one, ast.ClassDef | ast.FunctionDef)]
        names |= {f"{module.__name__}.{name}" for name in listed if not name.startswith("_")}
    return names | {f"tacit.methods.{one.name}" for one in list_methods()}


def places_of(name: str) -> set[str]:
    """The names under which the site may list it: where it is offered, and where it is defined."""
    module, _, last = name.rpartition(".")
    one = getattr(import_module(module), last)
    if isinstance(one, ModuleType):
        return {name, one.__name__}
    return {name, f"{getattr(one, '__module__', '')}.{getattr(one, '__qualname__', '')}"}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    """The inventory of a site lists all names that it documents."""
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    listed = {line.split(" ", 1)[0] for line in zlib.decompress(packed).decode().splitlines()}
    names = public_names()
    assert len(names) > 200
    # Packages whose page documents their modules have no entry of their own.
    packages = {f"tacit.{name}" for name in ("integrations", "methods", "reports", "stages", "training", "workflows")}
    assert {name for name in names - packages if listed.isdisjoint(places_of(name))} == set()


@pytest.mark.slow
def test_every_command_and_every_method_card_is_in_the_reference(site):
    import typer

    from tacit.cli import app

    commands = (site / "reference/commands.html").read_text(encoding="utf-8")
    for name in typer.main.get_command(app).commands:
        assert f'id="tacit-{name}' in commands, name
    for one in list_methods():
        page = (site / one.page.removeprefix("docs/")).with_suffix(".html").read_text(encoding="utf-8")
        assert f"<code>{one.name}</code>" in page, one.name
        assert "Form with a proof" in page, one.name


@pytest.mark.slow
def test_the_site_fetches_nothing(site):
    fetched = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^"'\s>]+""")
    for page in site.rglob("*.html"):
        assert fetched.findall(page.read_text(encoding="utf-8")) == [], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name
