"""What is said where a copy is not the published one, or delta is too large to mean much; and where nothing is."""

import pytest

from published_files import CARD, write_published
from tacit.cli.cautions import large_delta
from tacit.datasets.data import private_part

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")
PUBLISHED = private_part(284_807)
TRIALS = "--steps 1 --trials 1.5 --learning-rate 0.1,1"


def warnings_in(run) -> list[str]:
    return [line for line in run.err.splitlines() if line.startswith("WARNING: ")]


@pytest.fixture
def nothing_is_compared(monkeypatch):
    """A comparison ends where its cells would be trained."""
    monkeypatch.setattr("tacit.cli.comparing.run", lambda *_: False)


@pytest.fixture(autouse=True)
def few_cards(tmp_path):
    """A copy with 60 of the published rows."""
    head, row = CARD.splitlines()
    rows = [row.replace("0,", f"{i},", 1).removesuffix("1") + str(i % 2) for i in range(60)]
    (tmp_path / "cards.csv").write_text("\n".join([head, *rows]))


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("train creditcard --multiplier 2 --steps 2", "--population, and --lot-size so that it fits that."),
        ("train creditcard --epsilon 3", "declare it by --population."),
        ("compare creditcard --methods dpsgd", "--population, and --lot-size so that it fits that."),
        (f"tune creditcard --epsilon 3 {TRIALS}", "--population, and --lot-size so that it fits that."),
    ],
    ids=["train", "recipe", "compare", "tune"],
)
def test_a_copy_of_another_size_is_not_trained_on_in_silence(tacit, nothing_is_compared, line, advice):
    run = tacit(f"{line} --data-path cards.csv")
    (said,) = warnings_in(run)
    assert f"has fewer examples to train on than the {PUBLISHED:,} that lots are planned for" in said
    assert said.endswith(advice)
    # How many there are is private: 48 are trained on, 12 are public.
    assert "48" not in said.replace(f"{PUBLISHED:,}", "")


def test_whoever_declares_the_population_is_not_told_again(tacit):
    run = tacit("train creditcard --multiplier 2 --steps 2 --population 48 --lot-size 24 --data-path cards.csv")
    assert (run.code, run.err) == (0, "")


def test_a_copy_with_more_than_was_published_is_said_to_have_more(tacit, tmp_path):
    write_published("breast-cancer-wisconsin", tmp_path)
    file = tmp_path / "breast-cancer-wisconsin.data"
    file.write_text(file.read_text() * 710)
    (said,) = warnings_in(tacit("train breast-cancer-wisconsin --multiplier 2 --steps 2 --data-path ."))
    assert f"has more examples to train on than the {private_part(699)} that" in said


def test_a_whole_copy_is_trained_on_without_a_word(tacit, tmp_path):
    write_published("breast-cancer-wisconsin", tmp_path)
    file = tmp_path / "breast-cancer-wisconsin.data"
    file.write_text(file.read_text() * 699)
    run = tacit("train breast-cancer-wisconsin --multiplier 2 --steps 2 --data-path .")
    assert (run.code, run.err) == (0, "")


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
def test_a_delta_with_which_an_example_could_be_published_is_not_taken_in_silence(tacit, nothing_is_compared, line):
    (said,) = warnings_in(tacit(f"{line} --delta 0.02 --json"))
    assert "delta 0.02 is not below 1/119, one over the population" in said


def test_a_delta_that_covers_all_that_leaks_is_refused(tacit):
    run = tacit("train iris --multiplier 2 --steps 2 --delta 0.5")
    assert (run.code, run.out) == (2, "")
    assert "delta alone covers all that leaks" in run.err
    assert "far below 1/119" in run.err


@pytest.mark.parametrize(("delta", "is_large"), [(1 / 100, True), (0.99 / 100, False), (1e-5, False)])
def test_delta_is_large_from_one_over_the_population(delta, is_large):
    assert (large_delta(delta, 100) is not None) == is_large
