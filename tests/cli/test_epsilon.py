"""`tacit epsilon`: what it says, against numbers from elsewhere."""

import json
import math

import pytest
from scipy.stats import norm

from tacit.accounting import EpsilonDelta, Gaussian, Laplace, Unproven, curve, from_json

# Bu et al.'s second MNIST row. The certified value is dp-accounting's upper bound (2.38160); those of the central
# limit theorem and of the moments accountant stand in the paper's table.
MNIST = "epsilon --multiplier 1.1 --lot-size 256 --population 60000 --steps 14062 --delta 1e-5"
PLAIN = "epsilon --multiplier 1 --rate 1 --steps 1 --delta 1e-5"


@pytest.fixture
def event_file(tmp_path):
    """A function that writes an event and returns the command line that reads it."""

    def write(event) -> str:
        path = tmp_path / "event.json"
        path.write_text(event.to_json(), encoding="utf-8")
        return f"epsilon --delta 1e-5 --event '{path}'"

    return write


@pytest.mark.slow
def test_the_first_line_is_the_certified_statement(run_cli):
    run = run_cli(MNIST)
    assert run.code == 0
    assert run.err == ""
    first = run.out.splitlines()[0]
    assert first == "epsilon 2.3816 at delta 1e-05 (add/remove one example, PLD, 14,062 steps)"


@pytest.mark.slow
def test_every_other_number_stands_beside_it_with_its_meaning(run_cli):
    out = run_cli(MNIST).out
    assert "the true epsilon lies in [2.38159" in out
    for accountant, number, meaning in [
        ("central limit theorem", "2.3243", "asymptotic, no guarantee: under-reports by 2.4 %"),
        ("RDP", "2.59", "an upper bound, 9.0 % above"),
        ("moments accountant", "3.008", "an upper bound, 26 % above"),
    ]:
        line = next(line for line in out.splitlines() if line.strip().startswith(accountant))
        assert number in line
        assert meaning in line


@pytest.mark.slow
def test_the_attacker_is_described_in_words(run_cli):
    assert "With 1 % false alarms an attacker finds at most 4.03 % of members." in run_cli(MNIST).out


@pytest.mark.slow
def test_a_gaussian_release_has_the_attacker_of_the_closed_form(run_cli):
    attacker = json.loads(run_cli(f"{PLAIN} --json").out)["attacker"]
    for rate in (0.01, 0.001):
        assert attacker[f"fpr_{rate}"] == pytest.approx(norm.sf(norm.isf(rate) - 1), rel=1e-3)
        assert attacker[f"fpr_{rate}"] >= norm.sf(norm.isf(rate) - 1)
    assert attacker["advantage"] == pytest.approx(2 * norm.cdf(0.5) - 1, rel=1e-9)


@pytest.mark.slow
def test_json_has_the_same_numbers_under_stable_names(run_cli):
    found = json.loads(run_cli(f"{MNIST} --json").out)
    assert list(found) == [
        *("tacit", "event", "adjacency", "group", "steps", "accountant", "is_guarantee", "delta", "epsilon"),
        *("certified", "clt", "moments", "rdp", "refused", "attacker", "mu", "mu_regret"),
    ]
    assert found["epsilon"]["lower"] <= found["epsilon"]["estimate"] <= found["epsilon"]["upper"]
    assert found["epsilon"]["upper"] == pytest.approx(2.38160, abs=5e-6)
    assert found["clt"]["mu"] == pytest.approx(0.5736, abs=5e-5)
    assert found["clt"]["epsilon"] == pytest.approx(2.3243, abs=5e-5)
    assert found["clt"]["side"] == "under"
    assert found["moments"] == pytest.approx(3.008, abs=5e-4)
    assert found["attacker"]["fpr_0.01"] == pytest.approx(0.0402, abs=5e-5)


@pytest.mark.slow
def test_the_event_in_the_json_is_the_run_that_was_asked_about(run_cli):
    found = json.loads(run_cli(f"{MNIST} --json").out)
    event = from_json(json.dumps(found["event"]))
    assert event == Gaussian(1.1).sampled(256 / 60_000) * 14_062


@pytest.mark.slow
def test_the_event_of_one_answer_is_the_question_of_the_next(run_cli, tmp_path):
    first = json.loads(run_cli(f"{MNIST} --json").out)
    path = tmp_path / "event.json"
    path.write_text(json.dumps(first["event"]), encoding="utf-8")
    assert json.loads(run_cli(f"epsilon --event '{path}' --delta 1e-5 --json").out) == first


