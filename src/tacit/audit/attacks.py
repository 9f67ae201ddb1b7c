"""`audit`: attack any training function, and compare the result with a claim and with what is proven.

Two attacks need to know nothing about the function. `Canaries` adds many unusual examples to the data, each by a coin
toss, trains once and guesses the coins. `ManyRuns` trains many times on two data sets that differ in one example, and
tells them apart. The first is cheap; the second sees all releases, and finds leaks that the first cannot.
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
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tacit import _validate
from tacit._files import write_atomic
from tacit.accounting.curve import PrivacyCurve
from tacit.accounting.events import Adjacency
from tacit.audit.canaries import InputCanaries
from tacit.audit.evidence import AuditReport, Finding, Verdict, find_curve
from tacit.audit.guessing import one_run
from tacit.audit.runs import iterate_results, load_results, open_runs
from tacit.audit.statistics import Discriminant, distinguish, list_error_points
from tacit.errors import InvalidArgument
from tacit.guarantee import AUDIT, Claim, Guarantee

Data = tuple[NDArray[Any], NDArray[Any]]
Train = Callable[[Any], Any]


class Attack(Protocol):
    """An attack on a training function and its data."""

    def attack(
        self, train: Train, data: Data, *, delta: float, confidence: float, proven: PrivacyCurve | None
    ) -> Finding: ...


@dataclass(frozen=True)
class Canaries:
    """One run with `count` examples that have other examples' targets, each included by a coin toss.

    `score(released, inputs, targets)` gives one number per canary, larger if it seems to be included; by default minus
    the loss of the model that `train` returns. `share` of the canaries are guessed.
    """

    count: int = 1000
    share: float = 0.1
    score: Callable[[Any, Any, Any], Any] | None = None
    seed: int | None = None

    def attack(
        self, train: Train, data: Data, *, delta: float, confidence: float, proven: PrivacyCurve | None
    ) -> Finding:
        """Train once and guess the coins."""
        rng = np.random.default_rng(self.seed)
        canaries = InputCanaries.draw(*data, count=_validate.count("count", self.count, at_least=2), rng=rng)
        released = train(canaries.join(*data))
        numbers = (self.score or negate_loss)(released, canaries.inputs, canaries.targets)
        found = np.nan_to_num(np.asarray(numbers, dtype=np.float64).ravel())
        settings: dict[str, Any] = {"delta": delta, "confidence": confidence, "share": self.share, "proven": proven}
        result = one_run(found, canaries.included, **settings)
        guesses = result.guesses
        return Finding(
            f"one run, {self.count:,} input canaries",
            result.bound,
            result.gaussian,
            result.contradicts,
            list_error_points(found[canaries.included], found[~canaries.included]),
            (f"{guesses.right} of {guesses.made} guesses were right, {guesses.canaries - guesses.made} withheld.",),
        )


@dataclass(frozen=True)
class ManyRuns:
    """`runs` runs on the data, and as many with one more `example`: a quarter fits, a quarter chooses, half judge.

    `example` is (input, target); by default the longest input of the data with a target that is not its own.
    `features(released)` gives a vector: by default all released weights, buffers or numbers, and the log of their root
    mean square, which shows a change of scale. `train` must return everything that is released, every step if need be:
    the attack sees nothing else. Under `Adjacency.REPLACE_ONE` the example replaces the first.
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
        """Train on both data sets, and tell them apart."""
        count = _validate.count("runs", self.runs, at_least=16)
        worlds = self._make_worlds(data)
        vector = self.features or list_numbers
        with open_runs(self.folder, self.workers, self.seed) as runs:
            _keep_settings(runs.folder, {"runs": count, "seed": self.seed}, worlds)
            fitting = runs.results("fit", Alternating(train, worlds, vector), 2 * (count // 4))
            score = Discriminant.fit(iterate_results(fitting[::2]), iterate_results(fitting[1::2]))
            judged = count - count // 4
            scored = load_results(runs.results("judge", Alternating(train, worlds, Scored(vector, score)), 2 * judged))
        members, others = scored[::2], scored[1::2]
        result = distinguish(members, others, delta=delta, confidence=confidence, proven=proven)
        tested = judged - judged // 3
        most = math.log(tested / -math.log((1 - confidence) / 2))
        notes = [f"{tested:,} judged runs per data set can show no epsilon above {most:.2f} without assuming a shape."]
        if any(not np.ptp(side, axis=0).any() for side in (members, others)):
            notes.append(
                "All runs on one of the data sets gave the same result: there is no noise, or its seed is fixed. "
                "Neither protects a release."
            )
        return Finding(
            f"{count:,} runs on each of two neighbours",
            result.bound,
            result.gaussian,
            None if proven is None else result.contradicts,
            list_error_points(members[:, result.column], others[:, result.column]),
            tuple(notes),
        )

    def _make_worlds(self, data: Data) -> tuple[Data, Data]:
        """With the example, and without it."""
        one = _pick_unusual_example(data) if self.example is None else self.example
        more = tuple(
            np.concatenate([np.asarray(value, dtype=whole.dtype)[None], whole])
            for value, whole in zip(one, data, strict=True)
        )
        if self.adjacency is Adjacency.REPLACE_ONE:
            return (np.delete(more[0], 1, axis=0), np.delete(more[1], 1, axis=0)), data
        return (more[0], more[1]), data


@dataclass(frozen=True, eq=False)
class Alternating:
    """Runs on two data sets in turn; `keep` selects the result to keep. Importable, so that processes can run it."""

    train: Train
    worlds: tuple[Data, Data]
    keep: Callable[[Any], Any]

    def __call__(self, index: int) -> Any:
        return self.keep(self.train(self.worlds[index % 2]))


@dataclass(frozen=True, eq=False)
class Scored:
    """Keeps the scores of a release instead of the release."""

    vector: Callable[[Any], Any]
    score: Discriminant

    def __call__(self, released: Any) -> NDArray[np.float64]:
        return self.score(np.asarray(self.vector(released), dtype=np.float64))


def _fingerprint(data: Data, secret: str) -> str:
    """A fingerprint of a data set, keyed with a secret: without the secret, nobody can check a guess of the data."""
    found = hmac.new(bytes.fromhex(secret), digestmod="sha256")
    for part in data:
        found.update(f"{part.shape} {part.dtype}".encode())
        found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def _keep_settings(folder: Path, settings: Mapping[str, Any], worlds: tuple[Data, Data]) -> None:
    """Refuse a folder with the runs of another audit. Only the owner can read the file."""
    path = folder / "audit.json"
    folder.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    secret = secrets.token_hex(32) if known is None else str(known.get("secret", ""))
    about = {**settings, "secret": secret, "worlds": [_fingerprint(one, secret) for one in worlds]}
    if known is None:
        write_atomic(path, json.dumps(about).encode(), is_private=True)
    elif known != about:
        raise InvalidArgument(f"{folder} holds the runs of another audit. Choose another folder, or empty this one.")


def _pick_unusual_example(data: Data) -> tuple[Any, Any]:
    """The longest input with another example's target."""
    inputs, targets = data
    longest = int(np.argmax(np.linalg.norm(inputs.reshape(len(inputs), -1).astype(np.float64), axis=1)))
    others = [row for row in range(len(targets)) if not np.array_equal(targets[row], targets[longest])]
    return inputs[longest], targets[others[0] if others else longest]


_HUGE = 1e30


def list_numbers(released: Any) -> NDArray[np.float64]:
    """All released numbers as one vector, followed by the log of their root mean square.

    Numbers that are not finite become huge: a training that diverged is visible to an attacker, too.
    """
    flat = np.concatenate([np.zeros(0), *(np.ravel(part) for part in _list_arrays(released))]).astype(np.float64)
    if flat.size == 0:
        raise InvalidArgument(f"train returned {type(released).__name__}, which holds no numbers. Give features=.")
    flat = np.nan_to_num(flat, nan=_HUGE, posinf=_HUGE, neginf=-_HUGE)
    return np.append(flat, 0.5 * math.log(float(np.mean(flat**2)) + 1e-300))


def _list_arrays(released: Any) -> list[NDArray[Any]]:
    if isinstance(released, nn.Module):
        # Buffers too: running statistics are released like weights, and have no noise.
        return _list_arrays(released.state_dict())
    if isinstance(released, Tensor):
        # Numpy has no bfloat16.
        values = released.detach().cpu()
        return [(values.double() if values.is_floating_point() else values).numpy()]
    if isinstance(released, Mapping):
        return [part for value in released.values() for part in _list_arrays(value)]
    if isinstance(released, (list, tuple)):
        return [part for value in released for part in _list_arrays(value)]
    if isinstance(released, (np.ndarray, float, int, np.generic)):
        return [np.asarray(released)]
    fitted = [getattr(released, name) for name in ("coef_", "intercept_") if hasattr(released, name)]
    return [np.asarray(one) for one in fitted]


def negate_loss(released: Any, inputs: Any, targets: Any) -> NDArray[np.float64]:
    """Minus the loss of a torch module or of a scikit-learn estimator on each example."""
    if isinstance(released, nn.Module):
        return _minus_module_loss(released, inputs, targets)
    if hasattr(released, "predict_proba"):
        places = np.searchsorted(released.classes_, targets).clip(max=len(released.classes_) - 1)
        share = released.predict_proba(inputs)[np.arange(len(targets)), places]
        # A class without training examples has probability 0.
        known = np.asarray(released.classes_)[places] == np.asarray(targets)
        return np.asarray(np.log(np.maximum(np.where(known, share, 0.0), 1e-300)))
    if hasattr(released, "predict"):
        missed: NDArray[np.float64] = np.asarray(released.predict(inputs), dtype=np.float64) - targets
        return -np.square(missed)
    raise InvalidArgument(
        f"Canaries cannot be scored by {type(released).__name__}. Give score=, a function of what train returned, "
        "inputs and targets."
    )


def _minus_module_loss(model: nn.Module, inputs: Any, targets: Any) -> NDArray[np.float64]:
    first = next(model.parameters())
    rows = torch.as_tensor(inputs)
    rows = (rows.to(first.dtype) if rows.is_floating_point() else rows).to(first.device)
    wanted = torch.as_tensor(targets).to(first.device)
    model.eval()
    with torch.no_grad():
        outputs = model(rows)
        if outputs.dim() == 2 and outputs.shape[1] > 1 and not wanted.is_floating_point():
            losses = F.cross_entropy(outputs, wanted, reduction="none")
        else:
            losses = (outputs.reshape(len(rows), -1) - wanted.reshape(len(rows), -1)).square().mean(1)
    found: NDArray[np.float64] = -losses.double().cpu().numpy()
    return found


def audit(
    train: Train,
    data: Any,
    *,
    delta: float,
    attack: Attack | None = None,
    claim: float | Claim | None = None,
    proven: Guarantee | PrivacyCurve | None = None,
    confidence: float = 0.99,
) -> AuditReport:
    """Attack a training function: `train(data)` returns everything that is released. It need not use tacit.

    `data` is a pair (inputs, targets) of arrays or tensors; `train` gets a pair of arrays. `claim` is a claimed epsilon
    at `delta`, or a `Claim` with its source; `proven` is a guarantee or curve to compare with the attack. The default
    attack is `Canaries()`. The result was measured on private data, and is not for release.

    >>> from tacit.audit import ManyRuns
    >>> def train(data):
    ...     inputs, targets = data
    ...     return inputs.T @ targets + np.random.normal(size=2)
    >>> rng = np.random.default_rng(0)
    >>> data = (rng.normal(size=(20, 2)), np.ones(20))
    >>> report = audit(train, data, delta=1e-5, claim=0.1, attack=ManyRuns(400, example=([5.0, 0.0], 1.0), seed=0))
    >>> str(report.verdict), report.finding.bound.epsilon > 2
    ('claim broken', True)
    """
    if not isinstance(data, (tuple, list)) or len(data) != 2 or len(data[0]) != len(data[1]):
        raise InvalidArgument(
            "data must be a pair (inputs, targets) of arrays or tensors with the same number of rows."
        )
    inputs, targets = (np.asarray(part.detach().cpu() if isinstance(part, Tensor) else part) for part in data)
    delta, confidence = _validate.open_unit("delta", delta), _validate.open_unit("confidence", confidence)
    claimed, source = (claim.epsilon, claim.source) if isinstance(claim, Claim) else (claim, "")
    claimed = None if claimed is None else _validate.non_negative("claim", claimed)
    curve = find_curve(proven.event) if isinstance(proven, Guarantee) else proven
    found = (attack or Canaries()).attack(train, (inputs, targets), delta=delta, confidence=confidence, proven=curve)
    return AuditReport(found, claimed, math.inf if curve is None else curve.epsilon(delta), curve, source)


def record_audit(guarantee: Guarantee, report: AuditReport) -> Guarantee:
    """The guarantee with the verdict as a note, or as an error if it contradicts the proof.

    A measured bound is sometimes wrong, so it does not withdraw a proven number. It replaces the verdict of an earlier
    audit.
    """
    said = f"Audited ({report.finding.attack}): {report.finding.bound}; {report.verdict}."
    if report.verdict is not Verdict.CONFLICT:
        return guarantee.with_finding(AUDIT, said)
    # Two tests, of the bound and of the proven curve, each with this error probability.
    luck = f"{200 * (1 - report.finding.bound.confidence):.2g} %"
    doubt = f"Either the program does not do what is proven, or this is chance (at most {luck}). Audit again."
    return guarantee.with_finding(AUDIT, f"{said} {doubt}", is_error=True)
