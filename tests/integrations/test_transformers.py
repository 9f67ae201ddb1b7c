"""PrivateTrainer, with the real Trainer of transformers on a CPU."""

import json
import math

import peft
import pytest
import torch
from transformers import TrainerCallback, TrainingArguments

import datasets
import tacit
from support.hugging_face import add_adapter, make_batch, make_model
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.integrations.transformers import PrivateTrainer

pytestmark = [
    pytest.mark.slow,
    # Of names that transformers will drop, which it and peft still use themselves.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
SIZE = 12


def make_data(ignored=None):
    """Twelve texts. An `ignored` one has no token to predict, so that its gradient is zero."""
    batch = make_batch("gpt2", SIZE)
    if ignored is not None:
        batch["labels"][ignored] = -100
    return datasets.Dataset.from_dict({**{k: v.tolist() for k, v in batch.items()}, "text": ["unused"] * SIZE})


def make_trainer(folder, *, data=None, steps=1, lot_size=SIZE, clip_norm=1e-3, multiplier=1.0, seed=1, **settings):
    named = {"per_device_train_batch_size": 5, "learning_rate": 1.0, "optim": "sgd", "lr_scheduler_type": "constant"}
    named |= {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "dataloader_pin_memory": False}
    named |= {"max_steps": steps, "save_strategy": "no", **settings.pop("args", {})}
    kind = settings.pop("kind", PrivateTrainer)
    # Every person in every lot, where people are protected.
    people = len(set(settings.get("unit", range(SIZE))))
    model = settings.pop("model", None) or add_adapter("gpt2", make_model("gpt2", dtype=torch.float32))
    return kind(
        model,
        TrainingArguments(str(folder), **named),
        train_dataset=make_data() if data is None else data,
        mechanism=tacit.methods.dpsgd(clip_norm=clip_norm, multiplier=multiplier),
        sampling=tacit.Poisson(lot_size=lot_size, population=people),
        seed=seed,
        **settings,
    )


def train(folder, **settings):
    trainer = make_trainer(folder, **settings)
    before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    return {n: value.detach() - before[n] for n, value in trainer.model.named_parameters()}, trainer


def measure(one, other):
    return math.sqrt(sum(float((one[name] - other[name]).double().square().sum()) for name in one))


@pytest.mark.parametrize("index", [0, 7])
def test_one_text_moves_the_weights_by_at_most_the_clip_norm_over_the_lot_size(tmp_path, index):
    with_it, _ = train(tmp_path, multiplier=1e-9)
    without_it, _ = train(tmp_path, multiplier=1e-9, data=make_data(ignored=index))
    # The gradient of every text is longer than the clip norm, so the bound is reached.
    assert measure(with_it, without_it) == pytest.approx(1e-3 / SIZE, rel=1e-2)


def test_weights_get_noise_of_the_announced_scale(tmp_path):
    one, _ = train(tmp_path, multiplier=2.0, model=make_model("gpt2", dtype=torch.float32))
    other, _ = train(tmp_path, multiplier=2.0, seed=2, model=make_model("gpt2", dtype=torch.float32))
    drawn = torch.cat([(one[name] - other[name]).flatten() for name in one]).double()
    # 7,800 independent numbers: the seeds are fixed, and other ones would fail less than once in a million.
    assert float(drawn.std()) == pytest.approx(math.sqrt(2) * 2.0 * 1e-3 / SIZE, rel=0.05)


def test_only_the_adapter_is_trained(tmp_path):
    moved, _ = train(tmp_path)
    assert {name for name, value in moved.items() if value.any()} == {name for name in moved if "lora_" in name}


def test_the_micro_batch_does_not_change_the_step(tmp_path):
    calm = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    moved = [
        train(
            tmp_path,
            clip_norm=1.0,
            args={"per_device_train_batch_size": size},
            model=make_model("gpt2", dtype=torch.float32, **calm),
        )[0]
        for size in (2, 50)
    ]
    assert measure(*moved) <= 1e-5


def test_steps_are_counted_and_cost_what_the_budget_allows(tmp_path):
    _, trainer = train(tmp_path, steps=6, lot_size=3, multiplier=None, budget=tacit.Budget(epsilon=4, delta=1e-3))
    assert trainer.run.step == 6
    assert 3.9 < trainer.run.guarantee().epsilon(delta=1e-3) <= 4


def test_epochs_are_counted_by_the_declared_population(tmp_path):
    trainer = make_trainer(tmp_path, lot_size=3, args={"max_steps": -1, "num_train_epochs": 2.5})
    assert trainer.run.steps == 10


def test_the_training_loss_is_not_logged_and_epsilon_is(tmp_path):
    settings = {"budget": tacit.Budget(epsilon=4, delta=1e-3), "multiplier": None, "steps": 2, "lot_size": 3}
    trainer = make_trainer(tmp_path, args={"logging_steps": 1}, **settings)
    output = trainer.train()
    assert math.isnan(output.training_loss)
    assert not any("loss" in name for entry in trainer.state.log_history for name in entry)
    assert trainer.state.log_history[1]["epsilon"] <= 4


def test_evaluation_gives_the_loss_of_the_evaluation_data(tmp_path):
    settings = {"eval_dataset": make_data(), "steps": 2}
    trainer = make_trainer(tmp_path, args={"eval_strategy": "steps", "eval_steps": 1}, **settings)
    trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(losses) == 2
    assert losses[-1] == pytest.approx(trainer.evaluate()["eval_loss"], rel=1e-5)


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.step


def test_a_seeded_run_resumes_to_the_same_weights(tmp_path):
    settings = {"steps": 6, "lot_size": 3}
    args = {"save_strategy": "steps", "save_steps": 3, "save_total_limit": 1, "lr_scheduler_type": "linear"}
    _, whole = train(tmp_path / "whole", args=args, **settings)
    train(tmp_path / "parts", args=args, callbacks=[StopAt(3)], **settings)
    resumed = make_trainer(tmp_path / "parts", args=args, **settings)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.run.step == 6
    pairs = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_checkpoint_holds_the_guarantee(tmp_path):
    train(tmp_path, args={"save_strategy": "steps", "save_steps": 1})
    assert json.loads((tmp_path / "checkpoint-1" / "tacit" / "guarantee.json").read_text())


def test_a_checkpoint_of_an_ordinary_trainer_is_refused(tmp_path):
    (tmp_path / "checkpoint-1").mkdir()
    with pytest.raises(InvalidArgument, match="holds no private run"):
        make_trainer(tmp_path).train(resume_from_checkpoint=True)


def test_the_saved_adapter_loads_with_peft_and_merges(tmp_path):
    _, trainer = train(tmp_path, clip_norm=1.0)
    trainer.save_model(str(tmp_path / "adapter"))
    loaded = peft.PeftModel.from_pretrained(make_model("gpt2", dtype=torch.float32), str(tmp_path / "adapter")).eval()
    inputs = {name: value for name, value in make_batch("gpt2").items() if name != "labels"}
    expected = trainer.model.eval()(**inputs).logits
    torch.testing.assert_close(loaded(**inputs).logits, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loaded.merge_and_unload()(**inputs).logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"gradient_accumulation_steps": 2}, "Raise sampling.lot_size"),
        ({"train_sampling_strategy": "group_by_length"}, "lots are Poisson samples"),
        ({"dataloader_drop_last": True}, "not a Poisson sample"),
        ({"label_smoothing_factor": 0.1}, "averages it over all tokens"),
        ({"neftune_noise_alpha": 5.0}, "hook on the embeddings"),
        ({"auto_find_batch_size": True}, "starts training again"),
        ({"include_num_input_tokens_seen": "all"}, "is private"),
        ({"bf16": True}, "dtype=torch.bfloat16"),
    ],
)
def test_arguments_that_break_the_guarantee_are_refused_with_the_reason(tmp_path, args, why):
    with pytest.raises(InvalidArgument, match=why):
        make_trainer(tmp_path, args=args)


