"""PrivateTraining: a callback with which Lightning's Trainer.fit trains a module privately."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, TensorDataset, default_collate

from tacit.budget import Budget
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.gradients.checks import make_examples_like
from tacit.ledger import Ledger
from tacit.stages.mechanism import Mechanism
from tacit.training.lots import examples_from, on_device
from tacit.training.plan import Schedule
from tacit.training.run import PrivateRun
from tacit.types import Sampling

# torch's losses: a mean over the lot becomes one number for each example.
_LOSSES = frozenset(
    getattr(F, name)
    for name in (
        *("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"),
        *("binary_cross_entropy", "binary_cross_entropy_with_logits", "poisson_nll_loss", "gaussian_nll_loss"),
    )
)
# Methods of a module that the private step does not call, so that overriding them would have no effect.
_REPLACED = (
    *("backward", "optimizer_step", "configure_gradient_clipping", "transfer_batch_to_device"),
    *("on_before_batch_transfer", "on_after_batch_transfer"),
)


class PrivateTraining(lightning.Callback):  # type: ignore[misc]
    """Trains a LightningModule privately: Trainer(callbacks=[PrivateTraining(...)]).fit(module, loader).

    Lots are Poisson samples of the loader's data set; its sampler and batch size are not used. `training_step` is run
    as it is, and its loss is taken per example: torch's losses with a mean give each example's own; any other loss must
    be returned as one number per example. Gradients are clipped per example, summed, and get noise; then every
    optimizer and every learning-rate schedule steps. With manual optimization, `manual_backward` puts the noisy
    gradients into p.grad, and the rest of `training_step` runs on made-up examples. What `training_step` logs is
    private, so it is dropped; `epsilon` is logged instead where a `budget` says for which delta.
    An epoch has population over lot size steps. `steps` is by default max_steps of the Trainer, or max_epochs times
    the steps of an epoch. Checkpoints refer to a folder in `default_root_dir` with the private run, and
    `fit(..., ckpt_path=...)` goes on with it. What would skip the mechanism is refused.

    With `unit` and `rows_per_unit`, as in `PrivateRun`, people are protected and not rows.

    With strategy "ddp" on several devices, every process sums its part of each lot, and the first one draws the noise
    for all. Lightning's own averaging of gradients is taken out. Every process must hold the same examples in the same
    order; `PrivateRun` compares them.
    """

    def __init__(
        self,
        *,
        mechanism: Mechanism,
        sampling: Sampling,
        budget: Budget | None = None,
        steps: int | None = None,
        schedule: Schedule | None = None,
        micro_batch: int | None = None,
        seed: int | None = None,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        unit: Any = None,
        rows_per_unit: int | None = None,
    ) -> None:
        self._sampling, self._budget, self._steps = sampling, budget, steps
        self._settings: dict[str, Any] = {"mechanism": mechanism, "sampling": sampling, "budget": budget}
        self._settings |= {"schedule": schedule, "micro_batch": micro_batch, "seed": seed}
        self._settings |= {"rows_per_unit": rows_per_unit}
        self._given: dict[str, Any] = {"ledger": ledger, "dataset": dataset, "unit": unit}
        self.run: PrivateRun | None = None
        self._lots: Iterator[Any] = iter(())
        self._saved: str | None = None
        self._source: tuple[Any, Any] | None = None
        self._has_released = False

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse what would skip the mechanism, and put lots in place of the training data."""
        if stage != "fit":
            return
        _refuse_trainer(trainer)
        _refuse_module(pl_module)
        source = getattr(trainer.fit_loop, "_data_source", None)
        if source is None:
            raise InvalidArgument("This version of Lightning keeps its training data elsewhere. Use lightning 2.6.")
        self._source = source, source.instance
        self._data = _as_data(source.dataloader())
        self._is_manual = not pl_module.automatic_optimization
        per_epoch = max(1, round(self._sampling.population / self._sampling.lot_size))
        self._planned = self._steps or _count_steps(trainer, per_epoch)
        # Lightning fetches ahead, so what it fetches is no lot: the step draws it.
        source.instance, source.name = range(per_epoch), ""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the private run, or go on with the saved one, once weights and optimizers are in place."""
        model = _LossOfStep(pl_module)
        if self._saved is None:
            settings = {**self._settings, **self._given, "steps": self._planned}
            self.run = PrivateRun(model, _take_losses, data=self._data, **settings)
        else:
            self.run = PrivateRun.resume(self._saved, model, _take_losses, data=self._data, **self._given)
        self._lots = iter(self.run)
        # In place of DistributedDataParallel, which would add up gradients over the devices without noise.
        trainer.strategy.model = pl_module
        pl_module.automatic_optimization = False
        pl_module.training_step = self._step_manually if self._is_manual else self._step
        if self._is_manual:
            pl_module.manual_backward = self._release
        # Without the closure that Lightning adds, which does nothing in manual optimization.
        trainer.strategy.optimizer_step = lambda optimizer, closure, model=None, **how: optimizer.step(**how)
        self._module, self._trainer = pl_module, trainer

    def _step(self, batch: Any, batch_idx: int) -> None:
        """One private step of a module with automatic optimization."""
        if self._put_gradients():
            optimizers = self._module.optimizers()
            for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
                optimizer.step()
            self._step_schedules("step", self.run.step if self.run else 0)

    def _step_manually(self, batch: Any, batch_idx: int) -> None:
        """The module's own training_step, on made-up examples: its manual_backward releases the lot's gradients."""
        self._has_released = False
        with _without_logs(self._module):
            type(self._module).training_step(self._module, self._make_batch(), batch_idx)
        if not self._has_released and not self._trainer.should_stop:
            raise OutOfOrder(
                "training_step did not call self.manual_backward, so no gradient was released. Call it once per step."
            )

    def _release(self, loss: Any, *args: Any, **kwargs: Any) -> None:
        if self._has_released:
            raise OutOfOrder(
                "manual_backward was called twice in one training_step. A lot releases one gradient: add the losses up."
            )
        self._has_released = True
        self._put_gradients()

    def _put_gradients(self) -> bool:
        """Put the noisy gradients of the next lot into p.grad; False after the last one, where training stops."""
        assert self.run is not None
        lot = next(self._lots, None)
        if lot is None:
            self._trainer.should_stop = True
            return False
        self.run.backward(lot)
        if not len(self.run):
            self._trainer.should_stop = True
        return True

    def _make_batch(self) -> Any:
        """A batch of two made-up examples, like those of the data."""
        examples = examples_from(self._data, workers=0, dtype=torch.get_default_dtype())
        inputs = next(examples.fetch(iter([np.zeros(1, dtype=np.int64)]), iter([0])))[0]
        return on_device(make_examples_like(inputs), self._module.device)["batch"]

    def _step_schedules(self, interval: str, count: int) -> None:
        for each in self._trainer.lr_scheduler_configs:
            if each.interval == interval and count % each.frequency == 0:
                each.scheduler.step()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the epsilon spent so far."""
        if not self._is_manual:
            self._step_schedules("epoch", trainer.current_epoch + 1)
        if self._budget is not None and self.run is not None:
            pl_module.log("epsilon", self.run.guarantee().epsilon(self._budget.delta), prog_bar=True)

    def state_dict(self) -> dict[str, Any]:
        """Where the private run is saved."""
        return {"folder": self._saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Remember where the private run was saved; it goes on when training starts."""
        self._saved = state_dict["folder"]

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Save the private run beside the checkpoint."""
        if self.run is None:
            return
        folder = Path(trainer.default_root_dir) / "tacit" / f"step-{self.run.step}"
        folder.mkdir(parents=True, exist_ok=True)
        self.run.save(folder)
        checkpoint["callbacks"][self.state_key] = {"folder": str(folder.resolve())}

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Give the module and the Trainer back as they were."""
        if self._source is None:
            return
        for name in ("training_step", "manual_backward"):
            pl_module.__dict__.pop(name, None)
        trainer.strategy.__dict__.pop("optimizer_step", None)
        pl_module.automatic_optimization = not self._is_manual
        # trainer.global_step counts manual steps during a private run, and automatic ones from now on.
        loop = trainer.fit_loop.epoch_loop
        done = loop.manual_optimization.optim_step_progress.total.completed
        loop.automatic_optimization.optim_progress.optimizer.step.total.completed = done
        self._source[0].instance, self._source[0].name = self._source[1], "train_dataloader"
        self._source, self._saved = None, None


class _LossOfStep(nn.Module):
    """A module whose output is what its training_step returns for a lot: one loss per example."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Any) -> Tensor:
        """[B]: the losses, before any backward pass or log of the module."""
        losses: list[Any] = []

        def keep(loss: Any, *args: Any, **kwargs: Any) -> None:
            losses.append(loss)
            raise _StopStepError

        changed = {"manual_backward": keep, "optimizers": lambda *_, **__: _NoOptimizer()}
        with _without_logs(self.module, changed), _PerExample(), suppress(_StopStepError):
            losses.append(type(self.module).training_step(self.module, batch, 0))
        loss = losses[0]["loss"] if isinstance(losses[0], dict) else losses[0]
        if not isinstance(loss, Tensor) or loss.dim() != 1:
            raise InvalidArgument(
                "training_step must give one loss per example in a private run. torch's losses with reduction='mean' "
                f"do so by themselves; write others that way. Got {_describe(loss)}."
            )
        return loss

    def __deepcopy__(self, memo: dict[int, Any]) -> _LossOfStep:
        # The Trainer is not part of the model.
        trainer, self.module._trainer = self.module._trainer, None
        try:
            module = copy.deepcopy(self.module, memo)
        finally:
            self.module._trainer = trainer
        module._trainer = trainer
        copied = _LossOfStep(module)
        copied.training = self.training
        return copied


class _StopStepError(Exception):
    """The loss is known; what follows in training_step is not for the private pass."""


class _NoOptimizer:
    """Stands for the optimizers while the losses of a lot are computed: it does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None

    def __iter__(self) -> Iterator[_NoOptimizer]:
        return iter((self, self))


class _PerExample(TorchFunctionMode):
    """Makes torch's losses return one number per example where they would average over the lot."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func not in _LOSSES:
            return func(*args, **given)
        bound = inspect.signature(func).bind(*args, **given)
        bound.apply_defaults()
        reduction = bound.arguments["reduction"]
        if reduction not in ("mean", "batchmean", "sum"):
            return func(*args, **given)
        bound.arguments["reduction"] = "none"
        with self:
            values = func(*bound.args, **bound.kwargs)
        if values.dim() < 2:
            return values
        sums = values.flatten(1).sum(1)
        if reduction != "mean":
            return sums
        target, ignored = bound.arguments["target"], bound.arguments.get("ignore_index")
        if ignored is None or target.is_floating_point() or target.shape != values.shape:
            return sums / math.prod(values.shape[1:])
        return sums / (target != ignored).flatten(1).sum(1).clamp_min(1)


@dataclass(frozen=True)
class _BatchOfOne:
    """A collate function whose batch goes to training_step as it is."""

    collate: Callable[[list[Any]], Any]

    def __call__(self, examples: list[Any]) -> tuple[dict[str, Any], Tensor]:
        return {"batch": self.collate(examples)}, torch.zeros(len(examples))


def _as_data(loader: Any) -> Any:
    """The examples of a loader, as a private run takes them: a batch, and nothing as target."""
    if not isinstance(loader, DataLoader):
        raise InvalidArgument(f"Private training needs one DataLoader for training. Got {type(loader).__name__}.")
    examples_from(loader, workers=0, dtype=torch.get_default_dtype())
    if isinstance(loader.dataset, TensorDataset) and loader.collate_fn is default_collate:
        tensors = list(loader.dataset.tensors)
        return {"batch": tensors}, torch.zeros(len(loader.dataset))
    return DataLoader(
        loader.dataset, batch_size=1, collate_fn=_BatchOfOne(loader.collate_fn), num_workers=loader.num_workers
    )


def _take_losses(outputs: Tensor, targets: Any) -> Tensor:
    return outputs


@contextmanager
def _without_logs(module: Any, changed: dict[str, Any] | None = None) -> Iterator[None]:
    """Drop what is logged, and replace some methods, for a while."""
    replaced = {**dict.fromkeys(("log", "log_dict"), lambda *_, **__: None), **(changed or {})}
    before = {name: vars(module)[name] for name in replaced if name in vars(module)}
    vars(module).update(replaced)
    try:
        yield
    finally:
        for name in replaced:
            del vars(module)[name]
        vars(module).update(before)


def _count_steps(trainer: Any, per_epoch: int) -> int:
    if trainer.max_steps > 0:
        return int(trainer.max_steps)
    if trainer.max_epochs is None or trainer.max_epochs < 1:
        raise InvalidArgument(
            "The number of steps must be known before the first one, as the noise depends on it. Give the Trainer "
            "max_steps or max_epochs, or give PrivateTraining steps."
        )
    return int(trainer.max_epochs) * per_epoch


def _refuse_trainer(trainer: Any) -> None:
    """Raise `InvalidArgument` with all settings of the Trainer that would skip the mechanism."""
    why = [
        (
            trainer.world_size > 1 and type(trainer.strategy) is not DDPStrategy,
            f"several devices with {type(trainer.strategy).__name__}: it adds up gradients without noise, and that "
            "cannot be prevented. Use strategy='ddp'.",
        ),
        (
            trainer.accumulate_grad_batches != 1,
            "accumulate_grad_batches: every step releases one noisy gradient. Raise sampling.lot_size, and give "
            "micro_batch to use less memory.",
        ),
        (bool(trainer.gradient_clip_val), "gradient_clip_val: mechanism's clip_norm bounds each example's gradient."),
        ("mixed" in str(trainer.precision), f"precision={trainer.precision!r}: use '32-true' or 'bf16-true'."),
        (bool(trainer.overfit_batches), "overfit_batches: it replaces the data that lots are drawn from."),
    ]
    found = [text for is_wrong, text in why if is_wrong]
    if found:
        raise InvalidArgument(f"PrivateTraining cannot use these settings of the Trainer. {' '.join(found)}")


def _refuse_module(module: Any) -> None:
    """Raise `InvalidArgument` if a module overrides methods that a private step does not call."""
    base = lightning.LightningModule
    found = [name for name in _REPLACED if getattr(type(module), name, None) is not getattr(base, name)]
    if found:
        raise InvalidArgument(
            f"{type(module).__name__} overrides {', '.join(found)}, which a private step does not call: gradients come "
            "from the mechanism, and examples go to training_step as the data set gives them. Remove the override."
        )


def _describe(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
