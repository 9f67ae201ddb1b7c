"""Settings for every test."""

import os

from hypothesis import settings

# Tests run side by side, one on each core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Every run draws the same examples, and none is judged by how long it takes.
settings.register_profile("tacit", derandomize=True, deadline=None)
settings.load_profile("tacit")
