"""Small models of Hugging Face from configurations, with random weights, and examples for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import peft
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

WORDS = 48

_LLAMA = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 32, "pad_token_id": 0, "num_labels": 3, "vocab_size": WORDS,
}  # fmt: skip
_BERT = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 3,
}  # fmt: skip


def _gpt2(**options: Any) -> Any:
    return transformers.GPT2Config(
        vocab_size=WORDS, n_embd=16, n_layer=2, n_head=2, n_positions=32, num_labels=3,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, **options,
    )  # fmt: skip


def _bert(**options: Any) -> Any:
    return transformers.BertConfig(vocab_size=WORDS, max_position_embeddings=32, **_BERT, **options)


def _distilbert(**options: Any) -> Any:
    sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
    return transformers.DistilBertConfig(vocab_size=WORDS, max_position_embeddings=32, num_labels=3, **sizes, **options)


def _t5(**options: Any) -> Any:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    return transformers.T5Config(vocab_size=WORDS, decoder_start_token_id=0, **sizes, **options)


# By name: the class, its configuration, and the layers that adapters change.
MODELS: dict[str, tuple[str, Callable[..., Any], list[str]]] = {
    "gpt2": ("GPT2LMHeadModel", _gpt2, ["c_attn"]),
    "gpt2-class": ("GPT2ForSequenceClassification", _gpt2, ["c_attn"]),
    "llama": ("LlamaForCausalLM", lambda **k: transformers.LlamaConfig(**_LLAMA, **k), ["q_proj", "v_proj"]),
    "mistral": (
        "MistralForCausalLM", lambda **k: transformers.MistralConfig(sliding_window=4, **_LLAMA, **k),
        ["q_proj", "v_proj"],
    ),
    "bert": ("BertForSequenceClassification", _bert, ["query", "value"]),
    "bert-token": ("BertForTokenClassification", _bert, ["query", "value"]),
    "distilbert": ("DistilBertForSequenceClassification", _distilbert, ["q_lin", "v_lin"]),
    "roberta": (
        "RobertaForSequenceClassification",
        lambda **k: transformers.RobertaConfig(vocab_size=WORDS, max_position_embeddings=40, **_BERT, **k),
        ["query", "value"],
    ),
    "vit": (
        "ViTForImageClassification", lambda **k: transformers.ViTConfig(image_size=8, patch_size=4, **_BERT, **k),
        ["q_proj", "v_proj"],
    ),
    "t5": ("T5ForConditionalGeneration", _t5, ["q", "v"]),
}  # fmt: skip


def make_model(name: str, *, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    """A model as transformers makes it, with weights large enough that no gradient is tiny; without dropout."""
    kind, configure, _ = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, kind)(configure(**options)).to(dtype).eval()
    return _draw_weights(model)


def add_adapter(name: str, model: Any, config: Any = None) -> Any:
    """The model with an adapter of peft, LoRA by default, whose weights are drawn too."""
    config = config or peft.LoraConfig(r=2, target_modules=MODELS[name][2])
    with warnings.catch_warnings():
        # Of names that transformers will drop, and of settings that peft corrects by itself.
        warnings.simplefilter("ignore")
        adapted = peft.get_peft_model(model, config).to(next(model.parameters()).dtype).eval()
    return _draw_weights(adapted)


def _draw_weights(model: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def make_batch(name: str, size: int = 5, *, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Named inputs and labels: texts of different lengths, padded to nine tokens, with their masks."""
    generator = torch.Generator().manual_seed(1)
    if name == "vit":
        images = torch.randn(size, 3, 8, 8, generator=generator, dtype=torch.float64).to(dtype)
        return {"pixel_values": images, "labels": torch.randint(3, (size,), generator=generator)}
    words = torch.randint(3, WORDS, (size, 9), generator=generator)
    mask = (torch.arange(9) < 9 - torch.arange(size)[:, None] % 4).long()
    words = torch.where(mask == 1, words, 1 if name == "roberta" else 0)
    ignored = torch.tensor(-100)
    if name in ("gpt2", "llama", "mistral"):
        labels = torch.where(mask == 1, words, ignored)
    elif name == "bert-token":
        labels = torch.where(mask == 1, torch.randint(3, mask.shape, generator=generator), ignored)
    elif name == "t5":
        labels = torch.randint(3, WORDS, (size, 5), generator=generator)
        labels[0, 3:] = -100
    else:
        labels = torch.randint(3, (size,), generator=generator)
    return {"input_ids": words, "attention_mask": mask, "labels": labels}


def differentiate_alone(model: nn.Module, batch: dict[str, Tensor], *, is_next: bool) -> list[dict[str, Tensor]]:
    """Each example's gradients of its mean cross-entropy, by torch alone: the model is given one example at a time.

    Not by the loss that transformers returns, which it computes in single precision. `is_next` for next tokens.
    """
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    found = []
    for index in range(len(batch["labels"])):
        one = {name: value[index : index + 1] for name, value in batch.items()}
        labels, scores = one["labels"][0], model(**one).logits[0]
        if is_next:
            # Learned prompts come before the tokens: the last of them predicts the first token.
            padded = torch.cat([labels.new_full((len(scores) - len(labels),), -100), labels])
            scores, labels = scores[:-1], padded[1:]
        grads = torch.autograd.grad(F.cross_entropy(scores, labels), list(parameters.values()), allow_unused=True)
        pairs = zip(parameters.items(), grads, strict=True)
        found.append({n: torch.zeros_like(value) if grad is None else grad for (n, value), grad in pairs})
    return found
