"""`audit` on training functions that know nothing of tacit: what it shows, what it keeps, what it refuses."""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from torch.nn import functional as F

from tacit.accounting import Adjacency, Gaussian, Unproven, curve
from tacit.audit import Canaries, ManyRuns, Runs, Training, Verdict, audit, audit_training
from tacit.audit.attacks import Alternating, _keep_settings, list_numbers, negate_loss
from tacit.audit.given import Releases
from tacit.audit.runs import load_results
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee
from tacit.methods import dpsgd
from tacit.stages.sampling import Poisson


def noisy_mean(data):
    """The sum of rows of norm at most 1, with Gaussian noise: as private as it says, exactly."""
    rows = data[0] / np.maximum(np.linalg.norm(data[0], axis=1, keepdims=True), 1)
    return rows.sum(axis=0) + np.random.normal(size=rows.shape[1])  # noqa: NPY002 - as a user might


def some_data(n=30, size=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, size)) / 10, rng.integers(0, 2, n)


@dataclass(frozen=True)
class Pressed:
    """A job during which Ctrl-C reaches the process that waits, as soon as the first result is there."""

    parent: int
    folder: Path

    def __call__(self, index):
        if index == 2:
            while not (self.folder / "runs-000000.npy").exists():
                time.sleep(0.01)
            os.kill(self.parent, signal.SIGINT)
            time.sleep(0.3)
        return np.array([index])


@pytest.mark.slow
def test_after_ctrl_c_what_has_begun_is_kept_and_no_more_is_begun(tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt):
        Runs(tmp_path, workers=2, seed=0).results("runs", Pressed(os.getpid(), tmp_path), 40)
    kept = sorted(int(path.stem[-6:]) for path in tmp_path.glob("runs-*.npy"))
    # The one that was begun when the key was pressed is among them; of 40 nearly all were never begun.
    assert 2 in kept
    assert len(kept) < 12
    assert "Stopping after" in capsys.readouterr().err


@pytest.mark.slow
def test_many_runs_find_a_gaussian_mechanism_as_private_as_it_is():
    truth = curve(Gaussian(1.0))
    report = audit(
        noisy_mean, some_data(), delta=1e-5, attack=ManyRuns(500, example=([3.0, 0, 0], 0), seed=0), proven=truth
    )
    assert report.verdict is Verdict.STANDS
    assert 0.3 < report.finding.bound.epsilon < truth.epsilon(1e-5)
    assert 0.4 * truth.epsilon(1e-5) < report.finding.gaussian.epsilon < truth.epsilon(1e-5)
    assert len(report.finding.points) > 10


@pytest.mark.slow
def test_the_same_mechanism_with_a_larger_claim_is_contradicted():
    guarantee = Guarantee(Gaussian(4.0), delta=1e-5)
    report = audit(
        noisy_mean, some_data(), delta=1e-5, attack=ManyRuns(300, example=([3.0, 0, 0], 0), seed=1), proven=guarantee
    )
    assert report.verdict is Verdict.CONFLICT
    assert "contradicts what is proven" in str(report)


@pytest.mark.slow
def test_an_audit_with_a_seed_can_be_repeated():
    attack = ManyRuns(40, example=([3.0, 0, 0], 0), seed=5)
    first, second = (audit(noisy_mean, some_data(), delta=1e-5, attack=attack) for _ in range(2))
    assert first.finding == second.finding


def test_replacing_an_example_keeps_the_number_of_rows():
    sizes = set()

    def train(data):
        sizes.add(len(data[0]))
        return noisy_mean(data)

    audit(train, some_data(), delta=1e-5, attack=ManyRuns(16, adjacency=Adjacency.REPLACE_ONE, seed=0))
    assert sizes == {30}
    sizes.clear()
    audit(train, some_data(), delta=1e-5, attack=ManyRuns(16, seed=0))
    assert sizes == {30, 31}


