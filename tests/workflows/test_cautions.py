"""What is said where a copy is not the published one, or delta is too large to mean much; and where nothing is."""

import json
import warnings

import pytest

from support.published_files import CARD, write_published
from tacit.cli.output import print_cautions
from tacit.datasets._data import count_training_rows
from tacit.errors import Caution
from tacit.workflows.arguments import warn_about_delta

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")
PUBLISHED = count_training_rows(284_807)
TRIALS = "--steps 1 --trials 1.5 --learning-rate 0.1,1"


def warnings_in(run) -> list[str]:
    return [line for line in run.err.splitlines() if line.startswith("WARNING: ")]


@pytest.fixture
def nothing_is_compared(monkeypatch):
    """A comparison ends where its cells would be trained."""
    monkeypatch.setattr("tacit.workflows.compare.run_jobs", lambda *_: False)


@pytest.fixture(autouse=True)
def few_cards(tmp_path):
    """A copy with 60 of the published rows."""
    head, row = CARD.splitlines()
    rows = [row.replace("0,", f"{i},", 1).removesuffix("1") + str(i % 2) for i in range(60)]
    (tmp_path / "cards.csv").write_text("\n".join([head, *rows]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("train creditcard --multiplier 2 --steps 2", "with --population, and a --lot-size that fits."),
        ("train creditcard --epsilon 3", "with --population."),
        ("compare creditcard --methods dpsgd", "with --population, and a --lot-size that fits."),
        (f"tune creditcard --epsilon 3 {TRIALS}", "with --population, and a --lot-size that fits."),
    ],
    ids=["train", "recipe", "compare", "tune"],
)
def test_a_copy_of_another_size_is_not_trained_on_in_silence(run_cli, nothing_is_compared, line, advice):
    run = run_cli(f"{line} --data-path cards.csv")
    (said,) = warnings_in(run)
    assert f"it has fewer training examples than the published {PUBLISHED:,}." in said
    assert said.endswith(advice)
    # How many there are is private: 48 are trained on, 12 are public.
    assert "48" not in said.replace(f"{PUBLISHED:,}", "")


def test_whoever_declares_the_population_is_not_told_again(run_cli):
    run = run_cli("train creditcard --multiplier 2 --steps 2 --population 48 --lot-size 24 --data-path cards.csv")
    assert (run.code, run.err) == (0, "")


def test_a_copy_with_more_than_was_published_is_said_to_have_more(run_cli, tmp_path):
    write_published("breast-cancer-wisconsin", tmp_path)
    file = tmp_path / "breast-cancer-wisconsin.data"
    file.write_text(file.read_text() * 710)
    (said,) = warnings_in(run_cli("train breast-cancer-wisconsin --multiplier 2 --steps 2 --data-path ."))
    assert f"it has more training examples than the published {count_training_rows(699)}." in said


@pytest.mark.slow
def test_a_whole_copy_is_trained_on_without_a_word(run_cli, tmp_path):
    write_published("breast-cancer-wisconsin", tmp_path)
    file = tmp_path / "breast-cancer-wisconsin.data"
    file.write_text(file.read_text() * 699)
    run = run_cli("train breast-cancer-wisconsin --multiplier 2 --steps 2 --data-path .")
    assert (run.code, run.err) == (0, "")


@pytest.fixture
def patients(tmp_path):
    """A function that writes a table of 300 rows and bounds that declare so many."""

    def write(declared: int) -> str:
        rows = [f"{i / 30},{'ill' if i > 150 else 'healthy'}" for i in range(300)]
        (tmp_path / "patients.csv").write_text("\n".join(["dose,outcome", *rows]))
        columns = '[columns]\ndose = { low = 0, high = 10 }\noutcome = ["healthy", "ill"]\n'
        (tmp_path / "bounds.toml").write_text(f"rows = {declared}\n{columns}")
        return "patients.csv --target outcome --bounds bounds.toml"

    return write


@pytest.mark.slow
@pytest.mark.parametrize(("declared", "far"), [(3_000, "far fewer"), (30, "far more"), (380, None)])
@pytest.mark.parametrize("line", ["train {} --multiplier 2 --steps 2", "train {} --epsilon 8 --steps 2"])
def test_a_table_far_from_what_was_declared_is_not_trained_on_in_silence(run_cli, patients, line, declared, far):
    said = warnings_in(run_cli(f"{line.format(patients(declared))} --json"))
    assert [
        f"has {far} training examples than the declared population of {declared * 4 // 5:,}." in each for each in said
    ] == ([] if far is None else [True])
    assert not [each for each in said if "300" in each.replace("3,000", "")]


