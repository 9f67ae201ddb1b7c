"""What an audit attacks: the weights that are handed out, and the training as it was."""

import copy
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tacit.audit.membership import score_all
from tacit.training.folder import read_checkpoint
from tacit.workflows.audit_target import load_target
from tacit.workflows.descent import Descent


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


@pytest.fixture
def averaged(run_cli):
    """A run that hands out the running mean of its weights."""
    done = run_cli("train digits --model mlp --multiplier 4 --steps 8 --averaging 0.9 --out mean --seed 7")
    assert done.code == 0, done.err


def equal(model, weights):
    return all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_the_model_that_is_attacked_is_the_one_that_is_handed_out(averaged, tmp_path):
    subject, handed_out = load_target(tmp_path / "mean", None), load_file(tmp_path / "mean" / "model.safetensors")
    assert equal(subject.model, handed_out)
    raw = read_checkpoint(tmp_path / "mean")["model"]
    assert not equal(subject.model, raw)
    # By the weights of the last step, members would be told from others by other scores.
    last = copy.deepcopy(subject.model)
    last.load_state_dict(raw)
    assert not np.array_equal(*(score_all(model, subject.loss, subject.members) for model in (subject.model, last)))


@pytest.mark.slow
def test_of_a_run_that_was_stopped_the_mean_so_far_is_attacked(run_cli, tmp_path, interrupted_at):
    line = "train digits --model mlp --multiplier 4 --steps 8 --averaging 0.9 --seed 7"
    interrupted_at(step=5)
    assert run_cli(f"{line} --out stopped").code == 130
    subject, tree = load_target(tmp_path / "stopped", None), read_checkpoint(tmp_path / "stopped")
    mean = {name.removeprefix("module."): value for name, value in tree["scheduler"].items() if "." in name}
    assert equal(subject.model, mean)
    assert not equal(subject.model, tree["model"])
    assert subject.attacked["membership"].endswith("as saved; the run is not finished")


@pytest.mark.slow
def test_shadow_models_hand_out_a_mean_where_the_run_did(averaged, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("tacit.workflows.audit_target.Descent", lambda *args: made.append(Descent(*args)) or made[-1])
    subject = load_target(tmp_path / "mean", None)
    made.clear()
    with subject.make_shadows() as (train, (inputs, targets)):
        shadow = train((inputs[:50], targets[:50]))
    [descent] = made
    assert shadow is descent.mean.module
    assert int(descent.mean.n_averaged) == 8


@pytest.fixture
def by_recipe(run_cli):
    """A run by recipe on iris, which is not for release."""
    assert run_cli("train iris --epsilon 5 --recipe auto --out by-recipe --seed 0").code == 0


def test_the_scores_are_those_of_the_model_that_was_written(run_cli, by_recipe, tmp_path):
    told = json.loads((tmp_path / "by-recipe" / "metrics.json").read_text())
    subject = load_target(tmp_path / "by-recipe", None)
    chosen = subject.model(subject.others[0]).argmax(1)
    assert float((chosen == subject.others[1]).double().mean()) == told["test"][-1]["accuracy"]
