"""Settings for every test."""

from hypothesis import settings

# Every run draws the same examples, and none is judged by how long it takes.
settings.register_profile("tacit", derandomize=True, deadline=None)
settings.load_profile("tacit")
