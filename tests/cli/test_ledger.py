"""`tacit ledger`: what it says and keeps, and that nonsense is refused in one sentence."""

import json
import re

import pytest

from tacit.accounting import Adjacency, EpsilonDelta, Gaussian, Unproven, curve
from tacit.budget import Budget
from tacit.ledger import Block, Course, Ledger, Reservation

RUN = Gaussian(1.1).sampled(0.01) * 100

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own")


@pytest.fixture
def ledger(tmp_path):
    one = Ledger(tmp_path / "adult.ledger")
    one.set_budget("adult", Budget(3, 1e-5))
    return one


def refusal(run) -> str:
    assert (run.code, run.out) == (2, "")
    assert "Traceback" not in run.err
    assert run.err.count("\n") == 1
    return run.err


def test_a_budget_makes_the_ledger_and_add_charges_it(run_cli):
    assert "adult may cost epsilon 3 at delta 1e-05 (add/remove one example), enforced by exact composition." in (
        run_cli("ledger budget adult.ledger adult --epsilon 3 --delta 1e-5").out
    )
    run = run_cli("ledger add adult.ledger adult --multiplier 1.1 --rate 0.01 --steps 100 --note 'by hand'")
    assert run.code == 0
    [charge] = Ledger("adult.ledger").account("adult").charges
    assert charge.event == RUN
    assert charge.run in run.out


def test_show_explains_deltas_that_add_up_and_never_an_infinity_alone(run_cli, tmp_path):
    ledger = Ledger(tmp_path / "fits.ledger")
    for _ in range(3):
        ledger.spend("adult", EpsilonDelta(0.5, 1e-5))
    assert "adult: epsilon 1.5000 at delta 3e-05 (" in run_cli("ledger show fits.ledger").out
    asked = " ".join(run_cli("ledger show fits.ledger --delta 1e-5").out.split())
    assert "no epsilon is finite at delta 1e-05. All together: epsilon 1.5000 at delta 3e-05." in " ".join(
        asked.split()
    )


@pytest.mark.slow
def test_show_says_what_is_spent_by_whom_and_what_is_left(run_cli, ledger):
    for _ in range(2):
        ledger.spend("adult", RUN, about={"method": "dpsgd"})
    out = run_cli("ledger show adult.ledger").out
    one, two = (curve(RUN * times).epsilon(1e-5) for times in (1, 2))
    head = re.search(
        r"^adult: epsilon ([\d.]+) of 3 at delta 1e-05 \(add/remove one example, PLD, 2 runs\)$", out, re.M
    )
    assert two <= float(head[1]) < two + 1e-3
    row = re.search(
        r"^  [0-9a-f]{12}  [\d-]+ [\d:]+  settled +([\d.]+) +([\d.]+)\n"
        r" +\S+@\S+: dpsgd, 100 steps, multiplier 1.1, rate 0.01$",
        out,
        re.M,
    )
    assert one <= float(row[1]) == float(row[2]) < one + 1e-3
    more = int(re.search(r"or ([\d,]+) more runs like the last", out)[1].replace(",", ""))
    assert curve(RUN * (2 + more)).epsilon(1e-5) <= 3 < curve(RUN * (3 + more)).epsilon(1e-5)
    assert "Assumption: no run's noise, lots or steps were chosen" in out


def test_show_in_json_says_the_same(run_cli, ledger):
    ledger.spend("adult", Gaussian(5.0))
    said = json.loads(run_cli("ledger show adult.ledger adult --json").out)["datasets"]
    [adult] = said
    assert adult["epsilon"] == adult["runs"][0]["epsilon_so_far"] == curve(Gaussian(5.0)).epsilon(1e-5)
    assert adult["budget"] == {"epsilon": 3.0, "delta": 1e-5, "filter_order": None}
    assert adult["more_runs_like_the_last"] == ledger.account("adult").more_like_last()
    assert adult["remaining"]["epsilon"] == ledger.account("adult").remaining().epsilon


@pytest.mark.slow
def test_show_marks_what_is_reserved_seeded_unproven_or_without_a_budget(run_cli, ledger):
    booking = Reservation(
        ledger, Course((Block(RUN, 3),)), dataset="adult", about={"method": "dpsgd", "violations": ["fixed_seed"]}
    )
    booking.begin(0)
    ledger.spend("free", Unproven("(1, 0)-DP", "nobody has shown it"))
    out = run_cli("ledger show adult.ledger").out
    assert "  reserved  " in out
    assert "rate 0.01, fixed seed\n" in out
    assert "tacit ledger settle FILE RUN" in out
    assert "NOT FOR RELEASE" in out
    assert "free: no finite epsilon at delta 1e-05" in out
    assert "No budget is set." in out
    assert "Charged: 100 steps, multiplier 1.1, rate 0.01." in run_cli(f"ledger settle adult.ledger {booking.run}").out
    assert json.loads(run_cli("ledger show adult.ledger free --json").out)["datasets"][0]["epsilon"] == "inf"


