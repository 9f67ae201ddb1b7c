"""Kill training runs at random moments and see that nothing is lost: real processes, real SIGKILL, also during a save.

    python tests/support/kill_many.py --kills 200

Every run is killed several times, at a random time or at a random call that changes a file, resumed each time, and
then left to finish. A witness outside the library notes every release at the moment at which its noise is drawn. After
every kill the ledger must be whole and hold at least what the witness saw; at the end a seeded run must have the
weights of one that was never killed, and every run exactly the charge that its own guarantee states.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import distributed
from torch.nn.functional import cross_entropy

import tacit
from tacit.accounting import Gaussian, Repeated, curve
from tacit.budget import Budget
from tacit.errors import TacitError
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.ledger import ledger as ledger_module
from tacit.ledger.storage import SqliteMarks
from tacit.stages.mechanism import Mechanism

STEPS, SAVE_EVERY, N = 24, 3, 60
DATA = (torch.randn(N, 4, generator=torch.Generator().manual_seed(0)), torch.arange(N) % 3)
STEP = Gaussian(4.0)
ALLOWED = 2 * STEPS
# With or without a seed, on sampled lots or on all examples.
KINDS = ((None, False), (7, False), (None, True), (7, True))


@dataclass(frozen=True)
class Case:
    """One run: with or without a seed, on sampled lots or on all examples, in one process or several."""

    folder: Path
    seed: int | None
    is_sampled: bool
    elsewhere: Path | None = None
    # Of a ledger on PostgreSQL.
    address: str | None = None
    processes: int = 1

    @property
    def ledger(self) -> Path | str:
        return self.address or (self.elsewhere or self.folder) / "data.ledger"

    @property
    def witness(self) -> Path:
        return self.folder / "witness"

    @property
    def saves(self) -> Path:
        return self.folder / "run"

    @property
    def step(self):
        return STEP.sampled(0.5) if self.is_sampled else STEP

    def releases(self) -> Counter[int]:
        """How often each step was drawn, as the witness saw it."""
        lines = self.witness.read_text().split() if self.witness.exists() else []
        return Counter(map(int, lines))


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3))


def go(case: Case, ready: int | None = None, rank: int = 0) -> None:
    """Begin the run, or go on with it, and finish it. `ready` is closed when the first lot is about to be drawn."""
    network = model()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    if (case.saves / "run.safetensors").exists():
        run = tacit.PrivateRun.resume(case.saves, network, cross_entropy, data=DATA, optimizer=optimizer)
    else:
        run = tacit.PrivateRun(
            network,
            cross_entropy,
            data=DATA,
            mechanism=tacit.methods.dpsgd(clip_norm=1.0, multiplier=4.0),
            sampling=tacit.Poisson(N / 2, N) if case.is_sampled else tacit.FullBatch(N),
            steps=STEPS,
            seed=case.seed,
            ledger=Ledger(case.ledger),
            dataset="data",
        )
        run.save(case.saves, optimizer)
    if ready is not None:
        os.close(ready)
    with witnessed(case, run):
        for lot in run:
            run.backward(lot)
            optimizer.step()
            if run.step % SAVE_EVERY == 0:
                run.save(case.saves, optimizer)
    run.save(case.saves, optimizer)
    if not rank:
        save_file(network.state_dict(), case.folder / "finished.safetensors")


@contextmanager
def witnessed(case: Case, run: tacit.PrivateRun) -> Iterator[None]:
    """Note every release before its noise is drawn, in a file that the library knows nothing of."""
    handle = os.open(case.witness, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    release = Mechanism.release_mean

    def noted(self, *args, **named):
        os.write(handle, f"{run.step - 1}\n".encode())
        return release(self, *args, **named)

    Mechanism.release_mean = noted
    try:
        yield
    finally:
        Mechanism.release_mean = release
        os.close(handle)


# The exit code of a process that stopped because another one of its run was killed.
LEFT_ALONE = 3
CALLS = ("fsync", "replace", "link", "unlink", "write")


def trapped(call: int) -> None:
    """Let this process die at its `call`-th call that changes a file: before it, or right after."""
    count = 0

    def armed(original):
        def wrapper(*args, **options):
            nonlocal count
            count += 1
            if count == call:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args, **options)
            if count == call - 1 and call % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapper

    for name in CALLS:
        setattr(os, name, armed(getattr(os, name)))


def child(case: Case, call: int | None, ready: int | None = None, rank: int = 0, meeting: Path | None = None) -> None:
    try:
        if meeting is not None:
            wait = timedelta(seconds=60)
            store = f"file://{meeting}"
            distributed.init_process_group("gloo", store, rank=rank, world_size=case.processes, timeout=wait)
        if call is not None:
            trapped(call)
        go(case, ready, rank)
    except TacitError:
        # What the others say when one of them is gone.
        os._exit(LEFT_ALONE if case.processes > 1 else 1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def start(case: Case, call: int | None = None, victim: int = 0, ready: int | None = None) -> list[int]:
    """Fork the processes of the run; the victim has the trap and says when it is ready. Their numbers."""
    meeting = case.folder / f"meeting {time.monotonic_ns()}" if case.processes > 1 else None
    numbers = []
    for rank in range(case.processes):
        process = os.fork()
        if process == 0:
            is_victim = rank == victim
            if ready is not None and not is_victim:
                os.close(ready)
            child(case, call if is_victim else None, ready if is_victim else None, rank, meeting)
        numbers.append(process)
    return numbers


def finish(case: Case) -> bool:
    """Let the run go on to its end."""
    codes = [os.waitpid(process, 0)[1] for process in start(case)]
    return not any(codes)


@dataclass
class Tally:
    """What happened."""

    kills: Counter[str] = field(default_factory=Counter)
    finished: Counter[str] = field(default_factory=Counter)
    drawn_again: int = 0


def killed(case: Case, chance: random.Random, tally: Tally) -> bool:
    """Start the run and kill it at a random moment; False if it finished first."""
    at_call, call, seconds = chance.random() < 0.5, chance.randrange(1, 100), chance.uniform(0.0, 0.4)
    victim = chance.randrange(case.processes)
    waited, ready = os.pipe()
    numbers = start(case, call if at_call else None, victim, ready)
    os.close(ready)
    if not at_call:
        if chance.random() < 0.8 or case.processes > 1:
            # Until the process has closed its end, or died. Processes that are still looking for each other would wait
            # for a minute and then fail outside of the library.
            os.read(waited, 1)
        time.sleep(seconds)
        os.kill(numbers[victim], signal.SIGKILL)
    os.close(waited)
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in numbers]
    is_killed = codes[victim] == -signal.SIGKILL
    others = [code for rank, code in enumerate(codes) if not (is_killed and rank == victim)]
    assert set(others) <= ({0, LEFT_ALONE} if is_killed else {0}), f"the run broke off: {case}, {codes}"
    if is_killed:
        tally.kills["at a call that changes a file" if at_call else "at a random time"] += 1
    return is_killed


def check(case: Case) -> None:
    """The ledger is whole and holds at least what was released."""
    ledger = Ledger(case.ledger)
    drawn = case.releases()
    released = len(drawn) if case.seed is not None else drawn.total()
    ledger.verify()
    charges = ledger.account("data").charges
    assert len(charges) == (1 if released else len(charges)) <= 1, charges
    charged = steps_of(charges[0].event) if charges else 0
    assert charged >= released, f"{released} released, {charged} charged: {case}"
    assert charged <= ALLOWED, f"{charged} charged, {ALLOWED} allowed: {case}"


def steps_of(event) -> int:
    return event.times if isinstance(event, Repeated) else 1


def check_end(case: Case, kills: int, expected: Callable[[bool], dict[str, torch.Tensor]]) -> None:
    """The run is over: charge and guarantee are exact and the same, seeded weights as if it had never been killed."""
    [charge] = Ledger(case.ledger).account("data").charges
    drawn = case.releases()
    assert charge.is_settled
    if case.seed is not None:
        assert charge.event == case.step * STEPS
        weights, right = load_file(case.folder / "finished.safetensors"), expected(case.is_sampled)
        assert all(torch.equal(weights[name], right[name]) for name in right), f"weights differ: {case}"
    else:
        # A step that was marked and killed before it was drawn is charged, at most one for each kill.
        assert drawn.total() <= steps_of(charge.event) <= drawn.total() + kills
    guarantee = Guarantee.from_json((case.saves / "guarantee.json").read_text())
    for delta in (1e-5, 1e-7):
        one, other = (curve(event).epsilon(delta) for event in (guarantee.event, charge.event))
        assert abs(one - other) <= 1e-9 * other, f"guarantee {one}, ledger {other}: {case}"


@cache
def warm() -> None:
    """Train once in this process: what that loads and fills takes seconds, which every fork would spend again."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        go(Case(Path(folder), 7, True))


