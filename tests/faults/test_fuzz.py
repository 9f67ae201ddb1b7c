"""Anything at all from outside: command lines, settings, tables, data files, guarantees, arguments.

What comes of it is an answer or a sentence of tacit's, never a traceback; and whatever is accepted keeps its promise.
"""

import gzip
import io
import json
import shutil
import struct
from contextlib import redirect_stderr, redirect_stdout, suppress

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

import tacit
from tacit import datasets, methods
from tacit.accounting import Gaussian
from tacit.budget import Budget
from tacit.cli import main
from tacit.datasets import Bounds
from tacit.errors import TacitError
from tacit.guarantee import Assumption, Guarantee
from tacit.ledger import Ledger

FIXTURES = [HealthCheck.function_scoped_fixture]


def said(monkeypatch, *line: str) -> tuple[int, str, str]:
    """How a command line ends; whatever but an exit comes out of it is a failure of the test."""
    monkeypatch.setattr("sys.argv", ["tacit", *line])
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stop:
        main()
    code = int(stop.value.code or 0)
    assert code in (0, 1, 2), (line, err.getvalue())
    assert "Traceback" not in err.getvalue()
    assert (code == 0) or err.getvalue().strip(), line
    return code, out.getvalue(), err.getvalue()


NUMBERS = st.sampled_from(
    [*("0", "1", "2", "-1", "0.5", "1e-5", "1e-300", "1e300", "nan", "inf", "-inf", "", " ", "x", "1_000", "0x10", "½")]
) | st.floats().map(str)
WORDS = st.sampled_from(
    [
        "iris",
        "adult",
        "dpsgd",
        "rigorous",
        "paper",
        "../..",
        "/",
        "\udcff",
        "a\nb",
        "--help",
        "-",
        "--",
        "日本",
        "x" * 300,
    ]
) | st.text(st.characters(blacklist_characters="\0"), max_size=8)
OPTIONS = (
    *("--epsilon", "--delta", "--multiplier", "--rate", "--lot-size", "--population", "--epochs", "--group"),
    *("--clip-norm", "--learning-rate", "--micro-batch", "--seed", "--method", "--mode", "--model", "--adjacency"),
    *(
        "--target",
        "--bounds",
        "--event",
        "--note",
        "--head",
        "--like",
        "--adaptive",
        "--json",
        "--released",
        "--nonsense",
    ),
    *("--trials", "--shape"),
)
PAIRS = st.tuples(st.sampled_from(OPTIONS), NUMBERS | WORDS).map(list) | st.tuples(st.sampled_from(OPTIONS)).map(list)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=FIXTURES)
@given(
    command=st.sampled_from(["epsilon", "noise", "train", "tune", "methods", "report", "nothing", ""]),
    words=st.lists(WORDS, max_size=2),
    pairs=st.lists(PAIRS, max_size=5),
)
def test_any_command_line_ends_in_an_answer_or_a_sentence(monkeypatch, tmp_path, command, words, pairs):
    monkeypatch.chdir(tmp_path)
    # One step of one small data set: what is accepted is over at once.
    few = {"epsilon": ["--steps", "2"], "noise": ["--steps", "2"], "train": ["--steps", "1"], "tune": ["--steps", "1"]}
    line = [command, *words, *(part for pair in pairs for part in pair), *few.get(command, [])]
    said(monkeypatch, *line)


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=FIXTURES)
@given(
    command=st.sampled_from(["show", "budget", "add", "settle", "verify", "export"]),
    words=st.lists(WORDS | NUMBERS, max_size=2),
    pairs=st.lists(PAIRS, max_size=4),
)
def test_any_command_to_a_ledger_loses_nothing(monkeypatch, tmp_path, command, words, pairs):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger(tmp_path / "adult.ledger")
    if not ledger.entries():
        ledger.spend("adult", Gaussian(3.0))
    before = ledger.entries()
    said(monkeypatch, "ledger", command, "adult.ledger", *words, *(part for pair in pairs for part in pair))
    assert ledger.entries()[: len(before)] == before
    ledger.verify()


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 10**6)
    | st.floats()
    | st.sampled_from(["", "iris", "dpsgd", "linear", "x"])
)
VALUES = (
    LEAVES
    | st.lists(LEAVES, max_size=2)
    | st.dictionaries(st.sampled_from(["a", "path", "version"]), LEAVES, max_size=2)
)


