"""PrivateTrainer: the Trainer of Hugging Face, with Poisson lots and noisy gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from tacit.budget import Budget
from tacit.errors import InvalidArgument
from tacit.gradients.losses import Loss
from tacit.ledger import Ledger
from tacit.stages.mechanism import Mechanism
from tacit.training.lots import Lot
from tacit.training.plan import Schedule
from tacit.training.run import PrivateRun
from tacit.types import Sampling

# The folder of the private run inside each checkpoint of the Trainer.
_FOLDER = "tacit"

# Arguments that would break the guarantee, or that lots replace: what to have in their place, and why.
_REFUSED: dict[str, tuple[Any, str]] = {
    "gradient_accumulation_steps": (
        1, "every step releases one noisy gradient. Raise sampling.lot_size: per_device_train_batch_size bounds how "
        "many examples go through the model at once."
    ),
    "train_sampling_strategy": ("random", "lots are Poisson samples; examples are not grouped or ordered."),
    "dataloader_drop_last": (False, "a lot that is left out is not a Poisson sample."),
    "label_smoothing_factor": (0.0, "the Trainer averages it over all tokens of a batch. Write it into loss=..."),
    "neftune_noise_alpha": (None, "its hook on the embeddings changes the model during training only."),
    "auto_find_batch_size": (False, "it starts training again when memory runs out, and that is not counted."),
    "include_num_input_tokens_seen": ("no", "the number of tokens of a lot is private."),
    "load_best_model_at_end": (False, "it chooses a model by scores on eval_dataset, and that is not counted."),
    "use_liger_kernel": (False, "its losses average over all tokens of a batch."),
    "torch_compile": (False, "gradients of single examples need the operations that the compiler joins."),
    "fp16": (False, "gradients must not overflow. Load the model in bfloat16 or single precision."),
    "bf16": (False, "the Trainer casts inside the model. Load the model with dtype=torch.bfloat16."),
    "deepspeed": (None, "it computes gradients out of sight."),
}  # fmt: skip
# Optimizers that change weights during the backward pass.
_FUSED = ("lomo", "adalomo")


class PrivateTrainer(Trainer):  # type: ignore[misc]
    """A Trainer that trains privately: Poisson lots, gradients clipped per example, noise, and every step counted.

    `mechanism`, `sampling`, `budget`, `schedule`, `ledger`, `dataset`, `unit` and `rows_per_unit` are those of
    `PrivateRun`; `loss` too, by default the model's own, for each example alone. `args.max_steps`, or
    `args.num_train_epochs` times population over lot size, is the number of steps; `args.per_device_train_batch_size`
    is the micro-batch. The data collator is called for one example at a time. Arguments that would break the guarantee
    are refused, with the reason. `max_grad_norm` is not used: `clip_norm` bounds each example's gradient. The training
    loss is private, so it is not logged; logs hold the epsilon spent so far where a `budget` says for which delta.
    Checkpoints hold the private run, and
    `train(resume_from_checkpoint=...)` goes on with it. `seed` makes noise and lots reproducible, for tests only;
    `args.seed` never does.
    """

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        *,
        train_dataset: Any,
        mechanism: Mechanism,
        sampling: Sampling,
        budget: Budget | None = None,
        loss: Loss | Literal["model"] = "model",
        schedule: Schedule | None = None,
        seed: int | None = None,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        unit: Any = None,
        rows_per_unit: int | None = None,
        **settings: Any,
    ) -> None:
        _refuse_arguments(args)
        _refuse_settings(type(self), settings)
        super().__init__(model, args, train_dataset=train_dataset, **settings)
        args.max_grad_norm, args.ignore_data_skip = 0.0, True
        self._lots_per_epoch = max(1, round(sampling.population / sampling.lot_size))
        if args.max_steps <= 0:
            args.max_steps = math.ceil(args.num_train_epochs * self._lots_per_epoch)
        self._budget, self._loss_given = budget, loss
        self._given: dict[str, Any] = {"ledger": ledger, "dataset": dataset, "unit": unit}
        self.run = PrivateRun(
            self.model,
            loss,
            data=self._list_examples(),
            mechanism=mechanism,
            sampling=sampling,
            steps=args.max_steps,
            budget=budget,
            schedule=schedule,
            micro_batch=args.per_device_train_batch_size,
            seed=seed,
            rows_per_unit=rows_per_unit,
            **self._given,
        )
        self._lots = iter(self.run)

    def _list_examples(self) -> DataLoader[Any]:
        """The examples of the data set with the columns that the model takes, one at a time through the collator."""
        dataset, collator = self.train_dataset, self.data_collator
        if hasattr(dataset, "column_names"):
            dataset = self._remove_unused_columns(dataset, description="training")
        else:
            collator = self._get_collator_with_removed_columns(collator, description="training")
        return DataLoader(dataset, batch_size=1, collate_fn=collator, num_workers=self.args.dataloader_num_workers)

    def train(self, resume_from_checkpoint: str | bool | None = None, **settings: Any) -> Any:
        """Train privately. After a crash, steps begun after the checkpoint are charged as `PrivateRun.resume` says."""
        if settings.get("trial") is not None:
            raise InvalidArgument("A search over hyperparameters is not counted. Use tacit.tune, or fix them.")
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise InvalidArgument(f"{self.args.output_dir} holds no checkpoint to resume from.")
        if isinstance(resume_from_checkpoint, str):
            self._resume(Path(resume_from_checkpoint) / _FOLDER)
        output = super().train(resume_from_checkpoint=resume_from_checkpoint or None, **settings)
        metrics = {name: value for name, value in output.metrics.items() if name != "train_loss"}
        return output._replace(training_loss=math.nan, metrics=metrics)

    def _resume(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InvalidArgument(
                f"{folder.parent} holds no private run: {_FOLDER}/ is missing. Resume from a checkpoint that a "
                "PrivateTrainer wrote."
            )
        examples = self._list_examples()
        self.run = PrivateRun.resume(folder, self.model, self._loss_given, data=examples, **self._given)
        self.args.max_steps = self.run.steps
        self._lots = iter(self.run)

    def hyperparameter_search(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: training many times on the same data costs more than once."""
        raise InvalidArgument("A search over hyperparameters is not counted. Use tacit.tune, or fix them.")

    def get_train_dataloader(self) -> Any:
        """The lots of the private run."""
        return _Lots(self._lots, self._lots_per_epoch, int(self.run.sampling.population))

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Put the noisy gradient of a lot into p.grad. The loss is private, so a zero stands for it."""
        if not isinstance(inputs, Lot):
            raise InvalidArgument(f"PrivateTrainer trains on lots of its own. Got {type(inputs).__name__}.")
        model.train()
        self.run.backward(inputs)
        return torch.zeros((), device=self.args.device)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log everything but the training loss, and the epsilon spent so far."""
        shown = {name: value for name, value in logs.items() if name not in ("loss", "train_loss")}
        if self._budget is not None and "learning_rate" in logs:
            shown["epsilon"] = self.run.guarantee().epsilon(self._budget.delta)
        super().log(shown, *args, **kwargs)

    def floating_point_ops(self, inputs: Any) -> int:
        """Zero: their number tells how large the lot is."""
        return 0 if isinstance(inputs, Lot) else int(super().floating_point_ops(inputs))

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> None:
        return None

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        # First, because the Trainer then deletes old checkpoints, in one of which the run notes its steps until now.
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}" / _FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self.run.save(folder)
        super()._save_checkpoint(model, trial)


