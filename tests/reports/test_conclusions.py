"""What a comparison concludes: one answer, and notes about its limits."""

from pathlib import Path

import pytest

from tacit.reports import comparison
from tacit.reports.answer import LINES, WIDTH, Answer


def row(label="a", mean=0.9, interval=(0.89, 0.91), **changes) -> dict:
    given = {"label": label, "method": label, "mean": mean, "interval": interval, "mode": "rigorous", "epsilon": 1.0}
    about = {"measure": "accuracy", "certified": 1.0, "adjacency": "add_remove", "unprotected": [], "is_idle": False}
    others = {"is_repaired": False, "refused": None, "seconds": 1.0, "claim": None, "diverged": 0, "seeds": 3}
    return {**given, **about, "auc": 0.9, **others, **changes}


def plain(mean=0.96, **changes) -> dict:
    """The model without privacy."""
    nothing = {"epsilon": None, "certified": None, "adjacency": None, "auc": 0.97}
    return row("without privacy", mean, (mean - 0.01, mean + 0.01), method="non_private", **nothing, **changes)


DATA = {"test": "public", "constant": 0.7, "name": "adult", "example": "person"}


def answer_of(rows, measure="accuracy", *, methods=(), caveat=None, commands=(), **data) -> Answer:
    progress = {"is_finished": caveat is None, "caveat": caveat}
    about = {
        "measure": measure,
        "delta": 1e-5,
        "data": {**DATA, **data},
        "progress": progress,
        "methods": list(methods),
        "commands": list(commands),
    }
    return Answer.of({**about, "rows": rows})


def only(answer):
    (choice,) = answer.choices
    return choice


def notes_of(rows, measure="accuracy", given=None):
    return comparison.list_notes(rows, measure, DATA, given or {})


def test_the_best_is_named_where_nobody_else_comes_near():
    others = [row("d", 0.99, mode="paper", certified=1.01), row("e", 0.95, certified=None)]
    choice = only(answer_of([row("a", 0.95, (0.94, 0.96)), row("c", 0.5, (0.4, 0.6)), *others]))
    assert (choice.method, choice.score, choice.interval, choice.ties) == ("a", 0.95, (0.94, 0.96), ())


def test_who_cannot_be_told_from_the_best_is_tied_with_it():
    rows = [row("a", 0.835, (0.2, 0.99)), row("b", 0.75, (0.1, 0.9)), row("c", 0.1, (0.09, 0.11))]
    assert (only(answer_of(rows)).method, only(answer_of(rows)).ties) == ("a", ("b",))


def test_of_errors_the_least_is_the_best():
    rows = [row("a", 50.0, (49, 51), measure="rmse", auc=None), row("b", 80.0, (79, 81), measure="rmse", auc=None)]
    assert only(answer_of(rows, "rmse")).method == "a"


def test_the_cost_of_an_error_is_what_privacy_adds():
    rows = [row("a", 50.0, (49, 51), measure="rmse", auc=None), plain(40.0, measure="rmse") | {"auc": None}]
    answer = answer_of(rows, "rmse", constant=77.0)
    assert only(answer).cost == 10
    assert answer.describe_cost(only(answer)) == "10 more"
    assert "Spread of target 77 standard deviation" in " ".join(str(answer).split())


def test_the_cost_is_the_difference_of_the_numbers_that_are_shown():
    answer = answer_of([row("a", 0.8564), plain(0.8576)])
    assert answer.describe_cost(only(answer)) == "0.2 points"


def test_privacy_that_scored_no_worse_costs_nothing():
    answer = answer_of([row("a", 0.97), plain(0.96)])
    assert answer.describe_cost(only(answer)) == "nothing"


def test_the_baseline_is_the_better_of_the_models_without_privacy():
    better = plain(0.98) | {"label": "recipe, without privacy", "method": "recipe"}
    answer = answer_of([row("a"), plain(0.96), better])
    assert (answer.baseline.method, answer.baseline.score) == ("recipe, without privacy", 0.98)
    assert only(answer).cost == pytest.approx(0.08)


def test_no_method_is_named_where_none_beats_the_majority_class():
    answer = answer_of([row("a", 0.69, (0.6, 0.8), is_idle=True), plain()])
    assert only(answer).method is None
    assert "none beats majority" in str(answer)


def test_who_learns_nothing_is_tied_with_nobody():
    answer = answer_of([row("a", 0.72, (0.5, 0.9)), row("b", 0.69, (0.5, 0.9), is_idle=True)])
    assert only(answer).ties == ()


