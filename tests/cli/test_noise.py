"""`tacit noise`: what a budget allows, against closed forms and against `tacit epsilon`."""

import json

import pytest

MNIST = "noise --epsilon 3 --delta 1e-5 --lot-size 256 --population 60000 --steps 14062"
# The largest mu of (epsilon, 1e-5)-DP; without sampling, mu is sqrt(steps) / multiplier.
MU_OF_ONE = 0.26805112
MU_OF_FIVE = 1.1212418


def found_by(run_cli, line):
    run = run_cli(f"{line} --json")
    assert run.code == 0, run.err
    return json.loads(run.out)


def cost(run_cli, line, *, by="pld"):
    return found_by(run_cli, f"epsilon {line} --delta 1e-5 --by {by}")["epsilon"]["upper"]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 100])
def test_without_sampling_the_multiplier_is_the_closed_form(run_cli, steps):
    found = found_by(run_cli, f"noise --epsilon 1 --delta 1e-5 --rate 1 --steps {steps}")
    exact = steps**0.5 / MU_OF_ONE
    assert exact * (1 - 1e-7) <= found["multiplier"] <= exact * (1 + 2e-5)


@pytest.mark.slow
def test_the_multiplier_shown_is_within_budget_and_hardly_less_is_not(run_cli):
    shown = run_cli(MNIST).out.split()[3]
    rest = "--lot-size 256 --population 60000 --steps 14062"
    assert cost(run_cli, f"--multiplier {shown} {rest}") <= 3
    assert cost(run_cli, f"--multiplier {float(shown) * 0.9999} {rest}") > 3


@pytest.mark.slow
def test_the_answer_comes_with_its_cost_the_alternatives_and_the_attacker(run_cli):
    out = run_cli(MNIST).out
    assert out.startswith("multiplier at least 0.968")
    assert "(add/remove one example, PLD)" in out.splitlines()[0]
    assert "Certified: the true epsilon lies in [2.99" in out
    assert "asymptotic, no guarantee: the certified epsilon is 3.10" in out
    assert "% more noise" in out
    assert "With 1 % false alarms an attacker finds at most" in out


@pytest.mark.slow
def test_without_steps_it_finds_the_most_of_them(run_cli):
    found = found_by(run_cli, "noise --epsilon 5 --delta 1e-5 --rate 1 --multiplier 10")
    assert found["found"] == "steps"
    assert found["steps"] == int((10 * MU_OF_FIVE) ** 2)


@pytest.mark.slow
def test_without_a_lot_size_it_finds_the_largest(run_cli):
    run = "--multiplier 1.1 --population 60000 --steps 14062"
    found = found_by(run_cli, f"noise --epsilon 3 --delta 1e-5 {run}")
    largest = found["lot_size"]
    assert cost(run_cli, f"{run} --lot-size {largest}") <= 3 < cost(run_cli, f"{run} --lot-size {largest + 1}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--rate 1 --multiplier 20", "at most "),
        ("--population 100 --multiplier 2 --steps 30", "lots of at most "),
    ],
)
def test_steps_and_lots_are_answered_in_words(run_cli, line, words):
    out = run_cli(f"noise --epsilon 3 --delta 1e-5 {line}").out
    assert out.startswith(words)
    assert "to stay within epsilon 3 at delta 1e-05" in out.splitlines()[0]
    assert "that other accountants would allow" in out


@pytest.mark.slow
def test_a_looser_accountant_asks_for_more_noise_and_keeps_the_budget(run_cli):
    by_rdp = found_by(run_cli, f"{MNIST} --by rdp")
    assert by_rdp["keeps_budget"] is True
    assert by_rdp["multiplier"] > by_rdp["others"]["pld"]["value"]
    assert by_rdp["epsilon"]["upper"] <= 3


def test_the_central_limit_theorem_must_be_allowed(run_cli):
    run = run_cli(f"{MNIST} --by clt")
    assert run.code == 2
    assert run.out == ""
    assert "--allow-asymptotic" in run.err


@pytest.mark.slow
def test_an_allowed_central_limit_theorem_is_shown_to_exceed_the_budget(run_cli):
    out = run_cli(f"{MNIST} --by clt --allow-asymptotic").out
    assert out.startswith("NOT A GUARANTEE: ")
    assert "So it exceeds the budget by" in out


@pytest.mark.slow
def test_machines_are_told_that_an_allowed_central_limit_theorem_exceeds_the_budget(run_cli):
    found = found_by(run_cli, f"{MNIST} --by clt --allow-asymptotic")
    assert found["keeps_budget"] is False
    assert found["is_guarantee"] is False
    assert found["certified"]["lower"] > 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--multiplier 1 --rate 0.1 --steps 10", "Nothing is left to find"),
        ("--multiplier 1 --population 100 --epochs 3", "Give --steps and --population"),
        ("--multiplier 1 --steps 100", "Give --steps and --population"),
        ("--rate 0.1", "Neither of --steps and --epochs"),
        ("--steps 10", "The sampling rate is not known"),
        ("", "The sampling rate is not known"),
    ],
)
def test_one_number_must_be_left_to_find(run_cli, line, words):
    run = run_cli(f"noise --epsilon 1 --delta 1e-5 {line}")
    assert run.code == 2
    assert words in run.err


def test_a_budget_that_nothing_meets_is_an_error_that_says_what_would(run_cli):
    run = run_cli("noise --epsilon 0.001 --delta 1e-9 --multiplier 1 --rate 0.5")
    assert run.code == 2
    assert "Not even one step fits" in run.err
    assert "Raise the multiplier" in run.err
