"""`tacit train --ledger`: charged before anything is released, through stops, moves and budgets that run out."""

import gc
import json
from pathlib import Path

import pytest

from tacit.accounting import Gaussian, curve
from tacit.budget import Budget
from tacit.ledger import Ledger
from tacit.training.run import PrivateRun

LINE = "train iris --multiplier 8 --delta 1e-5 --lot-size 119 --steps 6 --ledger iris.ledger"
STEP = Gaussian(8.0).sampled(1.0)

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")


@pytest.fixture
def stopped_at(monkeypatch):
    """A function that ends the process, as far as the run can tell, in the middle of one step."""

    def stop(step: int) -> None:
        backward = PrivateRun.backward

        def stopping(self, lot):
            if lot.step == step:
                monkeypatch.setattr(PrivateRun, "backward", backward)
                raise KeyboardInterrupt
            backward(self, lot)

        monkeypatch.setattr(PrivateRun, "backward", stopping)

    return stop


def charges():
    return Ledger("iris.ledger").account("iris").charges


def refusal(run) -> str:
    assert (run.code, run.out) == (2, "")
    assert run.err.count("\n") == 1
    return run.err


@pytest.mark.slow
def test_a_run_is_charged_and_the_ledger_says_where_the_data_set_stands(run_cli):
    said = run_cli(f"{LINE} --out first").out
    [charge] = charges()
    assert charge.is_settled
    assert charge.event == STEP * 6
    assert charge.about["method"] == "dpsgd"
    assert f"charged as run {charge.run}. iris has now spent epsilon" in said
    assert run_cli(f"{LINE} --out second").code == 0
    assert len(charges()) == 2


@pytest.mark.slow
def test_a_run_over_the_budget_is_refused_and_leaves_no_folder(run_cli, tmp_path):
    Ledger("iris.ledger").set_budget("iris", Budget(curve(STEP * 9).epsilon(1e-5), 1e-5))
    assert run_cli(f"{LINE} --out first").code == 0
    message = refusal(run_cli(f"{LINE} --out second"))
    assert "Raise the multiplier to" in message
    assert "stop after 3 of 6 steps" in message
    assert not (tmp_path / "second").exists()
    assert len(charges()) == 1


@pytest.mark.slow
def test_a_run_that_was_cut_off_and_resumed_pays_for_what_it_drew_again(run_cli, stopped_at):
    stopped_at(4)
    assert run_cli(f"{LINE} --out first").code == 130
    [charge] = charges()
    assert (charge.is_settled, charge.event) == (False, STEP * 6)
    assert run_cli("train --resume first").code == 0
    [charge] = charges()
    # The run's own budget is what six steps cost, so the four that were lost are four fewer.
    assert (charge.is_settled, charge.event) == (True, STEP * 6)
    assert json.loads(Path("first/metrics.json").read_text())["steps"] == 2


@pytest.mark.slow
def test_a_seeded_run_that_was_cut_off_is_charged_once_and_marked(run_cli, stopped_at):
    stopped_at(4)
    run_cli(f"{LINE} --seed 1 --out first")
    run_cli("train --resume first")
    [charge] = charges()
    assert charge.event == STEP * 6
    assert "NOT FOR RELEASE" in run_cli("ledger show iris.ledger").out


@pytest.mark.slow
def test_a_stop_says_how_to_give_the_rest_back(run_cli, interrupted_at):
    interrupted_at(2)
    stopped = run_cli(f"{LINE} --out first")
    assert stopped.code == 130
    command = stopped.err.partition("to give it back: tacit ")[2].partition(". Resume with")[0]
    assert run_cli(command).code == 0
    [charge] = charges()
    assert (charge.is_settled, charge.event) == (True, STEP * 3)


@pytest.mark.slow
def test_a_ledger_that_moved_is_pointed_to(run_cli, tmp_path, stopped_at):
    stopped_at(3)
    run_cli(f"{LINE} --out first")
    gc.collect()
    (tmp_path / "iris.ledger").rename(tmp_path / "moved.ledger")
    assert "does not exist any more" in refusal(run_cli("train --resume first"))
    assert run_cli("train --resume first --ledger moved.ledger").code == 0


@pytest.mark.slow
def test_the_ledgers_path_is_not_given_away(run_cli, tmp_path):
    run_cli(f"{LINE} --out first")
    for name in ("metrics.json", "guarantee.json"):
        assert "iris.ledger" not in (tmp_path / "first" / name).read_text()


def test_a_file_that_is_no_ledger_is_refused_before_training(run_cli, tmp_path):
    (tmp_path / "iris.ledger").write_text("my notes")
    assert "iris.ledger is not a ledger" in refusal(run_cli(f"{LINE} --out first"))
    assert (tmp_path / "iris.ledger").read_text() == "my notes"
    assert not (tmp_path / "first").exists()
