"""`tacit methods`: the list, one of them, and for machines."""

import json
import subprocess
import sys

import pytest

from tacit.methods.choices import choices_of
from tacit.methods.registry import list_methods

LISTING = """
import sys
from tacit.cli import main
sys.argv = ["tacit", "methods", {name!r}] if {name!r} else ["tacit", "methods"]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print(*sorted({{name.partition('.')[0] for name in sys.modules}}), file=sys.stderr)
"""


def test_every_method_stands_in_the_list_with_paper_and_status_below_whom_it_protects(run_cli):
    run = run_cli("methods")
    assert run.code == 0
    paragraphs = {part.partition("\n")[0]: part.split("\n") for part in run.out.split("\n\n")}
    for one in list_methods():
        [title] = [title for title, lines in paragraphs.items() if f"\n  {one.name} " in "\n".join(lines)]
        assert title.endswith(f"protecting {one.protects}")
        [place] = [place for place, line in enumerate(paragraphs[title]) if line.startswith(f"  {one.name} ")]
        line, following = paragraphs[title][place], "".join(paragraphs[title][place + 1 : place + 2])
        assert one.status in line
        assert one.paper in (line[40:], f"{line[40:]} {following.strip()}")


@pytest.mark.slow
@pytest.mark.parametrize("one", list_methods(), ids=lambda one: one.name)
def test_one_of_them_is_explained(run_cli, one):
    out = run_cli(f"methods {one.name}").out
    assert out.startswith(f"{one.name} ({one.paper})")
    for part in (one.idea, one.verdict, one.rigorous, one.page, *(meaning for _, meaning in one.options.items())):
        assert part in out


def test_choices_are_offered_as_the_command_line_takes_them(run_cli):
    assert (
        "Choices: --set NAME=VALUE, or arguments of tacit.methods.directional()" in run_cli("methods directional").out
    )
    assert "Arguments of tacit.methods.input_perturbation()" in run_cli("methods input_perturbation").out


@pytest.mark.parametrize("one", [one for one in list_methods() if one.kind == "gradient"], ids=lambda one: one.name)
def test_what_is_offered_can_be_set(one):
    offered = {name for name, meaning in one.options.items() if not meaning.startswith("in Python only")}
    assert offered <= set(choices_of(one.name))


def test_what_is_exposed_is_said(run_cli):
    assert "Not protected in that form: support, residual." in run_cli("methods pruned").out


def test_machines_get_the_same(run_cli):
    found = json.loads(run_cli("methods --json").out)["methods"]
    assert [one["name"] for one in found] == [one.name for one in list_methods()]
    (pruned,) = json.loads(run_cli("methods pruned --json").out)["methods"]
    assert pruned["published"]["status"] == "refuted"
    assert pruned["published"]["unprotected"] == ["support", "residual"]


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(run_cli):
    run = run_cli("methods sgd")
    assert run.code == 2
    assert "Known: dpsgd" in run.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "encoded"])
def test_listing_loads_no_method(name):
    program = LISTING.format(name=name)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert {"torch", "scipy", "numpy", "matplotlib"}.isdisjoint(run.stderr.split())
