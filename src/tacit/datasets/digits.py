"""Digits: handwritten digits of 8 x 8 pixels with values from 0 to 16, as a table."""

from tacit.datasets import TrainingDefaults
from tacit.datasets._tables import SklearnTable

DATASET = SklearnTable("digits", 1797, (0.0,) * 64, (16.0,) * 64, classes=10).dataset(
    TrainingDefaults("linear", lot_size=128, epochs=30, learning_rate=1.0, adam_rate=0.02)
)
