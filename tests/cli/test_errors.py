"""Nonsense is refused: which argument, its value, what to do; on standard error, with exit code 2."""

import os

import pytest

RUN = {"multiplier": "1.1", "rate": "1", "steps": "10", "delta": "1e-5"}


def line(**changes: str | None) -> str:
    options = {**RUN, **changes}
    return "epsilon " + " ".join(f"--{name} {value}" for name, value in options.items() if value is not None)


def refusal(run) -> str:
    assert run.code == 2
    assert run.out == ""
    assert "Traceback" not in run.err
    assert run.err.count("\n") == 1
    assert run.err.startswith("Error: ")
    return run.err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"multiplier": "-1"}, "multiplier must be a finite number above 0. Got -1."),
        ({"multiplier": "nan"}, "multiplier must be a finite number above 0. Got nan."),
        ({"multiplier": "inf"}, "multiplier must be a finite number above 0. Got inf."),
        ({"delta": "0"}, "delta must be a number strictly between 0 and 1. Got 0."),
        ({"delta": "1"}, "delta must be a number strictly between 0 and 1. Got 1."),
        ({"delta": "nan"}, "delta must be a number strictly between 0 and 1. Got nan."),
        ({"rate": "1.5"}, "rate must be a number above 0 and at most 1. Got 1.5."),
        ({"rate": "0"}, "rate must be a number above 0 and at most 1. Got 0."),
        ({"steps": "2.5"}, "steps must be a whole number of at least 1. Got 2.5."),
        ({"steps": "0"}, "steps must be a whole number of at least 1. Got 0."),
        ({"steps": None, "epochs": "-1"}, "epochs must be a finite number above 0. Got -1."),
        ({"group": "0"}, "group must be a whole number of at least 1. Got 0."),
        ({"rate": None, "lot-size": "0", "population": "10"}, "lot_size must be a finite number above 0. Got 0."),
        ({"rate": None, "lot-size": "9", "population": "0.5"}, "population must be a whole number of at least 1."),
        ({"rate": None, "lot-size": "11", "population": "10"}, "lot_size must be at most the population. Got 11"),
    ],
    ids=lambda value: " ".join(f"{name} {given}" for name, given in value.items()) if isinstance(value, dict) else "",
)
def test_a_number_out_of_its_range_is_named_with_the_range(run_cli, changes, words):
    assert words in refusal(run_cli(line(**changes)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lot-size": "3"}, "--rate and --lot-size were given"),
        ({"population": "3"}, "--rate and --population were given"),
        ({"rate": None}, "The sampling rate is not known. Give either --rate, or --lot-size and --population."),
        ({"rate": None, "lot-size": "3"}, "only --lot-size was given. Give either --rate"),
        ({"epochs": "3"}, "Both of --steps and --epochs"),
        ({"steps": None}, "Neither of --steps and --epochs"),
        ({"multiplier": None}, "Give --multiplier, or an event by --event FILE."),
        ({"event": "x.json"}, "--event describes the whole run. Leave out --multiplier, --rate, --steps, or"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_what_is_missing_or_said_twice_is_named(run_cli, changes, words):
    assert words in refusal(run_cli(line(**changes)))


def test_what_is_not_a_number_is_said_to_be_none(run_cli):
    run = run_cli(line(steps="many"))
    assert run.code == 2
    assert "'many' is not a number. Write it like 14062, 1.1 or 1e-5." in run.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read: No such file"),
        ("not json", "holds no event. This is not a JSON text"),
        ("[]", "holds no event."),
        ('{"version": 99}', "An event of version 99"),
        ('{"version": 1, "event": "magic"}', "Not an event of version 1"),
        ('{"version": 1, "event": "gaussian", "multiplier": -1, "adjacency": "add_remove"}', "multiplier must be"),
        ('{"version": 1, "event": "gaussian", "multiplier": 1, "adjacency": "next_door"}', "next_door"),
    ],
)
def test_a_file_without_an_event_is_refused_by_name(run_cli, tmp_path, text, words):
    path = tmp_path / "event.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    message = refusal(run_cli(f"epsilon --delta 1e-5 --event '{path}'"))
    assert words in message
    assert str(path) in message


def test_a_file_that_is_not_text_is_refused(run_cli, tmp_path):
    path = tmp_path / "event.json"
    path.write_bytes(b"\xff\xfe\x00")
    assert "is not a text file" in refusal(run_cli(f"epsilon --delta 1e-5 --event '{path}'"))


@pytest.mark.parametrize("name", ["picture.gif", "picture", ".png"])
def test_a_picture_of_unknown_kind_is_refused_before_anything_is_computed(run_cli, tmp_path, monkeypatch, name):
    monkeypatch.setattr("tacit.workflows.epsilon.find", lambda *_, **__: pytest.fail("computed"))
    message = refusal(run_cli(f"{line()} --plot '{tmp_path / name}'"))
    assert ".png, .svg or .pdf" in message


def test_a_picture_in_a_folder_that_is_not_there_is_refused(run_cli, tmp_path):
    assert "there is no folder" in refusal(run_cli(f"{line()} --plot '{tmp_path / 'none' / 'a.png'}'"))


def test_a_picture_where_a_folder_stands_is_refused(run_cli, tmp_path):
    (tmp_path / "a.png").mkdir()
    assert "not writable" in refusal(run_cli(f"{line()} --plot '{tmp_path / 'a.png'}'"))


def test_a_picture_in_a_folder_without_permission_is_refused(run_cli, tmp_path, monkeypatch):
    # As root every folder is writable, so the answer of the system is replaced.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "not writable" in refusal(run_cli(f"{line()} --plot '{tmp_path / 'a.png'}'"))


@pytest.mark.slow
def test_a_picture_that_cannot_be_written_after_all_is_an_error(run_cli, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    message = refusal(run_cli(f"{line()} --plot '{tmp_path / 'a.png'}'"))
    assert "No space left on device" in message


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("train iris --epsilonn 1", "--epsilon"), ("compare iris --methds dpsgd", "--methods"), ("trian iris", "'train'")],
)
def test_a_misspelt_option_or_command_names_the_closest_one_alone(run_cli, typed, meant):
    refused = run_cli(typed)
    assert refused.code == 2
    assert refused.err.endswith(f"Did you mean {meant}?\n")