def references(folder: Path, processes: int = 1) -> Callable[[bool], dict[str, torch.Tensor]]:
    """The weights of seeded runs that nobody killed, each made when it is first asked for."""
    return cache(partial(reference, folder, processes=processes))


def survive(
    kills: int,
    seed: int,
    folder: Path,
    kinds: Sequence[tuple[int | None, bool]] = KINDS,
    address: Callable[[], str | None] = lambda: None,
    processes: int = 1,
    expected: Callable[[bool], dict[str, torch.Tensor]] | None = None,
) -> Tally:
    """Kill so many times, spread over as many runs as that takes, of these kinds in turn.

    `address` makes the place of another ledger that is not a file. `expected` knows the weights of runs that nobody
    killed.
    """
    warm()
    chance, tally = random.Random(seed), Tally()
    expected = expected or references(folder, processes)
    while tally.kills.total() < kills:
        number = tally.finished.total()
        kind = kinds[(number + seed) % len(kinds)]
        case = Case(folder / str(number), *kind, address=address(), processes=processes)
        case.folder.mkdir()
        Ledger(case.ledger).set_budget("data", Budget(curve(case.step * ALLOWED).epsilon(1e-6), 1e-6))
        here, most = 0, chance.randrange(1, 8)
        while here < most and killed(case, chance, tally):
            here += 1
            check(case)
        if not (case.folder / "finished.safetensors").exists():
            assert finish(case), f"the run did not finish: {case}"
        check(case)
        check_end(case, here, expected)
        drawn = case.releases()
        tally.drawn_again += drawn.total() - len(drawn)
        tally.finished["with a seed, to the same bits" if case.seed is not None else "without a seed"] += 1
    return tally


