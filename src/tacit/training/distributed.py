"""One run in several processes: each sums its part of a lot; the first adds them, draws noise and shares the release.

Process r of k owns the examples whose index modulo k is r, so no example is in two parts and the
sensitivity of the whole sum is that of one machine. Every process draws lots for itself, with a key of its own, and
keeps what it owns: one independent coin for each example, as on one machine. Only the first process ever holds the
whole sum, charges the ledger and draws noise; the others get what was released, and have no way to make a release of
their own. Where anything fails, nobody gets a gradient.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

import torch
from safetensors.torch import load, save
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from tacit.accounting.events import from_json
from tacit.errors import CannotResume, InvalidArgument, OutOfOrder, TacitError
from tacit.gradients.contributions import widen
from tacit.guarantee import Assumption
from tacit.ledger import Reservation
from tacit.randomness import Indices, Purpose, SeededSource, Source, Stream
from tacit.stages.mechanism import MechanismState
from tacit.stages.more_samplings import CyclicPoisson, RandomAllocation
from tacit.stages.sampling import FullBatch, Poisson, Shuffled
from tacit.training.charging import BookingPlace, Debt, fingerprint_examples, resume_booking
from tacit.training.folder import pack
from tacit.training.lots import Examples
from tacit.training.plan import Plan
from tacit.types import BoundedSum, Release

if TYPE_CHECKING:
    from tacit.training.sharded import Twin

Released = tuple[Release, MechanismState]
# Larger than every number that a process says when all is well.
_FAILED = 2**62
# Bytes of an error that others are told.
_LONGEST = 512
# Samplings in which what an example draws does not depend on other examples, or is public: its owner draws it.
_IN_PARTS = (Poisson, RandomAllocation, CyclicPoisson, FullBatch, Shuffled)
# May be entered as often as one likes.
_NOTHING = nullcontext()
_SAME_EXAMPLES = "Each of {size} processes held the same examples in the same order, and summed those that it owns."


@final
@dataclass(frozen=True)
class Peers:
    """The processes that share a run: `rank` of `size`, which speak to each other through tensors on `device`."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"
    # With weights in shards, each process draws the noise of its own.
    twin: Twin | None = None

    @staticmethod
    def of(model: object) -> Peers:
        """The processes that share a run on this model, whose weights may lie in shards on them."""
        peers = Peers.find()
        # What is no model is refused by whoever asks for its parameters.
        if not isinstance(model, nn.Module) or all(type(each).__name__ != "DTensor" for each in model.parameters()):
            return peers
        # Loading the tensors of several devices takes a second, which other runs save.
        from tacit.training.sharded import Twin

        return replace(peers, twin=Twin(model, peers.size))

    @staticmethod
    def find() -> Peers:
        """The processes of torch's default group; this one alone if there is none."""
        if distributed.is_available() and distributed.is_initialized():
            is_nccl = distributed.get_backend() == "nccl"
            device = f"cuda:{torch.cuda.current_device()}" if is_nccl else "cpu"
            return Peers(distributed.get_rank(), distributed.get_world_size(), device)
        started = int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1
        if started > 1:
            raise InvalidArgument(
                f"torchrun has started {started} processes, and they do not know each other: each would release a run "
                "of its own. Call torch.distributed.init_process_group('gloo') first ('nccl' on GPUs)."
            )
        return Peers()

    @property
    def is_first(self) -> bool:
        """Whether this process adds up, charges, draws the noise and saves."""
        return self.rank == 0

    def whole(self, model: nn.Module) -> nn.Module:
        """The model that gradients are taken of: itself, or the twin of one in shards."""
        return model if self.twin is None else self.twin.model

    def gather_weights(self) -> AbstractContextManager[None]:
        """While this lasts, `whole` has its weights."""
        return _NOTHING if self.twin is None else self._gather_weights(self.twin)

    @contextmanager
    def _gather_weights(self, twin: Twin) -> Iterator[None]:
        with ExitStack() as stack:
            with _explain_failure("gather the weights"):
                stack.enter_context(twin.gather_weights())
            yield

    def noise(self, source: Source, step: int) -> Stream:
        """The stream of the step's noise. A seed gives each shard another."""
        if self.twin is None or not isinstance(source, SeededSource):
            return source.stream(Purpose.NOISE, step)
        return SeededSource(_hash_text(f"shard {source.seed} {self.rank}")).stream(Purpose.NOISE, step)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What the guarantee takes for granted about them."""
        return (Assumption("same_examples_everywhere", _SAME_EXAMPLES.format(size=self.size)),) if self.size > 1 else ()

    def join(self, model: nn.Module, plan: Plan, examples: Examples, *, adds_up: bool) -> None:
        """Give every process the first one's weights; refuse what would not be one run on one data set.

        Called by all processes at once. `adds_up` says whether parts of a lot may be summed apart.
        """
        if isinstance(model, DistributedDataParallel):
            raise InvalidArgument(
                "Give the model itself and not its DistributedDataParallel, which would add up gradients without noise "
                "(model.module). Weights stay equal on all processes, as every one gets the same release."
            )
        if self.twin is not None:
            # Loaded already, with the twin.
            from tacit.training.sharded import refuse_unless_sharded

            refuse_unless_sharded(plan.mechanism)
        if self.size == 1:
            return
        if plan.mechanism.guide is not None:
            raise InvalidArgument(
                f"{plan.mechanism.method.name} releases a mean of all the data before each lot, which is done in one "
                "process only. Start it without torchrun."
            )
        if not isinstance(plan.sampling, _IN_PARTS):
            raise InvalidArgument(
                f"{type(plan.sampling).__name__} lots cannot be drawn by several processes. Use Poisson, "
                "RandomAllocation, CyclicPoisson, FullBatch or Shuffled, or start without torchrun."
            )
        if not adds_up:
            raise InvalidArgument(
                f"{plan.mechanism.method.name} sums a lot in buckets of several examples, so it cannot be summed "
                "in parts. Start it without torchrun, or with buckets of one example."
            )
        self._refuse_unless_alike("the settings of the run", json.dumps(pack(plan)))
        self._refuse_unless_alike("the examples or their order", f"{len(examples)} {fingerprint_examples(examples)}")
        self._refuse_unless_alike("the names and shapes of the weights", _write_layout(model.state_dict()))
        for value in model.state_dict().values():
            if type(value).__name__ == "DTensor":
                continue
            shared = value.detach().to(self.device, copy=True)
            with _explain_failure("share the first weights"):
                distributed.broadcast(shared, src=0)
            with torch.no_grad():
                value.copy_(shared)

    def part(self, lot: Indices) -> Indices:
        """Those of the lot that this process owns."""
        return lot if self.size == 1 else lot[lot % self.size == self.rank]

    def by_itself(self, source: Source, step: int) -> AbstractContextManager[None]:
        """What each process does with its part. If one fails, the others, who wait for its part of the sum, fail too.

        With a seed, what torch draws in here (dropout) depends on seed, process and step only.
        """
        return _NOTHING if self.size == 1 else self._by_itself(source, step)

    @contextmanager
    def _by_itself(self, source: Source, step: int) -> Iterator[None]:
        seed = _hash_text(f"{source.seed} {self.rank} {step}") if isinstance(source, SeededSource) else None
        try:
            with _NOTHING if seed is None else torch.random.fork_rng():
                if seed is not None:
                    torch.manual_seed(seed)
                yield
        except Exception as error:
            self._say_failed("the step", error)
            raise

    def seeds(self, source: Source, first: int, what: str = "lot") -> Iterator[int] | None:
        """With a seed, one for the random transforms of each lot from `first` on, in this process."""
        if not isinstance(source, SeededSource):
            return None
        return (_hash_text(f"{what} {source.seed} {self.rank} {step}") for step in count(first))

    def total(self, bounded: BoundedSum, step: int) -> BoundedSum:
        """On the first process, the sum over all parts of the lot. Elsewhere nothing is learnt about other parts."""
        if self.size == 1:
            return bounded
        # Parts without an example, or without use for a parameter, hold zeros of the model's own precision.
        bounded = replace(bounded, values={name: v.to(widen(v.dtype)) for name, v in bounded.values.items()})
        self._refuse_unless_alike("the step", f"{step} {_write_layout(bounded.values)} {bounded.sensitivity!r}")
        if self.twin is not None:
            with _explain_failure(f"add up the lot of step {step}"):
                return self.twin.scatter(bounded)
        values = list(bounded.values.values())
        # In double precision, as over the pieces of a lot.
        flat = _flatten(values).double().to(self.device)
        with _explain_failure(f"add up the lot of step {step}"):
            distributed.reduce(flat, dst=0)
        return replace(bounded, values=_unflatten(flat, bounded.values)) if self.is_first else bounded

    def report_failure(self) -> AbstractContextManager[None]:
        """If the first process fails in this block, report it to the others, which wait for a release."""
        is_waited_for = self.size > 1 and (self.is_first or self.twin is not None)
        return self._report_failure() if is_waited_for else _NOTHING

    @contextmanager
    def _report_failure(self) -> Iterator[None]:
        """With a twin, others are told before anybody drew. If one fails later, they end at their next exchange."""
        if self.twin is not None:
            self.twin.is_drawing = False
        try:
            yield
        except Exception as error:
            if self.twin is None:
                with suppress(TacitError):
                    self._tell({"error": f"{error}"})
            elif not self.twin.is_drawing:
                self._say_failed("the charged step", error)
            raise

    def _say_failed(self, what: str, error: Exception) -> None:
        """Say so to the others, in place of what all compare."""
        with suppress(TacitError):
            self._compare(what, [_FAILED, _FAILED])
            self._hear(f"{type(error).__name__}: {error}")

    def share_release(self, make: Callable[[], Released], bounded: BoundedSum) -> Released:
        """What `make` releases of the sum; only the first process makes it, and all get the same."""
        if self.size == 1:
            return make()
        if self.twin is not None:
            # Nobody draws before the first one has charged the step.
            self.twin.is_drawing = True
            self._refuse_unless_alike("the charged step", "")
            return make()
        if self.is_first:
            release, state = make()
            realised = None if release.realised is None else release.realised.to_json()
            about: dict[str, Any] = {"event": release.event.to_json(), "realised": realised, "posts": len(state.post)}
            states = {f"bound/{name}": value for name, value in state.bound.items()}
            for i, post in enumerate(state.post):
                states |= {f"post/{i}/{name}": value for name, value in post.items()}
            self._tell(about | {"layout": _list_shapes(release.values)}, states)
            self._share(_flatten(list(release.values.values())))
            return release, state
        about, tensors = self._receive()
        here = next(iter(bounded.values.values())).device
        like = {name: torch.empty(shape, dtype=_DTYPES[kind], device=here) for name, shape, kind in about["layout"]}
        values = _unflatten(self._share(_flatten(list(like.values()))), like)
        met = None if about["realised"] is None else from_json(about["realised"])
        tensors = {name: value.to(here) for name, value in tensors.items()}
        posts = tuple(_pick_states(f"post/{i}/", tensors) for i in range(about["posts"]))
        return Release(values, from_json(about["event"]), met), MechanismState(_pick_states("bound/", tensors), posts)

    def first(self, make: Callable[[], Reservation | None]) -> Reservation | None:
        """What the first process makes, and None elsewhere; its refusal is everybody's."""
        if self.size == 1:
            return make()
        if not self.is_first:
            self._receive()
            return None
        with self.report_failure():
            made = make()
        self._tell({})
        return made

    def resume(self, entered: BookingPlace | None, debt: Debt, nothing_left: bool) -> tuple[Reservation | None, Debt]:
        """Resume a run: the first process resumes its booking in the ledger and sends the others the plan."""
        after = debt

        def take_over() -> Reservation | None:
            nonlocal after
            booking, after = resume_booking(entered, debt, nothing_left)
            return booking

        booking = self.first(take_over)
        if self.size == 1:
            return booking, after
        if self.is_first:
            self._tell({"steps": after.plan.steps, "lost": sorted(after.lost.items()), "forgiven": after.forgiven})
            return booking, after
        known, _ = self._receive()
        plan = replace(debt.plan, steps=known["steps"])
        return None, Debt(plan, debt.done, Counter(dict(known["lost"])), known["forgiven"])

    def _refuse_unless_alike(self, what: str, said: str) -> None:
        mine = _hash_text(said)
        most, least = self._compare(what, [mine, -mine])
        if _FAILED in (most, least):
            raise OutOfOrder(
                "Another process of this run has failed on its part of the lot, so there is no whole sum, and nothing "
                f"was released for this step. {self._hear('')}"
            )
        if most != -least:
            raise OutOfOrder(
                f"The processes of this run differ in {what} and so would not make one run. Start all of them with the "
                "same script, data and settings, and let all of them resume from the same save."
            )

    def _compare(self, what: str, numbers: list[int]) -> list[int]:
        """The largest that any process says, for each number."""
        ends = torch.tensor(numbers, dtype=torch.int64, device=self.device)
        with _explain_failure(f"compare {what}"):
            distributed.all_reduce(ends, op=distributed.ReduceOp.MAX)
        return cast("list[int]", ends.tolist())

    def _hear(self, error: str) -> str:
        """What processes that failed say; all call it, those without an error too."""
        mine = torch.zeros(_LONGEST, dtype=torch.uint8)
        content = error.encode()[:_LONGEST]
        mine[: len(content)] = torch.frombuffer(bytearray(content or b" "), dtype=torch.uint8)[: len(content)]
        said = [torch.empty(_LONGEST, dtype=torch.uint8, device=self.device) for _ in range(self.size)]
        with _explain_failure("say what went wrong"):
            distributed.all_gather(said, mine.to(self.device))
        texts = [bytes(each.cpu().numpy()).rstrip(bytes(1)).decode(errors="replace") for each in said]
        return " ".join(f"Process {rank} says: {text}." for rank, text in enumerate(texts) if text)

    def save_shards(self, folder: Path, parts: dict[str, Any]) -> str | None:
        """Write the shards of every process; the name of this save. None if weights are whole."""
        if self.twin is None:
            return None
        name = secrets.token_hex(8)
        if self.size > 1:
            if self.is_first:
                self._tell({"name": name})
            else:
                name = self._receive()[0]["name"]
        said = name
        try:
            self.twin.save(folder, f"{name}-{self.rank}", parts)
        except TacitError as error:
            said = f"{error}"
            raise
        finally:
            if self.size > 1:
                self._refuse_unless_alike("what could be saved", said)
        return name

    def load_shards(self, folder: Path, tree: dict[str, Any], optimizer: Any) -> dict[str, Any]:
        """The saved tree with this process's shards of the model and of the optimizer's state."""
        name = tree.get("shards")
        if (name is None) != (self.twin is None):
            raise CannotResume(
                f"{folder} was saved {'with whole weights' if name is None else 'in shards'}, and the model's weights "
                f"are {'in shards' if name is None else 'whole'}. Use fully_shard as in the run that was saved."
            )
        if self.twin is None or name is None:
            return tree
        if tree["processes"] != self.size:
            raise CannotResume(
                f"{folder} was saved by {tree['processes']} processes, and these are {self.size}. Start as many."
            )
        found = self.twin.load(folder, f"{name}-{self.rank}")
        return {**tree, **found, "optimizer": self.twin.shard_states(optimizer, found["optimizer"])}

    def _tell(self, about: dict[str, Any], tensors: dict[str, Tensor] | None = None) -> None:
        plain = {name: value.detach().cpu().clone().contiguous() for name, value in (tensors or {}).items()}
        text = torch.frombuffer(bytearray(save(plain, metadata={"about": json.dumps(about)})), dtype=torch.uint8)
        self._share(torch.tensor([len(text)]))
        self._share(text)

    def _receive(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        length = int(self._share(torch.zeros(1, dtype=torch.int64)))
        content = bytes(self._share(torch.zeros(length, dtype=torch.uint8)).cpu().numpy())
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        about: dict[str, Any] = json.loads(header["__metadata__"]["about"])
        if "error" in about:
            raise OutOfOrder(f"The first process, which draws the noise for all, has stopped: {about['error']}")
        return about, load(content)

    def _share(self, tensor: Tensor) -> Tensor:
        shared = tensor.to(self.device)
        with _explain_failure("hear from the first"):
            distributed.broadcast(shared, src=0)
        return shared


@contextmanager
def _explain_failure(what: str) -> Iterator[None]:
    """What all processes do at once: an error, in words, if one of them is gone."""
    try:
        yield
    except RuntimeError as error:
        raise TacitError(
            f"The processes of this run could not {what}, so one of them may be gone: {' '.join(str(error).split())}. "
            "Nothing was handed out for this step. Start all of them again and resume from the last save."
        ) from error


def _hash_text(text: str) -> int:
    """56 bits that say whether two texts are the same."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


_DTYPES = {str(kind): kind for kind in (torch.float32, torch.float64, torch.float16, torch.bfloat16)}


def _list_shapes(values: Any) -> list[tuple[str, list[int], str]]:
    return [(name, list(value.shape), str(value.dtype)) for name, value in values.items()]


def _write_layout(values: Any) -> str:
    return json.dumps(_list_shapes(values))


def _flatten(values: list[Tensor]) -> Tensor:
    """All numbers in one row, in the widest of their types."""
    wide = torch.float64 if any(value.dtype == torch.float64 for value in values) else torch.float32
    return torch.cat([value.detach().reshape(-1).to(wide) for value in values])


def _unflatten(flat: Tensor, like: Any) -> dict[str, Tensor]:
    sizes = [value.numel() for value in like.values()]
    pieces = zip(like.items(), flat.split_with_sizes(sizes), strict=True)
    return {name: piece.view(value.shape).to(value.device, value.dtype) for (name, value), piece in pieces}


def _pick_states(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
