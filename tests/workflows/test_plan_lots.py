"""Samplings and noises compared for a task."""

import pytest

from tacit.accounting import Gaussian, curve
from tacit.errors import InvalidArgument
from tacit.workflows.plan import plan_samplings

TASK = {"population": 400, "epsilon": 8, "delta": 1e-4, "lot_size": 100, "steps": 12}


@pytest.fixture(scope="module")
def found():
    return plan_samplings(**TASK)


@pytest.mark.slow
def test_every_sampling_is_listed_with_poisson_first(found):
    assert [row.sampling for row in found.rows] == [
        *("Poisson", "RandomAllocation", "TruncatedPoisson", *["CyclicPoisson"] * 4, "FixedLots", "Shuffled")
    ]
    assert [row.noise for row in found.rows[3:7]] == ["banded", "buffered", "inverse", "tree"]
    assert found.rows[0].prefix_error == 1


@pytest.mark.slow
def test_every_multiplier_keeps_the_budget(found):
    poisson = Gaussian(found.rows[0].multiplier).sampled(0.25) * 12
    assert 7.99 < curve(poisson).epsilon(1e-4) <= 8
    banded = next(row for row in found.rows if row.noise == "banded")
    cycles = Gaussian(banded.multiplier).sampled(0.25 * found.bands.bands) * -(-12 // found.bands.bands)
    assert 7.99 < curve(cycles).epsilon(1e-4) <= 8


@pytest.mark.slow
def test_the_answer_comes_first_and_lines_fit_a_terminal(found):
    lines = str(found).splitlines()
    assert lines[0] == found.answer
    assert "banded" in found.answer
    assert max(map(len, lines)) <= 80


@pytest.mark.slow
def test_banded_noise_keeps_its_past_in_memory(found):
    assert [row.memory for row in found.rows if row.noise == "banded"] == [found.bands.bands - 1]


@pytest.mark.slow
def test_the_same_for_machines(found):
    assert found.to_json()["answer"] == found.answer
    assert len(found.to_json()["plans"]) == 9


@pytest.mark.parametrize("missing", ["lot_size", "steps"])
def test_lots_and_steps_go_together(missing):
    with pytest.raises(InvalidArgument, match="Give both"):
        plan_samplings(**{**TASK, missing: None})
