"""Diabetes: the progression of the disease after a year, a number up to 400, by ten measures."""

from tacit.datasets import TrainingDefaults
from tacit.datasets._tables import SklearnTable

_TABLE = SklearnTable(
    "diabetes",
    442,
    # Age, sex, body-mass index, blood pressure, and six measures of blood serum, in their own units.
    low=(0.0, 1.0, 10.0, 40.0, 50.0, 0.0, 0.0, 0.0, 2.0, 40.0),
    high=(100.0, 2.0, 50.0, 160.0, 350.0, 300.0, 120.0, 10.0, 7.0, 160.0),
    classes=None,
    unit=400.0,
)
DATASET = _TABLE.dataset(TrainingDefaults("linear", lot_size=64, epochs=30, learning_rate=0.2, adam_rate=0.02))