class _Lots:
    """Lots as the Trainer takes a loader: an epoch is as many lots as have the size of the population on average."""

    def __init__(self, lots: Iterator[Lot], per_epoch: int, population: int) -> None:
        self._lots, self._per_epoch = lots, per_epoch
        # For the Trainer's summary, which says how many examples there are: the declared number.
        self.dataset = range(population)

    def __len__(self) -> int:
        return self._per_epoch

    def __iter__(self) -> Iterator[Lot]:
        return islice(self._lots, self._per_epoch)


def _refuse_arguments(args: TrainingArguments) -> None:
    """Raise `InvalidArgument` with all arguments that would break the guarantee."""
    found = []
    for name, (allowed, why) in _REFUSED.items():
        value = getattr(args, name, allowed)
        value = getattr(value, "value", value)
        if value != allowed and not (value in (None, False) and allowed in (None, False)):
            found.append(f"{name}={value!r}: {why}")
    if args.fsdp:
        found.append("fsdp: it splits parameters, whose gradients are then computed out of sight.")
    if args.n_gpu > 1 or args.world_size > 1:
        found.append("several devices: the Trainer averages gradients over them before noise is added. Use one.")
    if str(getattr(args.optim, "value", args.optim)) in _FUSED or args.optim_target_modules:
        found.append(f"optim={args.optim!r}: it changes weights during the backward pass, before noise is added.")
    if str(getattr(args.save_strategy, "value", args.save_strategy)) == "best":
        found.append("save_strategy='best': it chooses by scores on eval_dataset, and that is not counted.")
    if found:
        raise InvalidArgument(f"PrivateTrainer cannot use these arguments. {' '.join(found)}")


def _refuse_settings(kind: type[PrivateTrainer], settings: dict[str, Any]) -> None:
    why: dict[str, str] = {
        "compute_loss_func": "give a function of (outputs, targets) that returns one loss per example as loss=...",
        "model_init": "give the model itself; training it several times is not counted.",
    }
    for name, instead in why.items():
        if settings.get(name) is not None:
            raise InvalidArgument(f"PrivateTrainer takes no {name}: {instead}")
    names = ("compute_loss", "training_step")
    changed = [name for name in names if getattr(kind, name) is not getattr(PrivateTrainer, name)]
    if changed:
        raise InvalidArgument(
            f"{kind.__name__} overrides {' and '.join(changed)}, which the private step does not call, or replaces. "
            "Give a function of (outputs, targets) that returns one loss per example as loss=..."
        )
