"""What is said of a comparison: nobody is called the best unless that can be told."""

import pytest

from tacit.reports import comparison


def row(label="a", mean=0.9, interval=(0.89, 0.91), **changes) -> dict:
    given = {"label": label, "method": label, "mean": mean, "interval": interval, "mode": "rigorous", "epsilon": 1.0}
    about = {"measure": "accuracy", "certified": 1.0, "adjacency": "add_remove", "unprotected": [], "is_idle": False}
    others = {"is_repaired": False, "refused": None, "seconds": 1.0, "claim": None, "diverged": 0, "seeds": 3}
    return {**given, **about, **others, **changes}


DATA = {"test": "public", "constant": 0.7}


def words_of(rows, measure="accuracy"):
    return comparison.conclusions(rows, measure, DATA, {}, is_finished=True)


def test_the_best_is_named_where_nobody_else_comes_near():
    others = [row("d", 0.99, mode="paper", certified=1.01), row("e", 0.95, certified=None)]
    assert words_of([row("a", 0.95, (0.94, 0.96)), row("c", 0.5, (0.4, 0.6)), *others])[0] == (
        "At ε = 1 (one example added or removed), a is the best of the methods proven at this ε: 95.0 % (94.0 to 96.0)."
    )


def test_who_cannot_be_told_from_the_best_is_named_and_nobody_is_best():
    rows = [row("a", 0.835, (0.2, 0.99)), row("b", 0.5, (0.1, 0.9)), row("c", 0.1, (0.09, 0.11))]
    assert words_of(rows)[0] == (
        "At ε = 1 (one example added or removed), no method proven at this ε is clearly best: a has the highest "
        "accuracy, 83.5 % (20.0 to 99.0), and b is not significantly worse."
    )


def test_one_alone_is_no_best():
    assert "a is the only method proven at this ε: " in words_of([row("a")])[0]


def test_of_errors_the_least_is_the_best():
    rows = [row("a", 50.0, (49, 51), measure="rmse"), row("b", 80.0, (79, 81), measure="rmse")]
    assert "a is the best of the methods proven at this ε: 50 (49 to 51)" in words_of(rows, "rmse")[0]


def test_who_learns_nothing_is_told_apart():
    words = " ".join(words_of([row("a"), row("b", 0.7, is_idle=True)]))
    assert "No better than the majority class (70.0 %) at some ε or at all: b." in words


def test_what_a_method_refuses_is_said_in_its_words():
    scored = {"compares": "add/remove", "status": "proven", "score_words": "90.0 % (89.0 to 91.0)"}
    rows = [row("a", **scored), row("b", None, None, refused="No.", certified=None)]
    assert "b does not fit: No." in words_of(rows)
    table = comparison.lines({"rows": rows, "measure": "accuracy"})
    assert table[0] == ["a", "90.0 % (89.0 to 91.0)", "1.00", "add/remove", "proven", "1"]
    assert table[1][:2] == ["b", "does not fit"]


def test_a_published_form_that_is_proven_to_keep_the_epsilon_competes():
    published = row("b (as published)", 0.8, (0.79, 0.81), mode="paper", certified=0.8)
    words = words_of([row("a", 0.9, (0.89, 0.91)), published])
    assert "a is the best of the methods" in words[0]
    better = {**published, "mean": 0.95, "interval": (0.94, 0.96)}
    assert "b (as published) is the best of the methods" in words_of([row("a"), better])[0]
    assert "b (as published) is the only method proven" in words_of([published])[0]


def test_noise_that_was_found_to_the_last_digit_keeps_its_epsilon():
    assert "a is the only method proven" in words_of([row("a", certified=1 + 1e-7)])[0]


@pytest.mark.parametrize(
    ("seeds", "whose"), [((1, 1), ""), ((3, 1), " for b"), ((1, 3), " for a")], ids=["both", "the other", "the best"]
)
def test_one_seed_tells_no_best(seeds, whose):
    rows = [row("a", 0.95, (0.94, 0.96), seeds=seeds[0]), row("b", 0.5, (0.4, 0.6), seeds=seeds[1])]
    assert words_of(rows)[0] == (
        f"At ε = 1 (one example added or removed), one seed{whose} cannot show which method is best: among those "
        "proven at this ε, a has the highest accuracy, 95.0 % (94.0 to 96.0)."
    )


def test_settings_that_were_given_are_not_passed_off_as_defaults():
    given = comparison.conclusions([row()], "accuracy", DATA, {"learning_rate": 0.1, "steps": 20.0}, is_finished=True)
    assert "if it takes them: learning rate 0.1, steps 20." in given[-1]
    assert "its default settings" not in given[-1]
    assert words_of([row()])[-1].startswith("Every method had its default settings")
