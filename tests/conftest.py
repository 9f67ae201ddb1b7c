"""Settings for every test."""

import os
import signal
import sys

import pytest
from hypothesis import settings

# Tests run side by side, one on each core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Every run draws the same examples, and none is judged by how long it takes.
settings.register_profile("tacit", derandomize=True, deadline=None)
settings.load_profile("tacit")

# Shells start what runs in the background with Ctrl-C ignored, and processes inherit that; some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _same_weights_whatever_ran_before():
    """A model's first weights come from torch's own generator: not from how tests were dealt out to the cores."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture
def interrupted_at(monkeypatch):
    """A function that has Ctrl-C pressed in the middle of one step."""
    from tacit.training.run import PrivateRun

    def press(step: int, times: int = 1) -> None:
        backward = PrivateRun.backward

        def pressed(self, lot):
            if lot.step == step:
                monkeypatch.setattr(PrivateRun, "backward", backward)
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)
            backward(self, lot)

        monkeypatch.setattr(PrivateRun, "backward", pressed)

    return press
