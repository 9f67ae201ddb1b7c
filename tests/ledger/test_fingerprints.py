"""Whoever reads a ledger's exports, knows all examples but one and tries all values of that one, learns nothing."""

import hashlib
import json
import shlex
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch

import tacit
from support.guesses import guesses, neighbours, shown
from tacit.accounting import Gaussian
from tacit.budget import Budget
from tacit.cli import main
from tacit.errors import BadLedger, InvalidArgument
from tacit.estimators import PrivateClassifier, PrivateLinearRegression, PrivateLogisticRegression
from tacit.features import HashedWords
from tacit.ledger import Block, Course, Ledger, Reservation, fingerprint
from tacit.recipes.recipe import auto
from tacit.training.tuning import Choices, Search, Trial, tune

RNG = np.random.default_rng(0)
N = 60
ROWS = RNG.uniform(-1, 1, (N, 3))
LABELS, OTHERS = neighbours((ROWS.sum(1) > 0).astype(np.int64))
TEXTS = ["good film" if label else "dull film" for label in LABELS]
STEP = Gaussian(50.0)
COURSE = Course((Block(STEP, 4),))


def linear(ledger):
    PrivateLogisticRegression(data_norm=2.0, classes=[0, 1], ledger=ledger, dataset="people").fit(ROWS, LABELS)
    return ROWS, LABELS


def regression(ledger):
    model = PrivateLinearRegression(data_norm=2.0, target_bound=1.0, ledger=ledger, dataset="people")
    model.fit(ROWS, 1.0 * LABELS)
    return ROWS, 1.0 * LABELS


def network(ledger):
    model = PrivateClassifier(steps=2, lot_size=20, classes=[0, 1], ledger=ledger, dataset="people")
    model.fit(ROWS, LABELS)
    return ROWS, LABELS


def noisy_data(ledger):
    model = PrivateClassifier(method="input", data_norm=2.0, steps=2, classes=[0, 1], ledger=ledger, dataset="people")
    model.fit(ROWS, LABELS)
    return ROWS, LABELS


def recipe(ledger):
    model = PrivateClassifier(recipe="auto", population=N, classes=[0, 1], ledger=ledger, dataset="people")
    model.fit(ROWS, LABELS)
    return ROWS, LABELS


def recipe_of_texts(ledger):
    model = PrivateClassifier(recipe="auto", population=N, classes=[0, 1], ledger=ledger, dataset="people")
    model.fit(TEXTS, LABELS)
    return np.array(TEXTS), LABELS


def recipe_of_sparse_rows(ledger):
    x = HashedWords(places=50).transform(TEXTS)
    settings = {"classes": [0, 1], "ledger": ledger, "dataset": "people"}
    PrivateClassifier(recipe=auto("text", population=N, epsilon=1.0, delta=1e-5), **settings).fit(x, LABELS)
    return x.toarray(), x.data, x.indices, LABELS


def private_run(ledger):
    x, y = torch.from_numpy(ROWS).float(), torch.from_numpy(LABELS)
    run = tacit.PrivateRun(
        torch.nn.Linear(3, 2),
        torch.nn.functional.cross_entropy,
        data=(x, y),
        mechanism=tacit.methods.dpsgd(clip_norm=1.0, multiplier=20.0),
        sampling=tacit.FullBatch(N),
        steps=2,
        ledger=ledger,
        dataset="people",
    )
    for lot in run:
        run.release(lot)
    return x.numpy(), LABELS


def booking(ledger):
    booked = Reservation(
        ledger, COURSE, dataset="people", fingerprint=fingerprint(ROWS, LABELS), about={"method": "own"}
    )
    booked.begin(0)
    return ROWS, LABELS


def search(ledger):
    def trial(settings):
        model = PrivateClassifier(steps=2, lot_size=20, classes=[0, 1]).fit(ROWS, LABELS)
        return Trial(0.0, None, model.guarantee_)

    cost = trial({}).guarantee.event
    space = Search({"rate": Choices((1.0,))}, lambda settings: cost)
    marks = fingerprint(ROWS, LABELS)
    tune(trial, space, delta=1e-5, ledger=ledger, dataset="people", fingerprint=marks, about={"method": "own"})
    return ROWS, LABELS


