"""Nobody who reads what a run or a comparison publishes can check a guess of the examples, also if it had a seed."""

import hashlib
import json
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.guesses import guesses, neighbours, shown
from support.report_folders import comparison_of, run_command, trained
from tacit.datasets import Bounds, load_table
from tacit.ledger import is_secret_salt, salted_fingerprint
from tacit.workflows.saved import read_settings

SEED = 7
BOUNDS = """
rows = 100
held_out = 0.2
[columns]
dose = { low = 0, high = 10 }
outcome = [0, 1]
"""
# Files that stay with the owner, who alone can read them.
SECRET = {"settings.json", "comparison.json", "run.safetensors", "run.previous.safetensors", "journal.jsonl"}
RUNS = {
    "gradients": "train {table} --bounds {folder}/bounds.toml --epsilon 4 --steps 5",
    "gradients, seeded": "train {table} --bounds {folder}/bounds.toml --epsilon 4 --steps 5 --seed 7",
    "recipe": "train {table} --bounds {folder}/bounds.toml --epsilon 4 --recipe auto",
    "recipe, seeded": "train {table} --bounds {folder}/bounds.toml --epsilon 4 --recipe auto --seed 7",
    "tested in public, seeded": "train {table} --bounds {folder}/public.toml --epsilon 4 --steps 5 --seed 7",
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> tuple[Path, Path]:
    """Two tables of people that differ in one outcome."""
    folder = tmp_path_factory.mktemp("tables")
    doses = np.random.default_rng(0).uniform(0, 10, 100)
    (folder / "bounds.toml").write_text(BOUNDS)
    (folder / "public.toml").write_text(BOUNDS.replace("held_out = 0.2", 'test = "public.csv"'))
    (folder / "public.csv").write_text("dose,outcome\n1,0\n9,1\n")
    found = []
    for name, labels in zip(("one", "other"), neighbours((doses > 5).astype(int)), strict=True):
        rows = [f"{dose:.3f},{label}" for dose, label in zip(doses, labels, strict=True)]
        (folder / f"{name}.csv").write_text("dose,outcome\n" + "\n".join(rows))
        found.append(folder / f"{name}.csv")
    return found[0], found[1]


@pytest.fixture(scope="module")
def candidates(tables) -> set[bytes]:
    """Every hash of one table or the other, as it was read, and as it was trained on."""
    found = set()
    for path in tables:
        for name in ("bounds.toml", "public.toml"):
            data = load_table(path, target="outcome", bounds=Bounds.read(path.parent / name))
            found |= guesses(*data.train, seeds=(0, SEED)) | guesses(*data.test) | guesses(*data.train, *data.test)
        found |= guesses(np.frombuffer(path.read_bytes(), np.uint8))
    return found


def published(folder: Path) -> dict[str, bytes]:
    """What lies in the folder and is not for its owner alone, by name."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in SECRET]
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.slow
@pytest.mark.parametrize("how", RUNS)
def test_no_hash_of_the_examples_is_in_what_a_run_publishes(how, tables, candidates, tmp_path):
    line = RUNS[how].format(table=f"{tables[0]} --target outcome", folder=tables[0].parent)
    run_command(f"{line} --ledger {tmp_path / 'people.ledger'} --out {tmp_path / 'run'}")
    run_command(f"report {tmp_path / 'run'} --no-baseline")
    files = published(tmp_path / "run")
    assert {"report.html", "report.json", "metrics.json", "guarantee.json", "model.safetensors"} <= files.keys()
    kept = {path.name: path for path in (tmp_path / "run").iterdir() if path.name in SECRET}
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept.values()} == {0o600}
    salt = json.loads(kept["settings.json"].read_text())["salt"]
    for name, content in files.items():
        assert not shown(content, candidates), name
        assert salt.encode() not in content, name
    for path in (*kept.values(), tmp_path / "people.ledger"):
        assert not shown(path.read_bytes(), candidates), path.name


@pytest.mark.slow
def test_no_hash_of_the_examples_is_in_what_a_comparison_publishes(tables, candidates, tmp_path):
    asked = {"target": "outcome", "bounds": tables[0].parent / "bounds.toml", "name": str(tables[0])}
    data, comparison = comparison_of(methods=("dpsgd",), seeds=1, **asked)
    folder = trained(tmp_path, data, replace(comparison, modes=("rigorous",)))
    for name, content in published(folder).items():
        assert not shown(content, candidates), name
    assert not shown((folder / "comparison.json").read_bytes(), candidates)


@pytest.fixture(scope="module")
def seeded(tmp_path_factory) -> Path:
    """A finished run from a seed."""
    folder = tmp_path_factory.mktemp("seeded") / "run"
    run_command(f"train iris --epsilon 3 --steps 4 --seed {SEED} --out {folder}")
    run_command(f"report {folder} --no-baseline")
    return folder


def as_it_was(seeded: Path, folder: Path) -> str:
    """The run as old versions have left it, with a salt that follows from the seed; and its fingerprint."""
    shutil.copytree(seeded, folder)
    settings = json.loads((folder / "settings.json").read_text())
    settings["salt"] = hashlib.sha256(f"salt {SEED}".encode()).hexdigest()[:32]
    (folder / "settings.json").write_text(json.dumps(settings))
    metrics = json.loads((folder / "metrics.json").read_text())
    told = salted_fingerprint(settings["salt"], *read_settings(folder).load().train)
    metrics["data"]["fingerprint"] = told
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return told


@pytest.mark.slow
def test_two_runs_from_one_seed_have_secrets_of_their_own(seeded, tmp_path):
    run_command(f"train iris --epsilon 3 --steps 4 --seed {SEED} --out {tmp_path / 'again'}")
    salts = {json.loads((each / "settings.json").read_text())["salt"] for each in (seeded, tmp_path / "again")}
    assert len(salts) == 2
    assert all(is_secret_salt(salt, SEED) for salt in salts)


@pytest.mark.slow
def test_the_owner_can_show_which_data_a_fingerprint_is_of(seeded):
    twin = json.loads((seeded / "report.json").read_text())
    settings = read_settings(seeded)
    assert twin["data"]["fingerprint"] == salted_fingerprint(settings.salt, *settings.load().train)
    assert "a secret that stays in the run's folder" in twin["data"]["fingerprint_in_words"]


@pytest.mark.slow
def test_a_fingerprint_that_the_seed_gives_away_is_not_reported_again(seeded, tmp_path):
    told = as_it_was(seeded, tmp_path / "old")
    run_command(f"report {tmp_path / 'old'} --no-baseline")
    for name in ("report.html", "report.json"):
        assert told not in (tmp_path / "old" / name).read_text()
    assert json.loads((tmp_path / "old" / "report.json").read_text())["data"]["fingerprint"] is None


@pytest.mark.slow
def test_nor_is_it_written_again_when_the_run_is_resumed(seeded, tmp_path):
    told = as_it_was(seeded, tmp_path / "old")
    run_command(f"train --resume {tmp_path / 'old'}")
    assert told not in (tmp_path / "old" / "metrics.json").read_text()
    assert read_settings(tmp_path / "old").salt is None