def spoilt(data, whole: bytes) -> bytes:
    """The content with bytes overwritten, put in, taken out or cut off."""
    place = data.draw(st.integers(0, len(whole)))
    garbage = data.draw(st.binary(min_size=1, max_size=12))
    return data.draw(
        st.sampled_from(
            [
                whole[:place],
                whole[:place] + garbage + whole[place:],
                whole[:place] + whole[place + len(garbage) :],
                whole[:place] + garbage + whole[place + len(garbage) :],
            ]
        )
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of the command line."""
    folder, patch = tmp_path_factory.mktemp("trained"), pytest.MonkeyPatch()
    patch.chdir(folder)
    line = "train iris --multiplier 8 --delta 1e-5 --lot-size 119 --steps 2 --out run"
    assert said(patch, *line.split())[0] == 0
    patch.undo()
    return folder / "run"


def changed(trained, folder, data, names) -> None:
    """A copy of the run in which one field of one file is something else."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(trained, folder)
    path = folder / data.draw(st.sampled_from(names))
    values = json.loads(path.read_text())
    values[data.draw(st.sampled_from(sorted(values)))] = data.draw(VALUES)
    path.write_text(json.dumps(values))


@pytest.mark.slow
@settings(max_examples=10, suppress_health_check=FIXTURES)
@given(data=st.data())
def test_a_run_with_any_setting_changed_is_refused_or_says_what_it_cost(monkeypatch, trained, tmp_path, data):
    changed(trained, tmp_path / "run", data, ["settings.json", "metrics.json"])
    code, out, _ = said(monkeypatch, "train", "--resume", str(tmp_path / "run"))
    assert code or "epsilon" in out


@pytest.mark.slow
@settings(max_examples=6, suppress_health_check=FIXTURES)
@given(data=st.data())
def test_a_report_of_a_run_with_any_field_changed_is_refused_or_a_report(monkeypatch, trained, tmp_path, data):
    changed(trained, tmp_path / "run", data, ["settings.json", "metrics.json", "guarantee.json"])
    said(monkeypatch, "report", str(tmp_path / "run"), "--no-baseline")


@settings(max_examples=30, suppress_health_check=FIXTURES)
@given(data=st.data())
def test_a_damaged_guarantee_is_refused_or_a_guarantee(data):
    whole = Guarantee(Gaussian(2.0) * 3, 1e-5, assumptions=(Assumption("one", "One."),)).to_json().encode()
    with suppress(TacitError):
        text = spoilt(data, whole).decode(errors="replace")
        assert Guarantee.from_json(text).epsilon(1e-5) >= 0


BOUNDS = 'rows = 50\n[columns]\nage = { low = 0, high = 100 }\nsmoker = ["no", "yes"]\noutcome = ["a", "b"]\n'
TABLE = "age,smoker,outcome\n" + "".join(
    f"{i % 90},{'no' if i % 2 else 'yes'},{'a' if i % 3 else 'b'}\n" for i in range(50)
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tacit.errors.Caution")
@settings(max_examples=75, suppress_health_check=FIXTURES)
@given(data=st.data())
def test_a_damaged_table_is_refused_or_within_its_bounds(tmp_path, data):
    path = tmp_path / data.draw(st.sampled_from(["t.csv", "t.csv.gz", "t.npz", "t.parquet"]))
    whole = TABLE.encode()
    if path.suffix == ".gz":
        whole = gzip.compress(whole)
    if path.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, age=np.arange(50) % 90, smoker=np.array(["no", "yes"] * 25), outcome=np.array(["a", "b"] * 25))
        whole = buffer.getvalue()
    path.write_bytes(spoilt(data, whole))
    with suppress(TacitError):
        loaded = datasets.load_table(path, target="outcome", bounds=Bounds.parse(BOUNDS, str(tmp_path)))
        inputs, targets = loaded.train
        assert np.abs(inputs).max(initial=0) <= 1
        assert set(np.unique(targets)) <= {0, 1}


@settings(max_examples=75, suppress_health_check=FIXTURES)
@given(data=st.data())
def test_damaged_bounds_are_refused_or_bounds(tmp_path, data):
    text = spoilt(data, BOUNDS.encode()).decode(errors="replace")
    with suppress(TacitError):
        bounds = Bounds.parse(text, str(tmp_path))
        assert bounds.columns


def idx(shape: tuple[int, ...]) -> bytes:
    """Zeros, as MNIST is published."""
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + bytes(int(np.prod(shape)))


@pytest.mark.filterwarnings("ignore::tacit.errors.Caution")
@settings(max_examples=40, suppress_health_check=FIXTURES)
@given(data=st.data(), is_packed=st.booleans())
def test_a_damaged_data_file_is_refused_or_scaled(tmp_path, data, is_packed):
    files = {
        "train-images-idx3-ubyte": idx((3, 28, 28)),
        "train-labels-idx1-ubyte": idx((3,)),
        "t10k-images-idx3-ubyte": idx((2, 28, 28)),
        "t10k-labels-idx1-ubyte": idx((2,)),
    }
    victim = data.draw(st.sampled_from(sorted(files)))
    for name, whole in files.items():
        content = gzip.compress(whole) if is_packed else whole
        (tmp_path / f"{name}{'.gz' if is_packed else ''}").write_bytes(
            spoilt(data, content) if name == victim else content
        )
    with suppress(TacitError):
        loaded = datasets.load("mnist", tmp_path)
        assert np.abs(loaded.train[0]).max(initial=0) <= 1
    for path in tmp_path.iterdir():
        path.unlink()


@pytest.mark.filterwarnings("ignore::tacit.errors.Caution")
@settings(max_examples=30, suppress_health_check=FIXTURES)
@given(
    data=st.data(), name=st.sampled_from(["adult", "a9a", "kddcup99", "bank", "creditcard", "movielens-100k", "imdb"])
)
def test_garbage_in_place_of_a_data_set_is_refused(tmp_path, data, name):
    names = {
        "adult": ["adult.data", "adult.test"],
        "a9a": ["a9a", "a9a.t"],
        "kddcup99": ["kddcup.data_10_percent"],
        "bank": ["bank-full.csv", "bank-additional-full.csv"],
        "creditcard": ["creditcard.csv"],
        "movielens-100k": ["u.data"],
        "imdb": ["imdb.npz"],
    }[name]
    for each in names:
        (tmp_path / each).write_bytes(
            data.draw(st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode()))
        )
    with suppress(TacitError):
        datasets.load(name, tmp_path)
    for each in names:
        (tmp_path / each).unlink()