def release(ledger):
    ledger.set_budget("people", Budget(50.0, 1e-3))
    ledger.spend("people", STEP, about={"note": "means"}, fingerprint=fingerprint(ROWS, LABELS))
    return ROWS, LABELS


WRITERS = [
    linear,
    regression,
    network,
    noisy_data,
    recipe,
    recipe_of_texts,
    recipe_of_sparse_rows,
    private_run,
    booking,
    search,
    release,
]


def said(line: str, capsys) -> str:
    """What a command prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["tacit", *shlex.split(line)])
        with pytest.raises(SystemExit):
            main()
    return capsys.readouterr().out


def public(ledger: Ledger, capsys) -> bytes:
    """All that leaves a ledger."""
    commands = ("export", "show", "show --json", "verify")
    return "".join(said(f"ledger {each} {ledger.path}", capsys) for each in commands).encode()


def secret_of(ledger: Ledger) -> bytes:
    with closing(sqlite3.connect(ledger.path)) as connection:
        [(secret,)] = connection.execute("SELECT value FROM meta WHERE key = 'secret'")
    return secret.encode()


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITERS, ids=lambda each: each.__name__)
def test_no_hash_of_the_examples_is_in_a_ledger_or_leaves_it(write, file, capsys):
    *rows, labels = write(file)
    other = labels.copy()
    other[0] = 1 - other[0]
    candidates = guesses(*rows, labels) | guesses(*rows, other)
    whole = b"".join(path.read_bytes() for path in file.path.parent.glob(f"{file.path.name}*"))
    assert shown(whole, candidates) == []
    leaving = public(file, capsys)
    assert shown(leaving, candidates) == []
    assert secret_of(file) not in leaving
    assert len(file.account("people").charges) == 1


@pytest.mark.slow
@pytest.mark.parametrize("write", [linear, recipe, recipe_of_texts, recipe_of_sparse_rows, private_run])
def test_what_is_written_of_the_examples_depends_on_the_secret(write, tmp_path):
    ledgers = [Ledger(tmp_path / f"{name}.ledger") for name in ("one", "other")]
    for ledger in ledgers:
        write(ledger)
    kept = [[entry.content["fingerprint"] for entry in each.entries() if entry.kind == "data"] for each in ledgers]
    assert [len(each) for each in kept] == [1, 1]
    assert kept[0] != kept[1]


@pytest.mark.slow
@pytest.mark.parametrize("write", [linear, network, noisy_data, recipe, recipe_of_texts, recipe_of_sparse_rows])
def test_a_fit_is_refused_under_a_second_name_for_its_examples(write, file):
    write(file)
    name, entries = "people", len(file.entries())
    write(file)
    assert [entry.kind for entry in file.entries()[entries:]] == ["settle"]
    other = Ledger(file.path.with_name("other.ledger"))
    # The same examples, entered before under another name.
    write(other)
    with other.storage.write() as book:
        [known] = [entry for entry in book.entries if entry.kind == "data"]
        book.append("data", "patients", "", dict(known.content))
    with pytest.raises(InvalidArgument, match=f"in the ledger as 'patients', not as '{name}'"):
        write(other)


@pytest.mark.slow
def test_labels_alone_do_not_name_examples(file):
    settings = {"recipe": "auto", "population": N, "classes": [0, 1], "ledger": file}
    PrivateClassifier(**settings, dataset="one").fit(ROWS, LABELS)
    PrivateClassifier(**settings, dataset="two").fit(-ROWS, LABELS)
    assert file.datasets == ("one", "two")


@pytest.mark.slow
@pytest.mark.parametrize("about", [{"fingerprint": "ab"}, {"data": [{"fingerprint": "ab"}]}], ids=str)
def test_what_is_said_about_a_release_holds_no_fingerprint(ledger, about):
    with pytest.raises(InvalidArgument, match=r"about must not hold a fingerprint.*fingerprint="):
        ledger.spend("people", STEP, about=about)
    with pytest.raises(InvalidArgument, match="about must not hold a fingerprint"):
        Reservation(ledger, COURSE, dataset="people", about=about).begin(0)
    assert ledger.entries() == ()


ABOUT = {"method": "objective_perturbation", "mode": "rigorous"}


@pytest.fixture
def old(file):
    """A ledger in which an old version has written an unkeyed fingerprint, between other rows."""
    file.spend("people", STEP, about={"note": "means"}, fingerprint=fingerprint(ROWS))
    event, drawn = json.loads(STEP.to_json()), [[0, 1]]
    course = Course.of(STEP).to_data()
    about = {**ABOUT, "fingerprint": fingerprint(ROWS, LABELS)}
    with file.storage.write() as book:
        book.append("settle", "people", "old", {"about": about, "event": event, "course": course, "drawn": drawn})
        steps = {"event": json.loads((STEP * 4).to_json()), "course": COURSE.to_data(), "drawn": []}
        reserved = {**steps, "start": 0, "stop": 4, "attempt": "ab", "forgiven": 0}
        book.append("reserve", "people", "open", {"about": about, **reserved})
    file.settle("open")
    file.spend("people", STEP, about={"note": "later"})
    return file


def test_an_old_ledger_accounts_to_the_same_and_knows_its_examples(old):
    assert old.account("people").epsilon(1e-5) == pytest.approx(
        tacit.accounting.curve(STEP * 7).epsilon(1e-5), rel=1e-9
    )
    with pytest.raises(InvalidArgument, match="in the ledger as 'people'"):
        old.spend("again", STEP, fingerprint=fingerprint(ROWS))
    assert [charge.about for charge in old.account("people").charges][1:3] == [ABOUT, ABOUT]


def test_unkeyed_fingerprints_of_an_old_ledger_stay_in_it(old, capsys):
    candidates = guesses(ROWS, LABELS) | guesses(ROWS, OTHERS)
    leaving = public(old, capsys)
    assert shown(leaving, candidates) == []
    assert b'"fingerprint"' not in b"".join(json.dumps(row["content"]["about"]).encode() for row in rows_about(old))
    # A run that an old version had reserved was settled by this one: nothing is copied into new rows.
    assert [entry.is_unkeyed for entry in old.entries()] == [False, False, True, True, False, False]


def rows_about(ledger: Ledger) -> list[dict]:
    return [row for row in ledger.export()["entries"] if "about" in row["content"]]


def resealed(rows: list[dict], guess: str, previous: str) -> list[str]:
    """The seals that the exported rows would have if the guess were right, from the first that is about the guess."""
    seals = []
    for row in rows:
        content = row["content"]
        if content.get("about") == ABOUT and row["number"] < 5:
            content = {**content, "about": {**ABOUT, "fingerprint": guess}}
        columns = [row[name] for name in ("number", "at", "who", "kind", "dataset", "run")]
        previous = hashlib.sha256(json.dumps([*columns, json.dumps(content), previous]).encode()).hexdigest()
        seals.append(previous)
    return seals


def test_seals_of_an_old_ledger_do_not_show_whether_a_guess_is_right(old):
    exported = old.export()
    assert exported["keyed_from"] == 3
    rows = exported["entries"][2:]
    right = resealed(rows, fingerprint(ROWS, LABELS), old.entries()[1].hash)
    # Whoever had the seals themselves would know.
    assert right == [entry.hash for entry in old.entries()[2:]]
    for text in (json.dumps(exported), old.verify()):
        assert not any(seal in text for seal in right)
    assert exported["entries"][1]["hash"] == old.entries()[1].hash


def test_seals_that_an_old_ledger_shows_are_known_again(old):
    shown_before, noted_by_an_old_version = old.verify(), old.entries()[-1].hash
    old.spend("people", STEP)
    for head in (shown_before, noted_by_an_old_version, old.entries()[0].previous, old.export()["entries"][3]["hash"]):
        old.verify(head)
    with pytest.raises(BadLedger, match="has no entry with the seal"):
        old.verify("0" * 64)
    run = Reservation(old, COURSE, dataset="people")
    run.begin(0)
    saved = run.saved()
    assert old.holds(saved["entry"], saved["seal"])
    assert saved["seal"] != old.entries()[saved["entry"] - 1].hash
    assert not old.holds(saved["entry"] - 1, saved["seal"])


def test_exports_of_a_ledger_without_unkeyed_fingerprints_show_its_seals(file):
    release(file)
    exported = file.export()
    assert exported["keyed_from"] is None
    assert [row["hash"] for row in exported["entries"]] == [entry.hash for entry in file.entries()]
    assert exported["head"] == file.verify() == file.entries()[-1].hash
