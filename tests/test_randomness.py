"""Noise that is what it says. Every statistical test has a fixed seed and a false-alarm probability of 1e-6."""

import copy
import math
import os
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from tacit.errors import OutOfOrder
from tacit.randomness import (
    Purpose,
    SecureSource,
    SeededSource,
    Stream,
    _count_heads,
    _Pool,
    refuse_forked,
    source_for,
)

FALSE_ALARM = 1e-6
SIZE = 1_000_000
BOUND = stats.norm.isf(FALSE_ALARM / 2)


def draw(size=SIZE, seed=0, step=0, wide=False):
    return SeededSource(seed).stream(Purpose.NOISE, step).normal(size, wide=wide).astype(np.float64)


@pytest.fixture(params=[False, True], ids=["single", "double"], scope="module")
def numbers(request):
    return draw(wide=request.param)


@pytest.mark.parametrize(("power", "mean", "variance"), [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)])
def test_moments_are_those_of_a_normal_number(numbers, power, mean, variance):
    deviation = (np.mean(numbers**power) - mean) * math.sqrt(SIZE / variance)
    # The sixth power is far from normal even in the mean over a million: it gets twice the room.
    assert abs(deviation) < BOUND * (2 if power == 6 else 1)


@pytest.mark.slow
def test_the_distribution_is_normal(numbers):
    assert stats.kstest(numbers, "norm").pvalue > FALSE_ALARM


@pytest.mark.parametrize("threshold", [3.0, 4.0])
def test_the_tails_are_normal(numbers, threshold):
    expected = 2 * stats.norm.sf(threshold)
    found = int((np.abs(numbers) > threshold).sum())
    assert stats.binomtest(found, SIZE, expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("apart", [1, 2, 24_576, 49_152])
def test_coordinates_are_independent(numbers, apart):
    """Also those that Box-Muller draws as a pair (24,576 apart), in value and in size."""
    one, other = numbers[:-apart], numbers[apart:]
    assert abs((one * other).sum()) / math.sqrt(len(one)) < BOUND
    assert abs(((one**2 - 1) * (other**2 - 1)).sum()) / (2 * math.sqrt(len(one))) < BOUND


class Given(Stream):
    """A stream whose bits are what they are told to be."""

    def __init__(self, bits):
        super().__init__(bytes(32), 0)
        self._given = bits

    def fill(self, out):
        out[:] = self._given(out)


@pytest.mark.parametrize(("wide", "end"), [(False, 95), (True, 127)])
def test_the_tails_end_where_no_number_ever_falls(wide, end):
    """All bits zero: the smallest number that a radius is made of, and the angle 0."""
    first, second = Given(lambda out: 0).normal(2, wide=wide)
    assert first == pytest.approx(math.sqrt(2 * end * math.log(2)), rel=1e-6)
    assert first > 11.4
    assert second == 0


def test_long_radii_are_drawn_anew_from_finer_bits():
    """Radius bits below 2^16 alone: then the squared radius is exponential, beyond that of u = 2^-15."""
    source = np.random.default_rng(0)

    def bits(out):
        return source.integers(2**16 if out.dtype == np.int32 else 2**63 - 1, size=len(out))

    # Without the finer bits there are no more than 65,536 different radii.
    pairs = 3 * 24_576
    one, other = Given(bits).normal(2 * pairs).astype(np.float64).reshape(-1, 2, 24_576).transpose(1, 0, 2)
    squares = (one**2 + other**2).ravel() - 2 * 15 * math.log(2)
    assert stats.kstest(squares / 2, "expon").pvalue > FALSE_ALARM
    assert len(np.unique(squares)) > 0.9 * pairs


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1001, 49_151, 49_152, 49_153])
def test_every_size_can_be_drawn(size):
    numbers = draw(size)
    assert numbers.shape == (size,)
    assert np.isfinite(numbers).all()


# Few normal numbers come from a common stock, many and other draws from the stream's own bits.
DRAWS = {
    "few normal": lambda stream: stream.normal(4),
    "many normal": lambda stream: stream.normal(5000),
    "in double precision": lambda stream: stream.normal(4, wide=True),
    "coins": lambda stream: stream.coins(1000, 0.5),
    "rare coins": lambda stream: stream.coins(10**6, 1e-4),
}


