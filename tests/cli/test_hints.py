"""Hints that are printed or written down are run as they stand, after nothing but `import tacit`."""

import ast
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import tacit as library
from tacit.methods.registry import list_methods

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")

ROOT = Path(__file__).parents[2]
# Dotted names; not those in paths or addresses.
NAMES = re.compile(r"(?<![\w./-])tacit(?:\.[A-Za-z_]\w*)+")
RESOLVE = """
import tacit
for name in {names!r}:
    try:
        eval(name)
    except AttributeError:
        print(name)
"""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def fresh(program: str) -> subprocess.CompletedProcess:
    """A program in an interpreter of its own, which has imported nothing of tacit before."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def names_in_messages() -> set[str]:
    """Every dotted name in a text of the program that is no docstring."""
    found: set[str] = set()
    for path in (ROOT / "src" / "tacit").rglob("*.py"):
        if path.name == "_old_names.py":  # a table of names in saved files, which nobody is shown
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and isinstance(node.body[0], ast.Expr)
            and isinstance(node.body[0].value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found.update(NAMES.findall(node.value))
    return found


def names_in_docs() -> set[str]:
    """Every dotted name in a page, but for the modules that the API reference is made from (`::: tacit.module`)."""
    lines = [line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    return {name for line in lines if not line.startswith(":::") for name in NAMES.findall(line)}


def is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.slow
def test_every_name_in_a_message_or_in_the_docs_is_there_after_import_tacit():
    messages, docs = names_in_messages(), names_in_docs()
    assert {"tacit.load", "tacit.gradients.replace_batch_norm"} <= messages
    assert {"tacit.load", "tacit.errors.Caution", "tacit.training.tuning"} <= docs
    # What one name imports may bring another along: only those that are listed are there by themselves.
    assert {name.split(".")[1] for name in messages | docs} <= set(library.__all__)
    ran = fresh(RESOLVE.format(names=sorted(messages | docs)))
    assert ran.returncode == 0, ran.stderr
    missing = set(ran.stdout.split())
    # A page may name a module that has to be imported; what a message says is typed as it stands.
    assert not missing & messages
    assert {name for name in missing if not is_module(name)} == set()


@pytest.mark.slow
def test_the_hint_after_training_gives_a_model_that_predicts(run_cli):
    done = run_cli("train iris --epsilon 8 --recipe auto --out 'runs/it is mine'")
    assert done.code == 0, done.err
    [hint] = re.findall(r"(tacit\.load\(.*\))\.predict\(rows\)", done.out)
    ran = fresh(
        f"import tacit\nmodel = {hint}\n"
        "import numpy, sklearn.datasets\n"
        "iris = sklearn.datasets.load_iris()\n"
        "right = model.predict(iris.data) == iris.target_names[iris.target]\n"
        "print(numpy.mean(right), model.guarantee_.epsilon(model.guarantee_.delta))"
    )
    assert ran.returncode == 0, ran.stderr
    accuracy, epsilon = map(float, ran.stdout.split())
    assert accuracy > 0.7
    assert 7.9 < epsilon <= 8


@pytest.mark.slow
def test_what_methods_says_to_call_can_be_called(run_cli):
    hints = []
    for one in list_methods():
        done = run_cli(f"methods {one.name}")
        assert done.code == 0, done.err
        hints += re.findall(rf"tacit\.methods\.{one.name}(?=\()", done.out)
        if one.kind == "gradient":
            hints.append(f"tacit.methods.{one.name}()")
    assert len(hints) >= 2 * len(list_methods())
    program = "import tacit\n" + "\n".join(f"assert {hint}" for hint in hints)
    ran = fresh(program)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", ["--epsilon 5 --recipe auto", "--multiplier 4 --steps 20"])
@pytest.mark.parametrize("hint", ["Resume with: ", "to give it back: "])
def test_the_commands_that_a_stopped_run_prints_run(run_cli, interrupted_at, how, hint):
    interrupted_at(5)
    stopped = run_cli(f"train iris {how} --out 'my runs/first' --ledger iris.ledger")
    assert stopped.code == 130
    assert hint in stopped.err
    rest = stopped.err.partition(hint)[2]
    command = rest.strip() if hint.startswith("Resume") else rest.partition(". Resume with")[0]
    assert command.startswith("tacit ")
    done = run_cli(command.removeprefix("tacit "))
    assert done.code == 0, done.err


def test_the_command_that_starts_again_runs(run_cli, tmp_path, monkeypatch):
    from tacit.features import Knots

    def interrupted(self, rows):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Knots, "transform", interrupted)
        stopped = run_cli("train iris --epsilon 5 --recipe auto --out first")
    assert stopped.code == 130
    command = stopped.err.partition("Start again with: ")[2].strip()
    assert run_cli(f"{command.removeprefix('tacit ')} --out again").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["--recipe auto", "--method output_perturbation"])
def test_the_command_of_another_run_charges_the_same_ledger(run_cli, how):
    assert run_cli(f"train iris --epsilon 5 {how} --ledger it.ledger --dataset flowers --out first").code == 0
    refused = run_cli("train --resume first")
    assert refused.code == 2
    command = refused.err.partition("cost of its own: ")[2].strip()
    assert run_cli(f"{command.removeprefix('tacit ')} --out again").code == 0
    assert len(library.Ledger("it.ledger").account("flowers").charges) == 2
