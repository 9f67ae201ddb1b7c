"""Save and resume: bit for bit with a seed; with fresh noise, and nothing forgotten, without."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch.nn.functional import cross_entropy

import tacit
from support.small_runs import CLASSES, FEATURES, INPUTS, TARGETS, N
from tacit import methods
from tacit.accounting import Gaussian, curve
from tacit.errors import CannotResume, InvalidArgument, OutOfOrder
from tacit.training.folder import Journal, lost_steps

STEPS = 12
STEP = Gaussian(1.1).sampled(0.1)
DATA = (INPUTS, TARGETS)


def small_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, CLASSES))


class Training:
    """A run with its optimizer and learning-rate schedule."""

    def __init__(self, kind=torch.optim.Adam, **changes):
        self.model = small_model()
        self._outfit(kind)
        settings = {
            "data": DATA,
            "mechanism": methods.dpsgd(clip_norm=0.5, multiplier=1.1),
            "sampling": tacit.Poisson(lot_size=20, population=N),
            "steps": STEPS,
            "seed": 0,
        }
        self.run = tacit.PrivateRun(self.model, cross_entropy, **settings | changes)

    def _outfit(self, kind):
        self.optimizer = kind(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, STEPS)

    @classmethod
    def resumed(cls, folder, kind=torch.optim.Adam, **changes):
        training = cls.__new__(cls)
        training.model = small_model()
        training._outfit(kind)
        settings = {"data": DATA, "optimizer": training.optimizer, "scheduler": training.scheduler}
        training.run = tacit.PrivateRun.resume(folder, training.model, cross_entropy, **settings | changes)
        return training

    def go(self, steps=STEPS):
        for lot in self.run:
            self.run.backward(lot)
            self.optimizer.step()
            self.scheduler.step()
            if self.run.step == steps:
                break
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])

    def save(self, folder):
        self.run.save(folder, self.optimizer, self.scheduler)


def momentum(parameters, lr):
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.optim.Adam, momentum, torch.optim.Adagrad])
@pytest.mark.parametrize("clipping", ["flat", "quantile"])
def test_a_seeded_run_goes_on_bit_for_bit(tmp_path, kind, clipping):
    mechanism = methods.dpsgd(0.5, 1.1, clipping=clipping)
    expected = Training(kind, mechanism=mechanism).go()
    first = Training(kind, mechanism=mechanism)
    first.go(5)
    first.save(tmp_path)
    first.go(8)
    second = Training.resumed(tmp_path, kind)
    assert second.run.step == 5
    assert torch.equal(second.go(), expected)
    assert second.run.guarantee().event == STEP * STEPS


def test_a_shuffled_run_goes_on_in_the_same_order(tmp_path):
    expected = Training(sampling=tacit.Shuffled(30, N)).go()
    first = Training(sampling=tacit.Shuffled(30, N))
    first.go(5)
    first.save(tmp_path)
    assert torch.equal(Training.resumed(tmp_path).go(), expected)


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from training.test_resume import Training
training = Training()
for _ in range({steps}):
    training.go(training.run.step + 1)
    if training.run.step == {saved}:
        training.save({folder!r})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("saved", "steps"), [(1, 1), (4, 9), (11, 12)])
def test_a_seeded_run_that_was_killed_goes_on_bit_for_bit(tmp_path, saved, steps):
    tests = str(Path(__file__).parents[1])
    program = KILLED.format(tests=tests, saved=saved, steps=steps, folder=str(tmp_path))
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert torch.equal(Training.resumed(tmp_path).go(), Training().go())


def test_a_seeded_run_of_a_version_that_drew_other_lots_is_charged_for_lost_steps(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.training.run.DRAWING", 1)
    first = Training()
    first.go(2)
    first.save(tmp_path)
    first.go(5)
    monkeypatch.undo()
    assert Training.resumed(tmp_path).run._lost == {2: 1, 3: 1, 4: 1}


@pytest.mark.slow
def test_the_plan_comes_back_as_it_was(tmp_path):
    schedule = tacit.Schedule(multiplier=lambda step: 1 + step // 6, lot_size=[1.0] * STEPS)
    budget = tacit.Budget(epsilon=2, delta=1e-4)
    settings = {"mechanism": methods.noisy_adam(0.5), "schedule": schedule, "budget": budget, "micro_batch": 7}
    expected = Training(**settings).go()
    first = Training(**settings)
    first.save(tmp_path)
    second = Training.resumed(tmp_path)
    assert second.run._plan == first.run._plan
    assert second.run.multiplier == first.run.multiplier
    assert torch.equal(second.go(), expected)


@pytest.mark.slow
def test_secure_noise_is_drawn_afresh(tmp_path):
    first = Training(seed=None)
    first.go(3)
    first.save(tmp_path)
    one, other = (Training.resumed(tmp_path, nothing_left=True).go(6) for _ in range(2))
    assert not torch.equal(one, other)


def test_no_key_and_no_random_state_of_secure_noise_reaches_the_disk(tmp_path):
    first = Training(seed=None)
    first.go(3)
    first.save(tmp_path)
    first.go(5)
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert first.run._source._key not in everything
    assert first.run._source._key.hex().encode() not in everything
    with safe_open(tmp_path / "run.safetensors", framework="pt") as file:
        assert not any("random" in name for name in file.keys())  # noqa: SIM118 - not a mapping


@pytest.mark.slow
def test_steps_that_were_lost_are_charged_twice(tmp_path):
    first = Training(seed=None)
    first.go(5)
    first.save(tmp_path)
    first.go(8)
    second = Training.resumed(tmp_path)
    assert second.run.guarantee().epsilon(1e-5) == curve(STEP * 8).epsilon(1e-5)
    second.go()
    assert second.run.guarantee().epsilon(1e-5) == pytest.approx(curve(STEP * (STEPS + 3)).epsilon(1e-5))
    assert "3 lost steps were drawn again" in str(second.run.guarantee())


@pytest.mark.slow
def test_steps_lost_in_several_crashes_add_up(tmp_path):
    first = Training(seed=None)
    first.save(tmp_path)
    first.go(2)
    second = Training.resumed(tmp_path)
    second.go(3)
    third = Training.resumed(tmp_path)
    third.go(4)
    third.save(tmp_path)
    third.go(5)
    assert Training.resumed(tmp_path).run.guarantee().epsilon(1e-5) == pytest.approx(
        curve(STEP * (4 + 2 + 3 + 1)).epsilon(1e-5)
    )


@pytest.mark.slow
def test_what_was_saved_is_not_lost(tmp_path):
    first = Training(seed=None)
    first.go(3)
    first.save(tmp_path)
    first.go(6)
    first.save(tmp_path)
    assert Training.resumed(tmp_path).run.guarantee().event == STEP * 6


def test_lost_steps_of_which_nothing_left_the_process_cost_nothing_and_this_is_said(tmp_path):
    first = Training(seed=None)
    first.go(5)
    first.save(tmp_path)
    first.go(8)
    guarantee = Training.resumed(tmp_path, nothing_left=True).run.guarantee()
    assert guarantee.event == STEP * 5
    [assumed] = [one for one in guarantee.assumptions if one.key == "lost_steps_not_charged"]
    assert assumed.text.startswith("3 ")


@pytest.mark.slow
def test_a_budget_is_kept_across_a_crash_by_stopping_earlier(tmp_path):
    budget = tacit.Budget(epsilon=2, delta=1e-4)
    first = Training(seed=None, mechanism=methods.dpsgd(0.5), budget=budget)
    first.go(5)
    first.save(tmp_path)
    first.go(8)
    second = Training.resumed(tmp_path)
    assert second.run.steps == STEPS - 3
    second.go()
    assert second.run.step == STEPS - 3
    assert second.run.guarantee().epsilon(1e-4) <= 2


@pytest.mark.slow
def test_whoever_resumes_from_a_folder_that_was_left_pays_for_all_that_followed(tmp_path):
    first = Training(seed=None)
    first.save(tmp_path / "old")
    first.go(4)
    first.save(tmp_path / "new")
    first.go(7)
    old = Training.resumed(tmp_path / "old")
    assert old.run.guarantee().epsilon(1e-5) >= curve(STEP * 7).epsilon(1e-5)
    assert Training.resumed(tmp_path / "new").run.guarantee().epsilon(1e-5) == curve(STEP * 7).epsilon(1e-5)


@pytest.mark.parametrize("is_older", [True, False], ids=["older", "newer"])
def test_two_processes_do_not_go_on_with_one_run(tmp_path, is_older):
    """Neither would count what the other releases, so whoever comes second is stopped before noise is drawn."""
    older = Training(seed=None)
    older.save(tmp_path)
    newer = Training.resumed(tmp_path)
    first, second = (newer, older) if is_older else (older, newer)
    first.go(2)
    with pytest.raises(OutOfOrder, match="another process resumed the run"):
        second.go(1)
    assert second.run.step == 0
    with pytest.raises(OutOfOrder, match="another process resumed the run"):
        second.save(tmp_path)
    first.go(3)
    first.save(tmp_path)
    assert Training.resumed(tmp_path).run.guarantee().event == STEP * 3


def test_a_note_that_was_not_finished_spoils_no_other(tmp_path):
    Journal(tmp_path, 10).begin(0)
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"attempt": "ab')
    Journal(tmp_path, 10).begin(1)
    assert lost_steps(tmp_path, 0) == {0: 1, 1: 1}


def test_a_long_run_notes_a_thousandth_of_its_steps_at_a_time(tmp_path):
    journal = Journal(tmp_path, 5000)
    for step in range(7):
        journal.begin(step)
    assert len((tmp_path / "journal.jsonl").read_text().split()) == 2 * 6
    assert sorted(lost_steps(tmp_path, 3)) == [3, 4, 5, 6, 7, 8, 9]


def test_the_guarantee_lies_beside_the_weights(tmp_path):
    first = Training()
    first.go(5)
    first.save(tmp_path)
    assert tacit.Guarantee.from_json((tmp_path / "guarantee.json").read_text()) == first.run.guarantee()


def test_the_number_of_examples_is_not_saved(tmp_path):
    """It is private under add/remove: only the declared population is written."""
    first = Training(sampling=tacit.Poisson(20, 12_345))
    first.save(tmp_path)
    with safe_open(tmp_path / "run.safetensors", framework="pt") as file:
        text = file.metadata()["tacit"]
    assert "12345" in text
    assert "200" not in text


def test_a_save_that_breaks_off_leaves_the_old_one(tmp_path, monkeypatch):
    first = Training()
    first.go(3)
    first.save(tmp_path)
    first.go(6)
    monkeypatch.setattr("tacit.training.folder.save", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        first.save(tmp_path)
    assert Training.resumed(tmp_path).run.step == 3


@dataclass(frozen=True)
class Halve:
    """A post of the user's own."""

    by: float = 2.0

    def init(self, like):
        return {"times": torch.zeros(())}

    def apply(self, values, state):
        return {name: value / self.by for name, value in values.items()}, {"times": state["times"] + 1}


