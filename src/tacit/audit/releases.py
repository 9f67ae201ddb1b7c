"""The release test: repeat a few steps of a training, and compare lots, sums, noise and charges with what is accounted.

The private sum of every lot is computed again by single passes in double precision, with code that shares nothing with
`PrivateRun`; what is left of a release is its noise. So the test finds mistakes in the program, and not in the data: a
wrong scale of the noise, gradients that are not clipped, a wrong normaliser, lots that are not the accounted samples,
streams used twice, steps that are not charged. It is computed from private examples, and its result is not for release.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit import _validate
from tacit.accounting.curve import curve
from tacit.accounting.events import Adjacency, Event, Gaussian, Sampled, count_releases
from tacit.audit.neighbour_trials import as_rows, map_tree, select_rows
from tacit.audit.release_statistics import Floats, check_composition, check_grid, check_groups, check_lots, check_noise
from tacit.audit.white_box import Training
from tacit.gradients.models import call_model, trainable
from tacit.randomness import Purpose, SecureSource
from tacit.stages.bounds.clip import Clip, NormalisedClip
from tacit.stages.mechanism import Mechanism
from tacit.stages.more_samplings import CyclicPoisson
from tacit.stages.noise import BandedNoise, GaussianNoise
from tacit.stages.noise.buffered import OverlappingNoise
from tacit.stages.sampling import FullBatch, Poisson, multiplier_of
from tacit.training.lots import Lot, examples_from, row_count
from tacit.training.people import Owners
from tacit.training.run import PrivateRun
from tacit.types import BoundedSum, Noise, Sampling

# So little noise that sums can be compared; and by how much they may differ, in clip norms for each example.
_LITTLE, _TOLERANCE, _TOLERANCE_HALF = 1e-6, 1e-3, 3e-2
# Lots of the statistics, steps whose noise is looked at, and examples expected in each of those.
_LOTS, _STEPS, _EXAMPLES = 60, 8, 96
# Sums of zeros, and half of the coordinates of each.
_DRAWS, _DRAWN = 2, 30_000
_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class ReleaseTest:
    """What the release test found: `findings` contradict the proof. `left_out` says what could not be tested, and why.

    >>> print(ReleaseTest(checked=("lots", "noise")))
    Lots and noise are as accounted for.
    """

    findings: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the proof."""
        return not self.findings

    def __or__(self, other: ReleaseTest) -> ReleaseTest:
        """Both tests together."""
        return ReleaseTest(self.findings + other.findings, self.checked + other.checked, self.left_out + other.left_out)

    def __str__(self) -> str:
        if self.findings:
            return f"Releases are not as accounted for, so the proof does not apply: {'; '.join(self.findings)}."
        parts = [f"{_join_words(self.checked).capitalize()} are as accounted for."] if self.checked else []
        return " ".join([*parts, *(f"Not tested: {text}." for text in self.left_out)])

    def to_json(self) -> dict[str, Any]:
        """The result as strings."""
        about = {"findings": self.findings, "checked": self.checked, "left_out": self.left_out}
        return {"passed": self.passed, **{name: list(value) for name, value in about.items()}, "sentence": str(self)}


def release_test(training: Training, *, false_alarm: float = 1e-9) -> ReleaseTest:
    """Repeat some steps of `training` and compare them with what is accounted for.

    Sums and noise are tested for clipping and normalising bounds with noise that is accounted for as Gaussian, lots for
    full batches and for what is accounted for as Poisson samples, of all examples or of groups that take turns. The
    correlation of banded noise is undone first. A training that does everything right is blamed with
    probability at most `false_alarm`.

    >>> from tacit.methods import dpsgd
    >>> data = torch.randn(200, 4), torch.randint(3, (200,))
    >>> training = Training(nn.Linear(4, 3), nn.functional.cross_entropy, data, dpsgd(1.0, 1.1), Poisson(20, 200), 50,
    ...                     lambda model: torch.optim.SGD(model.parameters(), lr=0.1))
    >>> release_test(training).passed
    True
    """
    alpha = _validate.open_unit("false_alarm", false_alarm) / 3
    plan = training.make_run().plan
    lots = _test_lots(training, alpha)
    steps = _test_steps(training, alpha)
    return lots | steps | _test_accounting(_list_charged(plan.sampling, plan.events), plan.total(plan.steps), alpha)


