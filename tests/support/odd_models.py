"""Odd models and losses, as people write them, each with what must come of it.

`harmless`: no example sees another, so it must be accepted, and one example moves the released sum by one clip norm at
most. `mixing`: examples influence each other, or the model keeps something of them, so it must be refused. `either`:
both are right, as long as nothing is released that the proof does not cover.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from support import odd_losses
from support.odd_functions import EITHER_FUNCTIONS, FUNCTIONS_MEET_IN, HARMLESS_FUNCTIONS, MIXING_FUNCTIONS
from support.odd_layers import (
    CLASSES,
    HIDDEN,
    WIDTH,
    Apply,
    Attention,
    Bags,
    Checkpointed,
    CutToTheLongest,
    Doubling,
    DroppedWeights,
    Energy,
    Experts,
    FirstToken,
    FrozenTeacher,
    InputInPlace,
    LookedUpOnce,
    OneHot,
    OwnFilters,
    OwnWeights,
    Packed,
    Prototypes,
    Recurrent,
    SampledWeights,
    Tied,
    TimeFirst,
    Transformed,
    TwoInputs,
    UnitGradient,
    Variational,
    around,
    body,
    frozen_norm,
    head,
    image_network,
    perceptron,
    with_hook,
    with_pre_hook,
    without_warnings,
)
from support.odd_memories import (
    ActNorm,
    ActNormByBuffer,
    AfterWarmUp,
    Balanced,
    BuiltLater,
    Calls,
    CentredCheckpoint,
    CentredLayer,
    ChosenByExperts,
    ClassLevel,
    Codebook,
    ExpandedToken,
    FrozenParameter,
    GatedByZero,
    GlobalList,
    HookedGradient,
    InitialisedByData,
    InnerStep,
    LastInputs,
    Level,
    MemoryBank,
    MovingMean,
    MovingTarget,
    Observer,
    Queue,
    Rows,
    Stateful,
    Tracked,
    WholeLot,
    averaging_hook,
    centred_gradient,
    half_frozen,
    halved_gradient,
    hooked_backward,
    instance_norm_with_statistics,
    norm_without_statistics,
    parameter_hook,
    remembering_hook,
    with_penalty,
)

Fate = Literal["harmless", "mixing", "either"]
ROWS = 64


def vectors(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """[B, 6], of different lengths, with a class each."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.logspace(-0.5, 0.7, rows)[torch.randperm(rows, generator=generator)]
    return torch.randn(rows, WIDTH, generator=generator) * sizes[:, None], torch.arange(rows) % CLASSES


