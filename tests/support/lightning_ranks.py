"""Trains by Lightning in as many processes as the first argument says, in the folder that the second one names.

Every process writes its weights, steps and guarantee after training, stopping in the middle and resuming.
"""

import logging
import sys
import warnings
from pathlib import Path

import lightning
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

import tacit
from tacit.errors import OutOfOrder
from tacit.integrations.lightning import PrivateTraining

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
SIZE, STEPS, CLIP_NORM = 24, 6, 0.1


class Classifier(lightning.LightningModule):
    """A mean cross-entropy, by hand or not; `leaks` makes a backward pass of its own after the private one."""

    def __init__(self, *, manual=False, leaks=False):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        self.automatic_optimization, self.leaks = not manual, leaks

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.layers(batch[0]), batch[1])
        if self.automatic_optimization:
            return loss
        optimizer = self.optimizers()
        self.manual_backward(loss)
        if self.leaks:
            F.cross_entropy(self.layers(torch.ones(5, 4)), torch.zeros(5, dtype=torch.int64)).backward()
        optimizer.step()
        return None

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", F.cross_entropy(self.layers(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


def fit(module, name, steps, *, multiplier=1e-9, lot_size=SIZE, ckpt_path=None):
    """A trained module with its private run; `name` is its folder."""
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(SIZE, 4, generator=generator), torch.randint(3, (SIZE,), generator=generator))
    private = PrivateTraining(
        mechanism=tacit.methods.dpsgd(clip_norm=CLIP_NORM, multiplier=multiplier),
        sampling=tacit.Poisson(lot_size=lot_size, population=SIZE),
        steps=STEPS,
        seed=1,
    )
    saving = ModelCheckpoint(FOLDER / name, save_last=True, every_n_train_steps=3)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=PROCESSES,
        strategy="ddp" if PROCESSES > 1 else "auto",
        max_steps=steps,
        callbacks=[private, saving],
        default_root_dir=FOLDER / name,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(module, DataLoader(data, batch_size=4, shuffle=True), DataLoader(data), ckpt_path=ckpt_path)
    weights = torch.cat([value.detach().flatten() for value in module.parameters()])
    found = {"weights": weights, "step": private.run.step, "guarantee": str(private.run.guarantee())}
    rank = trainer.global_rank
    torch.save(found | {"val_loss": trainer.callback_metrics["val_loss"]}, FOLDER / f"{name}-{steps}-{rank}.pt")


if __name__ == "__main__":
    PROCESSES, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
    for manual in (False, True):
        fit(Classifier(manual=manual), f"exact-{manual}", STEPS)
    fit(Classifier(), "noisy", STEPS, multiplier=5.0, lot_size=8)
    fit(Classifier(), "parts", 3, multiplier=5.0, lot_size=8)
    fit(Classifier(), "parts", STEPS, multiplier=5.0, lot_size=8, ckpt_path=FOLDER / "parts" / "last.ckpt")
    try:
        fit(Classifier(manual=True, leaks=True), "leaks", STEPS)
    except OutOfOrder as error:
        (FOLDER / "leaks.txt").write_text(str(error))
