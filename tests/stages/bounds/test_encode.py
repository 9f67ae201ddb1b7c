"""Encoding: the published algorithm against a loop over coordinates, and the box that it keeps."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.slow_gradients import SlowGradients
from tacit.errors import InvalidArgument
from tacit.methods import encoded
from tacit.randomness import CurrentStep, SecureSource, SeededSource
from tacit.stages.bounds import DrawnVectors, Encode, GivenVectors, Profile
from tacit.stages.bounds.encode import EncodingBox, bucket_means, double_corner
from tacit.stages.sampling import Poisson
from tacit.training.run import PrivateRun
from tacit.types import BoundedSum

PSI = ((0.1, 0.2, 0.5, 0.8), (0.0, 0.0, 0.3, 0.95))


def gradients(rows):
    return SlowGradients({"weight": torch.as_tensor(rows, dtype=torch.float64)})


def encode_slowly(row, table):
    """Algorithm 2 of Nasr et al. 2020, with the closest vector instead of the farthest."""
    order = sorted(range(len(row)), key=lambda i: abs(row[i]))
    sizes = [abs(row[i]) for i in order]
    cosines = [np.dot(psi, sizes) / (np.linalg.norm(psi) * np.linalg.norm(sizes)) for psi in table]
    psi = table[int(np.argmax(cosines))]
    result = [0.0] * len(row)
    for t, i in enumerate(order):
        result[i] = min(psi[t], max(row[i], -psi[t]))
    return result


@pytest.mark.slow
def test_the_worked_example():
    """Its vectors are not of norm 1 in print (0.9695 and 0.9962); ours are scaled, which does not change the choice."""
    row = torch.tensor([[0.5, -0.1, 0.02, -0.9]], dtype=torch.float64)
    norm = math.sqrt(sum(x * x for x in PSI[0]))
    encoded = Encode(GivenVectors(PSI), norm=norm).encode(row)
    torch.testing.assert_close(encoded, torch.tensor([[0.5, -0.1, 0.02, -0.8]], dtype=torch.float64))
    assert encode_slowly(row[0].tolist(), np.array(PSI)) == [0.5, -0.1, 0.02, -0.8]


def test_the_cosines_of_the_worked_example():
    row = np.array([0.02, 0.1, 0.5, 0.9])
    cosines = [np.dot(psi, row) / np.linalg.norm(psi) / np.linalg.norm(row) for psi in PSI]
    assert cosines == pytest.approx([0.9889508205525127, 0.9750519469558557], rel=1e-12)


@pytest.mark.parametrize("vectors", [DrawnVectors(30, seed=2), Profile(5)], ids=str)
def test_encoding_matches_a_loop_over_coordinates(vectors):
    rows = torch.randn(12, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows *= torch.logspace(-2, 1, 12, dtype=torch.float64)[:, None]
    expected = [encode_slowly(row.tolist(), vectors.rows(40).astype(float)) for row in rows]
    torch.testing.assert_close(Encode(vectors).encode(rows), torch.tensor(expected, dtype=torch.float64))


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=6, max_size=6), st.floats(0.1, 10))
def test_sorted_sizes_never_leave_the_box(row, norm):
    bound = Encode(DrawnVectors(5), norm)
    encoded = bound.encode(torch.tensor([row]))[0]
    corner = torch.from_numpy(bound.box.corner(6))
    assert torch.all(encoded.abs().sort().values.double() <= corner * (1 + 1e-6))


@pytest.mark.parametrize("ties", [False, True])
def test_many_coordinates_are_ranked_by_counting_and_stay_in_the_box(ties):
    """Counting lets sizes within 1.6 % of each other share the lower rank: below, and nearly what ranking gives."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(3, 5000, generator=generator)
    if ties:
        rows = (rows * 4).round() / 4
    rows *= torch.tensor([[1e-3], [1.0], [1e4]])
    bound = Encode(Profile(8))
    counted = bound.encode(rows)
    ranked = torch.tensor([encode_slowly(row.tolist(), bound.vectors.rows(5000)) for row in rows])
    assert torch.all(counted.abs().sort(dim=1).values <= ranked.abs().sort(dim=1).values * (1 + 1e-6))
    corner = torch.from_numpy(bound.box.corner(5000)).float()
    assert torch.all(counted.abs().sort(dim=1).values <= corner * (1 + 1e-6))
    if not ties:
        assert float((counted - ranked).norm()) < 0.06 * float(ranked.norm())


