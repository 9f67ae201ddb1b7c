"""A run and a comparison with their reports, made once; no test changes them."""

import json
from pathlib import Path

import pytest

from support.report_folders import comparison_in, own_run_in, run_in


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory) -> Path:
    """A finished run on iris with its report."""
    return run_in(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def recipe_folder(tmp_path_factory) -> Path:
    """A finished run on iris by the automatic recipe, with its report."""
    return run_in(tmp_path_factory.mktemp("recipe"), "--recipe auto")


@pytest.fixture(scope="session")
def own_folder(tmp_path_factory) -> Path:
    """A finished run on a user's own table, with its report."""
    return own_run_in(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="session")
def comparison_folder(tmp_path_factory) -> Path:
    """A comparison of five methods in both forms."""
    return comparison_in(tmp_path_factory.mktemp("comparison"))


@pytest.fixture(scope="module")
def twin(folder) -> dict:
    """What the report of a module's folder says to machines."""
    return json.loads((folder / "report.json").read_text())


@pytest.fixture(scope="module")
def html(folder) -> str:
    """The page of a module's folder."""
    return (folder / "report.html").read_text()
