"""Over budget, the refusal names the --epsilon that would fit, and that one fits. Budgets and names in the ledger."""

import re

import numpy as np
import pytest

from tacit.ledger import Ledger

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")
BOUNDS = """
rows = 300
[columns]
dose = { low = 0, high = 10 }
outcome = ["healthy", "ill"]
"""


def write_tables(tmp_path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{dose:.3f},{'ill' if dose > 5 else 'healthy'}" for dose in rng.uniform(0, 10, 300)]
    (tmp_path / "patients.csv").write_text("dose,outcome\n" + "\n".join(rows))
    (tmp_path / "patients-new.csv").write_text("dose,outcome\n" + "\n".join(rows[:290]))
    (tmp_path / "bounds.toml").write_text(BOUNDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "adjacency"),
    [
        ("--steps 10", "add_remove"),
        ("--recipe auto", "add_remove"),
        ("--method output_perturbation", "replace_one"),
        ("--method objective_perturbation", "replace_one"),
    ],
)
def test_the_epsilon_that_is_named_fits_and_a_little_more_does_not(run_cli, options, adjacency):
    run_cli(f"ledger budget it.ledger iris --epsilon 2 --delta 1e-5 --adjacency {adjacency}")
    run_cli("ledger add it.ledger iris --multiplier 5 --rate 1 --steps 1")
    over = run_cli(f"train iris --epsilon 1.9 --delta 1e-5 --ledger it.ledger {options}")
    assert over.code == 2
    [(named, also)] = re.findall(r"--epsilon ([\d.]+)(?: with --delta (\S+))? would fit", over.err)
    assert "multiplier" not in over.err
    line = f"train iris --delta {also or 1e-5} --ledger it.ledger {options}"
    assert run_cli(f"{line} --epsilon {1.15 * float(named)}").code == 2
    assert run_cli(f"{line} --epsilon {named}").code == 0


def test_a_raised_budget_says_old_and_new(run_cli):
    run_cli("ledger budget it.ledger iris --epsilon 1 --delta 1e-5")
    said = run_cli("ledger budget it.ledger iris --epsilon 3 --delta 1e-6").out
    assert "epsilon 3 at delta 1e-06" in said
    assert "epsilon 1 at delta 1e-05 (add/remove one example)" in said
    other = run_cli("ledger budget it.ledger iris --epsilon 3 --delta 1e-6 --adjacency replace_one").out
    assert "(replace one example)" in other.splitlines()[0]
    assert "Before, it was epsilon 3 at delta 1e-06 (add/remove one example)." in other


@pytest.mark.slow
def test_a_table_that_looks_like_a_charged_one_is_named_and_can_be_charged_to_it(run_cli, tmp_path):
    write_tables(tmp_path)
    line = "--target outcome --bounds bounds.toml --method output_perturbation --epsilon 1 --ledger it.ledger"
    assert "WARNING" not in run_cli(f"train patients.csv {line}").err
    warned = run_cli(f"train patients-new.csv {line} --out other").err
    assert "looks like 'patients'" in warned
    assert "stop this run and charge it to the same budget: --dataset patients" in warned
    (tmp_path / "more.csv").write_text((tmp_path / "patients.csv").read_text() + "\n1,ill\n")
    assert "WARNING" not in run_cli(f"train more.csv {line} --dataset patients --out third").err
    ledger = Ledger("it.ledger")
    assert [len(ledger.account(name).charges) for name in ("patients", "patients-new")] == [2, 1]
    # A table that is charged already does not warn again.
    assert "WARNING" not in run_cli(f"train patients.csv {line} --out fourth").err
