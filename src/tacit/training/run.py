"""PrivateRun: hands out lots, puts noisy gradients into p.grad, and states the guarantee of what was released."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tacit import _validate
from tacit._other_names import refuse_other_names
from tacit.accounting.events import Event
from tacit.budget import Budget
from tacit.errors import Caution, InvalidArgument, OutOfOrder
from tacit.gradients import BackendUsed, in_pieces, per_example_gradients, trainable
from tacit.gradients.checks import (
    Layout,
    find_layout,
    list_attributes_set_once,
    list_public_writes,
    make_examples_like,
    update_public_buffers,
)
from tacit.gradients.losses import Loss
from tacit.gradients.models import restore_buffers
from tacit.gradients.trace import Unclear
from tacit.gradients.units import average_rows
from tacit.guarantee import FIXED_SEED, Assumption, Guarantee
from tacit.ledger import Ledger
from tacit.randomness import DRAWING, CurrentStep, Indices, Purpose, SeededSource, refuse_forked, source_for
from tacit.stages.mechanism import Mechanism, MechanismState, with_lot_size
from tacit.stages.noise.on_device import NOISE_ON_DEVICE
from tacit.training.charging import Debt, find_booking, refuse_unless_reserved, reserve_run
from tacit.training.distributed import Peers
from tacit.training.folder import (
    RUN,
    Journal,
    RunFolder,
    Stateful,
    forget_shards,
    load_model,
    load_part,
    lost_steps,
    notes_in,
    read_checkpoint,
    write_checkpoint,
)
from tacit.training.lots import (
    LOADER_REPLACED,
    Lot,
    NoGradients,
    TensorExamples,
    examples_from,
    mean_gradient,
    on_device,
    refuse_lot,
    row_count,
    use_model_loss,
)
from tacit.training.people import people_of
from tacit.training.plan import Plan, ReleasedSteps, Schedule, make_guarantee
from tacit.training.weights import LOTS_STAY_INSIDE, Weights
from tacit.types import BoundedSum, PerExampleGradients, Sampling, Tensors, needs_wide_sums, sum_pieces

_NOTHING = nullcontext()
# Above so many numbers a gradient that was used is not kept in memory beside the next one.
_MANY = 1_000_000

GradientsOf = Callable[[nn.Module, Loss, Any, Any], PerExampleGradients]

GRADIENTS_GIVEN = Assumption(
    "gradients_given",
    "The given gradient function is correct: each row is the gradient of one example and depends on no other example.",
)


@refuse_other_names
class PrivateRun:
    """A training run that releases only noisy sums of bounded gradients and counts their privacy cost.

    All privacy parameters are fixed here. `data` is a pair of tensors or arrays, a map-style data set of
    (input, target) pairs, which `workers` processes may fetch, or a `DataLoader` of one, whose sampler and batch size
    are replaced by the lots of `sampling`. Columns by name (a dictionary, a `datasets.Dataset`, a data collator) are
    inputs, except `labels`. `loss="model"` is the own loss of a model of Hugging Face, for each example alone: the mean
    over its tokens. Without a `seed` the noise is cryptographic; with one,
    noise, lots and random transforms can be reproduced, and the guarantee says that the model is not for release.
    `micro_batch` bounds how many examples go through the model at once. `schedule` varies noise and lot size over the
    steps. `gradients` computes the gradients of a lot, one row per example; audits use it to insert canaries.
    A `ledger` is charged before the first lot is released, under the name `dataset`.

    With `unit`, an id for each row of `data`, people are protected and not rows: the lots of `sampling` are lots of
    people, and its population counts people. In each step at most `rows_per_unit` rows of a person are drawn, and their
    gradients are averaged, then bounded once. So the guarantee is about one person with all their rows.

    >>> model = torch.nn.Linear(3, 2)
    >>> data = (torch.randn(100, 3), torch.randint(2, (100,)))
    >>> from tacit.methods import dpsgd
    >>> from tacit.stages.sampling import Poisson
    >>> run = PrivateRun(model, torch.nn.functional.cross_entropy, data=data, mechanism=dpsgd(clip_norm=1.0),
    ...                  sampling=Poisson(lot_size=10, population=100), steps=5, budget=Budget(epsilon=3, delta=1e-3))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> for lot in run:
    ...     run.backward(lot)
    ...     optimizer.step()
    >>> 2.99 < run.guarantee().epsilon(delta=1e-3) <= 3
    True
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | Literal["model"],
        *,
        data: Any,
        mechanism: Mechanism,
        sampling: Sampling,
        steps: int,
        budget: Budget | None = None,
        schedule: Schedule | None = None,
        micro_batch: int | None = None,
        workers: int = 0,
        seed: int | None = None,
        gradients: GradientsOf = per_example_gradients,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        unit: Any = None,
        rows_per_unit: int | None = None,
    ) -> None:
        _validate.kind("mechanism", mechanism, Mechanism, "methods.dpsgd(clip_norm=1.0)")
        _validate.kind("sampling", sampling, Sampling, "Poisson(lot_size=256, population=60_000)")
        if not callable(loss) and loss != "model":
            raise InvalidArgument(
                "loss must be a function of (outputs, targets), a loss module, or 'model' for the model's own loss. "
                f"Got {loss!r}."
            )
        if budget is not None:
            _validate.kind("budget", budget, Budget, "Budget(epsilon=3, delta=1e-5)")
        if schedule is not None:
            _validate.kind("schedule", schedule, Schedule, "Schedule(multiplier=[1.0, 0.9, 0.8])")
        peers = Peers.of(model)
        like = {name: value.detach() for name, value in trainable(peers.whole(model)).items()}
        state = mechanism.init(like, sampling.lot_size)
        dimension = mechanism.sum(NoGradients(like), state).dimension
        steps = _validate.count("steps", steps)
        fixed = (schedule or Schedule()).over(steps)
        plan = Plan(mechanism, sampling, steps, dimension, budget, fixed, rows_per_unit=rows_per_unit).calibrate()
        settings: dict[str, Any] = {"micro_batch": micro_batch, "workers": workers, "seed": seed, "unit": unit}
        self._begin(model, loss, data, plan, state, peers, gradients=gradients, **settings)
        is_charged = ledger is not None or dataset is not None
        self.booking = self._peers.first(
            lambda: reserve_run(ledger, dataset, self._examples, plan, seed) if is_charged else None
        )

    def _begin(
        self,
        model: nn.Module,
        loss: Loss | Literal["model"],
        data: Any,
        plan: Plan,
        state: MechanismState,
        peers: Peers,
        *,
        micro_batch: int | None,
        workers: int,
        seed: int | None,
        gradients: GradientsOf,
        unit: Any,
    ) -> None:
        self._parameters, whole = trainable(model), peers.whole(model)
        like = self._parameters if whole is model else trainable(whole)
        self.model, self._plan, self._state, self._peers, self._whole = model, plan, state, peers, whole
        self._gradients = gradients
        first = next(iter(like.values()))
        self._from_loader = (LOADER_REPLACED,) if isinstance(data, DataLoader) else ()
        self._examples = examples_from(data, workers=_validate.count("workers", workers, at_least=0), dtype=first.dtype)
        if isinstance(loss, str):
            with peers.gather_weights():
                self._examples, loss = use_model_loss(whole, self._examples)
        self.loss: Loss = loss
        if unit is not None or plan.rows_per_unit is not None:
            self._examples = people_of(self._examples, unit, plan, micro_batch)
        box = plan.mechanism.sum(NoGradients(like), state).box
        self._adds_up = box is None or box.adds_up
        self._micro_batch = None if micro_batch is None else _validate.count("micro_batch", micro_batch)
        self._source = source_for(seed)
        self._peers.join(model, plan, self._examples, adds_up=self._adds_up)
        self._events, self._realised = list[Event](), list[Event]()
        self._lost, self._forgiven = Counter[int](), 0
        self._pending: Lot | None = None
        self._charging = Lock()
        self._journal: Journal | None = None
        self.booking = None
        self._process, self._weights = os.getpid(), Weights(model, self._parameters)
        # Which buffers a pass writes to, and made examples of the shape that the model takes.
        self._writes: frozenset[str] | None = None
        self._layout: tuple[Any, int | None, Layout | None] = (None, None, None)
        self._made: Any = None
        self._backend: BackendUsed | None = None
        self._is_wide = needs_wide_sums(plan.sampling.lot_size, plan.mechanism.noise.multiplier)

    @property
    def steps(self) -> int:
        """The number of planned steps. A resumed run has fewer if it must pay for lost steps."""
        return self._plan.steps

    @property
    def step(self) -> int:
        """The number of steps released so far."""
        return len(self._events)

    @property
    def lost(self) -> Counter[int]:
        """How often each step was drawn in vain: begun by a process that ended before it could save the step."""
        return Counter(self._lost)

    @property
    def plan(self) -> Plan:
        """All privacy parameters, fixed before the first lot."""
        return self._plan

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism, with its multiplier."""
        return self._plan.mechanism

    @property
    def sampling(self) -> Sampling:
        """How lots are drawn."""
        return self._plan.sampling

    @property
    def backend(self) -> BackendUsed | None:
        """How the last lot's gradients were computed, and why; None before the first lot with examples."""
        return self._backend

    @property
    def multiplier(self) -> float:
        """The noise multiplier, as given or computed from the budget."""
        multiplier = self.mechanism.noise.multiplier
        assert multiplier is not None
        return multiplier

    def __len__(self) -> int:
        """The number of remaining steps."""
        return self.steps - self.step

    def __iter__(self) -> Iterator[Lot]:
        """Iterate over the lots of the remaining steps. Give each to `backward` before taking the next."""
        refuse_forked(self._process)
        following = self.step + (self._pending is not None)
        drawn = self._examples.fetch(self._draw(following), self._peers.seeds(self._source, following))
        while self.step < self.steps:
            if self._pending is None:
                if self.step != following:
                    raise OutOfOrder(
                        "Another loop over this run has taken lots in the meantime. Start this loop again."
                    )
                following += 1
                inputs, targets, *counts = next(drawn)
                self._weights.hand_out()
                size = row_count(counts[0] if counts else targets)
                self._pending = Lot(inputs, targets, self.step, size, *counts)
            yield self._pending
            if self._pending is not None:
                raise OutOfOrder(
                    f"The lot of step {self._pending.step} was not given to run.backward. Lots that are skipped "
                    "because of their content are not Poisson samples. Give every lot to run.backward, also empty ones."
                )

    def _draw(self, first: int) -> Iterator[Indices]:
        for step in range(first, self.steps):
            stream = self._source.stream(Purpose.LOT, step)
            yield self._peers.part(self._plan.sampling_at(step).lot(len(self._examples), stream, step))

    def backward(self, lot: Lot) -> None:
        """Put the noisy sum of the lot's bounded gradients, divided by the public lot size, into p.grad.

        Replaces p.grad. Parameters that the lot did not use get noise too; frozen ones are left alone. Each lot can be
        used once. Call optimizer.step() before the next lot: discarding a gradient that was paid for is an error.
        """
        if lot is self._pending:
            self._weights.refuse_unless_stepped()
            if self._plan.dimension > _MANY:
                for parameter in self._parameters.values():
                    parameter.grad = None
        released = self.release(lot)
        if self._peers.twin is not None:
            released = self._peers.twin.place(released)
        written = _write_gradients(self._parameters, released)
        self._weights.grant(written, is_last=len(self._events) == self._plan.steps)

    def release(self, lot: Lot) -> dict[str, Tensor]:
        """Return the noisy sum of the lot's bounded gradients, divided by the public lot size; leave p.grad alone.

        For optimizers that are not torch's. Each lot can be used once. With fully_shard, the shards of this process.
        """
        refuse_forked(self._process)
        if lot is not self._pending:
            refuse_lot(lot, self.step, self.steps)
        self._weights.refuse_changed()
        sampling = self._plan.sampling_at(lot.step)
        lot_size = sampling.lot_size
        mechanism, state = self._plan.mechanism_at(lot.step), with_lot_size(self._state, lot_size)
        parameters = {name: value for name, value in self._parameters.items() if value.requires_grad}
        if not parameters:
            raise InvalidArgument("All parameters were frozen after the run began, so there is nothing to release.")
        stream = self._peers.noise(self._source, lot.step)
        is_ours = self._gradients is per_example_gradients
        if mechanism.guide is not None:
            self._charge(lot.step)
            state = mechanism.steer(self._mean_gradient(parameters), state, stream)
        with self._peers.gather_weights():
            if self._whole is not self.model:
                parameters = trainable(self._whole)
            with self._peers.by_itself(self._source, lot.step), CurrentStep(self._source, lot.step):
                part = self._public_sum(lot, mechanism, state, parameters)
        bounded = self._peers.total(part, lot.step)
        with self._peers.report_failure():
            if mechanism.guide is None:
                self._charge(lot.step)
            release, self._state = self._peers.share_release(
                lambda: mechanism.release_mean(bounded, state, stream, lot_size, is_ours=is_ours), bounded
            )
        # The plan has counted this event already, unless the noise emitted another.
        if release.event is not mechanism.noise.event(self._plan.dimension):
            event = mechanism.cost(release.event, sampling, self._plan.dimension)
            if event != self._events[-1]:
                refuse_unless_reserved(self.booking, self._events[-1], event)
                self._events[-1] = event
        if release.realised is not None:
            self._realised.append(mechanism.cost(release.realised, sampling, self._plan.dimension))
        self._weights.forget()
        if len(self._events) == self._plan.steps:
            self.settle()
        return dict(release.values)

    def settle(self) -> None:
        """End the run: the ledger is charged for what was released, and the rest of the reservation is given back.

        A run that makes all its steps does this itself. If intermediate results made you stop, the exact composition of
        a ledger no longer covers later runs; an adaptive budget, held by a filter, does.
        """
        if self.booking is not None:
            self.booking.settle()

    def _public_sum(self, lot: Lot, mechanism: Mechanism, state: MechanismState, like: Tensors) -> BoundedSum:
        """The bounded sum. Buffers that follow the weights, such as those of spectral norm, are updated once per step.

        If they were updated in every forward pass, they would depend on the realised lot size.
        """
        if self._writes is not None and not self._writes:
            with self._weights.watch(self.loss, list_attributes_set_once) if self._weights.is_settling else _NOTHING:
                bounded = self._sum(lot, mechanism, state, like)
            self._weights.refuse_written()
            return bounded
        if self._made is None and self._gradients is per_example_gradients:
            self._examine(lot, like)
        with restore_buffers(self._whole), self._weights.watch(self.loss, list_attributes_set_once):
            bounded = self._sum(lot, mechanism, state, like)
        if self._writes:
            update_public_buffers(self._whole, self._made)
        return bounded

    def _examine(self, lot: Lot, like: Tensors) -> None:
        """Examine the model, also for an empty first lot: a refusal must not depend on who is in that lot."""
        inputs, targets, _ = next(lot.pieces(self._micro_batch), (lot.inputs, lot.targets, None))
        if not len(lot) and len(self._examples):
            inputs, targets, *_ = next(self._examples.fetch(iter([np.zeros(1, dtype=np.int64)]), iter([0])))
        elif not len(lot) and not isinstance(self._examples, TensorExamples):
            return
        device = next(iter(like.values())).device
        inputs, targets = on_device(inputs, device), on_device(targets, device)
        # Without examples only shapes are known, and not every model runs on made inputs.
        with suppress(Unclear) if row_count(targets) else suppress(RuntimeError, ArithmeticError, Unclear):
            find_layout(self._whole, self.loss, dict(like), inputs, targets)
        self._writes, self._made = list_public_writes(self._whole), make_examples_like(inputs)

    def _sum(self, lot: Lot, mechanism: Mechanism, state: MechanismState, like: Tensors) -> BoundedSum:
        """The bounded sum over the pieces of the lot; zeros for parameters that they did not use."""
        device = next(iter(like.values())).device
        length, layout = self._in_pieces(lot, like)
        if lot.counts is None and 0 < lot.size <= (length or lot.size):
            # One piece: small models are bound by calls.
            inputs, targets = on_device(lot.inputs, device), on_device(lot.targets, device)
            bounded = mechanism.sum(self._gradients_of(inputs, targets, like, layout), state)
            if bounded.released_as is not None:
                bounded = sum_pieces([bounded], is_wide=self._is_wide) or bounded
        else:
            pieces = (
                mechanism.sum(
                    self._gradients_of(on_device(inputs, device), on_device(targets, device), like, layout, counts),
                    state,
                )
                for inputs, targets, counts in lot.pieces(length)
            )
            bounded = sum_pieces(pieces, is_wide=self._is_wide) or mechanism.sum(NoGradients(like), state)
        if bounded.values.keys() == like.keys():
            return bounded
        unused = {name: torch.zeros_like(value) for name, value in like.items() if name not in bounded.values}
        kinds = bounded.released_as and {**bounded.released_as, **{name: v.dtype for name, v in unused.items()}}
        return BoundedSum({**bounded.values, **unused}, bounded.sensitivity, bounded.box, kinds)

    def _in_pieces(self, lot: Lot, like: Tensors) -> tuple[int | None, Layout | None]:
        """The declared micro-batch; by default one that keeps memory near that of an ordinary step."""
        if self._micro_batch is not None or not self._adds_up or self._gradients is not per_example_gradients:
            return self._micro_batch, None
        if lot.size < 2:
            return None, None
        inputs, targets = lot.inputs, lot.targets
        if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor):
            return in_pieces(self._whole, self.loss, inputs, targets, dict(like))
        # For small models, calls dominate the time: reuse what was found for the last lot.
        key = (self.model.training, inputs.shape[1:], inputs.dtype, targets.shape[1:], targets.dtype, *like)
        known, length, layout = self._layout
        if known != key or layout is None or layout.doubt or layout.suspects or inputs.is_inference():
            length, layout = in_pieces(self._whole, self.loss, inputs, targets, dict(like))
            self._layout = key, length, layout
        return length, layout

    def _gradients_of(
        self, inputs: Any, targets: Any, like: Tensors, layout: Layout | None = None, counts: Tensor | None = None
    ) -> PerExampleGradients:
        found: PerExampleGradients
        if self._gradients is per_example_gradients:
            ours = per_example_gradients(self._whole, self.loss, inputs, targets, parameters=dict(like), layout=layout)
            if ours.backend is not self._backend:
                self._use_backend(ours.backend)
            found = ours
        else:
            found = self._gradients(self._whole, self.loss, inputs, targets)
        return found if counts is None else average_rows(found, counts.to(next(iter(like.values())).device), dict(like))

    def _use_backend(self, backend: BackendUsed) -> None:
        if backend.name == "loop" and (self._backend is None or self._backend.name != "loop"):
            warnings.warn(
                f"Every example goes through the model alone, which is slow, because {backend.why}. The guarantee "
                "holds; change that part of the model or the loss to train faster.",
                Caution,
                stacklevel=2,
            )
        self._backend = backend

    def _mean_gradient(self, like: Tensors) -> BoundedSum:
        gradients = partial(self._gradients_of, like=like)
        seeds, size = self._peers.seeds(self._source, 0, f"guide {self.step}"), self._micro_batch
        return mean_gradient(self._examples, gradients, like, self.sampling.population, micro_batch=size, seeds=seeds)

    def _charge(self, step: int) -> None:
        """Charge the step before its noise is drawn: after a crash it has been paid for."""
        with self._charging:
            if self._pending is None:
                raise OutOfOrder(f"Another thread used the lot of step {step}. Use each lot in one thread only.")
            if self.booking is not None:
                self.booking.begin(step)
            if self._journal is not None:
                self._journal.begin(step)
            self._pending = None
            self._events.append(self._plan.event_at(step))

    def guarantee(self) -> Guarantee:
        """The guarantee of everything released so far."""
        is_ours = self._gradients is per_example_gradients
        return make_guarantee(
            self._plan,
            ReleasedSteps(self._events, self._realised, self._lost, self._forgiven),
            assumptions=(
                LOTS_STAY_INSIDE,
                *(() if is_ours else (GRADIENTS_GIVEN,)),
                *self._from_loader,
                *self._peers.assumptions,
                *(() if all(each.is_cpu for each in self._parameters.values()) else (NOISE_ON_DEVICE,)),
            ),
            violations=(*filter(None, [self._weights.violation]), *(() if self._source.is_secret else (FIXED_SEED,))),
        )

    def save(
        self, path: str | os.PathLike[str], optimizer: Stateful | None = None, scheduler: Stateful | None = None
    ) -> None:
        """Write everything that `resume` needs into the folder `path`. Call it after optimizer.step().

        The key of secure noise is never written. From now on the run records in the same folder which steps it begins,
        so that steps lost in a crash are charged (`Journal`). Of several processes, only the first one saves.
        """
        folder, parts = Path(path), {"optimizer": optimizer, "scheduler": scheduler}
        shards = self._peers.save_shards(folder, parts)
        if not self._peers.is_first:
            return
        if self.booking is not None:
            self.booking.refuse_unless_current()
        if self._journal is not None:
            self._journal.refuse_unless_alone()
        seed = self._source.seed if isinstance(self._source, SeededSource) else None
        tree = {
            "plan": self._plan,
            "events": [(event, len(list(same))) for event, same in groupby(self._events)],
            "realised": self._realised,
            "lost": dict(self._lost),
            "forgiven": self._forgiven,
            "ledger": self.booking and self.booking.saved(),
            "micro_batch": self._micro_batch,
            # For the report: how gradients were computed, and why.
            "backend": None if self._backend is None else str(self._backend),
            "seed": seed,
            "lots": DRAWING,
            # Only a seeded run continues exactly, dropout included.
            "torch_random": None if seed is None else torch.get_rng_state(),
            "bound_state": dict(self._state.bound),
            "post_states": [dict(state) for state in self._state.post],
            "shards": shards,
            "processes": self._peers.size,
            "model": {} if shards else self.model.state_dict(),
            **{name: part and (None if shards else part.state_dict()) for name, part in parts.items()},
        }
        write_checkpoint(folder, tree)
        if shards is not None:
            forget_shards(folder, shards)
        self._follow(folder)
        RunFolder(folder).write_guarantee(self.guarantee())

    def _follow(self, folder: Path) -> None:
        """Keep the journal in the folder of the newest save."""
        if self._journal is not None and self._journal.folder != folder:
            self._journal.leave(self.step)
            self._journal = None
        if self._journal is None:
            self._journal = Journal(folder, self.steps)
        self._journal.settle(self.step, self._lost)

    @classmethod
    def resume(
        cls,
        path: str | os.PathLike[str],
        model: nn.Module,
        loss: Loss | Literal["model"],
        *,
        data: Any,
        optimizer: Stateful | None = None,
        scheduler: Stateful | None = None,
        workers: int = 0,
        nothing_left: bool = False,
        stages: tuple[type, ...] = (),
        gradients: GradientsOf = per_example_gradients,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        before: Event | None = None,
        unit: Any = None,
    ) -> Self:
        """Resume a saved run; model, optimizer and scheduler get their saved states.

        A seeded run continues bit for bit on a CPU with the version that saved it, if the model draws random numbers
        from torch's global generator only, and transforms from torch's, numpy's or Python's. Otherwise lots and noise
        are fresh, and steps that were begun after the save are charged again; with a budget, the run then makes as many
        steps less at its end.
        `nothing_left=True` declares that nobody saw or stored any number of those steps (weights, losses, accuracies):
        then they released nothing and cost nothing. `stages` names your own classes. `ledger` says where the ledger is
        if it has moved. `unit` is given again, as `data` is.
        If another process still continues the run, the one that steps first goes on and the other one
        is stopped. `before` is what was released from the same examples before the first step, if the budget pays for
        that too.
        """
        folder = Path(path)
        peers = Peers.of(model)
        tree = peers.load_shards(folder, read_checkpoint(folder, stages, needs=RUN), optimizer)
        load_model(model, tree["model"])
        for name, part in (("optimizer", optimizer), ("scheduler", scheduler)):
            load_part(name, part, tree[name])
        events = [event for event, times in tree["events"] for _ in range(times)]
        notes = notes_in(folder)
        # A seeded run repeats its lost steps, unless the version that saved it drew lots in another way.
        is_repeated = tree["seed"] is not None and tree.get("lots") == DRAWING
        lost = Counter[int]() if is_repeated else lost_steps(folder, len(events), Counter(tree["lost"]))
        forgiven = lost.total() if nothing_left else 0
        charged = Counter(tree["lost"]) + (Counter[int]() if nothing_left else lost)
        plan: Plan = tree["plan"] if tree["seed"] is not None else tree["plan"].restart(len(events))
        run = cls.__new__(cls)
        state = MechanismState(tree["bound_state"], tuple(tree["post_states"]))
        settings = {"micro_batch": tree["micro_batch"], "workers": workers, "seed": tree["seed"], "unit": unit}
        run._begin(model, loss, data, plan, state, peers, gradients=gradients, **settings)
        entered = find_booking(tree, ledger, dataset, run._examples)
        debt = Debt(plan, len(events), charged, forgiven, before)
        run.booking, debt = run._peers.resume(entered, debt, nothing_left)
        run._plan = plan = debt.plan
        run._realised = tree["realised"]
        run._events, run._lost, run._forgiven = events, debt.lost, tree["forgiven"] + debt.forgiven
        run._journal = Journal(folder, plan.steps, after=notes) if run._peers.is_first else None
        if tree["torch_random"] is not None:
            torch.set_rng_state(tree["torch_random"])
        return run


def _write_gradients(parameters: Tensors, values: Tensors) -> list[tuple[Tensor, Tensor]]:
    """Put the values into p.grad; return each parameter with its gradient."""
    written = []
    for name, value in values.items():
        parameter = parameters[name]
        parameter.grad = gradient = value if value.dtype == parameter.dtype else value.to(parameter.dtype)
        written.append((parameter, gradient))
    return written
