"""Weights in shards (FSDP2) on four processes, and restarts by torchrun itself: what was tried, and what came out.

    python benchmarks/shards.py

The tests do the same with two processes. Here `tests/support/sharded_ranks.py` runs with four, and torchrun starts a
GPT-2 with LoRA in shards, one process of which kills itself at every third step that is drawn, as often as torchrun may
restart. A failure is an error. The table replaces what stands between this script's markers in RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import THREADS, deliver, environment, show_table

TESTS = Path(__file__).resolve().parents[1] / "tests"
SIZE, RESTARTS, STEPS = 4, 3, 12
MULTIPLIER, LOT, PEOPLE, DELTA = 4.0, 12, 48, 1e-3
PACKAGES = ("tacit", "torch", "transformers", "peft")
# What every process is told by torchrun.
_RANK, _RESTART, _FOLDER = "RANK", "TORCHELASTIC_RESTART_COUNT", "TACIT_SHARDS_FOLDER"
# Without it, processes that torch 2.13 restarts look for the addresses of those that are gone.
_OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


def work(folder: Path) -> None:
    """One process of the run: begins it or resumes it, saves every second step, and now and then dies."""
    import torch
    from peft import LoraConfig, get_peft_model
    from torch.distributed.fsdp import fully_shard
    from transformers import GPT2Config, GPT2LMHeadModel

    import tacit
    from tacit.stages.mechanism import Mechanism

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, restart = int(os.environ[_RANK]), int(os.environ[_RESTART])
    torch.manual_seed(0)
    sizes = {"n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, attn_pdrop=0.0, **sizes))
    model = get_peft_model(model, LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))
    for layer in model.base_model.model.transformer.h:
        fully_shard(layer)
    fully_shard(model)
    tokens = torch.randint(0, 50, (PEOPLE, 12), generator=torch.Generator().manual_seed(0))
    data = {"input_ids": tokens, "labels": tokens}
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=0.05)
    saves = folder / "run"
    if (saves / "run.safetensors").exists():
        run = tacit.PrivateRun.resume(saves, model, "model", data=data, optimizer=optimizer)
    else:
        how = {"mechanism": tacit.methods.dpsgd(1.0, MULTIPLIER), "sampling": tacit.Poisson(LOT, PEOPLE)}
        ledger = tacit.Ledger(folder / "data.ledger")
        run = tacit.PrivateRun(model, "model", data=data, steps=STEPS, ledger=ledger, dataset="data", **how)
        run.save(saves, optimizer)
    release = Mechanism.release_mean

    def noted(self: Mechanism, *given: object, **named: object) -> object:
        with (folder / f"drawn {rank}").open("a") as file:
            file.write(f"{restart}\n")
        return release(self, *given, **named)

    Mechanism.release_mean = noted
    for place, lot in enumerate(run):
        run.backward(lot)
        if restart < RESTARTS and rank == restart % SIZE and place == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        if lot.step % 2:
            run.save(saves, optimizer)
    weights = [each.full_tensor().sum().item() for each in model.parameters()]
    epsilon = run.guarantee().epsilon(DELTA)
    (folder / f"finished {rank}").write_text(json.dumps({"epsilon": epsilon, "weights": weights, "restart": restart}))
    torch.distributed.destroy_process_group()


def restart_elastically() -> list[str]:
    """A row of the table: a run that torchrun restarts each time one of its processes is killed."""
    from tacit.accounting import curve
    from tacit.ledger import Ledger

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(SIZE)]
        command += ["--max-restarts", str(RESTARTS), __file__]
        began = time.monotonic()
        told = {**os.environ, _FOLDER: place, _OWN_STORE: "1"}
        ended = subprocess.run(command, env=told, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"torchrun gave up:\n{ended.stderr[-4000:]}")
        told = [json.loads((folder / f"finished {rank}").read_text()) for rank in range(SIZE)]
        drawn = [len((folder / f"drawn {rank}").read_text().split()) for rank in range(SIZE)]
        [charge] = Ledger(folder / "data.ledger").account("data").charges
        assert all(each == told[0] for each in told), "the processes differ"
        assert told[0]["restart"] == RESTARTS, "not every restart took place"
        charged = charge.event.times
        # A step that was written down, and whose process died before it drew, is charged too.
        assert charge.is_settled, "the run is not settled"
        assert max(drawn) <= charged <= max(drawn) + RESTARTS, (drawn, charged)
        assert abs(told[0]["epsilon"] - curve(charge.event).epsilon(DELTA)) < 1e-9, "the guarantee is not the ledger's"
        what = f"GPT-2 with LoRA of {STEPS} steps, a process killed {RESTARTS} times, restarted by torchrun"
        out = f"finished; {max(drawn)} steps drawn, {charged} charged, the same weights on all"
        return [what, out, f"{time.monotonic() - began:.0f} s"]


def try_cases() -> list[list[str]]:
    """A row for each of the tests in shards, with four processes."""
    script = TESTS / "support" / "sharded_ranks.py"
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    told = {**os.environ, "SHARDS": str(SIZE), "PYTHONPATH": paths}
    ended = subprocess.run([sys.executable, str(script)], env=told, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{ended.stdout}\n{ended.stderr[-4000:]}")
    found = re.findall(r"^test_(\w+): passed in ([\d.]+) s$", ended.stdout, re.MULTILINE)
    return [[name.replace("_", " "), "passed", f"{float(seconds):.0f} s"] for name, seconds in found]


def main() -> None:
    """Try everything, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", dest="printed", action="store_true", help="print the section and write no file")
    parser.add_argument("--output", type=Path, help="the file whose section is rewritten (default: RESULTS.md here)")
    chosen = parser.parse_args()
    for name in THREADS:
        os.environ[name] = "1"
    rows = [*try_cases(), restart_elastically()]
    parts = [
        "## Weights in shards, on four processes",
        environment(PACKAGES),
        "FSDP2 over gloo on processors. What a row says is asserted by the script; two processes are in the tests.",
        show_table([["what", "outcome", "clock"], *rows]),
    ]
    deliver("shards", "\n\n".join(parts), chosen.output, chosen.printed)


if __name__ == "__main__":
    if _FOLDER in os.environ:
        work(Path(os.environ[_FOLDER]))
    else:
        main()
