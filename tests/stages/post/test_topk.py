"""Top-k with error feedback: nothing is lost, and exactly k coordinates move."""

import pytest
import torch

from tacit.errors import InvalidArgument
from tacit.stages.post import TopK


def test_the_largest_coordinates_stay_and_the_rest_waits():
    post = TopK(keep=0.5)
    first, state = post.apply({"a": torch.tensor([3.0, -1.0]), "b": torch.tensor([0.5, -4.0])}, post.init(
        {"a": torch.zeros(2), "b": torch.zeros(2)}
    ))  # fmt: skip
    assert first["a"].tolist() == [3, 0]
    assert first["b"].tolist() == [0, -4]
    second, state = post.apply({"a": torch.tensor([0.0, -2.0]), "b": torch.tensor([2.0, 0.0])}, state)
    assert second["a"].tolist() == [0, -3]
    assert second["b"].tolist() == [2.5, 0]
    assert all(not value.any() for value in state.values())


@pytest.mark.parametrize("keep", [0.03, 0.1, 0.5, 1.0])
def test_what_went_in_comes_out_in_the_end(keep):
    post, total, passed = TopK(keep), torch.zeros(50), torch.zeros(50)
    state = post.init({"w": total})
    for seed in range(20):
        values = torch.randn(50, generator=torch.Generator().manual_seed(seed))
        kept, state = post.apply({"w": values}, state)
        assert int((kept["w"] != 0).sum()) == max(1, round(keep * 50))
        total, passed = total + values, passed + kept["w"]
    torch.testing.assert_close(passed + state["w"], total, rtol=0, atol=1e-5)


def test_without_error_feedback_the_rest_is_forgotten():
    post = TopK(keep=0.5, error_feedback=False)
    assert post.init({"w": torch.zeros(2)}) == {}
    kept, state = post.apply({"w": torch.tensor([1.0, 2.0])}, {})
    assert kept["w"].tolist() == [0, 2]
    assert state == {}


@pytest.mark.parametrize("wrong", [0, 1.5, -0.1, "all"])
def test_keep_is_a_share(wrong):
    with pytest.raises(InvalidArgument, match="keep must be"):
        TopK(keep=wrong)
