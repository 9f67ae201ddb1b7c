"""All claims at once: kept as they come, made again for another program, read back as they were."""

import json
import math
import pickle

import numpy as np
import pytest

from tacit.audit import LowerBound
from tacit.audit.claims import read_report, run_fixtures, write_report
from tacit.audit.evidence import AuditReport, Finding, Kind
from tacit.audit.fixtures import Fixture, all_fixtures, gradient
from tacit.audit.fixtures.nasr import FIXTURES as QUICK
from tacit.audit.runs import show_progress
from tacit.guarantee import Claim


def counted(name, calls, fails=False):
    """A fixture that writes down that it was run."""

    def attack():
        calls.append(name)
        if fails:
            raise KeyboardInterrupt
        return LowerBound(2.0, 1e-5)

    return Fixture(name, "dpsgd", Claim(1.0, 1e-5, "nobody"), Kind.EXACT, "", attack)


def test_a_stopped_audit_goes_on_where_it_was(tmp_path):
    calls = []
    with pytest.raises(KeyboardInterrupt):
        run_fixtures([counted("one", calls), counted("two", calls, fails=True)], tmp_path)
    reports = run_fixtures([counted("one", calls), counted("two", calls)], tmp_path)
    assert calls == ["one", "two", "two"]
    assert [one.finding.bound.epsilon for one in reports] == [2.0, 2.0]


def test_what_another_program_found_is_not_taken_for_this_one_s(tmp_path, monkeypatch):
    calls = []
    run_fixtures([counted("one", calls)], tmp_path)
    run_fixtures([counted("one", calls)], tmp_path)
    assert calls == ["one"]
    monkeypatch.setattr("tacit.audit.claims._fingerprint_program", lambda: "another")
    run_fixtures([counted("one", calls)], tmp_path)
    run_fixtures([counted("another", calls)], tmp_path)
    assert calls == ["one", "one", "another"]


def test_every_fixture_can_be_sent_to_another_process():
    assert len(pickle.loads(pickle.dumps(all_fixtures()))) == len(all_fixtures())


@pytest.mark.slow
def test_what_is_read_back_is_what_was_found(tmp_path):
    assert run_fixtures(QUICK, tmp_path) == [fixture.run() for fixture in QUICK]


@pytest.mark.parametrize("proven", [3.0, math.inf])
def test_a_report_survives_json(proven):
    bound = LowerBound(math.inf, 1e-5, gap=0.25, kind=Kind.PROBABILITY_GAP)
    measured = LowerBound(1.5, 1e-5, 0.99, Kind.SIMULATED, assuming="something")
    finding = Finding("an attack", bound, measured, False, ((0.1, 0.8), (0.2, 0.6)), ("a note",))
    report = AuditReport(finding, 1.0, proven, source="somebody")
    assert read_report(json.loads(json.dumps(write_report(report)))) == report


def test_runs_within_runs_show_one_bar(monkeypatch):
    made = []

    class Bar:
        def __init__(self, *columns, disable, **settings):
            made.append(disable)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def add_task(self, *name, **numbers):
            return 0

    monkeypatch.setattr("tacit.audit.runs.Progress", Bar)
    monkeypatch.setattr("tacit.audit.runs.Console", lambda **_: type("Terminal", (), {"is_terminal": True})())
    with show_progress("outer", 2, 0), show_progress("inner", 2, 0):
        pass
    with show_progress("next", 2, 0):
        pass
    assert made == [False, True, False]


def test_results_are_arrays_of_bytes(tmp_path):
    run_fixtures(QUICK[:1], tmp_path)
    [path] = tmp_path.glob("claims-*.npy")
    assert json.loads(np.load(path).tobytes())["verdict"] == "claim broken"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["buckets", "quantile"])
def test_a_trial_shows_the_same_again(form):
    [trial, *_] = [one for one in gradient.TRIALS if one.form == form]
    assert trial.run(16).finding == trial.run(16).finding
