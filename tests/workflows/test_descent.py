"""Momentum, views and a mean of the weights: by options or by the recipe of a model, through stops and refusals."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

import tacit as library
from support.small_images import write_few_images
from tacit.gradients.views import Shifts, Views
from tacit.models.networks import tempered_cnn
from tacit.reports.run import read_run

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")

IMAGES = "train mnist --data-path mnist.npz --population 200 --model tempered --lot-size 50"


@pytest.fixture
def images(tmp_path):
    """Images in the form of MNIST, few of them, as numbers from 0 to 1; and their labels."""
    arrays = write_few_images(tmp_path / "mnist.npz", train=200, test=30)
    rows = torch.from_numpy(arrays["x_train"])[:, None].float() / 255
    return rows, torch.from_numpy(arrays["y_train"]).long()


def by_hand(images, *, seed, steps, rate, momentum, views, averaging):
    """The same run in plain steps, and the running mean of its weights; both made here."""
    torch.manual_seed(seed)
    model = tempered_cnn((1, 28, 28), 10, groups=4, hidden=0)
    run = library.PrivateRun(
        model,
        F.cross_entropy,
        data=images,
        mechanism=library.methods.dpsgd(clip_norm=0.1, multiplier=2.0),
        sampling=library.Poisson(lot_size=50, population=200),
        steps=steps,
        gradients=Views(Shifts(1), views),
        micro_batch=256,
        seed=seed,
    )
    velocity = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    mean = None
    for lot in run:
        run.backward(lot)
        with torch.no_grad():
            for name, value in model.named_parameters():
                velocity[name] = momentum * velocity[name] + value.grad
                value -= rate * velocity[name]
            now = {name: value.clone() for name, value in model.named_parameters()}
        kept = min(averaging, (1 + lot.step) / (10 + lot.step))
        mean = now if mean is None else {k: kept * mean[k] + (1 - kept) * now[k] for k in now}
    return mean


@pytest.mark.slow
def test_the_recipe_of_the_tempered_network_is_trained_as_it_says(run_cli, tmp_path, images):
    found = run_cli(f"{IMAGES} --multiplier 2 --steps 3 --views 2 --seed 5 --out run --json")
    assert found.code == 0
    settings = json.loads(found.out)["settings"]
    said = {name: settings[name] for name in ("momentum", "views", "averaging", "clip_norm", "learning_rate")}
    rate = said.pop("learning_rate")
    assert said == {"momentum": 0.9, "views": 2, "averaging": 0.98, "clip_norm": 0.1}
    expected = by_hand(images, seed=5, steps=3, rate=rate, momentum=0.9, views=2, averaging=0.98)
    weights = load_file(tmp_path / "run/model.safetensors")
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(weights[name], value, rtol=1e-4, atol=1e-5), name


@pytest.mark.slow
def test_the_plan_and_the_report_say_how_the_model_follows(run_cli, tmp_path, images):
    plan = " ".join(run_cli(f"{IMAGES} --multiplier 2 --steps 2 --views 2 --out run").out.split())
    assert "momentum 0.9, 2 views of every image, running mean of the weights with decay 0.98." in plan
    facts = read_run(tmp_path / "run")
    said = dict(facts["settings_in_words"])
    assert said["Momentum"] == "0.9"
    assert said["Augmented views per image"] == "2"
    assert said["Weight averaging"] == "decay 0.98"
    assert "--momentum 0.9 --views 2 --averaging 0.98 --micro-batch 256" in facts["command"]


@pytest.mark.slow
def test_stopped_and_resumed_the_mean_goes_on_too(run_cli, tmp_path, images, interrupted_at):
    line = f"{IMAGES} --multiplier 2 --steps 5 --views 2 --seed 5"
    run_cli(f"{line} --out whole")
    interrupted_at(step=2)
    assert run_cli(f"{line} --out parts").code == 130
    assert run_cli("train --resume parts").code == 0
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.slow
def test_without_a_mean_the_last_weights_are_handed_out(run_cli, tmp_path):
    line = "train digits --model mlp --multiplier 4 --steps 6 --seed 7"
    for averaging in ("0", "0.9"):
        assert run_cli(f"{line} --momentum 0.5 --averaging {averaging} --out run{averaging}").code == 0
    last, mean = (load_file(tmp_path / f"run{averaging}" / "model.safetensors") for averaging in ("0", "0.9"))
    kept = load_file(tmp_path / "run0.9/run.safetensors")
    assert all(any(torch.equal(value, other) for other in kept.values()) for value in last.values())
    assert not torch.equal(last["1.weight"], mean["1.weight"])


@pytest.mark.slow
def test_what_goes_without_saying_is_not_said(run_cli):
    said = json.loads(run_cli("train iris --multiplier 4 --steps 2 --json").out)["settings"]
    assert not {"momentum", "views", "averaging"} & said.keys()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("train iris --epsilon 1 --views 4", "iris has no images"),
        ("train iris --epsilon 1 --model tempered", "--model tempered is for images"),
        ("train iris --epsilon 1 --method noisy_adam --momentum 0.9", "Adam has its own momentum"),
        ("train iris --epsilon 1 --momentum 1", "momentum"),
        ("train iris --epsilon 1 --averaging -0.5", "averaging"),
        ("train iris --epsilon 1 --recipe auto --momentum 0.5", "--recipe auto chooses --momentum itself"),
    ],
)
def test_what_means_nothing_is_refused(run_cli, line, reason):
    run = run_cli(line)
    assert run.code == 2
    assert reason in run.err
