"""Calls of every operation on the list of those that act on each example alone, and programs that mix examples.

A sample names an operation, says what its examples look like, and calls it by `run("name.overload", ...)`. Examples lie
along the first axis of what a call is given; it moves them elsewhere where the operation allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SIZE = 5

Run = Callable[..., Any]


@dataclass(frozen=True)
class Domain:
    """What the examples of a lot are drawn from, and the shape of each."""

    kind: str
    shape: tuple[int, ...]

    def draw(self, generator: torch.Generator, size: int = SIZE) -> Tensor:
        shape = (size, *self.shape)
        normal = torch.randn(shape, generator=generator)
        if self.kind == "definite":
            return normal @ normal.mT + 2 * torch.eye(self.shape[-1])
        if self.kind == "regular":
            return normal + 4 * torch.eye(self.shape[-1])
        if self.kind == "complex":
            return torch.complex(normal, torch.randn(shape, generator=generator))
        if self.kind in _RANGES:
            low, high = _RANGES[self.kind]
            return low + (high - low) * torch.rand(shape, generator=generator)
        if self.kind in _INTEGERS:
            return torch.randint(*_INTEGERS[self.kind], shape, generator=generator)
        return normal > 0 if self.kind == "mask" else normal


_RANGES = {"positive": (0.2, 3.0), "unit": (-0.9, 0.9), "share": (0.05, 0.95), "above one": (1.1, 3.0)}
_INTEGERS = {"integers": (1, 30), "classes": (0, 3), "shifts": (0, 4), "bits": (0, 2)}


def domain(kind: str) -> Callable[..., Domain]:
    return lambda *shape: Domain(kind, shape)


normal, positive, unit, share, above_one = map(domain, ("normal", "positive", "unit", "share", "above one"))
integers, classes, shifts, bits, mask = map(domain, ("integers", "classes", "shifts", "bits", "mask"))
definite, regular, complex_numbers = map(domain, ("definite", "regular", "complex"))


@dataclass(frozen=True, eq=False)
class Sample:
    """One call of an operation.

    `is_random` says that it draws numbers, `is_tame` that its examples must be finite, `is_refused` that it looks at
    several examples whatever its arguments are. `draws_vary` says that an example decides how many numbers are drawn
    for it: those of later examples are then others, and as likely as before. `ulps` bounds rounding that depends on
    the other examples.
    """

    name: str
    call: Callable[..., Any]
    lot: tuple[Domain, ...]
    is_random: bool = False
    is_tame: bool = False
    is_refused: bool = False
    draws_vary: bool = False
    has_gradient: bool = True
    ulps: int = 0


SAMPLES: dict[str, list[Sample]] = {}


def sample(name: str, call: Callable[..., Any], *lot: Domain, **options: Any) -> None:
    SAMPLES.setdefault(name, []).append(Sample(name, call, lot, **options))


def public(*shape: int) -> Tensor:
    """Numbers of which no two are alike, and none of which is of an example."""
    return torch.linspace(0.1, 0.9, torch.Size(shape).numel()).reshape(shape)


def beside(x: Tensor) -> Tensor:
    """Examples along the second axis."""
    return x.transpose(0, 1)


def folded(x: Tensor) -> Tensor:
    """Examples and their parts in one axis, the parts of an example side by side."""
    return x.flatten(0, 1)


def interleaved(x: Tensor) -> Tensor:
    """Examples and their parts in one axis, the examples side by side."""
    return x.transpose(0, 1).flatten(0, 1)


PLACES = (lambda x: x, beside, folded, interleaved)


def overloads(name: str) -> list[str]:
    return list(getattr(torch.ops.aten, name).overloads()) if hasattr(torch.ops.aten, name) else []


# Entry by entry.

_UNARY: dict[Domain, str] = {
    normal(3, 4): """
    abs angle asinh atan ceil celu clone conj_physical cos cosh deg2rad elu erf erfc exp exp2 expm1 floor frac gelu
    hardshrink hardsigmoid hardswish hardtanh i0 isfinite isinf isnan isneginf isposinf leaky_relu logical_not
    mish nan_to_num neg positive rad2deg real reciprocal relu resolve_conj resolve_neg round selu sgn sigmoid sign
    signbit silu sin sinc sinh softplus softshrink special_erfcx special_i0e special_i1 special_i1e special_log_ndtr
    special_ndtr square tan tanh trunc _conj_physical log_sigmoid_forward
    """,
    unit(3, 4): "acos asin atanh erfinv",
    positive(3, 4): "digamma lgamma log log10 log1p log2 rsqrt special_entr sqrt",
    share(3, 4): "logit special_ndtri",
    above_one(3, 4): "acosh",
    integers(3, 4): "bitwise_not",
    complex_numbers(3, 4): "conj_physical _conj_physical imag isreal resolve_conj angle sgn",
}
# With further arguments.
_WITH_NUMBERS: dict[str, tuple[Any, ...]] = {
    "clamp": (-0.5, 0.5), "clamp_max": (0.5,), "clamp_min": (0.5,), "threshold": (0.1, 20.0), "round.decimals": (),
    "nan_to_num": (1.0, 2.0, 3.0), "add.Scalar": (2.0,), "sub.Scalar": (2.0,), "mul.Scalar": (2.0,),
    "div.Scalar": (2.0,), "rsub.Scalar": (2.0,), "pow.Tensor_Scalar": (2.0,), "fmod.Scalar": (0.7,),
    "remainder.Scalar": (0.7,), "floor_divide.Scalar": (0.7,), "eq.Scalar": (0.0,), "ne.Scalar": (0.0,),
    "lt.Scalar": (0.0,), "le.Scalar": (0.0,), "gt.Scalar": (0.0,), "ge.Scalar": (0.0,), "copysign.Scalar": (-1.0,),
}  # fmt: skip
_BINARY: dict[tuple[str, str], str] = {
    ("normal", "normal"): """
    add sub mul div rsub atan2 copysign eq ne lt le gt ge floor_divide fmax fmin fmod remainder heaviside hypot
    logaddexp logaddexp2 logical_and logical_or logical_xor maximum minimum nextafter copy complex
    """,
    ("positive", "positive"): "pow igamma igammac xlogy special_xlog1py polar",
    ("above one", "positive"): "special_zeta",
    ("normal", "shifts"): "ldexp",
    ("integers", "integers"): "bitwise_and bitwise_or bitwise_xor",
    ("integers", "shifts"): "bitwise_left_shift bitwise_right_shift",
}


def _unary(name: str, of: Domain) -> Iterator[Sample]:
    for place in PLACES:
        yield Sample(name, lambda run, x, place=place: run(name, place(x)), (of,))
    if "default" in overloads(f"{name}_"):
        yield Sample(name, lambda run, x: run(f"{name}_", beside(x.clone())), (of,))
    if "out" in overloads(name):

        def into(run: Run, x: Tensor) -> Any:
            like = getattr(torch.ops.aten, name)(torch.ones(1, dtype=x.dtype))
            return run(f"{name}.out", x, out=torch.empty_like(x, dtype=like.dtype))

        yield Sample(name, into, (of,), has_gradient=False)


def _binary(name: str, one: str, other: str) -> Iterator[Sample]:
    overload = f"{name}.Tensor" if "Tensor" in overloads(name) else f"{name}.Tensor_Tensor"
    overload = overload if overload.partition(".")[2] in overloads(name) else name
    left, right = Domain(one, (3, 4)), Domain(other, (3, 4))

    def fixed(kind: str, *shape: int) -> Tensor:
        values = public(*shape)
        return (2 + 3 * values).long() if kind in _INTEGERS else values + (kind == "above one")

    for place in PLACES:
        yield Sample(name, lambda run, x, y, place=place: run(overload, place(x), place(y)), (left, right))
    yield Sample(name, lambda run, x, y: run(overload, x, y[:, :1]), (left, right))
    yield Sample(name, lambda run, x: run(overload, x, fixed(other, 4)), (left,))
    yield Sample(name, lambda run, x: run(overload, beside(x), fixed(other, 3, 1, 4)), (left,))
    yield Sample(name, lambda run, x: run(overload, x, fixed(other, 4).expand(SIZE, 3, 4)), (left,))
    yield Sample(name, lambda run, x: run(overload, x, torch.ones_like(x[:, :1], dtype=fixed(other, 1).dtype)), (left,))
    if name != "copy":
        yield Sample(name, lambda run, y: run(overload, fixed(one, 4), y), (right,))
        yield Sample(name, lambda run, y: run(overload, fixed(one, 3, 4).repeat(SIZE, 1), folded(y)), (right,))
    in_place = overload.replace(name, f"{name}_", 1)
    if in_place.partition(".")[2] in overloads(f"{name}_") or (
        "." not in in_place and "default" in overloads(f"{name}_")
    ):
        yield Sample(name, lambda run, x, y: run(in_place, x.clone(), y[:, :, :1]), (left, right))
        yield Sample(name, lambda run, x: run(in_place, x.clone(), fixed(other, 4)), (left,))


for _of, _names in _UNARY.items():
    for _name in _names.split():
        SAMPLES.setdefault(_name, []).extend(_unary(_name, _of))
for _kinds, _names in _BINARY.items():
    for _name in _names.split():
        SAMPLES.setdefault(_name, []).extend(_binary(_name, *_kinds))
for _overload, _numbers in _WITH_NUMBERS.items():
    _name = _overload.partition(".")[0]
    _keywords = {"decimals": 1} if _overload == "round.decimals" else {}
    for _place in PLACES:
        sample(
            _name,
            lambda run, x, o=_overload, n=_numbers, k=_keywords, place=_place: run(o, place(x), *n, **k),
            normal(3, 4),
        )

_X, _Y, _Z = normal(3, 4), normal(3, 4), positive(3, 4)
sample("add", lambda run, x, y: run("add.Tensor", x, y, alpha=3), _X, _Y)
sample("add", lambda run, x: run("add_.Tensor", torch.zeros(SIZE, 3, 4), x), _X)
sample("add", lambda run, x: run("add_.Tensor", torch.zeros(3, SIZE, 4)[1], x[:, 0]), _X)
sample("mvlgamma", lambda run, x: run("mvlgamma", x, 1), _Z)
sample("polygamma", lambda run, x: run("polygamma", 1, x), _Z)
sample("pow", lambda run, x: run("pow.Scalar", 2.0, x), _X)
sample("div", lambda run, x, y: run("div.Tensor_mode", x, y, rounding_mode="floor"), _X, _Z)
sample("clamp", lambda run, x, y: run("clamp.Tensor", x, y, None), _X, _Y)
sample("clamp_max", lambda run, x, y: run("clamp_max.Tensor", x, y), _X, _Y)
sample("clamp_min", lambda run, x, y: run("clamp_min.Tensor", x, y), _X, _Y)
sample("_to_copy", lambda run, x: run("_to_copy", x, dtype=torch.float64), _X)
sample("_to_copy", lambda run, x: run("_to_copy", beside(x), memory_format=torch.contiguous_format), _X)
sample("clone", lambda run, x: run("clone", x, memory_format=torch.channels_last), normal(3, 4, 2))
sample("copy", lambda run, x: run("copy_", torch.zeros(SIZE, 3, 4), x), _X)
sample("copy", lambda run, x: run("copy_", torch.zeros(2, SIZE, 4), x[:, 0]), _X)
sample("zero", lambda run, x: (run("zero_", (y := x.clone())[:, 1]), y), _X)
sample("fill", lambda run, x: (run("fill_.Scalar", (y := x.clone())[:, 1], 2.0), y), _X)
sample("fill", lambda run, x: (run("fill_.Tensor", beside(y := x.clone())[1], torch.ones(())), y), _X)
sample("where", lambda run, c, x, y: run("where.self", c, x, y), mask(3, 4), _X, _Y)
sample("where", lambda run, c, x: run("where.ScalarOther", c, x, 0.0), mask(3, 1), _X)
sample("where", lambda run, c: run("where.Scalar", beside(c), 1.0, 0.0), mask(3, 4))
sample("where", lambda run, x: run("where.self", public(3, 4) > 0.5, x, torch.zeros(())), _X)
sample("masked_fill", lambda run, x, c: run("masked_fill.Scalar", x, c, -1.0), _X, mask(3, 1))
sample("masked_fill", lambda run, x, c: run("masked_fill_.Tensor", x.clone(), c, torch.zeros(())), _X, mask(3, 1))
sample("masked_fill", lambda run, x: run("masked_fill.Scalar", beside(x), public(4) > 0.5, -1.0), _X)
sample("lerp", lambda run, x, y: run("lerp.Scalar", x, y, 0.3), _X, _Y)
sample("lerp", lambda run, x, y, w: run("lerp.Tensor", beside(x), beside(y), beside(w)), _X, _Y, share(3, 4))
sample("addcmul", lambda run, x, y, z: run("addcmul", x, y, z, value=2), _X, _Y, _Z)
sample("addcdiv", lambda run, x, y, z: run("addcdiv", beside(x), beside(y), beside(z)), _X, _Y, _Z)
sample("addcmul", lambda run, x, y: run("addcmul", public(4), x, y), _X, _Y)
sample("_prelu_kernel", lambda run, x: run("_prelu_kernel", x, public(3, 1)), _X)
sample("log_sigmoid_forward", lambda run, x: run("log_sigmoid_forward", folded(x)), _X)

_BACKWARDS: dict[str, Callable[..., Any]] = {
    "sigmoid_backward": lambda run, g, x: run("sigmoid_backward", g, x),
    "tanh_backward": lambda run, g, x: run("tanh_backward", g, x),
    "threshold_backward": lambda run, g, x: run("threshold_backward", g, x, 0.1),
    "gelu_backward": lambda run, g, x: run("gelu_backward", g, x, approximate="tanh"),
    "silu_backward": lambda run, g, x: run("silu_backward", g, x),
    "elu_backward": lambda run, g, x: run("elu_backward", g, 1.0, 1.0, 1.0, False, x),
    "leaky_relu_backward": lambda run, g, x: run("leaky_relu_backward", g, x, 0.1, False),
    "hardtanh_backward": lambda run, g, x: run("hardtanh_backward", g, x, -1.0, 1.0),
    "softplus_backward": lambda run, g, x: run("softplus_backward", g, x, 1.0, 20.0),
    "log_sigmoid_backward": lambda run, g, x: run(
        "log_sigmoid_backward", g, x, torch.ops.aten.log_sigmoid_forward(x)[1]
    ),
    "native_dropout_backward": lambda run, g, x: run("native_dropout_backward", g, x > 0, 2.0),
    "mse_loss_backward": lambda run, g, x: run("mse_loss_backward", g, x, public(4), 0),
}
for _name, _call in _BACKWARDS.items():
    for _place in PLACES:
        sample(_name, lambda run, g, x, call=_call, place=_place: call(run, place(g), place(x)), _X, _Y)
sample("mse_loss_backward", lambda run, x, y: run("mse_loss_backward", torch.ones(()), x, y, 2), _X, _Y)

# Random numbers: drawn for every entry, whatever the examples are.
for _name in ("cauchy", "exponential", "log_normal", "random", "uniform", "normal"):
    sample(_name, lambda run, x, n=_name: run(f"{n}_", x.clone()), _X, is_random=True)
    sample(_name, lambda run, x, n=_name: (run(f"{n}_", (y := x.clone())[:, 1]), y), _X, is_random=True)
sample("geometric", lambda run, x: run("geometric_", x.clone(), 0.5), _X, is_random=True)
sample("normal", lambda run, x, y: run("normal.Tensor_Tensor", x, y), _X, _Z, is_random=True, is_tame=True)
sample("normal", lambda run, x: run("normal.Tensor_float", beside(x), 2.0), _X, is_random=True)
sample("bernoulli", lambda run, x: run("bernoulli", x), share(3, 4), is_random=True, is_tame=True)
sample("bernoulli", lambda run, x: run("bernoulli.p", x, 0.5), _X, is_random=True)
sample(
    "bernoulli", lambda run, x: run("bernoulli_.Tensor", x.clone(), x[:, :1]), share(3, 4), is_random=True, is_tame=True
)
sample("native_dropout", lambda run, x: run("native_dropout", x, 0.5, True), _X, is_random=True)
sample("native_dropout", lambda run, x: run("native_dropout", beside(x), 0.5, True), _X, is_random=True)
sample(
    "rrelu_with_noise",
    lambda run, x: run("rrelu_with_noise", x, torch.zeros_like(x), 0.1, 0.3, True),
    _X,
    is_random=True,
    draws_vary=True,
)
sample("poisson", lambda run, x: run("poisson", x), positive(3, 4), is_random=True, is_tame=True, draws_vary=True)

_PER_ENTRY_LOSSES = {
    "mse_loss": (_X, _Y), "binary_cross_entropy": (share(3, 4), share(3, 4)), "smooth_l1_loss": (_X, _Y),
    "huber_loss": (_X, _Y), "soft_margin_loss": (_X, _Y), "binary_cross_entropy_with_logits": (_X, share(3, 4)),
}  # fmt: skip
for _name, _lot in _PER_ENTRY_LOSSES.items():
    _tame = _name == "binary_cross_entropy"
    for _place in PLACES:
        sample(
            _name,
            lambda run, x, y, n=_name, place=_place: run(n, place(x), place(y), reduction=0),
            *_lot,
            is_tame=_tame,
        )
    sample(
        _name, lambda run, x, n=_name: run(n, x, public(3, 4).expand(SIZE, 3, 4), reduction=0), _lot[0], is_tame=_tame
    )
sample(
    "binary_cross_entropy_with_logits",
    lambda run, x, y: run("binary_cross_entropy_with_logits", x, y, public(4), public(3, 1), 0),
    _X,
    share(3, 4),
)

# Along axes.

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda run, x, dim, keep: run("sum.dim_IntList", x, dim, keep),
    "mean": lambda run, x, dim, keep: run("mean.dim", x, dim, keep),
    "nansum": lambda run, x, dim, keep: run("nansum", x, dim, keep),
    "amax": lambda run, x, dim, keep: run("amax", x, dim, keep),
    "amin": lambda run, x, dim, keep: run("amin", x, dim, keep),
    "logsumexp": lambda run, x, dim, keep: run("logsumexp", x, dim, keep),
    "linalg_vector_norm": lambda run, x, dim, keep: run("linalg_vector_norm", x, 2.0, dim, keep),
    "norm": lambda run, x, dim, keep: run("norm.ScalarOpt_dim", x, 2.0, dim, keep),
    "std": lambda run, x, dim, keep: run("std.correction", x, dim, correction=1, keepdim=keep),
    "var": lambda run, x, dim, keep: run("var.correction", x, dim, correction=0, keepdim=keep),
    "std_mean": lambda run, x, dim, keep: run("std_mean.correction", x, dim, correction=1, keepdim=keep),
    "var_mean": lambda run, x, dim, keep: run("var_mean.correction", x, dim, correction=1, keepdim=keep),
    "any": lambda run, x, dim, keep: run("any.dims", x, dim, keep),
    "all": lambda run, x, dim, keep: run("all.dims", x, dim, keep),
    "count_nonzero": lambda run, x, dim, keep: run("count_nonzero.dim_IntList", x, dim),
}
_OF_ONE_AXIS: dict[str, Callable[..., Any]] = {
    "max": lambda run, x, dim, keep: run("max.dim", x, dim, keep),
    "min": lambda run, x, dim, keep: run("min.dim", x, dim, keep),
    "prod": lambda run, x, dim, keep: run("prod.dim_int", x, dim, keep),
    "median": lambda run, x, dim, keep: run("median.dim", x, dim, keep),
    "nanmedian": lambda run, x, dim, keep: run("nanmedian.dim", x, dim, keep),
    "mode": lambda run, x, dim, keep: run("mode", x, dim, keep),
    "argmax": lambda run, x, dim, keep: run("argmax", x, dim, keep),
    "argmin": lambda run, x, dim, keep: run("argmin", x, dim, keep),
    "aminmax": lambda run, x, dim, keep: run("aminmax", x, dim=dim, keepdim=keep),
    "kthvalue": lambda run, x, dim, keep: run("kthvalue", x, 2, dim, keep),
    "_softmax": lambda run, x, dim, keep: run("_softmax", x, dim, False),
    "_log_softmax": lambda run, x, dim, keep: run("_log_softmax", x, dim, False),
    "_safe_softmax": lambda run, x, dim, keep: run("_safe_softmax", x, dim),
    "cumsum": lambda run, x, dim, keep: run("cumsum", x, dim),
    "cumprod": lambda run, x, dim, keep: run("cumprod", x, dim),
    "cummax": lambda run, x, dim, keep: run("cummax", x, dim),
    "cummin": lambda run, x, dim, keep: run("cummin", x, dim),
    "logcumsumexp": lambda run, x, dim, keep: run("logcumsumexp", x, dim),
    "_logcumsumexp": lambda run, x, dim, keep: run("_logcumsumexp", x, dim),
    "topk": lambda run, x, dim, keep: run("topk", x, 2, dim),
    "sort": lambda run, x, dim, keep: run("sort.stable", x, stable=keep, dim=dim, descending=keep),
    "argsort": lambda run, x, dim, keep: run("argsort", x, dim, keep),
    "flip": lambda run, x, dim, keep: run("flip", x, [dim]),
    "roll": lambda run, x, dim, keep: run("roll", x, [1], [dim]),
}
# A zero anywhere makes the backward pass of a product take another way, which rounds differently.
_OPTIONS: dict[str, dict[str, Any]] = {"_logcumsumexp": {"has_gradient": False}, "prod": {"ulps": 16}}
for _name, _call in (_REDUCTIONS | _OF_ONE_AXIS).items():
    _is_list = _name in _REDUCTIONS
    for _keep in (False, True):
        sample(
            _name,
            lambda run, x, call=_call, keep=_keep, many=_is_list: call(run, x, [1] if many else 1, keep),
            _X,
            **_OPTIONS.get(_name, {}),
        )
        sample(
            _name,
            lambda run, x, call=_call, keep=_keep, many=_is_list: call(run, beside(x), [0, -1] if many else 0, keep),
            _X,
            **_OPTIONS.get(_name, {}),
        )
        sample(
            _name,
            lambda run, x, call=_call, keep=_keep, many=_is_list: call(run, folded(x), [-1] if many else -1, keep),
            _X,
            **_OPTIONS.get(_name, {}),
        )
sample("max", lambda run, x, y: run("max.other", beside(x), beside(y)), _X, _Y)
sample("min", lambda run, x: run("min.other", x, public(4)), _X)
sample("glu", lambda run, x: run("glu", x, -1), _X)
sample("glu", lambda run, x: run("glu", beside(x), 0), normal(4, 3))
sample("renorm", lambda run, x: run("renorm", x, 2.0, 0, 0.5), _X)
sample("renorm", lambda run, x: run("renorm", beside(x), 1.0, 1, 0.5), _X)
for _at in (1, 2):
    sample("_fft_r2c", lambda run, x, at=_at: run("_fft_r2c", x, [at], 0, True), _X)
    sample("_fft_c2c", lambda run, x, at=_at: run("_fft_c2c", x, [at], 0, True), complex_numbers(3, 4))
    sample("_fft_c2r", lambda run, x, at=_at: run("_fft_c2r", x, [at], 0, 4), complex_numbers(3, 3))
sample("_fft_r2c", lambda run, x: run("_fft_r2c", beside(x), [0, 2], 0, True), _X)
sample("_fft_c2c", lambda run, x: run("_fft_c2c", beside(x), [0, 2], 0, False), complex_numbers(3, 4))

# Never of each example alone.

_ALWAYS_REFUSED: dict[str, tuple[Domain, Callable[..., Any]]] = {
    "bincount": (classes(), lambda run, t: run("bincount", t, minlength=3)),
    "histc": (normal(3), lambda run, x: run("histc", x)),
    "_unique2": (classes(), lambda run, t: run("_unique2", t)),
    "unique_dim": (classes(3), lambda run, t: run("unique_dim", t, 1)),
    "unique_consecutive": (classes(), lambda run, t: run("unique_consecutive", t)),
    "_pdist_forward": (normal(3), lambda run, x: run("_pdist_forward", x)),
    "dot": (normal(), lambda run, x: run("dot", x, public(SIZE))),
    "vdot": (normal(), lambda run, x: run("vdot", x, torch.ones(SIZE))),
}
for _name, (_of, _call) in _ALWAYS_REFUSED.items():
    sample(_name, _call, _of, is_refused=True)

# On the last axes.

_SERIES, _IMAGES, _VOLUMES = normal(2, 4), normal(2, 4, 4), normal(2, 4, 4, 4)
_ON_SERIES: dict[str, Callable[..., Any]] = {
    "avg_pool1d": lambda run, x: run("avg_pool1d", x, [2], [1], [1]),
    "max_pool1d_with_indices": lambda run, x: run("max_pool1d_with_indices", x, [2]),
    "adaptive_avg_pool1d": lambda run, x: run("adaptive_avg_pool1d", x, [3]),
    "adaptive_max_pool1d": lambda run, x: run("adaptive_max_pool1d", x, [3]),
    "reflection_pad1d": lambda run, x: run("reflection_pad1d", x, [1, 2]),
    "replication_pad1d": lambda run, x: run("replication_pad1d", x, [1, 2]),
    "upsample_linear1d": lambda run, x: run("upsample_linear1d", x, [7], False),
    "upsample_nearest1d": lambda run, x: run("upsample_nearest1d", x, [7]),
    "_upsample_nearest_exact1d": lambda run, x: run("_upsample_nearest_exact1d", x, [7]),
}
_ON_IMAGES: dict[str, Callable[..., Any]] = {
    "max_pool2d_with_indices": lambda run, x: run("max_pool2d_with_indices", x, [2, 2], [1, 1], [1, 1]),
    "avg_pool2d": lambda run, x: run("avg_pool2d", x, [2, 2], [1, 1], [1, 1]),
    "_adaptive_avg_pool2d": lambda run, x: run("_adaptive_avg_pool2d", x, [3, 2]),
    "adaptive_avg_pool2d": lambda run, x: run("adaptive_avg_pool2d", x, [3, 2]),
    "adaptive_max_pool2d": lambda run, x: run("adaptive_max_pool2d", x, [3, 2]),
    "upsample_nearest2d": lambda run, x: run("upsample_nearest2d", x, [7, 3]),
    "upsample_bilinear2d": lambda run, x: run("upsample_bilinear2d", x, [7, 3], True),
    "upsample_bicubic2d": lambda run, x: run("upsample_bicubic2d", x, [7, 3], True),
    "_upsample_bilinear2d_aa": lambda run, x: run("_upsample_bilinear2d_aa", x, [7, 3], False),
    "_upsample_bicubic2d_aa": lambda run, x: run("_upsample_bicubic2d_aa", x, [7, 3], False),
    "_upsample_nearest_exact2d": lambda run, x: run("_upsample_nearest_exact2d", x, [7, 3]),
    "reflection_pad2d": lambda run, x: run("reflection_pad2d", x, [1, 2, 1, 0]),
    "replication_pad2d": lambda run, x: run("replication_pad2d", x, [1, 2, 1, 0]),
    "tril": lambda run, x: run("tril", x, 1),
    "triu": lambda run, x: run("triu", x),
}
_ON_VOLUMES: dict[str, Callable[..., Any]] = {
    "max_pool3d_with_indices": lambda run, x: run("max_pool3d_with_indices", x, [2, 2, 2], [1, 1, 1]),
    "avg_pool3d": lambda run, x: run("avg_pool3d", x, [2, 2, 2], [1, 1, 1]),
    "_adaptive_avg_pool3d": lambda run, x: run("_adaptive_avg_pool3d", x, [3, 2, 2]),
    "adaptive_avg_pool3d": lambda run, x: run("adaptive_avg_pool3d", x, [3, 2, 2]),
    "adaptive_max_pool3d": lambda run, x: run("adaptive_max_pool3d", x, [3, 2, 2]),
    "upsample_nearest3d": lambda run, x: run("upsample_nearest3d", x, [6, 3, 4]),
    "upsample_trilinear3d": lambda run, x: run("upsample_trilinear3d", x, [6, 3, 4], False),
    "reflection_pad3d": lambda run, x: run("reflection_pad3d", x, [1, 2, 1, 0, 0, 1]),
    "replication_pad3d": lambda run, x: run("replication_pad3d", x, [1, 2, 1, 0, 0, 1]),
}
for _of, _calls in ((_SERIES, _ON_SERIES), (_IMAGES, _ON_IMAGES), (_VOLUMES, _ON_VOLUMES)):
    for _name, _call in _calls.items():
        sample(_name, _call, _of)
        sample(_name, lambda run, x, call=_call: call(run, beside(x).contiguous()), _of)
for _name in ("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "upsample_bilinear2d"):
    sample(
        _name,
        lambda run, x, call=_ON_IMAGES[_name]: call(run, x.contiguous(memory_format=torch.channels_last)),
        _IMAGES,
    )
for _name in ("avg_pool2d", "reflection_pad2d", "tril", "triu"):
    # Without channels.
    sample(_name, lambda run, x, call=_ON_IMAGES[_name]: call(run, x[:, 0]), _IMAGES)
sample("pixel_shuffle", lambda run, x: run("pixel_shuffle", x, 2), normal(4, 2, 3))
sample("pixel_shuffle", lambda run, x: run("pixel_shuffle", beside(x), 2), normal(2, 4, 2, 3))
sample("pixel_unshuffle", lambda run, x: run("pixel_unshuffle", x, 2), normal(2, 4, 2))
sample("channel_shuffle", lambda run, x: run("channel_shuffle", x, 2), normal(4, 2, 3))
sample(
    "fractional_max_pool2d",
    lambda run, x: run("fractional_max_pool2d", x, [2, 2], [2, 2], torch.rand(SIZE, 2, 2)),
    normal(2, 6, 6),
    is_random=True,
)

_SQUARE = regular(3, 3)
_LINEAR_ALGEBRA: dict[str, tuple[Domain, Callable[..., Any]]] = {
    "linalg_inv_ex": (_SQUARE, lambda run, a: run("linalg_inv_ex", a)),
    "linalg_cholesky_ex": (definite(3, 3), lambda run, a: run("linalg_cholesky_ex", a)),
    "cholesky": (definite(3, 3), lambda run, a: run("cholesky", a)),
    "cholesky_inverse": (definite(3, 3), lambda run, a: run("cholesky_inverse", a)),
    "linalg_qr": (_SQUARE, lambda run, a: run("linalg_qr", a)),
    "linalg_svd": (_SQUARE, lambda run, a: run("linalg_svd", a, False)),
    "_linalg_svd": (_SQUARE, lambda run, a: run("_linalg_svd", a, False)),
    "_linalg_eigh": (definite(3, 3), lambda run, a: run("_linalg_eigh", a)),
    "_linalg_det": (_SQUARE, lambda run, a: run("_linalg_det", a)),
    "_linalg_slogdet": (_SQUARE, lambda run, a: run("_linalg_slogdet", a)),
    "linalg_det": (_SQUARE, lambda run, a: run("linalg_det", a)),
    "linalg_slogdet": (_SQUARE, lambda run, a: run("linalg_slogdet", a)),
    "linalg_matrix_exp": (normal(3, 3), lambda run, a: run("linalg_matrix_exp", a)),
    "matrix_exp": (normal(3, 3), lambda run, a: run("matrix_exp", a)),
    "linalg_lu_factor_ex": (_SQUARE, lambda run, a: run("linalg_lu_factor_ex", a)),
    "linalg_lu": (_SQUARE, lambda run, a: run("linalg_lu", a)),
    "linalg_eig": (_SQUARE, lambda run, a: run("linalg_eig", a)),
    "linalg_eigvals": (_SQUARE, lambda run, a: run("linalg_eigvals", a)),
    "linalg_ldl_factor_ex": (definite(3, 3), lambda run, a: run("linalg_ldl_factor_ex", a)),
}
for _name, (_of, _call) in _LINEAR_ALGEBRA.items():
    _smooth = _name not in ("linalg_eig", "linalg_ldl_factor_ex")
    sample(_name, _call, _of, is_tame=True, has_gradient=_smooth)
    sample(
        _name,
        lambda run, a, b, call=_call: call(run, torch.stack([a, b])),
        _of,
        _of,
        is_tame=True,
        has_gradient=_smooth,
    )
sample("_linalg_solve_ex", lambda run, a, b: run("_linalg_solve_ex", a, b), _SQUARE, normal(3, 2), is_tame=True)
sample("_linalg_solve_ex", lambda run, a: run("_linalg_solve_ex", a, public(3)), _SQUARE, is_tame=True)
sample("_linalg_solve_ex", lambda run, a: run("_linalg_solve_ex", a, public(3, 2)), _SQUARE, is_tame=True)
sample(
    "linalg_lu_solve",
    lambda run, a, b: run("linalg_lu_solve", *torch.linalg.lu_factor(a), b),
    _SQUARE,
    normal(3, 2),
    is_tame=True,
)
sample(
    "linalg_solve_triangular",
    lambda run, a, b: run("linalg_solve_triangular", a, b, upper=True),
    _SQUARE,
    normal(3, 2),
    is_tame=True,
)
sample(
    "linalg_solve_triangular",
    lambda run, b: run("linalg_solve_triangular", public(3, 3) + torch.eye(3), b, upper=False),
    normal(3, 2),
)

# Products.

sample("mm", lambda run, x: run("mm", x, public(4, 3)), normal(4))
sample("mm", lambda run, x: run("mm", x.to(torch.complex64), public(4, 3).to(torch.complex64)), normal(4))
sample("mm", lambda run, x: run("mm", public(3, 4), x.t()), normal(4))
sample("mm", lambda run, x: run("mm", folded(x), public(4, 2)), _X)
sample("mm", lambda run, x: run("mm", interleaved(x), public(4, 2)), _X)
sample("mm", lambda run, x: run("mm.out", public(3, 4), x.t(), out=torch.empty(3, SIZE)), normal(4), has_gradient=False)
sample("mv", lambda run, x: run("mv", x, public(4)), normal(4))
sample("mv", lambda run, x: run("mv", interleaved(x), public(4)), _X)
sample("addmv", lambda run, x, y: run("addmv", y, x, public(4)), normal(4), normal())
sample("addmv", lambda run, x: run("addmv", torch.ones(1), x, public(4)), normal(4))
sample("addmm", lambda run, x: run("addmm", public(3), x, public(4, 3)), normal(4))
sample("addmm", lambda run, x, y: run("addmm", y, x, public(4, 3)), normal(4), normal(3))
sample("addmm", lambda run, x, y: run("addmm", folded(y), folded(x), public(4, 2)), _X, normal(3, 1))
sample("addmm", lambda run, x: run("addmm", public(3, 1), public(3, 4), x.t(), beta=2), normal(4))
sample("addmm", lambda run, x, y: run("addmm_", y.clone(), x, public(4, 3)), normal(4), normal(3))
sample("bmm", lambda run, x, y: run("bmm", x, y), normal(2, 3), normal(3, 4))
sample("bmm", lambda run, x, y: run("bmm", folded(x), folded(y)), normal(2, 3, 4), normal(2, 4, 3))
sample("bmm", lambda run, x, y: run("bmm", interleaved(x), interleaved(y)), normal(2, 3, 4), normal(2, 4, 3))
sample("bmm", lambda run, x: run("bmm", x, public(3, 4).expand(SIZE, 3, 4)), normal(2, 3))
sample("bmm", lambda run, x: run("bmm", folded(x), public(2, 4, 3).repeat(SIZE, 1, 1)), normal(2, 3, 4))
sample("bmm", lambda run, x: run("bmm", beside(x), public(2, 3, 4)), normal(2, 3))
sample("bmm", lambda run, x: run("bmm", public(2, 4, 3), x.permute(1, 2, 0)), normal(2, 3))
sample("bmm", lambda run, x: run("bmm", torch.ones(SIZE, 4, 2), x), normal(2, 3))
sample("baddbmm", lambda run, x, y, z: run("baddbmm", z, x, y), normal(2, 3), normal(3, 4), normal(1, 4))
sample("baddbmm", lambda run, x, y: run("baddbmm", public(4), x, y, beta=2), normal(2, 3), normal(3, 4))
sample("baddbmm", lambda run, x: run("baddbmm", torch.zeros(()), beside(x), public(2, 3, 4)), normal(2, 3))

# Picking and joining.

sample("gather", lambda run, x, t: run("gather", x, 1, t), normal(3), classes(2))
sample("gather", lambda run, x: run("gather", x, 1, torch.tensor([[2, 0]]).expand(SIZE, 2)), normal(3))
sample("gather", lambda run, x, t: run("gather", beside(x), 0, beside(t)), normal(3, 2), classes(2, 2))
sample("gather", lambda run, t: run("gather", public(1, 3).expand(SIZE, 3), 1, t), classes(2))
sample("scatter", lambda run, x, t, y: run("scatter.src", x, 1, t, y), normal(3), classes(2), normal(2))
sample("scatter", lambda run, t: run("scatter.value", torch.zeros(SIZE, 3), 1, t, 1.0), classes(1))
sample("scatter", lambda run, t: run("scatter_.value", torch.zeros(3, SIZE), 0, t.t(), 1.0), classes(2))
sample(
    "scatter",
    lambda run, x, t, y: run("scatter.reduce", x, 1, t, y, reduce="add"),
    normal(3),
    classes(1),
    normal(1),
    has_gradient=False,
)
sample("scatter_add", lambda run, x, t, y: run("scatter_add", x, 1, t, y), normal(3), classes(4), normal(4))
sample("scatter_add", lambda run, t, y: run("scatter_add_", torch.zeros(SIZE, 3), 1, t, y), classes(4), normal(4))
for _kind in ("sum", "mean", "amax", "prod"):
    sample(
        "scatter_reduce",
        lambda run, x, t, y, kind=_kind: run("scatter_reduce.two", x, 1, t, y, kind),
        normal(3),
        classes(4),
        normal(4),
    )
sample("index_select", lambda run, x: run("index_select", x, 1, torch.tensor([2, 0])), normal(3))
sample("index_select", lambda run, x: run("index_select", beside(x), 0, torch.tensor([2, 0])), normal(3, 2))
sample("index_select", lambda run, t: run("index_select", public(3, 2), 0, t), classes())
sample("index_select", lambda run, t: run("index_select", public(2, 3), 1, folded(t)), classes(4))
sample("index_add", lambda run, x, y: run("index_add", x, 1, torch.tensor([2, 2]), y), normal(3), normal(2))
sample("index_add", lambda run, y: run("index_add_", torch.zeros(SIZE, 3), 1, torch.tensor([2, 2]), y), normal(2))
sample("index_add", lambda run, x: run("index_add", x, 1, torch.tensor([2]), torch.ones(SIZE, 1)), normal(3))
sample("index_copy", lambda run, x, y: run("index_copy", x.t(), 0, torch.tensor([2, 0]), y.t()), normal(3), normal(2))
sample("index_fill", lambda run, x: run("index_fill.int_Scalar", x, 1, torch.tensor([2, 0]), 1.0), normal(3))
sample("index_fill", lambda run, x: run("index_fill_.int_Scalar", x.t().clone(), 0, torch.tensor([1]), 1.0), normal(3))
for _name in ("index", "_unsafe_index"):
    _full = f"{_name}.Tensor"
    sample(_name, lambda run, x, f=_full: run(f, x, [None, torch.tensor([2, 0])]), normal(3))
    sample(_name, lambda run, x, t, f=_full: run(f, x, [torch.arange(SIZE), t]), normal(3), classes())
    sample(
        _name,
        lambda run, x, t, f=_full: run(f, x, [torch.arange(SIZE)[:, None], t]),
        normal(3, 2),
        classes(4),
    )
    sample(_name, lambda run, x, t, f=_full: run(f, x, [torch.arange(SIZE), None, t]), normal(4, 3), classes())
    sample(_name, lambda run, x, f=_full: run(f, beside(x), [torch.tensor([1, 0, 1])]), normal(3, 2))
    sample(
        _name,
        lambda run, x, f=_full: run(f, beside(x), [torch.tensor([1, 0]), None, torch.tensor([0, 1])]),
        normal(3, 2),
    )
    sample(_name, lambda run, x, f=_full: run(f, x, [None, None, torch.tensor([[1, 0]])]), normal(3, 2))
    sample(_name, lambda run, t, f=_full: run(f, public(3, 4), [t]), classes())
    sample(_name, lambda run, t, f=_full: run(f, public(2, 3, 4), [None, beside(t)]), classes(2))
    sample(_name, lambda run, x, f=_full: run(f, x, [torch.arange(SIZE), torch.tensor([1])]), normal(3))
for _name in ("index_put", "_unsafe_index_put"):
    sample(
        _name,
        lambda run, x, t, y, n=_name: run(n, x, [torch.arange(SIZE), t], y),
        normal(3),
        classes(),
        normal(),
    )
    sample(
        _name, lambda run, t, n=_name: run(n, torch.zeros(SIZE, 3), [torch.arange(SIZE), t], torch.ones(())), classes()
    )
    sample(_name, lambda run, x, y, n=_name: run(n, x, [None, torch.tensor([2, 0])], y), normal(3), normal(2))
    sample(_name, lambda run, x, n=_name: run(n, x, [None, torch.tensor([2, 0])], public(2)), normal(3))
    sample(_name, lambda run, x, y, n=_name: run(n, x, [None, torch.tensor([2, 2])], y, True), normal(3), normal(2))
    sample(
        _name,
        lambda run, y, n=_name: run(n, torch.zeros(3 * SIZE, 2), [None, torch.tensor([1])], y.reshape(-1, 1)),
        normal(3),
    )
    sample(
        _name,
        lambda run, y, n=_name: run(n, torch.zeros(3 * SIZE, 2), [None, torch.tensor([1])], y.t().reshape(-1, 1)),
        normal(3),
    )
sample(
    "index_put",
    lambda run, t: run("index_put_", torch.zeros(SIZE, 3), [torch.arange(SIZE), t], torch.ones(())),
    classes(),
)
sample("cat", lambda run, x, y: run("cat", [x, y], 1), normal(3), normal(2))
sample("cat", lambda run, x, y: run("cat", [x, y]), normal(3), normal(3))
sample("cat", lambda run, x, y: run("cat", [folded(x), folded(y)]), normal(2, 3), normal(2, 3))
sample("cat", lambda run, x: run("cat", [x, torch.zeros(SIZE, 2)], 1), normal(3))
sample("cat", lambda run, x: run("cat", [torch.ones(SIZE, 3), x]), normal(3))
sample("cat", lambda run, x: run("cat", [public(2).expand(SIZE, 2), x], -1), normal(3))
sample("cat", lambda run, x: run("cat", [torch.zeros(0), x]), normal(3))
sample("cat", lambda run, x: run("cat", [beside(x), public(2, 1, 3).expand(2, SIZE, 3)]), normal(2, 3))
sample("stack", lambda run, x, y: run("stack", [x, y]), normal(3), normal(3))
sample("stack", lambda run, x, y: run("stack", [x, y], 1), normal(3), normal(3))
sample("stack", lambda run, x: run("stack", [x.t(), torch.zeros(3, SIZE)], -1), normal(3))
sample("repeat", lambda run, x: run("repeat", x, [2, 1]), normal(3))
sample("repeat", lambda run, x: run("repeat", beside(x), [2, 3, 1, 2]), normal(3, 2))
sample("repeat", lambda run, x: run("repeat", folded(x), [2]), normal(3))
sample("constant_pad_nd", lambda run, x: run("constant_pad_nd", x, [1, 2], 0.5), normal(3))
sample("constant_pad_nd", lambda run, x: run("constant_pad_nd", beside(x), [1, 0, 0, 0, 1, -1]), normal(3, 2))
sample("embedding", lambda run, t: run("embedding", public(3, 4), t), classes())
sample("embedding", lambda run, t: run("embedding", public(3, 4), beside(t), 1), classes(2))
for _name in ("_embedding_bag", "_embedding_bag_forward_only"):
    for _mode in (0, 1, 2):
        sample(
            _name,
            lambda run, t, n=_name, mode=_mode: run(n, public(3, 2), folded(t), torch.arange(SIZE) * 4, False, mode),
            classes(4),
        )
        sample(
            _name,
            lambda run, t, n=_name, mode=_mode: run(
                n, public(3, 2), folded(t), torch.arange(SIZE) * 4, False, mode, padding_idx=1
            ),
            classes(4),
        )
    sample(
        _name,
        lambda run, t, y, n=_name: run(
            n, public(3, 2), folded(t), torch.arange(SIZE) * 4, per_sample_weights=folded(y)
        ),
        classes(4),
        normal(4),
        has_gradient=False,
    )
sample("bucketize", lambda run, x: run("bucketize.Tensor", beside(x), public(4)), normal(3))
sample("searchsorted", lambda run, x: run("searchsorted.Tensor", public(4), x, right=True), normal(3))

# Layers.


def _fresh() -> tuple[Tensor, Tensor]:
    """Fixed statistics of three channels."""
    return public(3), 1 + public(3)


sample(
    "convolution",
    lambda run, x: run("convolution", x, public(3, 2, 2), public(3), [1], [1], [1], False, [0], 1),
    normal(2, 6),
)
sample(
    "convolution",
    lambda run, x: run("convolution", x, public(4, 1, 2, 2), None, [2, 1], [0, 1], [1, 2], False, [0, 0], 2),
    normal(2, 6, 6),
)
sample(
    "convolution",
    lambda run, x: run("convolution", x, public(2, 3, 2, 2), None, [2, 2], [0, 0], [1, 1], True, [1, 1], 1),
    normal(2, 4, 4),
)
sample(
    "convolution",
    lambda run, x: run("convolution", folded(x), public(3, 1, 2), None, [1], [0], [1], False, [0], 1),
    normal(2, 1, 6),
)
sample(
    "convolution",
    lambda run, x: run(
        "convolution",
        x.contiguous(memory_format=torch.channels_last),
        public(3, 2, 2, 2),
        None,
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        1,
    ),
    normal(2, 4, 4),
)
sample("im2col", lambda run, x: run("im2col", x, [2, 2], [1, 1], [0, 0], [1, 1]), normal(2, 4, 4))
sample("col2im", lambda run, x: run("col2im", x, [3, 3], [2, 2], [1, 1], [0, 0], [1, 1]), normal(8, 4))
sample("multinomial", lambda run, x: run("multinomial", x, 3, True), positive(4), is_random=True, is_tame=True)
sample("multinomial", lambda run, x: run("multinomial", folded(x), 2), positive(2, 4), is_random=True, is_tame=True)
sample(
    "affine_grid_generator",
    lambda run, x: run("affine_grid_generator", x, [SIZE, 1, 3, 4], False),
    normal(2, 3),
    ulps=4,
)
for _name in ("grid_sampler_2d", "_grid_sampler_2d_cpu_fallback"):
    sample(
        _name,
        lambda run, x, g, n=_name: run(n, x, g, 0, 0, False),
        normal(2, 4, 4),
        unit(3, 3, 2),
        is_tame=True,
        has_gradient=_name == "grid_sampler_2d",
    )
sample(
    "grid_sampler_2d",
    lambda run, x: run("grid_sampler_2d", x, public(1, 3, 3, 2).expand(SIZE, 3, 3, 2), 1, 1, True),
    normal(2, 4, 4),
)
sample(
    "grid_sampler_3d",
    lambda run, x, g: run("grid_sampler_3d", x, g, 0, 0, False),
    normal(1, 3, 3, 3),
    unit(2, 2, 2, 3),
    is_tame=True,
)
sample("native_layer_norm", lambda run, x: run("native_layer_norm", x, [4], public(4), public(4), 1e-5), _X)
sample("native_layer_norm", lambda run, x: run("native_layer_norm", x, [3, 4], None, None, 1e-5), _X)
sample("native_layer_norm", lambda run, x: run("native_layer_norm", beside(x), [4], None, public(4), 1e-5), _X)
sample("_fused_rms_norm", lambda run, x: run("_fused_rms_norm", beside(x), [4], public(4), 1e-5), _X)
sample(
    "native_group_norm",
    lambda run, x: run("native_group_norm", x, public(4), public(4), SIZE, 4, 3, 2, 1e-5),
    normal(4, 3),
)
sample(
    "native_group_norm",
    lambda run, x: run("native_group_norm", folded(x), None, None, 2 * SIZE, 4, 3, 2, 1e-5),
    normal(2, 4, 3),
)
for _name in ("native_batch_norm", "_native_batch_norm_legit"):
    for _of in (normal(3), normal(3, 4), normal(3, 2, 4)):
        sample(_name, lambda run, x, n=_name: run(n, x, public(3), public(3), *_fresh(), False, 0.1, 1e-5), _of)
    sample(
        _name, lambda run, x, n=_name: run(n, x.permute(1, 2, 0), None, None, *_fresh(), False, 0.1, 1e-5), normal(4, 3)
    )
for _name in ("_native_batch_norm_legit_no_training", "_batch_norm_no_update"):
    for _of in (normal(3), normal(3, 4)):
        sample(
            _name,
            lambda run, x, n=_name: run(n, x, public(3), public(3), *_fresh(), 0.1, 1e-5),
            _of,
            has_gradient=_name == "_batch_norm_no_update",
        )
# With the statistics of every example's own channels: instance norm.
sample(
    "native_batch_norm",
    lambda run, x: run("native_batch_norm", x.flatten(0, 1)[None], None, None, None, None, True, 0.1, 1e-5),
    normal(3, 4),
)
sample(
    "native_batch_norm",
    lambda run, x: run(
        "native_batch_norm", x.flatten(0, 1)[None], public(3).repeat(SIZE), None, None, None, True, 0.1, 1e-5
    ),
    normal(3, 4),
)
sample(
    "_native_batch_norm_legit",
    lambda run, x: run("_native_batch_norm_legit.no_stats", x.flatten(0, 1)[None], None, None, True, 0.1, 1e-5),
    normal(3, 4),
)
sample(
    "_batch_norm_with_update",
    lambda run, x: run(
        "_batch_norm_with_update", x.flatten(0, 1)[None], *(torch.ones(3 * SIZE) for _ in "wbmv"), 0.1, 1e-5
    ),
    normal(3, 4),
)
_HEADS = normal(2, 4, 8)
_FLASH = "_scaled_dot_product_flash_attention_for_cpu"
sample(_FLASH, lambda run, q, k, v: run(_FLASH, q, k, v), _HEADS, _HEADS, _HEADS)
sample(_FLASH, lambda run, q, k, v: run(_FLASH, q, k, v, 0.0, True), _HEADS, _HEADS, _HEADS)
sample(_FLASH, lambda run, q, k, v: run(_FLASH, beside(q), beside(k), beside(v)), _HEADS, _HEADS, _HEADS)
sample(
    _FLASH,
    lambda run, q, k, v, m: run(_FLASH, q, k, v, attn_mask=m),
    _HEADS,
    _HEADS,
    _HEADS,
    normal(1, 4, 4),
    has_gradient=False,
)
sample(_FLASH, lambda run, q: run(_FLASH, q, *(public(2, 4, 8).expand(SIZE, 2, 4, 8) for _ in "kv")), _HEADS)
sample("nll_loss_forward", lambda run, x, t: run("nll_loss_forward", x, t, None, 0, -100), normal(3), classes())
sample("nll_loss_forward", lambda run, x, t: run("nll_loss_forward", x, t, public(3), 0, 1), normal(3), classes())
sample(
    "nll_loss_forward",
    lambda run, x, t: run("nll_loss_forward", interleaved(x), interleaved(t), None, 0, -100),
    normal(2, 3),
    classes(2),
)
sample(
    "nll_loss_forward",
    lambda run, x: run("nll_loss_forward", x, torch.zeros(SIZE, dtype=torch.int64), None, 0, -100),
    normal(3),
)
sample(
    "nll_loss2d_forward",
    lambda run, x, t: run("nll_loss2d_forward", x, t, None, 0, -100),
    normal(3, 2, 2),
    classes(2, 2),
)
sample("multi_margin_loss", lambda run, x, t: run("multi_margin_loss", x, t, 1, 1.0, None, 0), normal(3), classes())
sample("_cdist_forward", lambda run, x: run("_cdist_forward", x, public(2, 3), 2.0, None), normal(3))
sample("_cdist_forward", lambda run, x, y: run("_cdist_forward", x, y, 1.0, None), normal(2, 3), normal(4, 3))
sample("_cdist_forward", lambda run, x: run("_cdist_forward", beside(x), public(2, 4, 3), 2.0, None), normal(2, 3))
sample("_cdist_forward", lambda run, x: run("_cdist_forward", x, public(2, 4, 3), 2.0, None), normal(3))

# There is no kernel for the processor that tests run on. Each follows the same rule as an operation that has one.
ELSEWHERE = {
    "_fused_dropout": "native_dropout",
    "_scaled_dot_product_flash_attention": _FLASH,
    "_scaled_dot_product_efficient_attention": _FLASH,
    "_scaled_dot_product_cudnn_attention": _FLASH,
}


# Programs that mix examples, treat them by their place in the lot or put them in another order. They are given `x` of
# shape (SIZE, 4), `y` of shape (SIZE, 3, 4) and classes `t`.


def written(z: Tensor, *at: Any, to: Any) -> Tensor:
    """z[at] = to"""
    z[at] = to
    return z


def square(x: Tensor) -> Tensor:
    """As many numbers for each example as there are examples."""
    return x[:, :1] * torch.ones(len(x))


def places(x: Tensor, start: float = 0.0) -> Tensor:
    """Another number for every place in the lot."""
    return torch.linspace(start, 1, len(x))


def zeros_of(x: Tensor, *shape: int) -> Tensor:
    return torch.zeros(len(x), *shape)


MIXING: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    # Reductions.
    "sum over the lot": lambda x, y, t: x.sum(0),
    "sum of everything": lambda x, y, t: x.sum(),
    "sum of one axis and the lot": lambda x, y, t: y.sum((0, 2)),
    "sum over a folded axis": lambda x, y, t: y.flatten(0, 1).sum(0),
    "mean over the lot": lambda x, y, t: x - x.mean(0),
    "largest of the lot": lambda x, y, t: x.amax(0, keepdim=True),
    "largest of the second axis": lambda x, y, t: y.transpose(0, 1).max(1)[0],
    "spread of the lot": lambda x, y, t: x / x.std(0),
    "norm of the lot": lambda x, y, t: F.normalize(x, dim=0),
    "norm of everything": lambda x, y, t: x / x.norm(),
    "median of the lot": lambda x, y, t: x.median(0)[0],
    "logsumexp over the lot": lambda x, y, t: x.logsumexp(0),
    "product over the lot": lambda x, y, t: x.prod(0),
    "where the lot is largest": lambda x, y, t: x.argmax(0),
    "quantile of the lot": lambda x, y, t: x.quantile(0.5, dim=0),
    "any of the lot": lambda x, y, t: (x > 0).any(0),
    "slices of the other axis to one norm": lambda x, y, t: x.renorm(2, 1, 0.1),
    "mean loss": lambda x, y, t: F.cross_entropy(x, t),
    "sum of losses": lambda x, y, t: F.mse_loss(x, torch.zeros_like(x), reduction="sum"),
    "mean loss of logits": lambda x, y, t: F.binary_cross_entropy_with_logits(x, torch.ones(4).expand(len(x), 4)),
    "gradient of a mean loss": lambda x, y, t: torch.ops.aten.mse_loss_backward(x.mean(), x, torch.zeros(4), 1),
    # Products.
    "Gram matrix of the lot": lambda x, y, t: x @ x.t(),
    "second moment": lambda x, y, t: x.t() @ x,
    "outer product of two columns": lambda x, y, t: torch.outer(x[:, 0], x[:, 1]),
    "dot product of two columns": lambda x, y, t: torch.dot(x[:, 0], x[:, 1]),
    "examples as weights": lambda x, y, t: F.linear(x, x),
    "a public mix of examples": lambda x, y, t: public(3, len(x)) @ x,
    "flattened before a layer": lambda x, y, t: F.linear(x.reshape(1, -1), public(3, x.numel())),
    "a product along folded axes": lambda x, y, t: y.flatten(0, 1).t() @ y.flatten(0, 1),
    "matrices by place": lambda x, y, t: torch.bmm(y, public(len(y), 4, 2)),
    "matrices of another order": lambda x, y, t: torch.bmm(
        y.transpose(0, 1).reshape(-1, 1, 4), public(3, 4, 2).repeat(len(y), 1, 1)
    ),
    "added to a public product": lambda x, y, t: torch.addmm(x, public(len(x), 2), public(2, 4)),
    "contracted by einsum": lambda x, y, t: torch.einsum("bi,bj->ij", x, x),
    "distances between examples": lambda x, y, t: torch.cdist(x, x),
    "distances of pairs": lambda x, y, t: F.pdist(x),
    "attention across examples": lambda x, y, t: F.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None]
    ),
    "attention across examples, in heads": lambda x, y, t: F.scaled_dot_product_attention(*[y.transpose(0, 1)] * 3),
    "covariance": lambda x, y, t: torch.cov(x.t()),
    "inverse of a matrix of examples": lambda x, y, t: torch.linalg.inv(square(x) + torch.eye(len(x))),
    "equations by place": lambda x, y, t: torch.linalg.solve(y @ y.mT + torch.eye(3), public(len(y), 3)),
    # Along the lot.
    "softmax over the lot": lambda x, y, t: x.softmax(0),
    "log_softmax over the second axis": lambda x, y, t: y.transpose(0, 1).log_softmax(1),
    "running sum": lambda x, y, t: x.cumsum(0),
    "running product": lambda x, y, t: x.cumprod(0),
    "running maximum": lambda x, y, t: x.cummax(0)[0],
    "running logsumexp": lambda x, y, t: x.logcumsumexp(0),
    "differences of neighbours": lambda x, y, t: torch.diff(x, dim=0),
    "sorted": lambda x, y, t: x.sort(0)[0],
    "ranks": lambda x, y, t: x.argsort(0),
    "largest two": lambda x, y, t: x.topk(2, 0)[0],
    "reversed": lambda x, y, t: x.flip(0),
    "rolled": lambda x, y, t: x.roll(1, 0),
    "rolled through": lambda x, y, t: x.roll(1),
    "Fourier transform over the lot": lambda x, y, t: torch.fft.fft(x, dim=0).real,
    "gated by others": lambda x, y, t: F.glu(torch.cat([x, x])[: 2 * (len(x) // 2)], 0),
    "triangle": lambda x, y, t: x.tril(),
    "windows over the lot": lambda x, y, t: x.unfold(0, 2, 1).sum(-1),
    "convolution over the lot": lambda x, y, t: F.conv1d(x.t()[None], torch.ones(4, 4, 3), padding=1)[0].t(),
    "convolution with examples for channels": lambda x, y, t: F.conv1d(x[None], torch.ones(2, len(x), 1)),
    "pooling over the lot": lambda x, y, t: F.avg_pool1d(x.t(), 3, 1, 1).t(),
    "interpolation over the lot": lambda x, y, t: F.interpolate(x.t()[None], 9, mode="linear"),
    "padded with another example": lambda x, y, t: F.pad(x.t(), (1, 0), mode="reflect").t(),
    "padded with zeros": lambda x, y, t: F.pad(x, (0, 0, 1, 0))[:-1],
    "channels shuffled": lambda x, y, t: F.channel_shuffle(torch.cat([x, x])[None, ..., None, None], len(x)),
    "patches without channels": lambda x, y, t: F.unfold(y, 2).view(4, len(y), -1).sum(0),
    # Normalised over the lot.
    "batch norm": lambda x, y, t: F.batch_norm(x, None, None, training=True),
    "batch norm by place": lambda x, y, t: F.batch_norm(x.t().contiguous(), places(x), torch.ones(len(x))),
    "layer norm over the lot": lambda x, y, t: F.layer_norm(x, x.shape),
    "instance norm along the lot": lambda x, y, t: F.instance_norm(x.t()[None]),
    "group norm over the lot": lambda x, y, t: torch.native_group_norm(
        x[..., None], None, None, 1, x.numel(), 1, 1, 1e-5
    )[0],
    # Picked by place or value.
    "shuffled": lambda x, y, t: x[torch.randperm(len(x), generator=torch.Generator().manual_seed(1))],
    "the next one": lambda x, y, t: x[(torch.arange(len(x)) + 1) % len(x)],
    "picked by classes": lambda x, y, t: x[t],
    "picked by classes along the lot": lambda x, y, t: x.gather(0, t[:, None].expand(len(x), 4)),
    "selected": lambda x, y, t: x.index_select(0, torch.arange(len(x)).flip(0)),
    "a table of examples": lambda x, y, t: F.embedding(t, x),
    "the first three": lambda x, y, t: x[:3],
    "every other one": lambda x, y, t: x[::2],
    "the first for all": lambda x, y, t: x[:1].expand_as(x) + 0,
    "the neighbour": lambda x, y, t: x[1:] - x[:-1],
    "only what is positive": lambda x, y, t: x[x > 0],
    "different values": lambda x, y, t: torch.unique(t),
    "how often": lambda x, y, t: torch.bincount(t, minlength=3),
    "histogram": lambda x, y, t: torch.histc(x, 4),
    "columns by place": lambda x, y, t: torch.cat([x, x], 1)[torch.arange(len(x)), torch.arange(len(x))],
    "columns by public numbers": lambda x, y, t: x[torch.arange(len(x)), (3 * places(x)).long()],
    "columns by class and place": lambda x, y, t: y[torch.arange(len(x)), t, (3 * places(x)).long()],
    "the diagonal": lambda x, y, t: torch.cat([x, x], 1)[:, : len(x)].diagonal(),
    "repeated by classes": lambda x, y, t: x.repeat_interleave(t, 0),
    "bags of different lengths": lambda x, y, t: F.embedding_bag(
        t, public(3, 2), torch.cat([torch.arange(len(t) - 1), torch.tensor([len(t) - 1])]).clamp(max=2), mode="sum"
    ),
    "bags with weights by place": lambda x, y, t: F.embedding_bag(
        t, public(3, 2), torch.arange(len(t)), mode="sum", per_sample_weights=places(x, 0.1)
    ),
    "boundaries of the lot": lambda x, y, t: torch.bucketize(x, x[:, 0].sort()[0]),
    "sampled from the lot": lambda x, y, t: torch.multinomial(
        x[:, 0].exp(), len(x), generator=torch.Generator().manual_seed(1)
    ),
    # Written.
    "summed into rows": lambda x, y, t: zeros_of(x, 4).index_add(0, t, x),
    "summed into rows of a square": lambda x, y, t: zeros_of(x, len(x)).index_add(0, t, square(x)),
    "copied to rows": lambda x, y, t: zeros_of(x, 4).index_copy(0, torch.arange(len(x)).flip(0), x),
    "filled where a class is": lambda x, y, t: places(x).index_fill(0, t, 0.0),
    "scattered over the lot": lambda x, y, t: zeros_of(x, 4).scatter_add(0, t[:, None].expand(len(x), 4), x),
    "scattered over the lot, largest": lambda x, y, t: zeros_of(x, 4).scatter_reduce(
        0, t[:, None].expand(len(x), 4), x, "amax"
    ),
    "scattered to the first only": lambda x, y, t: x.scatter(1, torch.tensor([[0]]), 9.0),
    "one for all classes of the lot": lambda x, y, t: written(zeros_of(x, 3), slice(None), t, to=1.0),
    "written to the first": lambda x, y, t: written(x.clone(), 0, to=0.0),
    "written to some": lambda x, y, t: written(x.clone(), torch.tensor([0, 2]), to=0.0),
    "written by classes": lambda x, y, t: written(x.clone(), t, to=0.0),
    "written where negative": lambda x, y, t: written(x.clone(), x.sum(1) < 0, to=x.mean()),
    "written from the neighbour": lambda x, y, t: written(x.clone(), slice(1, None), to=x[:-1]),
    "written a sum of all": lambda x, y, t: zeros_of(x, 4).copy_(x.sum(0)),
    "filled with a mean of all": lambda x, y, t: zeros_of(x).fill_(x.mean()),
    "added a sum in place": lambda x, y, t: x.clone().add_(x.sum(0)),
    "written to a column by place": lambda x, y, t: written(x.clone(), slice(None), 0, to=places(x)),
    "written where positive": lambda x, y, t: zeros_of(x, 4).masked_scatter(x > 0, x),
    # Joined.
    "the first again": lambda x, y, t: torch.cat([x, x[:1]]),
    "a public row among them": lambda x, y, t: torch.cat([public(1, 4), x])[:-1],
    "beside their reverse": lambda x, y, t: torch.cat([x, x.flip(0)], 1),
    "on top of their reverse": lambda x, y, t: torch.stack([x, x.flip(0)]).sum(0),
    "half of one and half of another": lambda x, y, t: torch.cat([x[:2], y[2:, 0]]),
    # By place, with public numbers.
    "times their places": lambda x, y, t: x * torch.arange(len(x))[:, None],
    "times public numbers by place": lambda x, y, t: x * places(x)[:, None],
    "only one of two": lambda x, y, t: torch.where((torch.arange(len(x)) % 2 == 0)[:, None], x, torch.zeros(4)),
    "times a one and zeros": lambda x, y, t: x * torch.cat([torch.ones(1, 1), torch.zeros(len(x) - 1, 1)]),
    "times stacked constants": lambda x, y, t: (
        x[:, 0] * torch.stack([torch.ones(()), *[torch.zeros(())] * (len(x) - 1)])
    ),
    "times padded constants": lambda x, y, t: x[:, 0] * F.pad(torch.ones(1), (0, len(x) - 1)),
    "times padded rows": lambda x, y, t: x * F.pad(torch.ones(len(x), 4), (0, 0, 1, 0))[:-1],
    "times a running sum of ones": lambda x, y, t: x[:, 0] * torch.ones(len(x) + 1).cumsum(0)[:-1],
    "times a column of a triangle": lambda x, y, t: x[:, 0] * torch.ones(len(x), len(x)).tril()[:, 2],
    "times normalised constants": lambda x, y, t: (
        x[:, 0] * F.layer_norm(torch.zeros(len(x)), (len(x),), None, places(x))
    ),
    "times scattered constants": lambda x, y, t: x * torch.zeros(len(x), 4).scatter(1, torch.tensor([[0]]), 1.0),
    "times parts in another order": lambda x, y, t: x.t().reshape(-1) * public(4).repeat(len(x)),
    "times constants in another order": lambda x, y, t: (
        x[:, :2].reshape(-1) * written(torch.zeros(2 * len(x)), slice(0, len(x)), to=1.0)
    ),
    # Broadcast against each other.
    "a column against a row": lambda x, y, t: x[:, :1] - x[:, 0],
    "one axis against another": lambda x, y, t: square(x) + square(x).t(),
    "two orders of parts": lambda x, y, t: y.flatten(0, 1) + y.transpose(0, 1).reshape(-1, 4),
    "reshaped across examples": lambda x, y, t: x.reshape(4, -1).sum(1),
    "seen as a single row": lambda x, y, t: x.view(-1)[1:-3].view(-1, 4).sum(1),
}


def shifted(x: Tensor) -> Tensor:
    """Each example after a row of zeros."""
    return written(torch.zeros(len(x) + 1, 4), slice(1, None), to=x)


def copied_in_a_list(x: Tensor) -> Tensor:
    z = torch.zeros(4)
    torch._foreach_copy_([z], [x.sum(0)])
    return z


def partly_public(x: Tensor, *, overlapping: bool) -> Tensor:
    """Some entries of every example are written over with public numbers, the others are not."""
    z = x.clone()
    target = z.as_strided((len(x), 2, 2), (4, 1, 1)) if overlapping else z[:, :2].unsqueeze(-1)
    torch.mul(public(*target.shape[1:]).repeat(len(x), 1, 1), 1.0, out=target)
    return z


def torn(x: Tensor) -> Tensor:
    """Ones that were added up while they were read."""
    z = torch.ones(4, len(x))
    return z.add_(z[:, 1:2])[0]


def below_a_sum(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return torch.randint_like(zeros_of(x), high=(1000 * x.abs().sum()).long())


# Of what is written in place, and of tensors of other kinds.
WRITTEN: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "one place further": lambda x, y, t: shifted(x)[:-1] + x,
    "ones, one place further": lambda x, y, t: (
        x[:, 0] * written(torch.zeros(2 * len(x)), slice(1, len(x) + 1), to=1.0)[: len(x)]
    ),
    "places among zeros": lambda x, y, t: x * written(zeros_of(x, 4), slice(None), 0, to=torch.arange(len(x)).float()),
    "places among copies": lambda x, y, t: x * written(public(4).repeat(len(x), 1), slice(None), 0, to=places(x)),
    "into an empty tensor": lambda x, y, t: torch.mul(x[:, :1], torch.ones(len(x)), out=torch.empty(0)).sum(0),
    "into a list": lambda x, y, t: x + copied_in_a_list(x),
    "public numbers over a part": lambda x, y, t: x + partly_public(x, overlapping=False)[0],
    "public numbers over overlapping entries": lambda x, y, t: x + partly_public(x, overlapping=True)[0],
    "half of every constant": lambda x, y, t: x[:, 0] * torch.full((len(x),), 0.5).view(torch.int16)[: len(x)],
    "ones that are read while they are written": lambda x, y, t: x[:, 0] * torn(x),
    "a sparse tensor": lambda x, y, t: x.to_sparse().to_dense().mean(0),
    "a tensor for another library": lambda x, y, t: x.to_mkldnn().to_dense().mean(0),
    "random numbers below a sum": lambda x, y, t: below_a_sum(x),
}
