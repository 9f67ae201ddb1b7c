"""Runs that protect people with several rows: gradients against single passes, neighbours that differ by a person."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tacit import Budget, Ledger, Poisson, PrivateRun
from tacit.errors import InvalidArgument
from tacit.gradients import per_example_gradients
from tacit.gradients.units import average_rows
from tacit.methods import adaclip, directional, dpsgd
from tacit.stages.sampling import FullBatch
from tacit.training.people import Owners

COUNTS = torch.tensor([1, 3, 2, 5])
CLIP = 0.5


class Tied(nn.Module):
    """Words, looked up and predicted by one table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix = nn.Embedding(7, 4), nn.Linear(4, 4)

    def forward(self, words):
        return self.mix(self.table(words)).mean(1) @ self.table.weight.T


MODELS = {
    "linear": (nn.Linear(3, 2), (3,), 2),
    "wide": (nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 2)), (40,), 2),
    "sequence": (nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Flatten(), nn.Linear(80, 2)), (4, 6), 2),
    "convolution": (nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(48, 2)), (1, 6, 6), 2),
    "words": (nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(20, 2)), None, 2),
    "tied": (Tied(), None, 7),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_persons_gradient_is_the_mean_over_rows(name):
    torch.manual_seed(0)
    model, shape, outputs = MODELS[name]
    model.double()
    inputs = torch.randint(7, (11, 5)) if shape is None else torch.randn(11, *shape, dtype=torch.float64)
    targets = torch.randint(outputs, (len(inputs),))
    parameters = dict(model.named_parameters())
    rows = per_example_gradients(model, F.cross_entropy, inputs, targets)
    found = average_rows(rows, COUNTS, parameters)
    weights = torch.rand(len(COUNTS), dtype=torch.float64)
    expected = {key: torch.zeros(len(COUNTS), *value.shape, dtype=value.dtype) for key, value in parameters.items()}
    start = 0
    for person, count in enumerate(COUNTS.tolist()):
        part = slice(start, start + count)
        alone = torch.autograd.grad(F.cross_entropy(model(inputs[part]), targets[part]), list(parameters.values()))
        for key, value in zip(parameters, alone, strict=True):
            expected[key][person] = value
        start += count
    squares = sum(value.flatten(1).square().sum(1) for value in expected.values())
    torch.testing.assert_close(found.norms(), squares.sqrt())
    sums, dense = found.weighted_sum(weights), found.dense()
    for key, value in expected.items():
        torch.testing.assert_close(dense[key], value)
        torch.testing.assert_close(sums[key], torch.einsum("b,b...->...", weights, value))


def test_a_row_that_is_not_finite_spoils_its_own_person_only():
    inputs = torch.randn(11, 3)
    inputs[4] = torch.nan
    model, targets = nn.Linear(3, 2), torch.randint(2, (11,))
    rows = per_example_gradients(model, F.cross_entropy, inputs, targets)
    norms = average_rows(rows, COUNTS, dict(model.named_parameters())).norms()
    assert norms.isfinite().tolist() == [True, True, False, True]


