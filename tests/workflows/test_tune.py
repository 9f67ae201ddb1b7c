"""`tacit.tune`: the best of a search, with the guarantee of the whole search."""

import pytest
import torch
from safetensors.torch import load_file

import tacit
from tacit.accounting import EpsilonDelta
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee
from tacit.workflows.progress import Interrupted

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")
SEARCH = {"epsilon": 3, "delta": 1e-5, "lot_size": [119], "steps": [3, 6], "clip_norm": [0.5, 1], "trials": 2}


def test_the_best_trial_is_in_the_folder_and_the_guarantee_covers_the_search():
    announced = []
    tuned = tacit.tune("iris", learning_rate="0.1:10", out="best", announce=announced.extend, **SEARCH)
    settings = tuned.best.settings
    assert settings.steps in (3, 6)
    assert settings.clip_norm in (0.5, 1)
    assert 0.1 <= settings.learning_rate <= 10
    assert isinstance(tuned.guarantee.event, EpsilonDelta)
    assert 2.9 < tuned.guarantee.epsilon(1e-5) <= 3
    assert Guarantee.from_json((tuned.folder / "guarantee.json").read_text()) == tuned.guarantee
    weights = load_file(tuned.folder / "model.safetensors")
    assert all(torch.equal(value, weights[name]) for name, value in tuned.best.weights.items())
    assert tuned.to_json()["score"]["accuracy"] == tuned.best.score.value
    assert f"{100 * tuned.best.score.value:.2f} %" in str(tuned)
    assert len(announced) == 1


@pytest.mark.slow
def test_a_seed_repeats_the_search():
    first, second = (tacit.tune("iris", seed=3, **SEARCH) for _ in range(2))
    assert first.best.score == second.best.score
    assert first.guarantee.violations == second.guarantee.violations == ("fixed_seed",)


def test_what_changes_the_cost_of_a_trial_is_a_list():
    with pytest.raises(InvalidArgument, match="--lot-size changes"):
        tacit.tune("iris", epsilon=3, lot_size="10:20")
    with pytest.raises(InvalidArgument, match="no option 'trial'"):
        tacit.tune("iris", epsilon=3, trial=2)


def test_ctrl_c_says_what_the_search_has_cost(monkeypatch):
    def press(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tacit.workflows.tune.fit", press)
    with pytest.raises(Interrupted) as stop:
        tacit.tune("iris", **SEARCH)
    assert str(stop.value)
