"""Guarantee: the proven statement first, the claim beside it and labelled."""

import json
import math
import re
from html import unescape

import pytest

from tacit.accounting import (
    Adaptive,
    Adjacency,
    EpsilonDelta,
    Gaussian,
    RandomizedResponse,
    ShuffledReports,
    Unproven,
    curve,
)
from tacit.errors import InvalidArgument
from tacit.guarantee import Assumption, Claim, Guarantee, Status

MNIST = Gaussian(1.1).sampled(256 / 60_000) * 14_062
UNPROVEN = Gaussian(1.0) + Unproven("(1, 1e-5)-DP", "its labels carry no noise")
REPORT = Gaussian(2.0, Adjacency.REPLACE_ONE) + RandomizedResponse(1.0)
ONE, TWO = Assumption("one", "One."), Assumption("two", "Two.")
BU = Claim(2.3243, 1e-5, "Bu et al. 2019, central limit theorem")
GUARANTEES = [
    Guarantee(MNIST, 1e-5),
    Guarantee(MNIST, 1e-5, method="noisy_sgd", status=Status.ASYMPTOTIC, claim=BU, assumptions=(ONE, TWO)),
    Guarantee(UNPROVEN, 1e-6, mode="paper", status=Status.REFUTED, unprotected=("labels",), violations=("x",)),
    Guarantee(
        Gaussian(2.0, Adjacency.REPLACE_ONE), 1e-5, odometer=3.5, unit="person", notes=("A note.",), errors=("One.",)
    ),
    Guarantee(ShuffledReports(REPORT, 500), 1e-5, local=REPORT),
    Guarantee(Gaussian(2.0) * 0, 1e-5, odometer=math.inf, claim=Claim(math.inf, 1e-5, "nobody")),
]


def test_numbers_are_those_of_the_methods_table():
    lower, upper = Guarantee(MNIST, 1e-5).bounds(1e-5)
    assert 2.3535 <= lower <= upper <= 2.3817
    assert Guarantee(MNIST, 1e-5).epsilon(1e-5) == upper


def test_epsilon_can_be_asked_for_at_every_delta():
    guarantee = Guarantee(MNIST, 1e-5)
    assert guarantee.epsilon(1e-7) > guarantee.epsilon(1e-5) > guarantee.epsilon(1e-3)


@pytest.mark.parametrize("event", [UNPROVEN, Adaptive(Gaussian(1.0))])
def test_nothing_proven_means_infinity_and_one_plain_sentence(event):
    guarantee = Guarantee(event, 1e-5, status=Status.REFUTED, claim=Claim(1.0, 1e-5, "Someone 2020"))
    assert guarantee.epsilon(1e-5) == math.inf
    assert guarantee.bounds(1e-5) == (0.0, math.inf)
    assert str(guarantee).startswith("Proven: nothing.")
    assert json.loads(guarantee.to_json())["proven"] == {
        "epsilon_upper": None, "kind": "none", "level": "worst_case", "assumptions": []
    }  # fmt: skip


def test_nothing_released_costs_nothing():
    assert Guarantee(Gaussian(2.0) * 0, 1e-5).epsilon(1e-5) == 0


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=range(len(GUARANTEES)))
def test_json_gives_back_an_equal_guarantee(guarantee):
    assert Guarantee.from_json(guarantee.to_json()) == guarantee
    assert str(Guarantee.from_json(guarantee.to_json())) == str(guarantee)


def test_json_keeps_claim_proof_and_approximation_apart():
    data = json.loads(GUARANTEES[1].to_json())
    assert data["claim"] == {"epsilon": 2.3243, "delta": 1e-5, "source": BU.source, "doubt": ""}
    assert data["status"] == "asymptotic"
    assert data["proven"]["epsilon_upper"] == pytest.approx(2.3816, abs=1e-3)
    assert data["lower_bound"]["epsilon"] <= data["proven"]["epsilon_upper"]
    assert data["asymptotic"] == {"epsilon": pytest.approx(2.3243, abs=1e-3), "kind": "clt"}
    assert data["adjacency"] == "add_remove"


def test_json_is_json_for_everyone():
    for guarantee in GUARANTEES:
        assert "Infinity" not in guarantee.to_json()
        assert "NaN" not in guarantee.to_json()


def test_a_tampered_number_is_not_believed():
    data = json.loads(GUARANTEES[0].to_json())
    data["proven"]["epsilon_upper"] = 0.1
    assert Guarantee.from_json(json.dumps(data)).epsilon(1e-5) == GUARANTEES[0].epsilon(1e-5)


def test_an_unknown_version_is_refused():
    with pytest.raises(InvalidArgument, match="version 1 or 2"):
        Guarantee.from_json('{"version": 99}')