def test_adjacencies_are_never_compared():
    rows = [row("a", 0.8, (0.79, 0.81)), row("b", 0.95, (0.94, 0.96), adjacency="replace_one")]
    answer = answer_of(rows)
    assert [(one.adjacency, one.method, one.ties) for one in answer.choices] == [
        ("add_remove", "a", ()),
        ("replace_one", "b", ()),
    ]


def test_a_published_form_that_is_proven_to_keep_the_epsilon_can_be_chosen():
    published = row("b (as published)", 0.95, (0.94, 0.96), mode="paper", certified=0.8)
    assert only(answer_of([row("a"), published])).method == "b (as published)"


def test_noise_that_was_found_to_the_last_digit_keeps_its_epsilon():
    assert only(answer_of([row("a", certified=1 + 1e-7)])).method == "a"


def test_a_row_that_diverged_is_no_competitor():
    assert only(answer_of([row("a", None, None, diverged=1), row("b", 0.8)])).method == "b"


def test_claims_that_do_not_hold_are_counted_by_name():
    methods = [
        {"name": name, "status": status} for name, status in (("a", "refuted"), ("b", "proven"), ("c", "refuted"))
    ]
    assert "do not hold: 2 of 3 (a, c)" in answer_of([row()], methods=methods).describe_claims()


def test_one_seed_is_said_to_leave_out_the_randomness_of_training():
    assert "With one seed" in str(answer_of([row(seeds=1)]))
    assert "With one seed" not in str(answer_of([row(seeds=2)]))


@pytest.mark.parametrize(
    ("typed", "train"),
    [
        ("", "tacit train TABLE --target COLUMN --bounds FILE"),
        ("tacit compare --bounds b.toml 'my table.csv'", "tacit train TABLE --target COLUMN --bounds FILE"),
        (
            "tacit compare 'my table.csv' --seeds 2 --bounds b.toml --target y --out FOLDER",
            "tacit train 'my table.csv' --target y --bounds b.toml --epsilon 1",
        ),
    ],
)
def test_the_command_that_trains_the_recipe_has_the_table_and_its_options(typed, train):
    rows = [row("recipe", 0.85), plain()]
    assert "tacit train adult --epsilon 1" in str(answer_of(rows))
    assert train in str(answer_of(rows, commands=[typed], is_own=True, name="my table"))


def test_an_unfinished_comparison_chooses_nothing():
    answer = answer_of([row()], caveat="1 of 2 cells are trained.")
    assert answer.choices == ()
    assert "Unfinished: 1 of 2 cells are trained." in str(answer)


@pytest.mark.parametrize("count", [1, 3, 4, 12, 40])
def test_the_answer_fits_on_a_terminal_however_much_is_compared(count):
    names = [f"a_method_with_a_long_name_{place}" for place in range(14)]
    rows = [
        row(name, 0.9, (0.85, 0.95), epsilon=float(epsilon), certified=float(epsilon), adjacency=adjacency)
        for name in names
        for epsilon in range(1, count + 1)
        for adjacency in ("add_remove", "replace_one")
    ]
    methods = [{"name": name, "status": "refuted"} for name in names]
    lines = answer_of([*rows, plain()], methods=methods).lines(Path("demo/report.html"))
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH
    assert lines[-1] == "Page: demo/report.html"
    assert sum("a_method_with_a_long_name" in line and "90.0 %" in line for line in lines) >= 2


def test_who_learns_nothing_is_said_with_the_epsilon():
    words = " ".join(notes_of([row("a"), row("b", 0.7, is_idle=True)]))
    assert "No better than the majority class (70.0 %): b at ε = 1." in words


def test_what_a_method_refuses_is_said_in_its_words():
    assert "b does not fit: No." in notes_of([row("a"), row("b", None, None, refused="No.", certified=None)])


def test_the_table_has_a_column_for_every_epsilon_and_keeps_adjacencies_apart():
    rows = [row("a", epsilon=at) for at in (0.5, 1.0)] + [row("b", 0.8, (0.7, 0.9), adjacency="replace_one")]
    added, replaced = comparison.write_table({"rows": rows, "measure": "accuracy"}).split("\n\n")
    assert added.splitlines()[1:] == [
        "  method  epsilon 0.5  epsilon 1   seconds",
        "  a       90.0 ± 1.0   90.0 ± 1.0  1",
    ]
    assert replaced.splitlines()[2].split() == ["b", "80.0", "±", "10.0", "1"]


def test_settings_that_were_given_are_not_passed_off_as_defaults():
    given = notes_of([row()], given={"learning_rate": 0.1, "steps": 20.0})
    assert "if it takes them: learning rate 0.1, steps 20." in given[-1]
    assert "its default settings" not in given[-1]
    assert notes_of([row()])[-1].startswith("Every method used its default settings")