def test_a_model_chosen_by_evaluation_is_refused(tmp_path):
    args = {"load_best_model_at_end": True, "save_strategy": "steps", "eval_strategy": "steps"}
    with pytest.raises(InvalidArgument, match="chooses a model by scores"):
        make_trainer(tmp_path, args={**args, "save_steps": 1, "eval_steps": 1})


def test_a_trainer_with_its_own_loss_is_refused(tmp_path):
    class Own(PrivateTrainer):
        def compute_loss(self, *args, **kwargs):
            return super().compute_loss(*args, **kwargs)

    with pytest.raises(InvalidArgument, match="Own overrides compute_loss"):
        make_trainer(tmp_path, kind=Own)


def test_a_callback_that_adds_a_gradient_without_noise_is_stopped(tmp_path):
    class Cheat(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            model(**make_batch("gpt2")).loss.backward()

    with pytest.raises(OutOfOrder, match="gradients without noise"):
        make_trainer(tmp_path, callbacks=[Cheat()]).train()


def test_a_callback_that_replaces_the_gradient_is_stopped(tmp_path):
    class Cheat(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.grad = torch.ones_like(parameter)

    with pytest.raises(OutOfOrder, match="did not write"):
        make_trainer(tmp_path, callbacks=[Cheat()]).train()


def test_texts_of_different_lengths_are_refused_with_advice(tmp_path):
    data = datasets.Dataset.from_dict({"input_ids": [[3, 4, 5], [6, 7]], "labels": [[3, 4, 5], [6, 7]]})
    with pytest.raises(InvalidArgument, match="Pad or cut all to one length"):
        make_trainer(tmp_path, data=data, steps=3).train()


def test_people_with_several_texts_are_protected(tmp_path):
    owners = [0, 0, 0, 1, 1, 2, 3, 4, 5, 5, 6, 6]
    settings = {"unit": owners, "rows_per_unit": 3, "multiplier": 1e-9, "lot_size": 7}
    with_them, trainer = train(tmp_path, **settings)
    without_them, _ = train(tmp_path, **settings, data=make_data(ignored=slice(0, 3)))
    # The three texts of the first person together move the weights by no more than one clip norm over the lot size.
    assert measure(with_them, without_them) == pytest.approx(1e-3 / 7, rel=1e-2)
    assert trainer.run.guarantee().unit == "person"
