"""Breast cancer (Wisconsin, diagnostic): malignant or benign, by measures of cell nuclei."""

from tacit.datasets import TrainingDefaults
from tacit.datasets._tables import SklearnTable

# Upper bounds of a cell nucleus's ten measures (mean over the image), of their standard errors, and of the worst three.
_MEAN = (40.0, 50.0, 250.0, 3000.0, 0.25, 0.5, 0.5, 0.25, 0.5, 0.125)
_ERROR = (4.0, 5.0, 25.0, 600.0, 0.05, 0.2, 0.5, 0.06, 0.1, 0.04)
_WORST = (50.0, 60.0, 300.0, 5000.0, 0.3, 1.2, 1.5, 0.4, 0.8, 0.25)

DATASET = SklearnTable("breast-cancer", 569, (0.0,) * 30, (*_MEAN, *_ERROR, *_WORST), classes=2).dataset(
    TrainingDefaults("linear", lot_size=64, epochs=30, learning_rate=1.0, adam_rate=0.05)
)
