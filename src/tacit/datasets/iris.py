"""Iris: three species by four measures of their flowers."""

from tacit.datasets import TrainingDefaults
from tacit.datasets._tables import SklearnTable

DATASET = SklearnTable("iris", 150, (3.0, 1.0, 0.0, 0.0), (9.0, 5.0, 8.0, 3.0), classes=3).dataset(
    TrainingDefaults("linear", lot_size=32, epochs=40, learning_rate=1.0, adam_rate=0.1)
)
