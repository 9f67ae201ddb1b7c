"""Per-example gradients of other people's architectures, beside single passes: `make outside` writes OUTSIDE.md.

    python benchmarks/architectures.py
    python benchmarks/architectures.py --only bert gpt2   # some of them, printed

Every model is built tiny from its package's own configuration, with random weights, in float64. Its per-example
gradients must equal those of passes on single examples. A model may be refused only if another example really changes
an example's gradient, or stays in the model, which is measured here without tacit. Packages that are not
installed are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from results import environment, show_table, write_section
from tacit.errors import InvalidArgument, MixesExamples
from tacit.gradients import per_example_gradients, replace_batch_norm

PAGE = Path(__file__).with_name("OUTSIDE.md")
COLUMNS = ["architecture", "package", "backend used", "relative error", "verdict"]
PACKAGES = ("transformers", "timm", "torchvision")
EXACT, REFUSED, NEEDLESS, FAILED = "exact", "refused, rightly", "refused without need", "FAILED"
# Why a model is refused although its examples never meet. A refusal costs accuracy, never privacy.
NEEDLESS_WHY = {
    "TapasForSequenceClassification": "it numbers the cells of its tables by the example's place in the lot, and "
    "averages embeddings by these numbers. No two examples share a number, but a number that depends on the place "
    "cannot be told from a feature that does",
}
# Both ways add the same numbers in another order.
MOST = 1e-8
# What numbers of single precision inside of a model can make of it; then it is judged with all numbers in double.
_SINGLE = 1e-3
EXAMPLES, WORDS, LENGTH, CLASSES, LONGEST = 4, 48, 8, 3, 60

Loss = Callable[[Any, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """A model with a lot to run on."""

    model: nn.Module
    inputs: dict[str, Tensor] | Tensor
    targets: Tensor
    loss: Loss


@dataclass(frozen=True)
class Architecture:
    """One architecture, and how a tiny model of it is made."""

    name: str
    package: str
    make: Callable[[], Case]


# ---- losses: one number an example, the mean over the lot -----------------------------------------------------------


def _scores(outputs: Any) -> Tensor:
    if isinstance(outputs, Tensor):
        return outputs
    found = getattr(outputs, "logits", None)
    if found is None:
        found = outputs[0]
    return found


def lose_class(outputs: Any, targets: Tensor) -> Tensor:
    """Cross-entropy of one class an example."""
    return F.cross_entropy(_scores(outputs), targets, reduction="none")


def lose_next(outputs: Any, targets: Tensor) -> Tensor:
    """Cross-entropy of the next token."""
    scores = _scores(outputs)[:, : targets.shape[1]]
    return F.cross_entropy(scores[:, :-1].transpose(1, 2), targets[:, 1:], reduction="none").mean(1)


# ---- transformers ---------------------------------------------------------------------------------------------------

# Sizes by the names that configurations give them. One that a configuration does not have is left out.
SMALL: dict[str, Any] = {
    **dict.fromkeys(
        ["hidden_size", "d_model", "n_embd", "dim", "embed_dim", "embedding_size", "emb_dim", "word_embed_proj_dim",
         "d_embed", "hidden_dim", "intermediate_size", "ffn_dim", "d_ff", "n_inner", "encoder_ffn_dim",
         "decoder_ffn_dim", "d_inner", "ffn_hidden_size", "ffn_config", "model_dim", "projection_dim", "proj_size",
         "moe_intermediate_size", "shared_expert_intermediate_size", "ffw_dim", "lru_width", "attention_hidden_size",
         "block_dim", "classifier_proj_size", "decoder_hidden_size", "encoder_hidden_size", "true_hidden_size"],
        32,
    ),
    **dict.fromkeys(
        ["num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "depth",
         "num_decoder_layers", "num_encoder_layers", "num_attention_heads", "n_head", "n_heads", "num_heads",
         "encoder_attention_heads", "decoder_attention_heads", "num_encoder_attention_heads",
         "num_decoder_attention_heads", "num_key_value_heads", "num_kv_heads", "encoder_num_heads"],
        2,
    ),
    **dict.fromkeys(["head_dim", "d_kv", "d_head", "attention_head_size", "qk_nope_head_dim", "v_head_dim"], 16),
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"], 4),
    **dict.fromkeys(["num_experts_per_tok", "moe_k", "n_group", "topk_group", "num_experts_per_token"], 2),
    **dict.fromkeys(["q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "state_size", "mamba_d_state"], 8),
    **dict.fromkeys(["vocab_size", "vocabulary_size", "n_vocab"], WORDS),
    **dict.fromkeys(["max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length"], 64),
    **dict.fromkeys(["pad_token_id"], 0),
    **dict.fromkeys(["bos_token_id", "decoder_start_token_id", "cls_token_id"], 1),
    **dict.fromkeys(["eos_token_id", "sep_token_id"], 2),
    "image_size": 32, "patch_size": 8, "num_channels": 3, "first_k_dense_replace": 1, "num_labels": CLASSES,
    "vocab_size_per_layer_input": WORDS, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0,
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "conv_dim": (16, 16), "conv_stride": (4, 2),
    "conv_kernel": (8, 4), "num_feat_extract_layers": 2, "max_source_positions": 64, "max_length": 64,
    "num_mel_bins": 16, "tdnn_dim": (16, 16), "tdnn_kernel": (3, 1), "tdnn_dilation": (1, 1),
    "depths": [1, 1], "hidden_sizes": [16, 32], "embedding_sizes": 16, "rotary_dim": 8,
}  # fmt: skip


# Sizes that this kind of model must have otherwise.
OWN_SIZES: dict[str, dict[str, Any]] = {
    "AXK1": {"head_dim": None},
    "axk1": {"head_dim": None},
    "bit": {"embedding_size": 32, "hidden_sizes": [32, 32], "depths": [1, 1]},
    "ctrl": {"dff": 32},
    "cvt": {"embed_dim": [16, 32, 32], "num_heads": [1, 2, 2], "depth": [1, 1, 1]},
    "deepseek_v3": {"head_dim": None},
    "dinat": {"num_heads": [2, 2], "depths": [1, 1], "dilations": [[1], [1]]},
    "donut-swin": {"num_heads": [2, 2], "depths": [1, 1], "window_size": 2},
    "focalnet": {"focal_levels": [1, 1], "focal_windows": [3, 3]},
    "funnel": {"block_sizes": [1, 1], "num_hidden_layers": None},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "maskformer-swin": {"num_heads": [2, 2], "depths": [1, 1], "window_size": 2},
    "mobilevit": {"image_size": 64, "hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8] * 7, "patch_size": 2},
    "poolformer": {"depths": [1] * 4, "hidden_sizes": [16] * 4},
    "pvt": {"num_attention_heads": [1, 1, 2, 2], "depths": [1] * 4, "hidden_sizes": [16] * 4},
    "pvt_v2": {"num_attention_heads": [1, 1, 2, 2], "depths": [1] * 4, "hidden_sizes": [16] * 4},
    "regnet": {"groups_width": 8},
    "segformer": {"num_attention_heads": [1, 1, 2, 2], "depths": [1] * 4, "hidden_sizes": [16] * 4},
    "swin": {"num_heads": [2, 2], "depths": [1, 1], "window_size": 2, "patch_size": 4},
    "swinv2": {"num_heads": [2, 2], "depths": [1, 1], "window_size": 2, "patch_size": 4},
    "timesformer": {"num_frames": 2},
    "videomae": {"num_frames": 2},
    "vivit": {"num_frames": 2, "tubelet_size": [2, 8, 8]},
    "mobilebert": {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "t5": {"decoder_start_token_id": 1},
    "xmod": {"default_language": "en_XX"},
    "xlnet": {"max_position_embeddings": None},
}


def shrink(kind: type, name: str = "") -> Any:
    """A configuration with all of its sizes small; configurations inside of it too."""
    plain = kind()
    wanted = {**SMALL, **OWN_SIZES.get(name, {})}
    chosen = {key: value for key, value in wanted.items() if hasattr(plain, key) and _can_be_set(kind, key)}
    chosen = {key: value for key, value in (chosen | OWN_SIZES.get(name, {})).items() if value is not None}
    for inner in getattr(kind, "sub_configs", {}):
        held = getattr(plain, inner, None)
        if held is not None:
            chosen[inner] = shrink(type(held))
    return kind(**chosen)


def _can_be_set(kind: type, key: str) -> bool:
    found = getattr(kind, key, None)
    return not isinstance(found, property) or found.fset is not None


def list_transformers() -> Iterator[Architecture]:
    """A classifier of texts, pictures, sounds or films of every kind in transformers, and other language models."""
    import transformers
    from transformers.models.auto import modeling_auto

    transformers.logging.set_verbosity_error()
    seen: set[str] = set()
    for task in ("SEQUENCE_CLASSIFICATION", "IMAGE_CLASSIFICATION", "AUDIO_CLASSIFICATION", "VIDEO_CLASSIFICATION",
                 "CAUSAL_LM"):  # fmt: skip
        for kind, found in getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES").items():
            name = found if isinstance(found, str) else found[0]
            if kind not in LEFT_OUT and not {kind, name} & seen:
                seen |= {kind, name}
                is_next = task == "CAUSAL_LM"
                yield Architecture(name, "transformers", partial(make_transformer, kind, name, is_next=is_next))


# Wrappers of other packages' models.
LEFT_OUT = {"timm_wrapper"}


def make_transformer(kind: str, name: str, *, is_next: bool) -> Case:
    """A tiny model of this class, with inputs as its kind takes them."""
    import transformers

    configuration = shrink(transformers.CONFIG_MAPPING[kind], kind)
    # Experts in groups are for single precision only, and keys and values for later tokens are not needed.
    configuration.use_cache = False
    for each in (configuration, *(vars(configuration).get(inner) for inner in configuration.sub_configs)):
        if each is not None:
            each._experts_implementation = "eager"
    made = getattr(transformers, name)
    with torch.device("meta"):
        _refuse_large(made(configuration))
    model = prepare(made(configuration))
    inputs, targets = _make_inputs(model, kind, name, is_next=is_next)
    return Case(model, inputs, targets, lose_next if is_next else lose_class)


def _make_inputs(model: Any, kind: str, name: str, *, is_next: bool) -> tuple[dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(EXAMPLES, *shape, generator=generator, dtype=torch.float64)

    classes = torch.randint(CLASSES, (EXAMPLES,), generator=generator)
    main, own = model.main_input_name, model.config
    if main == "input_ids":
        words = torch.randint(3, WORDS, (EXAMPLES, LENGTH), generator=generator)
        takes = signature(model.forward).parameters
        ends = LENGTH - torch.arange(EXAMPLES) - 1
        words[torch.arange(EXAMPLES), ends] = 2
        if "attention_mask" not in takes:
            inputs = {"input_ids": words}
        else:
            mask = (torch.arange(LENGTH) <= ends[:, None]).long()
            inputs = {"input_ids": torch.where(mask == 1, words, 0), "attention_mask": mask}
        if "bbox" in takes:
            inputs["bbox"] = torch.ones(EXAMPLES, LENGTH, 4, dtype=torch.long)
        return inputs, words if is_next else classes
    if main in ("pixel_values", "pixel_values_videos"):
        size = getattr(own, "image_size", 32)
        size = size if isinstance(size, int) else size[0]
        shape = (2, 3, size, size) if "Video" in name else (3, size, size)
        return {main: normal(*shape)}, classes
    if main == "input_values" and kind != "audio-spectrogram-transformer":
        return {main: normal(400)}, classes
    if main == "input_values":
        return {main: normal(own.max_length, own.num_mel_bins)}, classes
    if kind == "whisper":
        return {main: normal(own.num_mel_bins, 2 * own.max_source_positions)}, classes
    return {main: normal(20, getattr(own, "feature_projection_input_dim", 16))}, classes


# ---- timm ------------------------------------------------------------------------------------------------------------


def list_timm() -> Iterator[Architecture]:
    """The tiny models that timm keeps for tests, one of each family."""
    # torchvision's compiled operations do not load beside every build of torch. None of these models uses one, but its
    # import asks whether they are declared.
    library = torch.library.Library("torchvision", "DEF")
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _forget("torchvision")
    timm = importlib.import_module("timm")
    _KEPT.append(library)
    for name in timm.list_models("test_*"):
        yield Architecture(name, "timm", partial(make_timm, timm, name))


_KEPT: list[Any] = []


def _forget(package: str) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == package]:
        del sys.modules[name]


def make_timm(timm: Any, name: str) -> Case:
    """One of timm's models for tests, on pictures of its own size."""
    model = timm.create_model(name, num_classes=CLASSES)
    _refuse_large(model)
    return make_picture_case(model, model.default_cfg["input_size"][-1])