def _list_charged(sampling: Sampling, events: list[Event]) -> list[Event]:
    """The steps that are charged: of lots whose groups take turns, the one of each cycle with the least noise."""
    length = sampling.groups if isinstance(sampling, CyclicPoisson) else 1
    return [min(events[start : start + length], key=multiplier_of) for start in range(0, len(events), length)]


def _test_lots(training: Training, alpha: float) -> ReleaseTest:
    """Draw many lots of numbers, so that every row says which one it is."""
    sampling = training.sampling
    rows = len(examples_from(training.data, workers=0, dtype=torch.float32))
    owners = None if training.unit is None else Owners.of(training.unit, rows)
    n = rows if owners is None else len(owners.sizes)
    event = training.make_run().plan.event_at(0)
    is_poisson = isinstance(event, Sampled)
    if not (is_poisson or isinstance(sampling, FullBatch)) or (training.schedule and training.schedule.lot_size):
        return ReleaseTest(left_out=(f"lots of {type(sampling).__name__}, which are not accounted for as one kind",))
    groups = sampling.groups if isinstance(sampling, CyclicPoisson) else 1
    # Whole cycles: an example is in one lot of each at most.
    steps = min(max(_LOTS, 2 * groups), training.steps) // groups * groups
    if not steps:
        return ReleaseTest(left_out=(f"lots of {type(sampling).__name__}, because no cycle of groups is complete",))
    numbers = torch.arange(rows, dtype=torch.float64).reshape(rows, 1)
    simple = replace(training, model=_Number(), loss=nn.functional.mse_loss, data=(numbers, torch.zeros_like(numbers)))
    run = simple.make_run()
    lots: list[NDArray[np.int64]] = []
    for lot in _train(run, steps):
        drawn = lot.inputs.reshape(-1).long().numpy()
        if owners is not None:
            drawn, is_right = _find_people(drawn, lot, owners, training.rows_per_unit)
            if not is_right:
                return ReleaseTest(("a lot holds other rows of a person than were declared",), ("lots",))
        lots.append(drawn)
    if not is_poisson:
        is_whole = all(np.array_equal(np.sort(lot), np.arange(n)) for lot in lots)
        return ReleaseTest(() if is_whole else ("a lot does not hold every example once",), ("lots",))
    found = check_groups(lots, groups)
    cycles = [np.concatenate(lots[start : start + groups]) for start in range(0, steps, groups)]
    found = found or check_lots(cycles, n, _describe_step(event)[1], alpha)
    found += _check_count(run.guarantee().event, _list_charged(sampling, run.plan.events[:steps]), steps)
    return ReleaseTest(tuple(found), ("lots",))


def _find_people(rows: NDArray[np.int64], lot: Lot, owners: Owners, most: int | None) -> tuple[NDArray[np.int64], bool]:
    """The people of a lot, and whether it holds different rows of each, in one piece and as many as declared."""
    counts = np.asarray(lot.counts)
    people = owners.person[rows[np.cumsum(counts) - counts]] if len(counts) else np.zeros(0, np.int64)
    is_whole = np.array_equal(owners.person[rows], np.repeat(people, counts)) and len(set(rows)) == len(rows)
    return people, is_whole and np.array_equal(counts, np.minimum(owners.sizes[people], most or 0))


