"""`tacit train --recipe auto`: a model, its guarantee and its files, within the budget and on the ledger."""

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from support.small_images import write_few_images
from tacit import PrivateRun
from tacit.accounting import Gaussian, curve, from_json
from tacit.budget import Budget
from tacit.cli import app
from tacit.estimators import load as load_recipe_model
from tacit.features import Knots
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.recipes.recipe import auto
from tacit.reports.wording import up


def train(*words):
    return CliRunner().invoke(app, ["train", *words])


@pytest.fixture
def run_here(request, tmp_path, monkeypatch):
    """The command as a person runs it, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return request.getfixturevalue("run_cli")


def test_a_table_by_recipe(tmp_path):
    out = tmp_path / "run"
    ran = train("iris", "--epsilon", "8", "--recipe", "auto", "--seed", "0", "--out", str(out), "--json")
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert told["score"]["accuracy"] > 0.7
    assert [row["step"] for row in told["test"]] == list(range(25, 501, 25))
    guarantee = Guarantee.from_json((out / "guarantee.json").read_text())
    assert 7.9 < guarantee.epsilon(guarantee.delta) <= 8
    # Four numbers of nine ramps, and the constant.
    assert load_file(out / "model.safetensors")["weight"].shape == (3, 37)
    assert json.loads((out / "metrics.json").read_text())["settings"]["recipe"]["kind"] == "table"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [("mnist", "handwriting"), ("fashion-mnist", "image")])
def test_digits_are_known_to_be_handwriting_and_clothes_not_to_be(tmp_path, name, kind):
    write_few_images(tmp_path / f"{name}.npz", train=30, test=5)
    words = (name, "--data-path", str(tmp_path), "--epsilon", "8", "--population", "30", "--seed", "0")
    ran = train(*words, "--out", str(tmp_path / "run"), "--json")
    assert ran.exit_code == 0, ran.output
    assert json.loads((tmp_path / "run/settings.json").read_text())["recipe"]["kind"] == kind


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "is_by_recipe"),
    [
        (("iris", "--epsilon", "8"), True),
        (("iris", "--epsilon", "8", "--delta", "1e-4"), True),
        (("iris", "--epsilon", "8", "--recipe", "none"), False),
        (("iris", "--epsilon", "8", "--steps", "5"), False),
        (("iris", "--multiplier", "3"), False),
        (("diabetes", "--epsilon", "8"), False),
    ],
)
def test_a_data_set_by_name_and_an_epsilon_alone_are_trained_by_recipe(tmp_path, words, is_by_recipe):
    ran = train(*words, "--seed", "0", "--out", str(tmp_path / "run"), "--json")
    assert ran.exit_code == 0, ran.output
    settings = json.loads((tmp_path / "run/settings.json").read_text())
    assert (settings["recipe"] is not None) == is_by_recipe


@pytest.mark.slow
def test_the_ledger_is_charged_first_and_refuses_what_does_not_fit(tmp_path):
    path = tmp_path / "iris.ledger"
    Ledger(path).set_budget("iris", Budget(epsilon=1.2, delta=1e-5))
    words = ("iris", "--epsilon", "1", "--recipe", "auto", "--ledger", str(path))
    first, second = (train(*words, "--out", str(tmp_path / name)) for name in ("one", "two"))
    assert first.exit_code == 0, first.output
    assert "has now spent epsilon 1" in first.output
    assert second.exit_code != 0
    assert not (tmp_path / "two").exists()


@pytest.mark.slow
def test_words_make_a_model_of_words(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 2
    # Words 2 and 3 tell, the others do not; numbers count from 2.
    words = np.stack([2 + labels, *rng.integers(4, 40, (6, 600))], axis=1).reshape(-1)
    part = {"flat": words.astype(np.uint16), "offsets": np.arange(601) * 7, "y": labels}
    arrays = {f"{key}_{name}": value for key, value in part.items() for name in ("train", "test")}
    np.savez(tmp_path / "imdb.npz", vocab=np.array([f"word{i}" for i in range(40)]), **arrays)
    ran = train(
        *("imdb", "--data-path", str(tmp_path), "--epsilon", "8", "--recipe", "auto", "--population", "600"),
        *("--seed", "0", "--out", str(tmp_path / "run")),
    )
    assert ran.exit_code == 0, ran.output
    assert "First the mean of the features" in ran.output
    accuracy = json.loads((tmp_path / "run" / "metrics.json").read_text())["test"][-1]["accuracy"]
    assert accuracy > 0.8
    assert set(load_file(tmp_path / "run" / "model.safetensors")) == {"scores.weight", "mean", "weights"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("iris", "--recipe", "auto"), "needs --epsilon"),
        (("iris", "--recipe", "auto", "--epsilon", "1", "--steps", "9"), "chooses --steps itself"),
        (("diabetes", "--recipe", "auto", "--epsilon", "1"), "the target of diabetes is a number"),
    ],
)
def test_what_contradicts_a_recipe_is_refused(words, complaint):
    ran = train(*words)
    assert ran.exit_code != 0
    assert complaint in " ".join((ran.output + str(ran.exception)).split())


BOUNDS = """rows = 900
[columns]
size = { low = -1, high = 1 }
label = ["no", "yes"]
"""
RUN = "train iris --epsilon 5 --recipe auto --seed 0 --out run --ledger iris.ledger"


def test_ctrl_c_while_features_are_computed_costs_nothing(run_here, monkeypatch, tmp_path):
    def interrupted(self, rows):
        raise KeyboardInterrupt

    monkeypatch.setattr(Knots, "transform", interrupted)
    done = run_here(RUN)
    assert done.code == 130
    assert "before any noise was drawn: nothing is released, spent or written" in done.err
    assert "tacit train iris --recipe auto --epsilon 5 --delta 1e-05" in done.err
    assert not (tmp_path / "run").exists()
    assert not Ledger(tmp_path / "iris.ledger").account("iris").charges


@pytest.mark.slow
def test_ctrl_c_while_training_saves_says_what_was_spent_and_keeps_the_rest_reserved(
    run_here, interrupted_at, tmp_path
):
    interrupted_at(99)
    done = run_here(RUN)
    assert done.code == 130
    assert "Stopped after step 100 of 500 and saved." in done.err
    recipe = auto("table", population=119, epsilon=5, delta=1e-5)
    preparation, step = recipe.noise(5, 1e-5)
    spent = curve(Gaussian(preparation) * 2 + Gaussian(step).sampled(recipe.rate) * 100).epsilon(1e-5)
    assert f"Spent so far: epsilon {up(spent, 4)} of 5 at delta 1e-05" in done.err
    # What is in the folder says what was spent, the preparation included.
    saved = Guarantee.from_json((tmp_path / "run" / "guarantee.json").read_text())
    assert saved.epsilon(1e-5) == pytest.approx(spent, rel=1e-6)
    settle = done.err.partition("to give it back: ")[2].partition(". Resume")[0]
    assert run_here(settle.removeprefix("tacit ")).code == 0
    [charge] = Ledger(tmp_path / "iris.ledger").account("iris").charges
    assert curve(charge.event).epsilon(1e-5) == pytest.approx(spent, rel=1e-6)


def test_ctrl_c_pressed_twice_stops_in_the_midst_of_a_step_which_is_lost(run_here, interrupted_at, tmp_path):
    interrupted_at(99, times=2)
    done = run_here(RUN)
    assert done.code == 130
    assert "Stopped in the middle of a step. Steps since the last save are lost" in done.err
    assert "Resume with: tacit train --resume run" in done.err
    [charge] = Ledger(tmp_path / "iris.ledger").account("iris").charges
    assert charge.is_settled


@pytest.mark.slow
def test_stopped_and_resumed_is_the_same_as_never_stopped(run_here, interrupted_at, tmp_path):
    assert run_here(f"{RUN} --json").code == 0
    whole = load_file(tmp_path / "run" / "model.safetensors")
    parts = RUN.replace("--out run --ledger iris.ledger", "--out parts --ledger parts.ledger")
    interrupted_at(99)
    assert run_here(parts).code == 130
    interrupted_at(300)
    again = run_here("train --resume parts")
    assert again.code == 130
    assert "Stopped after step 301 of 500 and saved." in again.err
    done = run_here("train --resume parts")
    assert done.code == 0, done.err
    found = load_file(tmp_path / "parts" / "model.safetensors")
    assert whole.keys() == found.keys()
    assert all(np.array_equal(whole[name], found[name]) for name in whole)
    metrics = [json.loads((tmp_path / out / "metrics.json").read_text()) for out in ("run", "parts")]
    assert metrics[0]["test"] == metrics[1]["test"]
    assert metrics[1]["is_finished"]
    charges = [Ledger(tmp_path / name).account("iris").charges for name in ("iris.ledger", "parts.ledger")]
    assert [len(each) for each in charges] == [1, 1]
    assert curve(charges[1][0].event).epsilon(1e-5) == pytest.approx(curve(charges[0][0].event).epsilon(1e-5))
    assert "there is nothing to resume" in run_here("train --resume parts").err


@pytest.mark.slow
def test_without_a_seed_a_resumed_run_draws_fresh_noise_and_costs_what_was_planned(run_here, interrupted_at, tmp_path):
    interrupted_at(49)
    assert run_here("train iris --epsilon 5 --recipe auto --out run").code == 130
    assert run_here("train --resume run").code == 0
    guarantee = Guarantee.from_json((tmp_path / "run" / "guarantee.json").read_text())
    assert 4.99 < guarantee.epsilon(1e-5) <= 5


def killed_at(monkeypatch, step):
    """End the process within a step, as a power cut would: nothing is saved after it."""

    def dies(self, lot):
        backward(self, lot)
        if lot.step == step:
            raise SystemExit(9)

    backward = PrivateRun.backward
    monkeypatch.setattr(PrivateRun, "backward", dies)


@pytest.mark.slow
def test_a_run_that_was_killed_pays_for_its_lost_steps_by_fewer_steps(run_here, monkeypatch, tmp_path):
    run_here("ledger create iris.ledger iris --epsilon 5 --delta 1e-5")
    with monkeypatch.context() as patch:
        killed_at(patch, 60)
        assert run_here("train iris --epsilon 5 --recipe auto --ledger iris.ledger --out run").code == 9
    assert run_here("train --resume run").code == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    planned = auto("table", population=119, epsilon=5, delta=1e-5, numbers=4)
    assert metrics["is_finished"]
    # Saved before the first step, killed in the sixty-first.
    assert metrics["steps"] == planned.steps - 61
    guarantee = Guarantee.from_json((tmp_path / "run" / "guarantee.json").read_text())
    assert 4.99 < guarantee.epsilon(1e-5) <= 5
    charged = Ledger(tmp_path / "iris.ledger").account("iris")
    assert charged.epsilon(1e-5) == pytest.approx(guarantee.epsilon(1e-5), rel=1e-3)
    assert charged.epsilon(1e-5) <= 5


KILLED = """
import os, signal
from tacit import PrivateRun
from tacit.cli import app
backward = PrivateRun.backward
def dies(self, lot):
    backward(self, lot)
    if lot.step == 60:
        os.kill(os.getpid(), signal.SIGKILL)
