"""Every draw of noise beside the sensitivity claimed for it, on neighbouring data: `make outside` writes OUTSIDE.md.

    python benchmarks/recorder.py
    python benchmarks/recorder.py --only dpsgd PrivateCentring   # some of them, printed

The idea is that of dp-recorder (ObliviousAI), which no package index here has. A way to release is run on data with one
hostile row, and every draw is recorded: the numbers before the noise, the sensitivity claimed for them, the scale that
the noise really has, and the release. Then it is run on the neighbouring data, with the same lots and with the recorded
releases handed out again, so that both runs go the same way. The numbers before the noise must be no farther apart than
the claimed sensitivity, and scale over sensitivity must be a multiplier of the events in the guarantee.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import pkgutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from results import environment, show_table, write_section

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

import tacit  # noqa: E402
import tacit.erm.noise  # noqa: E402
import tacit.estimators  # noqa: E402
import tacit.features  # noqa: E402
import tacit.methods  # noqa: E402
import tacit.recipes  # noqa: E402
from support.emissions import replace_everywhere  # noqa: E402
from support.small_runs import CLASSES, INPUTS, TARGETS, N, small_run, train  # noqa: E402
from tacit.accounting import Adjacency, EpsilonDelta, Event, Gaussian, from_json  # noqa: E402
from tacit.budget import Budget  # noqa: E402
from tacit.erm import FilteredDescent, NoisyDescent, NoisyLots, NoisyPass, NoisySnapshots, Reporting  # noqa: E402
from tacit.estimators import (  # noqa: E402
    PrivateClassifier,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRegressor,
)
from tacit.features import KnotsAndCells, PrivateCells, PrivateCentring, PrivateWhitening, PrivateWordWeights  # noqa: E402
from tacit.features.cells import GRIDS  # noqa: E402
from tacit.methods import dpsgd, encoded  # noqa: E402
from tacit.randomness import Stream  # noqa: E402
from tacit.recipes.recipe import auto  # noqa: E402
from tacit.stages.bounds import Clip, NormalisedClip, QuantileClip  # noqa: E402
from tacit.stages.mechanism import Mechanism  # noqa: E402
from tacit.stages.noise import BandedNoise, BoxNoise, GaussianNoise, NoisyMean  # noqa: E402

PAGE = Path(__file__).with_name("OUTSIDE.md")
COLUMNS = ["mechanism", "way", "pairs", "draws", "largest distance / sensitivity", "findings"]
# Noise is watched in what has been imported: everything of these packages.
DRAWING = [
    importlib.import_module(each.name)
    for package in (tacit.methods, tacit.erm, tacit.estimators, tacit.recipes, tacit.features)
    for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
]
DELTA = 1e-5
# Sums in single precision round; grids round scales.
SLACK, NEAR = 1e-4, 1e-3
_LOUD = 1000.0
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Draw:
    """One draw of noise: what it was added to, the claim, the scale that was measured, and what came out."""

    by: str
    values: Numbers
    sensitivity: float
    scale: float | None
    released: Any
    corner: Numbers | None = None

    def distance(self, other: Draw) -> float:
        """How far the numbers before the noise are apart, in claimed sensitivities."""
        if self.values.shape != other.values.shape:
            return np.inf
        apart = np.abs(self.values - other.values)
        found = float(np.linalg.norm(apart)) / self.sensitivity
        if self.corner is None:
            return found
        # A box also bounds each coordinate, whichever is which.
        inside = np.sort(apart) / np.maximum(self.corner, 1e-300)
        return max(found, float(inside.max(initial=0.0)))


class Fixed:
    """In place of a stream: every normal number is the same, so that the scale of the noise can be read off."""

    def __init__(self, value: float) -> None:
        self.value = value

    def normal(self, size: int, *, wide: bool = False, scale: float = 1.0) -> NDArray[Any]:
        """`size` times the same number."""
        return np.full(size, self.value * scale, np.float64 if wide else np.float32)

    def normal_pieces(self, size: int, real: type[np.floating], scale: float) -> Iterator[NDArray[Any]]:
        """The same in one piece."""
        yield np.full(size, self.value * scale, real)


@dataclass
class Recorder:
    """The draws and lots of one run; with `first`, its lots and releases are handed out again."""

    first: Recorder | None = None
    draws: list[Draw] = field(default_factory=list)
    lots: list[Any] = field(default_factory=list)
    depth: int = 0

    def note(self, draw: Callable[[], Any], by: str, values: Any, **facts: Any) -> Any:
        """Record a draw, and return its release: that of the first run if there was one."""
        number = len(self.draws)
        if self.first is None:
            self.depth += 1
            released = draw()
            self.depth -= 1
        elif number < len(self.first.draws):
            released = self.first.draws[number].released
        else:
            raise Diverged("the neighbouring run draws more often")
        self.draws.append(Draw(by, flatten(values), released=released, **facts))
        return copy_of(released)

    def lot(self, original: Any, stream: Stream, n: int, rate: float) -> Any:
        """A lot; in the second run the same one, with the row that only one of both has where the first drew it."""
        if self.first is None:
            self.lots.append(original(stream, n, rate))
        elif len(self.lots) < len(self.first.lots):
            drawn = self.first.lots[len(self.lots)]
            self.lots.append(drawn[drawn < n])
        else:
            raise Diverged("the neighbouring run draws more lots")
        return self.lots[-1]

    @contextmanager
    def watching(self) -> Iterator[Recorder]:
        """Record everything that is drawn in here."""
        with pytest.MonkeyPatch.context() as patch:
            self._watch(patch)
            yield self

    def _watch(self, patch: pytest.MonkeyPatch) -> None:
        plain, coins = GaussianNoise.mean_in_place, Stream.coins

        def gaussian(noise: GaussianNoise, bounded: Any, rng: Any, lot_size: float) -> Any:
            if self.depth:
                return plain(noise, bounded, rng, lot_size)
            zeros = replace(bounded, values={n: torch.zeros_like(v) for n, v in bounded.values.items()})
            loud = flatten(plain(noise, zeros, Fixed(_LOUD), lot_size)) * lot_size / _LOUD
            values = flatten(bounded.values)
            return self.note(
                lambda: plain(noise, bounded, rng, lot_size), "GaussianNoise", values,
                sensitivity=bounded.sensitivity, scale=same(loud),
            )  # fmt: skip

        def on_sum(kind: Any) -> Any:
            original = kind.add

            def add(noise: Any, bounded: Any, rng: Any) -> Any:
                if self.depth:
                    return original(noise, bounded, rng)
                corner = None if bounded.box is None else bounded.box.corner(bounded.dimension)
                return self.note(
                    lambda: original(noise, bounded, rng), kind.__name__, bounded.values,
                    sensitivity=bounded.sensitivity, scale=None, corner=corner,
                )  # fmt: skip

            return add

        guide = NoisyMean.add

        def steer(noise: NoisyMean, bounded: Any, rng: Any) -> Any:
            # The mean is clipped inside; what the noise is added to is what comes out without noise.
            zeros = replace(bounded, values={n: torch.zeros_like(v) for n, v in bounded.values.items()})
            scale = same(flatten(guide(noise, zeros, Fixed(_LOUD))) / _LOUD)
            return self.note(
                lambda: guide(noise, bounded, rng), "NoisyMean", guide(noise, bounded, Fixed(0.0)),
                sensitivity=scale / noise.event(1).multiplier, scale=scale,
            )  # fmt: skip

        normal, pure = tacit.erm.noise.add_gaussian, tacit.erm.noise.add_k_norm

        def add_gaussian(values: Any, *, sensitivity: float, rng: Any, **about: Any) -> Any:
            loud = normal(np.zeros(1), sensitivity=sensitivity, rng=Fixed(_LOUD), **about).values / _LOUD
            return self.note(
                lambda: normal(values, sensitivity=sensitivity, rng=rng, **about), "add_gaussian", values,
                sensitivity=sensitivity, scale=same(loud),
            )  # fmt: skip

        def add_k_norm(values: Any, *, sensitivity: float, rng: Any, **about: Any) -> Any:
            # In one dimension, the length is the scale times half the sum of two squares.
            loud = pure(np.zeros(1), sensitivity=sensitivity, rng=Fixed(_LOUD), **about).values / _LOUD**2
            return self.note(
                lambda: pure(values, sensitivity=sensitivity, rng=rng, **about), "add_k_norm", values,
                sensitivity=sensitivity, scale=same(loud),
            )  # fmt: skip

        patch.setattr(GaussianNoise, "mean_in_place", gaussian)
        for kind in (BoxNoise, BandedNoise):
            patch.setattr(kind, "add", on_sum(kind))
        patch.setattr(NoisyMean, "add", steer)
        patch.setattr(Stream, "coins", lambda stream, n, rate: self.lot(coins, stream, n, rate))
        replace_everywhere(patch, normal, add_gaussian)
        replace_everywhere(patch, pure, add_k_norm)


class Diverged(Exception):  # noqa: N818 - it is a finding
    """Two runs on neighbouring data do not draw alike."""


def flatten(values: Any) -> Numbers:
    """One row of numbers in double precision, a copy."""
    if isinstance(values, np.ndarray):
        return np.array(values, dtype=np.float64).ravel()
    parts = [np.array(value.detach().double().numpy()).ravel() for value in values.values()]
    return np.concatenate(parts) if parts else np.zeros(0)


def copy_of(released: Any) -> Any:
    """A release that nobody else writes into."""
    if isinstance(released, dict):
        return {name: value.clone() for name, value in released.items()}
    return replace(released, values=released.values.copy())


def same(scales: Numbers) -> float:
    """The scale of the noise, which must be that of every coordinate."""
    if scales.size and float(np.ptp(scales)) > NEAR * abs(float(scales[0])):
        return float("nan")
    return float(scales[0]) if scales.size else 0.0


def list_multipliers(event: Any) -> Iterator[float]:
    """Scale over sensitivity of every release that an event counts."""
    if isinstance(event, Gaussian):
        yield event.multiplier
    elif isinstance(event, EpsilonDelta) and event.delta == 0:
        yield 1 / event.epsilon
    elif dataclasses.is_dataclass(event):
        for one in dataclasses.fields(event):
            yield from list_multipliers(getattr(event, one.name))
    elif isinstance(event, (tuple, list)):
        for each in event:
            yield from list_multipliers(each)


# ---- ways to release -------------------------------------------------------------------------------------------------

Rows = tuple[Any, Any]
Pair = tuple[str, Rows, Rows]


@dataclass(frozen=True)
class Way:
    """A way to release: how it is run on rows and targets, and pairs of neighbouring data for it.

    `claims` is "each" for a sensitivity per draw, "total" for a filter that bounds the sum of squares over all steps,
    and "nothing" for published forms without a proof.
    """

    mechanism: str
    name: str
    run: Callable[[Any, Any], Event]
    pairs: Callable[[], list[Pair]]
    claims: str = "each"
    # A sum of clipped gradients moves by twice the clip norm if an example is replaced.
    moves: float = 1.0


@dataclass
class Found:
    """What a way came to over its pairs."""

    pairs: int = 0
    draws: int = 0
    distance: float = 0.0
    findings: list[str] = field(default_factory=list)


def try_way(way: Way) -> Found:
    """Run it on every pair of neighbours."""
    found = Found()
    for label, one, other in way.pairs():
        first, second = Recorder(), None
        try:
            with first.watching():
                event = way.run(*one)
            second = Recorder(first)
            with second.watching():
                way.run(*other)
        except Diverged as reason:
            found.findings.append(f"{label}: {reason}")
            continue
        found.pairs += 1
        found.draws += len(first.draws)
        found.findings += [f"{label}: {each}" for each in compare(way, event, first, second, found)]
    if not found.draws:
        found.findings.append("no draw was seen")
    return found


def compare(way: Way, event: Event, first: Recorder, second: Recorder, found: Found) -> Iterator[str]:
    """The findings of one pair; the largest distance goes into `found`."""
    if len(first.draws) != len(second.draws):
        yield f"{len(first.draws)} draws, and {len(second.draws)} on the neighbouring data"
    pairs = list(zip(first.draws, second.draws, strict=False))
    distances = [one.distance(other) / way.moves for one, other in pairs]
    multipliers = np.array(sorted(set(list_multipliers(event))))
    if way.claims == "total":
        # Noise of one standard deviation for each step; the event states the whole.
        total = float(np.linalg.norm(distances)) * multipliers.min()
        found.distance = max(found.distance, total)
        if not total <= 1 + SLACK:
            yield f"all steps together come to {total:.4g} of what was claimed"
        return
    found.distance = max([found.distance, *distances])
    if way.claims == "nothing":
        return
    for number, ((one, _), distance) in enumerate(zip(pairs, distances, strict=True)):
        if not distance <= 1 + SLACK:
            yield f"draw {number} ({one.by}) moves by {distance:.4g} claimed sensitivities"
        if one.scale is None:
            continue
        ratio = one.scale / (way.moves * one.sensitivity)
        if not (multipliers.size and np.min(np.abs(multipliers / ratio - 1)) < NEAR):
            yield f"draw {number} ({one.by}) has scale / sensitivity {ratio:.5g}; events have {multipliers[:5]}"


# Networks: a row more or less.
HOSTILE: dict[str, float] = {"extreme": 1e6, "far below": -1e6, "zeros": 0.0, "NaN": float("nan"), "infinite": np.inf}


def with_and_without() -> list[Pair]:
    """The last row is hostile, and the neighbour has it not."""
    pairs = []
    for label, value in HOSTILE.items():
        x, y = INPUTS.clone(), TARGETS.clone()
        x[-1] = value
        pairs.append((f"{label} row removed", (x, y), (x[:-1], y[:-1])))
    # All others alike, and one that points the other way: nothing cancels.
    x, y = torch.ones_like(INPUTS), torch.zeros_like(TARGETS)
    x[-1], y[-1] = -3.0, CLASSES - 1
    pairs.append(("opposite row removed", (x, y), (x[:-1], y[:-1])))
    return pairs


def replaced() -> list[Pair]:
    """The last row is replaced by its opposite, or by one that is not finite."""
    pairs = []
    for label, value in HOSTILE.items():
        x, y = INPUTS.clone(), TARGETS.clone()
        other, turned = x.clone(), y.clone()
        x[-1], other[-1], turned[-1] = value, -1.0 if value == 0 else -value, (y[-1] + 1) % CLASSES
        pairs.append((f"{label} row replaced", (x, y), (other, turned)))
    return pairs


def run_network(**changes: Any) -> Callable[[Any, Any], Event]:
    """A `PrivateRun` over a small perceptron."""

    def run(x: Any, y: Any) -> Event:
        made = small_run(data=(x, y), **changes)
        train(made)
        return made.guarantee().event

    return run


def list_networks() -> Iterator[Way]:
    """Bounds, noises and samplings behind `PrivateRun`."""
    runs: dict[str, dict[str, Any]] = {
        "dpsgd": {},
        "dpsgd, in pieces": {"micro_batch": 3},
        "dpsgd, all examples": {"sampling": tacit.FullBatch(population=N)},
        "dpsgd, a schedule": {"schedule": tacit.Schedule(multiplier=[1.0, 2.0, 0.5], lot_size=[1, 2, 1]), "steps": 3},
        "dpsgd, clipped by layer": {"mechanism": Mechanism(Clip(0.5, per_layer=True), GaussianNoise(1.3))},
        "dpsgd, normalised": {"mechanism": Mechanism(NormalisedClip(0.5), GaussianNoise(1.3))},
        "dpsgd, at a quantile": {"mechanism": Mechanism(QuantileClip(), GaussianNoise(1.3))},
        "dpsgd, cyclic lots": {"sampling": tacit.CyclicPoisson(20, N, groups=5), "steps": 20},
        "dpsgd, correlated noise": {
            "sampling": tacit.CyclicPoisson(20, N, groups=5), "mechanism": dpsgd(0.5, 1.1).with_bands(5), "steps": 10,
        },
        "dpsgd, random allocation": {"sampling": tacit.RandomAllocation(40, N)},
        "encoded": {"mechanism": encoded(multiplier=2.0)},
        "directional": {"mechanism": tacit.methods.directional(multiplier=1.5)},
        "adaclip": {"mechanism": tacit.methods.adaclip(multiplier=1.5)},
        "pruned": {"mechanism": tacit.methods.pruned(multiplier=1.5)},
        "dp_lssgd": {"mechanism": tacit.methods.dp_lssgd(multiplier=1.5)},
    }  # fmt: skip
    for name, changes in runs.items():
        yield Way(name, "PrivateRun", run_network(**changes), with_and_without)
    published = {"mechanism": tacit.methods.directional(mode="paper"), "budget": Budget(2.0, DELTA)}
    yield Way("directional, as published", "PrivateRun", run_network(**published), with_and_without, "nothing")
    fixed = {"sampling": tacit.FixedLots(20, N)}
    yield Way("dpsgd, lots of fixed size", "PrivateRun", run_network(**fixed), replaced, moves=2.0)


# Tables: numbers in [-1, 1], and rows that are not.
_RNG = np.random.default_rng(0)
X = _RNG.uniform(-1, 1, (200, 3))
Y = (X[:, 0] > 0).astype(int)
TEXTS = ["a splendid film", "a dreadful film"] * 100


def rows_with_and_without(*, with_nan: bool = True, prepare: Callable[[Any], Any] = np.asarray) -> list[Pair]:
    """A table whose last row is hostile, and the same without it."""
    pairs = []
    for label, value in {**HOSTILE, "at the corner": 1.0}.items():
        if not with_nan and not np.isfinite(value):
            continue
        x = X.copy()
        x[-1] = value
        x = prepare(x)
        pairs.append((f"{label} row removed", (x, Y), (x[:-1], Y[:-1])))
    return pairs


def rows_replaced(*, by_zeros: bool = False, numeric: bool = False) -> list[Pair]:
    """A table whose last row is replaced by its opposite with the other class, or by zeros."""
    pairs = []
    y = X[:, 0] * 2 if numeric else Y
    for label, value in {"extreme": 1e6, "ordinary": 0.5, "at the corner": 1.0}.items():
        x, other, turned = X.copy(), X.copy(), y.copy()
        x[-1], other[-1] = value, 0.0 if by_zeros else -value
        turned[-1] = -3.0 if numeric else 1 - y[-1]
        pairs.append((f"{label} row replaced", (x, y), (other, y if by_zeros else turned)))
    return pairs


def list_preparations() -> Iterator[Way]:
    """Features fitted privately."""
    cells = PrivateCells(30.0, 200, cells=3 * sum(GRIDS), per_row=3 * len(GRIDS), random_state=0)
    for made in (
        PrivateCentring(30.0, 200, random_state=0),
        PrivateWhitening(30.0, 200, axes=(3,), random_state=0),
        PrivateWhitening(30.0, 200, axes=(3, 1), random_state=0),
        PrivateWordWeights(30.0, 200, random_state=0),
        cells,
    ):
        as_cells = lambda x: KnotsAndCells(3).fit_transform(np.clip(np.nan_to_num(x), -1, 1))  # noqa: E731
        prepare = as_cells if made is cells else np.asarray
        name = f"{type(made).__name__}{' along two axes' if getattr(made, 'axes', ()) == (3, 1) else ''}"
        yield Way(
            name,
            "fit",
            lambda x, y, made=made: made.fit(x).event_,
            lambda prepare=prepare: rows_with_and_without(prepare=prepare),
        )


def fit(kind: type, **settings: Any) -> Callable[[Any, Any], Event]:
    """`fit` of an estimator."""
    return lambda x, y: kind(random_state=0, **settings).fit(x, y).guarantee_.event


def list_linear() -> Iterator[Way]:
    """Methods on linear models, through the estimators. Neighbours differ in one row that is replaced."""
    about = {"epsilon": 1.0, "data_norm": 2.0}
    classes = {**about, "classes": [0, 1]}
    descents = {
        "noisy descent": NoisyDescent(10),
        "noisy lots": NoisyLots(10, lot_size=50),
        "noisy snapshots": NoisySnapshots(2, 3, lot_size=50),
    }
    for kind in (PrivateLogisticRegression, PrivateLinearSVC):
        for name, delta in (("output", DELTA), ("output, without delta", None)):
            made = fit(kind, method="output", delta=delta, **classes)
            yield Way(name, kind.__name__, made, rows_replaced)
        for name, training in descents.items():
            made = fit(kind, method="gradient", delta=DELTA, options={"training": training}, **classes)
            yield Way(f"gradient, {name}", kind.__name__, made, rows_replaced)
    made = fit(
        PrivateLogisticRegression, method="gradient", delta=None,
        options={"training": NoisyPass(passes=2, lot_size=50)}, **classes,
    )  # fmt: skip
    yield Way("gradient, one pass, without delta", "PrivateLogisticRegression", made, rows_replaced)
    for training in (NoisyDescent(10), FilteredDescent(10)):
        options = {"training": training, "adjacency": Adjacency.ADD_REMOVE}
        is_filter = isinstance(training, FilteredDescent)
        made = fit(
            PrivateLogisticRegression, method="influence" if is_filter else "gradient", delta=DELTA,
            options={"training": training} if is_filter else options, **classes,
        )  # fmt: skip
        pairs = rows_replaced if is_filter else lambda: rows_replaced(by_zeros=True)
        name = "influence, a filter" if is_filter else "gradient, a row or zeros"
        yield Way(name, "PrivateLogisticRegression", made, pairs, "total" if is_filter else "each")
    for method in ("input", "data"):
        options = {"reporting": Reporting(shuffled=False)}
        made = fit(PrivateLogisticRegression, method=method, delta=DELTA, options=options, **classes)
        yield Way(f"{method}, reports", "PrivateLogisticRegression", made, rows_replaced)
    for name, options in {"output": {}, "gradient": {"training": NoisyDescent(10)}}.items():
        made = fit(PrivateLinearRegression, method=name, options=options, target_bound=2.0, delta=DELTA, **about)
        yield Way(name, "PrivateLinearRegression", made, lambda: rows_replaced(numeric=True))


def list_estimators() -> Iterator[Way]:
    """Networks and recipes behind `fit`."""
    about = {"epsilon": 1.0, "population": 200}
    classes = {**about, "classes": [0, 1]}
    finite = lambda: rows_with_and_without(with_nan=False)  # noqa: E731
    small = {"steps": 6, "lot_size": 20}
    yield Way("network", "PrivateClassifier", fit(PrivateClassifier, **small, **classes), finite)

    def numeric(x: Any, y: Any) -> Event:
        return fit(PrivateRegressor, **small, target_bound=1.0, **about)(x, y * 4.0 - 2)

    yield Way("network", "PrivateRegressor", numeric, finite)
    plain = auto("table", population=200, epsilon=1, delta=DELTA)
    recipes = {"table": {"recipe": "auto", "numbers": 3}}
    recipes |= {
        f"table, {one}": {"recipe": replace(plain, preparation=one)} for one in ("none", "centring", "whitening")
    }
    # Recipes take hundreds of steps.
    hostile = lambda: finite()[:2]  # noqa: E731
    for name, settings in recipes.items():
        yield Way(f"recipe, {name}", "PrivateClassifier", fit(PrivateClassifier, **settings, **classes), hostile)

    def texts() -> list[Pair]:
        words = [*TEXTS[:-1], "awful " * 500]
        return [("long text removed", (words, Y), (words[:-1], Y[:-1]))]

    yield Way("recipe, text", "PrivateClassifier", fit(PrivateClassifier, recipe="auto", **classes), texts)


BOUNDS = 'rows = 300\n[columns]\nsize = { low = -1, high = 1 }\nlabel = ["no", "yes"]\n'


def run_command(*words: str) -> Callable[[Any, Any], Event]:
    """A command in a folder of its own; the event is that of the guarantee it writes."""
    from typer.testing import CliRunner

    from tacit.cli import app

    def run(x: Any, y: Any) -> Event:
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                lines = [f"{value},{'yes' if label else 'no'}" for value, label in zip(x, y, strict=True)]
                Path("own.csv").write_text("\n".join(["size,label", *lines]) + "\n")
                Path("bounds.toml").write_text(BOUNDS)
                table = ["own.csv", "--target", "label", "--bounds", "bounds.toml", "--seed", "0", "--out", "run"]
                ran = CliRunner().invoke(app, [words[0], *table, *words[1:]])
                if ran.exception is not None and isinstance(ran.exception, Diverged):
                    raise ran.exception
                if ran.exit_code:
                    raise RuntimeError(f"{ran.output}{ran.exception!r}")
                guarantee = tacit.Guarantee.from_json(Path("run/guarantee.json").read_text())
                scores = Path("run/metrics.json")
                found = guarantee.event
                if '"event"' in scores.read_text():
                    [row] = json.loads(scores.read_text())["test"]
                    found = found + from_json(json.dumps(row["event"]))
                return found
            finally:
                os.chdir(before)

    return run


def columns_with_and_without() -> list[Pair]:
    """A column of a file, whose last value is hostile, as text."""
    values = [f"{value:.6f}" for value in _RNG.uniform(-1, 1, 300)]
    labels = [float(value) > 0 for value in values]
    pairs = []
    for label in ("1e9", "-1e9", "0.5"):
        x = [*values[:-1], label]
        pairs.append((f"row {label} removed", (x, labels), (x[:-1], labels[:-1])))
    return pairs


def list_commands() -> Iterator[Way]:
    """The command line on a table of one's own, with its score of held-out rows."""
    for name, words in {
        "recipe": ("train", "--epsilon", "8", "--recipe", "auto"),
        "network": ("train", "--multiplier", "2", "--steps", "30"),
        "encoded": ("train", "--multiplier", "2", "--steps", "30", "--method", "encoded"),
    }.items():
        yield Way(name, "tacit train", run_command(*words), columns_with_and_without)


