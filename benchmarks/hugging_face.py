"""A private step of transformers beside an ordinary one: full training and LoRA, with tacit and Opacus.

    python benchmarks/hugging_face.py             # some minutes; --dry-run prints and does not write

Contenders take turns in one process, a step each, and the median of processor time counts, as a ratio to ordinary
training. Memory is the highest resident memory of a fresh process over three steps, beyond what it held between steps.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import tacit
from results import deliver, environment, show_table

LOT, LENGTH, WORDS, STEPS = 16, 64, 4000, 5
CONTENDERS = ("ordinary", "tacit", "Opacus")
Step = Callable[[], float]


def make_bert() -> Any:
    """4.4 million parameters."""
    config = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
        max_position_embeddings=LENGTH, num_labels=2,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def make_gpt2() -> Any:
    """4.2 million parameters, with tied embeddings."""
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=256, n_layer=4, n_head=4, n_positions=LENGTH, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config)


def make_llama() -> Any:
    """5.5 million parameters, grouped queries."""
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=LENGTH,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


MODELS = {
    "BERT": (make_bert, ["query", "value"]),
    "GPT-2": (make_gpt2, ["c_attn"]),
    "Llama": (make_llama, ["q_proj", "v_proj"]),
}
CASES = [(name, kind) for name in MODELS for kind in ("full", "LoRA")]


def make_model(name: str, kind: str) -> Any:
    """A model with random weights and without dropout; with LoRA of rank 8 on request."""
    torch.manual_seed(0)
    make, layers = MODELS[name]
    model = make().eval()
    if kind == "LoRA":
        model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=layers)).eval()
    return model


def make_batch(name: str) -> dict[str, Tensor]:
    """A lot of padded texts."""
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(3, WORDS, (LOT, LENGTH), generator=generator)
    mask = (torch.arange(LENGTH) < LENGTH - torch.arange(LOT)[:, None]).long()
    labels = torch.randint(2, (LOT,), generator=generator) if name == "BERT" else torch.where(mask == 1, words, -100)
    return {"input_ids": words, "attention_mask": mask, "labels": labels}


def prepare(contender: str, name: str, kind: str) -> Step:
    """A function that takes one step and says how much processor time it took."""
    model, batch = make_model(name, kind), make_batch(name)
    parameters = [value for value in model.parameters() if value.requires_grad]
    optimizer: Any = torch.optim.SGD(parameters, lr=0.01)
    if contender == "tacit":
        run = tacit.PrivateRun(
            model, "model", data=batch, mechanism=tacit.methods.dpsgd(1.0, 1.0), sampling=tacit.FullBatch(LOT),
            steps=1000,
        )  # fmt: skip
        lots = iter(run)

        def take() -> None:
            run.backward(next(lots))
            optimizer.step()

    else:
        if contender == "Opacus":
            from opacus import GradSampleModule
            from opacus.optimizers import DPOptimizer

            model = GradSampleModule(model.train())
            for layer in model.modules():
                if isinstance(layer, torch.nn.Dropout):
                    layer.p = 0.0
            optimizer = DPOptimizer(optimizer, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=LOT)

        def take() -> None:
            optimizer.zero_grad()
            scores = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            wanted = batch["labels"]
            if name != "BERT":
                scores, wanted = scores[:, :-1].transpose(1, 2), wanted[:, 1:]
            F.cross_entropy(scores, wanted).backward()
            optimizer.step()

    def step() -> float:
        start = time.process_time()
        take()
        return time.process_time() - start

    return step


def measure_times(name: str, kind: str, answers: Any) -> None:
    """In a process of its own: the median step of each contender, or why there is none."""
    torch.set_num_threads(1)
    steps: dict[str, Step] = {}
    found: dict[str, Any] = {}
    for contender in CONTENDERS:
        try:
            steps[contender] = prepare(contender, name, kind)
            for _ in range(3):
                steps[contender]()
        except Exception as error:
            found[contender] = f"{type(error).__name__}: {error}".split("\n")[0][:120]
            steps.pop(contender, None)
    times: dict[str, list[float]] = {contender: [] for contender in steps}
    for _ in range(STEPS):
        for contender, step in steps.items():
            times[contender].append(step())
    answers.put({**found, **{contender: statistics.median(each) for contender, each in times.items()}})


def measure_memory(contender: str, name: str, kind: str, answers: Any) -> None:
    """In a process of its own: the highest resident memory over steps, beyond that before them, in megabytes."""
    torch.set_num_threads(1)
    # Freed memory goes back to the system at once, so that what is in use is what is seen.
    ctypes.CDLL("libc.so.6").mallopt(-3, 65536)
    try:
        step = prepare(contender, name, kind)
        # The first lots of tacit also examine the model and check its gradients: a warm-up for everyone.
        for _ in range(3):
            step()
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        for _ in range(3):
            step()
        answers.put(_status("VmHWM") - before)
    except Exception as error:
        answers.put(f"{type(error).__name__}: {error}".split("\n")[0][:120])


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def ask(target: Callable[..., None], *args: Any) -> Any:
    """Run a function in a fresh process and return its answer."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=target, args=(*args, answers))
    process.start()
    answer = answers.get(timeout=600)
    process.join()
    return answer


def main() -> None:
    """Measure all cases and write or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="print, do not write")
    parser.add_argument("--no-memory", action="store_true", help="measure times only")
    options = parser.parse_args()
    rows = [["model", "ordinary, ms", "tacit, time", "Opacus, time", "tacit, memory", "Opacus, memory"]]
    reasons = []
    for name, kind in CASES:
        times = ask(measure_times, name, kind)
        base = times["ordinary"]
        memory = {c: ask(measure_memory, c, name, kind) for c in CONTENDERS} if not options.no_memory else {}
        cells = []
        for values, unit in ((times, base), (memory, memory.get("ordinary"))):
            for contender in CONTENDERS[1:]:
                value = values.get(contender)
                if isinstance(value, str):
                    reasons.append(f"- {name} {kind}, {contender}: {value}")
                cells.append(f"{value / unit:.2f}" if isinstance(value, float) and unit else "-")
        rows.append([f"{name}, {kind}", f"{base * 1000:.0f}", *cells])
        print(rows[-1], flush=True)
    section = "## Models of Hugging Face: a private step beside an ordinary one\n\n"
    section += environment(["torch", "transformers", "peft", "opacus"])
    section += f"\n\nLots of {LOT} texts of {LENGTH} tokens; times and memory as multiples of ordinary training.\n\n"
    section += show_table(rows) + ("\n\nFailed:\n\n" + "\n".join(sorted(set(reasons))) if reasons else "")
    deliver("hugging_face", section, None if options.dry_run else Path(__file__).parent / "RESULTS.md", options.dry_run)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
