"""tacit.erm: numpy and scipy will do."""

import subprocess
import sys

import pytest

import tacit.erm
import tacit.methods
from tacit.errors import InvalidArgument


@pytest.mark.slow
@pytest.mark.parametrize("module", ["tacit.erm", "tacit.accounting.individual"])
def test_it_loads_without_torch_and_scikit_learn(module):
    program = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"torch", "sklearn", "matplotlib"}.isdisjoint(run.stdout.split())


def test_every_public_name_is_there_and_in_order():
    assert tacit.erm.__all__ == sorted(tacit.erm.__all__)
    for name in tacit.erm.__all__:
        assert getattr(tacit.erm, name) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["output_perturbation", "objective_perturbation", "gradient_perturbation"])
@pytest.mark.parametrize("first", ["import tacit.methods", "import tacit.methods.{0}"])
def test_methods_for_linear_models_load_without_torch_in_either_order(name, first):
    """A file and the method in it have one name; asked for by that name, the package gives the method."""
    program = f"import sys; {first.format(name)}; print(callable(tacit.methods.{name}), 'torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "False"]


def test_a_misspelt_method_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"'tacit\.methods' has no attribute 'dpsdg'\. Did you mean dpsgd\?"):
        tacit.methods.dpsdg  # noqa: B018


@pytest.mark.parametrize("name", ["output", "objective", "gradient"])
def test_methods_for_linear_models_refuse_a_network(name):
    method = getattr(tacit.methods, f"{name}_perturbation")
    settings = {"regularisation": 0.1, "data_norm": 1.0, "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(InvalidArgument, match="takes no module"):
        method([[1.0]], [1.0], loss=tacit.erm.Logistic(), **settings, module=object())
