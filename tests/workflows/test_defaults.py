"""The networks that are chosen by name."""

import numpy as np
import torch

from tacit.datasets import Data
from tacit.workflows.defaults import network_for


def test_the_convolutions_for_colour_halve_the_image_three_times_and_keep_units_bounded():
    nothing = np.zeros((0, 3, 32, 32), dtype=np.float32), np.zeros(0)
    model = network_for("cnn", Data("colours", nothing, nothing, 10, population=1, scaling=""))
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    before = model[:-2](1e3 * images)
    assert before.shape == (2, 128, 4, 4)
    assert float(before.detach().abs().max()) <= 1
    assert model(images).shape == (2, 10)