PrivateRun.backward = dies
app("train iris --epsilon 5 --recipe auto --ledger iris.ledger --out run".split())
"""


@pytest.mark.slow
def test_a_process_killed_by_the_system_is_resumed_within_its_budget(run_here, tmp_path):
    run_here("ledger create iris.ledger iris --epsilon 5 --delta 1e-5")
    died = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL
    charged = Ledger(tmp_path / "iris.ledger")
    charged.verify()
    spent = charged.account("iris").epsilon(1e-5)
    assert run_here("train --resume run").code == 0
    guarantee = Guarantee.from_json((tmp_path / "run" / "guarantee.json").read_text())
    assert spent <= charged.account("iris").epsilon(1e-5) <= 5
    assert 4.99 < guarantee.epsilon(1e-5) <= 5
    assert load_recipe_model(tmp_path / "run").prepared_ is not None


@pytest.mark.slow
def test_a_seeded_run_that_was_killed_ends_as_if_nothing_had_happened(run_here, monkeypatch, tmp_path):
    """Its steps are repeated with the same noise, so they are released once."""
    with monkeypatch.context() as patch:
        killed_at(patch, 60)
        assert run_here("train iris --epsilon 5 --recipe auto --seed 0 --out run").code == 9
    assert run_here("train --resume run").code == 0
    assert run_here("train iris --epsilon 5 --recipe auto --seed 0 --out whole").code == 0
    weights = [(tmp_path / name / "model.safetensors") for name in ("run", "whole")]
    first, second = (load_file(path) for path in weights)
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_what_the_preparation_cost_is_read_from_where_it_was_written_when_it_was_drawn(
    run_here, interrupted_at, tmp_path
):
    interrupted_at(10)
    assert run_here("train iris --epsilon 5 --recipe auto --seed 0 --out run").code == 130
    preparation, step = auto("table", population=119, epsilon=5, delta=1e-5).noise(5, 1e-5)
    stopped = tmp_path / "run" / "prepared.safetensors"
    with safe_open(stopped, framework="np") as opened:
        about, arrays = opened.metadata(), {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    assert from_json(about["preparation_event"]) == Gaussian(preparation) + Gaussian(preparation)
    # Had it cost more, the guarantee of the whole run would say so, and fewer steps would fit into the budget.
    dearer = Gaussian(1.0) + Gaussian(preparation)
    save_file(arrays, stopped, metadata={**about, "preparation_event": dearer.to_json()})
    assert run_here("train --resume run").code == 0
    saved = Guarantee.from_json((tmp_path / "run" / "guarantee.json").read_text())
    made = saved.event.parts[-1].times
    assert made < 500
    assert saved.event == dearer + Gaussian(step).sampled(saved.event.parts[-1].inside.rate) * made
    assert saved.epsilon(1e-5) <= 5
    assert load_recipe_model(tmp_path / "run").prepared_.event == dearer


@pytest.mark.slow
def test_a_folder_that_was_stopped_by_an_earlier_version_goes_on(run_here, interrupted_at, tmp_path):
    interrupted_at(10)
    assert run_here("train iris --epsilon 5 --recipe auto --seed 0 --out run").code == 130
    stopped = tmp_path / "run" / "prepared.safetensors"
    save_file(load_file(stopped), stopped, metadata={})
    assert run_here("train --resume run").code == 0
    saved = Guarantee.from_json((tmp_path / "run" / "guarantee.json").read_text())
    assert 4.99 < saved.epsilon(1e-5) <= 5


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run; no test changes it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    ran = train("iris", "--epsilon", "5", "--recipe", "auto", "--seed", "0", "--out", str(folder))
    assert ran.exit_code == 0, ran.output
    return folder


def test_a_finished_run_is_not_resumed_and_says_how_to_make_another(run_here, finished):
    done = run_here(f"train --resume {finished}")
    assert done.code == 2
    assert "there is nothing to resume" in done.err
    again = done.err.split("of its own: ")[-1].strip()
    assert again.endswith("tacit train iris --recipe auto --epsilon 5 --delta 1e-05")


@pytest.mark.slow
def test_a_ledger_knows_the_examples_again_when_they_are_trained_on_otherwise(run_here, tmp_path):
    assert run_here(RUN).code == 0
    assert run_here("train iris --epsilon 1 --steps 2 --seed 0 --out other --ledger iris.ledger").code == 0
    ledger = Ledger(tmp_path / "iris.ledger")
    assert [entry.kind for entry in ledger.entries()].count("data") == 1
    assert len(ledger.account("iris").charges) == 2


def test_rows_held_out_of_a_table_of_ones_own_are_scored_with_noise(run_here, tmp_path):
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, 900)
    lines = [f"{value:.6f},{'yes' if value > 0 else 'no'}" for value in values]
    (tmp_path / "own.csv").write_text("\n".join(["size,label", *lines]))
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    done = run_here(
        "train own.csv --target label --bounds bounds.toml --epsilon 8 --recipe auto --seed 0 --out run --json"
    )
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert 0.8 < told["score"]["accuracy"] <= 1
    assert told["test_examples"] is None
    assert [row["step"] for row in told["test"]] == [500]
    guarantee = Guarantee.from_json((tmp_path / "run" / "guarantee.json").read_text())
    assert "private_test" in {one.key for one in guarantee.assumptions}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"steps": 400}, "differ in steps"),
        ({"kind": "smell"}, "no known kind"),
        ({"momentum": 2.0}, "momentum"),
        ({"more": 1}, "unexpected keyword"),
    ],
)
def test_a_recipe_that_somebody_edited_is_refused(run_here, finished, tmp_path, change, complaint):
    path = shutil.copytree(finished, tmp_path / "run") / "settings.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "recipe": {**values["recipe"], **change}}))
    done = run_here("audit run")
    assert done.code == 2
    assert complaint in done.err
