"""Tables with several rows for each person: what is released of them protects a person."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import tacit
from tacit.datasets import Bounds, load_table
from tacit.errors import InvalidArgument
from tacit.estimators import PrivateClassifier, PrivateLogisticRegression, PrivateRegressor
from tacit.features import PrivateCentring, PrivateWhitening, PrivateWordWeights
from tacit.training.people import Owners
from tacit.workflows.ledger import describe_standing
from tacit.workflows.scoring import _find_terms

BOUNDS = """
people = 300
rows_per_unit = 5
held_out = 0.25
[columns]
patient = { type = "unit" }
age = { low = 0, high = 100 }
dose = { low = 0, high = 10 }
outcome = ["ill", "well"]
"""


def visits(people: int = 300, seed: int = 0) -> pd.DataFrame:
    """One to nine visits of each person; the dose decides the outcome."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(people), rng.integers(1, 10, people))
    dose = np.clip(rng.uniform(0, 10, people)[patient] + rng.normal(size=len(patient)), 0, 10)
    outcome = np.where(dose + rng.normal(size=len(dose)) > 5, "well", "ill")
    ages = rng.uniform(20, 90, people)[patient]
    return pd.DataFrame({"patient": patient, "age": ages, "dose": dose, "outcome": outcome})


@pytest.fixture
def bounds(tmp_path):
    path = tmp_path / "bounds.toml"
    path.write_text(BOUNDS)
    return path


def test_all_rows_of_a_person_are_on_one_side_and_people_are_counted(bounds):
    data = load_table(visits(), target="outcome", bounds=bounds)
    train, test = map(set, data.owners)
    assert not train & test
    assert len(train | test) == 300
    assert data.population == 225
    assert data.shape == (2,)
    without = load_table(visits().query("patient != 7"), target="outcome", bounds=bounds)
    assert set(without.owners[0]) == train - {"7"}


@pytest.mark.parametrize("options", [{}, {"recipe": "none", "steps": 5, "lot_size": 50}], ids=["recipe", "network"])
def test_a_run_protects_people_and_its_ledger_says_so(bounds, tmp_path, options):
    ledger = tmp_path / "visits.ledger"
    visits().to_csv(tmp_path / "visits.csv", index=False)
    run = tacit.train(
        str(tmp_path / "visits.csv"), target="outcome", bounds=bounds, epsilon=0.1, out=tmp_path / "run",
        ledger=str(ledger), dataset="visits", **options,
    )  # fmt: skip
    assert run.guarantee.unit == "person"
    assert run.guarantee.epsilon(run.guarantee.delta) <= 0.1
    assert "add/remove one person" in str(run.guarantee)
    assert {charge.about["unit"] for charge in tacit.Ledger(ledger).account("visits").charges} == {"person"}
    assert run.score is not None
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert settings["population"] == 225
    assert "add/remove one person" in describe_standing(tacit.Ledger(ledger), "visits", "1")
    report = tacit.report(tmp_path / "run", baseline=False)
    facts = report.facts["guarantee"]
    said = json.dumps({name: facts[name] for name in ("adjacency", "sampling", "unprotected", "statement", "unit")})
    assert "example" not in said.replace("Test examples", "")
    assert "each person is in each lot" in said
    assert "people on average" in dict(report.facts["settings_in_words"])["Lots"]
    assert not any("rows" in each for each in report.facts["utility"]["sentences"][:3])
    page = report.page.read_text()
    assert "25 % of the people, by a hash of each id" in page
    assert "add/remove one example" not in page


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"recipe": "none", "steps": 5, "lot_size": 50}], ids=["recipe", "network"])
def test_an_audit_attacks_people(bounds, tmp_path, options):
    visits().to_csv(tmp_path / "visits.csv", index=False)
    run = tmp_path / "run"
    asked = {"target": "outcome", "bounds": bounds, "epsilon": 1.0, "out": run, "seed": 1, **options}
    tacit.train(str(tmp_path / "visits.csv"), **asked)
    found = tacit.audit_run(run, canaries=20, steps=4, shadows=2, seed=1, workers=1)
    data = load_table(visits(), target="outcome", bounds=bounds)
    trained_on, others = (len(set(ids)) for ids in data.owners)
    assert found.target.counted == (f"{trained_on} people trained on", f"{others} others")
    assert {(roc.members, roc.others) for roc in found.membership.values()} == {(trained_on, others)}
    assert found.releases.passed
    assert {"lots", "sums", "noise"} <= set(found.releases.checked)
    assert "20 gradient canaries, each of them a person" in str(found.report)