@pytest.mark.parametrize("take", DRAWS.values(), ids=DRAWS.keys())
def test_no_stream_of_a_secure_source_comes_twice(take):
    source = SecureSource()
    draws = [take(source.stream(purpose, 0)).tobytes() for _ in range(20) for purpose in Purpose]
    assert len(set(draws)) == len(draws)


def test_two_secure_sources_have_nothing_in_common():
    assert not np.array_equal(
        SecureSource().stream(Purpose.NOISE, 0).normal(4), SecureSource().stream(Purpose.NOISE, 0).normal(4)
    )


def test_a_seed_gives_the_same_numbers_again():
    assert np.array_equal(draw(1000, seed=3, step=5), draw(1000, seed=3, step=5))


def test_seeds_steps_and_purposes_give_different_numbers():
    drawn = {draw(4, seed=seed, step=step).tobytes() for seed in range(10) for step in range(10)}
    lot = SeededSource(0).stream(Purpose.LOT, 0).normal(4).astype(np.float64)
    assert len(drawn) == 100
    assert lot.tobytes() not in drawn


def test_bits_are_those_of_aes_in_counter_mode():
    key = bytes(range(32))
    found = np.empty(1000, dtype=np.uint8)
    Stream(key, 5).fill(found)
    encryptor = Cipher(algorithms.AES(key), modes.CTR((5).to_bytes(8, "big") + bytes(8))).encryptor()
    assert found.tobytes() == encryptor.update(bytes(1000))


def test_a_stream_goes_on_where_it_stopped():
    parts, whole = Stream(bytes(32), 0), Stream(bytes(32), 0)
    pieces = [np.empty(size, dtype=np.uint8) for size in (3, 500_000, 17)]
    for piece in pieces:
        parts.fill(piece)
    expected = np.empty(500_020, dtype=np.uint8)
    whole.fill(expected)
    assert np.array_equal(np.concatenate(pieces), expected)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_secure_sources_and_streams_are_neither_copied_nor_saved(duplicate):
    for secret in (SecureSource(), SecureSource().stream(Purpose.NOISE, 0)):
        with pytest.raises(TypeError, match="cannot be copied or saved"):
            duplicate(secret)


def test_a_forked_process_does_not_draw_its_parents_noise(monkeypatch):
    source = SecureSource()
    key = source._key
    monkeypatch.setattr(os, "getpid", lambda: -1)
    source.stream(Purpose.NOISE, 0)
    assert source._key != key


def test_nothing_secret_is_shown():
    source = SecureSource()
    assert repr(source) == "SecureSource()"
    assert source.is_secret
    assert not SeededSource(0).is_secret


@pytest.mark.parametrize("rate", [0.5, 0.01, 256 / 60_000])
def test_coins_come_up_at_the_rate(rate):
    heads = SeededSource(0).stream(Purpose.LOT, 0).coins(SIZE, rate)
    assert stats.binomtest(len(heads), SIZE, rate).pvalue > FALSE_ALARM


def test_a_rate_below_what_coins_resolve_errs_on_the_private_side():
    assert len(SeededSource(0).stream(Purpose.LOT, 0).coins(SIZE, 2.0**-65)) == 0


@pytest.mark.parametrize(("n", "rate"), [(1, 0.01), (7, 0.015), (1000, 0.01), (10**8, 2.56e-6), (10**6, 1 / 65)])
def test_the_number_of_heads_is_binomial(n, rate):
    heads = int(rate * 2**64)
    least, totals = _count_heads(n, heads)
    found = np.array([total / totals[-1] for total in totals])
    expected = stats.binom(n, heads / 2**64).cdf(least + np.arange(len(totals)))
    assert np.abs(found - expected).max() < 1e-9


def test_the_weights_of_few_coins_are_exact_fractions():
    heads = 2**58
    least, totals = _count_heads(5, heads)
    exact = [math.comb(5, k) * heads**k * (2**64 - heads) ** (5 - k) for k in range(6)]
    running = [sum(exact[: k + 1]) for k in range(6)]
    assert least == 0
    assert all(
        abs(one * running[-1] - other * totals[-1]) < running[-1] * totals[-1] >> 240
        for one, other in zip(totals, running, strict=True)
    )


def test_every_set_of_distinct_indices_is_equally_likely():
    stream = SeededSource(0).stream(Purpose.LOT, 0)
    counts = Counter(tuple(stream._choose(6, 3)) for _ in range(20_000))
    assert len(counts) == math.comb(6, 3)
    assert stats.chisquare(list(counts.values())).pvalue > FALSE_ALARM


