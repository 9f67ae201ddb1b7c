"""Runs whose lots or noise hang together over several steps: their cost, and what resuming costs and never saves."""

import pytest
import torch

from tacit import Budget, CyclicPoisson, FixedLots, Ledger, PrivateRun, RandomAllocation, TruncatedPoisson
from tacit.accounting import Adjacency, Allocated, Gaussian, curve
from tacit.errors import CannotResume, InvalidArgument
from tacit.methods import adaclip, dpsgd, noisy_adam
from tacit.reports.facts import describe_sampling, list_guarantee
from tacit.stages.bounds import Clip
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import BufferedNoise
from tacit.stages.sampling import Poisson
from tacit.training.plan import Schedule

POPULATION = 120
MULTIPLIER = 2.0


def loss(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets)


def data():
    torch.manual_seed(0)
    return torch.randn(POPULATION, 4), torch.randint(2, (POPULATION,))


def new_model():
    torch.manual_seed(1)
    return torch.nn.Linear(4, 2)


def make(sampling, mechanism, *, steps=12, seed=None, model=None, **more):
    model = model or new_model()
    run = PrivateRun(model, loss, data=data(), mechanism=mechanism, sampling=sampling, steps=steps, seed=seed, **more)
    return run, torch.optim.Adam(model.parameters(), lr=0.1)


def train(run, optimizer, until=None):
    for lot in run:
        run.backward(lot)
        optimizer.step()
        if run.step == until:
            break
    return run


def resume(folder):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return PrivateRun.resume(folder, model, loss, data=data(), optimizer=optimizer), optimizer


PAIRS = [
    (RandomAllocation(40, POPULATION), dpsgd(1.0, MULTIPLIER)),
    (CyclicPoisson(20, POPULATION, groups=4), dpsgd(1.0, MULTIPLIER, noise="banded", bands=4)),
]
every_pair = pytest.mark.parametrize(("sampling", "mechanism"), PAIRS, ids=lambda one: type(one).__name__)


@pytest.mark.slow
@every_pair
def test_a_seeded_run_resumes_bit_for_bit_within_an_epoch(sampling, mechanism, tmp_path):
    whole = train(*make(sampling, mechanism, seed=7)).model.weight.detach().clone()
    run, optimizer = make(sampling, mechanism, seed=7)
    train(run, optimizer, until=7).save(tmp_path, optimizer)
    assert torch.equal(train(*resume(tmp_path)).model.weight, whole)


@pytest.mark.slow
def test_with_momentum_and_a_schedule_of_noise_a_seeded_run_resumes_bit_for_bit(tmp_path):
    def begin():
        schedule = Schedule(multiplier=[1.0] * 6 + [0.5] * 6)
        run, _ = make(*PAIRS[1], seed=7, schedule=schedule)
        return run, torch.optim.SGD(run.model.parameters(), lr=0.1, momentum=0.9)

    whole = train(*begin())
    run, optimizer = begin()
    train(run, optimizer, until=7).save(tmp_path, optimizer)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    resumed = PrivateRun.resume(tmp_path, model, loss, data=data(), optimizer=optimizer)
    assert torch.equal(train(resumed, optimizer).model.weight, whole.model.weight)
    # Cycles of four steps: the second one has steps of both noises, and costs as much as its noisier steps allow.
    first, later = (Gaussian(each).sampled(4 * 20 / POPULATION) for each in (MULTIPLIER, MULTIPLIER / 2))
    assert whole.guarantee().event == first * 1 + later * 2


def test_noise_whose_steps_overlap_takes_no_schedule():
    """Its scale is proven for steps with equal noise only."""
    mechanism = Mechanism(Clip(1.0), BufferedNoise(MULTIPLIER, steps=12, apart=4))
    run, optimizer = make(CyclicPoisson(20, POPULATION, groups=4), mechanism, schedule=Schedule([1.0] * 6 + [0.5] * 6))
    with pytest.raises(InvalidArgument, match="other coefficients"):
        train(run, optimizer)


