"""`tacit train`: what it writes and says, that stopping costs nothing, and that nonsense is refused."""

import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tacit.accounting import Gaussian, curve
from tacit.datasets import SHIPPED, load
from tacit.guarantee import Guarantee
from tacit.workflows import progress

RUN = [sys.executable, "-c", "from tacit.cli import main; main()"]
FILES = {"model.safetensors", "guarantee.json", "metrics.json", "settings.json", "journal.jsonl"} | {
    "run.safetensors",
    "run.previous.safetensors",
}

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")


def refusal(run) -> str:
    assert run.code == 2
    assert run.out == ""
    assert run.err.count("\n") == 1
    assert run.err.startswith("Error: ")
    return run.err


def same_weights(one, other) -> bool:
    first, second = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_leaves_model_guarantee_and_metrics(run_cli, tmp_path):
    run = run_cli("train iris --epsilon 3 --delta 1e-4 --steps 12 --out first")
    assert (run.code, run.err) == (0, "")
    assert {file.name for file in (tmp_path / "first").iterdir()} == FILES
    guarantee = Guarantee.from_json((tmp_path / "first/guarantee.json").read_text())
    assert 2.9 < guarantee.epsilon(1e-4) <= 3
    metrics = json.loads((tmp_path / "first/metrics.json").read_text())
    assert [row["step"] for row in metrics["test"]] == [4, 8, 12]
    assert metrics["is_finished"]


def test_the_accuracy_is_that_of_the_weights_that_were_written(run_cli, tmp_path):
    out = run_cli("train iris --multiplier 4 --steps 12 --out first").out
    inputs, targets = load("iris").test
    weights = load_file(tmp_path / "first/model.safetensors")
    found = (inputs @ weights["1.weight"].numpy().T + weights["1.bias"].numpy()).argmax(1)
    share = float(np.mean(found == targets))
    assert f"test accuracy {100 * share:.2f} % on {len(targets)} public examples" in out
    assert json.loads((tmp_path / "first/metrics.json").read_text())["test"][-1]["accuracy"] == share


def test_the_plan_is_said_before_and_kept_after(run_cli):
    said = run_cli("train iris --multiplier 2 --delta 1e-5 --steps 10 --lot-size 20 --population 100 --out first").out
    epsilon = curve(Gaussian(2.0).sampled(0.2) * 10).epsilon(1e-5)
    shown = re.search(r"multiplier 2.0000, as given: epsilon ([\d.]+) at delta 1e-05 \(add/remove one", said)[1]
    assert epsilon <= float(shown) < epsilon + 1e-4
    assert "10 steps with lots of 20 expected out of 100 examples (rate 0.2, 2 epochs)." in said
    assert "the population of 100 (declared by you" in said
    assert f"Proven: epsilon {shown[:4]}" in said
    assert "The population of 100 is public: declared by" in said
    assert run_cli("train --resume first --json").code == 0


def test_the_published_population_is_taken_unless_one_is_declared(run_cli, tmp_path):
    images = np.zeros((20, 28, 28), np.uint8)
    labels = np.arange(20, dtype=np.uint8) % 10
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    out = run_cli("train mnist --data-path . --multiplier 1.1 --steps 2").out
    assert "lots of 256 expected out of 60,000 examples" in out
    assert "the population of 60,000 (the published size of mnist" in out
    assert (tmp_path / "runs/mnist-1/model.safetensors").exists()


@pytest.mark.parametrize(
    "line",
    [
        "digits --method noisy_adam --multiplier 4 --model mlp",
        "diabetes --method noisy_sgd --multiplier 3 --micro-batch 5",
        "wine --epsilon 1 --clip-norm 0.5 --learning-rate 0.1 --lot-size 30",
        "breast-cancer --multiplier 4",
    ],
)
def test_json_holds_the_score_and_the_guarantee(run_cli, line):
    run = run_cli(f"train {line} --steps 3 --json")
    assert (run.code, run.err) == (0, "")
    said = json.loads(run.out)
    assert said["steps"] == 3
    assert set(said["score"]) == {"rmse" if "diabetes" in line else "accuracy", "interval"}
    assert said["guarantee"]["proven"]["epsilon_upper"] <= said["settings"]["epsilon"]
    assert said["guarantee"]["violations"] == []
    assert said["folder"].startswith("runs/")


