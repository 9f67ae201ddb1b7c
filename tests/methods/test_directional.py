"""Directional noise: its rule for the noise, its claims beside what is proven, and its rigorous forms."""

import math
import re
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats
from torch.nn.functional import cross_entropy

from tacit import Budget, FullBatch, Poisson, PrivateRun, Schedule, methods
from tacit.accounting import Gaussian, Unproven, curve, gdp, multiplier_for
from tacit.errors import InvalidArgument, NotAchievable
from tacit.guarantee import FIXED_SEED, Status
from tacit.methods.directional import TauRule, directional, tau
from tacit.stages.bounds import Clip, ShapedClip, Whiten
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import GaussianNoise, NoisyMean
from tacit.training.plan import Plan

MNIST = Poisson(lot_size=512, population=55_000), 6445
SVHN = Poisson(lot_size=256, population=73_257), 8585
CIFAR = Poisson(lot_size=256, population=60_000), 23_438
# Published settings for w = 1: claim, multiplier of the rule, certified epsilon, multiplier that would do.
PUBLISHED = [
    (MNIST, 0.2, 20.975828912929213, 0.1107, 12.23),
    (MNIST, 0.3, 15.932234205925393, 0.1496, 8.449),
    (MNIST, 0.5, 11.725783161062918, 0.2094, 5.323),
    (MNIST, 1.0, 8.004667755640392, 0.3184, 2.895),
    (SVHN, 5.0, 2.4545460771539207, 0.4865, 0.659),
    (SVHN, 10.0, 1.7338456087280283, 0.7494, 0.542),
    (CIFAR, 5.0, 4.4838, 0.5218, 0.867),
    (CIFAR, 10.0, 3.1664, 0.7745, 0.667),
    (CIFAR, 15.0, 2.5842, 0.9823, 0.590),
]
# At rate 0.01 the rule gives too little noise, or enough: epochs, claim, beta, multiplier, certified interval.
AMPLIFIED = [
    (1, 2.0, "integer", 0.7196437937257201, 2.157, 2.163),
    (1, 5.0, "integer", 0.45033522020256794, 8.737, 8.743),
    (1, 10.0, "integer", 0.31732566934817397, 23.087, 23.093),
    (2, 10.0, "integer", 0.4487662652813079, 10.661, 10.673),
    (1, 2.0, "real", 0.6014844513084502, 3.782, 3.788),
    (5, 10.0, "integer", 0.7096, 3.425, 3.451),
    (1, 0.5, "integer", 1.5233526108275686, 0.2797, 0.2851),
]


def settled(sampling, steps, claimed, **options):
    """The plan in paper mode for a claimed epsilon at delta 1e-5."""
    mechanism = directional(mode="paper", **options)
    return Plan(mechanism, sampling, steps, 61_706, Budget(claimed, 1e-5)).calibrate()


@pytest.mark.parametrize(("setting", "claimed", "multiplier", "certified", "needed"), PUBLISHED)
def test_published_settings_with_isotropic_noise(setting, claimed, multiplier, certified, needed):
    sampling, steps = setting
    plan = settled(sampling, steps, claimed, variant="w1")
    assert plan.mechanism.noise.multiplier == pytest.approx(multiplier, rel=1e-4)
    upper = curve(plan.total(steps)).epsilon(1e-5)
    assert upper == pytest.approx(certified, abs=0.002)
    assert upper < claimed
    claim = plan.mechanism.method.claims.claim(plan.settings(), plan.total(steps))
    assert claim.epsilon == pytest.approx(claimed, rel=1e-9)
    enough = multiplier_for(epsilon=claimed, delta=1e-5, rate=sampling.rate, steps=steps)
    assert enough == pytest.approx(needed, rel=0.002)
    assert 1.7 < multiplier / enough < 5.2


def test_with_the_true_number_of_images_the_claim_for_cifar_is_as_safe():
    plan = settled(Poisson(256, 50_000), round(100 * 50_000 / 256), 15.0, variant="w1")
    assert curve(plan.total(plan.steps)).epsilon(1e-5) == pytest.approx(1.0863, abs=0.002)


@pytest.mark.slow
@pytest.mark.parametrize(("epochs", "claimed", "beta", "multiplier", "low", "high"), AMPLIFIED)
def test_dividing_the_budget_by_the_rate_is_no_theorem(epochs, claimed, beta, multiplier, low, high):
    plan = settled(Poisson(100, 10_000), 100 * epochs, claimed, variant="w1", rule=TauRule(beta))
    assert plan.mechanism.noise.multiplier == pytest.approx(multiplier, rel=1e-4)
    lower, upper = curve(plan.total(plan.steps)).epsilon_bounds(1e-5)
    assert low < lower <= upper < high
    assert (lower > claimed) == (low > claimed)