def _people(seed: int, *, has_crowd: bool) -> tuple[tuple[torch.Tensor, torch.Tensor], np.ndarray]:
    """Twenty people with one to four rows; and one with a thousand rows that pull in one direction."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(20), rng.integers(1, 5, 20))
    x, y = rng.normal(size=(len(ids), 6)), rng.integers(0, 2, len(ids))
    if has_crowd:
        ids = np.concatenate([ids, np.full(1000, 99)])
        x, y = np.concatenate([x, np.full((1000, 6), 30.0)]), np.concatenate([y, np.zeros(1000, np.int64)])
    return (torch.from_numpy(x), torch.from_numpy(y)), ids


def _first_release(has_crowd: bool, method, **options) -> torch.Tensor:
    torch.manual_seed(0)
    model = nn.Linear(6, 2).double()
    data, ids = _people(1, has_crowd=has_crowd)
    mechanism = method(clip_norm=CLIP, multiplier=0.5)
    run = PrivateRun(
        model, F.cross_entropy, data=data, mechanism=mechanism, sampling=FullBatch(20), steps=1, seed=3,
        unit=ids if options else None, **options,
    )  # fmt: skip
    values = run.release(next(iter(run))).values()
    return 20 * torch.cat([value.flatten() for value in values])


@pytest.mark.parametrize("micro_batch", [None, 8])
def test_a_person_with_a_thousand_rows_moves_the_sum_by_the_clip_norm_at_most(micro_batch):
    options = {"rows_per_unit": 4, "micro_batch": micro_batch}
    moved = _first_release(True, dpsgd, **options) - _first_release(False, dpsgd, **options)
    # The noise is the same in both, and rounded to a grid of a thousandth of it.
    assert moved.norm() == pytest.approx(CLIP, rel=5e-3)
    by_row = _first_release(True, dpsgd) - _first_release(False, dpsgd)
    assert by_row.norm() > 900 * CLIP


def test_rows_are_drawn_evenly_and_without_repeats():
    owners = Owners.of(np.array(["b", "a", "b", "b", "b", "a", "c"]), 7)
    rng, often = np.random.default_rng(0), np.zeros(7)
    for _ in range(4000):
        rows, counts = owners.draw(np.array([0, 1]), 2, rng)
        assert counts.tolist() == [2, 2]
        assert set(rows[:2]) == {1, 5}
        assert len(set(rows[2:])) == 2
        often[rows] += 1
    # Binomial(4000, 1/2): beyond 5 standard deviations with probability below 3e-6 in all four.
    assert np.abs(often[[0, 2, 3, 4]] - 2000).max() < 5 * np.sqrt(1000)
    assert often[6] == 0


def _run(data, ids, **options) -> PrivateRun:
    torch.manual_seed(0)
    settings = {"mechanism": dpsgd(clip_norm=CLIP, multiplier=1.0), "sampling": Poisson(8, 20), "steps": 6, "seed": 1}
    return PrivateRun(nn.Linear(6, 2).double(), F.cross_entropy, data=data, unit=ids, **(settings | options))


def _train(run: PrivateRun, steps: int = 6) -> torch.Tensor:
    optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1)
    for lot, _ in zip(run, range(steps), strict=False):
        run.backward(lot)
        optimizer.step()
    return torch.cat([value.detach().flatten() for value in run.model.parameters()])


class Rows(Dataset):
    """The same rows, one by one."""

    def __init__(self, data) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data[1])

    def __getitem__(self, index: int):
        return self.data[0][index], self.data[1][index]


def test_a_seeded_run_resumes_and_a_data_set_gives_the_same(tmp_path):
    data, ids = _people(2, has_crowd=True)
    whole = _train(_run(data, ids, rows_per_unit=3))
    torch.testing.assert_close(_train(_run(Rows(data), ids, rows_per_unit=3)), whole)
    half = _run(data, ids, rows_per_unit=3)
    _train(half, 3)
    half.save(tmp_path)
    with pytest.raises(InvalidArgument, match="unit"):
        PrivateRun.resume(tmp_path, nn.Linear(6, 2).double(), F.cross_entropy, data=data)
    again = PrivateRun.resume(tmp_path, nn.Linear(6, 2).double(), F.cross_entropy, data=data, unit=ids)
    assert again.plan.rows_per_unit == 3
    torch.testing.assert_close(_train(again, 3), whole)


def test_the_guarantee_is_about_a_person_and_costs_what_the_same_lots_of_examples_cost():
    data, ids = _people(2, has_crowd=True)
    run = _run(data, ids, rows_per_unit=3)
    _train(run)
    rows = _run((data[0][:20], data[1][:20]), None)
    _train(rows)
    guarantee = run.guarantee()
    assert guarantee.unit == "person"
    assert guarantee.epsilon(1e-5) == rows.guarantee().epsilon(1e-5)
    assert "add/remove one person" in str(guarantee)
    assert "unit_is_person" in {each.key for each in guarantee.assumptions}
    assert type(guarantee).from_json(guarantee.to_json()).unit == "person"


def test_a_ledger_keeps_people_and_examples_apart(tmp_path):
    data, ids = _people(2, has_crowd=False)
    ledger = Ledger(tmp_path / "one.ledger")
    _train(_run(data, ids, rows_per_unit=3, ledger=ledger, dataset="visits"))
    with pytest.raises(InvalidArgument, match="person"):
        _run(data, None, ledger=ledger, dataset="visits")
    with pytest.raises(InvalidArgument, match="visits"):
        _run(data, ids, rows_per_unit=3, ledger=ledger, dataset="second")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows_per_unit": None}, "go together"),
        ({"unit": np.array([1.0, np.nan])}, "one id for each row"),
        ({"unit": "missing"}, "missing"),
        ({"micro_batch": 2}, "micro_batch"),
        ({"mechanism": directional(clip_norm=1.0, mode="paper"), "budget": Budget(1, 1e-3)}, "mean of all rows"),
    ],
)  # fmt: skip
def test_what_would_not_protect_a_person_is_refused(change, said):
    data, ids = _people(2, has_crowd=False)
    if isinstance(change.get("unit"), str):
        change = {"unit": [None, *ids[1:].tolist()]}
    with pytest.raises(InvalidArgument, match=said):
        _run(
            data,
            **({"ids": ids, "rows_per_unit": 3} | {"ids" if key == "unit" else key: v for key, v in change.items()}),
        )


@pytest.mark.parametrize("method", [adaclip, dpsgd])
def test_other_bounds_see_people_too(method):
    options = {"rows_per_unit": 4}
    moved = _first_release(True, method, **options) - _first_release(False, method, **options)
    assert moved.isfinite().all()
    assert moved.norm() < 20 * CLIP
