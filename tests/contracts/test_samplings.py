"""What every Sampling promises. A new one gets these tests by being listed."""

import numpy as np
import pytest
from scipy import stats

from tacit.accounting import Adjacency, Gaussian, Laplace, curve
from tacit.errors import InvalidArgument, NotAccountable
from tacit.randomness import Purpose, SeededSource
from tacit.stages.more_samplings import CyclicPoisson, FixedLots, RandomAllocation, TruncatedPoisson
from tacit.stages.sampling import FullBatch, Poisson, Shuffled

POPULATION = 1000
SAMPLINGS = [
    Poisson(50, POPULATION),
    Poisson(2.5, POPULATION),
    FullBatch(POPULATION),
    Shuffled(64, POPULATION),
    RandomAllocation(50, POPULATION),
    CyclicPoisson(50, POPULATION, groups=4),
    TruncatedPoisson(50, POPULATION, most=100),
    FixedLots(50, POPULATION),
]
every_sampling = pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
FALSE_ALARM = 1e-6


def lots(sampling, steps, n=POPULATION, seed=0):
    source = SeededSource(seed)
    return [sampling.lot(n, source.stream(Purpose.LOT, step), step) for step in range(steps)]


@every_sampling
def test_lots_hold_examples_that_exist_none_twice(sampling):
    for lot in lots(sampling, 40):
        assert lot.dtype == np.int64
        assert len(set(lot.tolist())) == len(lot)
        assert all(0 <= index < POPULATION for index in lot)


@pytest.mark.parametrize("sampling", [one for one in SAMPLINGS if not isinstance(one, Shuffled)], ids=str)
def test_its_lot_size_is_what_lots_have_on_average(sampling):
    sizes = [len(lot) for lot in lots(sampling, 500)]
    spread = np.sqrt(500 * sampling.lot_size)
    assert abs(sum(sizes) - 500 * sampling.lot_size) < stats.norm.isf(FALSE_ALARM / 2) * spread


@every_sampling
def test_the_same_stream_gives_the_same_lot(sampling):
    for one, other in zip(lots(sampling, 5), lots(sampling, 5), strict=True):
        assert np.array_equal(one, other)


@every_sampling
def test_no_steps_cost_nothing(sampling):
    assert curve(sampling.total([])).epsilon(1e-5) == 0


@pytest.mark.slow
@every_sampling
def test_more_steps_never_cost_less(sampling):
    step = sampling.amplify(Gaussian(2.0))
    spent = [curve(sampling.total([step] * steps)).epsilon(1e-5) for steps in (1, 10, 40)]
    assert spent == sorted(spent)


@pytest.mark.slow
@every_sampling
def test_it_is_never_dearer_than_no_sampling_under_its_own_adjacency(sampling):
    step = sampling.amplify(Gaussian(2.0))
    alone = Gaussian(2.0 if step.adjacency is Adjacency.ADD_REMOVE else 1.0, step.adjacency)
    assert curve(sampling.total([step] * 30)).epsilon(1e-5) <= curve(alone * 30).epsilon(1e-5) * (1 + 1e-6)


def test_poisson_takes_every_example_equally_often_and_on_its_own():
    sampling = Poisson(100, POPULATION)
    taken = np.zeros((2000, POPULATION))
    for row, lot in zip(taken, lots(sampling, 2000), strict=True):
        row[lot] = 1
    counts = taken.sum(axis=0)
    chi = ((counts - 200) ** 2 / (200 * 0.9)).sum()
    assert FALSE_ALARM / 2 < stats.chi2(POPULATION).cdf(chi) < 1 - FALSE_ALARM / 2
    # Neighbours in one lot, and the same example in successive lots, are no more alike than chance has it.
    for one, other in ((taken[:, :-1], taken[:, 1:]), (taken[:-1], taken[1:])):
        together = ((one - 0.1) * (other - 0.1)).sum() / (0.09 * np.sqrt(one.size))
        assert abs(together) < stats.norm.isf(FALSE_ALARM / 2)


def test_the_size_of_poisson_lots_is_binomial():
    sizes = np.array([len(lot) for lot in lots(Poisson(100, POPULATION), 2000)])
    chi = ((sizes - 100) ** 2 / 90).sum()
    assert FALSE_ALARM / 2 < stats.chi2(2000).cdf(chi) < 1 - FALSE_ALARM / 2


def test_the_rate_comes_from_the_declared_numbers_not_from_the_data():
    sampling = Poisson(100, POPULATION)
    sizes = [len(lot) for lot in lots(sampling, 200, n=5 * POPULATION)]
    assert np.mean(sizes) == pytest.approx(500, rel=0.05)
    assert sampling.lot_size == 100


def test_a_poisson_lot_of_everyone_is_everyone():
    assert all(len(lot) == POPULATION for lot in lots(Poisson(POPULATION, POPULATION), 3))


def test_poisson_lots_may_be_empty():
    assert any(len(lot) == 0 for lot in lots(Poisson(0.5, POPULATION), 20))


def test_poisson_amplifies_and_the_others_do_not():
    event = Gaussian(1.0)
    assert Poisson(10, 1000).amplify(event) == event.sampled(0.01)
    assert FullBatch(1000).amplify(event) == event


def test_a_shuffled_epoch_holds_every_example_once():
    sampling = Shuffled(64, POPULATION)
    epoch = np.concatenate(lots(sampling, sampling.steps_per_epoch))
    assert np.array_equal(np.sort(epoch), np.arange(POPULATION))


def test_shuffled_lots_have_their_lot_size_but_the_last_of_an_epoch():
    assert [len(lot) for lot in lots(Shuffled(64, POPULATION), 32)] == 2 * [*15 * [64], 40]


def test_shuffled_epochs_differ():
    sampling = Shuffled(500, POPULATION)
    first, _, second, _ = lots(sampling, 4)
    assert not np.array_equal(np.sort(first), np.sort(second))


def test_shuffled_epochs_cost_one_unsampled_release_each_for_one_example_replaced():
    sampling = Shuffled(100, POPULATION)
    step = sampling.amplify(Gaussian(4.0))
    assert sampling.total([step] * 25) == Gaussian(2.0, Adjacency.REPLACE_ONE) * 3


def test_a_shuffled_epoch_is_charged_for_its_least_noise():
    sampling = Shuffled(500, POPULATION)
    steps = [sampling.amplify(Gaussian(multiplier)) for multiplier in (4.0, 2.0, 6.0)]
    assert curve(sampling.total(steps)).mu() == pytest.approx(np.hypot(2 / 2.0, 2 / 6.0))


def test_shuffled_refuses_a_population_that_is_not_the_number_of_examples():
    with pytest.raises(InvalidArgument, match="population"):
        lots(Shuffled(64, POPULATION), 1, n=POPULATION - 1)


def test_shuffled_refuses_noise_of_which_replacing_is_not_known():
    with pytest.raises(NotAccountable, match="Gaussian noise"):
        Shuffled(64, POPULATION).amplify(Laplace(1.0))


@pytest.mark.parametrize(
    ("lot_size", "population"), [(0, 10), (-1, 10), (11, 10), (float("nan"), 10), (5, 0), (5, 2.5)]
)
@pytest.mark.parametrize("kind", [Poisson, Shuffled, RandomAllocation, FixedLots])
def test_sizes_that_mean_nothing_are_refused(kind, lot_size, population):
    with pytest.raises(InvalidArgument):
        kind(lot_size, population)