@pytest.mark.slow
def test_stages_of_the_users_own_are_vouched_for(tmp_path):
    mechanism = replace(methods.dpsgd(0.5, 1.1), post=(Halve(4.0),))
    expected = Training(mechanism=mechanism).go()
    first = Training(mechanism=mechanism)
    first.go(4)
    first.save(tmp_path)
    with pytest.raises(CannotResume, match=r"stages=\(Halve,\)"):
        Training.resumed(tmp_path)
    second = Training.resumed(tmp_path, stages=(Halve,))
    assert second.run.mechanism == mechanism
    assert torch.equal(second.go(), expected)
    assert float(second.run._state.post[0]["times"]) == STEPS


def test_nothing_but_values_of_tacit_is_loaded(tmp_path):
    from tacit.training.folder import _class

    for name in (
        "os:system",
        "tacit.training.folder:write_checkpoint",
        "tacit.training.run:PrivateRun",
        "tacit.errors:TacitError",
    ):
        with pytest.raises(CannotResume, match="not part of tacit"):
            _class(name, {})


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(CannotResume, match="no saved run"):
        Training.resumed(tmp_path)
    (tmp_path / "run.safetensors").write_text("not a checkpoint")
    with pytest.raises(CannotResume, match="not a run that tacit saved"):
        Training.resumed(tmp_path)


def test_another_model_is_refused(tmp_path):
    Training().save(tmp_path)
    with pytest.raises(CannotResume, match="do not fit this model"):
        tacit.PrivateRun.resume(tmp_path, torch.nn.Linear(3, 2), cross_entropy, data=DATA)


def test_a_forgotten_optimizer_is_refused(tmp_path):
    Training().save(tmp_path)
    with pytest.raises(CannotResume, match="with the state of its optimizer"):
        tacit.PrivateRun.resume(tmp_path, small_model(), cross_entropy, data=DATA)


def test_what_cannot_be_saved_is_named(tmp_path):
    from tacit.training.folder import write_checkpoint

    with pytest.raises(InvalidArgument, match="A set at '/odd'"):
        write_checkpoint(tmp_path, {"odd": {1, 2}})
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_holds_no_pickle(tmp_path):
    first = Training()
    first.go(2)
    first.save(tmp_path)
    with safe_open(tmp_path / "run.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["tacit"])["version"] == 1
    assert {path.name for path in tmp_path.iterdir()} == {"run.safetensors", "journal.jsonl", "guarantee.json"}