def test_a_person_with_a_thousand_rows_moves_what_is_released_before_training_as_one_row_does():
    """Neighbours that differ by that person, with the same noise: the difference is what the person adds."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1050, 6)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    # Rows in one direction: no mean of them is shorter than a row.
    rows[50:] = np.eye(6, dtype=np.float32)[0]
    ids = np.r_[np.repeat(np.arange(25), 2), np.full(1000, 99)]
    for make, bound in (
        (lambda: PrivateCentring(1e-6, 1, random_state=0), 1.0),
        (lambda: PrivateWordWeights(1e-6, 1, random_state=0), 1.0),
    ):
        both = [make().fit(part, shares=Owners.of(own, len(own)).shares) for part, own in _neighbours(rows, ids)]
        assert np.linalg.norm(both[0].mean_ - both[1].mean_) == pytest.approx(bound, rel=1e-4)
        alone = [make().fit(part) for part, _ in _neighbours(rows, ids)]
        assert np.linalg.norm(alone[0].mean_ - alone[1].mean_) > 900
    whitening = PrivateWhitening(1e-6, 1, axes=(6,), random_state=0)
    moments = [
        whitening._release_moments(part, np.zeros(6, np.float32), Owners.of(own, len(own)).shares)[0][0]
        for part, own in _neighbours(rows, ids)
    ]
    assert np.linalg.norm(moments[0] - moments[1]) == pytest.approx(1.0, rel=1e-4)


def _neighbours(rows, ids):
    return (rows, ids), (rows[ids != 99], ids[ids != 99])


def test_a_person_adds_at_most_one_to_the_held_out_score(bounds):
    table = visits()
    many = pd.concat([table, pd.DataFrame({"patient": 5000, "age": 50.0, "dose": 9.0, "outcome": ["ill"] * 500})])
    data = load_table(many, target="outcome", bounds=bounds)
    terms = _find_terms(torch.nn.Linear(2, 2), data)
    assert len(terms) == len(set(data.owners[1]))
    assert terms.sum(1).max() <= 1 + 1e-12


def test_estimators_protect_people():
    table = visits()
    x = table[["age", "dose"]].to_numpy() / [50, 5] - 1
    y = (table["outcome"] == "well").to_numpy().astype(int)
    ids = table["patient"].to_numpy()
    shared = {"epsilon": 4.0, "population": 300, "rows_per_unit": 5, "random_state": 0}
    by_recipe = PrivateClassifier(recipe="auto", classes=[0, 1], **shared).fit(x, y, unit=ids)
    network = PrivateClassifier(classes=[0, 1], steps=30, lot_size=60, **shared).fit(x, y, unit=ids)
    regressor = PrivateRegressor(target_bound=1.0, steps=10, lot_size=60, **shared).fit(x, y, unit=ids)
    for model in (by_recipe, network, regressor):
        assert model.guarantee_.unit == "person"
        assert model.guarantee_.epsilon(1e-5) <= 4
    assert by_recipe.recipe_.layout == "knots"
    assert by_recipe.score(x, y) > 0.7


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("rows_per_unit = 5\n", ""), "rows_per_unit must be declared"),
        (('patient = { type = "unit" }\n', ""), "needs a column"),
        (("age = { low = 0, high = 100 }", 'age = { type = "unit" }'), "Only one"),
        (("people = 300\n", ""), "number of people"),
    ],
)
def test_incomplete_declarations_of_people_are_refused(change, said):
    with pytest.raises(InvalidArgument, match=said):
        load_table(visits(), target="outcome", bounds=Bounds.parse(BOUNDS.replace(*change)))


def test_what_protects_single_rows_only_refuses_people(bounds, tmp_path):
    table = visits()
    own = {"target": "outcome", "bounds": bounds, "epsilon": 1, "out": tmp_path / "out"}
    with pytest.raises(InvalidArgument, match="single rows"):
        tacit.train(table, method="objective_perturbation", **own)
    with pytest.raises(InvalidArgument, match="single rows"):
        tacit.compare(table, **(own | {"epsilon": [1]}))
    x, y = table[["age"]].to_numpy(), (table["outcome"] == "well").to_numpy()
    with pytest.raises(InvalidArgument, match="single rows"):
        PrivateLogisticRegression(data_norm=1.0).fit(x, y, unit=table["patient"])
    with pytest.raises(InvalidArgument, match="single rows"):
        PrivateClassifier(method="input", data_norm=1.0, rows_per_unit=2).fit(x, y, unit=table["patient"])
    with pytest.raises(InvalidArgument, match="go together"):
        PrivateClassifier(rows_per_unit=2).fit(x, y)
