"""PrivateTraining, with Lightning's real Trainer on a CPU."""

import logging
import math
import os
import subprocess
import sys
from pathlib import Path

import lightning
import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tacit
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.integrations.lightning import PrivateTraining

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pytestmark = [
    pytest.mark.slow,
    # Lightning's advice about the number of workers, the log folder and its own dependencies.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
SIZE = 24
SCRIPT = Path(__file__).parents[1] / "support" / "lightning_ranks.py"


class Classifier(lightning.LightningModule):
    """As people write it: a mean cross-entropy, which is logged."""

    def __init__(self, *, manual=False):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        self.automatic_optimization = not manual

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        if self.automatic_optimization:
            return loss
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return None

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", F.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


def make_data(ignored=None):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(SIZE, 4, generator=generator), torch.randint(3, (SIZE,), generator=generator)
    if ignored is not None:
        # Cross-entropy leaves such a target out, so the example's gradient is zero.
        y[ignored] = -100
    return TensorDataset(x, y)


def make_callback(*, clip_norm=1e-3, multiplier=1.0, lot_size=SIZE, population=SIZE, seed=1, **settings):
    return PrivateTraining(
        mechanism=tacit.methods.dpsgd(clip_norm=clip_norm, multiplier=multiplier),
        sampling=tacit.Poisson(lot_size=lot_size, population=population),
        seed=seed,
        **settings,
    )


def make_trainer(folder, callbacks, **settings):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    named = {"max_steps": 1, "accelerator": "cpu", "enable_checkpointing": False, **quiet, **settings}
    return lightning.Trainer(default_root_dir=folder, callbacks=callbacks, **named)


def train(folder, *, data=None, module=None, trainer=None, **settings):
    module = module or Classifier()
    before = [value.detach().clone() for value in module.parameters()]
    private = make_callback(**settings)
    loader = DataLoader(make_data() if data is None else data, batch_size=4, shuffle=True)
    make_trainer(folder, [private], **(trainer or {})).fit(module, loader)
    moved = [value.detach() - was for value, was in zip(module.parameters(), before, strict=True)]
    return torch.cat([value.flatten() for value in moved]).double(), private


@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize("index", [0, 13])
def test_one_example_moves_the_weights_by_at_most_the_clip_norm_over_the_lot_size(tmp_path, manual, index):
    with_it, _ = train(tmp_path, multiplier=1e-9, module=Classifier(manual=manual))
    without_it, _ = train(tmp_path, multiplier=1e-9, module=Classifier(manual=manual), data=make_data(ignored=index))
    # The gradient of every example is longer than the clip norm, so the bound is reached.
    assert float((with_it - without_it).norm()) == pytest.approx(1e-3 / SIZE, rel=1e-2)


def test_a_person_with_several_rows_moves_the_weights_by_at_most_as_much(tmp_path):
    people = {"unit": [row // 4 for row in range(SIZE)], "rows_per_unit": 4, "lot_size": 6, "population": 6}
    with_them, private = train(tmp_path, multiplier=1e-9, **people)
    without_them, _ = train(tmp_path, multiplier=1e-9, data=make_data(ignored=slice(8, 12)), **people)
    assert float((with_them - without_them).norm()) == pytest.approx(1e-3 / 6, rel=1e-2)
    assert private.run.guarantee().unit == "person"


@pytest.mark.parametrize("manual", [False, True])
def test_weights_get_noise_of_the_announced_scale(tmp_path, manual):
    class Wide(Classifier):
        def __init__(self, *, manual):
            super().__init__(manual=manual)
            self.layers = torch.nn.Sequential(torch.nn.Linear(4, 500), torch.nn.Tanh(), torch.nn.Linear(500, 3))
            with torch.no_grad():
                for value in self.parameters():
                    value.fill_(0.01)

    one, _ = train(tmp_path, multiplier=2.0, module=Wide(manual=manual))
    other, _ = train(tmp_path, multiplier=2.0, seed=2, module=Wide(manual=manual))
    # 4,003 independent numbers: the seeds are fixed, and other ones would fail less than once in 100,000.
    assert float((one - other).std()) == pytest.approx(math.sqrt(2) * 2.0 * 1e-3 / SIZE, rel=0.05)


def test_a_step_is_that_of_a_private_run_by_hand(tmp_path):
    settings = {"clip_norm": 0.1, "multiplier": 1.0, "lot_size": 8}
    moved, _ = train(tmp_path, trainer={"max_steps": 3}, **settings)
    module = Classifier()
    before = torch.cat([value.detach().flatten() for value in module.parameters()]).double()
    run = tacit.PrivateRun(
        module,
        F.cross_entropy,
        data=make_data(),
        mechanism=tacit.methods.dpsgd(clip_norm=0.1, multiplier=1.0),
        sampling=tacit.Poisson(lot_size=8, population=SIZE),
        steps=3,
        seed=1,
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    for lot in run:
        run.backward(lot)
        optimizer.step()
    after = torch.cat([value.detach().flatten() for value in module.parameters()]).double()
    torch.testing.assert_close(moved, after - before, rtol=1e-5, atol=1e-7)


def test_manual_and_automatic_optimization_make_the_same_steps(tmp_path):
    settings = {"trainer": {"max_steps": 3}, "lot_size": 8}
    automatic, _ = train(tmp_path, **settings)
    manual, _ = train(tmp_path, module=Classifier(manual=True), **settings)
    assert torch.equal(automatic, manual)


def test_steps_are_counted_and_cost_what_the_budget_allows(tmp_path):
    budget = tacit.Budget(epsilon=4, delta=1e-3)
    trainer = {"max_steps": -1, "max_epochs": 2}
    _, private = train(tmp_path, multiplier=None, budget=budget, lot_size=8, trainer=trainer)
    assert private.run.step == 6
    assert 3.9 < private.run.guarantee().epsilon(delta=1e-3) <= 4


def test_the_training_loss_is_dropped_and_epsilon_is_logged(tmp_path):
    private = make_callback(multiplier=None, budget=tacit.Budget(epsilon=4, delta=1e-3), lot_size=8)
    trainer = make_trainer(tmp_path, [private], max_steps=3)
    loader = DataLoader(make_data(), batch_size=8)
    trainer.fit(Classifier(), loader, loader)
    assert set(trainer.callback_metrics) == {"val_loss", "epsilon"}
    assert trainer.callback_metrics["epsilon"] <= 4


@pytest.mark.parametrize("manual", [False, True])
def test_a_seeded_run_resumes_to_the_same_weights(tmp_path, manual):
    def fit(name, steps, ckpt_path=None):
        module, private = Classifier(manual=manual), make_callback(lot_size=8, steps=6)
        saving = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path / name, save_last=True, every_n_train_steps=3)
        trainer = make_trainer(tmp_path / name, [private, saving], max_steps=steps, enable_checkpointing=True)
        trainer.fit(module, DataLoader(make_data()), ckpt_path=ckpt_path)
        assert trainer.global_step == private.run.step == steps
        return module

    whole = fit("whole", 6)
    fit("parts", 3)
    resumed = fit("parts", 6, ckpt_path=tmp_path / "parts" / "last.ckpt")
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))


def test_a_checkpoint_loads_into_the_users_own_module(tmp_path):
    module, private = Classifier(), make_callback()
    trainer = make_trainer(tmp_path, [private])
    trainer.fit(module, DataLoader(make_data()))
    trainer.save_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    loaded = Classifier.load_from_checkpoint(tmp_path / "last.ckpt")
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), loaded.parameters(), strict=True))


