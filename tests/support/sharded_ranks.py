"""A run over gloo processes whose weights lie in shards (FSDP2), beside the same run in one process.

PYTHONPATH=tests python tests/support/sharded_ranks.py NAME...

Two processes; SHARDS=4 in the environment makes it four, as benchmarks/shards.py does.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy

import tacit
from support import ranks
from support.ranks import DATA, STEPS, Case, N, close, flat, note, notes, start
from tacit.accounting import Gaussian, curve
from tacit.ledger import Ledger
from tacit.stages.mechanism import Mechanism

SIZE = int(os.environ.get("SHARDS", "2"))


def shard(network: torch.nn.Module, layers) -> torch.nn.Module:
    for layer in layers:
        fully_shard(layer)
    return fully_shard(network)


def network_of(case: Case) -> torch.nn.Module:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    return network if case.size == 1 else shard(network, [network[0], network[2]])


def witness(case: Case, rank: int) -> None:
    """Note every sum that noise is drawn for, and every release of this process."""
    release = Mechanism.release_mean

    def noted(self, bounded, *args, **named):
        note(case, rank, "sum", [value.flatten().tolist() for value in bounded.values.values()])
        found = release(self, bounded, *args, **named)
        note(case, rank, "noisy", [value.flatten().tolist() for value in found[0].values.values()])
        return found

    Mechanism.release_mean = noted


def go(case: Case, rank: int, before=lambda *_: None, steps: int = STEPS) -> None:
    """Begin the run, or go on with it, and finish it."""
    network = network_of(case)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    if (case.saves / "run.safetensors").exists():
        whose = {"unit": case.people.get("unit"), "optimizer": optimizer}
        run = tacit.PrivateRun.resume(case.saves, network, cross_entropy, data=DATA, **whose)
    else:
        charge = {"ledger": Ledger(case.ledger), "dataset": "data"} if case.is_charged else {}
        how = {"mechanism": ranks.mechanism(case), "sampling": case.sampling, "steps": steps, **case.people}
        run = tacit.PrivateRun(network, cross_entropy, data=DATA, seed=case.seed, **how, **charge)
        run.save(case.saves, optimizer)
    witness(case, rank)
    for lot in run:
        before(rank, lot.step, run)
        run.backward(lot)
        note(case, rank, "owned", len(lot))
        optimizer.step()
        if lot.step == 1:
            run.save(case.saves, optimizer)
    note(case, rank, "epsilon", run.guarantee().epsilon(1e-5))
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in network.parameters()]
    note(case, rank, "weights", flat(whole))


def join(shards: list[list[list[float]]]) -> list[float]:
    """A vector from the parts of each process, parameter by parameter: rows were cut in the order of processes."""
    return [value for parameter in zip(*shards, strict=True) for part in parameter for value in part]


def joined(case: Case, what: str) -> list[list[float]]:
    return [join(list(parts)) for parts in zip(*(notes(case, r, what) for r in range(case.size)), strict=True)]


def test_shards_release_the_sums_of_one_process(folder: Path) -> None:
    compare_with_one(folder)


def test_shards_release_the_sums_of_people(folder: Path) -> None:
    compare_with_one(folder, is_about_people=True)


def compare_with_one(folder: Path, **changes: bool) -> None:
    alone = Case(folder / "1", 1, **changes)
    alone.folder.mkdir()
    assert start(alone, lambda rank: go(alone, rank)) == [0]
    case = Case(folder / f"{SIZE}", SIZE, **changes)
    case.folder.mkdir()
    assert start(case, lambda rank: go(case, rank)) == [0] * SIZE
    owned = [sum(each) for each in zip(*(notes(case, r, "owned") for r in range(SIZE)), strict=True)]
    assert owned == notes(alone, 0, "owned")
    # The first sum: later ones depend on the noise, which has another seed in every shard.
    assert close(joined(case, "sum")[0], joined(alone, "sum")[0])
    assert len(joined(case, "noisy")) == STEPS
    for rank in range(SIZE):
        assert notes(case, rank, "weights") == notes(case, 0, "weights")
        assert notes(case, rank, "epsilon") == notes(alone, 0, "epsilon")
    [charge] = Ledger(case.ledger).account("data").charges
    assert charge.event == Gaussian(4.0).sampled(30 / N) * STEPS
    assert charge.is_settled


def test_every_coordinate_has_noise_once(folder: Path) -> None:
    """For secret and for seeded noise: the variance of one machine in every shard, and none of it drawn twice."""
    for seed in (None, 3):
        case = Case(folder / f"{seed}", SIZE, seed=seed, is_charged=False)
        case.folder.mkdir()
        assert start(case, lambda rank, case=case: go(case, rank, steps=200)) == [0] * SIZE
        sums, noisy = (torch.tensor(joined(case, what), dtype=torch.float64) for what in ("sum", "noisy"))
        noise = noisy * 30 - sums
        # 200 draws of 67 numbers of deviation 4: their mean square is 16 within 0.2 (sd); within 1 almost surely.
        assert noise.shape == (200, 67)
        assert abs(float(noise.square().mean()) - 16) < 1
        # Of each coordinate alone: sd 1.6 of 16; 5.5 sd over 67 coordinates, false alarm 3e-6.
        assert float((noise.square().mean(0) - 16).abs().max()) < 8.8
        # Correlations of independent draws have sd 0.071; 5.5 of them over 2,211 pairs, false alarm 1e-4.
        assert float(torch.corrcoef(noise.T).fill_diagonal_(0).abs().max()) < 0.39


def test_shards_survive_the_loss_of_a_process(folder: Path) -> None:
    for victim in (0, SIZE - 1):
        case = Case(folder / f"{victim}", SIZE, seed=None)
        case.folder.mkdir()

        def die(rank: int, step: int, _: tacit.PrivateRun, victim=victim) -> None:
            if (rank, step) == (victim, 3):
                os.kill(os.getpid(), signal.SIGKILL)

        codes = start(case, lambda rank, case=case, die=die: go(case, rank, die))
        others = [rank for rank in range(SIZE) if rank != victim]
        assert codes[victim] == -signal.SIGKILL
        assert [codes[rank] for rank in others] == [1] * len(others)
        assert all("resume from the last save" in notes(case, rank, "error")[0] for rank in others)
        assert start(case, lambda rank, case=case: go(case, rank)) == [0] * SIZE
        assert all(notes(case, rank, "weights") == notes(case, 0, "weights") for rank in others)
        [charge] = Ledger(case.ledger).account("data").charges
        drawn = len(notes(case, 0, "sum"))
        assert charge.is_settled
        assert drawn <= charge.event.times <= drawn + 1
        for rank in range(SIZE):
            assert abs(notes(case, rank, "epsilon")[0] - curve(charge.event).epsilon(1e-5)) < 1e-9
        # Another number of processes has no shards.
        other = Case(case.folder, 1)
        assert start(other, lambda rank, other=other: go(other, rank)) == [1]
        assert "in shards" in notes(other, 0, "error")[-1]


def test_a_failure_is_told_to_all_at_once(folder: Path) -> None:
    case = Case(folder, SIZE, is_charged=False)

    def fail(rank: int, step: int, run: tacit.PrivateRun) -> None:
        if (rank, step) == (1, 2):
            run.loss = lambda outputs, targets: 1 / 0

    assert start(case, lambda rank: go(case, rank, fail)) == [1] * SIZE
    assert "ZeroDivisionError" in notes(case, 1, "error")[0]
    for rank in {*range(SIZE)} - {1}:
        assert "Process 1 says: ZeroDivisionError: division by zero." in notes(case, rank, "error")[0]
    assert [len(notes(case, rank, "noisy")) for rank in range(SIZE)] == [2] * SIZE


def test_a_ledger_that_says_stop_stops_all_shards(folder: Path) -> None:
    """Settled from outside in the middle: nobody draws for a step that is not charged."""
    case = Case(folder, SIZE)

    def settle(rank: int, step: int, _: tacit.PrivateRun) -> None:
        if (rank, step) == (0, 2):
            ledger = Ledger(case.ledger)
            ledger.settle(ledger.account("data").charges[0].run)

    assert start(case, lambda rank: go(case, rank, settle)) == [1] * SIZE
    assert all("was settled since" in notes(case, rank, "error")[0] for rank in range(SIZE))
    assert [len(notes(case, rank, "noisy")) for rank in range(SIZE)] == [2] * SIZE


def test_stages_that_need_the_whole_sum_are_refused(folder: Path) -> None:
    case = Case(folder, 2, method="adaclip", is_charged=False)
    assert start(case, lambda rank: go(case, rank)) == [1, 1]
    assert "adaclip needs the whole sum" in notes(case, 0, "error")[0]


def test_gpt2_with_lora_in_shards(folder: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    tokens = torch.randint(0, 50, (24, 12), generator=torch.Generator().manual_seed(0))

    def work(case: Case, rank: int) -> None:
        torch.manual_seed(0)
        sizes = {"n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
        network = GPT2LMHeadModel(GPT2Config(vocab_size=50, attn_pdrop=0.0, **sizes))
        network = get_peft_model(network, LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))
        if case.size > 1:
            network = shard(network, network.base_model.model.transformer.h)
        # LoRA's second factors begin at zero: give them numbers, so that all gradients matter.
        data = {"input_ids": tokens, "labels": tokens}
        how = {"mechanism": ranks.mechanism(case), "sampling": tacit.Poisson(12, 24), "steps": 2, "seed": 5}
        optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1)
        run = tacit.PrivateRun(network, "model", data=data, **how)
        witness(case, rank)
        for lot in run:
            run.backward(lot)
            optimizer.step()
        note(case, rank, "backend", run.backend.name)

    cases = [Case(folder / f"{size}", size, is_charged=False) for size in (1, SIZE)]
    for case in cases:
        case.folder.mkdir()
        assert start(case, lambda rank, case=case: work(case, rank)) == [0] * case.size
    alone, all_of_them = cases
    assert close(joined(all_of_them, "sum")[0], joined(alone, "sum")[0])
    assert notes(all_of_them, 1, "backend") == notes(alone, 0, "backend") == ["bookkeeping"]


if __name__ == "__main__":
    ranks.run_cases({name: value for name, value in globals().items() if name.startswith("test_")})
