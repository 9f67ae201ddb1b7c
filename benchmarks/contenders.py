"""What is compared: a step of ordinary training, of tacit and of Opacus, as each of them has its users write it.

Each gets every lot as new tensors, as from a data loader; making them is off the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

if TYPE_CHECKING:
    from tacit.stages.mechanism import Mechanism

LEARNING_RATE, CLIP_NORM, MULTIPLIER = 0.01, 1.0, 1.0
# More steps than will ever be taken: a run refuses to take more than were planned.
PLANNED = 10_000

# Takes one step, and says how much processor time it took.
Step = Callable[[], float]


def ordinary(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    """PyTorch without privacy."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def step() -> float:
        lot, wanted = inputs.clone(), targets.clone()
        start = time.process_time()
        optimizer.zero_grad()
        cross_entropy(model(lot), wanted).backward()
        optimizer.step()
        return time.process_time() - start

    return step


def by_tacit(make: Callable[[], Mechanism]) -> Callable[[nn.Module, Tensor, Tensor], Step]:
    """A run whose every lot is the whole of its data."""

    def prepare(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
        from tacit import FullBatch, PrivateRun

        run = PrivateRun(
            model,
            cross_entropy,
            data=(inputs, targets),
            mechanism=make(),
            sampling=FullBatch(len(inputs)),
            steps=PLANNED,
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        lots = iter(run)

        def step() -> float:
            lot = next(lots)
            start = time.process_time()
            run.backward(lot)
            optimizer.step()
            return time.process_time() - start

        return step

    return prepare


def dpsgd() -> Mechanism:
    """The method that ordinary training is compared with."""
    from tacit import methods

    return methods.dpsgd(CLIP_NORM, MULTIPLIER)


def by_opacus(mode: str) -> Callable[[nn.Module, Tensor, Tensor], Step]:
    """Opacus as its engine sets it up; layers that it refuses are replaced by its own."""

    def prepare(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
        from opacus import PrivacyEngine
        from opacus.validators import ModuleValidator

        if not ModuleValidator.is_valid(model):
            model = ModuleValidator.fix(model)
        data = torch.utils.data.TensorDataset(inputs, targets)
        made = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
            criterion=nn.CrossEntropyLoss(),
            data_loader=torch.utils.data.DataLoader(data, batch_size=len(inputs)),
            noise_multiplier=MULTIPLIER,
            max_grad_norm=CLIP_NORM,
            poisson_sampling=False,
            grad_sample_mode=mode,
        )
        private, optimizer = made[0], made[1]
        criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()

        def step() -> float:
            lot, wanted = inputs.clone(), targets.clone()
            start = time.process_time()
            optimizer.zero_grad()
            criterion(private(lot), wanted).backward()
            optimizer.step()
            return time.process_time() - start

        return step

    return prepare


CONTENDERS = {
    "ordinary": ordinary,
    "tacit": by_tacit(dpsgd),
    "Opacus hooks": by_opacus("hooks"),
    "Opacus ghost": by_opacus("ghost"),
}
PEERS = [name for name in CONTENDERS if name.startswith("Opacus")]