@pytest.mark.parametrize("norm", [1e-3, 1.0, 30.0])
def test_what_is_below_the_lowest_level_is_left_as_it_is(norm):
    """Such sizes are counted as one, wherever they stand; what is above must still be ranked as if they were not."""
    rows = torch.randn(9, 5003, generator=torch.Generator().manual_seed(2))
    rows *= norm * torch.logspace(-5, 0, 9)[:, None]
    bound = Encode(Profile(8), norm)
    encoded, lowest = bound.encode(rows), norm * float(bound.vectors.rows(5003)[0, 0])
    small = rows.abs() < lowest
    assert 0.1 < float(small.double().mean()) < 0.9
    assert torch.equal(encoded[small], rows[small])
    ranked = torch.tensor([encode_slowly((row / norm).tolist(), bound.vectors.rows(5003)) for row in rows]) * norm
    assert float((encoded - ranked).norm()) < 0.06 * float(ranked.norm())


@pytest.mark.parametrize("size", [1e39, 3e38, 1e-45, 0.0])
def test_sizes_beyond_single_precision_are_ranked_too(size):
    rows = torch.full((2, 5000), size, dtype=torch.float64)
    rows[1, ::2] = 1.0
    encoded = Encode(Profile(8)).encode(rows)
    assert bool(torch.isfinite(encoded).all())
    assert float(encoded.norm(dim=1).max()) <= 1 + 1e-9


def test_parameters_that_a_lot_does_not_use_take_the_lowest_ranks():
    rows = torch.randn(4, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    bound = Encode(DrawnVectors(7))
    padded = torch.cat([rows, torch.zeros(4, 5, dtype=torch.float64)], dim=1)
    torch.testing.assert_close(bound.encode(rows, 15), bound.encode(padded, 15)[:, :10])
    values = bound.sum(gradients(rows), {"dimension": torch.tensor(15)}).values
    torch.testing.assert_close(values["weight"], bound.encode(rows, 15).sum(0))


def test_vectors_are_sorted_non_negative_and_of_norm_one():
    for vectors in (Profile(8), Profile(1), DrawnVectors(20), GivenVectors(((3.0, 0.0, 4.0),))):
        rows = vectors.rows(3 if isinstance(vectors, GivenVectors) else 100).astype(float)
        assert np.all(np.diff(rows, axis=1) >= 0)
        assert np.all(rows >= 0)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 26_010])
def test_a_profile_has_few_levels_in_every_dimension(dimension):
    row = Profile(8).rows(dimension)[0]
    assert row.shape == (dimension,)
    assert np.unique(row).size <= 8


def test_a_profile_is_what_drawn_vectors_look_like():
    """Sorted half-normal vectors concentrate: in a thousand dimensions all cosines are above 0.99."""
    drawn = DrawnVectors(200).rows(1000).astype(float)
    assert (drawn @ drawn.T).min() > 0.99
    assert (drawn @ Profile(8).rows(1000)[0]).min() > 0.98


@pytest.mark.parametrize(("dimension", "norm"), [(10, 1.511), (100, 1.271), (1000, 1.084)])
def test_a_box_around_a_thousand_vectors_is_wider_than_one(dimension, norm):
    """The norms of METHODS for 1000 vectors; another draw differs by a few per cent."""
    corner = EncodingBox(DrawnVectors(1000)).corner(dimension)
    assert np.linalg.norm(corner) == pytest.approx(norm, rel=0.05)


def test_vectors_fit_gradients_of_their_length_only():
    with pytest.raises(InvalidArgument, match="have 4 numbers, but the gradients have 5"):
        Encode(GivenVectors(PSI)).box.corner(5)


@pytest.mark.parametrize("wrong", [(), ((),), ((1.0,), (1.0, 2.0)), ((0.0, 0.0),)])
def test_vectors_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InvalidArgument, match="vectors must hold"):
        GivenVectors(wrong)


@pytest.mark.parametrize("wrong", [[0.6, 0.8], "profile", Profile])
def test_what_are_no_vectors_is_refused(wrong):
    with pytest.raises(InvalidArgument, match=r"vectors must be Profile\(\)"):
        Encode(wrong)


def chunked_sum(rows, size, bound):
    """What is refused: lots cut into micro-batches, each encoded by its mean."""
    pieces = [rows[start : start + size].mean(0, keepdim=True) for start in range(0, len(rows), size)]
    return float(sum(bound.encode(piece).sum() for piece in pieces))


def test_chunks_of_a_lot_move_by_nine_vectors_when_one_example_leaves():
    """One coordinate, one vector, nine examples in pairs: without the first, every pair is another one."""
    rows = torch.tensor([[90.0], [-80], [70], [-60], [50], [-40], [30], [-20], [10]])
    bound = Encode(GivenVectors(((1.0,),)))
    assert chunked_sum(rows, 2, bound) == 5
    assert chunked_sum(rows[1:], 2, bound) == -4