def test_schedules_step_as_in_ordinary_training(tmp_path):
    class Scheduled(Classifier):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    trainer = make_trainer(tmp_path, [make_callback()], max_steps=5)
    trainer.fit(Scheduled(), DataLoader(make_data()))
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.25


def test_the_module_is_given_back_as_it_was(tmp_path):
    module = Classifier()
    train(tmp_path, module=module)
    assert module.automatic_optimization
    assert "training_step" not in vars(module)
    make_trainer(tmp_path, []).fit(module, DataLoader(make_data()))


def test_a_data_set_with_a_collate_function_is_trained_on(tmp_path):
    class Rows(Dataset):
        def __len__(self):
            return SIZE

        def __getitem__(self, index):
            return {"x": torch.full((4,), float(index)), "y": index % 3}

    class ByName(Classifier):
        def training_step(self, batch, batch_idx):
            return {"loss": F.cross_entropy(self(batch["x"]), batch["y"])}

    _, private = train(tmp_path, data=Rows(), module=ByName())
    assert private.run.backend.name == "bookkeeping"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"accumulate_grad_batches": 2}, "every step releases one noisy gradient"),
        ({"gradient_clip_val": 1.0}, "clip_norm bounds each example"),
        ({"precision": "bf16-mixed"}, "bf16-true"),
        ({"overfit_batches": 1}, "replaces the data"),
    ],
)
def test_settings_that_skip_the_mechanism_are_refused(tmp_path, settings, why):
    with pytest.raises(InvalidArgument, match=why):
        train(tmp_path, trainer=settings)