@pytest.mark.slow
def test_a_refuted_rule_is_shown_as_what_it_is():
    """Proven first, then the claim, which here is too small."""
    run = trained(directional(mode="paper", variant="w1"), sampling=Poisson(4, 400), steps=100, epsilon=5)
    guarantee = run.guarantee()
    assert guarantee.status is Status.REFUTED
    assert guarantee.bounds(1e-5)[0] > guarantee.claim.epsilon == pytest.approx(5)
    first, *others = str(guarantee).splitlines()
    assert first.startswith("Proven: epsilon 8.7")
    assert any("epsilon 5 at delta 1e-05" in line and "refuted; here it is too small" in line for line in others)


def test_the_split_of_the_budget_between_w_and_the_gradient():
    sampling, steps = MNIST
    mechanism = settled(sampling, steps, 1.0).mechanism
    assert mechanism.noise.multiplier == pytest.approx(8.605791566876968, rel=1e-9)
    assert mechanism.guide.multiplier == pytest.approx(3356.286670440343, rel=1e-9)


@pytest.mark.parametrize(
    ("setting", "claimed", "share", "multiplier", "truth"),
    [(MNIST, 1.0, 1 / 8, 3356.286670440343, 0.17793094928855258), (SVHN, 5.0, 1 / 3, 288.2187214431112, 2.81)],
)
def test_the_noisy_w_costs_more_than_its_share(setting, claimed, share, multiplier, truth):
    """Its sensitivity is twice the clip norm: 0.178 where 0.125 is claimed."""
    sampling, steps = setting
    guide = settled(sampling, steps, claimed, rule=TauRule(share=share)).mechanism.guide
    assert guide.multiplier == pytest.approx(multiplier, rel=1e-9)
    spent = curve(guide.event(1) * steps).epsilon(share * 1e-5)
    assert spent == pytest.approx(truth, rel=2e-3)
    assert spent > share * claimed


def test_the_literal_reading_has_as_many_times_more_noise_as_a_lot_has_examples():
    sampling, steps = MNIST
    plan = settled(sampling, steps, 1.0, variant="w1", rule=TauRule(alpha_of="average"))
    assert plan.mechanism.noise.multiplier == pytest.approx(4098.389890887881, rel=1e-9)
    claim = plan.mechanism.method.claims.claim(plan.settings(), plan.total(1))
    assert claim.epsilon == pytest.approx(1.0)


@lru_cache
def _mean_power():
    return integrate.quad(lambda z: z ** (4 / 3) * stats.norm.pdf(z), 0, np.inf)[0] * 2


def visible(epsilon, ratio):
    """delta of one release for an example in a fixed direction, w being noise that the attacker sees; large models."""

    def at(z):
        return gdp.delta(epsilon, ratio * z ** (-1 / 3) / math.sqrt(_mean_power())) * 2 * stats.norm.pdf(z)

    # The integrand changes over many orders of magnitude near zero.
    edges = [0.0, *np.logspace(-12, 1, 40)]
    return sum(integrate.quad(at, a, b)[0] for a, b in pairwise(edges))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claimed", "delta", "truth"),
    [(0.5, 0.002212782788805752, 12.308), (1.0, 0.00486801696660723, 46.911), (2.0, 0.010997282246228679, 179.05)],
)
def test_one_release_of_algorithm_1_is_far_from_its_claim(claimed, delta, truth):
    """An example with a fixed gradient direction, one release without sampling, all of the budget for the gradient."""
    ratio = math.sqrt(tau(claimed, 1e-5, 1))
    assert visible(claimed, ratio) == pytest.approx(delta, rel=1e-4)
    found = optimize.brentq(lambda e: math.log(visible(e, ratio) / 1e-5), 5, 400, xtol=1e-4)
    assert found == pytest.approx(truth, rel=1e-3)


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


def data(n=400):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 6, generator=generator)
    return x, (x[:, 0] > 0).long()


