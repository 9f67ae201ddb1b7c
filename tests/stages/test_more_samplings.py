"""Samplings beyond plain Poisson lots: their exact laws, and what they refuse."""

import numpy as np
import pytest
from scipy import stats

from tacit.accounting import Allocated, FixedSize, Gaussian, Laplace, Truncated
from tacit.accounting.events import Adjacency
from tacit.errors import InvalidArgument, NotAccountable
from tacit.randomness import Purpose, SecureSource, SeededSource
from tacit.stages.more_samplings import (
    CyclicPoisson,
    FixedLots,
    RandomAllocation,
    TruncatedPoisson,
    draw_below,
    draw_subset,
)

POPULATION = 600
# Every statistical test here raises a false alarm with probability 1e-6, and its seed is fixed.
FALSE_ALARM = 1e-6


def lots(sampling, steps, n=POPULATION, source=None):
    source = source or SeededSource(0)
    return [sampling.lot(n, source.stream(Purpose.LOT, step), step) for step in range(steps)]


def fits(counts, expected):
    chi = ((counts - expected) ** 2 / expected).sum()
    return FALSE_ALARM / 2 < stats.chi2(counts.size - 1).cdf(chi) < 1 - FALSE_ALARM / 2


@pytest.mark.parametrize("source", [SeededSource(0), SecureSource()], ids=repr)
def test_every_example_is_in_one_lot_of_each_epoch(source):
    drawn = lots(RandomAllocation(60, POPULATION), 30, source=source)
    for start in range(0, 30, 10):
        assert np.array_equal(np.sort(np.concatenate(drawn[start : start + 10])), np.arange(POPULATION))


def test_examples_draw_their_lots_uniformly_and_independently():
    sampling = RandomAllocation(100, POPULATION)
    place = np.empty((300, POPULATION), dtype=int)
    for step, lot in enumerate(lots(sampling, 300 * 6)):
        place[step // 6, lot] = step % 6
    assert fits(np.bincount(place.ravel()), place.size / 6)
    # Neighbours, and one example in consecutive epochs, draw independently.
    for one, other in ((place[:, :-1], place[:, 1:]), (place[:-1], place[1:])):
        assert fits(np.bincount((6 * one + other).ravel(), minlength=36), one.size / 36)


def test_the_size_of_an_allocated_lot_is_random():
    assert len({len(lot) for lot in lots(RandomAllocation(100, POPULATION), 12)}) > 3


def test_an_epoch_must_have_a_whole_number_of_lots():
    with pytest.raises(InvalidArgument, match="whole number of lots"):
        RandomAllocation(70, POPULATION)


def test_an_epoch_costs_one_event_with_its_least_noise():
    sampling = RandomAllocation(300, POPULATION)
    steps = [sampling.amplify(Gaussian(multiplier)) for multiplier in (4.0, 2.0, 6.0)]
    expected = Allocated(Gaussian(2.0), 2, 2) * 1 + Allocated(Gaussian(6.0), 2, 1) * 1
    assert sampling.total(steps) == expected


@pytest.mark.parametrize("source", [SeededSource(0), SecureSource()], ids=repr)
def test_an_example_is_in_one_of_any_consecutive_lots_as_many_as_groups(source):
    sampling = CyclicPoisson(100, POPULATION, groups=5)
    taken = np.zeros((50, POPULATION), dtype=int)
    for row, lot in zip(taken, lots(sampling, 50, source=source), strict=True):
        row[lot] = 1
    assert max(taken[start : start + 5].sum(axis=0).max() for start in range(46)) == 1
    assert taken.sum() == pytest.approx(50 * 100, rel=0.1)


def test_groups_are_drawn_uniformly():
    sampling = CyclicPoisson(150, POPULATION, groups=4)
    sizes = np.zeros(4)
    for seed in range(50):
        for step, lot in enumerate(lots(sampling, 4, source=SeededSource(seed))):
            sizes[step] += len(lot)
    assert fits(sizes, 50 * POPULATION / 4)


def test_a_cycle_costs_one_step_at_the_rate_of_its_group():
    sampling = CyclicPoisson(50, POPULATION, groups=4)
    step = sampling.amplify(Gaussian(1.5))
    assert sampling.total([step] * 10) == Gaussian(1.5).sampled(200 / 600) * 3


def test_more_groups_than_lots_in_the_population_are_refused():
    with pytest.raises(InvalidArgument, match="at most 6 groups"):
        CyclicPoisson(100, POPULATION, groups=7)


def test_truncated_lots_are_uniform_subsets_of_poisson_lots():
    sampling = TruncatedPoisson(100, POPULATION, most=90)
    drawn = lots(sampling, 400)
    assert max(map(len, drawn)) == 90
    counts = np.bincount(np.concatenate(drawn), minlength=POPULATION)
    assert fits(counts, counts.mean())


def test_truncated_lots_cost_their_own_event():
    event = TruncatedPoisson(100, POPULATION, most=90).amplify(Gaussian(1.5))
    assert event == Truncated(Gaussian(1.5), 100 / 600, 90, POPULATION)


def test_truncated_lots_refuse_more_examples_than_declared():
    with pytest.raises(InvalidArgument, match="Raise population"):
        lots(TruncatedPoisson(100, POPULATION, most=90), 1, n=POPULATION + 1)


def test_lots_of_fixed_size_hold_every_example_equally_often():
    drawn = lots(FixedLots(50, POPULATION), 400)
    assert {len(lot) for lot in drawn} == {50}
    counts = np.bincount(np.concatenate(drawn), minlength=POPULATION)
    assert fits(counts, 400 * 50 / POPULATION)


def test_lots_of_fixed_size_count_half_the_multiplier_for_one_example_replaced():
    event = FixedLots(60, POPULATION).amplify(Gaussian(1.5))
    assert event == FixedSize(Gaussian(0.75, Adjacency.REPLACE_ONE), 0.1)


def test_lots_of_fixed_size_refuse_another_number_of_examples():
    with pytest.raises(InvalidArgument, match="population"):
        lots(FixedLots(50, POPULATION), 1, n=POPULATION - 1)


@pytest.mark.parametrize("sampling", [RandomAllocation(60, 600), TruncatedPoisson(60, 600, 90), FixedLots(60, 600)])
def test_other_noise_is_refused(sampling):
    with pytest.raises(NotAccountable, match="Gaussian noise only"):
        sampling.amplify(Laplace(1.0))


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_integers_are_uniform_below_their_limit(limit):
    counts = np.bincount(draw_below(SeededSource(0).stream(Purpose.LOT, 0), 30_000, limit), minlength=limit)
    assert counts.size == limit
    assert limit == 1 or fits(counts, 30_000 / limit)


@pytest.mark.parametrize(("count", "size"), [(5, 2), (5, 3), (5, 0), (5, 5)])
def test_every_subset_is_equally_likely(count, size):
    stream = SeededSource(0).stream(Purpose.LOT, 0)
    drawn = [tuple(draw_subset(stream, count, size).tolist()) for _ in range(3000)]
    found = np.unique(np.array(drawn).reshape(3000, size), axis=0, return_counts=True)[1]
    assert len(found) == {0: 1, 2: 10, 3: 10, 5: 1}[size]
    assert len(found) == 1 or fits(found, 300)