def make_picture_case(model: nn.Module, size: int) -> Case:
    """The model with a few pictures."""
    generator = torch.Generator().manual_seed(1)
    pictures = torch.randn(EXAMPLES, 3, size, size, generator=generator, dtype=torch.float64)
    targets = torch.randint(CLASSES, (EXAMPLES,), generator=generator)
    return Case(prepare(model), pictures, targets, lose_class)


# ---- torch -----------------------------------------------------------------------------------------------------------


class Sequences(nn.Module):
    """A recurrent network or a Transformer on short sequences, and a linear layer on its last state."""

    def __init__(self, inner: nn.Module, width: int = 16) -> None:
        super().__init__()
        self.inner, self.head = inner, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        found = self.inner(x, x.flip(1)) if isinstance(self.inner, _PAIRED) else self.inner(x)
        return self.head((found[0] if isinstance(found, tuple) else found)[:, -1])


_PAIRED = (nn.Transformer, nn.TransformerDecoder, nn.TransformerDecoderLayer)


def list_torch() -> Iterator[Architecture]:
    """Whole networks that torch.nn itself has."""
    layer = {"dim_feedforward": 24, "dropout": 0.0, "batch_first": True}
    makers: dict[str, Callable[[], nn.Module]] = {
        "RNN": lambda: Sequences(nn.RNN(16, 16, batch_first=True)),
        "LSTM": lambda: Sequences(nn.LSTM(16, 16, 2, batch_first=True)),
        "LSTM, bidirectional": lambda: Sequences(nn.LSTM(16, 8, bidirectional=True, batch_first=True)),
        "LSTM, projected": lambda: Sequences(nn.LSTM(16, 24, proj_size=16, batch_first=True)),
        "GRU": lambda: Sequences(nn.GRU(16, 16, 2, batch_first=True)),
        "Transformer": lambda: Sequences(
            nn.Transformer(16, 2, num_encoder_layers=1, num_decoder_layers=1, **layer)
        ),
        "TransformerEncoder": lambda: Sequences(
            nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, **layer), 2, enable_nested_tensor=False)
        ),
        "TransformerEncoder, norm first": lambda: Sequences(
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(16, 2, norm_first=True, **layer), 2, enable_nested_tensor=False
            )
        ),
        "TransformerDecoder": lambda: Sequences(nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, **layer), 2)),
    }  # fmt: skip
    for name, maker in makers.items():
        yield Architecture(f"torch.nn {name}", "torch", lambda maker=maker: make_sequences(maker()))