class _Number(nn.Module):
    """A model whose inputs are numbers of examples."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(1, 1, dtype=torch.float64)

    def forward(self, numbers: Tensor) -> Tensor:
        values: Tensor = self.line(numbers)
        return values


def _train(run: PrivateRun, steps: int) -> Iterator[Any]:
    """Every lot, before its release; then the step, with weights that stay as they are."""
    optimizer = torch.optim.SGD([p for p in run.model.parameters() if p.requires_grad], lr=0.0)
    if not steps:
        return
    for lot in run:
        yield lot
        run.backward(lot)
        optimizer.step()
        if run.step >= steps:
            break


def _check_count(event: Event, planned: list[Event], steps: int) -> list[str]:
    counts = count_releases(event)
    if counts == Counter(planned):
        return []
    return [f"{steps} steps were made, and the guarantee counts {counts.total()}: {event}"]


def _describe_step(event: Event) -> tuple[float, float]:
    """Multiplier and rate that were accounted for in one Gaussian step; NaN for any other step."""
    rate, inside = (event.rate, event.inside) if isinstance(event, Sampled) else (1.0, event)
    if not isinstance(inside, Gaussian):
        return math.nan, rate
    # Half, where one example is replaced: the sum moves by up to twice the clip norm.
    return inside.multiplier * (2 if inside.adjacency is Adjacency.REPLACE_ONE else 1), rate


def _test_steps(training: Training, alpha: float) -> ReleaseTest:
    mechanism = training.mechanism
    multiplier, _ = _describe_step(training.make_run().plan.event_at(0))
    if not isinstance(mechanism.bound, (Clip, NormalisedClip)) or math.isnan(multiplier):
        names = f"{type(mechanism.bound).__name__} with {type(mechanism.noise).__name__}"
        return ReleaseTest(left_out=(f"sums and noise of {names}",))
    if isinstance(mechanism.noise, OverlappingNoise):
        return ReleaseTest(left_out=(f"sums and noise of {type(mechanism.noise).__name__}, whose steps overlap",))
    if mechanism.post or mechanism.guide is not None:
        return ReleaseTest(left_out=("sums and noise, because releases are processed further",))
    with TemporaryDirectory(prefix="tacit-audit-") as folder:
        data, unit = _take_few(training)
        trial = _Trial(replace(training, model=copy.deepcopy(training.model), data=data, unit=unit), folder)
        if trial.is_random():
            return ReleaseTest(left_out=("sums and noise, because the model draws random numbers",))
        found = trial.compare_sums() or trial.compare_noise(alpha / 2) or _check_draws(mechanism, multiplier, alpha / 2)
    return ReleaseTest(tuple(found), ("sums", "noise", "charges"))


def _check_draws(mechanism: Mechanism, multiplier: float, alpha: float) -> list[str]:
    """The noise on sums of zeros, as large as those of a network: it shows repetitions that a few numbers do not."""
    source, bounded = SecureSource(), {name: torch.zeros(_DRAWN) for name in ("large", "sum")}
    norm = _norm_of(mechanism.bound)
    drawn = [
        mechanism.noise.add(BoundedSum(bounded, norm), source.stream(Purpose.NOISE, step)) for step in range(_DRAWS)
    ]
    noise = [{name: value.double().numpy() for name, value in one.items()} for one in drawn]
    return check_noise(_undo(mechanism.noise, noise, [multiplier * norm] * _DRAWS), [1.0] * _DRAWS, alpha)


def _undo(noise: Noise, drawn: list[dict[str, Floats]], stds: list[float]) -> list[dict[str, Floats]]:
    """The noise of steps in a row over its standard deviations: of banded noise, with the correlation undone."""
    scaled = [{name: value / std for name, value in step.items()} for step, std in zip(drawn, stds, strict=True)]
    if not isinstance(noise, BandedNoise):
        return scaled
    return [
        {
            name: sum((c * scaled[at - k][name] for k, c in enumerate(noise.coefficients[: at + 1])), np.zeros(1))
            for name in step
        }
        for at, step in enumerate(scaled)
    ]


def _take_few(training: Training) -> tuple[Any, Any]:
    """So many examples that a lot of them holds about a hundred; of people all rows of so many, and whose they are."""
    sampling = training.sampling
    whole = not isinstance(sampling, (Poisson, FullBatch, CyclicPoisson))
    share = 1.0 if isinstance(sampling, FullBatch) else sampling.lot_size / sampling.population
    wanted = 2**62 if whole else math.ceil(_EXAMPLES / share)
    if training.unit is None:
        rows = as_rows(training.data, min(wanted, 2**20))
        return select_rows(rows, list(range(min(row_count(rows[1]), wanted)))), None
    rows = as_rows(training.data, 2**20)
    person = Owners.of(training.unit, len(training.unit)).person[: row_count(rows[1])]
    kept = np.flatnonzero(person < wanted)
    return select_rows(rows, kept.tolist()), person[kept]


@dataclass(frozen=True, eq=False)
class _Trial:
    training: Training
    folder: str

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        return trainable(self.training.model)

    @property
    def is_half(self) -> bool:
        return any(value.dtype in _HALF for value in self.parameters.values())

    def is_random(self) -> bool:
        """Whether two passes over the same examples differ."""
        few = list(range(min(4, row_count(self.training.data[1]))))
        inputs, targets = select_rows(self.training.data, few)
        run = self.training.make_run()
        first, second = (self.sum_alone(run, inputs, targets, None) for _ in range(2))
        return any(not torch.allclose(first[name], second[name], equal_nan=True) for name in first)

    def sum_alone(self, run: PrivateRun, inputs: Any, targets: Any, counts: Tensor | None) -> dict[str, Tensor]:
        """The sum of bounded gradients: each example goes alone through a copy of the model in double precision.

        Of people, with `counts` rows each, it is the mean of their gradients that is bounded.
        """
        model, loss = copy.deepcopy(self.training.model).cpu().double(), copy.deepcopy(run.loss)
        weights = {name: value for name, value in model.named_parameters() if name in self.parameters}
        total = {name: torch.zeros_like(value) for name, value in weights.items()}
        sizes = [1] * row_count(targets) if counts is None else counts.tolist()
        example = 0
        for size in sizes:
            own = {name: torch.zeros_like(value) for name, value in weights.items()}
            for row in range(example, example + size):
                one, target = map_tree(select_rows((inputs, targets), [row]), _double)
                found = loss(call_model(model, one), target).sum() / size
                pulled = torch.autograd.grad(found, list(weights.values()), allow_unused=True, materialize_grads=True)
                own = {name: own[name] + value for name, value in zip(weights, pulled, strict=True)}
            example += size
            for name, factor in _find_factors(run.mechanism.bound, own).items():
                if factor > 0:
                    total[name] += factor * own[name]
        return {name: value.detach() for name, value in total.items()}

    def compare_sums(self) -> list[str]:
        """With hardly any noise, a release is the sum of bounded gradients over the public lot size.

        Some examples have no finite gradient, and so must count zero.
        """
        try:
            return self._compare_sums(map_tree(self.training.data, self._spoil_some))
        except RuntimeError:
            # Some losses refuse what is not finite.
            return self._compare_sums(self.training.data)

    def _spoil_some(self, tensor: Tensor) -> Tensor:
        """Every eighth example, or person, without a finite number in it."""
        spoilt, unit = tensor.clone(), self.training.unit
        if tensor.is_floating_point():
            whose = torch.arange(len(tensor)) if unit is None else torch.from_numpy(unit)
            spoilt[whose % 8 == 0] = math.nan
        return spoilt

    def _compare_sums(self, data: Any) -> list[str]:
        mechanism = self.training.mechanism.with_multiplier(_LITTLE)
        run = self.training.make_run(mechanism=mechanism, data=data)
        clip_norm = _norm_of(run.mechanism.bound)
        tolerance = _TOLERANCE_HALF if self.is_half else _TOLERANCE
        for lot, rest in self.residuals(run, min(3, self.training.steps)):
            off = math.hypot(*(float(np.linalg.norm(part)) for part in rest.values())) / clip_norm
            if not off <= tolerance * max(lot, 1):
                return [f"a sum differs by {off:.3g} clip norms from that of single passes, each clipped alone"]
        return []

    def residuals(self, run: PrivateRun, steps: int) -> Iterator[tuple[int, dict[str, Floats]]]:
        """For each step, how many examples its lot held, and what the release holds besides their sum."""
        waiting: tuple[int, dict[str, Tensor]] | None = None
        lot_size = run.sampling.lot_size
        for lot in _train(run, steps):
            if waiting is not None:
                yield waiting[0], self._rest(waiting[1], lot_size)
            sampling = run.plan.sampling_at(lot.step)
            lot_size = sampling.lot_size
            waiting = row_count(lot.targets), self.sum_alone(run, lot.inputs, lot.targets, lot.counts)
        if waiting is not None:
            yield waiting[0], self._rest(waiting[1], lot_size)

    def _rest(self, total: dict[str, Tensor], lot_size: float) -> dict[str, Floats]:
        rest = {}
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                rest[name] = (parameter.grad.cpu().double() * lot_size - total[name]).flatten().numpy()
        return rest

    def compare_noise(self, alpha: float) -> list[str]:
        """The noise of some steps, of which the last two are lost: a resumed run draws them anew, and pays for both."""
        steps = min(_STEPS, self.training.steps)
        kept = max(steps - 2, 0)
        run = self.training.make_run()
        multipliers = [_describe_step(run.plan.event_at(step))[0] for step in range(steps)]
        noise = [rest for _, rest in self.residuals(run, kept)]
        run.save(self.folder)
        noise += [rest for _, rest in self.residuals(run, steps)]
        training = self.training
        own = tuple(type(one) for one in (training.mechanism.bound, training.mechanism.noise, training.sampling))
        resumed = PrivateRun.resume(
            self.folder, training.model, training.loss, data=training.data, stages=own, unit=training.unit
        )
        again = [rest for _, rest in self.residuals(resumed, steps)]
        stds = [one * _norm_of(run.mechanism.bound) for one in multipliers]
        kind = run.mechanism.noise
        # The resumed run has started a new band.
        fresh = _undo(kind, noise, stds) + _undo(kind, again, stds[kept:])
        found = check_noise(fresh, [1.0] * len(fresh), alpha)
        counts, events, sampling = count_releases(resumed.guarantee().event), run.plan.events, self.training.sampling
        parts = [events[:steps]]
        if isinstance(sampling, CyclicPoisson):
            # The cycle in which the run resumes is charged on both sides.
            end = -(-kept // sampling.groups) * sampling.groups
            parts = [events[:kept], events[kept : min(end, steps)], events[end:steps]]
        least = Counter(each for part in parts for each in _list_charged(sampling, part))
        least += Counter(events[kept:steps])
        if isinstance(sampling, (Poisson, FullBatch, CyclicPoisson)) and not counts >= least:
            found.append(
                f"{least.total()} steps were drawn, of which a crash lost {steps - kept}, and the guarantee counts "
                f"{counts.total()}"
            )
        if not found and not self.is_half and type(run.mechanism.noise) is GaussianNoise:
            lot_size = resumed.plan.sampling_at(steps - 1).lot_size
            last = [p.grad.double().cpu().flatten() for p in self.parameters.values() if p.grad is not None]
            found += check_grid(torch.cat(last).numpy() * lot_size, stds[-1])
        return found


def _norm_of(bound: Any) -> float:
    norm: float = bound.norm
    return norm


def _double(tensor: Tensor) -> Tensor:
    return tensor.cpu().double() if tensor.is_floating_point() else tensor.cpu()


def _find_factors(bound: Any, own: dict[str, Tensor]) -> dict[str, float]:
    """By what the gradient of one example is multiplied, for each parameter; 0 if it is not finite."""
    squares = {name: float(value.square().sum()) for name, value in own.items()}
    norm = math.sqrt(sum(squares.values()))
    if not math.isfinite(norm):
        return dict.fromkeys(own, 0.0)
    if isinstance(bound, NormalisedClip):
        return dict.fromkeys(own, bound.norm / (norm + bound.gamma))
    if not bound.per_layer:
        return dict.fromkeys(own, min(1.0, bound.norm / norm) if norm else 1.0)
    modules: dict[str, float] = {}
    for name, square in squares.items():
        module = name.rpartition(".")[0]
        modules[module] = modules.get(module, 0.0) + square
    each = bound.norm / math.sqrt(len(modules))
    shares = {module: min(1.0, each / math.sqrt(s)) if s else 1.0 for module, s in modules.items()}
    return {name: shares[name.rpartition(".")[0]] for name in own}


def _test_accounting(events: list[Event], whole: Event, alpha: float) -> ReleaseTest:
    """Whether the accountant agrees with a simulation of all steps, if they are alike."""
    multiplier, rate = _describe_step(events[0])
    if len(set(events)) > 1 or math.isnan(multiplier) or count_releases(whole).total() != len(events):
        return ReleaseTest(left_out=("the accountant, because steps differ or are not Gaussian",))
    found = check_composition(curve(whole), multiplier, rate, len(events), alpha)
    return ReleaseTest(tuple(found), ("accounting",))


def _join_words(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
