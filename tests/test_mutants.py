"""The catalogue of planted bugs: every patch still applies, so that `make mutants` tries what it says."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from mutants import read_mutants  # noqa: E402


@pytest.mark.parametrize("mutant", read_mutants(), ids=lambda one: one.name)
def test_a_planted_bug_applies_and_names_tests_that_exist(mutant):
    text = (ROOT / "src" / "tacit" / mutant.file).read_text()
    compile(mutant.planted(text), mutant.file, "exec")
    assert mutant.tests
    assert all((ROOT / name).exists() for name in mutant.tests)
