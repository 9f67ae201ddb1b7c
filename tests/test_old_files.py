"""Files as the version of November 2026 wrote them: they load, resume and account to the same numbers for ever."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

import tacit
from tacit.accounting import curve
from tacit.accounting.events import from_json
from tacit.cli import app
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger

OLD = Path(__file__).parent / "old_files"
EXPECTED = json.loads((OLD / "expected.json").read_text())
EVENTS = json.loads((OLD / "events.json").read_text())
CHECKPOINTS = sorted(path.name for path in (OLD / "checkpoints").iterdir())


class as_tight_as:  # noqa: N801 - reads like pytest.approx
    """An epsilon within the interval that was certified then: no larger, and smaller only by what was left open."""

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def __eq__(self, other: object) -> bool:
        return self.epsilon * (1 - 6e-4) <= other <= self.epsilon * (1 + 1e-9)

    def __repr__(self) -> str:
        return f"at most {self.epsilon}"


def data():
    return torch.randn(60, 3, generator=torch.Generator().manual_seed(1)), torch.arange(60) % 2


@pytest.fixture
def old(tmp_path):
    """A copy that may be written to."""
    shutil.copytree(OLD, tmp_path / "old")
    return tmp_path / "old"


@pytest.mark.slow
@pytest.mark.parametrize(
    "known", json.loads((OLD / "events.json").read_text()), ids=lambda known: known["event"]["event"]
)
def test_an_event_costs_what_it_cost(known):
    event = from_json(json.dumps(known["event"]))
    assert curve(event).epsilon(1e-5) == as_tight_as(known["epsilon"])


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_is_resumed_and_finished(old, name):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    run = tacit.PrivateRun.resume(old / "checkpoints" / name, model, cross_entropy, data=data(), optimizer=optimizer)
    known = EXPECTED[name]
    assert run.step == known["step"]
    assert model.weight.detach().flatten().tolist() == known["weight"]
    if known["epsilon"] is not None:
        assert run.guarantee().epsilon(1e-5) == as_tight_as(known["epsilon"])
    for lot in run:
        run.backward(lot)
        optimizer.step()
    assert run.step == run.steps == 6


@pytest.mark.slow
def test_a_ledger_accounts_to_the_same_number_and_can_be_charged(old):
    ledger = Ledger(old / "old.ledger")
    assert ledger.account("patients").epsilon(1e-5) == as_tight_as(EXPECTED["ledger"]["epsilon"])
    ledger.spend("patients", from_json(json.dumps(EVENTS[0]["event"])))
    assert ledger.account("patients").epsilon(1e-5) > EXPECTED["ledger"]["epsilon"]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["run", "recipe"])
def test_a_guarantee_says_the_same_number(old, folder):
    text = (old / folder / "guarantee.json").read_text()
    guarantee = Guarantee.from_json(text)
    said = json.loads(text)["proven"]["epsilon_upper"]
    assert guarantee.epsilon(guarantee.delta) == as_tight_as(said)


def test_a_model_trained_by_recipe_predicts(old):
    from sklearn.datasets import load_iris

    from tacit.estimators import load

    x, y = load_iris(return_X_y=True)
    assert load(old / "recipe").predict(x).shape == y.shape


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["run", "recipe", "compared"])
def test_a_folder_is_reported(old, folder):
    result = CliRunner().invoke(app, ["report", str(old / folder)])
    assert result.exit_code == 0, result.output
    assert (old / folder / "report.html").exists()
