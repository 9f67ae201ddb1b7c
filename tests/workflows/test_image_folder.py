"""A folder of images as data: classes from the names of subfolders, one size for all, a score of held-out images."""

import json

import numpy as np
import pytest
from PIL import Image

import tacit
from tacit.datasets import load_images
from tacit.errors import InvalidArgument


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Red and blue images of various sizes, forms and colours."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for name, channel in (("red", 0), ("blue", 2)):
        (folder / name).mkdir()
        for number in range(40):
            pixels = rng.integers(0, 120, (*rng.integers(20, 40, 2), 3), dtype=np.uint8)
            pixels[..., channel] += 100
            Image.fromarray(pixels).save(folder / name / f"{number}.{'jpg' if number % 2 else 'png'}")
    Image.new("L", (9, 30), 128).save(folder / "red" / "grey.png")
    (folder / "red" / "notes.txt").write_text("not an image")
    return folder


def test_classes_are_folders_and_a_hash_of_each_image_holds_it_out(photos):
    data = load_images(photos, population=64)
    assert data.form.classes == ("blue", "red")
    assert data.shape == (3, 32, 32)
    assert len(data.train[1]) + len(data.test[1]) == 81
    assert data.is_test_private
    # Red in a red image is higher than blue.
    is_red = data.train[0][:, 0].mean((1, 2)) > data.train[0][:, 2].mean((1, 2)) + 0.3
    assert (is_red == (data.train[1] == 1)).mean() > 0.95
    extra = photos / "blue" / "added.png"
    Image.new("RGB", (30, 30), (0, 9, 200)).save(extra)
    more = load_images(photos, population=64)
    extra.unlink()
    kept = {row.tobytes() for row in data.train[0]}
    assert kept <= {row.tobytes() for row in more.train[0]}


def test_what_is_not_declared_or_no_image_is_refused(photos, tmp_path):
    with pytest.raises(InvalidArgument, match="--population"):
        load_images(photos, population=None)
    with pytest.raises(InvalidArgument, match="one subfolder for each class"):
        load_images(photos / "red", population=10)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "broken.png").write_bytes(b"no image")
    with pytest.raises(InvalidArgument, match=r"broken\.png"):
        load_images(tmp_path, population=10)


def test_a_folder_is_trained_on_and_predicted(photos, tmp_path):
    run = tacit.train(
        str(photos), epsilon=8, population=64, recipe="none", model="linear", steps=3, lot_size=16, out=tmp_path / "run"
    )
    assert run.guarantee.epsilon(run.guarantee.delta) <= 8
    assert "names of their folders are the classes" in run.data.source
    images = np.zeros((2, 32, 32, 3))
    images[0, ..., 0] = images[1, ..., 2] = 200
    assert set(tacit.load(tmp_path / "run").predict(images)) <= {"red", "blue"}
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert settings["side"] == 32
    assert str(photos) not in json.dumps(json.loads((tmp_path / "run" / "metrics.json").read_text()))
