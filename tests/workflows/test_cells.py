"""One method at one epsilon, over several seeds: what is trained, kept and refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from support.report_folders import comparison_of
from tacit.methods.registry import list_methods
from tacit.workflows.cells import Job, run_job
from tacit.workflows.linear import normalise_rows


@pytest.mark.slow
def test_the_seeds_repeat_a_cell(tmp_path):
    data, comparison = comparison_of(methods=("dpsgd",))
    for name in ("one", "two"):
        run_job(Job("dpsgd", "rigorous", 1.0, (0, 1)), data, comparison.options, tmp_path / name)
    one, two = (
        [json.loads((tmp_path / name / f"cells/dpsgd-1-seed{seed}.json").read_text()) for seed in (0, 1)]
        for name in ("one", "two")
    )
    assert [cell["score"] for cell in one] == [cell["score"] for cell in two]
    assert one[0]["multiplier"] == one[1]["multiplier"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpsgd", *(one.name for one in list_methods() if one.kind == "linear")])
def test_no_cell_costs_more_than_was_asked_for(method, tmp_path):
    data, comparison = comparison_of(methods=(method,))
    run_job(Job(method, "rigorous", 2.0, (0,)), data, comparison.options, tmp_path)
    cell = json.loads((tmp_path / f"cells/{method}-2-seed0.json").read_text())
    assert 1.8 < cell["guarantee"]["proven"]["epsilon_upper"] <= 2 * (1 + 1e-6)


def test_a_refusal_is_a_result(tmp_path):
    data, comparison = comparison_of()
    run_job(Job("dpsgd", "rigorous", 1.0, (0,)), data, replace(comparison.options, model="none.py:make"), tmp_path)
    refused = json.loads((tmp_path / "cells/dpsgd-1-seed0.json").read_text())["refused"]
    assert refused.startswith("--model")
    assert "there is no file" in refused


def test_rows_are_scaled_each_by_itself():
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [1e-3, 0.0]])
    assert normalise_rows(rows).tolist() == [[0.6, 0.8], [0.0, 0.0], [1.0, 0.0]]
    assert np.array_equal(normalise_rows(rows[:1]), normalise_rows(rows)[:1])


def test_epsilons_that_differ_in_their_last_digits_have_files_of_their_own():
    near = (1.0, 1.0000001, 0.5, 1e-7)
    assert [Job("dpsgd", "rigorous", epsilon, (0,)).file(0) for epsilon in near] == [
        "dpsgd-1-seed0.json",
        "dpsgd-1.0000001-seed0.json",
        "dpsgd-0.5-seed0.json",
        "dpsgd-1e-07-seed0.json",
    ]
