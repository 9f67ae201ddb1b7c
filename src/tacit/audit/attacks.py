"""The two attacks on a training function of which nothing is known.

`Canaries` puts many odd examples into the data, each by the toss of a coin, trains once and guesses the coins.
`ManyRuns` trains again and again on two data sets that differ in one example, and tells them apart. The first
is cheap; the second sees all that is released, and finds what the first is blind to.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._files import write_atomic
from tacit.accounting.curve import PrivacyCurve
from tacit.accounting.events import Adjacency
from tacit.audit.canaries import InputCanaries
from tacit.audit.evidence import Finding
from tacit.audit.guessing import one_run
from tacit.audit.released import minus_loss, released_numbers
from tacit.audit.runs import each, load, runs_in
from tacit.audit.statistics import Discriminant, distinguish, error_points
from tacit.errors import InvalidArgument

Data = tuple[NDArray[Any], NDArray[Any]]
Train = Callable[[Any], Any]


class Attack(Protocol):
    """Whatever can be done with a training function and data."""

    def attack(
        self, train: Train, data: Data, *, delta: float, confidence: float, proven: PrivacyCurve | None
    ) -> Finding: ...


@dataclass(frozen=True)
class Canaries:
    """One run, with `count` examples that have other examples' targets, each in the data by the toss of a coin.

    `score(released, inputs, targets)` gives one number per canary, larger where it seems to have been trained on; by
    default minus the loss of the model that `train` returns. `share` of the canaries are guessed.
    """

    count: int = 1000
    share: float = 0.1
    score: Callable[[Any, Any, Any], Any] | None = None
    seed: int | None = None

    def attack(
        self, train: Train, data: Data, *, delta: float, confidence: float, proven: PrivacyCurve | None
    ) -> Finding:
        """Train once; guess the coins."""
        rng = np.random.default_rng(self.seed)
        canaries = InputCanaries.draw(*data, count=_validate.count("count", self.count, at_least=2), rng=rng)
        released = train(canaries.join(*data))
        numbers = (self.score or minus_loss)(released, canaries.inputs, canaries.targets)
        found = np.nan_to_num(np.asarray(numbers, dtype=np.float64).ravel())
        settings: dict[str, Any] = {"delta": delta, "confidence": confidence, "share": self.share, "proven": proven}
        result = one_run(found, canaries.included, **settings)
        guesses = result.guesses
        return Finding(
            f"one run, {self.count:,} input canaries",
            result.bound,
            result.gaussian,
            result.contradicts,
            error_points(found[canaries.included], found[~canaries.included]),
            (f"{guesses.right} of {guesses.made} guesses were right, {guesses.canaries - guesses.made} withheld.",),
        )


@dataclass(frozen=True)
class ManyRuns:
    """`runs` runs on the data, and as many with one `example` more: a quarter fits, a quarter chooses, half judge.

    `example` is (input, target); by default the longest input of the data with a target that is not its own.
    `features(released)` gives a vector: by default all weights, buffers or numbers released, and the log of their root
    mean square, which shows a scale that should not have changed. Return all that the training shows, every step's
    release if need be: only what is returned can be attacked. Under `Adjacency.REPLACE_ONE` the example replaces the
    first.
    """

    runs: int = 200
    example: tuple[Any, Any] | None = None
    features: Callable[[Any], Any] | None = None
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    workers: int = 1
    folder: str | os.PathLike[str] | None = None
    seed: int | None = None

    def attack(
        self, train: Train, data: Data, *, delta: float, confidence: float, proven: PrivacyCurve | None
    ) -> Finding:
        """Train until there are enough runs; tell the two data sets apart."""
        count = _validate.count("runs", self.runs, at_least=16)
        worlds = self._worlds(data)
        vector = self.features or released_numbers
        with runs_in(self.folder, self.workers, self.seed) as runs:
            _keep_settings(runs.folder, {"runs": count, "seed": self.seed}, worlds)
            fitting = runs.results("fit", Alternating(train, worlds, vector), 2 * (count // 4))
            score = Discriminant.fit(each(fitting[::2]), each(fitting[1::2]))
            judged = count - count // 4
            scored = load(runs.results("judge", Alternating(train, worlds, Scored(vector, score)), 2 * judged))
        members, others = scored[::2], scored[1::2]
        result = distinguish(members, others, delta=delta, confidence=confidence, proven=proven)
        return Finding(
            f"{count:,} runs on each of two neighbours",
            result.bound,
            result.gaussian,
            None if proven is None else result.contradicts,
            error_points(members[:, result.column], others[:, result.column]),
            _many_notes((members, others), judged - judged // 3, confidence),
        )

    def _worlds(self, data: Data) -> tuple[Data, Data]:
        """With the example, and without it."""
        one = _odd_one(data) if self.example is None else self.example
        more = tuple(
            np.concatenate([np.asarray(value, dtype=whole.dtype)[None], whole])
            for value, whole in zip(one, data, strict=True)
        )
        if self.adjacency is Adjacency.REPLACE_ONE:
            return (np.delete(more[0], 1, axis=0), np.delete(more[1], 1, axis=0)), data
        return (more[0], more[1]), data


@dataclass(frozen=True, eq=False)
class Alternating:
    """Runs in turn on two data sets; `keep` says what is kept of each. Importable, so that processes can run it."""

    train: Train
    worlds: tuple[Data, Data]
    keep: Callable[[Any], Any]

    def __call__(self, index: int) -> Any:
        return self.keep(self.train(self.worlds[index % 2]))


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of what was released, in place of all of it."""

    vector: Callable[[Any], Any]
    score: Discriminant

    def __call__(self, released: Any) -> NDArray[np.float64]:
        return self.score(np.asarray(self.vector(released), dtype=np.float64))


def _print_of(data: Data, secret: str) -> str:
    """A fingerprint of a data set, keyed with a secret: without it, nobody can check a guess of the data."""
    found = hmac.new(bytes.fromhex(secret), digestmod="sha256")
    for part in data:
        found.update(f"{part.shape} {part.dtype}".encode())
        found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def _keep_settings(folder: Path, settings: Mapping[str, Any], worlds: tuple[Data, Data]) -> None:
    """Runs of another audit must not be taken for this one's. The file is for its owner alone."""
    path = folder / "audit.json"
    folder.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    secret = secrets.token_hex(32) if known is None else str(known.get("secret", ""))
    told = {**settings, "secret": secret, "worlds": [_print_of(one, secret) for one in worlds]}
    if known is None:
        write_atomic(path, json.dumps(told).encode(), is_private=True)
    elif known != told:
        raise InvalidArgument(f"{folder} holds the runs of another audit. Choose another folder, or empty this one.")


def _many_notes(scores: tuple[NDArray[np.float64], ...], judged: int, confidence: float) -> tuple[str, ...]:
    most = math.log(judged / -math.log((1 - confidence) / 2))
    notes = [f"With {judged:,} judged runs a side, no epsilon above {most:.2f} can be shown without assuming a shape."]
    if any(not np.ptp(side, axis=0).any() for side in scores):
        notes.append(
            "All runs on one of the data sets gave the same result: there is no noise, or its seed is fixed, which is "
            "as bad for whoever releases it."
        )
    return tuple(notes)


def _odd_one(data: Data) -> tuple[Any, Any]:
    """The longest input, with a target that is not its own."""
    inputs, targets = data
    longest = int(np.argmax(np.linalg.norm(inputs.reshape(len(inputs), -1).astype(np.float64), axis=1)))
    others = [row for row in range(len(targets)) if not np.array_equal(targets[row], targets[longest])]
    return inputs[longest], targets[others[0] if others else longest]
