"""The examples in the docstrings of the library that runs the experiments."""

import doctest

import pytest
from experiments.library import records, running


@pytest.mark.parametrize("module", [records, running], ids=lambda module: module.__name__)
def test_the_examples_in_the_docstrings_hold(module):
    failed, tried = doctest.testmod(module)
    assert (failed, tried > 0) == (0, True)
