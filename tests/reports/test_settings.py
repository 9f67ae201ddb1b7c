"""Settings and declared bounds: all of them, each in words, and a bounds file that says the same again."""

import tomllib

import pytest

from tacit.datasets import Bounds
from tacit.methods.registry import list_gradient_names
from tacit.reports.settings import collect_settings, describe_bounds, describe_settings, format_bounds, list_all_choices

BOUNDS = """
rows = 300          # as Dr Jones told me
held_out = 0.25
example = "patient"
[columns]
dose = { low = 0, high = 1e6, log = true }
"blood pressure" = { low = -1.5, high = 250 }
"é\\"\\\\" = ["no", "yes", "schön", 3]
outcome = ["healthy", "ill"]
"""
KEPT = {
    "data": "iris",
    "method": "dpsgd",
    "model": "/home/jones/net.py:make",
    "epsilon": 3.0,
    "delta": 1e-5,
    "multiplier": None,
    "lot_size": 32.0,
    "population": 119,
    "is_declared": False,
    "steps": 12,
    "clip_norm": 1.0,
    "learning_rate": 0.5,
    "micro_batch": None,
    "seed": None,
    "salt": "ab",
    "ledger": "/home/jones/all.ledger",
}


def test_the_bounds_file_declares_the_same():
    bounds = Bounds.parse(BOUNDS, "/home/jones")
    again = Bounds.parse(describe_bounds(bounds)["file"])
    for name in ("columns", "rows", "held_out", "test", "example"):
        assert getattr(again, name) == getattr(bounds, name)
    assert list(again.columns) == list(bounds.columns)


def test_remarks_and_folders_stay_with_whoever_wrote_them():
    text = BOUNDS.replace("held_out = 0.25", 'test = "/home/jones/public.csv"')
    bounds = Bounds.parse(text, "/home/jones")
    assert "ones" not in repr(describe_bounds(bounds))
    assert tomllib.loads(describe_bounds(bounds)["file"])["test"] == "public.csv"


def test_a_control_character_in_a_name_is_escaped():
    column = {"name": "a\x7fb\x01", "categories": ["x\ny", "z"]}
    about = {"rows": None, "held_out": 0.2, "test": None, "example": "row"}
    read = tomllib.loads(format_bounds({**about, "columns": [column]}))
    assert read["columns"] == {"a\x7fb\x01": ["x\ny", "z"]}


def test_every_setting_has_its_value_and_no_path_or_secret_is_among_them():
    found = collect_settings(KEPT, 2.5)
    assert found["multiplier"] == 2.5
    assert (found["momentum"], found["views"], found["averaging"]) == (0.0, 1, 0.0)
    assert (found["optimizer"], found["seed"]) == ("SGD", None)
    assert found["model"] == "net.py:make"
    assert "jones" not in repr(found)
    assert "salt" not in found


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({}, "Momentum", "none"),
        ({"momentum": 0.9}, "Momentum", "0.9"),
        ({"method": "noisy_adam"}, "Momentum", "Adam's default"),
        ({"method": "noisy_adam"}, "Optimizer", "Adam"),
        ({}, "Optimizer", "SGD"),
        ({}, "Augmented views per image", "none"),
        ({"averaging": 0.98}, "Weight averaging", "decay 0.98"),
        ({}, "Weight averaging", "none"),
        ({}, "Seed", "none: fresh noise in every run"),
        ({"seed": 7}, "Seed", "7 (determines all noise)"),
        ({}, "Noise multiplier", "2.5000 (found from the budget)"),
        ({"multiplier": 2.5}, "Noise multiplier", "2.5000 (as given)"),
        ({"mode": "paper"}, "Noise multiplier", "2.5000 (by the paper's own rule)"),
        ({"is_declared": True}, "Population", "119 (declared, not counted from the data)"),
        ({"epsilon": None}, "Budget", "none: no finite ε is proven for this noise"),
        ({}, "Micro-batch", "a whole lot"),
        ({}, "Method settings", "clipping flat, denominator public, noise gaussian"),
        (
            {"choices": {"clipping": "per_layer"}},
            "Method settings",
            "clipping per layer, denominator public, noise gaussian",
        ),
        ({}, "Recipe", "none"),
    ],
)
def test_settings_are_said_in_plain_words(changes, name, words):
    assert dict(describe_settings(collect_settings({**KEPT, **changes}, 2.5)))[name] == words


def test_noise_that_a_search_found_is_not_called_given():
    found = dict(describe_settings(collect_settings({**KEPT, "multiplier": 2.5}, 2.5, is_tuned=True)))
    assert found["Noise multiplier"] == "2.5000 (found by the search)"
    assert found["Budget"] == "ε = 3 at δ = 1e-05"


@pytest.mark.parametrize("method", list_gradient_names())
def test_the_choices_of_every_method_are_known_with_their_defaults(method):
    assert list_all_choices(method, {}) is not None
    assert all(words for _, words in describe_settings(collect_settings({**KEPT, "method": method}, 1.0)))