def make_sequences(model: nn.Module) -> Case:
    """The model with a few sequences."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(EXAMPLES, LENGTH, 16, generator=generator, dtype=torch.float64)
    return Case(prepare(model), rows, torch.randint(CLASSES, (EXAMPLES,), generator=generator), lose_class)


# ---- one model -------------------------------------------------------------------------------------------------------


class NotBuilt(Exception):  # noqa: N818 - it is no error
    """The model has no small form here."""


def _refuse_large(model: nn.Module) -> None:
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > MOST_PARAMETERS:
        raise NotBuilt(f"it has {count:,} parameters, and its configuration has no smaller form here")


MOST_PARAMETERS = 1_500_000


def prepare(model: nn.Module) -> nn.Module:
    """In double precision, without dropout, with every weight moved away from its first value (many start at zero)."""
    generator = torch.Generator().manual_seed(0)
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


class InDouble(TorchFunctionMode):
    """What a model computes in single precision on purpose stays in double precision."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with every wish for single precision changed."""
        if function is Tensor.float:
            function = Tensor.double
        wider = {key: torch.float64 if value is torch.float32 else value for key, value in (kwargs or {}).items()}
        return function(*[torch.float64 if value is torch.float32 else value for value in args], **wider)


class Widened(nn.Module):
    """A model under `InDouble`."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of the model."""
        with InDouble():
            return self.inner(*args, **kwargs)