@pytest.mark.slow
def test_the_central_limit_theorem_is_never_called_a_guarantee(run_cli):
    out = run_cli(f"{MNIST} --by clt").out
    assert out.startswith("NOT A GUARANTEE: epsilon about 2.3243 at delta 1e-05")
    assert "This is not a guarantee" in out
    assert "Certified: the true epsilon lies in [2.38159" in out
    found = json.loads(run_cli(f"{MNIST} --by clt --json").out)
    assert found["is_guarantee"] is False
    assert found["epsilon"] == {"lower": None, "estimate": found["clt"]["epsilon"], "upper": None}


@pytest.mark.slow
@pytest.mark.parametrize(("by", "words"), [("rdp", "RDP"), ("moments", "moments accountant")])
def test_accountants_from_above_show_their_own_number_and_the_certified_interval(run_cli, by, words):
    run = run_cli(f"{MNIST} --by {by}")
    number = run.out.split()[1]
    assert float(number) >= curve(Gaussian(1.1).sampled(256 / 60_000) * 14_062, by).epsilon(1e-5)
    assert f"({'add/remove one example'}, {words}, 14,062 steps)" in run.out.splitlines()[0]
    assert f"The {words} bounds epsilon from above only." in run.out
    assert "lies in [2.38159" in run.out


@pytest.mark.slow
def test_a_group_is_named_and_costs_as_in_the_closed_form(run_cli):
    run = run_cli(f"{PLAIN} --group 2")
    assert run.out.startswith("epsilon 9.9973 at delta 1e-05 (add/remove 2 examples, PLD, 1 step)")
    assert "any 2 examples together" in run.out


@pytest.mark.slow
def test_replacing_is_said_and_explained(run_cli):
    out = run_cli("epsilon --multiplier 5 --rate 0.1 --steps 1 --delta 1e-5 --adjacency replace_one").out
    assert "(replace one example, PLD, 1 step)" in out
    assert "twice the clip norm" in out
    assert "as if it were known which lots held the replaced example" in out


@pytest.mark.slow
def test_a_delta_that_protects_nobody_is_remarked_on(run_cli):
    loose = "epsilon --multiplier 5 --lot-size 100 --population 100 --steps 10 --delta"
    assert "not below 1/100" in run_cli(f"{loose} 0.01").out
    assert "not below" not in run_cli(f"{loose} 0.001").out


@pytest.mark.slow
def test_an_event_file_may_hold_any_event(run_cli, event_file):
    run = run_cli(event_file(Laplace(2.0).sampled(0.01) * 100 + Gaussian(10.0)))
    assert run.code == 0
    assert "101 steps" in run.out.splitlines()[0]


@pytest.mark.slow
def test_what_an_accountant_refuses_is_null_with_a_reason(run_cli, event_file):
    found = json.loads(run_cli(event_file(EpsilonDelta(0.1, 1e-7)) + " --json").out)
    assert found["rdp"] is None
    assert found["moments"] is None
    assert found["clt"] == {"mu": None, "epsilon": None, "side": None}
    assert set(found["refused"]) == {"clt", "rdp", "moments"}
    assert found["epsilon"]["upper"] == pytest.approx(0.1, rel=1e-3)


@pytest.mark.slow
def test_infinity_is_valid_json_and_a_plain_sentence(run_cli, event_file):
    line = event_file(EpsilonDelta(0.1, 1e-3))
    found = json.loads(run_cli(f"{line} --json").out, parse_constant=pytest.fail)
    assert found["epsilon"]["upper"] == "inf"
    assert math.isinf(float(found["mu"]))
    out = run_cli(line).out
    assert out.startswith("no finite epsilon is certified at delta 1e-05")
    assert "no finite epsilon holds" in out


def test_no_steps_cost_nothing(run_cli, event_file):
    out = run_cli(event_file(Gaussian(1.0) * 0)).out
    assert out.startswith("epsilon 0 at delta 1e-05 (add/remove one example, PLD, 0 steps)")
    assert "finds at most 1 % of members" in out


def test_an_unproven_event_is_refused(run_cli, event_file):
    run = run_cli(event_file(Unproven("(1, 0)-DP", "the proof has a gap") + Gaussian(1.0)))
    assert run.code == 2
    assert "the proof has a gap" in run.err


def test_an_unknown_accountant_is_refused_with_the_names_of_all(run_cli):
    run = run_cli(f"{MNIST} --by guess")
    assert run.code == 2
    assert "'clt', 'moments', 'pld', 'rdp'. Got 'guess'" in run.err