def trained(mechanism, *, sampling=None, steps=8, epsilon=3.0, seed=0, **options):
    network = model()
    run = PrivateRun(
        network,
        cross_entropy,
        data=data(),
        mechanism=mechanism,
        sampling=sampling or Poisson(40, 400),
        steps=steps,
        budget=Budget(epsilon, 1e-5),
        seed=seed,
        **options,
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    for lot in run:
        run.backward(lot)
        optimizer.step()
    return run


@pytest.mark.slow
def test_algorithm_1_proves_nothing_and_keeps_its_odometer_apart():
    guarantee = trained(directional(mode="paper")).guarantee()
    assert guarantee.epsilon(1e-5) == math.inf
    assert guarantee.bounds(1e-5) == (0.0, math.inf)
    assert guarantee.status is Status.REFUTED
    assert guarantee.claim.epsilon == pytest.approx(3, rel=1e-9)
    assert guarantee.odometer > 10
    text = str(guarantee)
    assert text.startswith("Proven: nothing.")
    assert "That is not a guarantee." in text
    assert '"epsilon_upper": null' in guarantee.to_json()
    assert '"dp_guarantee": false' in guarantee.to_json()


def test_the_step_that_protected_least_is_shown():
    run = trained(directional(mode="paper"))
    shown = float(re.search(r"by ([0-9.]+) standard deviations", str(run.guarantee())).group(1))
    # Rounded to the worse, and always more than the paper counts on.
    assert shown == pytest.approx(max(1 / event.parts[0].inside.multiplier for event in run._realised), rel=1e-3)
    assert shown > 1 / run.mechanism.noise.multiplier


def test_the_noisy_w_is_charged_at_every_step_without_sampling():
    run = trained(directional(mode="paper"), steps=3)
    events = [event for event in run.guarantee().event.walk() if isinstance(event, Gaussian)]
    assert events == [Gaussian(run.mechanism.guide.multiplier / 2)]
    assert any(isinstance(event, Unproven) for event in run.guarantee().event.walk())
    assert "cost epsilon" in " ".join(run.guarantee().notes)


def test_the_guide_sees_the_mean_gradient_of_all_the_data():
    """Without noise to speak of, the direction that steers the noise is the clipped ordinary gradient."""
    mechanism = directional(10.0, 1.0, mode="paper")
    mechanism = Mechanism(mechanism.bound, mechanism.noise, guide=NoisyMean(10.0, 1e-9))
    network, (x, y) = model(), data()
    run = PrivateRun(
        network,
        cross_entropy,
        data=(x, y),
        mechanism=mechanism,
        sampling=Poisson(40, 400),
        steps=1,
        seed=0,
        micro_batch=7,
    )
    cross_entropy(network(x), y).backward()
    expected = {name: p.grad.clone() for name, p in network.named_parameters()}
    for lot in run:
        run.backward(lot)
    for name, gradient in expected.items():
        torch.testing.assert_close(run._state.bound[f"direction/{name}"], gradient, atol=1e-5, rtol=1e-4)


def test_a_guide_needs_a_bound_that_can_be_steered():
    with pytest.raises(InvalidArgument, match="Steered"):
        Mechanism(Clip(1.0), GaussianNoise(1.0), guide=NoisyMean(1.0))


def test_algorithm_1_needs_a_budget_for_the_noise_of_w():
    with pytest.raises(InvalidArgument, match="a budget"):
        PrivateRun(
            model(),
            cross_entropy,
            data=data(),
            mechanism=directional(1.0, 2.0, mode="paper"),
            sampling=Poisson(4, 400),
            steps=2,
        )


def test_the_rule_has_no_answer_where_delta_over_the_rate_is_not_below_one():
    with pytest.raises(NotAchievable, match="divides delta by the sampling rate"):
        settled(Poisson(1, 200_000), 10, 1.0, variant="w1")


@pytest.mark.slow
def test_the_rule_knows_one_noise_level_only():
    run = trained(directional(mode="paper", variant="w1"), schedule=Schedule(multiplier=lambda step: 1.0 + (step > 3)))
    assert run.guarantee().claim is None
    assert "The formula of Xiang et al. 2023 does not apply to this run" in str(run.guarantee())
    assert run.guarantee().epsilon(1e-5) < math.inf


def test_without_sampling_the_rule_is_proven():
    run = trained(directional(mode="paper", variant="w1"), sampling=FullBatch(400), steps=4)
    assert run.guarantee().epsilon(1e-5) < run.guarantee().claim.epsilon == pytest.approx(3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({}, Whiten(0.5)),
        ({"objective": "l2", "grain": "parameter"}, Whiten(0.5, "l2", "parameter")),
        ({"variant": "w1"}, Clip(0.5)),
        ({"variant": "minimax"}, Clip(0.5)),
        ({"variant": "floored"}, ShapedClip(0.5)),
    ],
)
def test_every_rigorous_form_keeps_its_budget(options, bound):
    mechanism = directional(0.5, **options)
    assert mechanism.bound == bound
    run = trained(mechanism)
    guarantee = run.guarantee()
    assert 2.99 < guarantee.epsilon(1e-5) <= 3
    assert guarantee.odometer is None
    assert guarantee.violations == (FIXED_SEED,)
    assert guarantee.status is Status.REFUTED
    lines = str(guarantee).splitlines()
    assert lines[0].startswith("Proven: epsilon ")
    [claimed] = [line for line in lines if line.startswith("Claimed ")]
    assert claimed.startswith(f"Claimed (Xiang et al. 2023, Theorem 1): epsilon {guarantee.claim.epsilon:.4g} at delta")
    assert "Status of this claim: refuted" in claimed
    assert "no theorem" in claimed


