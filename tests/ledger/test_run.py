"""PrivateRun and the ledger: the charge is what the run's own guarantee says, through crashes, branches and budgets."""

import shutil
from dataclasses import dataclass

import pytest
import torch
from torch.nn.functional import cross_entropy

import tacit
from tacit import methods
from tacit.accounting import Gaussian, curve
from tacit.budget import Budget
from tacit.errors import BadLedger, BudgetExceeded, CannotResume, InvalidArgument, OutOfOrder
from tacit.ledger import Ledger
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import GaussianNoise

N, STEPS = 100, 12
DATA = (torch.randn(N, 3, generator=torch.Generator().manual_seed(0)), torch.arange(N) % 2)
STEP = Gaussian(2.0)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "adult.ledger")


def begun(ledger, **changes):
    settings = {
        "data": DATA,
        "mechanism": methods.dpsgd(clip_norm=1.0, multiplier=2.0),
        "sampling": tacit.FullBatch(N),
        "steps": STEPS,
        "ledger": ledger,
        "dataset": "adult",
    }
    return tacit.PrivateRun(torch.nn.Linear(3, 2), cross_entropy, **settings | changes)


def resumed(folder, **changes):
    return tacit.PrivateRun.resume(folder, torch.nn.Linear(3, 2), cross_entropy, **{"data": DATA} | changes)


def go(run, steps=STEPS):
    for lot in run:
        if run.step >= steps:
            break
        run.release(lot)
    return run


def charge(ledger):
    [one] = ledger.account("adult").charges
    return one


def epsilon(event):
    return pytest.approx(curve(event).epsilon(1e-5), rel=1e-9)


def spent(ledger):
    return ledger.account("adult").epsilon(1e-5)


def test_a_finished_run_is_charged_what_its_guarantee_says(ledger):
    run = begun(ledger)
    assert ledger.entries() == ()
    go(run)
    assert charge(ledger).is_settled
    assert charge(ledger).event == run.guarantee().event == STEP * STEPS


def test_sampled_lots_are_charged_as_such(ledger):
    run = go(begun(ledger, sampling=tacit.Poisson(lot_size=10, population=N)))
    assert charge(ledger).event == run.guarantee().event == STEP.sampled(0.1) * STEPS
    assert charge(ledger).about["lot_size"] == 10


def test_the_whole_run_is_reserved_before_the_first_release(ledger, monkeypatch):
    seen = []
    release = Mechanism.release_mean

    def noted(*args, **named):
        seen.append(ledger.account("adult").total)
        return release(*args, **named)

    monkeypatch.setattr(Mechanism, "release_mean", noted)
    go(begun(ledger), 1)
    assert seen == [STEP * STEPS]


def test_a_run_that_stops_early_is_charged_for_what_it_released(ledger):
    run = go(begun(ledger), 5)
    assert not charge(ledger).is_settled
    run.settle()
    assert charge(ledger).is_settled
    assert charge(ledger).event == run.guarantee().event == STEP * 5


def test_a_run_over_the_budget_is_refused_when_it_is_made(ledger):
    ledger.set_budget("adult", Budget(curve(STEP * 20).epsilon(1e-5), 1e-5))
    go(begun(ledger))
    with pytest.raises(BudgetExceeded, match="stop after 8 of 12 steps"):
        begun(ledger)
    assert charge(ledger).event == STEP * STEPS


def test_a_run_that_another_one_was_faster_than_releases_nothing(ledger, monkeypatch):
    ledger.set_budget("adult", Budget(curve(STEP * 20).epsilon(1e-5), 1e-5))
    slow, fast = begun(ledger), begun(ledger)
    go(fast, 1)
    monkeypatch.setattr(Mechanism, "release_mean", lambda *_, **__: pytest.fail("released"))
    with pytest.raises(BudgetExceeded, match="stop after 8 of 12"):
        go(slow)
    assert slow.step == 0


@pytest.mark.parametrize("reached", [5, 8, STEPS])
def test_a_crashed_run_pays_for_what_it_draws_again(ledger, tmp_path, reached):
    first = go(begun(ledger), 5)
    first.save(tmp_path / "run")
    go(first, reached)
    second = go(resumed(tmp_path / "run"))
    assert charge(ledger).is_settled
    assert charge(ledger).event == STEP * (STEPS + reached - 5)
    assert second.guarantee().epsilon(1e-5) == epsilon(charge(ledger).event)


