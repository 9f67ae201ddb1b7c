"""tacit.convex: numpy and scipy will do."""

import subprocess
import sys

import pytest

import tacit.convex


@pytest.mark.parametrize("module", ["tacit.convex", "tacit.accounting.individual"])
def test_it_loads_without_torch_and_scikit_learn(module):
    program = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"torch", "sklearn", "matplotlib"}.isdisjoint(run.stdout.split())


def test_every_public_name_is_there_and_in_order():
    assert tacit.convex.__all__ == sorted(tacit.convex.__all__)
    for name in tacit.convex.__all__:
        assert getattr(tacit.convex, name) is not None