@pytest.mark.parametrize(
    "mechanism",
    [
        *(directional(1.0, 8.004667755640392, variant=variant) for variant in ("full", "w1", "minimax", "floored")),
        *(methods.pruned(1.0, 8.004667755640392, select_by=select_by) for select_by in ("release", "past")),
    ],
)
def test_the_rule_says_of_a_proven_form_what_it_says_of_the_same_noise_as_published(mechanism):
    """MNIST of the paper: the rule gives this multiplier for epsilon 1, and certified is 0.318."""
    plan = Plan(mechanism, Poisson(512, 55_000), 6445, 61_706, Budget(1.0, 1e-5))
    claim = mechanism.method.claims.claim(plan.settings(), plan.total(6445))
    assert claim.epsilon == pytest.approx(1.0, rel=1e-6)
    assert curve(plan.total(6445)).epsilon(1e-5) == pytest.approx(0.318, abs=1e-3)


@pytest.mark.slow
def test_whitening_costs_what_ordinary_clipping_costs():
    whitened, ordinary = trained(directional()), trained(methods.dpsgd())
    assert whitened.guarantee().event == ordinary.guarantee().event


def test_a_statistic_on_the_same_lot_is_one_sampled_release_with_the_gradient():
    """mu 0.3 for w and 0.9 for the gradient are one Gaussian release of multiplier 1.0540926, sampled once."""
    together = (Gaussian(1 / 0.3) + Gaussian(1 / 0.9)).sampled(0.01) * 100
    assert curve(together).epsilon(1e-5) == pytest.approx(
        curve(Gaussian(1.0540925533894598).sampled(0.01) * 100).epsilon(1e-5), rel=1e-6
    )


@pytest.mark.slow
def test_a_rigorous_run_resumes_bit_for_bit(tmp_path):
    """The scale is part of what is saved."""
    whole = trained(directional(grain="coordinate"), steps=6, seed=3)
    expected = whole.model.state_dict()
    network = model()
    settings = {"data": data(), "sampling": Poisson(40, 400), "steps": 6, "budget": Budget(3, 1e-5), "seed": 3}
    run = PrivateRun(network, cross_entropy, mechanism=directional(grain="coordinate"), **settings)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    for lot in run:
        run.backward(lot)
        optimizer.step()
        if run.step == 3:
            run.save(tmp_path, optimizer)
            break
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    resumed = PrivateRun.resume(tmp_path, network, cross_entropy, data=data(), optimizer=optimizer)
    for lot in resumed:
        resumed.backward(lot)
        optimizer.step()
    assert all(torch.equal(value, expected[name]) for name, value in network.state_dict().items())


def test_a_run_as_published_resumes_with_its_odometer(tmp_path):
    run = trained(directional(mode="paper"), steps=4)
    run.save(tmp_path)
    resumed = PrivateRun.resume(tmp_path, model(), cross_entropy, data=data())
    assert resumed.guarantee().odometer == run.guarantee().odometer
    assert resumed.guarantee().claim == run.guarantee().claim


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"variant": "w2"}, "variant must be one of 'full'"),
        ({"variant": "floored", "mode": "paper"}, "do not publish the variant 'floored'"),
        ({"mode": "printed"}, "'rigorous' or 'paper'"),
        ({"variant": "w1", "objective": "l3"}, "objective must be 'l1' or 'l2'"),
        ({"mode": "paper", "grain": "fine"}, "grain must be"),
        ({"mode": "paper", "objective": "l2"}, "objective; the published noise"),
        ({"variant": "w1", "objective": "l1", "grain": "parameter"}, "objective and grain; the variant 'w1'"),
        ({"rule": TauRule()}, "rule sets the paper's noise"),
    ],
)
def test_unknown_forms_are_refused(options, match):
    with pytest.raises(InvalidArgument, match=match):
        directional(**options)


@pytest.mark.parametrize("wrong", [{"beta": "half"}, {"alpha_of": "median"}, {"share": 1.5}])
def test_a_rule_out_of_range_is_refused(wrong):
    with pytest.raises(InvalidArgument, match="must be"):
        TauRule(**wrong)
