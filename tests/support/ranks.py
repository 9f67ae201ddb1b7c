"""A run over several gloo processes, beside the same run in one: what it releases, what it charges, what a loss costs.

    PYTHONPATH=tests python tests/distributed/ranks.py NAME...

Every case forks its processes, so torch is imported once. A witness in every process notes each draw of noise.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import distributed
from torch.nn.functional import cross_entropy

import tacit
from tacit.accounting import Gaussian, curve
from tacit.budget import Budget
from tacit.ledger import Ledger
from tacit.stages.mechanism import Mechanism
from tacit.types import Sampling

N, STEPS = 90, 6
DATA = (torch.randn(N, 4, generator=torch.Generator().manual_seed(0)), torch.arange(N) % 3)


@dataclass(frozen=True)
class Case:
    """One way to run: how many processes, where, and what of it is not as usual."""

    folder: Path
    size: int
    seed: int | None = 7
    method: str = "dpsgd"
    dropout: float = 0.0
    is_charged: bool = True
    is_about_people: bool = False
    bands: int = 1

    @property
    def sampling(self) -> Sampling:
        if self.bands > 1:
            return tacit.CyclicPoisson(30, N, groups=self.bands)
        return tacit.Poisson(10, N // 3) if self.is_about_people else tacit.Poisson(30, N)

    @property
    def people(self) -> dict[str, object]:
        """Whose each row is: everybody has three. All of them enter a step, so that sums do not depend on a draw."""
        return {"unit": [row // 3 for row in range(N)], "rows_per_unit": 3} if self.is_about_people else {}

    @property
    def ledger(self) -> Path:
        return self.folder / "data.ledger"

    @property
    def saves(self) -> Path:
        return self.folder / "run"


def model(case: Case) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(case.dropout), torch.nn.Linear(8, 3))


def mechanism(case: Case) -> Mechanism:
    made = getattr(tacit.methods, case.method)(clip_norm=1.0, multiplier=4.0)
    return made.with_bands(case.bands) if case.bands > 1 else made


def go(case: Case, rank: int, before: Callable[[int, int, tacit.PrivateRun], None] = lambda *_: None) -> None:
    """Begin the run, or go on with it, and finish it. `before` is called before every step."""
    network = model(case)
    if rank:
        # The first process's weights are those of all.
        with torch.no_grad():
            network[0].weight.zero_()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    if (case.saves / "run.safetensors").exists():
        whose = {"unit": case.people.get("unit"), "optimizer": optimizer}
        run = tacit.PrivateRun.resume(case.saves, network, cross_entropy, data=DATA, **whose)
    else:
        charge = {"ledger": Ledger(case.ledger), "dataset": "data"} if case.is_charged else {}
        run = tacit.PrivateRun(
            network,
            cross_entropy,
            data=DATA,
            mechanism=mechanism(case),
            sampling=case.sampling,
            steps=STEPS,
            seed=case.seed,
            **case.people,
            **charge,
        )
        run.save(case.saves, optimizer)
    witness(case, rank)
    for lot in run:
        before(rank, lot.step, run)
        run.backward(lot)
        note(case, rank, "owned", len(lot))
        note(case, rank, "gradient", flat(p.grad for p in network.parameters()))
        optimizer.step()
        if lot.step == 1:
            run.save(case.saves, optimizer)
    run.save(case.saves, optimizer)
    note(case, rank, "epsilon", run.guarantee().epsilon(1e-5))
    save_file(network.state_dict(), case.folder / f"finished {rank}.safetensors")


def flat(tensors) -> list[float]:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).double().tolist()


def note(case: Case, rank: int, what: str, value: object) -> None:
    with (case.folder / f"notes {rank}").open("a") as file:
        file.write(f"{json.dumps([what, value])}\n")


def notes(case: Case, rank: int, what: str) -> list:
    lines = (case.folder / f"notes {rank}").read_text().splitlines()
    return [value for name, value in map(json.loads, lines) if name == what]


def witness(case: Case, rank: int) -> None:
    release = Mechanism.release_mean

    def noted(self, bounded, *args, **named):
        note(case, rank, "sum", flat(bounded.values.values()))
        return release(self, bounded, *args, **named)

    Mechanism.release_mean = noted


def start(case: Case, work: Callable[[int], None]) -> list[int]:
    """The exit codes of so many processes that did the work together; negative for a signal."""
    meeting = case.folder / f"meeting {time.monotonic_ns()}"
    children = []
    for rank in range(case.size):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                if case.size > 1:
                    distributed.init_process_group(
                        "gloo", f"file://{meeting}", rank=rank, world_size=case.size, timeout=timedelta(seconds=60)
                    )
                work(rank)
                code = 0
            except BaseException as error:
                note(case, rank, "error", f"{type(error).__name__}: {error}")
                if not isinstance(error, tacit.errors.TacitError):
                    traceback.print_exc()
            os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def finished(case: Case, rank: int = 0) -> dict[str, torch.Tensor]:
    return load_file(case.folder / f"finished {rank}.safetensors")


def ran(folder: Path, size: int, **changes) -> Case:
    case = Case(folder / f"{size} {changes}", size, **changes)
    case.folder.mkdir()
    assert start(case, lambda rank: go(case, rank)) == [0] * size
    return case


def close(one, other) -> bool:
    return torch.allclose(torch.tensor(one), torch.tensor(other), rtol=1e-4, atol=1e-5)


def test_two_to_four_processes_release_what_one_does(folder: Path) -> None:
    compare_with_one(folder, "dpsgd", (2, 3, 4))


def test_people_with_several_rows_are_released_as_by_one_process(folder: Path) -> None:
    compare_with_one(folder, "dpsgd", (2,), is_about_people=True)


def compare_with_one(folder: Path, method: str, sizes: tuple[int, ...], **changes: int) -> None:
    alone = ran(folder, 1, method=method, **changes)
    for size in sizes:
        case = ran(folder, size, method=method, **changes)
        # The same lots, in parts: every sum is that of one process, and is drawn for by the first one only.
        assert [sum(each) for each in zip(*(notes(case, r, "owned") for r in range(size)), strict=True)] == notes(
            alone, 0, "owned"
        )
        sums = notes(case, 0, "sum")
        assert len(sums) == STEPS
        assert all(close(*pair) for pair in zip(sums, notes(alone, 0, "sum"), strict=True))
        assert not any(notes(case, rank, "sum") for rank in range(1, size))
        # The same noise: what is released differs by a cell of the grid where rounding fell the other way.
        pairs = zip(notes(case, 0, "gradient"), notes(alone, 0, "gradient"), strict=True)
        cell = 2**-4 / case.sampling.lot_size
        assert all((torch.tensor(a) - torch.tensor(b)).abs().max() <= cell for a, b in pairs)
        for rank in range(size):
            assert notes(case, rank, "gradient") == notes(case, 0, "gradient")
            assert all(torch.equal(value, finished(case)[name]) for name, value in finished(case, rank).items())
            assert notes(case, rank, "epsilon") == notes(alone, 0, "epsilon")
        [charge] = Ledger(case.ledger).account("data").charges
        assert charge.event == Gaussian(4.0).sampled(case.bands * 30 / N) * (STEPS // case.bands)
        assert charge.about["unit"] == "person" if case.is_about_people else "unit" not in charge.about
        assert charge.is_settled


def test_correlated_noise_is_drawn_by_the_first_alone_and_is_that_of_one_process(folder: Path) -> None:
    compare_with_one(folder, "dpsgd", (2,), bands=3)


def test_secret_epochs_hold_every_example_once(folder: Path) -> None:
    """Each process draws the lots of its own examples, and all of them together make an epoch."""
    case = Case(folder, 2, seed=None, is_charged=False)

    def work(rank: int) -> None:
        sampling = tacit.RandomAllocation(30, N)
        options = {"mechanism": mechanism(case), "sampling": sampling, "steps": 2 * sampling.steps_per_epoch}
        run = tacit.PrivateRun(torch.nn.Linear(4, 3), cross_entropy, data=DATA, **options)
        for lot in run:
            note(case, rank, "rows", lot.inputs[:, 0].tolist())
            run.release(lot)

    assert start(case, work) == [0, 0]
    lots = [notes(case, rank, "rows") for rank in range(2)]
    for epoch in (slice(0, 3), slice(3, 6)):
        seen = [row for rank in range(2) for rows in lots[rank][epoch] for row in rows]
        assert sorted(seen) == sorted(DATA[0][:, 0].tolist())


def test_stages_that_remember_are_in_step(folder: Path) -> None:
    compare_with_one(folder, "adaclip", (2,))


def test_secret_lots_and_noise_have_the_law_of_one_machine(folder: Path) -> None:
    """Each process draws for itself: of its own part examples come at the rate, and the noise has the one variance."""
    case = Case(folder, 2, seed=None, is_charged=False)
    steps = 300

    def work(rank: int) -> None:
        run = tacit.PrivateRun(
            torch.nn.Linear(4, 3),
            cross_entropy,
            data=DATA,
            mechanism=mechanism(case),
            sampling=tacit.Poisson(30, N),
            steps=steps,
        )
        for lot in run:
            gradient = run.release(lot)
            note(case, rank, "owned", len(lot))
            note(case, rank, "rows", lot.inputs[:, 0].tolist())
            note(case, rank, "gradient", flat(gradient.values()))

    assert start(case, work) == [0, 0]
    released = torch.tensor(notes(case, 0, "gradient")) * 30
    assert notes(case, 0, "gradient") == notes(case, 1, "gradient")
    # 15 coordinates over 300 steps: a variance of 16, of which 4500 draws estimate the root to 1 % (sd), plus the
    # variance of clipped sums, below 30 * (1/3) / 15 a coordinate.
    spread = float((released - released.mean(0)).var())
    assert 14.5 < spread < 18.5, spread
    for rank in range(2):
        owned = torch.tensor(notes(case, rank, "owned"), dtype=torch.float64)
        # 300 lots of 45 coins: mean 15, sd 0.18; five of these is one false alarm in two million.
        assert abs(float(owned.mean()) - 15) < 0.9
        mine = {round(float(value), 5) for value in DATA[0][rank::2, 0]}
        assert {round(value, 5) for rows in notes(case, rank, "rows") for value in rows} <= mine
    sizes = torch.tensor([notes(case, 0, "owned"), notes(case, 1, "owned")], dtype=torch.float64)
    # Correlation of independent draws: sd 0.058.
    assert abs(float(torch.corrcoef(sizes)[0, 1])) < 0.29


def die_at(step: int, victim: int) -> Callable[[int, int, tacit.PrivateRun], None]:
    def stop(rank: int, at: int, _: tacit.PrivateRun) -> None:
        if (rank, at) == (victim, step):
            os.kill(os.getpid(), signal.SIGKILL)

    return stop


def test_the_loss_of_a_process_is_survived(folder: Path) -> None:
    for victim, seed in ((0, None), (1, 7)):
        case = Case(folder / f"{victim}", 2, seed=seed, dropout=0.5)
        case.folder.mkdir()
        codes = start(case, lambda rank, case=case, victim=victim: go(case, rank, die_at(3, victim)))
        assert codes[victim] == -signal.SIGKILL
        assert codes[1 - victim] == 1
        [said] = notes(case, 1 - victim, "error")
        assert "resume from the last save" in said, said
        ledger, step = Ledger(case.ledger), Gaussian(4.0).sampled(30 / N)
        assert ledger.account("data").total == step * STEPS
        assert start(case, lambda rank, case=case: go(case, rank)) == [0, 0]
        drawn = len(notes(case, 0, "sum"))
        [charge] = ledger.account("data").charges
        assert charge.is_settled
        if seed is not None:
            whole = ran(case.folder, 2, seed=seed, dropout=0.5)
            assert all(torch.equal(value, finished(whole)[name]) for name, value in finished(case).items())
            assert charge.event == step * STEPS
        else:
            # Every draw is charged, and at most the one that was marked when its process died.
            assert drawn <= charge.event.times <= drawn + 1
        for rank in range(2):
            [epsilon] = notes(case, rank, "epsilon")
            assert abs(epsilon - curve(charge.event).epsilon(1e-5)) < 1e-9


def test_a_process_that_fails_on_its_part_leaves_nobody_waiting(folder: Path) -> None:
    """Everybody gets an error, nothing is released, and all can try the same lot again."""
    case = Case(folder / "failing", 2, is_charged=False)
    case.folder.mkdir()

    def fail(rank: int, step: int, run: tacit.PrivateRun) -> None:
        victim = step - 2
        if victim not in (0, 1):
            return
        lot, sound = next(iter(run)), run.loss
        run.loss = sound if rank != victim else lambda outputs, targets: 1 / 0
        try:
            run.backward(lot)
        except (ZeroDivisionError, tacit.errors.OutOfOrder) as error:
            note(case, rank, "failed", [str(error), run.step])
        run.loss = sound

    assert start(case, lambda rank: go(case, rank, fail)) == [0, 0]
    for victim in range(2):
        assert notes(case, victim, "failed")[victim] == ["division by zero", victim + 2]
        [said, step] = notes(case, 1 - victim, "failed")[victim]
        assert "Another process of this run has failed" in said
        assert step == victim + 2
    whole = ran(folder, 2, is_charged=False)
    assert all(torch.equal(value, finished(whole)[name]) for name, value in finished(case).items())
    assert notes(case, 0, "epsilon") == notes(whole, 0, "epsilon")


def test_a_refusal_of_the_first_is_everybodys(folder: Path) -> None:
    case = Case(folder, 2)
    Ledger(case.ledger).set_budget("data", Budget(0.1, 1e-5))
    assert start(case, lambda rank: go(case, rank)) == [1, 1]
    assert "BudgetExceeded" in notes(case, 0, "error")[0]
    assert (
        "The first process, which draws the noise for all, has stopped: This would bring" in notes(case, 1, "error")[0]
    )


def test_a_ledger_that_says_stop_stops_all(folder: Path) -> None:
    """Settled from outside in the middle: nobody gets a gradient for a step that is not charged."""
    case = Case(folder, 2)

    def settle(rank: int, step: int, _: tacit.PrivateRun) -> None:
        if (rank, step) == (0, 2):
            ledger = Ledger(case.ledger)
            ledger.settle(ledger.account("data").charges[0].run)

    assert start(case, lambda rank: go(case, rank, settle)) == [1, 1]
    assert "was settled since" in notes(case, 0, "error")[0]
    assert "was settled since" in notes(case, 1, "error")[0]
    assert [len(notes(case, rank, "gradient")) for rank in range(2)] == [2, 2]
    assert Ledger(case.ledger).account("data").total == Gaussian(4.0).sampled(30 / N) * 2


def test_processes_that_differ_are_refused(folder: Path) -> None:
    case = Case(folder, 2, is_charged=False)

    def work(rank: int) -> None:
        for what, data, steps, network in (
            ("the settings", DATA, STEPS + rank, torch.nn.Linear(4, 3)),
            ("the examples", (DATA[0].roll(rank, 0), DATA[1]), STEPS, torch.nn.Linear(4, 3)),
            ("the names and shapes", DATA, STEPS, torch.nn.Linear(4, 3, bias=rank == 0)),
        ):
            options = {"mechanism": mechanism(case), "sampling": tacit.Poisson(30, N), "steps": steps}
            try:
                tacit.PrivateRun(network, cross_entropy, data=data, **options)
            except tacit.errors.OutOfOrder as error:
                note(case, rank, "refused", what in str(error))

    # Models of different dimension have different plans, so the third is refused for its settings.
    assert start(case, work) == [0, 0]
    for rank in range(2):
        assert notes(case, rank, "refused") == [True, True, False]


def test_what_cannot_be_summed_in_parts_is_refused(folder: Path) -> None:
    case = Case(folder, 2, is_charged=False)

    def work(rank: int) -> None:
        options = {"data": DATA, "sampling": tacit.Poisson(30, N), "steps": STEPS}
        directional = tacit.methods.directional(clip_norm=1.0, mode="paper")
        wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))
        for network, made, more in (
            (torch.nn.Linear(4, 3), directional, {"budget": Budget(1, 1e-5)}),
            (wrapped, mechanism(case), {}),
        ):
            try:
                tacit.PrivateRun(network, cross_entropy, mechanism=made, **options, **more)
            except tacit.errors.InvalidArgument as error:
                note(case, rank, "refused", str(error))

    assert start(case, work) == [0, 0]
    for rank in range(2):
        guided, wrapped = notes(case, rank, "refused")
        assert "in one process only" in guided
        assert "model.module" in wrapped


def run_cases(cases: dict[str, Callable[[Path], None]]) -> None:
    """Run the cases that were named, or all."""
    torch.set_num_threads(1)
    # What this loads, every process would have to load by itself.
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    curve(Gaussian(4.0).sampled(0.5) * 2).epsilon(1e-5)
    for name in sys.argv[1:] or cases:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            cases[name](Path(folder))
        print(f"{name}: passed in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    run_cases({name: value for name, value in globals().items() if name.startswith("test_")})
