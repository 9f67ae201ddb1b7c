"""Encoded gradients: the paper's Rényi bound, the certified one beside it, and what is refused."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate
from torch.nn.functional import cross_entropy

from tacit import Budget, Poisson, PrivateRun, Schedule
from tacit.accounting import Gaussian, curve
from tacit.accounting.losses import density_atoms
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee, Status
from tacit.methods.encoded import RenyiOverVectors, encoded, sampled_divergences, vector_moments
from tacit.stages.bounds import DrawnVectors, Encode, GivenVectors, Profile
from tacit.stages.noise import BoxNoise, Normal, StudentT, list_families
from tacit.stages.noise.product import product_event
from tacit.stages.post import KSDenoise
from tacit.training.plan import Plan, ReleasedSteps, make_guarantee

POISSON = Poisson(lot_size=256, population=60_000)
PAIR = GivenVectors(((0.6, 0.8),))
FLAT = Profile(levels=1)


def planned(mechanism, *, steps=14_062, dimension=100, budget=None, sampling=POISSON):
    return Plan(mechanism, sampling, steps, dimension, budget)


def claim_of(mechanism, **settings):
    settings = planned(mechanism, budget=Budget(10, 1e-5), **settings).settings()
    return RenyiOverVectors().claim(settings, Gaussian(1.0))


# Order, Gaussian noise of standard deviation 1.1, Student noise with nine degrees and unit variance.
LEMMA_4 = [
    (2, 2.3395776009953184e-05, 2.9511081274798817e-05),
    (3, 3.536769897204573e-05, 4.453853868558247e-05),
    (4, 4.75333523610536e-05, 5.9751949017850664e-05),
    (8, 9.834106177992522e-05, 0.00012253859639819214),
    (16, 0.7918914327818951, 0.00025822041847312164),
]


@pytest.mark.parametrize(("order", "gaussian", "student"), LEMMA_4)
def test_one_sampled_step_has_the_worked_divergences(order, gaussian, student):
    """As printed, with 1 / (1 - order), they would be negative."""
    for family, multiplier, expected in ((Normal(), 1.1, gaussian), (StudentT(9), 1.0, student)):
        moments = vector_moments(family, PAIR, multiplier, 2)
        assert sampled_divergences(moments, 256 / 60_000)[0, order - 2] == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(("shift", "second", "eighth"), [(0.1, 1.0107473988398084, 1.330776222680336),
                                                         (1.0, 2.4452973098209507, 41813.97213746341)])  # fmt: skip
def test_the_moments_of_one_coordinate_are_the_worked_ones(shift, second, eighth):
    moments = vector_moments(StudentT(9), GivenVectors(((1.0,),)), 1 / shift, 1)[0]
    assert moments[0] == pytest.approx(0, abs=1e-9)
    assert moments[1] == pytest.approx(0, abs=1e-9)
    assert math.exp(moments[2]) == pytest.approx(second, rel=1e-9)
    assert math.exp(moments[8]) == pytest.approx(eighth, rel=1e-7)


@pytest.mark.parametrize("name", ["laplace", "sech", "variance_gamma", "cauchy"])
def test_the_moments_of_other_laws_are_integrals_of_their_densities(name):
    density = list_families()[name].density(1.3)
    moments = vector_moments(list_families()[name], GivenVectors(((1.0,),)), 1.3, 1)[0]

    def inside(x):
        log = density.log_density(np.array([x - 1.0, x]))
        return math.exp(3 * log[0] - 2 * log[1])

    pieces = [(-np.inf, -5), (-5, 0), (0, 1), (1, 6), (6, np.inf)]
    expected = sum(integrate.quad(inside, low, high)[0] for low, high in pieces)
    assert math.exp(moments[3]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("noise", "variance", "expected"),
    [("gaussian", 1.21, 3.0090995257324593), ("student_t", 1.21, 3.189336758488561),
     ("gaussian", 1.0, 3.545792941081648), ("student_t", 1.0, 3.772147864594548)],
)  # fmt: skip
def test_claims_in_a_hundred_thousand_dimensions(noise, variance, expected):
    """At equal variance Student noise is claimed, and is, less private than Gaussian noise there."""
    claim = claim_of(encoded(multiplier=math.sqrt(variance), noise=noise, vectors=FLAT), dimension=100_000)
    assert claim.epsilon == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_sharing_coordinates_between_nodes_hardly_moves_the_claim():
    """A vector of 300 different numbers, once on nodes and once coordinate by coordinate."""
    vectors = DrawnVectors(1)
    on_nodes = vector_moments(StudentT(9), vectors, 1.0, 300)[0]
    density = StudentT(9).density(1.0)
    total = np.zeros(65)
    for shift in vectors.rows(300)[0].astype(float):
        atoms = density_atoms(density, float(shift), "estimate", 1e-300, 2000)
        total += np.log(np.exp((np.arange(65)[:, None] - 1) * atoms.loss) @ atoms.p)
    np.testing.assert_allclose(on_nodes, total, rtol=5e-5, atol=1e-6)


def test_the_claim_is_the_largest_over_all_vectors_for_each_order():
    apart = GivenVectors(((0.0, 1.0),)), GivenVectors(((0.5, 0.5),))
    together = GivenVectors(((0.0, 1.0), (0.5, 0.5)))
    each = [sampled_divergences(vector_moments(StudentT(9), one, 1.0, 2), 0.01)[0] for one in apart]
    both = sampled_divergences(vector_moments(StudentT(9), together, 1.0, 2), 0.01).max(axis=0)
    np.testing.assert_allclose(both, np.maximum(*each), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("noise", list_families())
def test_the_certified_epsilon_is_below_the_claim(noise):
    mechanism = encoded(multiplier=1.2, noise=noise)
    proven = curve(planned(mechanism, steps=1000).total(1000)).epsilon(1e-5)
    assert proven < claim_of(mechanism, steps=1000).epsilon


def test_without_sampling_the_claim_covers_the_unsampled_product():
    mechanism = encoded(multiplier=2.0, vectors=PAIR)
    every = Poisson(lot_size=100, population=100)
    claim = claim_of(mechanism, steps=1, dimension=2, sampling=every)
    assert claim.epsilon > curve(mechanism.noise.event(2)).epsilon(1e-5)
    assert curve(every.amplify(mechanism.noise.event(2))).epsilon(1e-5) == pytest.approx(
        curve(mechanism.noise.event(2)).epsilon(1e-5), rel=1e-6
    )


@pytest.mark.parametrize("noise", ["gaussian", "student_t"])
def test_in_paper_mode_the_noise_is_what_the_papers_formula_asks_for(noise):
    mechanism = encoded(mode="paper", noise=noise, vectors=PAIR)
    plan = planned(mechanism, steps=500, dimension=2, budget=Budget(2.0, 1e-5)).calibrate()
    claim = RenyiOverVectors().claim(plan.settings(), Gaussian(1.0))
    assert 2.0 * (1 - 1e-3) < claim.epsilon <= 2.0


@pytest.mark.slow
def test_a_box_around_several_vectors_can_cost_more_than_the_paper_proves():
    """In few dimensions they differ, and one box for all is wide; the claim, which is proven too, is then better."""
    mechanism = encoded(multiplier=0.8, mode="paper", vectors=DrawnVectors(20))
    plan = planned(mechanism, steps=500, dimension=30, budget=Budget(9.0, 1e-5))
    claim = RenyiOverVectors().claim(plan.settings(), Gaussian(1.0))
    guarantee = make_guarantee(plan, ReleasedSteps([plan.event_at(step) for step in range(500)], [], Counter()))
    assert claim.epsilon < guarantee.epsilon(1e-5)
    assert guarantee.bounds(1e-5)[0] == 0
    assert "here it is valid and smaller than the certified bound" in str(guarantee)
    assert "The true epsilon" not in str(guarantee)


def test_a_schedule_of_different_steps_has_no_claim():
    plan = planned(encoded(multiplier=1.0), steps=4)
    plan = replace(plan, schedule=Schedule(multiplier=lambda step: 1 + step % 2).over(4))
    assert RenyiOverVectors().claim(plan.settings(), Gaussian(1.0)) is None


def test_gaussian_noise_costs_exactly_what_dpsgd_costs():
    assert encoded(multiplier=1.1, noise="gaussian").noise.event(26_010) == Gaussian(1.1)


@pytest.mark.slow
def test_calibration_keeps_the_budget_and_wastes_little():
    plan = planned(encoded(noise="laplace"), steps=30, dimension=20, budget=Budget(1.0, 1e-5)).calibrate()
    lower, upper = curve(plan.total(30)).epsilon_bounds(1e-5)
    assert 0.997 < lower <= upper <= 1.0


def test_paper_form_is_algorithms_1_and_2():
    mechanism = encoded(mode="paper")
    assert mechanism.bound == Encode(DrawnVectors(1000), 1.0)
    assert mechanism.noise == BoxNoise(StudentT(9.0), mechanism.bound.box)
    assert isinstance(mechanism.post[0], KSDenoise)
    assert not mechanism.post[0].is_relative
    assert mechanism.method.status is Status.PROVEN


def test_denoising_is_free():
    assert encoded(1.0, 1.1, denoise=True).noise.event(50) == encoded(1.0, 1.1).noise.event(50)


def test_micro_batches_of_several_examples_are_refused():
    for mode in ("rigorous", "paper"):
        with pytest.raises(InvalidArgument, match=r"nine times, for nine examples in pairs\. Give buckets=K"):
            encoded(examples_per_encoding=2, mode=mode)


@pytest.mark.slow
def test_buckets_pay_for_twice_the_vector_and_have_no_claim():
    one, several = encoded(multiplier=1.1, vectors=PAIR), encoded(multiplier=1.1, vectors=PAIR, buckets=3)
    assert several.method.claims is None
    assert "twice" in several.method.notes[0]
    # The noise doubles with the sensitivity; the box around a difference of two encodings is a little wider still.
    same, wider = (curve(mechanism.noise.event(2)).epsilon(1e-5) for mechanism in (one, several))
    assert same < wider < 1.2 * same


def test_several_vectors_say_that_their_box_is_not_filled():
    assert "no example fills" in encoded(mode="paper").method.notes[0]
    assert encoded(mode="paper", noise="gaussian").method.notes == ()


def examples():
    torch.manual_seed(0)
    x = torch.randn(80, 6)
    return x, (x[:, 0] > 0).long()


def trained(mechanism, steps=6, **settings):
    torch.manual_seed(1)
    model = torch.nn.Linear(6, 2)
    run = PrivateRun(
        model, cross_entropy, data=examples(), mechanism=mechanism, sampling=Poisson(20, 80), steps=steps, **settings
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for lot in run:
        run.backward(lot)
        optimizer.step()
    return run, model


@pytest.mark.slow
def test_a_run_states_the_certified_epsilon_first_and_the_claim_beside_it():
    run, _ = trained(encoded(multiplier=2.0))
    guarantee = run.guarantee()
    text = str(guarantee)
    assert text.startswith("Proven: epsilon ")
    assert "Claimed (Nasr et al. 2020, Theorem 1)" in text
    assert "Status of this claim: proven; here it is on the safe side" in text
    assert Guarantee.from_json(guarantee.to_json()) == guarantee
    assert guarantee.epsilon(guarantee.delta) < guarantee.claim.epsilon


def test_micro_batches_of_the_run_are_not_those_of_the_encoding():
    whole, pieces = (trained(encoded(multiplier=2.0), seed=3, micro_batch=size)[1] for size in (None, 4))
    torch.testing.assert_close(whole.weight, pieces.weight, rtol=1e-4, atol=1e-5)


def test_a_run_in_pieces_cannot_fill_buckets():
    with pytest.raises(InvalidArgument, match="whole lot"):
        trained(encoded(multiplier=2.0, buckets=5), micro_batch=2)
    assert trained(encoded(multiplier=2.0, buckets=5))[0].step == 6


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "student_t"])
def test_parameters_frozen_since_the_run_began_are_refused(noise):
    """12 weights are accounted for by a box in which the 8 that are left could move further than in a box of 8."""
    small, large = Profile().rows(8)[0], Profile().rows(12)[0][-8:]
    truth = curve(product_event(list_families()[noise].density(1.0), large)).epsilon_bounds(1e-5)[0]
    assert truth > curve(product_event(list_families()[noise].density(1.0), small)).epsilon(1e-5)
    model = torch.nn.Linear(2, 4)
    run = PrivateRun(
        model,
        cross_entropy,
        data=(torch.randn(50, 2), torch.zeros(50, dtype=torch.long)),
        mechanism=encoded(1.0, 1.0, noise=noise),
        sampling=Poisson(10, 50),
        steps=1,
        seed=0,
    )
    model.bias.requires_grad_(False)
    with pytest.raises(InvalidArgument, match="8 numbers would be released, but gradients were encoded for 12"):
        run.backward(next(iter(run)))


@pytest.mark.slow
def test_a_saved_run_goes_on_bit_for_bit(tmp_path):
    mechanism = encoded(multiplier=2.0, denoise=True)
    whole, expected = trained(mechanism, seed=5)
    torch.manual_seed(1)
    model = torch.nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    settings = {"data": examples(), "mechanism": mechanism, "sampling": Poisson(20, 80), "steps": 6, "seed": 5}
    run = PrivateRun(model, cross_entropy, **settings)
    for lot in run:
        run.backward(lot)
        optimizer.step()
        if run.step == 3:
            break
    run.save(tmp_path, optimizer)
    fresh = torch.nn.Linear(6, 2)
    optimizer = torch.optim.SGD(fresh.parameters(), lr=0.5)
    resumed = PrivateRun.resume(tmp_path, fresh, cross_entropy, data=examples(), optimizer=optimizer)
    for lot in resumed:
        resumed.backward(lot)
        optimizer.step()
    assert torch.equal(fresh.weight, expected.weight)
    assert resumed.guarantee().epsilon(1e-4) == whole.guarantee().epsilon(1e-4)


def test_encoded_training_learns():
    """With next to no noise, a separable problem is learnt."""
    torch.manual_seed(0)
    x, y = examples()
    for noise in ("student_t", "laplace"):
        _, model = trained(encoded(multiplier=0.05, noise=noise), steps=40)
        assert float((model(x).argmax(1) == y).float().mean()) > 0.9
