"""Operations on the list act on each example alone: one example is changed, the others are compared bit for bit."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import _pop_mode_temporarily

from support.operation_samples import ELSEWHERE, MIXING, SAMPLES, SIZE, WRITTEN, Sample
from tacit.errors import MixesExamples
from tacit.gradients import per_example_gradients
from tacit.gradients.checks.examiner import Examiner
from tacit.gradients.checks.labels import UNIFORM, Label, Mixed, Rows, is_private
from tacit.gradients.checks.operations import OPERATIONS
from tacit.gradients.trace import Unclear, iter_tensors

CHANGED = (0, 3)
ODD = torch.tensor([torch.nan, torch.inf, -1e30, 0.0])
Refusals = (Unclear, MixesExamples)


def lot_of(sample: Sample, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [domain.draw(generator) for domain in sample.lot]


def operator(name: str):
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def run(name, *args, **kwargs):
    return operator(name)(*args, **kwargs)


def called(sample: Sample, lot: list[Tensor], by=run) -> list[Tensor]:
    torch.manual_seed(7)
    return list(iter_tensors(sample.call(by, *lot)))


def examined(sample: Sample, lot: list[Tensor], *, by_name: bool) -> list[Label]:
    """The labels of all results; if `by_name`, the operation is looked up as it is, not the parts it is made of."""
    examiner = Examiner(lot, SIZE, {})

    def look_up(name, *args, **kwargs):
        with _pop_mode_temporarily():
            return examiner.__torch_dispatch__(operator(name), (), args, kwargs)

    try:
        with examiner:
            results = called(sample, lot, look_up if by_name else run)
        return [examiner.label(result) for result in results]
    finally:
        examiner.close()


def of_example(label: Rows, shape: torch.Size, example: int) -> Tensor:
    """Which entries belong to an example."""
    entries = torch.arange(shape[label.axis]) // label.inner % SIZE == example
    return entries.reshape([-1 if axis == label.axis else 1 for axis in range(len(shape))]).expand(shape)


def is_same(one: Tensor, other: Tensor, ulps: int = 0) -> bool:
    if one.is_complex():
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, ulps * torch.finfo(one.dtype).eps, 0.0, equal_nan=True)


def is_left_alone(label: Label, before: Tensor, after: Tensor, example: int, ulps: int = 0) -> bool:
    """Whether nothing that the label gives to other examples, or to none, has changed with this one."""
    if isinstance(label, Mixed):
        return True
    if is_private(label):
        others = ~of_example(label, before.shape, example)
        before, after = before[others], after[others]
    return is_same(before, after, ulps)


def changes(sample: Sample):
    """Lots in which one example is another one, with its number: an ordinary one, and one that is not finite."""
    for example in CHANGED:
        lot = lot_of(sample)
        for mine, new in zip(lot, lot_of(sample, 1), strict=True):
            mine[example] = new[example]
        yield example, lot
    floating = [number for number, tensor in enumerate(lot_of(sample)) if is_smooth(tensor)]
    if floating and not sample.is_tame:
        lot = lot_of(sample)
        for number in floating:
            mine = lot[number][1]
            mine.copy_(ODD.repeat(mine.numel())[: mine.numel()].view_as(mine))
        yield 1, lot


def is_smooth(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def assert_others_stay(sample: Sample, labels: list[Label]) -> None:
    before = called(sample, lot_of(sample))
    for example, lot in changes(sample):
        for label, one, other in zip(labels, before, called(sample, lot), strict=True):
            if sample.draws_vary:
                one, other = one[: example + 1], other[: example + 1]
            assert is_left_alone(label, one, other, example, sample.ulps), f"example {example}, {label}"


def gradients(sample: Sample, labels: list[Label], lot: list[Tensor], example: int | None) -> list[Tensor]:
    """Pulled back from random cotangents, of which the part of one example may be another one."""
    floating = [tensor.requires_grad_() for tensor in lot if is_smooth(tensor)]
    generator = torch.Generator().manual_seed(3)
    outputs, cotangents = [], []
    for label, result in zip(labels, called(sample, lot), strict=True):
        one, other = (torch.randn(result.shape, generator=generator).to(result.dtype) for _ in range(2))
        if result.requires_grad and isinstance(label, Rows):
            is_changed = example is not None and not label.loose
            mine = of_example(label, result.shape, example) if is_changed else torch.zeros_like(one, dtype=torch.bool)
            outputs.append(result)
            cotangents.append(torch.where(mine, other, one))
    found = torch.autograd.grad(outputs, floating, cotangents, allow_unused=True) if outputs else ()
    return [gradient for gradient in found if gradient is not None]


def assert_gradients_of_others_stay(sample: Sample, labels: list[Label]) -> None:
    try:
        before = gradients(sample, labels, lot_of(sample), None)
    except RuntimeError as error:
        # Torch does not know the derivative with respect to one of the arguments.
        if "derivative" not in str(error) and "not differentiable" not in str(error):
            raise
        return
    for example, lot in changes(sample) if before else ():
        others = [other for other in range(example if sample.draws_vary else SIZE) if other != example]
        for one, other in zip(before, gradients(sample, labels, lot, example), strict=True):
            assert is_same(one[others], other[others], sample.ulps), f"gradients, example {example}"


def assert_places_do_not_matter(sample: Sample, labels: list[Label]) -> None:
    """Of equal examples, all have the same results; rounding may depend on the place."""
    lot = [tensor[:1].expand_as(tensor).contiguous() for tensor in lot_of(sample)]
    for label, result in zip(labels, called(sample, lot), strict=True):
        assert is_even(label, result), str(label)


def is_even(label: Label, result: Tensor) -> bool:
    if isinstance(label, Rows):
        parts = result.movedim(label.axis, 0).unflatten(0, (label.outer, SIZE, label.inner))
        return is_close(parts, parts[:, :1].expand_as(parts))
    return label is not UNIFORM or is_close(result, result.reshape(-1)[:1].expand(result.numel()).view_as(result))


def is_close(one: Tensor, other: Tensor) -> bool:
    if one.is_floating_point() or one.is_complex():
        return torch.allclose(one, other, 1e-4, 1e-5, equal_nan=True)
    return torch.equal(one, other)


def labels_of(sample: Sample) -> list[list[Label]]:
    """As the operation is followed when it is called, and by its own entry in the list."""
    found = [examined(sample, lot_of(sample), by_name=by_name) for by_name in (False, True)]
    return found[:1] if found[0] == found[1] else found


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in ELSEWHERE])
def test_other_examples_do_not_change_with_one(name):
    assert SAMPLES.get(name), f"{name} is on the list, but has no sample in operation_samples.py"
    for sample in SAMPLES[name]:
        if sample.is_refused:
            continue
        for labels in labels_of(sample):
            assert any(map(is_private, labels)), labels
            assert not any(isinstance(label, Mixed) for label in labels), labels
            assert_others_stay(sample, labels)
            if not sample.is_random:
                assert_places_do_not_matter(sample, labels)
        if sample.has_gradient:
            assert_gradients_of_others_stay(sample, labels)


@pytest.mark.parametrize("name", [name for name, samples in SAMPLES.items() if samples[0].is_refused])
def test_what_looks_at_all_examples_is_never_followed(name):
    for sample in SAMPLES[name]:
        for by_name in (False, True):
            try:
                labels = examined(sample, lot_of(sample), by_name=by_name)
            except Refusals:
                continue
            assert labels
            assert all(isinstance(label, Mixed) for label in labels)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_cannot_run_here_follows_the_rule_of_an_operation_that_can(name):
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CPU")
    assert OPERATIONS[name] is OPERATIONS[ELSEWHERE[name]]


def small_lot(seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows, blocks = torch.randn(SIZE, 4, generator=generator), torch.randn(SIZE, 3, 4, generator=generator)
    return [rows, blocks, torch.randint(3, (SIZE,), generator=generator)]


def verdict(program) -> Label:
    """The label of what a program gives, or that it was refused before it was done."""
    lot = small_lot()
    examiner = Examiner(lot, SIZE, {})
    try:
        with examiner:
            result = program(*lot)
        return examiner.label(result)
    except Refusals as reason:
        return Mixed(str(reason))
    finally:
        examiner.close()


def is_alone(program) -> bool:
    """Whether there is an axis along which every example has entries of its own, wherever it is in the lot."""
    result = program(*small_lot())
    return any(fits(program, result, rows) for rows in all_rows(result.shape))


def all_rows(shape: torch.Size):
    """Every way in which the examples could lie in a tensor."""
    for axis, length in enumerate(shape):
        parts = length // SIZE if length % SIZE == 0 else 0
        yield from (Rows(axis, parts // inner, inner) for inner in range(1, parts + 1) if parts % inner == 0)


def fits(program, before: Tensor, rows: Rows) -> bool:
    for example in range(SIZE):
        lot = small_lot()
        for mine, new in zip(lot, small_lot(1), strict=True):
            mine[example] = (mine[example] + 1) % 3 if mine.dtype == torch.int64 else new[example]
        after = program(*lot)
        if after.shape != before.shape or not is_left_alone(rows, before, after, example):
            return False
    order = torch.tensor([2, 0, 1, 4, 3])
    after = program(*(tensor[order] for tensor in small_lot()))
    parts = before.unflatten(rows.axis, (rows.outer, SIZE, rows.inner)).index_select(rows.axis + 1, order)
    return after.shape == before.shape and is_close(parts.flatten(rows.axis, rows.axis + 2), after)


@pytest.mark.parametrize("name", MIXING)
def test_a_program_that_mixes_examples_is_told(name):
    assert isinstance(verdict(MIXING[name]), Mixed)


@pytest.mark.parametrize("name", MIXING)
def test_that_program_does_mix_them(name):
    assert not is_alone(MIXING[name])


def test_there_are_many_such_programs():
    assert len(MIXING) >= 60


@pytest.mark.parametrize("norm", [F.batch_norm, F.instance_norm])
def test_statistics_that_are_written_without_notice_are_refused(norm):
    mean, variance = torch.zeros(3), torch.ones(3)
    arguments = {"training": True} if norm is F.batch_norm else {}
    with pytest.raises(MixesExamples, match="without noise"), Examiner(lot := small_lot(), SIZE, {}):
        norm(lot[1], mean, variance, **arguments)


def test_gradients_divided_by_how_often_a_row_occurs_are_told():
    table = torch.ones(3, 2)
    assert isinstance(verdict(lambda x, y, t: F.embedding(t, table)), Rows)
    assert isinstance(verdict(lambda x, y, t: F.embedding(t, table, scale_grad_by_freq=True)), Mixed)


@pytest.mark.parametrize(
    "sized",
    [
        lambda x, t: x[x > 0],
        lambda x, t: x[(t > 0).byte()],
        lambda x, t: torch.unique(t),
        lambda x, t: torch.unique_consecutive(t),
        lambda x, t: torch.bincount(t),
        lambda x, t: x.masked_select(x > 0),
        lambda x, t: torch.nonzero(x > 0),
        lambda x, t: torch.ones(SIZE).repeat_interleave(t),
    ],
)
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_no_size_depends_on_the_examples(sized):
    x, _, t = lot = small_lot()
    with pytest.raises(Unclear), Examiner(lot, SIZE, {}):
        sized(x, t)


@pytest.mark.parametrize("name", list(WRITTEN))
def test_writing_hides_no_mixture(name):
    assert not is_alone(WRITTEN[name])
    assert isinstance(verdict(WRITTEN[name]), Mixed)


# Random programs.


class Draw(random.Random):
    """Draws the steps of a program. What it draws depends on shapes alone, so that a program can be run again."""

    def axis(self, tensor: Tensor) -> int:
        return self.randrange(tensor.dim())

    def pick(self, pool: list[Tensor], condition=lambda tensor: True) -> Tensor:
        """A tensor, more often a late one."""
        fit = [tensor for tensor in pool if condition(tensor)]
        return fit[-1 - min(int(self.expovariate(0.4)), len(fit) - 1)]

    def floats(self, pool: list[Tensor], least: int = 1) -> Tensor:
        return self.pick(pool, lambda tensor: tensor.is_floating_point() and tensor.dim() >= least)

    def partner(self, pool: list[Tensor], x: Tensor, *, of_same_dims: bool = False) -> Tensor:
        """A tensor that is broadcast with another one, or to it."""
        fit = [y for y in pool if y.is_floating_point() and is_broadcast(x, y)]
        return self.choice([y for y in fit if y.dim() <= x.dim()] if of_same_dims else fit)

    def view(self, x: Tensor) -> Tensor:
        return self.choice([part, stepped, one_of, transposed])(self, [x])


def is_broadcast(x: Tensor, y: Tensor) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(x.shape), reversed(y.shape), strict=False))


def part(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.pick(pool, lambda tensor: tensor.dim() > 0)
    axis = draw.axis(x)
    start = draw.randrange(x.shape[axis])
    return x.narrow(axis, start, draw.randint(1, x.shape[axis] - start))


def stepped(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.pick(pool, lambda tensor: tensor.dim() > 0)
    at: list = [slice(None)] * x.dim()
    at[draw.axis(x)] = slice(draw.randrange(2), None, draw.randint(1, 3))
    return x[tuple(at)]


def one_of(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.pick(pool, lambda tensor: tensor.dim() > 0)
    axis = draw.axis(x)
    return x.select(axis, draw.randrange(x.shape[axis]))


def transposed(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.pick(pool, lambda tensor: tensor.dim() > 1)
    return x.transpose(draw.axis(x), draw.axis(x))


def reshaped(draw: Draw, pool: list[Tensor]) -> Tensor:
    shapes = [(SIZE, -1), (-1, SIZE), (-1,), (SIZE, 2, -1), (2, SIZE, -1), (-1, 2, SIZE), (4, -1), (-1, 3), (2, -1)]
    return draw.pick(pool).reshape(draw.choice(shapes))


def strided(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.pick(pool)
    axes = range(draw.randint(1, 3))
    shape, strides = [draw.choice([SIZE, SIZE, 2, 3, 4]) for _ in axes], [draw.choice([0, 1, 2, 4, SIZE]) for _ in axes]
    return x.as_strided(shape, strides, draw.choice([0, 0, 1, 3, SIZE]))


def expanded(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.pick(pool, lambda tensor: tensor.dim() < 4)
    return x.expand(draw.choice([SIZE, SIZE, 2 * SIZE, 3]), *x.shape)


def windows(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.pick(pool, lambda tensor: 0 < tensor.dim() < 4)
    return x.unfold(draw.axis(x), draw.randint(1, 3), draw.randint(1, 3))


def complex_parts(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = torch.view_as_complex(draw.floats(pool)[..., :2])
    return draw.choice([x.real, x.imag, torch.view_as_real(x), x.conj().imag])


def copied(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.pick(pool)
    kinds = [x.clone, x.contiguous, x.detach, lambda: x.contiguous(memory_format=torch.channels_last)]
    return draw.choice(kinds)()


def constant(draw: Draw, pool: list[Tensor]) -> Tensor:
    shape = [draw.choice([SIZE, SIZE, 2 * SIZE, SIZE + 1, 4, 1]) for _ in range(draw.randint(0, 3))]
    kinds = [torch.zeros, torch.ones, draw.pick(pool).new_zeros]
    return draw.choice(kinds)(shape)


def counted(draw: Draw, pool: list[Tensor]) -> Tensor:
    length = draw.choice([SIZE, 2 * SIZE, 3, 4])
    return draw.choice([torch.arange(length), torch.linspace(0, 1, length), torch.eye(length)])


def combined(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool, 0)
    return draw.choice([torch.add, torch.mul, torch.maximum])(x, draw.partner(pool, x))


def compared(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool, 0)
    return torch.where(x > 0, draw.choice([0.0, draw.partner(pool, x)]), draw.choice([x, 2.0]))


def classified(draw: Draw, pool: list[Tensor]) -> Tensor:
    return (draw.floats(pool, 0).abs() * 2).long() % 3


def changed(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool, 0)
    return getattr(x, draw.choice(["copy_", "add_", "mul_"]))(draw.partner(pool, x, of_same_dims=True))


def partly_changed(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool)
    changed(draw, [*pool[-8:], draw.view(x)])
    return x


def partly_filled(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool)
    draw.view(x).fill_(draw.choice([0.0, 1.0]))
    return x


def indices(draw: Draw, pool: list[Tensor], x: Tensor) -> tuple:
    whole = [tensor for tensor in pool if tensor.dtype == torch.int64 and tensor.dim() < 3]
    kinds = [slice(None), torch.arange(SIZE), torch.tensor([0, 1]), draw.choice(whole)]
    return tuple(draw.choice(kinds) for _ in range(x.dim()))


def indexed(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.pick(pool, lambda tensor: 0 < tensor.dim() < 4)
    return x[indices(draw, pool, x)]


def put(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool)
    at = indices(draw, pool, x)
    x[at] = draw.choice([1.0, draw.partner(pool, x[at], of_same_dims=True)])
    return x


def reduced(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool)
    kinds = [torch.sum, torch.mean, torch.amax, torch.std, torch.argmax, torch.logsumexp]
    return draw.choice(kinds)(x, draw.axis(x), keepdim=draw.random() < 0.4)


def along(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool)
    axis = draw.axis(x)
    kinds = [x.softmax, x.cumsum, x.flip, lambda axis: x.sort(axis)[0], lambda axis: x.roll(1, axis)]
    return draw.choice(kinds)(axis)


def multiplied(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool)
    return x @ draw.choice([y for y in pool if y.is_floating_point() and y.dim() and y.shape[-2:][0] == x.shape[-1]])


def joined(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool)
    axis = draw.axis(x)
    fit = [y for y in pool if y.dtype == x.dtype and y.movedim(axis, 0)[0].shape == x.movedim(axis, 0)[0].shape]
    tensors = [x, *draw.choices(fit, k=draw.randint(1, 2))]
    draw.shuffle(tensors)
    return torch.stack(tensors, axis) if draw.random() < 0.3 else torch.cat(tensors, axis)


def gathered(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool)
    axis = draw.axis(x)
    index = draw.pick(pool, lambda tensor: tensor.dtype == torch.int64 and tensor.dim() == x.dim()) % x.shape[axis]
    kinds = [lambda: x.gather(axis, index), lambda: x.scatter(axis, index, 1.0)]
    return draw.choice(kinds)()


def selected(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool)
    axis = draw.axis(x)
    index = draw.pick(pool, lambda tensor: tensor.dtype == torch.int64 and tensor.dim() == 1) % x.shape[axis]
    return draw.choice([lambda: x.index_select(axis, index), lambda: x.index_fill(axis, index, 1.0)])()


def repeated(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.pick(pool, lambda tensor: tensor.dim() < 3)
    return x.repeat([draw.choice([1, 1, 2, SIZE]) for _ in range(x.dim() + draw.randint(0, 1))])


def padded(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool)
    return F.pad(x, [draw.choice([0, 0, 1, -1]) for _ in range(2 * x.dim())])


def layered(draw: Draw, pool: list[Tensor]) -> Tensor:
    x = draw.floats(pool, 2)
    kinds = [lambda: F.layer_norm(x, x.shape[-1:]), lambda: F.avg_pool1d(x, 2, 1), x.tril, lambda: x.diagonal(0, 0, 1)]
    return draw.choice(kinds)()


_VIEWS = (part, stepped, one_of, transposed, reshaped, strided, expanded, windows, complex_parts, copied)
_SOURCES = (constant, constant, counted)
_OPERATIONS = (
    *(combined, combined, compared, classified, changed, partly_changed, partly_filled, put, indexed, reduced, reduced),
    *(along, multiplied, multiplied, joined, joined, gathered, selected, repeated, padded, layered),
)
# An operation that was drawn does not fit the shapes, or the values, of what it was drawn for.
_UNFIT = (RuntimeError, IndexError, ValueError, TypeError)


def run_program(seed: int, lot: list[Tensor], public: list[Tensor]) -> tuple[list[Tensor], list[str]]:
    """All tensors of a program of three to eight steps, and the names of the steps."""
    draw, pool, names = Draw(seed), [*public, *lot], list[str]()
    steps = draw.randint(3, 8)
    for _ in range(5 * steps):
        if len(names) == steps:
            break
        step = draw.choice(draw.choices([_VIEWS, _SOURCES, _OPERATIONS], [4, 1, 6])[0])
        try:
            made = step(draw, pool)
        except Refusals:
            raise
        except _UNFIT:
            continue
        pool.append(made)
        names.append(step.__name__)
    return pool, names


def program_lot(seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = (4,), (2, 3), (SIZE,), ()
    return [
        torch.randint(3, (SIZE,), generator=generator),
        *(torch.randn(SIZE, *shape, generator=generator) for shape in shapes),
    ]


def public_tensors() -> list[Tensor]:
    generator = torch.Generator().manual_seed(9)
    return [torch.tensor([0, 2, 1]), *(torch.randn(shape, generator=generator) for shape in ((4,), (3, 4), (4, 4)))]


def rerun(seed: int, lot: list[Tensor]) -> tuple[list[Tensor], list[str]]:
    """The tensors as they are in the end, each by itself."""
    pool, names = run_program(seed, lot, public_tensors())
    return [tensor.clone() for tensor in pool], names


def judge(seed: int) -> str:
    """The verdict on a random program; an error if a label is wrong."""
    lot, fixed = program_lot(), public_tensors()
    examiner = Examiner(lot, SIZE, {})
    try:
        with examiner:
            pool, names = run_program(seed, lot, fixed)
        labels = [examiner.label(tensor) for tensor in pool]
    except Refusals:
        return "refused"
    finally:
        examiner.close()
    before, same = rerun(seed, program_lot())
    assert names == same, f"seed {seed}: an operation fails under examination"
    for example in CHANGED:
        lot = program_lot()
        for mine, new in zip(lot, program_lot(1), strict=True):
            mine[example] = new[example]
        after, others = rerun(seed, lot)
        if others != names:
            # An index that was computed is out of range for other values.
            return "other steps"
        for label, one, other in zip(labels, before, after, strict=True):
            assert is_left_alone(label, one, other, example), f"seed {seed}, {names}: {label}"
    alike, others = rerun(seed, [tensor[:1].expand_as(tensor).clone() for tensor in program_lot(2)])
    if others == names:
        for label, one in zip(labels, alike, strict=True):
            assert is_even(label, one), f"seed {seed}, {names}: {label}"
    return "mixed" if isinstance(labels[-1], Mixed) else "alone" if is_private(labels[-1]) else "public"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_random_program_is_labelled_wrongly():
    verdicts = Counter(judge(seed) for seed in range(1000))
    assert min(verdicts["alone"], verdicts["mixed"], verdicts["public"]) > 100, verdicts
    assert verdicts["other steps"] < 100, verdicts


# How many examples there are, in disguise.
COUNTED = {
    "the last position": lambda h: h / torch.arange(1, len(h) + 1)[-1:],
    "a point of a line": lambda h: h * torch.linspace(0, 1, len(h))[1:2],
    "a list of numbers": lambda h: h * torch.tensor([1 / len(h)] * h.shape[1]),
    "a long list of numbers": lambda h: h * torch.tensor([1 / len(h)] * 65).sum(0, keepdim=True),
    "the trace of ones": lambda h: h / torch.eye(len(h)).sum(1).sum(0, keepdim=True),
    "a number": lambda h: h / len(h),
}


@pytest.mark.parametrize("name", list(COUNTED))
def test_a_number_of_examples_in_disguise_is_refused(name):
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.head(COUNTED[name](x))

    with pytest.raises(MixesExamples):
        per_example_gradients(Counts(), torch.nn.functional.cross_entropy, torch.randn(8, 4), torch.arange(8) % 3)