def test_correlated_noise_protects_people_with_several_rows():
    """The same lots of people as of examples, at the same cost, with the same noise."""
    people = torch.arange(POPULATION) % (POPULATION // 2)
    sampling = CyclicPoisson(10, POPULATION // 2, groups=4)
    run, optimizer = make(sampling, PAIRS[1][1], seed=3, unit=people, rows_per_unit=2)
    guarantee = train(run, optimizer).guarantee()
    assert guarantee.unit == "person"
    assert guarantee.event == Gaussian(MULTIPLIER).sampled(4 * 10 / (POPULATION // 2)) * 3
    past = run._source.stream(2, 11).recall("past noise", list)._past
    assert len(past) == 3


def test_an_allocated_epoch_that_resumes_is_charged_in_both_its_parts(tmp_path):
    run, optimizer = make(*PAIRS[0])
    train(run, optimizer, until=8).save(tmp_path, optimizer)
    event = train(*resume(tmp_path)).guarantee().event
    noise = Gaussian(MULTIPLIER)
    parts = Allocated(noise, 3, 3) * 2 + Allocated(noise, 3, 2) * 1 + Allocated(noise, 3, 1) * 1
    assert event == parts + Allocated(noise, 3, 3) * 1


@pytest.mark.slow
def test_a_band_that_restarts_is_charged_for_the_cycle_that_it_repeats(tmp_path):
    run, optimizer = make(*PAIRS[1])
    train(run, optimizer, until=6).save(tmp_path, optimizer)
    resumed = train(*resume(tmp_path))
    whole = train(*make(*PAIRS[1]))
    step = Gaussian(MULTIPLIER).sampled(4 * 20 / POPULATION)
    assert whole.guarantee().event == step * 3
    assert curve(resumed.guarantee().event).epsilon(1e-5) == pytest.approx(curve(step * 4).epsilon(1e-5), rel=1e-6)


@pytest.mark.slow
@every_pair
def test_at_the_end_of_an_epoch_resuming_costs_nothing(sampling, mechanism, tmp_path):
    run, optimizer = make(sampling, mechanism)
    train(run, optimizer, until=sampling.steps_per_epoch).save(tmp_path, optimizer)
    resumed = train(*resume(tmp_path))
    assert resumed.guarantee().event == train(*make(sampling, mechanism)).guarantee().event


@pytest.mark.slow
def test_with_a_budget_a_run_that_restarts_makes_fewer_steps(tmp_path):
    three_cycles = Gaussian(MULTIPLIER).sampled(4 * 20 / POPULATION) * 3
    budget = Budget(epsilon=curve(three_cycles).epsilon(1e-4) * 1.001, delta=1e-4)
    run, optimizer = make(*PAIRS[1], budget=budget)
    train(run, optimizer, until=6).save(tmp_path, optimizer)
    resumed, optimizer = resume(tmp_path)
    assert resumed.steps == 8
    assert train(resumed, optimizer).guarantee().epsilon(1e-4) <= budget.epsilon


def test_a_ledger_refuses_to_resume_within_an_epoch(tmp_path):
    ledger = Ledger(tmp_path / "some.ledger")
    ledger.set_budget("some", Budget(epsilon=50, delta=1e-4))
    run, optimizer = make(*PAIRS[0], ledger=ledger, dataset="some")
    train(run, optimizer, until=8).save(tmp_path / "run", optimizer)
    with pytest.raises(CannotResume, match="end of an epoch"):
        resume(tmp_path / "run")


def test_neither_past_noise_nor_groups_are_saved(tmp_path):
    run, optimizer = make(*PAIRS[1])
    train(run, optimizer, until=6).save(tmp_path, optimizer)
    stream = run._source.stream(2, 6)
    past = stream.recall("past noise", list)._past
    assert len(past) == 3
    saved = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for noise in past:
        assert noise.tobytes() not in saved
    assert b"groups 120" not in saved


@pytest.mark.parametrize("mechanism", [noisy_adam(1.0, MULTIPLIER), adaclip(1.0, MULTIPLIER)], ids=["adam", "adaclip"])
def test_other_methods_with_gaussian_noise_take_bands(mechanism):
    run = train(*make(CyclicPoisson(20, POPULATION, groups=4), mechanism.with_bands(4)))
    assert run.guarantee().event == Gaussian(MULTIPLIER).sampled(4 * 20 / POPULATION) * 3


@pytest.mark.parametrize(
    ("sampling", "adjacency"),
    [
        (RandomAllocation(20, POPULATION), Adjacency.ADD_REMOVE),
        (CyclicPoisson(20, POPULATION, groups=3), Adjacency.ADD_REMOVE),
        (TruncatedPoisson(20, POPULATION, most=60), Adjacency.ADD_REMOVE),
        (FixedLots(20, POPULATION), Adjacency.REPLACE_ONE),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_run_states_its_adjacency_and_describes_its_lots(sampling, adjacency):
    guarantee = train(*make(sampling, dpsgd(1.0, MULTIPLIER))).guarantee()
    assert guarantee.event.adjacency is adjacency
    assert sampling.assumption in guarantee.assumptions
    assert type(sampling).__name__ not in describe_sampling(sampling)
    facts = list_guarantee(guarantee, None, implemented=describe_sampling(sampling))["sampling"]
    # What is drawn and what is accounted for go by the same name.
    assert facts["implemented"].split()[:2] == facts["assumed"].split()[:2]


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [RandomAllocation(60, POPULATION), FixedLots(60, POPULATION)], ids=str)
def test_a_budget_sets_the_noise(sampling):
    run, _ = make(sampling, dpsgd(1.0), steps=4, budget=Budget(epsilon=4, delta=1e-3))
    assert 3.98 < curve(run.plan.total(4)).epsilon(1e-3) <= 4


def test_the_sum_is_divided_by_the_public_lot_size():
    released = {}
    for size in (20, 40):
        run, _ = make(TruncatedPoisson(size, POPULATION, most=1), dpsgd(1.0, 1e-6), seed=3)
        released[size] = run.release(next(iter(run)))
    # At most one clipped example, whatever the expected size: its norm over the public size.
    norms = {size: sum(float(value.norm()) ** 2 for value in found.values()) ** 0.5 for size, found in released.items()}
    assert norms[20] <= 1 / 20 + 1e-6
    assert norms[40] <= 1 / 40 + 1e-6


def test_plain_poisson_lots_never_restart(tmp_path):
    run, optimizer = make(Poisson(20, POPULATION), dpsgd(1.0, MULTIPLIER))
    train(run, optimizer, until=5).save(tmp_path, optimizer)
    assert resume(tmp_path)[0].plan.restarts == ()