@pytest.mark.slow
def test_show_leaves_out_the_oldest_of_many_runs(run_cli, ledger):
    for _ in range(22):
        ledger.spend("adult", Gaussian(50.0))
    assert "(and 2 earlier: --all shows them)" in run_cli("ledger show adult.ledger").out
    assert len(json.loads(run_cli("ledger show adult.ledger --all --json").out)["datasets"][0]["runs"]) == 22


def test_a_filter_is_said_to_hold_the_budget(run_cli, ledger, tmp_path):
    (tmp_path / "run.json").write_text(RUN.to_json())
    out = run_cli("ledger budget adult.ledger wine --epsilon 1 --delta 1e-5 --adaptive --like run.json").out
    assert "enforced by a Rényi filter" in out
    assert "A Rényi filter of order" in run_cli("ledger show adult.ledger wine").out
    assert Ledger("adult.ledger").account("wine").terms.order is not None


def test_what_is_too_much_is_refused_unless_it_has_happened(run_cli, ledger):
    line = "ledger add adult.ledger adult --epsilon 4"
    assert "budget is 3" in refusal(run_cli(line))
    assert "record it by --released" in refusal(run_cli(line))
    assert run_cli(f"{line} --released").code == 0
    assert "Left: nothing." in run_cli("ledger show adult.ledger").out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("--epsilon 0.1", EpsilonDelta(0.1)),
        ("--epsilon 0.1 --delta 1e-9", EpsilonDelta(0.1, 1e-9)),
        ("--event event.json", Gaussian(7.0)),
        ("--multiplier 9 --lot-size 10 --population 100 --epochs 2", Gaussian(9.0).sampled(0.1) * 20),
    ],
)
def test_a_release_can_be_described_in_every_way(run_cli, ledger, tmp_path, line, event):
    (tmp_path / "event.json").write_text(Gaussian(7.0).to_json())
    assert run_cli(f"ledger add adult.ledger adult {line}").code == 0
    assert ledger.account("adult").charges[0].event == event


@pytest.mark.slow
def test_neighbours_can_be_replaced(run_cli):
    run_cli("ledger budget adult.ledger wine --epsilon 3 --delta 1e-5 --adjacency replace_one")
    run_cli("ledger add adult.ledger wine --epsilon 0.5 --adjacency replace_one")
    assert Ledger("adult.ledger").account("wine").charges[0].event.adjacency is Adjacency.REPLACE_ONE
    assert "(replace one example, PLD, 1 run)" in run_cli("ledger show adult.ledger").out


def test_verify_says_the_seal_and_finds_it_again(run_cli, ledger):
    out = run_cli("ledger verify adult.ledger").out
    assert "adult.ledger is unchanged: 1 entries." in out
    seal = re.search(r"Newest seal: ([0-9a-f]{64})", out)[1]
    assert run_cli(f"ledger verify adult.ledger --head {seal}").code == 0
    assert "no entry with the seal" in refusal(run_cli("ledger verify adult.ledger --head 00"))


def test_export_is_all_of_it(run_cli, ledger):
    ledger.spend("adult", RUN)
    assert json.loads(run_cli("ledger export adult.ledger").out) == ledger.export()


def test_an_empty_ledger_is_said_to_be_empty(run_cli):
    Ledger("new.ledger")
    assert run_cli("ledger show new.ledger").out == "new.ledger is empty\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("show none.ledger", "There is no ledger none.ledger"),
        ("add none.ledger adult --epsilon 1", "There is no ledger none.ledger"),
        ("verify none.ledger", "There is no ledger none.ledger"),
        ("show adult.ledger wine", "has no entry for data set 'wine'. It has adult."),
        ("settle adult.ledger nobody", "has no run 'nobody'"),
        ("add adult.ledger adult", "Got none of them."),
        ("add adult.ledger adult --epsilon 1 --multiplier 2", "Got --epsilon, --multiplier."),
        ("add adult.ledger adult --delta 1e-5", "--delta was given without --epsilon"),
        ("add adult.ledger adult --multiplier 2", "The sampling rate is not known"),
        ("add adult.ledger adult --epsilon -1", "epsilon must be"),
        ("add adult.ledger ' ' --epsilon 1", "dataset must be a name"),
        ("add adult.ledger adult --epsilon 1 --adjacency replace_one", "--adjacency replace_one"),
        ("budget adult.ledger adult --epsilon 0 --delta 1e-5", "epsilon must be"),
        ("budget adult.ledger adult --epsilon 1 --delta 1e-5 --like x", "--like needs --adaptive"),
        ("show notes.txt", "notes.txt is not a ledger"),
    ],
)
def test_nonsense_is_refused_in_one_sentence_and_changes_nothing(run_cli, ledger, tmp_path, line, words):
    (tmp_path / "notes.txt").write_text("not a ledger " * 100)
    before = ledger.entries()
    assert words in refusal(run_cli(f"ledger {line}"))
    assert ledger.entries() == before


def test_the_help_is_short_and_names_every_command(run_cli):
    out = run_cli("ledger --help").out
    for name in ("show", "budget", "add", "settle", "verify", "export"):
        assert re.search(rf"^  {name} ", out, re.M)