def test_at_low_rates_every_index_comes_equally_often():
    lots = [SeededSource(0).stream(Purpose.LOT, step).coins(50, 0.01) for step in range(20_000)]
    counts = np.bincount(np.concatenate(lots), minlength=50)
    chi = ((counts - 200) ** 2 / (200 * 0.99)).sum()
    assert FALSE_ALARM / 2 < stats.chi2(50).cdf(chi) < 1 - FALSE_ALARM / 2


def test_at_low_rates_two_coins_agree_as_often_as_chance_has_it():
    lots = [SeededSource(1).stream(Purpose.LOT, step).coins(2, 1 / 65) for step in range(60_000)]
    both = sum(len(lot) == 2 for lot in lots)
    assert stats.binomtest(both, len(lots), 65**-2).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("n", "rate"), [(10**8, 2.56e-6), (3000, 0.0156), (1, 0.015), (0, 0.01)])
def test_a_lot_holds_distinct_indices_in_order(n, rate):
    for step in range(50):
        lot = SeededSource(0).stream(Purpose.LOT, step).coins(n, rate)
        assert lot.dtype == np.int64
        assert (np.diff(lot) > 0).all()
        assert not len(lot) or (lot[0] >= 0 and lot[-1] < n)


def test_a_seed_makes_a_source_that_says_so():
    assert isinstance(source_for(None), SecureSource)
    assert isinstance(source_for(0), SeededSource)


def test_small_draws_come_from_a_stock_that_is_never_handed_out_twice():
    source = SecureSource()
    drawn = np.concatenate([source.stream(Purpose.NOISE, step).normal(1000, scale=2.0) for step in range(200)])
    assert len(np.unique(drawn)) > 0.98 * drawn.size
    assert np.std(drawn) == pytest.approx(2.0, rel=0.01)


def test_threads_share_no_small_draw():
    source = SecureSource()

    def draw(_):
        return [source.stream(Purpose.NOISE, 0).normal(8).tobytes() for _ in range(2000)]

    with ThreadPoolExecutor(4) as pool:
        draws = [piece for part in pool.map(draw, range(4)) for piece in part]
    assert len(set(draws)) == len(draws)


def test_a_forked_process_shares_no_small_draw_with_its_parent():
    source = SecureSource()
    stream = source.stream(Purpose.NOISE, 0)
    stream.normal(8)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, source.stream(Purpose.NOISE, 0).normal(8).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 32)
    assert theirs != source.stream(Purpose.NOISE, 0).normal(8).tobytes()
    os.close(reader)
    os.close(writer)


def test_draws_that_go_on_side_by_side_do_not_overwrite_each_other():
    size = 120_000
    streams = (SeededSource(seed).stream(Purpose.NOISE, 0) for seed in (1, 2))
    first, second = (stream.normal_pieces(size, np.float32, 1.0) for stream in streams)
    both = zip(first, second, strict=True)
    found = np.concatenate([np.stack(pieces) for pieces in both], axis=1)
    alone = [SeededSource(seed).stream(Purpose.NOISE, 0).normal(size) for seed in (1, 2)]
    np.testing.assert_array_equal(found, alone)


def test_threads_do_not_overwrite_each_others_large_draws():
    def draw(seed):
        return SeededSource(seed).stream(Purpose.NOISE, 0).normal(120_000)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(draw, range(16)))
    for seed, numbers in enumerate(found):
        np.testing.assert_array_equal(numbers, draw(seed))


def test_a_fork_of_a_run_is_refused():
    refuse_forked(os.getpid())
    with pytest.raises(OutOfOrder, match="began in process 0 and continues in its fork"):
        refuse_forked(0)


def test_a_fork_draws_none_of_the_numbers_that_its_parent_has_in_stock(monkeypatch):
    pool, stream = _Pool(), SeededSource(0).stream(Purpose.NOISE, 0)
    pool.take(5, stream)
    kept = pool._stock.copy()
    monkeypatch.setattr(pool, "_process", 0)
    drawn = pool.take(5, stream)
    assert pool._process == os.getpid()
    assert not np.isin(drawn, kept).all()
    assert not np.array_equal(pool._stock, kept)
