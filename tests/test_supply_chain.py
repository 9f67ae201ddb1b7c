"""What comes with tacit: licences of everything that is installed, and no file format that executes what it holds."""

import ast
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOL = runpy.run_path(str(ROOT / "docs" / "_tools" / "release.py"))
# Whatever reads a pickle.
READERS = {
    "load": {"pickle", "cPickle", "dill", "joblib", "torch", "cloudpickle", "marshal"},
    "loads": {"pickle", "cPickle", "dill", "marshal", "cloudpickle"},
    "Unpickler": {"pickle"},
    "read_pickle": {"pd", "pandas"},
    "open": {"shelve"},
}


def is_tensors_only(node):
    """Whether this is torch.load(..., weights_only=True), which reads tensors and executes nothing."""
    return isinstance(node, ast.Call) and any(
        each.arg == "weights_only" and ast.unparse(each.value) == "True" for each in node.keywords
    )


def test_nothing_in_the_package_executes_a_pickle():
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        harmless = [node.func for node in nodes if is_tensors_only(node)]
        for node in nodes:
            reads = isinstance(node, ast.Attribute) and ast.unparse(node.value) in READERS.get(node.attr, ())
            if reads and node not in harmless:
                found.append(f"{path.name}:{node.lineno}")
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
                found.append(f"{path.name}:{node.value.lineno}")
            if isinstance(node, ast.ImportFrom) and node.module in ("pickle", "dill", "joblib", "shelve"):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []


def test_every_dependency_states_a_licence_and_none_forbids_closed_programs():
    licences = {name: TOOL["read_licence"](one) for name, one in TOOL["find_dependencies"]().items()}
    assert {"torch", "numpy", "cryptography"} <= licences.keys()
    assert [name for name, text in licences.items() if text == "not stated"] == []
    strict = [name for name, text in licences.items() if "GPL" in text and "LGPL" not in text]
    assert strict == []


def test_the_bill_of_materials_names_each_part_once():
    materials = TOOL["describe_materials"]({"tacit.whl": "0" * 64}, "1.0")
    names = [part["bom-ref"] for part in materials["components"]]
    assert len(names) == len(set(names)) > 20
    assert materials["dependencies"][0]["dependsOn"] == names


def test_packages_that_no_database_knows_are_not_counted_as_clean():
    skipped = {"name": "torch", "version": "2.13.0", "skip_reason": "not found"}
    clean, flawed = ({"name": "x", "version": "1", "vulns": each} for each in ([], [{"id": "CVE-1"}]))
    assert TOOL["describe_flaws"]([skipped, clean]).startswith("pip-audit looked up 1 of 2 packages")
    with pytest.raises(SystemExit, match="x 1: CVE-1"):
        TOOL["describe_flaws"]([skipped, clean, flawed])