@pytest.mark.slow
def test_a_function_without_noise_is_found_out_and_said_to_be_without():
    report = audit(lambda data: data[0].sum(axis=0), some_data(), delta=1e-5, claim=1.0, attack=ManyRuns(120, seed=0))
    assert report.verdict is Verdict.BROKEN
    assert any("no noise, or its seed is fixed" in note for note in report.finding.notes)


@pytest.mark.slow
def test_runs_that_were_made_are_not_made_again(tmp_path):
    calls = []

    def train(data):
        calls.append(1)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return noisy_mean(data)

    attack = ManyRuns(24, folder=tmp_path, seed=0)
    with pytest.raises(KeyboardInterrupt):
        audit(train, some_data(), delta=1e-5, attack=attack)
    kept = len(list(tmp_path.glob("*.npy")))
    assert kept == 19
    resumed = audit(train, some_data(), delta=1e-5, attack=attack)
    assert len(calls) == 20 + 48 - kept
    assert resumed.finding == audit(noisy_mean, some_data(), delta=1e-5, attack=ManyRuns(24, seed=0)).finding


def test_the_folder_of_another_audit_is_refused(tmp_path):
    audit(noisy_mean, some_data(), delta=1e-5, attack=ManyRuns(16, folder=tmp_path, seed=0))
    for other in (some_data(n=31), some_data(seed=1)):
        with pytest.raises(InvalidArgument, match="another audit"):
            audit(noisy_mean, other, delta=1e-5, attack=ManyRuns(16, folder=tmp_path, seed=0))


def test_what_cannot_be_sent_to_another_process_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="top level of a module"):
        Runs(tmp_path, workers=2).results("runs", lambda index: index, 4)


@pytest.mark.slow
def test_two_processes_give_the_same_results_as_one(tmp_path):
    job = Alternating(Releases(dpsgd(1.0, 1.0), Poisson(2, 4), 2), ((np.eye(4), np.zeros(4)),) * 2, list_numbers)
    alone, together = Runs(tmp_path / "one", seed=3), Runs(tmp_path / "two", workers=2, seed=3)
    one, two = (load_results(runs.results("runs", job, 5)) for runs in (alone, together))
    np.testing.assert_array_equal(one, two)
    assert np.ptp(one, axis=0).all()


