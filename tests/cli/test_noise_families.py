"""`tacit noise --families`: the table, the numbers for machines, the picture, and what is refused."""

import json

import pytest

LINE = "noise --families --epsilon 1 --delta 1e-5 --dimension 1"


@pytest.fixture(scope="module")
def printed():
    return {}


@pytest.mark.slow
def test_the_table_names_every_law_and_sorts_by_error(run_cli):
    out = run_cli(LINE).out
    assert out.startswith("Error of a release of 1 number within epsilon 1 at delta 1e-05 (add/remove one example, PLD")
    rows = [line.strip() for line in out.splitlines()[2:8]]
    assert [row.split()[0] for row in rows] == ["Laplace", "sech", "variance-gamma", "Student-t,", "Gaussian", "Cauchy"]
    assert "infinite" in rows[-1]
    assert "Least L1 error: Laplace, 66 % below Gaussian noise." in out


@pytest.mark.slow
def test_machines_get_numbers_and_units(run_cli):
    found = json.loads(run_cli(f"{LINE} --json").out)
    assert found["dimension"] == 1
    assert found["budget"] == {"epsilon": 1, "delta": 1e-5}
    laplace = found["families"][0]
    assert laplace["name"] == "laplace"
    assert laplace["l1"] == pytest.approx(1.0, abs=1e-3)
    assert found["families"][-1]["l1"] == "inf"
    assert all(one["certified"]["upper"] <= 1 for one in found["families"])


@pytest.mark.slow
def test_a_sampled_run_and_another_encoding(run_cli):
    line = "noise --families --epsilon 1 --delta 1e-5 --dimension 12 --encoding flat --rate 0.05 --steps 20 --json"
    found = json.loads(run_cli(line).out)
    assert (found["rate"], found["steps"], found["encoding"]) == (0.05, 20, "flat")


@pytest.mark.slow
def test_the_picture_is_drawn(run_cli, tmp_path):
    assert run_cli(f"{LINE} --json --plot {tmp_path / 'families.svg'}").code == 0
    text = (tmp_path / "families.svg").read_text(encoding="utf-8")
    assert text.startswith("<?xml")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("noise --families --epsilon 1 --delta 1e-5", "Give --dimension"),
        (f"{LINE} --multiplier 2", "Leave out --multiplier"),
        (f"{LINE} --by rdp", "Leave out --multiplier"),
        (f"{LINE} --adjacency replace_one", "Leave out --multiplier"),
        (f"{LINE} --lot-size 10", "sampling rate"),
        ("noise --epsilon 1 --delta 1e-5 --rate 1 --steps 1 --dimension 3", "needs --families"),
        ("noise --epsilon 1 --delta 1e-5 --rate 1 --steps 1 --encoding flat", "needs --families"),
        ("noise --families --epsilon 1 --delta 1e-5 --dimension 0", "dimension must be"),
        ("noise --families --epsilon 1 --delta 1e-5 --dimension 7e9", "at most 1,000,000. Got 7,000,000,000."),
    ],
)
def test_what_means_nothing_is_refused(run_cli, line, words):
    run = run_cli(line)
    assert run.code == 2
    assert words in run.err