def test_the_proven_statement_comes_first_and_the_claim_is_labelled():
    first, *_, claimed, title, one, two = str(GUARANTEES[1]).splitlines()
    assert (title, one, two) == ("Assumptions:", "- One.", "- Two.")
    assert first == "Proven: epsilon 2.382 at delta 1e-05 (add/remove one example, noisy_sgd, PLD)."
    assert claimed.startswith("Claimed (Bu et al. 2019, central limit theorem): epsilon 2.324 at delta 1e-05.")
    assert "asymptotic; here it is too small" in claimed
    assert "A claim is not a guarantee." in claimed


def test_shown_numbers_are_never_below_the_proven_ones():
    for multiplier in (0.5, 1.0, 3.3, 77.0):
        guarantee = Guarantee(Gaussian(multiplier), 1e-5)
        shown = float(str(guarantee).split("epsilon ")[1].split(" ")[0])
        assert guarantee.epsilon(1e-5) <= shown <= guarantee.epsilon(1e-5) * 1.002


def test_words_name_the_unit_and_what_is_compared():
    assert "(replace one person, custom, PLD)" in str(GUARANTEES[3])
    assert "replacing any one person" in str(GUARANTEES[3])


def test_what_is_not_protected_and_what_is_no_guarantee_is_said():
    assert "Not protected: labels." in str(GUARANTEES[2])
    assert "This run spent epsilon 3.5. That is not a guarantee." in str(GUARANTEES[3])


def test_a_guarantee_names_its_adjacency_from_its_event():
    assert GUARANTEES[3].adjacency is Adjacency.REPLACE_ONE


def test_what_a_report_guarantees_by_itself_stands_beside_what_all_of_them_do():
    guarantee = Guarantee(ShuffledReports(REPORT, 500), 1e-5, local=REPORT)
    assert guarantee.local_epsilon(1e-5) == curve(REPORT).epsilon(1e-5) > guarantee.epsilon(1e-5)
    assert "Each report by itself (local privacy, against whoever sees it): epsilon" in str(guarantee)
    local = json.loads(guarantee.to_json())["local"]
    assert local["epsilon_upper"] == guarantee.local_epsilon(1e-5)


def test_without_reports_nothing_is_said_about_them():
    assert math.isinf(Guarantee(MNIST, 1e-5).local_epsilon(1e-5))
    assert "Each report" not in str(Guarantee(MNIST, 1e-5))
    assert math.isinf(Guarantee(MNIST, 1e-5, local=UNPROVEN).local_epsilon(1e-5))


def test_a_claim_is_not_compared_with_a_proof_that_leaves_something_out():
    guarantee = Guarantee(MNIST, 1e-5, claim=BU, unprotected=("labels",))
    assert "the proof leaves out labels" in str(guarantee)


@pytest.mark.parametrize(
    "guarantee",
    [
        Guarantee(EpsilonDelta(1.0, 1e-6) + Gaussian(10.0), 1e-5),
        Guarantee(Gaussian(2.0), 1e-5, claim=Claim(1.0, 1e-5, "somebody"), status=Status.REFUTED, attained=False),
    ],
    ids=["stated", "bounded"],
)
def test_what_is_only_an_upper_bound_is_not_called_the_truth(guarantee):
    lower, upper = guarantee.bounds(1e-5)
    assert (lower, upper) == (0.0, curve(guarantee.event).epsilon(1e-5))
    assert "The true epsilon" not in str(guarantee)
    assert "This is an upper bound; the worst case may be smaller." in str(guarantee)
    assert "true" not in guarantee.verdict
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


def test_a_notebook_shows_the_answer_first_and_escapes_what_others_wrote():
    guarantee = Guarantee(
        Gaussian(1.1).sampled(0.01) * 100,
        1e-5,
        method="<script>alert(1)</script>",
        assumptions=(Assumption("other", "a < b & c"),),
        notes=("<b>bold</b>",),
        violations=("fixed_seed",),
    )
    page = guarantee._repr_html_()
    assert page.startswith("<p><strong>Proven: epsilon ")
    assert page.index("NOT FOR RELEASE") < page.index("In words")
    assert "<script" not in page
    assert "<b>" not in page
    assert "a &lt; b &amp; c" in page
    # Every sentence of the text, and no other.
    shown = unescape(re.sub(r"<[^>]+>", "\n", page))
    told = [line.removeprefix("- ") for line in str(guarantee).splitlines() if line != "Assumptions:"]
    assert [line for line in shown.splitlines() if line and not line.endswith(" (1)")] == told


def test_a_notebook_lists_no_assumptions_where_nothing_is_proven():
    guarantee = Guarantee(Unproven("x", "y"), 1e-5, assumptions=(Assumption("other", "none"),))
    assert "<details>" not in guarantee._repr_html_()
