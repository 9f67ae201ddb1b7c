"""Images in the form of MNIST, few of them and at random, in a file that `tacit.datasets` reads."""

import numpy as np


def write_few_images(path, *, train, test):
    """Write so many; the arrays by their names in the file."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", train), ("test", test)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"y_{part}"] = rng.integers(0, 10, count, dtype=np.uint8)
    np.savez(path, **arrays)
    return arrays
