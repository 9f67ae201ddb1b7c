"""Canaries are examples like others: their gradients, their place in lots, and what an attacker sees of them."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from support.slow_gradients import SlowGradients
from tacit.audit.canaries import CanaryGame, Directions, InputCanaries, Recording, WithCanaries
from tacit.errors import InvalidArgument
from tacit.methods import directional, dpsgd
from tacit.stages.bounds import AdaClip, Clip, NormalisedClip, QuantileClip, Whiten
from tacit.stages.sampling import FullBatch, Poisson
from tacit.training.lots import NoGradients
from tacit.training.run import PrivateRun

LIKE = {"first.weight": torch.zeros(40, 50), "first.bias": torch.zeros(40), "second": torch.zeros(7)}


def some_rows(count):
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(count, *value.shape, generator=generator) for name, value in LIKE.items()}


@pytest.fixture
def directions():
    return Directions.draw(LIKE, 30, np.random.default_rng(0))


@pytest.fixture
def mixed(directions):
    """Five real examples and three canaries; and the same as rows that are written out."""
    real = SlowGradients(some_rows(5))
    gradients = WithCanaries(real, directions, torch.tensor([4, 0, 29]), length=10.0)
    return gradients, SlowGradients(gradients.dense())


def test_directions_have_norm_one_and_hardly_overlap(directions):
    flat = torch.stack(
        [torch.cat([v.flatten() for v in directions.scatter(p, w).values()]) for p, w in rows_of(directions)]
    )
    products = flat @ flat.T
    torch.testing.assert_close(products.diag(), torch.ones(30))
    # 2047 parameters: an inner product of two random directions has a standard deviation of 0.022.
    assert products.fill_diagonal_(0).abs().max() < 0.12
    torch.testing.assert_close(directions.project(directions.scatter(*next(rows_of(directions))))[0], torch.tensor(1.0))


def rows_of(directions):
    return zip(directions.places, directions.values, strict=True)


def test_a_lot_with_canaries_does_what_its_rows_written_out_do(mixed):
    gradients, slow = mixed
    assert len(gradients) == len(slow) == 8
    torch.testing.assert_close(gradients.norms(), slow.norms())
    torch.testing.assert_close(gradients.norms()[5:], torch.full((3,), 10.0))
    for name, norms in slow.layer_norms().items():
        torch.testing.assert_close(gradients.layer_norms()[name], norms)
    weights = torch.rand(8, generator=torch.Generator().manual_seed(1))
    by_layer = {name: weights * (number + 1) for number, name in enumerate(LIKE)}
    for name in LIKE:
        torch.testing.assert_close(gradients.weighted_sum(weights)[name], slow.weighted_sum(weights)[name])
        torch.testing.assert_close(
            gradients.weighted_sum_by_layer(by_layer)[name], slow.weighted_sum_by_layer(by_layer)[name]
        )
    vectors = {name: rows[0] for name, rows in some_rows(1).items()}
    torch.testing.assert_close(gradients.products(vectors), slow.products(vectors))
    torch.testing.assert_close(gradients.scaled_norms(vectors), slow.scaled_norms(vectors))


@pytest.mark.parametrize(
    "bound", [Clip(0.5), Clip(0.5, per_layer=True), NormalisedClip(), QuantileClip(), AdaClip(), Whiten()], ids=str
)
def test_a_recorded_sum_is_the_same_sum_and_remembers_the_real_part(bound, mixed):
    gradients, _ = mixed
    recording = Recording(bound)
    state = recording.init(LIKE, 8.0)
    recorded, plain = recording.sum(gradients, state), bound.sum(gradients, state)
    assert recorded.sensitivity == plain.sensitivity
    for name, value in plain.values.items():
        torch.testing.assert_close(recorded.values[name].to(value.dtype), value, atol=1e-5, rtol=1e-5)
    release, after = recording.receive(recorded.rounded(recorded.values), state)
    expected, expected_after = bound.receive(plain.values, state)
    for name in LIKE:
        torch.testing.assert_close(release[name], expected[name], atol=1e-5, rtol=1e-4)
    assert after.keys() == expected_after.keys()
    # What is left once the real part is taken off is what a lot of canaries alone gives.
    alone = bound.sum(WithCanaries(NoGradients(LIKE), gradients.directions, gradients.rows, 10.0), state)
    for name, value in bound.receive(alone.values, state)[0].items():
        torch.testing.assert_close(release[name] - recording.added[0][name], value, atol=1e-4, rtol=1e-3)


def small_game(**settings):
    torch.manual_seed(0)
    model = torch.nn.Linear(30, 10)
    data = (torch.randn(60, 30), torch.randint(10, (60,)))
    return model, data, CanaryGame.draw(model, data, count=40, length=50.0, seed=1, **settings)


def watched_run(model, game, **settings):
    return PrivateRun(
        model,
        F.cross_entropy,
        data=game.data,
        gradients=game.gradients,
        mechanism=game.record_bound(dpsgd(1.0, 1.0)),
        sampling=Poisson(30, 60),
        **settings,
    )


def test_canaries_come_after_the_real_examples_and_are_drawn_like_them():
    model, _, game = small_game()
    included = int(game.included.sum())
    assert 8 < included < 32
    numbers = game.data[0]
    assert len(numbers) == 60 + included
    run = watched_run(model, game, steps=60, seed=0)
    drawn = np.zeros(len(numbers))
    for lot in run:
        drawn[lot.inputs.numpy()] += 1
        run.release(lot)
    # Each number is in half of 60 lots; three standard deviations of the mean over all canaries are 12 / sqrt(20).
    assert drawn[60:].mean() == pytest.approx(30, abs=3)
    assert "gradients_given" in {one.key for one in run.guarantee().assumptions}


def test_a_canary_contributes_exactly_the_clip_norm():
    model, _, game = small_game()
    numbers = torch.tensor([60, 61])
    gradients = game.gradients(model, F.cross_entropy, numbers, numbers)
    total = Clip(1.0).sum(gradients, {}).values
    inside = np.flatnonzero(game.included)[:2]
    torch.testing.assert_close(
        game.directions.project(total)[torch.from_numpy(inside)], torch.ones(2), atol=0.2, rtol=0
    )
    assert gradients.norms().tolist() == [50.0, 50.0]


def test_a_lot_of_real_examples_alone_and_an_empty_one_are_as_without_canaries():
    model, data, game = small_game()
    from tacit.gradients import per_example_gradients

    numbers = torch.arange(4)
    torch.testing.assert_close(
        game.gradients(model, F.cross_entropy, numbers, numbers).norms(),
        per_example_gradients(model, F.cross_entropy, data[0][:4], data[1][:4]).norms(),
    )
    none = torch.zeros(0, dtype=torch.int64)
    assert len(game.gradients(model, F.cross_entropy, none, none)) == 0


def test_micro_batches_change_nothing_but_rounding():
    scores = []
    for micro_batch in (None, 7):
        model, _, game = small_game()
        run = watched_run(model, game, steps=5, seed=3, micro_batch=micro_batch)
        watch, optimizer = game.watch(run), torch.optim.SGD(model.parameters(), lr=0.0)
        for lot in run:
            run.backward(lot)
            watch.see()
            optimizer.step()
        scores.append(watch.scores)
    np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-3)


def test_a_method_that_looks_at_all_the_data_is_refused():
    _, _, game = small_game()
    with pytest.raises(InvalidArgument, match="directional"):
        game.record_bound(directional(mode="paper", multiplier=1.0))


def test_input_canaries_have_wrong_targets_and_half_of_them_join():
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(50, 3)), rng.integers(0, 3, 50)
    canaries = InputCanaries.draw(inputs, targets, count=400, rng=rng)
    own = [targets[np.flatnonzero((inputs == row).all(axis=1))[0]] for row in canaries.inputs]
    assert not np.any(canaries.targets == own)
    assert 160 < canaries.included.sum() < 240
    joined = canaries.join(inputs, targets)
    assert len(joined[0]) == len(joined[1]) == 50 + canaries.included.sum()
    np.testing.assert_array_equal(joined[0][:50], inputs)


def test_a_run_without_the_recorded_bound_is_not_watched():
    model, data = torch.nn.Linear(2, 2), (torch.zeros(10, 2), torch.zeros(10).long())
    game = CanaryGame.draw(model, data, count=4, length=10.0, seed=0)
    run = PrivateRun(
        model, F.cross_entropy, data=data, mechanism=dpsgd(1.0, 1.0), sampling=Poisson(5, 10), steps=1, seed=0
    )
    with pytest.raises(InvalidArgument, match="record_bound"):
        game.watch(run)


def test_a_canary_is_a_person_where_people_are_protected():
    torch.manual_seed(0)
    model, unit = torch.nn.Linear(5, 2), np.repeat(np.arange(20), np.arange(20) % 4 + 1)
    data = torch.randn(len(unit), 5), torch.randint(2, (len(unit),))
    game = CanaryGame.draw(model, data, count=12, length=100.0, seed=1, unit=unit)
    inside = int(game.included.sum())
    assert game.unit.tolist() == [*unit, *range(20, 20 + inside)]

    def release(**options):
        run = PrivateRun(
            model, F.cross_entropy, mechanism=dpsgd(0.5, 1e-9), steps=1, seed=0, rows_per_unit=9, **options
        )  # fmt: skip
        values = run.release(next(iter(run))).values()
        return torch.cat([value.flatten() for value in values]) * run.sampling.lot_size

    both = release(data=game.data, unit=game.unit, gradients=game.gradients, sampling=FullBatch(20 + inside))
    real = release(data=data, unit=unit, sampling=FullBatch(20))
    whose = np.flatnonzero(game.included)
    added = sum(
        torch.cat(
            [
                v.flatten()
                for v in game.directions.scatter(game.directions.places[i], game.directions.values[i]).values()
            ]
        )
        for i in whose
    )
    torch.testing.assert_close(both - real, 0.5 * added, rtol=1e-3, atol=1e-4)
