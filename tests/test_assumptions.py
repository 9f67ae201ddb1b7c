"""Assumptions as data: keys for code, texts for people, and files that were written before there were keys."""

import json
import re
from pathlib import Path

import pytest

import tacit
from tacit._old_names import _SENTENCES, key_of
from tacit.accounting import Gaussian
from tacit.guarantee import AUDIT, Assumption, Guarantee

ROOT = Path(__file__).resolve().parents[1]
FULL = Assumption("full_batch", "Every example takes part in every step; nothing is gained from sampling.")
# As earlier versions wrote them.
OLD = {
    "Lots are Poisson samples at rate 0.00426667, and which examples they held stays secret.": "poisson_lots",
    "Lots are Poisson samples, and which examples they held stays secret.": "poisson_lots",
    "Sums are divided by the public lot size, never by the number of examples that came.": "public_lot_size",
    "The model's first weights, and all that was done to the data before, did not depend on the examples.": (
        "nothing_fitted_before"
    ),
    "The model's first weights did not depend on the examples, nor did their features, but for the mean that was "
    "released first.": "prepared_by_release",
    "The model's first weights did not depend on the examples, nor did their features, but for the mean (for "
    "whitening also second moments, for cells also counts) that was released first.": "prepared_by_release",
    "This is the cost of one fit. Every further fit on the same examples, in a search, a cross-validation or by hand, "
    "adds its own; give all of them one ledger to have them added up. Scores on these examples have no noise and no "
    "guarantee, and neither has a choice based on them: choose with public examples.": "one_fit",
    "The noise is a normal number in floating point, rounded together with the sum to a public grid.": (
        "noise_on_a_grid"
    ),
    "3 lost steps were not charged, as whoever resumed declared that nothing of them left the process.": (
        "lost_steps_not_charged"
    ),
    "Every row, the 1 of its intercept included, was clipped to a norm of 2, which was declared and not looked up.": (
        "rows_clipped"
    ),
    "The number of examples is public.": "public_count",
    "The number of examples, 569, is public: it was counted, not declared.": "counted_examples",
    "The population of 60,000 is public: it follows from the published size of mnist.": "public_population",
    "Inputs were scaled without looking at them: pixels from 0 to 255 became numbers from 0 to 1.": "public_scaling",
    "What is protected is one row; whoever has several in the data is protected less.": "one_unit",
    "The number of trials was drawn at random (10 on average) and stays secret, as do all other trials.": (
        "secret_trials"
    ),
    "Lots are Poisson samples, more or less.": "other",
    "": "other",
}


def of_version_1(guarantee: Guarantee, **changes) -> str:
    """The file that an earlier version would have written."""
    data = json.loads(guarantee.to_json())
    data["proven"]["assumptions"] = [each["text"] for each in data["proven"]["assumptions"]]
    del data["findings"]
    return json.dumps(data | {"version": 1} | changes)


def test_an_assumption_prints_as_its_text():
    assert f"{FULL}" == str(FULL) == FULL.text
    assert tacit.Assumption is Assumption
    assert f"\nAssumptions:\n- {FULL.text}" in str(Guarantee(Gaussian(1.0), 1e-5, assumptions=(FULL,)))


def test_json_holds_keys_and_texts():
    guarantee = Guarantee(Gaussian(1.0), 1e-5, assumptions=(FULL,))
    assert json.loads(guarantee.to_json())["proven"]["assumptions"] == [{"key": FULL.key, "text": FULL.text}]
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


@pytest.mark.parametrize(("sentence", "key"), OLD.items(), ids=OLD.values())
def test_an_old_sentence_has_its_key(sentence, key):
    assert key_of(sentence) == key


def test_no_old_sentence_has_two_keys():
    for key, sentences in _SENTENCES.items():
        assert {key_of(sentence.replace("{}", "7")) for sentence in sentences} == {key}


def test_a_file_of_version_1_is_read():
    sentences = list(OLD)
    assumptions = tuple(Assumption("wrong", each) for each in sentences)
    read = Guarantee.from_json(of_version_1(Guarantee(Gaussian(1.0), 1e-5, assumptions=assumptions)))
    assert [(each.text, each.key) for each in read.assumptions] == list(OLD.items())


@pytest.mark.parametrize("wrong", [3, None, {"key": "one"}, {"key": 1, "text": "One."}, ["one", "One."]], ids=str)
def test_an_assumption_of_another_form_is_refused(wrong):
    data = json.loads(Guarantee(Gaussian(1.0), 1e-5).to_json())
    data["proven"]["assumptions"] = [wrong]
    with pytest.raises(tacit.accounting.events.InvalidArgument, match="not a guarantee that tacit wrote"):
        Guarantee.from_json(json.dumps(data))


def test_a_sampling_that_gives_a_sentence_does_not_cost_its_user_the_guarantee():
    guarantee = Guarantee(Gaussian(1.0), 1e-5, assumptions=("Lots are my own.", FULL.text))
    assert [each.key for each in guarantee.assumptions] == ["other", "full_batch"]
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


def test_a_finding_replaces_the_one_of_its_key_and_no_other():
    guarantee = Guarantee(Gaussian(1.0), 1e-5, notes=("Audited (by hand): a note of somebody's own.",))
    once = guarantee.with_finding(AUDIT, "Audited: fine.").with_finding("neighbours", "Moved by 0.5.")
    twice = once.with_finding(AUDIT, "Audited: broken.", is_error=True)
    assert once.notes == (*guarantee.notes, "Audited: fine.", "Moved by 0.5.")
    assert (twice.notes, twice.errors) == ((*guarantee.notes, "Moved by 0.5."), ("Audited: broken.",))
    assert Guarantee.from_json(twice.to_json()) == twice


@pytest.mark.parametrize("place", ["notes", "errors"])
def test_the_audit_in_a_file_of_version_1_is_replaced_by_the_next_one(place):
    old = of_version_1(Guarantee(Gaussian(1.0), 1e-5), **{place: ["Audited (one run): epsilon at least 1."]})
    again = Guarantee.from_json(old).with_finding(AUDIT, "Audited (one run): epsilon at least 2.")
    assert (again.notes, again.errors) == (("Audited (one run): epsilon at least 2.",), ())


def test_the_page_lists_every_key():
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    section = page.partition("## Assumptions\n")[2].partition("\n### ")[0]
    listed = {key for line in section.splitlines() if line.startswith("| `") for key in re.findall(r"`(\w+)`", line)}
    sources = [file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py")]
    written = {key for text in sources for key in re.findall(r'Assumption\(\s*"(\w+)"', text)}
    # The key of the example in a docstring is one of them; "other" is no producer's.
    assert listed - {"fit"} == written | _SENTENCES.keys() | {"other"}