ANYTHING = st.none() | st.booleans() | st.integers(-2, 200) | st.floats() | st.text(max_size=3) | st.just(object())
X, Y = torch.zeros(20, 3), torch.arange(20) % 2


@pytest.mark.slow
@settings(max_examples=30)
@given(
    changes=st.dictionaries(
        st.sampled_from(
            [
                "clip_norm",
                "multiplier",
                "lot_size",
                "population",
                "steps",
                "epsilon",
                "delta",
                "micro_batch",
                "seed",
                "workers",
            ]
        ),
        ANYTHING,
        min_size=1,
        max_size=3,
    )
)
def test_any_configuration_is_refused_or_keeps_its_budget(changes):
    usual = {
        "clip_norm": 1.0,
        "multiplier": None,
        "lot_size": 20,
        "population": 20,
        "steps": 2,
        "epsilon": 1.0,
        "delta": 1e-3,
    }
    asked = usual | changes
    with suppress(TacitError):
        run = tacit.PrivateRun(
            torch.nn.Linear(3, 2),
            cross_entropy,
            data=(X, Y),
            mechanism=methods.dpsgd(asked["clip_norm"], asked["multiplier"]),
            sampling=tacit.Poisson(asked["lot_size"], asked["population"]),
            steps=asked["steps"],
            budget=Budget(asked["epsilon"], asked["delta"]),
            **{name: asked[name] for name in ("micro_batch", "seed") if name in asked},
        )
        assert run.multiplier > 0
        assert run.plan.budget.allows(run.plan.total(run.steps))
        assert bool(run.guarantee().violations) == (asked.get("seed") is not None)