@pytest.mark.parametrize("reached", [5, 8, STEPS])
def test_a_seeded_run_that_crashed_is_charged_once_and_marked(ledger, tmp_path, reached):
    first = go(begun(ledger, seed=1), 5)
    first.save(tmp_path / "run")
    go(first, reached)
    go(resumed(tmp_path / "run"))
    assert charge(ledger).event == STEP * STEPS
    assert charge(ledger).about["violations"] == ["fixed_seed"]


def test_a_crash_in_the_middle_keeps_the_runs_own_budget(ledger, tmp_path):
    budget = Budget(2, 1e-5)
    first = begun(ledger, mechanism=methods.dpsgd(1.0), budget=budget)
    first.save(tmp_path / "run")
    go(first, 3)
    second = resumed(tmp_path / "run")
    assert second.steps == STEPS - 3
    go(second)
    assert spent(ledger) <= 2
    assert second.guarantee().epsilon(1e-5) == pytest.approx(spent(ledger))


def test_a_crashed_run_is_cut_to_what_the_data_set_has_left(ledger, tmp_path):
    ledger.set_budget("adult", Budget(curve(STEP * STEPS).epsilon(1e-5), 1e-5))
    first = begun(ledger)
    first.save(tmp_path / "run")
    go(first, 4)
    second = go(resumed(tmp_path / "run"))
    assert second.step == second.steps == STEPS - 4
    assert charge(ledger).event == STEP * STEPS
    third = resumed(tmp_path / "run")
    assert third.steps == 0


def test_nothing_is_charged_twice_where_nothing_left(ledger, tmp_path):
    first = go(begun(ledger), 5)
    first.save(tmp_path / "run")
    go(first, 8)
    second = go(resumed(tmp_path / "run", nothing_left=True))
    assert charge(ledger).event == second.guarantee().event == STEP * STEPS
    [assumed] = [one for one in second.guarantee().assumptions if one.key == "lost_steps_not_charged"]
    assert assumed.text.startswith("3 ")


