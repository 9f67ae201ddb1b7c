"""PrivateRun: lots out, noisy gradients in, and at any time the guarantee of what was released so far."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from tacit import _validate
from tacit.accounting.events import Event
from tacit.budget import Budget
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.gradients import in_pieces, per_example_gradients, trainable
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
from tacit.guarantee import FIXED_SEED, Assumption, Guarantee
from tacit.ledger import Ledger
from tacit.randomness import CurrentStep, Indices, Purpose, SeededSource, refuse_forked, source_for
from tacit.stages.mechanism import Mechanism, MechanismState, with_lot_size
from tacit.training import checkpoint
from tacit.training.charging import Debt, booking_for, entered_by, refuse_unless_reserved
from tacit.training.checkpoint import Stateful
from tacit.training.distributed import Peers
from tacit.training.folder import RunFolder
from tacit.training.journal import Journal, lost_steps, notes_in
from tacit.training.lots import (
    Lot,
    NoGradients,
    TensorExamples,
    examples_from,
    on_device,
    refuse_lot,
    refuse_taken,
    row_count,
)
from tacit.training.mean_gradient import whole_mean
from tacit.training.plan import Plan, Schedule
from tacit.training.spending import Spent, guarantee_of
from tacit.training.weights import LOTS_STAY_INSIDE, Weights
from tacit.types import BoundedSum, PerExampleGradients, Sampling, Tensors, needs_wide_sums, sum_pieces

_NOTHING = nullcontext()

GradientsOf = Callable[[nn.Module, Loss, Any, Any], PerExampleGradients]

_GRADIENTS_GIVEN = Assumption(
    "gradients_given",
    "Gradients were made by a function that was given: each row must be one example's, and depend on no other.",
)


class PrivateRun:
    """A training run that releases nothing but noisy sums of bounded gradients, and counts what they cost.

    Every privacy parameter is fixed here. `data` is a pair of tensors or arrays, or a map-style data set
    of (input, target) pairs that `workers` processes may fetch. Without a `seed` the noise is cryptographic;
    with one it can be drawn again, like lots and random transforms, and the guarantee says that it is not for release.
    `micro_batch` bounds how many examples go through the model at once. `schedule` varies noise and lot size over the
    steps. `gradients` makes the gradients of a lot, one row an example; audits give one that knows examples which are
    nothing but a gradient. A `ledger` is charged before the first lot is released, under the name `dataset`.

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
        loss: Loss,
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
    ) -> None:
        _validate.kind("mechanism", mechanism, Mechanism, "methods.dpsgd(clip_norm=1.0)")
        _validate.kind("sampling", sampling, Sampling, "Poisson(lot_size=256, population=60_000)")
        if not callable(loss):
            raise InvalidArgument(f"loss must be a function of (outputs, targets), or a loss module. Got {loss!r}.")
        if budget is not None:
            _validate.kind("budget", budget, Budget, "Budget(epsilon=3, delta=1e-5)")
        if schedule is not None:
            _validate.kind("schedule", schedule, Schedule, "Schedule(multiplier=[1.0, 0.9, 0.8])")
        like = {name: value.detach() for name, value in trainable(model).items()}
        state = mechanism.init(like, sampling.lot_size)
        dimension = mechanism.sum(NoGradients(like), state).dimension
        steps = _validate.count("steps", steps)
        fixed = (schedule or Schedule()).over(steps)
        plan = Plan(mechanism, sampling, steps, dimension, budget, fixed).settled()
        settings: dict[str, Any] = {"micro_batch": micro_batch, "workers": workers, "seed": seed}
        self._begin(model, loss, data, plan, state, gradients=gradients, **settings)
        self.booking = self._peers.first(lambda: booking_for(ledger, dataset, self._examples, plan, seed))

    def _begin(
        self,
        model: nn.Module,
        loss: Loss,
        data: Any,
        plan: Plan,
        state: MechanismState,
        *,
        micro_batch: int | None,
        workers: int,
        seed: int | None,
        gradients: GradientsOf,
    ) -> None:
        like = self._parameters = trainable(model)
        self.model, self.loss, self._plan, self._state = model, loss, plan, state
        self._gradients = gradients
        first = next(iter(like.values()))
        self._examples = examples_from(data, workers=_validate.count("workers", workers, at_least=0), dtype=first.dtype)
        box = plan.mechanism.sum(NoGradients(like), state).box
        self._adds_up = box is None or box.adds_up
        self._micro_batch = None if micro_batch is None else _validate.count("micro_batch", micro_batch)
        self._source = source_for(seed)
        self._peers = Peers.found()
        self._peers.join(model, plan, self._examples, adds_up=self._adds_up)
        self._events, self._realised = list[Event](), list[Event]()
        self._lost, self._forgiven = Counter[int](), 0
        self._pending: Lot | None = None
        self._charging = Lock()
        self._journal: Journal | None = None
        self.booking = None
        self._process, self._weights = os.getpid(), Weights(model, like)
        # Which buffers a pass writes to, and made examples of the shape that the model takes.
        self._writes: frozenset[str] | None = None
        self._layout: tuple[Any, int | None, Layout | None] = (None, None, None)
        self._made: Any = None
        self._is_wide = needs_wide_sums(plan.sampling.lot_size, plan.mechanism.noise.multiplier)

    @property
    def steps(self) -> int:
        """How many steps are planned. Fewer than at first where a resumed run had lost some that were paid for."""
        return self._plan.steps

    @property
    def step(self) -> int:
        """How many steps were released."""
        return len(self._events)

    @property
    def plan(self) -> Plan:
        """Every privacy parameter, as it was fixed before the first lot."""
        return self._plan

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism, with the multiplier that was given or found."""
        return self._plan.mechanism

    @property
    def sampling(self) -> Sampling:
        """How lots are drawn."""
        return self._plan.sampling

    @property
    def multiplier(self) -> float:
        """The noise multiplier that was given, or found from the budget."""
        multiplier = self.mechanism.noise.multiplier
        assert multiplier is not None
        return multiplier

    def __len__(self) -> int:
        """The number of steps that are left."""
        return self.steps - self.step

    def __iter__(self) -> Iterator[Lot]:
        """The lots of the remaining steps. Each must be given to `backward` before the next one comes."""
        refuse_forked(self._process)
        following = self.step + (self._pending is not None)
        drawn = self._examples.fetch(self._draw(following), self._peers.seeds(self._source, following))
        while self.step < self.steps:
            if self._pending is None:
                if self.step != following:
                    raise OutOfOrder("Another loop over this run has taken lots meanwhile. Start this loop again.")
                following += 1
                inputs, targets = next(drawn)
                self._weights.hand_out()
                self._pending = Lot(inputs, targets, self.step, row_count(targets))
            yield self._pending
            if self._pending is not None:
                raise OutOfOrder(
                    f"The lot of step {self._pending.step} was not given to run.backward. Leaving lots out by what "
                    "they hold would make them no Poisson samples. Give every lot to run.backward, empty ones too."
                )

    def _draw(self, first: int) -> Iterator[Indices]:
        for step in range(first, self.steps):
            stream = self._source.stream(Purpose.LOT, step)
            yield self._peers.part(self._plan.sampling_at(step).lot(len(self._examples), stream, step))

    def backward(self, lot: Lot) -> None:
        """Put the noisy sum of the lot's bounded gradients, over the public lot size, into every trainable p.grad.

        What stood in p.grad is replaced; parameters that the lot did not use get noise like all others, and
        frozen ones are left alone. The lot is used up. Call optimizer.step() before the next one: a gradient that was
        paid for and not used is an error.
        """
        if lot is self._pending:
            self._weights.refuse_unless_stepped()
        written = _write_gradients(self._parameters, self.release(lot))
        self._weights.granted(written, is_last=len(self._events) == self._plan.steps)

    def release(self, lot: Lot) -> dict[str, Tensor]:
        """The noisy sum of the lot's bounded gradients over the public lot size, by parameter; p.grad is left alone.

        For optimizers that are not torch's. The lot is used up.
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
            raise InvalidArgument("Every parameter was frozen since the run began, so there is nothing to release.")
        stream = self._source.stream(Purpose.NOISE, lot.step)
        is_ours = self._gradients is per_example_gradients
        if mechanism.guide is not None:
            self._charge(lot.step)
            state = mechanism.steer(self._whole_mean(parameters), state, stream)
        with self._peers.by_itself(self._source, lot.step), CurrentStep(self._source, lot.step):
            part = self._public_sum(lot, mechanism, state, parameters)
        bounded = self._peers.total(part, lot.step)
        with self._peers.telling():
            if mechanism.guide is None:
                self._charge(lot.step)
            release, self._state = self._peers.released(
                lambda: mechanism.release_mean(bounded, state, stream, lot_size, is_ours=is_ours), bounded
            )
        # What the plan has counted, unless the noise says otherwise.
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
        """Say that no more steps will be made: the ledger is charged for what was released, and no more.

        A run that makes all its steps does this by itself. Where it was for what you saw that you stopped, the exact
        composition of a ledger no longer covers what follows; a budget that is held by a filter does.
        """
        if self.booking is not None:
            self.booking.settle()

    def _public_sum(self, lot: Lot, mechanism: Mechanism, state: MechanismState, like: Tensors) -> BoundedSum:
        """The bounded sum. Buffers that follow the weights, such as those of spectral norm, are updated once a step.

        How often a lot goes through the model depends on how many examples it has, and so would they.
        """
        if self._writes is not None and not self._writes:
            with self._weights.settling(self.loss, list_attributes_set_once) if self._weights.is_settling else _NOTHING:
                bounded = self._sum(lot, mechanism, state, like)
            self._weights.refuse_written()
            return bounded
        if self._made is None and self._gradients is per_example_gradients:
            self._examine(lot, like)
        with restore_buffers(self.model), self._weights.settling(self.loss, list_attributes_set_once):
            bounded = self._sum(lot, mechanism, state, like)
        if self._writes:
            update_public_buffers(self.model, self._made)
        return bounded

    def _examine(self, lot: Lot, like: Tensors) -> None:
        """Examine the model, on an empty lot too: whether it is refused must not depend on who is in the first lot."""
        inputs, targets = lot.inputs, lot.targets
        if not len(lot) and len(self._examples):
            inputs, targets = next(self._examples.fetch(iter([np.zeros(1, dtype=np.int64)]), iter([0])))
        elif not len(lot) and not isinstance(self._examples, TensorExamples):
            return
        device = next(iter(like.values())).device
        inputs, targets = on_device(inputs, device), on_device(targets, device)
        # Without any example there are only shapes to go by, with which not every model can be run.
        with suppress(Unclear) if row_count(targets) else suppress(RuntimeError, ArithmeticError, Unclear):
            find_layout(self.model, self.loss, dict(like), inputs, targets)
        self._writes, self._made = list_public_writes(self.model), make_examples_like(inputs)

    def _sum(self, lot: Lot, mechanism: Mechanism, state: MechanismState, like: Tensors) -> BoundedSum:
        """The bounded sum over the pieces of the lot; zeros for whatever parameter they did not use."""
        device = next(iter(like.values())).device
        length, layout = self._in_pieces(lot, like)
        if 0 < lot.size <= (length or lot.size):
            # One piece: small models are bound by calls.
            inputs, targets = on_device(lot.inputs, device), on_device(lot.targets, device)
            bounded = mechanism.sum(self._gradients_of(inputs, targets, like, layout), state)
        else:
            pieces = (
                mechanism.sum(
                    self._gradients_of(on_device(inputs, device), on_device(targets, device), like, layout), state
                )
                for inputs, targets in lot.pieces(length)
            )
            bounded = sum_pieces(pieces, is_wide=self._is_wide) or mechanism.sum(NoGradients(like), state)
        if bounded.values.keys() == like.keys():
            return bounded
        unused = {name: torch.zeros_like(value) for name, value in like.items() if name not in bounded.values}
        kinds = bounded.released_as and {**bounded.released_as, **{name: v.dtype for name, v in unused.items()}}
        return BoundedSum({**bounded.values, **unused}, bounded.sensitivity, bounded.box, kinds)

    def _in_pieces(self, lot: Lot, like: Tensors) -> tuple[int | None, Layout | None]:
        """The declared micro-batch, or one that keeps memory near that of an ordinary step, where pieces add up."""
        if self._micro_batch is not None or not self._adds_up or self._gradients is not per_example_gradients:
            return self._micro_batch, None
        if lot.size < 2:
            return None, None
        inputs, targets = lot.inputs, lot.targets
        if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor):
            return in_pieces(self.model, self.loss, inputs, targets, dict(like))
        # Small models are bound by calls: what was found for the last lot mostly holds for this one.
        key = (self.model.training, inputs.shape[1:], inputs.dtype, targets.shape[1:], targets.dtype, *like)
        known, length, layout = self._layout
        if known != key or layout is None or layout.doubt or layout.suspects or inputs.is_inference():
            length, layout = in_pieces(self.model, self.loss, inputs, targets, dict(like))
            self._layout = key, length, layout
        return length, layout

    def _gradients_of(
        self, inputs: Any, targets: Any, like: Tensors, layout: Layout | None = None
    ) -> PerExampleGradients:
        if self._gradients is per_example_gradients:
            return per_example_gradients(self.model, self.loss, inputs, targets, parameters=dict(like), layout=layout)
        return self._gradients(self.model, self.loss, inputs, targets)

    def _whole_mean(self, like: Tensors) -> BoundedSum:
        gradients = partial(self._gradients_of, like=like)
        seeds, size = self._peers.seeds(self._source, 0, f"guide {self.step}"), self._micro_batch
        return whole_mean(self._examples, gradients, like, self.sampling.population, micro_batch=size, seeds=seeds)

    def _charge(self, step: int) -> None:
        """Count the step before its noise is drawn, so that whatever happens then, it has been paid for."""
        with self._charging:
            refuse_taken(self._pending, step)
            if self.booking is not None:
                self.booking.begin(step)
            if self._journal is not None:
                self._journal.begin(step)
            self._pending = None
            self._events.append(self._plan.event_at(step))

    def guarantee(self) -> Guarantee:
        """What is proven about everything that was released so far."""
        is_ours = self._gradients is per_example_gradients
        return guarantee_of(
            self._plan,
            Spent(self._events, self._realised, self._lost, self._forgiven),
            assumptions=(LOTS_STAY_INSIDE, *(() if is_ours else (_GRADIENTS_GIVEN,)), *self._peers.assumptions),
            violations=(*filter(None, [self._weights.violation]), *(() if self._source.is_secret else (FIXED_SEED,))),
        )

    def save(
        self, path: str | os.PathLike[str], optimizer: Stateful | None = None, scheduler: Stateful | None = None
    ) -> None:
        """Write all that `resume` needs into the folder `path`. Call it after optimizer.step().

        A key of secure noise is never written. From now on the run notes in the same folder which steps it begins, so
        that steps lost in a crash are not forgotten (journal.py). Of several processes, only the first one saves.
        """
        if not self._peers.is_first:
            return
        folder = Path(path)
        if self.booking is not None:
            self.booking.refuse_unless_current()
        if self._journal is not None:
            self._journal.refuse_unless_alone()
        saved = {"optimizer": optimizer, "scheduler": scheduler}
        seed = self._source.seed if isinstance(self._source, SeededSource) else None
        tree = {
            "plan": self._plan,
            "events": [(event, len(list(same))) for event, same in groupby(self._events)],
            "realised": self._realised,
            "lost": dict(self._lost),
            "forgiven": self._forgiven,
            "ledger": self.booking and self.booking.saved(),
            "micro_batch": self._micro_batch,
            "seed": seed,
            # Only a seeded run goes on as if nothing had happened, dropout included.
            "torch_random": None if seed is None else torch.get_rng_state(),
            "bound_state": dict(self._state.bound),
            "post_states": [dict(state) for state in self._state.post],
            "model": self.model.state_dict(),
            **{name: part and part.state_dict() for name, part in saved.items()},
        }
        checkpoint.write(folder, tree)
        self._follow(folder)
        RunFolder(folder).write_guarantee(self.guarantee())

    def _follow(self, folder: Path) -> None:
        """Keep the journal where the newest save is."""
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
        loss: Loss,
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
    ) -> Self:
        """Go on with a run from where it was saved; model, optimizer and scheduler get their saved states.

        A seeded run goes on bit for bit as if it had never stopped, on a processor, as far as the model draws at random
        from torch's global generator, and transforms from that, numpy's or Python's. Otherwise lots and noise are fresh
        and steps that were begun after the save are charged again, at the cost of as many steps at the end where there
        is a budget. `nothing_left=True` declares that no number of those steps (weights, losses, accuracies) was seen
        by anyone or written anywhere: then they were no release and cost nothing. `stages` names classes of your own. A
        run that is charged to a ledger finds it again where it was; `ledger` says where it is now. If a process still
        goes on with the run, whoever of the two steps first may go on, and the other one is stopped.
        """
        folder = Path(path)
        tree = checkpoint.read(folder, stages, needs=checkpoint.RUN)
        checkpoint.load_model(model, tree["model"])
        for name, part in (("optimizer", optimizer), ("scheduler", scheduler)):
            checkpoint.load_part(name, part, tree[name])
        events = [event for event, times in tree["events"] for _ in range(times)]
        notes = notes_in(folder)
        lost = Counter[int]() if tree["seed"] is not None else lost_steps(folder, len(events), Counter(tree["lost"]))
        forgiven = lost.total() if nothing_left else 0
        charged = Counter(tree["lost"]) + (Counter[int]() if nothing_left else lost)
        plan: Plan = tree["plan"]
        run = cls.__new__(cls)
        state = MechanismState(tree["bound_state"], tuple(tree["post_states"]))
        settings = {"micro_batch": tree["micro_batch"], "workers": workers, "seed": tree["seed"]}
        run._begin(model, loss, data, plan, state, gradients=gradients, **settings)
        entered = entered_by(tree, ledger, dataset, run._examples)
        run.booking, debt = run._peers.resumed(entered, Debt(plan, len(events), charged, forgiven), nothing_left)
        run._plan = plan = debt.plan
        run._realised = tree["realised"]
        run._events, run._lost, run._forgiven = events, debt.lost, tree["forgiven"] + debt.forgiven
        run._journal = Journal(folder, plan.steps, after=notes) if run._peers.is_first else None
        if tree["torch_random"] is not None:
            torch.set_rng_state(tree["torch_random"])
        return run


def _write_gradients(parameters: Tensors, values: Tensors) -> list[tuple[Tensor, Tensor]]:
    """Put the values where optimizers look for them; each parameter with its gradient."""
    written = []
    for name, value in values.items():
        parameter = parameters[name]
        parameter.grad = gradient = value if value.dtype == parameter.dtype else value.to(parameter.dtype)
        written.append((parameter, gradient))
    return written