def test_a_run_on_its_own_gets_the_next_free_folder(run_cli, tmp_path):
    for _ in range(2):
        run_cli("train iris --multiplier 3 --steps 1")
    assert {folder.name for folder in (tmp_path / "runs").iterdir()} == {"iris-1", "iris-2"}


def test_a_seed_gives_the_same_model_and_is_not_for_release(run_cli, tmp_path):
    for out in ("one", "two"):
        said = run_cli(f"train digits --multiplier 4 --steps 5 --seed 1 --out {out}").out
        assert "do not release this model" in said
        assert "NOT FOR RELEASE" in said
    assert same_weights(tmp_path / "one", tmp_path / "two")
    assert json.loads((tmp_path / "one/guarantee.json").read_text())["violations"] == ["fixed_seed"]
    assert "seed" not in json.loads((tmp_path / "one/metrics.json").read_text())["settings"]


def test_without_a_seed_no_two_models_are_alike(run_cli, tmp_path):
    for out in ("one", "two"):
        run_cli(f"train digits --multiplier 4 --steps 2 --out {out}")
    assert not same_weights(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("method", ["dpsgd", "noisy_adam"])
def test_stopped_and_resumed_is_the_same_as_never_stopped(run_cli, tmp_path, interrupted_at, method):
    line = f"train digits --method {method} --model mlp --multiplier 4 --steps 14 --seed 7"
    run_cli(f"{line} --out whole")
    interrupted_at(step=9)
    stopped = run_cli(f"{line} --out 'in parts'")
    assert stopped.code == 130
    assert "Stopped after step 10 of 14 and saved." in stopped.err
    assert not (tmp_path / "in parts/model.safetensors").exists()
    assert not json.loads((tmp_path / "in parts/metrics.json").read_text())["is_finished"]
    command = stopped.err.partition("Resume with: ")[2]
    assert command == "tacit train --resume 'in parts'\n"
    resumed = run_cli(command.removeprefix("tacit "))
    assert resumed.code == 0
    assert "Resuming after step 10 of 14" in resumed.out
    assert same_weights(tmp_path / "whole", tmp_path / "in parts")
    metrics = [json.loads((tmp_path / out / "metrics.json").read_text()) for out in ("whole", "in parts")]
    # Each run has a secret of its own, with a seed as without.
    assert len({each["data"].pop("fingerprint") for each in metrics}) == 2
    assert metrics[0] == metrics[1]
    guarantees = [(tmp_path / out / "guarantee.json").read_text() for out in ("whole", "in parts")]
    assert guarantees[0] == guarantees[1]


def test_a_stop_costs_nothing_of_the_budget(run_cli, tmp_path, interrupted_at):
    interrupted_at(step=3)
    run_cli("train iris --multiplier 4 --steps 10 --out first")
    run_cli("train --resume first")
    guarantee = Guarantee.from_json((tmp_path / "first/guarantee.json").read_text())
    assert guarantee.notes == ("10 of 10 planned steps were released.",)


def test_a_second_ctrl_c_stops_at_once_and_its_steps_are_paid_for(run_cli, tmp_path, interrupted_at):
    interrupted_at(step=6, times=2)
    stopped = run_cli("train iris --multiplier 3 --delta 1e-5 --steps 10 --out first")
    assert stopped.code == 130
    assert stopped.err.startswith("Stopped at once. Steps since the last save are charged")
    assert stopped.err.endswith(": tacit train --resume first\n")
    said = run_cli("train --resume first").out
    planned = curve(Gaussian(3.0).sampled(32 / 119) * 10).epsilon(1e-5)
    guarantee = Guarantee.from_json((tmp_path / "first/guarantee.json").read_text())
    assert "6 steps fewer than planned" in said
    assert "6 lost steps" in said
    assert guarantee.epsilon(1e-5) == pytest.approx(planned)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("train iris --multiplier 3 --steps 10 --ledger iris.ledger --out first", "train.load_data"),
        ("train iris --multiplier 3 --steps 10 --ledger iris.ledger --out first", "network.resolve_settings"),
        ("train iris --recipe auto --epsilon 1 --ledger iris.ledger --out first", "recipe.make_task"),
        ("tune iris --epsilon 1 --ledger iris.ledger --out first", "tune.load_data"),
    ],
)
def test_a_ctrl_c_before_the_first_step_says_that_nothing_was_spent(run_cli, tmp_path, monkeypatch, line, part):
    monkeypatch.setattr(f"tacit.workflows.{part}", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    stopped = run_cli(line)
    assert (stopped.code, stopped.out) == (130, "")
    assert stopped.err == "Stopped before the first step: nothing was released, and nothing was spent.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_ctrl_c_before_a_resumed_run_steps_says_that_nothing_more_was_spent(run_cli, monkeypatch, interrupted_at):
    interrupted_at(step=1)
    assert run_cli("train iris --multiplier 3 --steps 10 --out first").code == 130
    monkeypatch.setattr("tacit.workflows.network.read_scores", lambda _: signal.raise_signal(signal.SIGINT))
    stopped = run_cli("train --resume first")
    assert stopped.code == 130
    assert stopped.err == "Stopped before the first step: nothing more was released, and nothing more was spent.\n"


@pytest.mark.slow
def test_an_interrupt_from_outside_saves_and_says_how_to_go_on(tmp_path):
    line = "train iris --multiplier 9 --steps 1000000 --seed 1 --out first"
    with subprocess.Popen([*RUN, *line.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        journal = tmp_path / "first/journal.jsonl"
        while not (journal.exists() and journal.stat().st_size):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.startswith("Plan: dpsgd on iris")
    assert err.endswith("Resume with: tacit train --resume first\n")
    assert (tmp_path / "first/run.safetensors").exists()


def test_a_stopped_run_with_json_prints_only_how_to_resume_it(run_cli, interrupted_at):
    interrupted_at(step=1)
    stopped = run_cli("train iris --multiplier 4 --steps 4 --json --out first")
    assert stopped.out == ""
    assert stopped.err.endswith("tacit train --resume first\n")


@pytest.mark.slow
def test_files_that_moved_are_pointed_to_when_resuming(run_cli, tmp_path, interrupted_at):
    (tmp_path / "old").mkdir()
    for name in ("a9a", "a9a.t"):
        (tmp_path / "old" / name).write_text("-1 3:1 11:1\n+1 1:1\n" * 20)
    interrupted_at(step=1)
    assert run_cli("train adult --data-path old --population 40 --multiplier 2 --steps 3 --out first").code == 130
    (tmp_path / "old").rename(tmp_path / "new")
    assert "a9a.t[.gz]" in refusal(run_cli("train --resume first"))
    assert run_cli("train --resume first --data-path new").code == 0


@pytest.mark.slow
def test_the_bar_shows_the_loss_as_private_and_no_file_holds_it(run_cli, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    for name in ("_SECONDS_BETWEEN_LOSSES", "_SECONDS_BETWEEN_EPSILONS"):
        monkeypatch.setattr(progress, name, 0.0)
    run = run_cli("train iris --epsilon 3 --steps 40 --out first")
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", run.err)
    assert re.search(r"40/40 .* left +epsilon [\d.]+ of 3 +test accuracy [\d.]+ %", plain)
    assert "(private)" in plain
    written = "".join((tmp_path / "first" / name).read_text() for name in ("metrics.json", "guarantee.json"))
    assert "loss" not in written.replace("privacy loss", "")


def test_a_log_gets_a_line_now_and_then(run_cli, monkeypatch):
    for name in ("_SECONDS_BETWEEN_LINES", "_SECONDS_BETWEEN_EPSILONS"):
        monkeypatch.setattr(progress, name, 0.0)
    lines = run_cli("train iris --multiplier 4 --steps 3 --lot-size 40").err.splitlines()
    assert len(lines) == 1
    assert re.fullmatch(r"epoch 1, epsilon [\d.]+ of [\d.]+, test accuracy [\d.]+ %, about \d+ s left", lines[0])


def test_the_model_says_what_it_is(run_cli, tmp_path):
    run_cli("train iris --multiplier 4 --steps 1 --out first")
    with safe_open(tmp_path / "first/model.safetensors", framework="pt") as file:
        assert {"data": "iris", "model": "linear", "method": "dpsgd"}.items() <= file.metadata().items()


def test_training_learns(run_cli):
    said = json.loads(run_cli("train breast-cancer --epsilon 8 --seed 1 --json").out)
    assert said["score"]["accuracy"] > 0.85


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mnsit --epsilon 1", "Did you mean mnist?"),
        ("", "a9a, adult, bank"),
        ("mnist --epsilon 1 --data-path .", "raw, for mnist.npz, or else for all of train-images-idx3-ubyte[.gz]"),
        (
            "adult --epsilon 1 --data-path .",
            "adult.data[.gz] with adult.test[.gz], for adult.zip, or else for a9a[.gz] with a9a.t[.gz]",
        ),
        ("iris --epsilon 1 --multiplier 1", "Both --epsilon and --multiplier were given"),
        ("iris", "exactly one of --epsilon and --multiplier"),
        ("iris --epsilon 1 --clip-norm -1", "clip_norm must be a finite number above 0. Got -1."),
        ("iris --epsilon 0", "epsilon must be a finite number above 0. Got 0."),
        ("iris --epsilon 1 --delta 2", "delta must be a number strictly between 0 and 1. Got 2."),
        ("iris --multiplier 0", "multiplier must be a finite number above 0. Got 0."),
        ("iris --epsilon 1 --learning-rate nan", "learning_rate must be a number above 0 and below 1e+30. Got nan."),
        ("iris --epsilon 1 --steps 1.5", "steps must be a whole number of at least 1. Got 1.5."),
        ("iris --epsilon 1 --steps 1 --epochs 1", "--steps and --epochs"),
        ("iris --epsilon 1 --lot-size 200", "lot_size must be at most the population. Got 200 out of 119."),
        ("iris --epsilon 1 --population 0", "population must be a whole number of at least 1. Got 0."),
        ("iris --epsilon 1 --micro-batch 0", "micro_batch must be a whole number of at least 1. Got 0."),
        ("iris --epsilon 1 --seed -1", "seed must be a whole number of at least 0. Got -1."),
        ("iris --epsilon 1 --model cnn", "--model cnn is for images of 28 x 28 pixels, or of 32 x 32 in colour."),
        ("--resume none", "There is no run in none: settings.json cannot be read"),
        ("iris --resume none --epsilon 1", "but iris, --epsilon was given too."),
    ],
)
def test_nonsense_is_refused_in_one_sentence_and_leaves_no_file(run_cli, tmp_path, line, words):
    assert words in refusal(run_cli(f"train {line}"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_a_run_is_not_written_over(run_cli):
    run_cli("train iris --multiplier 3 --steps 1 --out first")
    message = refusal(run_cli("train iris --multiplier 3 --steps 1 --out first"))
    assert "already holds a run" in message
    assert "--resume first" in message


def test_a_file_is_no_folder_to_write_to(run_cli, tmp_path):
    (tmp_path / "first").write_text("")
    assert "--out must be a folder" in refusal(run_cli("train iris --multiplier 3 --steps 1 --out first"))
    assert "cannot be written to" in refusal(run_cli("train iris --multiplier 3 --steps 1 --out first/second"))


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1}', '{"version": 9}'])
def test_settings_that_tacit_did_not_write_are_refused(run_cli, tmp_path, text):
    (tmp_path / "settings.json").write_text(text)
    assert "settings.json" in refusal(run_cli("train --resume ."))


def test_settings_alone_are_no_run(run_cli, tmp_path):
    run_cli("train iris --multiplier 3 --steps 1 --out first")
    (tmp_path / "first/run.safetensors").unlink()
    assert "run.safetensors is missing" in refusal(run_cli("train --resume first"))


def test_the_help_names_every_data_set_and_the_way_back(run_cli):
    out = re.sub(r"-\s+", "-", run_cli("train --help").out)
    for word in (*SHIPPED, "--resume", "--data-path", "--micro-batch", "--json", "Ctrl-C"):
        assert word in out
