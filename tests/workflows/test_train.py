"""`tacit.train`: data by name, from a table or as arrays; callbacks, stopping and resuming; refusals."""

import json
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_iris

import tacit
from support.report_folders import BOUNDS, flowers_in
from tacit.accounting import Gaussian, curve
from tacit.errors import CannotResume, Caution, InvalidArgument
from tacit.guarantee import Guarantee, Status
from tacit.ledger import Ledger
from tacit.workflows.progress import Interrupted

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")
SHORT = {"multiplier": 4.0, "delta": 1e-5, "lot_size": 30, "steps": 6}
FLOWERS = load_iris()
ARRAYS = (FLOWERS.data.astype(np.float32) / 8, FLOWERS.target)


def test_a_data_set_by_name_gives_the_model_the_score_and_the_guarantee_of_its_folder(tmp_path):
    run = tacit.train("iris", epsilon=3, steps=12, out="first")
    assert run.folder == tmp_path / "first" or run.folder.resolve() == tmp_path / "first"
    weights = load_file(run.folder / "model.safetensors")
    assert all(torch.equal(value, weights[name]) for name, value in run.model.state_dict().items())
    inputs, targets = run.data.test
    assert run.score.value == np.mean(tacit.load(run.folder).score_inputs(inputs).argmax(1) == targets)
    assert 2.9 < run.guarantee.epsilon(1e-5) <= 3
    assert Guarantee.from_json((run.folder / "guarantee.json").read_text()) == run.guarantee
    assert f"{100 * run.score.value:.2f} %" in str(run)


def test_the_noise_follows_from_the_options():
    run = tacit.train("iris", population=100, **{**SHORT, "lot_size": 20})
    expected = curve(Gaussian(4.0).sampled(0.2) * 6).epsilon(1e-5)
    assert run.guarantee.epsilon(1e-5) == pytest.approx(expected)
    assert run.settings.epsilon == pytest.approx(expected)


def test_an_epsilon_alone_is_trained_by_recipe_and_its_model_can_be_loaded():
    run = tacit.train("iris", epsilon=8, seed=0)
    assert run.settings.recipe["kind"] == "table"
    inputs, targets = run.data.test
    loaded = tacit.load(run.folder)
    assert np.mean(loaded.score_inputs(inputs).argmax(1) == targets) == run.score.value


@pytest.mark.parametrize("as_frame", [True, False])
def test_a_table_is_trained_on_within_its_declared_bounds(tmp_path, as_frame):
    path = flowers_in(tmp_path)
    table = load_iris(as_frame=True).frame if as_frame else path
    run = tacit.train(table, target="target", bounds=tmp_path / "bounds.toml", seed=0, **SHORT)
    # A fifth of the declared 150 rows is held out, and scored with noise.
    assert run.settings.population == 120
    assert run.data.shape == (2,)
    assert run.score.noise_std > 0
    assert {"private_test", "public_population"} <= {one.key for one in run.guarantee.assumptions}


@pytest.mark.slow
def test_arrays_are_trained_on_without_a_score():
    run = tacit.train(ARRAYS, population=150, classes=3, **SHORT)
    assert run.score is None
    assert run.settings.population == 150
    assert run.predict(ARRAYS[0][:5]).shape == (5,)
    assert set(run.predict(ARRAYS[0])) <= {0, 1, 2}
    numbers = tacit.train((ARRAYS[0], ARRAYS[0][:, :1]), population=150, **SHORT)
    assert numbers.predict(ARRAYS[0]).shape == (150,)


@pytest.mark.slow
def test_a_run_on_arrays_is_resumed_with_the_same_arrays():
    with pytest.raises(Interrupted):
        tacit.train(ARRAYS, population=150, classes=3, seed=1, out="parts", callbacks=[stop_after(2)], **SHORT)
    with pytest.raises(CannotResume, match="arrays"):
        tacit.train(resume="parts")
    resumed = tacit.train(ARRAYS, resume="parts", classes=3)
    whole = tacit.train(ARRAYS, population=150, classes=3, seed=1, **SHORT)
    assert same_weights(resumed.model, whole.model)


@pytest.mark.slow
def test_a_run_on_a_frame_is_resumed_with_the_same_frame(tmp_path):
    flowers_in(tmp_path)
    frame, own = load_iris(as_frame=True).frame, {"target": "target", "bounds": "bounds.toml"}
    with pytest.raises(Interrupted):
        tacit.train(frame, seed=1, out="parts", callbacks=[stop_after(2)], **own, **SHORT)
    with pytest.raises(CannotResume, match="DataFrame"):
        tacit.train(resume="parts")
    whole = tacit.train(frame, seed=1, **own, **SHORT)
    assert same_weights(tacit.train(frame, resume="parts").model, whole.model)