def test_buckets_move_by_two_vectors_at_most():
    """With everyone else in the same bucket, whoever leaves changes one encoding: to any other one."""
    generator = torch.Generator().manual_seed(3)
    bound = Encode(DrawnVectors(20), buckets=4)
    rows = torch.randn(10, 12, generator=generator, dtype=torch.float64) * torch.logspace(0, 3, 10)[:, None]
    assignment = torch.randint(4, (10,), generator=generator)
    corner = torch.from_numpy(bound.box.corner(12))
    longest = 0.0
    whole = bound.encode(bucket_means(rows, assignment, 4)).sum(0)
    for index in range(10):
        kept = torch.arange(10) != index
        move = whole - bound.encode(bucket_means(rows[kept], assignment[kept], 4)).sum(0)
        assert float(move.norm()) <= bound.box.sensitivity(12) * (1 + 1e-9)
        assert torch.all(move.abs().sort().values <= corner * (1 + 1e-9))
        longest = max(longest, float(move.norm()))
    assert longest > 1


def test_one_example_can_turn_its_bucket_round():
    bound = Encode(GivenVectors(((0.6, 0.8),)), buckets=1)
    rows = torch.tensor([[10.0, 20.0], [-100.0, -200.0]], dtype=torch.float64)
    one = bound.encode(bucket_means(rows[:1], torch.tensor([0]), 1))
    both = bound.encode(bucket_means(rows, torch.tensor([0, 0]), 1))
    assert float((one - both).norm()) == pytest.approx(bound.box.sensitivity(2))


def test_an_empty_bucket_counts_zero():
    means = bucket_means(torch.tensor([[1.0, 3.0], [3.0, 5.0]]), torch.tensor([2, 2]), 4)
    assert means.tolist() == [[0, 0], [0, 0], [2, 4], [0, 0]]


@given(st.lists(st.floats(0, 10), min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_the_doubled_corner_bounds_every_difference_of_two_encodings(sizes, random):
    ascending = np.sort(np.array(sizes))
    one, other = list(ascending), list(ascending)
    random.shuffle(one)
    random.shuffle(other)
    move = np.sort(np.array(one) + np.array(other))
    assert np.all(move <= double_corner(ascending) * (1 + 1e-12))


def test_the_doubled_corner_by_hand():
    assert double_corner(np.array([1.0, 2.0, 5.0])).tolist() == [4, 7, 10]


def test_buckets_need_the_whole_lot():
    state = {"dimension": torch.tensor(3)}
    bound = Encode(buckets=2)
    one, other = (bound.sum(gradients(torch.randn(2, 3)), state) for _ in range(2))
    with pytest.raises(InvalidArgument, match="whole lot"):
        one + other


def test_buckets_are_dealt_anew_for_each_lot():
    state = {"dimension": torch.tensor(3)}
    rows = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    sums = {tuple(Encode(buckets=7).sum(gradients(rows), state).values["weight"].tolist()) for _ in range(20)}
    assert len(sums) > 1


def bucketed(seed):
    """The weights after three steps with encoded buckets."""
    model = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    run = PrivateRun(
        model,
        torch.nn.functional.cross_entropy,
        data=(rows, torch.arange(40) % 2),
        mechanism=encoded(multiplier=1.0, noise="gaussian", buckets=3),
        sampling=Poisson(20, 40),
        steps=3,
        seed=seed,
    )
    for lot in run:
        run.backward(lot)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= parameter.grad
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_with_a_seed_buckets_are_dealt_as_before():
    first, again, other = bucketed(0), bucketed(0), bucketed(1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_buckets_of_a_seeded_step_are_dealt_by_it_and_by_nothing_else():
    state, rows = {"dimension": torch.tensor(3)}, torch.randn(20, 3, generator=torch.Generator().manual_seed(0))

    def summed(source, step):
        with CurrentStep(source, step):
            return tuple(Encode(buckets=7).sum(gradients(rows), state).values["weight"].tolist())

    assert summed(SeededSource(0), 1) == summed(SeededSource(0), 1)
    assert len({summed(SeededSource(0), step) for step in range(20)}) > 1
    # A source that nobody can draw from again deals anew each time, and nothing is left behind.
    secure = SecureSource()
    assert len({summed(secure, 0) for _ in range(20)}) > 1
    assert len({tuple(Encode(buckets=7).sum(gradients(rows), state).values["weight"].tolist()) for _ in range(20)}) > 1


def test_an_empty_lot_of_buckets_gives_zeros():
    found = Encode(buckets=2).sum(gradients(torch.zeros(0, 3)), {"dimension": torch.tensor(3)})
    assert found.values["weight"].tolist() == [0, 0, 0]
    assert found.sensitivity == 2


def test_pieces_with_different_boxes_have_none_together():
    one = BoundedSum({"w": torch.zeros(1)}, 1.0, Encode().box)
    assert (one + one).box == Encode().box
    assert (one + BoundedSum({"w": torch.zeros(1)}, 1.0)).box is None
