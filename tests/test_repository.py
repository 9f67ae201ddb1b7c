"""What the repository's own pages promise: versions agree, links lead somewhere, code blocks run."""

import doctest
import os
import re
import shlex
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from unittest import mock

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tacit
from contracts.test_extension import TOY_METHOD
from tacit.accounting import ACCOUNTANTS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDE = ROOT / "docs" / "tutorials" / "patients.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PEERS = {"dp-accounting", "opacus", "prv-accountant"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its text, and where it stands."""

    language: str
    text: str
    place: str

    def __str__(self) -> str:
        return self.place


def blocks_of(page: Path, language: str) -> list[Block]:
    """The blocks in this language, which may be a pattern, in the order of the page."""
    text = page.read_text(encoding="utf-8")
    # All of them, whatever the language, so that no end is taken for a beginning.
    found = re.finditer(r"^```(\w*)[ \t]*\n(.*?)^```[ \t]*$", text, re.MULTILINE | re.DOTALL)
    every = [Block(match[1], match[2], f"{page.name}:{text.count(chr(10), 0, match.start()) + 1}") for match in found]
    return [block for block in every if re.fullmatch(language, block.language)]


def commands_of(block: Block) -> list[str]:
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ tacit ")]


def requirements(extra: str | None = None) -> dict[str, Requirement]:
    listed = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    return {canonicalize_name(each.name): each for each in map(Requirement, listed)}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pinned}


# The blocks of a tutorial build on each other: test_documentation.py runs them together.
ALONE = [page for page in PAGES if page.parent != GUIDE.parent]
PYTHON_BLOCKS = [block for page in ALONE for block in blocks_of(page, "python")]
COMMAND_BLOCKS = [block for page in ALONE for block in blocks_of(page, "console") if commands_of(block)]


@pytest.mark.slow
@pytest.mark.parametrize("block", PYTHON_BLOCKS, ids=str)
def test_python_block_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_python(block)


def run_python(block: Block) -> None:
    names = {"__name__": "__main__"}
    # A page may register an accountant of its own; other tests must not see it.
    with mock.patch.dict(ACCOUNTANTS):
        if ">>> " in block.text:
            example = doctest.DocTestParser().get_doctest(block.text, names, block.place, block.place, 0)
            options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
            assert doctest.DocTestRunner(optionflags=options).run(example).failed == 0
        else:
            exec(compile(block.text, block.place, "exec"), names)


@pytest.mark.slow
@pytest.mark.parametrize("block", COMMAND_BLOCKS, ids=str)
def test_console_commands_succeed(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table, bounds = blocks_of(GUIDE, "python")[0], blocks_of(GUIDE, "toml")[0]
    if "patients.csv" in block.text:
        run_python(table)
    for command in commands_of(block):
        # The template that `tacit bounds` writes is filled in.
        if "bounds.toml" in command.partition("#")[0]:
            Path("bounds.toml").write_text(bounds.text, encoding="utf-8")
        run_command(command, monkeypatch)


@pytest.mark.slow
def test_what_the_readme_shows_is_what_its_command_prints(tmp_path, monkeypatch, capsys):
    """Three dots at the end stand for the rest."""
    monkeypatch.chdir(tmp_path)
    command, shown = blocks_of(ROOT / "README.md", "console|text")[1:3]
    assert shown.language == "text"
    run_command(commands_of(command)[0], monkeypatch)
    assert shown.text.removesuffix("  ...\n") in capsys.readouterr().out


def test_every_block_is_of_a_kind_that_is_run_or_says_that_it_is_none():
    """Python, commands and the guide's files are run here, "py" by the distributed tests, make by whoever tests."""
    for page in PAGES:
        kinds = {block.language for block in blocks_of(page, r"\w*")}
        assert kinds <= {"python", "console", "text", "toml", "py", "sh"}, page
        assert "toml" not in kinds or page == GUIDE
        assert "py" not in kinds or page.name == "distributed.md"
        assert "sh" not in kinds or page in (ROOT / "README.md", ROOT / "docs" / "index.md")


def test_commands_that_no_test_can_run_are_those_of_torchrun():
    lines = [line for page in PAGES for block in blocks_of(page, "console") for line in block.text.splitlines()]
    others = {line for line in lines if line.startswith("$ ") and not line.startswith("$ tacit ")}
    assert others == {"$ torchrun --nproc-per-node 4 train.py"}


def run_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.cli import main

    monkeypatch.setattr("sys.argv", shlex.split(command, comments=True))
    try:
        code = main()
    except SystemExit as stop:
        code = stop.code
    assert not code, command


def test_the_readme_shows_the_library_and_the_command_line():
    readme = ROOT / "README.md"
    assert blocks_of(readme, "python")
    assert [command for block in blocks_of(readme, "console") for command in commands_of(block)]


@pytest.mark.parametrize("page", sorted({*PAGES, *ROOT.glob("*.md")}), ids=lambda page: page.name)
def test_links_lead_to_files_that_exist(page):
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_readme_names_the_two_commands_and_make_has_them():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"make {target}" in readme
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) < 1200


def test_the_method_in_the_guide_for_contributors_is_the_one_that_the_contracts_add():
    (shown,) = blocks_of(ROOT / "CONTRIBUTING.md", "python")
    assert shown.text.strip() == TOY_METHOD.strip()


def test_every_workflow_of_the_forge_calls_make():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    called = {}
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
        commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
        called[path.stem] = [re.fullmatch(r"make (\w+)", command)[1] for command in commands]
    assert called == {"lint": ["lint"], "tests": ["test"], "docs": ["docs"], "wheels": ["wheel"]}
    for targets in called.values():
        assert re.search(rf"^{targets[0]}:", makefile, re.MULTILINE)


def test_the_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == PROJECT["version"]


def test_the_version_is_the_one_in_pyproject():
    assert tacit.__version__ == PROJECT["version"]


def test_every_requirement_admits_the_version_it_is_pinned_to():
    pinned = pins()
    for extra in (None, *PROJECT["optional-dependencies"]):
        for name, requirement in requirements(extra).items():
            assert pinned[name] in requirement.specifier, requirement


def test_peers_are_not_needed_to_use_the_library():
    assert PEERS.isdisjoint(requirements())


def test_opacus_is_not_needed_to_run_the_tests():
    assert "opacus" not in {*requirements(), *requirements("dev")}


def test_the_package_says_that_it_is_typed():
    assert files("tacit").joinpath("py.typed").is_file()


def test_the_licence_is_the_one_in_pyproject():
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text("utf-8")


def test_the_changelog_opens_with_what_is_unreleased_and_what_moved_an_epsilon():
    sections = re.findall(r"^##+ (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert "Privacy" in sections


def test_continuous_integration_runs_what_the_readme_says():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").splitlines()[-1] == "make test"
