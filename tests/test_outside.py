"""The scripts of `make outside` in short form: right programs pass them, and wrong ones do not."""

import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import architectures  # noqa: E402
import outside  # noqa: E402
import recorder  # noqa: E402
import scikit_checks  # noqa: E402

WAYS = {f"{way.mechanism}, {way.name}": way for way in [*recorder.list_networks(), *recorder.list_preparations()]}
SKLEARN = ("check_fit2d_1sample", "check_get_params_invariance", "check_no_attributes_set_in_init")


def few(way, count=2):
    return replace(way, pairs=lambda: way.pairs()[:count])


@pytest.mark.parametrize("name", ["dpsgd, PrivateRun", "PrivateCentring, fit"])
def test_the_recorder_sees_a_right_claim_used_to_its_end(name):
    found = recorder.try_way(few(WAYS[name]))
    assert found.findings == []
    assert found.distance == pytest.approx(1.0, rel=1e-4)


def test_the_recorder_finds_a_sensitivity_that_is_too_small():
    published = replace(few(WAYS["directional, as published, PrivateRun"]), claims="each")
    assert any("claimed sensitivities" in each for each in recorder.try_way(published).findings)


def test_the_recorder_finds_noise_of_another_scale_than_the_events_say():
    halved = replace(few(WAYS["PrivateCentring, fit"]), moves=2.0)
    assert any("scale / sensitivity" in each for each in recorder.try_way(halved).findings)


def make_case(model):
    return architectures.Case(
        architectures.prepare(model), torch.randn(4, 6).double(), torch.tensor([0, 1, 2, 0]), architectures.lose_class
    )


def test_an_architecture_that_mixes_nothing_is_exact():
    [one] = [each for each in architectures.list_torch() if each.name == "torch.nn GRU"]
    rows, unbuilt = architectures.try_all([one])
    assert [row[-1] for row in rows] == [architectures.EXACT]
    assert unbuilt == []


def test_an_architecture_with_batch_norm_is_refused_and_exact_with_group_norm():
    model = nn.Sequential(nn.Linear(6, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 3))
    verdicts = [architectures.judge(case)[-1] for _, case in architectures.list_forms(make_case(model))]
    assert verdicts[0].startswith(architectures.REFUSED)
    assert verdicts[1] == architectures.EXACT


def test_gradients_that_are_wrong_fail(monkeypatch):
    right = architectures.per_example_gradients
    monkeypatch.setattr(architectures, "per_example_gradients", lambda *args: right(*args[:2], args[2] * 1.1, args[3]))
    assert architectures.judge(make_case(nn.Linear(6, 3)))[-1] == architectures.FAILED


@pytest.mark.parametrize("is_noisy", [True, False])
def test_scikit_learn_checks_are_counted_and_failures_need_a_reason(is_noisy, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    quiet = scikit_checks.list_estimators()[0]
    estimator = scikit_checks.at_one(quiet) if is_noisy else quiet
    found = scikit_checks.run_checks(estimator, wanted=SKLEARN.__contains__)
    assert (found.passed, found.failed) == (len(SKLEARN), {})
    assert replace(found, failed={"check_x": "no"}).unexplained(is_noisy=is_noisy) == ["check_x"]


PUBLISHED = tomllib.loads(outside.PUBLISHED.read_text())["value"]


def test_every_published_value_is_about_an_event_of_ours():
    assert len({outside.read_event(entry["parts"]) for entry in PUBLISHED}) > 50


def test_values_of_others_are_beside_ours_and_wrong_ones_contradict():
    [mixture] = [entry for entry in PUBLISHED if entry["value"] == 0.15768284088654105]
    _, lower, upper = outside.ask_ours(outside.read_event(mixture["parts"])[1], mixture)
    for kind, value, verdict in [
        (outside.EXACT, mixture["value"], "agrees"),
        (outside.EXACT, 0.158, "CONTRADICTS"),
        (outside.UPPER, 0.158, "agrees"),
        (outside.UPPER, 0.157, "CONTRADICTS"),
        (outside.LOWER, 0.158, "CONTRADICTS"),
    ]:
        assert outside.judge(outside.Answer("x", kind, value, 1e-7), lower, upper) == verdict