def test_a_module_that_changes_the_optimizer_step_is_refused(tmp_path):
    class Own(Classifier):
        def optimizer_step(self, *args, **kwargs):
            return super().optimizer_step(*args, **kwargs)

    with pytest.raises(InvalidArgument, match="overrides optimizer_step"):
        train(tmp_path, module=Own())


def test_a_loss_over_the_lot_is_refused(tmp_path):
    class Own(Classifier):
        def training_step(self, batch, batch_idx):
            return self(batch[0]).square().mean()

    with pytest.raises(InvalidArgument, match="one loss per example"):
        train(tmp_path, module=Own())


def test_a_step_without_manual_backward_is_refused(tmp_path):
    class Own(Classifier):
        def training_step(self, batch, batch_idx):
            return F.cross_entropy(self(batch[0]), batch[1])

    with pytest.raises(OutOfOrder, match=r"did not call self\.manual_backward"):
        train(tmp_path, module=Own(manual=True))


def test_a_backward_pass_of_the_users_own_is_stopped(tmp_path):
    class Own(Classifier):
        def on_before_zero_grad(self, optimizer):
            F.cross_entropy(self(make_data().tensors[0]), make_data().tensors[1]).backward()

        def training_step(self, batch, batch_idx):
            loss = F.cross_entropy(self(batch[0]), batch[1])
            self.manual_backward(loss)
            self.on_before_zero_grad(None)

    with pytest.raises(OutOfOrder, match="gradients without noise"):
        train(tmp_path, module=Own(manual=True))


def test_training_without_a_known_number_of_steps_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="The number of steps must be known"):
        train(tmp_path, trainer={"max_steps": -1, "max_epochs": -1})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What the same script leaves, by the number of processes that Lightning starts."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[1])}
    folders = {count: tmp_path_factory.mktemp(f"ranks{count}") for count in (1, 2)}
    for count, folder in folders.items():
        command = [sys.executable, str(SCRIPT), str(count), str(folder)]
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert ended.returncode == 0, ended.stderr
    return folders


@pytest.mark.parametrize("name", ["exact-False-6", "exact-True-6", "noisy-6"])
def test_two_processes_make_the_steps_of_one(trained, name):
    alone = torch.load(trained[1] / f"{name}-0.pt")
    first, second = (torch.load(trained[2] / f"{name}-{rank}.pt") for rank in (0, 1))
    assert torch.equal(first["weights"], second["weights"])
    torch.testing.assert_close(first["weights"], alone["weights"], rtol=0, atol=1e-6)
    assert first["step"] == second["step"] == 6
    # Validation is split over the processes, and its mean is the same.
    torch.testing.assert_close(first["val_loss"], alone["val_loss"])
    assert first["guarantee"] == second["guarantee"]
    assert "Each of 2 processes held the same examples" in first["guarantee"]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_in_processes_resumes_to_the_same_weights(trained, processes):
    whole, resumed = (torch.load(trained[processes] / f"{name}-6-0.pt") for name in ("noisy", "parts"))
    assert torch.equal(whole["weights"], resumed["weights"])
    assert torch.load(trained[processes] / "parts-3-0.pt")["step"] == 3


@pytest.mark.parametrize("processes", [1, 2])
def test_a_backward_pass_of_ones_own_in_processes_is_stopped(trained, processes):
    assert "gradients without noise" in (trained[processes] / "leaks.txt").read_text()


def test_other_ways_to_use_several_devices_are_refused():
    with pytest.raises(InvalidArgument, match="Use strategy='ddp'"):
        make_callback().setup(_OnTwo(), Classifier(), "fit")


class _OnTwo:
    """A Trainer on two devices by another strategy, which cannot be started without them."""

    world_size, accumulate_grad_batches, gradient_clip_val, precision, overfit_batches = 2, 1, None, "32-true", 0
    strategy = lightning.pytorch.strategies.FSDPStrategy.__new__(lightning.pytorch.strategies.FSDPStrategy)