def call(case: Case, part: slice) -> Tensor:
    """The losses of some examples, by torch alone."""
    if isinstance(case.inputs, dict):
        outputs = case.model(**{name: value[part] for name, value in case.inputs.items()})
    else:
        outputs = case.model(case.inputs[part])
    return case.loss(outputs, case.targets[part])


def differentiate(case: Case, value: Tensor) -> Tensor:
    """The gradient of one number with respect to all parameters, as one row."""
    parameters = [one for one in case.model.parameters() if one.requires_grad]
    found = torch.autograd.grad(value, parameters, allow_unused=True)
    rows = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
    return torch.cat([row.flatten() for row in rows])


def find_error(case: Case, alone: list[Tensor]) -> tuple[float, str]:
    """The largest relative distance from passes on single examples; and the backend."""
    gradients = per_example_gradients(case.model, case.loss, case.inputs, case.targets)
    rows = gradients.dense()
    names = [name for name, value in case.model.named_parameters() if value.requires_grad]
    found = torch.cat([rows[name].flatten(1) for name in names], 1)
    errors = [float((row - own).norm() / own.norm()) for row, own in zip(found, alone, strict=True)]
    # Norms and weighted sums are what training uses, and come from other formulas.
    norms = torch.stack([own.norm() for own in alone])
    errors.append(float(((gradients.norms() - norms).abs() / norms).max()))
    weights = torch.linspace(-1.0, 2.0, EXAMPLES, dtype=torch.float64)
    wanted = torch.einsum("b,bp->p", weights, torch.stack(alone))
    sums = gradients.weighted_sum(weights)
    total = torch.cat([sums[name].flatten() for name in names])
    errors.append(float((total - wanted).norm() / torch.einsum("b,b->", weights.abs(), norms)))
    backend = gradients.backend
    return max(errors), backend.name + (f": {backend.why}" if backend.why else "")