def list_ways() -> Iterator[Way]:
    """All of them."""
    yield from list_networks()
    yield from list_preparations()
    yield from list_linear()
    yield from list_estimators()
    yield from list_commands()


def try_all(ways: Sequence[Way]) -> tuple[list[list[str]], int]:
    """The rows of the table, and the number of findings."""
    rows, findings = [], 0
    for way in ways:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = try_way(way)
        counts = way.claims != "nothing"
        findings += len(found.findings) * counts
        text = f"{len(found.findings)}: {found.findings[0]}" if found.findings else "0"
        rows.append([
            way.mechanism, way.name, str(found.pairs), f"{found.draws:,}", f"{found.distance:.4f}",
            text if counts else "not counted: nothing is proven of it",
        ])  # fmt: skip
        print(*rows[-1], sep=" | ", flush=True)
        for each in found.findings[:5]:
            print("   ", each, flush=True)
    return rows, findings


def describe(rows: Sequence[Sequence[str]], findings: int) -> str:
    """The section of the page."""
    draws = sum(int(row[3].replace(",", "")) for row in rows)
    return "\n\n".join([
        "## Sensitivities and noise scales, as they were drawn",
        environment(["tacit", "torch", "numpy"]),
        f"{len(rows)} ways to release, {draws:,} draws of noise: {findings} findings. Distance 1 is all of the claim.",
        show_table([COLUMNS, *rows]),
        "Not in this table: noise that is not added to a sum. These are the linear term of objective perturbation, "
        "counts of norms (data_norm='estimate') and randomized response; tests/contracts/test_charges.py compares "
        "their scales with what is charged. dp-recorder and dp-auditorium are not on the package index, so that "
        "neither runs here.",
    ])  # fmt: skip


def main() -> None:
    """Record all, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", help="words that mechanisms or ways hold; printed and not written")
    parser.add_argument("--output", type=Path, default=PAGE, help="a page other than OUTSIDE.md")
    options = parser.parse_args()
    # Small models: several threads would wait for each other.
    torch.set_num_threads(1)
    ways = [
        way for way in list_ways() if not options.only or any(w in f"{way.mechanism} {way.name}" for w in options.only)
    ]
    rows, findings = try_all(ways)
    section = describe(rows, findings)
    if options.only:
        print(section)
    else:
        write_section(options.output, "recorder", section)
    if findings:
        raise SystemExit(f"{findings} findings: see the table.")


if __name__ == "__main__":
    main()
