"""More than one process at the same ledger: nothing is spent twice, nothing is lost, nobody waits for ever."""

import os
import subprocess
import sys
import warnings

import pytest

from tacit.accounting import Gaussian, curve
from tacit.budget import Budget
from tacit.errors import OutOfOrder
from tacit.ledger import Block, Course, Ledger, Reservation

EACH = Gaussian(30.0)

SPENDER = """
import sys
from tacit.accounting import Gaussian
from tacit.errors import BudgetExceeded
from tacit.ledger import Ledger
print("ready", flush=True)
sys.stdin.readline()
ledger = Ledger(sys.argv[1])
while True:
    try:
        print(ledger.spend("adult", Gaussian(30.0)), flush=True)
    except BudgetExceeded:
        break
"""


def together(program: str, path, count: int) -> list[str]:
    """What so many processes printed that began at the same moment."""
    command = [sys.executable, "-c", program, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(count)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * count
    return printed


@pytest.mark.slow
def test_processes_that_race_for_a_budget_spend_it_exactly_once(place):
    ledger = Ledger(place)
    fits = 20
    ledger.set_budget("adult", Budget(curve(EACH * fits).epsilon(1e-5), 1e-5))
    printed = together(SPENDER, place, 3)
    runs = [run for each in printed for run in each.split()]
    assert len(runs) == len(set(runs)) == fits
    assert {charge.run for charge in ledger.account("adult").charges} == set(runs)
    ledger.verify()


@pytest.mark.slow
def test_processes_that_make_the_same_ledger_make_one(place):
    program = """
import sys
from tacit.accounting import Gaussian
from tacit.ledger import Ledger
print("ready", flush=True)
sys.stdin.readline()
ledger = Ledger(sys.argv[1])
ledger.spend("adult", Gaussian(30.0))
print(ledger.identity)
"""
    names = together(program, place, 3)
    assert len(set(names)) == 1
    assert len(Ledger(place).account("adult").charges) == 3


def test_a_forked_process_cannot_go_on_and_leaves_its_parents_connection_alone(place):
    ledger = Ledger(place)
    booking = Reservation(ledger, Course((Block(EACH, 10),)), dataset="adult")
    booking.begin(0)
    mine = booking._marks
    with warnings.catch_warnings():
        # Newer interpreters warn of threads, of which the child uses none.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        # Whatever happens, the child must not go on with the tests.
        try:
            booking.begin(1)
        except OutOfOrder:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(process, 0)[1] == 0
    booking.begin(2)
    assert booking._marks is mine
    booking.settle()
    assert ledger.account("adult").total == EACH * 3
    ledger.verify()
