"""Choices of a method as text: read by the type of its arguments, refused with what is allowed."""

import pytest

from tacit.errors import InvalidArgument
from tacit.methods.choices import as_texts, read_choices


@pytest.mark.parametrize(
    ("method", "texts", "chosen"),
    [
        ("directional", ["variant=w1"], {"variant": "w1"}),
        ("directional", ["objective=l2", "grain = parameter"], {"objective": "l2", "grain": "parameter"}),
        ("pruned", ["keep=0.25", "select_by=past", "refresh=5"], {"keep": 0.25, "select_by": "past", "refresh": 5}),
        ("encoded", ["noise=laplace", "denoise=true"], {"noise": "laplace", "denoise": True}),
        ("dp_lssgd", [], {}),
    ],
)
def test_text_is_read_by_the_type_of_the_argument_and_written_back(method, texts, chosen):
    found = read_choices(method, texts)
    assert found == chosen
    assert [type(value) for value in found.values()] == [type(value) for value in chosen.values()]
    assert read_choices(method, as_texts(found)) == found


@pytest.mark.parametrize(
    ("method", "texts", "words"),
    [
        ("directional", ["variant=w2"], "variant must be full, w1, minimax or floored. Got 'w2'"),
        (
            "directional",
            ["varient=w1"],
            r"directional has no choice 'varient'.*variant \(full, w1, minimax or floored\)",
        ),
        ("directional", ["rule=TauRule()"], "has no choice 'rule'"),
        ("directional", ["mode=paper"], "has no choice 'mode'"),
        ("directional", ["variant"], "takes NAME=VALUE"),
        ("directional", ["variant=w1", "variant=full"], "given twice"),
        ("pruned", ["keep=much"], "keep must be a number"),
        ("pruned", ["refresh=2.5"], "refresh must be a whole number"),
        ("encoded", ["denoise=yes"], "denoise must be true or false"),
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(method, texts, words):
    with pytest.raises(InvalidArgument, match=words):
        read_choices(method, texts)
