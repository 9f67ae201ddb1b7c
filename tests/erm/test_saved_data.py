"""Perturbed data are saved with their guarantee, and read back with it."""

import stat

import numpy as np
import pytest

from tacit.erm import Logistic, load_data, save_data
from tacit.errors import InvalidArgument
from tacit.methods import data_perturbation, influence_perturbation, input_perturbation

X, Y = np.eye(4).repeat(10, axis=0), np.arange(40) % 2
ABOUT = {"loss": Logistic(), "regularisation": 0.1, "data_norm": 1.0, "epsilon": 1.0, "delta": 1e-5, "seed": 0}


@pytest.mark.parametrize("method", [data_perturbation, influence_perturbation])
@pytest.mark.parametrize("mode", ["paper", "rigorous"])
def test_data_come_back_with_the_same_guarantee(method, mode, tmp_path):
    if (method, mode) == (influence_perturbation, "rigorous"):
        method = input_perturbation
    result, path = method(X, Y, **ABOUT, mode=mode), tmp_path / "data.npz"
    save_data(result, path)
    data, guarantee = load_data(path)
    assert np.array_equal(data.x, result.data.x)
    assert np.array_equal(data.y, result.data.y)
    assert guarantee == result.guarantee
    # In the papers' forms labels are as they were.
    assert (stat.S_IMODE(path.stat().st_mode) == 0o600) == (mode == "paper")


def test_a_method_that_returns_no_data_has_none_to_save(tmp_path):
    with pytest.raises(InvalidArgument, match="returned no perturbed data"):
        save_data(input_perturbation(X, Y, **ABOUT, mode="paper"), tmp_path / "data.npz")
    (tmp_path / "other.npz").write_bytes(b"PK nothing")
    with pytest.raises(InvalidArgument, match="is not a file of save_data"):
        load_data(tmp_path / "other.npz")