def test_a_run_on_a_data_set_by_name_is_not_resumed_on_other_data():
    tacit.train("iris", out="first", **SHORT)
    with pytest.raises(InvalidArgument, match="Leave out `data`"):
        tacit.train(ARRAYS, resume="first", classes=3)


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (ARRAYS, {"classes": 3}, "population"),
        (ARRAYS, {"population": 150}, "classes"),
        ((ARRAYS[0], ARRAYS[1][:9]), {"population": 150, "classes": 3}, "shapes"),
        (load_iris(as_frame=True).frame, {}, "target= and bounds="),
        (None, {}, "Which data"),
        ("irsi", {}, "Did you mean iris"),
    ],
    ids=["population", "classes", "shapes", "bounds", "nothing", "name"],
)
def test_data_without_what_they_need_are_refused(data, options, words):
    with pytest.raises(InvalidArgument, match=words):
        tacit.train(data, **options, **SHORT)


@pytest.mark.parametrize(("wrong", "right"), [("epsilom", "epsilon"), ("lotsize", "lot_size"), ("step", "steps")])
def test_an_unknown_option_names_the_closest(tmp_path, wrong, right):
    with pytest.raises(InvalidArgument, match=rf"'{wrong}'.*'{right}'"):
        tacit.train("iris", **{wrong: 1})
    assert not list(tmp_path.iterdir())


def stop_after(step):
    return lambda made: made.number == step


def same_weights(one, other):
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("options", [SHORT, {"epsilon": 5, "recipe": "auto"}], ids=["network", "recipe"])
def test_callbacks_see_every_step(options):
    seen, counted = [], []
    run = tacit.train("iris", seed=0, callbacks=[lambda step: seen.append(step.number), counted.append], **options)
    assert seen == list(range(1, run.settings.steps + 1))
    assert [step.lot.step for step in counted] == list(range(run.settings.steps))


@pytest.mark.slow
@pytest.mark.parametrize("options", [SHORT, {"epsilon": 5, "recipe": "auto"}], ids=["network", "recipe"])
def test_a_callback_that_returns_true_stops_after_saving_and_the_run_is_resumed(options):
    whole = tacit.train("iris", seed=3, out="whole", **options)
    after = []
    with pytest.raises(Interrupted, match=r"step 4 of .* saved.*tacit train --resume parts"):
        tacit.train("iris", seed=3, out="parts", callbacks=[stop_after(4), lambda _: after.append(1)], **options)
    # Every callback sees the last step.
    assert len(after) == 4
    metrics = json.loads((whole.folder.parent / "parts" / "metrics.json").read_text())
    assert (metrics["steps"], metrics["is_finished"]) == (4, False)
    seen = []
    resumed = tacit.train(resume="parts", callbacks=[lambda step: seen.append(step.number)])
    assert seen == list(range(5, whole.settings.steps + 1))
    assert same_weights(resumed.model, whole.model)
    assert resumed.guarantee.epsilon(1e-5) == whole.guarantee.epsilon(1e-5)


def test_ctrl_c_is_a_keyboard_interrupt_that_says_how_to_resume():
    def press(step):
        if step.number == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="Resume with: tacit train --resume first") as stop:
        tacit.train("iris", out="first", callbacks=[press], **SHORT)
    assert isinstance(stop.value, Interrupted)
    assert tacit.train(resume="first").metrics["steps"] == 6


def test_what_a_run_was_planned_with_cannot_change_when_it_is_resumed():
    tacit.train("iris", out="first", **SHORT)
    with pytest.raises(InvalidArgument, match="--epsilon"):
        tacit.train(resume="first", epsilon=3)
    with pytest.raises(CannotResume):
        tacit.train(resume="nothing")


def test_the_plan_is_announced_before_the_first_step():
    order = []
    announce = lambda paragraphs: order.append(paragraphs[0][0])  # noqa: E731
    tacit.train("iris", announce=announce, callbacks=[lambda step: order.append(step.number)], **SHORT)
    assert order == ["Plan: dpsgd on iris", 1, 2, 3, 4, 5, 6]


def test_a_run_is_charged_to_its_ledger():
    run = tacit.train("iris", ledger="iris.ledger", **SHORT)
    [charge] = Ledger("iris.ledger").account("iris").charges
    assert (charge.is_settled, charge.run) == (True, run.booking.run)
    assert charge.event == run.guarantee.event


def test_a_refuted_method_is_warned_of_and_nothing_is_claimed():
    with pytest.warns(Caution, match=r"Xiang et al. 2023 about pruned as published is refuted"):
        run = tacit.train("iris", method="pruned", mode="paper", **SHORT)
    assert run.guarantee.status is Status.REFUTED
    assert run.guarantee.epsilon(1e-5) == np.inf


def test_a_large_delta_is_warned_of():
    with pytest.warns(Caution, match="one over the population"):
        tacit.train("iris", **{**SHORT, "delta": 0.02})


@pytest.mark.slow
def test_a_run_writes_its_own_report():
    page = tacit.train("iris", out="first", **SHORT).report("page")
    assert page.name == "report.html"
    assert "dpsgd on iris" in page.read_text()


def test_a_declared_number_of_rows_far_from_the_table_is_taken_with_a_warning(tmp_path):
    flowers_in(tmp_path, BOUNDS.replace("rows = 150", "rows = 1500"))
    with pytest.warns(Caution, match="declared population of 1,200"):
        run = tacit.train("flowers.csv", target="target", bounds="bounds.toml", **SHORT)
    assert run.settings.population == 1200