@pytest.mark.parametrize("line", ["compare {} --methods dpsgd", f"tune {{}} --epsilon 3 {TRIALS}"])
def test_nor_is_it_compared_or_tuned_on(run_cli, patients, nothing_is_compared, line):
    (said,) = warnings_in(run_cli(line.format(patients(3_000))))
    assert "as rows in the bounds, or with --population, and a --lot-size that fits." in said


def test_a_declared_population_far_from_a_published_set_is_told(run_cli):
    (said,) = warnings_in(run_cli("train iris --multiplier 2 --steps 2 --population 1000 --lot-size 100"))
    assert "iris has far fewer training examples than the declared population of 1,000." in said
    assert "declare it with --population, and" in said


def leaves(values, place=()) -> dict[tuple[str, ...], object]:
    """Every value that a JSON file holds, by its names; those of a list have one place."""
    if not isinstance(values, dict):
        return {place: values}
    return {key: leaf for name, each in values.items() for key, leaf in leaves(each, (*place, name)).items()}


# Noisy, salted, or of whoever trained: these differ.
MADE_OF_RELEASES = {"test", "fingerprint", "final", "interval", "noise_std", "by_step", "sentences", "out", "salt"}


@pytest.mark.slow
def test_what_was_counted_goes_into_nothing_that_is_released(run_cli, patients, tmp_path):
    outputs, found = [], []
    for count in (300, 40):
        line = patients(300)
        table = (tmp_path / "patients.csv").read_text().splitlines()
        (tmp_path / "patients.csv").write_text("\n".join(table[: 1 + count]))
        run = run_cli(f"train {line} --multiplier 2 --steps 2 --seed 1 --out run{count}")
        assert len(warnings_in(run)) == (count == 40)
        outputs.append(run.out)
        run_cli(f"report run{count}")
        released = [
            path for path in (tmp_path / f"run{count}").rglob("*") if path.suffix in (".json", ".html", ".jsonl")
        ]
        assert any(path.suffix == ".html" for path in released)
        assert not [path for path in released if "far fewer" in path.read_text()]
        files = {path.name: json.loads(path.read_text()) for path in released if path.suffix == ".json"}
        found.append(leaves(files))
    assert not [each for each in outputs if "fewer" in each]
    first, second = found
    assert first.keys() == second.keys()
    differing = {place for place in first if first[place] != second[place]}
    assert not [place for place in differing if not MADE_OF_RELEASES & set(place)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "train iris --epsilon 1",
        "train iris --multiplier 2 --steps 2",
        "compare iris --methods dpsgd",
        "plan --population 119 --epsilon 1",
        "noise --population 119 --lot-size 32 --steps 2 --epsilon 1",
        f"tune iris --epsilon 1 {TRIALS}",
    ],
    ids=["recipe", "train", "compare", "plan", "noise", "tune"],
)
def test_a_delta_with_which_an_example_could_be_published_is_not_taken_in_silence(run_cli, nothing_is_compared, line):
    (said,) = warnings_in(run_cli(f"{line} --delta 0.02 --json"))
    assert "delta 0.02 is not below 1/119, one over the population" in said


def test_a_delta_that_covers_all_that_leaks_is_refused(run_cli):
    run = run_cli("train iris --multiplier 2 --steps 2 --delta 0.5")
    assert (run.code, run.out) == (2, "")
    assert "delta alone covers everything that leaks" in run.err
    assert "far below 1/119" in run.err


def test_what_loading_says_is_a_sentence_and_other_warnings_are_as_ever(capsys):
    with warnings.catch_warnings(record=True) as others, print_cautions():
        warnings.simplefilter("always")
        warnings.warn("This copy is small.", Caution, stacklevel=1)
        warnings.warn("Old.", DeprecationWarning, stacklevel=1)
    assert [str(each.message) for each in others] == ["Old."]
    assert capsys.readouterr().err == "WARNING: This copy is small.\n"


@pytest.mark.parametrize(("delta", "is_large"), [(1 / 100, True), (0.99 / 100, False), (1e-5, False)])
def test_delta_is_large_from_one_over_the_population(delta, is_large):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        warn_about_delta(delta, 100)
    assert [one.category for one in given] == [Caution] * is_large