def notices(broken: Callable[[], None], seed: int, folder: Path) -> bool:
    """Whether the checks above fail once the library is broken: in a process of its own."""
    folder.mkdir()
    process = os.fork()
    if process == 0:
        broken()
        try:
            survive(20, seed, folder, [(None, False)])
        except AssertionError:
            os._exit(0)
        os._exit(1)
    return os.waitpid(process, 0)[1] == 0


def make_no_marks() -> None:
    SqliteMarks.mark = lambda *_: True


def forget_what_was_drawn() -> None:
    ledger_module._drawn_ranges = lambda *_: ([], 0)


def survive_spending(kills: int, seed: int, folder: Path) -> int:
    """Kill processes that do nothing but charge the ledger; every charge that returned must be there. How many did."""
    chance, ledger, witness = random.Random(seed), Ledger(folder / "spent.ledger"), folder / "spent"
    witness.touch()
    for _ in range(kills):
        process = os.fork()
        if process == 0:
            spend_for_ever(ledger, witness)
        time.sleep(chance.uniform(0.0, 0.25))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        ledger.verify()
        known = {charge.run for charge in ledger.account("data").charges}
        returned = set(witness.read_text().split())
        assert returned <= known, "a charge was lost"
        assert len(known) <= len(returned) + kills
    return len(returned)


def spend_for_ever(ledger: Ledger, witness: Path) -> None:
    handle = os.open(witness, os.O_APPEND | os.O_WRONLY)
    while True:
        os.write(handle, f"{ledger.spend('data', STEP)}\n".encode())


def reference(folder: Path, is_sampled: bool, processes: int = 1) -> dict[str, torch.Tensor]:
    """The weights of a seeded run that nobody killed."""
    case = Case(folder / f"reference {is_sampled}", 7, is_sampled, processes=processes)
    case.folder.mkdir()
    assert finish(case), "the run that nobody killed did not finish"
    return load_file(case.folder / "finished.safetensors")


def main() -> None:
    """Kill as often as asked; print what happened; fail if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = survive(options.kills, options.seed, Path(folder))
        # One is enough for a short visit.
        for broken in (forget_what_was_drawn, make_no_marks)[: 1 + (options.kills > 50)]:
            assert notices(broken, options.seed, Path(folder) / broken.__name__), f"{broken.__name__} was not noticed"
            print(f"a library broken by {broken.__name__} was noticed")
        spent = survive_spending(max(options.kills // 4, 1), options.seed, Path(folder))
    print(f"{tally.kills.total()} kills in {time.monotonic() - began:.0f} s: {dict(tally.kills)}")
    print(f"{tally.finished.total()} runs finished: {dict(tally.finished)}")
    print(f"{tally.drawn_again} steps were drawn again; the ledger was whole and right after every kill")
    print(f"{spent} charges made by processes that were killed {max(options.kills // 4, 1)} times; none was lost")
    sys.exit(0)


if __name__ == "__main__":
    main()
