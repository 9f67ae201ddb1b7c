"""What loads what, each seen from a fresh interpreter."""

import subprocess
import sys

import pytest

import tacit


def loaded_after(program: str) -> set[str]:
    """Names of the top-level modules that are loaded once `program` has run."""
    report = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", f"{program}\n{report}"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stderr.split())


SHOW_HELP = """
import sys
from tacit.cli import main
sys.argv = ["tacit", "--help"]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""


def test_the_package_loads_without_numpy():
    assert loaded_after("import tacit; tacit.__version__").isdisjoint({"numpy", "scipy", "torch"})


@pytest.mark.slow
def test_accounting_loads_without_torch():
    # Two parts of scipy that take as long to load as all the rest, and that hardly any question needs.
    program = "import sys, tacit.accounting; assert not {'scipy.stats', 'scipy.signal'} & sys.modules.keys()"
    assert loaded_after(program).isdisjoint({"torch", "matplotlib", "typer"})


@pytest.mark.slow
@pytest.mark.parametrize("module", ["ledger", "guarantee", "randomness", "stages.sampling"])
def test_what_needs_no_model_loads_without_torch(module):
    assert "torch" not in loaded_after(f"import tacit.{module}")


def test_the_command_line_loads_without_what_it_computes_with():
    assert loaded_after("import tacit.cli").isdisjoint({"scipy", "matplotlib", "torch"})


@pytest.mark.slow
def test_help_loads_nothing_that_it_does_not_show():
    assert loaded_after(SHOW_HELP).isdisjoint({"scipy", "matplotlib", "torch"})


@pytest.mark.slow
def test_an_accountant_is_reached_from_the_package_alone():
    assert "scipy" in loaded_after("import tacit; tacit.accounting.curve")


def test_every_public_name_is_there_and_in_order():
    assert tacit.__all__ == sorted(tacit.__all__)
    assert set(tacit.__all__) <= set(dir(tacit))
    for name in tacit.__all__:
        assert getattr(tacit, name) is not None


def test_a_misspelt_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"'tacit' has no attribute 'acounting'\. Did you mean accounting\?"):
        tacit.acounting  # noqa: B018