def test_a_copy_of_the_folder_and_the_original_pay_each_for_their_own_steps(ledger, tmp_path):
    first = go(begun(ledger), 5)
    first.save(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    go(first)
    go(resumed(tmp_path / "copy"))
    assert charge(ledger).event == STEP * (STEPS + 7)


def test_an_older_save_put_back_pays_for_what_came_after_it(ledger, tmp_path):
    first = go(begun(ledger), 5)
    first.save(tmp_path / "run")
    old = (tmp_path / "run/run.safetensors").read_bytes()
    go(first, 9)
    first.save(tmp_path / "run")
    go(first, 10)
    (tmp_path / "run/run.safetensors").write_bytes(old)
    go(resumed(tmp_path / "run"))
    assert charge(ledger).event == STEP * (STEPS + 5)


def test_without_a_ledger_an_older_save_put_back_pays_as_much(tmp_path):
    first = go(begun(None, dataset=None), 5)
    first.save(tmp_path)
    old = (tmp_path / "run.safetensors").read_bytes()
    go(first, 9)
    first.save(tmp_path)
    go(first, 10)
    (tmp_path / "run.safetensors").write_bytes(old)
    assert go(resumed(tmp_path)).guarantee().epsilon(1e-5) == epsilon(STEP * (STEPS + 5))


def test_an_overtaken_run_neither_releases_nor_saves(ledger, tmp_path):
    first = go(begun(ledger), 5)
    first.save(tmp_path / "run")
    second = resumed(tmp_path / "run")
    with pytest.raises(OutOfOrder, match="continues in another process"):
        go(first, 6)
    with pytest.raises(OutOfOrder, match="continues in another process"):
        first.save(tmp_path / "run")
    go(second)
    assert charge(ledger).event == STEP * STEPS


def test_a_run_that_joins_a_ledger_late_brings_what_it_released(ledger, tmp_path):
    first = go(begun(None, dataset=None), 5)
    first.save(tmp_path / "run")
    go(first, 7)
    go(resumed(tmp_path / "run", ledger=ledger, dataset="adult"))
    assert charge(ledger).event == STEP * (STEPS + 2)


def test_a_ledger_that_moved_is_pointed_to(ledger, tmp_path):
    first = go(begun(ledger), 5)
    first.save(tmp_path / "run")
    del first
    moved = ledger.path.rename(tmp_path / "moved.ledger")
    with pytest.raises(CannotResume, match="does not exist any more"):
        resumed(tmp_path / "run")
    with pytest.raises(CannotResume, match="charged to the ledger that was at"):
        resumed(tmp_path / "run", ledger=Ledger(tmp_path / "new.ledger"))
    go(resumed(tmp_path / "run", ledger=Ledger(moved)))
    assert charge(Ledger(moved)).event == STEP * STEPS


def test_a_ledger_that_was_moved_without_its_log_is_helped_out_by_the_runs_journal(ledger, tmp_path):
    first = go(begun(ledger), 3)
    first.save(tmp_path / "run")
    go(first, 7)
    moved = tmp_path / "moved.ledger"
    moved.write_bytes(ledger.path.read_bytes())
    assert (tmp_path / "adult.ledger-wal").stat().st_size
    go(resumed(tmp_path / "run", ledger=Ledger(moved)))
    assert charge(Ledger(moved)).event == STEP * (STEPS + 4)


def test_a_ledger_from_before_the_run_is_refused(ledger, tmp_path):
    copy = ledger.path.read_bytes()
    first = go(begun(ledger), 5)
    first.save(tmp_path / "run")
    del first
    for path in tmp_path.glob("adult.ledger*"):
        path.unlink()
    ledger.path.write_bytes(copy)
    with pytest.raises(BadLedger, match="has no entry 2"):
        resumed(tmp_path / "run")


def test_shuffled_epochs_are_charged_by_the_epoch(ledger, tmp_path):
    settings = {"sampling": tacit.Shuffled(lot_size=20, population=N)}
    first = go(begun(ledger, **settings), 3)
    first.save(tmp_path / "run")
    second = go(resumed(tmp_path / "run"))
    assert second.guarantee().epsilon(1e-5) == pytest.approx(spent(ledger))
    assert ledger.account("adult").total == charge(ledger).event


@pytest.mark.slow
def test_a_schedule_is_charged_step_by_step(ledger, tmp_path):
    schedule = tacit.Schedule(multiplier=lambda step: 1.0 if step < 6 else 2.0)
    first = go(begun(ledger, schedule=schedule), 4)
    first.save(tmp_path / "run")
    go(first, 8)
    second = go(resumed(tmp_path / "run"))
    assert second.guarantee().epsilon(1e-5) == pytest.approx(spent(ledger))
    assert spent(ledger) == epsilon(STEP * 8 + Gaussian(4.0) * 8)


@pytest.mark.slow
def test_the_same_examples_have_one_name(ledger):
    go(begun(ledger))
    with pytest.raises(InvalidArgument, match="in the ledger as 'adult'"):
        begun(ledger, dataset="fresh")
    go(begun(ledger, dataset=None))
    assert len(ledger.account("adult").charges) == 2


def test_a_data_set_that_is_fetched_has_the_name_that_it_is_given(ledger):
    pairs = list(zip(*DATA, strict=True))
    go(begun(ledger, data=pairs))
    with pytest.raises(InvalidArgument, match="does not know these examples"):
        begun(ledger, data=pairs, dataset=None)


def test_arrays_of_odd_types_have_fingerprints(ledger):
    from tacit.training.charging import fingerprint_examples
    from tacit.training.lots import TensorExamples

    inputs, targets = DATA
    found = {fingerprint_examples(TensorExamples(inputs.to(kind), targets)) for kind in (torch.float32, torch.bfloat16)}
    found.add(fingerprint_examples(TensorExamples(inputs.requires_grad_(False), {"y": targets, "z": targets})))
    assert len(found) == 3
    assert ledger.entries() == ()


def test_a_name_without_a_ledger_is_refused():
    with pytest.raises(InvalidArgument, match="no ledger was given"):
        begun(None)
    with pytest.raises(InvalidArgument, match="ledger must be one such as"):
        begun("adult.ledger")


@dataclass(frozen=True)
class Liar:
    """Noise that reserves one thing and emits another."""

    inside: GaussianNoise
    calls: list

    @property
    def multiplier(self):
        return self.inside.multiplier

    def add(self, bounded, rng):
        self.calls.append("add")
        return self.inside.add(bounded, rng)

    def event(self, dimension):
        return Gaussian(1.0) if self.calls else Gaussian(2.0)


def test_a_release_that_costs_something_else_than_was_reserved_is_not_handed_out(ledger):
    from dataclasses import replace

    lying = replace(methods.dpsgd(1.0, 2.0), noise=Liar(GaussianNoise(2.0), []))
    run = begun(ledger, mechanism=lying)
    with pytest.raises(OutOfOrder, match="Nothing was handed out"):
        go(run)
    assert all(parameter.grad is None for parameter in run.model.parameters())
