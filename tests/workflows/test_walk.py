"""How far a command walks through the package: few files, and hardly ever upwards."""

import pytest

from support.walk import PACKAGE, trace, walk_alone

# As measured. Lower them whenever the path gets shorter.
MOST_FILES, MOST_TURNS = 45, 5


@pytest.mark.slow
@pytest.mark.usefixtures("in_a_folder_of_its_own")
def test_training_on_adult_visits_few_files_and_hardly_turns_back():
    found = walk_alone("train adult --epsilon 1")
    assert found.files[0] == "cli/__init__.py"
    # The path goes through the command, the workflow, the run and the loop.
    order = ("cli/train.py", "workflows/train.py", "workflows/recipe.py", "training/run.py", "training/fit.py")
    places = [found.files.index(name) for name in order]
    assert places == sorted(places)
    assert len(found.files) <= MOST_FILES, found.files
    assert len(found.turns_back) <= MOST_TURNS, found.turns_back


def make_function(file: str, text: str, **names):
    """The function `f` of a text that claims to be this file of the package."""
    exec(compile(text, str(PACKAGE / file), "exec"), names)
    return names["f"]


def test_a_call_into_a_higher_layer_is_a_turn_back_and_is_counted_once():
    high = make_function("cli/new.py", "def f(): pass")
    low = make_function("accounting/new.py", "def f():\n  list(map(lambda _: high(), range(3)))", high=high)
    top = make_function("workflows/new.py", "def f():\n  low()\n  high()", high=high, low=low)
    with trace() as found:
        top()
    assert found.files == ["workflows/new.py", "accounting/new.py", "cli/new.py"]
    assert found.turns_back == [("accounting/new.py", "cli/new.py"), ("workflows/new.py", "cli/new.py")]


def test_class_bodies_and_generated_methods_are_not_walked():
    text = (
        "from dataclasses import dataclass\n"
        "def f():\n  @dataclass(frozen=True)\n  class A:\n    x: int = 1\n  return A\n"
    )
    made = make_function("stages/new.py", text, __name__="tacit.stages")
    with trace() as found:
        made = made()
    assert found.files == ["stages/new.py"]
    with trace() as found:
        assert made(2) == made(2)
    assert found.files == []


def test_what_runs_while_a_module_is_imported_is_not_walked(tmp_path, monkeypatch):
    (tmp_path / "imports_something.py").write_text("import builtins\nbuiltins.called_while_importing()\n")
    called = []
    inside = make_function("cli/new.py", "def f(): called.append(1)", called=called)
    monkeypatch.setattr("builtins.called_while_importing", inside, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with trace() as found:
        import imports_something  # noqa: F401
    assert (called, found.files) == ([1], [])