def numbers(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """[B, 6], with a number each."""
    x, _ = vectors(rows)
    return x, x[:, 0] - x[:, 1].square() / 4


def images(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """[B, 2, 6, 6], with a class each."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(rows, 2, 6, 6, generator=generator), torch.arange(rows) % CLASSES


def sequences(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """[B, 5, 4], with a class each."""
    generator = torch.Generator().manual_seed(3)
    return torch.randn(rows, 5, 4, generator=generator), torch.arange(rows) % CLASSES


def traces(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """[B, 5, 4], with a number for each of the five positions."""
    x, _ = sequences(rows)
    return x, x.sum(2).tanh()


def padded(rows: int = ROWS) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """[B, 5, 4] and how many of the five positions count."""
    x, y = sequences(rows)
    return (x, 1 + torch.arange(rows) % 5), y


def tokens(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """[B, 6] of twelve words, with a class each."""
    generator = torch.Generator().manual_seed(4)
    return torch.randint(12, (rows, 6), generator=generator), torch.arange(rows) % CLASSES


def by_name(rows: int = ROWS) -> tuple[dict[str, Tensor], Tensor]:
    """Numbers and words, which the model takes by name."""
    return {"numbers": vectors(rows)[0], "words": tokens(rows)[0]}, torch.arange(rows) % CLASSES


@dataclass(frozen=True, eq=False)
class Odd:
    """A model with its loss and data.

    In lots below `meets_in` examples may happen not to meet; torch itself refuses lots below `smallest`. `largest` is a
    lot size at which something showed that smaller lots did not show.
    """

    name: str
    fate: Fate
    model: Callable[[], nn.Module]
    loss: Callable[[], Any] = lambda: F.cross_entropy
    data: Callable[[], tuple[Any, Any]] = vectors
    meets_in: int = 2
    smallest: int = 1
    largest: int = 1

    def make(self) -> tuple[nn.Module, Any]:
        """A fresh model, and a fresh loss."""
        return self.model(), self.loss()

    def __str__(self) -> str:
        return self.name


HARMLESS = [
    *(Odd(name, "harmless", lambda f=function: around(Apply(f))) for name, function in HARMLESS_FUNCTIONS.items()),
    # The number of passes over a lot must not depend on how large it is.
    Odd("inputs changed in place", "harmless", InputInPlace, largest=16),
    Odd("dropout", "harmless", lambda: around(nn.Dropout(0.5))),
    Odd("alpha dropout", "harmless", lambda: around(nn.AlphaDropout(0.3))),
    Odd("random leaky ReLU", "harmless", lambda: around(nn.RReLU())),
    Odd(
        "weight norm, old",
        "harmless",
        without_warnings(lambda: nn.Sequential(nn.utils.weight_norm(body()), nn.Tanh(), head())),
    ),
    Odd("weight norm", "harmless", lambda: nn.Sequential(parametrizations.weight_norm(body()), nn.Tanh(), head())),
    Odd("experts without capacity", "harmless", Experts),
    Odd("RNN", "harmless", lambda: Recurrent(nn.RNN), data=sequences),
    Odd("GRU", "harmless", lambda: Recurrent(nn.GRU), data=sequences),
    Odd("LSTM", "harmless", lambda: Recurrent(nn.LSTM), data=sequences),
    Odd("GRU, time first", "harmless", TimeFirst, data=sequences),
    Odd("packed sequences", "harmless", Packed, data=padded),
    Odd("cut to the longest", "harmless", CutToTheLongest, data=padded),
    Odd("attention", "harmless", lambda: Attention(batch_first=True), data=sequences),
    Odd("attention, time first", "harmless", lambda: Attention(batch_first=False, transposed=True), data=sequences),
    Odd("class token and Transformer", "harmless", FirstToken, data=sequences),
    Odd("own backward pass", "harmless", lambda: around(Apply(Doubling.apply))),
    Odd("slope of an energy", "harmless", Energy),
    Odd("checkpointed", "harmless", lambda: Checkpointed(use_reentrant=False)),
    Odd("checkpointed, reentrant", "harmless", lambda: Checkpointed(use_reentrant=True)),
    Odd("compiled", "harmless", lambda: torch.compile(perceptron(), backend="eager")),
    Odd("scripted", "harmless", without_warnings(lambda: torch.jit.script(perceptron()))),
    Odd("traced", "harmless", without_warnings(lambda: torch.jit.trace(perceptron(), torch.zeros(2, WIDTH)))),
    Odd("embedding bags by offsets", "harmless", Bags, data=tokens),
    Odd(
        "sparse embedding",
        "harmless",
        lambda: nn.Sequential(nn.Embedding(12, HIDDEN, sparse=True), Apply(lambda h: h.mean(1)), head()),
        data=tokens,
    ),
    Odd("one-hot words", "harmless", OneHot, data=tokens),
    Odd("words and numbers by name", "harmless", TwoInputs, data=by_name),
    Odd("spatial transformer", "harmless", Transformed, data=images),
    Odd("filters of its own, by groups", "harmless", OwnFilters, data=images),
    Odd("weights of its own", "harmless", OwnWeights),
    Odd("learned prototypes", "harmless", Prototypes),
    Odd("tied weights", "harmless", Tied),
    Odd("variational", "harmless", Variational),
    Odd("sampled weights", "harmless", SampledWeights),
    Odd("dropped weights", "harmless", DroppedWeights),
    Odd("frozen teacher", "harmless", FrozenTeacher),
    Odd("batch norm in evaluation mode", "harmless", frozen_norm, data=images),
    Odd("instance norm", "harmless", lambda: image_network(nn.InstanceNorm2d(4, affine=True)), data=images),
    Odd("group norm", "harmless", lambda: image_network(nn.GroupNorm(2, 4)), data=images),
    Odd("layer norm", "harmless", lambda: around(nn.LayerNorm(HIDDEN))),
    Odd("local response norm", "harmless", lambda: image_network(nn.LocalResponseNorm(2)), data=images),
    Odd("forward hook by row", "harmless", lambda: with_hook(lambda _, inputs, output: output.sigmoid())),
    Odd("pre-hook by row", "harmless", with_pre_hook),
    Odd("hook on a parameter", "harmless", parameter_hook),
    *(Odd(name, "harmless", perceptron, loss) for name, loss in odd_losses.HARMLESS.items()),
    Odd(
        "loss: one value a position",
        "harmless",
        lambda: nn.Sequential(nn.Linear(4, 1), nn.Flatten(1)),
        odd_losses.always(odd_losses.values_of_a_sequence),
        traces,
    ),
    Odd(
        "loss: squared error of a number",
        "harmless",
        lambda: nn.Sequential(body(), nn.Tanh(), nn.Linear(HIDDEN, 1), nn.Flatten(0)),
        odd_losses.always(F.mse_loss),
        numbers,
    ),
]
MIXING = [
    *(
        Odd(name, "mixing", lambda f=function: around(Apply(f)), meets_in=FUNCTIONS_MEET_IN.get(name, 2))
        for name, function in MIXING_FUNCTIONS.items()
    ),
    Odd("ActNorm", "mixing", lambda: nn.Sequential(ActNorm(), perceptron()), meets_in=1),
    Odd("ActNorm, flag in a buffer", "mixing", ActNormByBuffer, meets_in=1),
    Odd("initialised by the first lot", "mixing", InitialisedByData, meets_in=1),
    Odd("running maximum", "mixing", Observer, meets_in=1),
    Odd("memory bank", "mixing", MemoryBank, meets_in=1),
    Odd("queue of earlier rows", "mixing", Queue, meets_in=1),
    Odd("list of earlier lots in a module", "mixing", GlobalList, meets_in=1),
    Odd("level in a number", "mixing", Level, meets_in=1),
    Odd("level in the class", "mixing", ClassLevel, meets_in=1),
    Odd("helper with a moving mean", "mixing", Tracked, meets_in=1),
    Odd("moving mean in a frozen parameter", "mixing", FrozenParameter, meets_in=1),
    Odd("token that is added up over rows", "mixing", ExpandedToken),
    Odd("checkpointed, centred", "mixing", lambda: CentredCheckpoint(use_reentrant=False)),
    Odd("checkpointed, centred, reentrant", "mixing", lambda: CentredCheckpoint(use_reentrant=True)),
    Odd("compiled, centred", "mixing", lambda: torch.compile(around(CentredLayer()), backend="eager")),
    Odd("scripted, centred", "mixing", without_warnings(lambda: torch.jit.script(around(CentredLayer())))),
    Odd(
        "traced, centred",
        "mixing",
        without_warnings(lambda: torch.jit.trace(around(CentredLayer()), torch.zeros(2, WIDTH))),
    ),
    Odd("stateful GRU", "mixing", Stateful, data=sequences, meets_in=1),
    Odd("moving mean", "mixing", MovingMean, meets_in=1),
    Odd("codebook that follows", "mixing", Codebook, meets_in=1),
    Odd("hook with a moving mean", "mixing", averaging_hook, meets_in=1),
    Odd("rows are counted", "mixing", Rows, meets_in=1),
    Odd("after a warm-up", "mixing", AfterWarmUp),
    Odd("experts with a capacity", "mixing", lambda: Experts(capacity=1), meets_in=3),
    Odd("experts that choose", "mixing", ChosenByExperts),
    Odd("experts with a balance", "mixing", Balanced, odd_losses.always(with_penalty)),
    Odd("inner step on the lot", "mixing", InnerStep),
    Odd("gate that starts at zero", "mixing", GatedByZero),
    Odd("whole lot in one row", "mixing", WholeLot),
    Odd("hook that centres", "mixing", lambda: with_hook(lambda _, inputs, output: output - output.mean(0))),
    Odd("batch norm", "mixing", lambda: around(nn.BatchNorm1d(HIDDEN)), meets_in=1),
    Odd(
        "batch norm as a function",
        "mixing",
        lambda: around(Apply(lambda h: F.batch_norm(h, None, None, training=True))),
        smallest=2,
    ),
    Odd(
        "instance norm along rows",
        "mixing",
        lambda: around(Apply(lambda h: F.instance_norm(h.t()[None])[0].t())),
        smallest=3,
    ),
    Odd("batch norm without statistics", "mixing", norm_without_statistics),
    Odd("batch norm in a frozen backbone", "mixing", half_frozen, meets_in=1),
    Odd("instance norm with statistics", "mixing", instance_norm_with_statistics, data=images, meets_in=1),
    Odd("attention over rows by mistake", "mixing", lambda: Attention(batch_first=False), data=sequences),
    Odd("GRU over rows by mistake", "mixing", lambda: Recurrent(nn.GRU, batch_first=False), data=sequences),
    Odd(
        "words that are rescaled when looked up",
        "mixing",
        lambda: nn.Sequential(nn.Embedding(12, HIDDEN, max_norm=0.5), Apply(lambda h: h.mean(1)), head()),
        data=tokens,
        meets_in=1,
    ),
    *(
        Odd(name, "mixing", perceptron, loss, meets_in=odd_losses.MEET_IN.get(name, 2))
        for name, loss in odd_losses.MIXING.items()
    ),
    Odd(
        "loss: missing axis",
        "mixing",
        lambda: nn.Sequential(body(), nn.Tanh(), nn.Linear(HIDDEN, 1)),
        odd_losses.always(odd_losses.missing_axis),
        numbers,
    ),
    Odd(
        "loss: missing axis, by row",
        "mixing",
        lambda: nn.Sequential(body(), nn.Tanh(), nn.Linear(HIDDEN, 1)),
        odd_losses.always(odd_losses.missing_axis_by_row),
        numbers,
    ),
]
EITHER = [
    *(Odd(name, "either", lambda f=function: around(Apply(f))) for name, function in EITHER_FUNCTIONS.items()),
    Odd(
        "spectral norm, old",
        "either",
        without_warnings(lambda: nn.Sequential(nn.utils.spectral_norm(body()), nn.Tanh(), head())),
    ),
    Odd("spectral norm", "either", lambda: nn.Sequential(parametrizations.spectral_norm(body()), nn.Tanh(), head())),
    Odd("words looked up once", "either", LookedUpOnce, data=tokens),
    Odd("teacher that follows the weights", "either", MovingTarget),
    Odd("lazy layer", "either", without_warnings(lambda: nn.Sequential(nn.LazyLinear(HIDDEN), nn.Tanh(), head()))),
    Odd("last layer built later", "either", BuiltLater),
    Odd("calls are counted", "either", Calls),
    Odd("last lot is kept", "either", LastInputs),
    Odd("attention maps are kept", "either", lambda: Attention(batch_first=True, keeps=True), data=sequences),
    Odd("hook that keeps activations", "either", remembering_hook),
    Odd("backward pass over the lot", "either", lambda: around(Apply(UnitGradient.apply))),
    Odd("gradient hook over the lot", "either", HookedGradient),
    Odd("backward hook over the lot", "either", lambda: hooked_backward(centred_gradient)),
    Odd("backward hook by row", "either", lambda: hooked_backward(halved_gradient)),
    *(Odd(name, "either", perceptron, loss) for name, loss in odd_losses.EITHER.items()),
]
ODD = [*HARMLESS, *MIXING, *EITHER]