def mixes(case: Case) -> str:
    """How another example can reach the loss or the gradient of the first, by torch alone; "" if none can."""
    try:
        value, gradient = (found := call(case, slice(0, 1))[0]).detach(), differentiate(case, found)
    except (RuntimeError, ValueError, IndexError) as error:
        return f"does not run on one example: {_shorten(error)}"
    before = list_state(case.model)
    found = call(case, slice(None))[0]
    kept = [name for name, value in list_state(case.model).items() if not is_same(value, before.get(name))]
    if kept:
        return f"the model keeps something of the examples in {kept[0]!r}"
    distance = float((differentiate(case, found) - gradient).norm() / gradient.norm())
    if abs(float(found - value)) > 1e-6 * abs(float(value)) or distance > 1e-6:
        return f"in a lot, the gradient of the first example moves by {distance:.2g} of its length"
    return ""


def list_state(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor that a layer holds and that is not a parameter."""
    held = {
        f"{place}.{name}": value
        for place, module in model.named_modules()
        for name, value in [*vars(module).items(), *module._buffers.items()]
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
    }
    return {name: value.detach().clone() for name, value in held.items()}


def is_same(value: Tensor, before: Tensor | None) -> bool:
    """Whether nothing was written there."""
    return before is not None and value.shape == before.shape and bool(torch.equal(value, before))


def _shorten(error: object) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST * 2 else text[: LONGEST * 2] + "..."


def judge(case: Case) -> tuple[str, str, str]:
    """Backend, relative error and verdict."""
    try:
        alone = [differentiate(case, call(case, slice(i, i + 1))[0]) for i in range(EXAMPLES)]
    except (RuntimeError, ValueError, IndexError):
        alone = []
    if alone and not all(bool(row.isfinite().all()) and float(row.norm()) > 0 for row in alone):
        raise NotBuilt("its gradients are zero or not finite with these weights")
    if not alone and not has_batch_norm(case.model):
        raise NotBuilt("it does not run on one example at these sizes")
    try:
        error, backend = find_error(case, alone)
    except (InvalidArgument, MixesExamples) as refusal:
        why = mixes(case)
        if why:
            return "none", "", f"{REFUSED}: {why}"
        return "none", "", f"{NEEDLESS}: {_shorten(refusal)}"
    if error <= MOST:
        return backend, f"{error:.0e}", EXACT
    if error < _SINGLE and not isinstance(case.model, Widened):
        backend, again, verdict = judge(Case(Widened(case.model), case.inputs, case.targets, case.loss))
        return backend, again, f"{verdict}, without its own casts to single precision ({error:.0e} with them)"
    return backend, f"{error:.0e}", FAILED


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Give up after so long."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def list_architectures() -> Iterator[Architecture]:
    """All of them, by what is installed."""
    yield from list_torch()
    for name, found in (("transformers", list_transformers), ("timm", list_timm)):
        if importlib.util.find_spec(name) is not None:
            yield from found()


def try_all(architectures: Sequence[Architecture]) -> tuple[list[list[str]], list[str]]:
    """A row for each that could be built, and a line for each that could not."""
    rows, unbuilt = [], []
    for each in architectures:
        torch.manual_seed(0)
        try:
            with limit(60), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                case = each.make()
                call(case, slice(None))
        except Exception as error:  # whatever goes wrong inside of others' models before ours has seen them
            unbuilt.append(f"{each.name}: {_shorten(error) or type(error).__name__}")
            print(unbuilt[-1], flush=True)
            continue
        for form, made in list_forms(case):
            try:
                with limit(120), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    backend, error, verdict = judge(made)
            except NotBuilt as reason:
                unbuilt.append(f"{each.name}: {reason}")
                continue
            except Exception as problem:  # a finding: it is named in the table, and the others are tried
                backend, error, verdict = "none", "", f"{FAILED}: {type(problem).__name__}: {_shorten(problem)}"
            rows.append([each.name + form, each.package, backend, error, verdict])
            print(*rows[-1], sep=" | ", flush=True)
    return rows, unbuilt


def has_batch_norm(model: nn.Module) -> bool:
    """Whether some layer normalises over the lot."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def list_forms(case: Case) -> Iterator[tuple[str, Case]]:
    """A model with batch norm twice: as it is trained, and with group norm in its place."""
    if not has_batch_norm(case.model):
        yield "", case
        return
    replaced = replace_batch_norm(case.model)
    for module in case.model.modules():
        module.train(isinstance(module, nn.modules.batchnorm._BatchNorm))
    yield ", batch norm", case
    yield ", group norm instead", Case(prepare(replaced), case.inputs, case.targets, case.loss)


def describe(rows: Sequence[Sequence[str]], unbuilt: Sequence[str]) -> str:
    """The section of the page."""
    counts = {kind: sum(row[-1].startswith(kind) for row in rows) for kind in (EXACT, REFUSED, NEEDLESS, FAILED)}
    names = {row[0].partition(",")[0] if row[1] != "torch" else row[0] for row in rows}
    good = counts[EXACT] + counts[REFUSED]
    parts = [
        "## Gradients: other people's architectures beside single passes",
        environment(["tacit", "torch", *PACKAGES]),
        f"{len(names)} architectures, {len(rows)} models: {counts[EXACT]} exact (relative error at most {MOST:g}), "
        f"{counts[REFUSED]} refused because examples mix or stay in the model, "
        f"{counts[NEEDLESS]} refused without need, "
        f"{counts[FAILED]} wrong. "
        f"{100 * good / max(len(rows), 1):.1f} % are right.",
        show_table([COLUMNS, *rows]),
        *(
            f"{row[0]}: {NEEDLESS_WHY[row[0]]}."
            for row in rows
            if row[-1].startswith(NEEDLESS) and row[0] in NEEDLESS_WHY
        ),
    ]
    if unbuilt:
        parts.append(f"Not tried, {len(unbuilt)}: these have no small form here, or need what is not installed.")
        parts.append("\n".join(f"- {line}" for line in unbuilt))
    return "\n\n".join(parts)


def main() -> None:
    """Try all, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", help="words that names hold; printed and not written")
    parser.add_argument("--output", type=Path, default=PAGE, help="a page other than OUTSIDE.md")
    options = parser.parse_args()
    # Small models: several threads would wait for each other.
    torch.set_num_threads(1)
    wanted = [each for each in list_architectures() if not options.only or any(w in each.name for w in options.only)]
    rows, unbuilt = try_all(wanted)
    section = describe(rows, unbuilt)
    if options.only:
        print(section)
    else:
        write_section(options.output, "architectures", section)
    if any(row[-1].startswith(FAILED) for row in rows):
        raise SystemExit("Some gradients are wrong, or were refused without a reason: see the table.")


if __name__ == "__main__":
    main()