def memorising(data):
    """Nearest neighbour: the worst that can happen to a canary."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 200), torch.nn.ReLU(), torch.nn.Linear(200, 2))
    inputs, targets = torch.as_tensor(data[0], dtype=torch.float32), torch.as_tensor(data[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return model


@pytest.mark.slow
def test_canaries_find_a_model_that_memorises():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(150, 20)).astype(np.float32)
    data = (torch.from_numpy(inputs), torch.from_numpy((inputs[:, 0] > 0).astype(np.int64)))
    report = audit(memorising, data, delta=1e-5, claim=1.0, attack=Canaries(300, seed=0))
    assert report.verdict is Verdict.BROKEN
    assert report.finding.bound.epsilon > 1


def test_canaries_find_nothing_where_nothing_is_learnt():
    report = audit(
        lambda data: torch.nn.Linear(3, 2), some_data(300), delta=1e-5, claim=0.0, attack=Canaries(200, seed=0)
    )
    assert report.finding.bound.epsilon == 0
    assert report.verdict is Verdict.STANDS


def test_scores_of_one_s_own_are_used():
    data = some_data(200)
    seen = lambda released, inputs, targets: (inputs[:, None] == released[None]).all(-1).any(1)  # noqa: E731
    report = audit(lambda given: given[0], data, delta=1e-5, claim=5.0, attack=Canaries(1000, score=seen, seed=0))
    # Every canary's input is that of a real row as well, so exact matches tell nothing.
    assert report.finding.bound.epsilon == 0


def test_numbers_are_found_in_whatever_was_released():
    flat = list_numbers({"a": torch.ones(2), "b": [np.zeros(1), 2.0]})
    np.testing.assert_allclose(flat, [1, 1, 0, 2, 0.5 * np.log(6 / 4)])
    assert list_numbers(torch.nn.Linear(3, 2)).size == 9
    inputs, targets = some_data()
    assert list_numbers(LogisticRegression().fit(inputs, targets)).size == 5
    with pytest.raises(InvalidArgument, match="no numbers"):
        list_numbers(object())


def test_losses_are_found_for_estimators_too():
    inputs, targets = some_data()
    classifier, ridge = LogisticRegression().fit(inputs, targets), Ridge().fit(inputs, targets)
    expected = np.log(classifier.predict_proba(inputs)[np.arange(30), targets])
    np.testing.assert_allclose(negate_loss(classifier, inputs, targets), expected)
    np.testing.assert_allclose(negate_loss(ridge, inputs, targets), -((ridge.predict(inputs) - targets) ** 2))
    with pytest.raises(InvalidArgument, match="score="):
        negate_loss("a model", inputs, targets)


@pytest.mark.parametrize("data", [np.zeros((3, 2)), (np.zeros((3, 2)), np.zeros(4)), "data"])
def test_data_that_is_no_pair_is_refused(data):
    with pytest.raises(InvalidArgument, match="pair"):
        audit(noisy_mean, data, delta=1e-5)


def small_training(steps=6):
    torch.manual_seed(0)
    model = torch.nn.Linear(10, 3)
    data = (torch.randn(50, 10), torch.randint(3, (50,)))
    return Training(
        model,
        F.cross_entropy,
        data,
        dpsgd(1.0, 1.0),
        Poisson(10, 50),
        steps,
        lambda m: torch.optim.Adam(m.parameters()),
    )


@pytest.mark.slow
def test_a_stopped_white_box_audit_goes_on_with_the_same_game(tmp_path, monkeypatch):
    whole = audit_training(small_training(), delta=1e-5, canaries=50, seed=4)
    # Saved after every step, and stopped in the fourth.
    monkeypatch.setattr("tacit.audit.white_box._SECONDS_BETWEEN_SAVES", -1.0)
    seen = []

    def stop(self):
        seen.append(1)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return plain(self)

    from tacit.audit.canaries import Watch

    plain = Watch.see
    monkeypatch.setattr(Watch, "see", stop)
    with pytest.raises(KeyboardInterrupt):
        audit_training(small_training(), delta=1e-5, canaries=50, seed=4, folder=tmp_path)
    resumed = audit_training(small_training(), delta=1e-5, canaries=50, seed=4, folder=tmp_path)
    assert len(seen) == 4 + 6 - 3
    assert resumed.finding == whole.finding


@pytest.mark.slow
def test_canaries_that_drown_each_other_are_said_to():
    crowded = audit_training(small_training(1), delta=1e-5, canaries=1000, seed=0)
    assert any("hide each other in a model of 33 parameters: 82 or fewer" in note for note in crowded.finding.notes)
    few = audit_training(small_training(1), delta=1e-5, canaries=20, seed=0)
    assert not any("hide each other" in note for note in few.finding.notes)


@pytest.mark.slow
def test_a_white_box_audit_keeps_no_private_sum_beside_it(tmp_path):
    audit_training(small_training(2), delta=1e-5, canaries=20, folder=tmp_path)
    from safetensors import safe_open

    with safe_open(tmp_path / "run.safetensors", framework="pt") as file:
        header = json.loads(file.metadata()["tacit"])
        assert "Recording" in json.dumps(header)
        assert not [name for name in file.keys() if "added" in name or "pieces" in name]  # noqa: SIM118
    with pytest.raises(InvalidArgument, match="another audit"):
        audit_training(small_training(2), delta=1e-5, canaries=30, folder=tmp_path)


@pytest.mark.slow
def test_an_audit_that_is_asked_to_stop_saves_its_step_and_goes_on_from_there(tmp_path):
    whole = audit_training(small_training(), delta=1e-5, canaries=50, seed=4)
    asked = iter([False, False, True])
    with pytest.raises(KeyboardInterrupt):
        audit_training(
            small_training(), delta=1e-5, canaries=50, seed=4, folder=tmp_path, is_stopped=lambda: next(asked)
        )
    with np.load(tmp_path / "scores.npz") as saved:
        assert int(saved["step"]) == 3
    resumed = audit_training(small_training(), delta=1e-5, canaries=50, seed=4, folder=tmp_path)
    assert resumed.finding == whole.finding


def test_a_training_that_breaks_down_gives_itself_away():
    def brittle(data):
        return noisy_mean(data) * (np.nan if len(data[0]) > 30 else 1.0)

    report = audit(brittle, some_data(), delta=1e-5, claim=0.5, attack=ManyRuns(60, seed=0))
    assert report.verdict is Verdict.BROKEN


def test_half_precision_is_released_numbers_too():
    found = list_numbers({"weight": torch.ones(2, dtype=torch.bfloat16), "count": torch.tensor(3)})
    np.testing.assert_allclose(found[:3], [1, 1, 3])


def test_a_class_that_the_model_does_not_know_has_no_probability():
    inputs, targets = some_data()
    found = negate_loss(LogisticRegression().fit(inputs, targets), inputs[:3], np.array([0, 1, 7]))
    assert np.all(found[:2] > -10)
    assert found[2] < -600


def test_what_a_model_keeps_beside_its_weights_is_released_with_it():
    model = torch.nn.BatchNorm1d(2, affine=False)
    model(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    np.testing.assert_allclose(list_numbers(model)[:2], [0.2, 0.4], rtol=1e-6)


def test_kept_runs_hold_no_hash_that_confirms_a_guess(tmp_path):
    data = (np.arange(12.0).reshape(6, 2), np.arange(6) % 2)
    for folder in ("one", "other"):
        _keep_settings(tmp_path / folder, {"runs": 16}, (data, data))
        _keep_settings(tmp_path / folder, {"runs": 16}, (data, data))
    kept = [json.loads((tmp_path / folder / "audit.json").read_text()) for folder in ("one", "other")]
    assert kept[0]["worlds"] != kept[1]["worlds"]
    assert (tmp_path / "one" / "audit.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidArgument, match="another audit"):
        _keep_settings(tmp_path / "one", {"runs": 16}, (data, (data[0] + 1, data[1])))


def test_a_network_for_numbers_is_scored_by_its_squared_errors():
    model = torch.nn.Linear(2, 1)
    inputs, targets = np.eye(2, dtype=np.float32), np.array([1.0, 2.0], dtype=np.float32)
    missed = model(torch.from_numpy(inputs)).detach().numpy()[:, 0] - targets
    assert negate_loss(model, inputs, targets) == pytest.approx(-(missed**2), rel=1e-6)


def test_a_guarantee_that_proves_nothing_has_no_curve_to_compare_with():
    nothing = Guarantee(Unproven("(1, 1e-5)-DP", "nobody has proven it"), 1e-5)
    report = audit(noisy_mean, some_data(), delta=1e-5, attack=ManyRuns(16, seed=0), proven=nothing)
    assert (report.curve, report.finding.contradicts) == (None, None)


@pytest.mark.slow
def test_an_audit_whose_scores_belong_to_another_step_starts_again(tmp_path):
    whole = audit_training(small_training(), delta=1e-5, canaries=20, seed=4, folder=tmp_path)
    with np.load(tmp_path / "scores.npz") as saved:
        kept = dict(saved)
    np.savez(tmp_path / "scores.npz", **{**kept, "step": kept["step"] - 1, "scores": kept["scores"] + 99})
    assert audit_training(small_training(), delta=1e-5, canaries=20, seed=4, folder=tmp_path).finding == whole.finding
