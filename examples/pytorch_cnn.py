"""A private convolutional network with your own training loop: `python examples/pytorch_cnn.py`."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import tacit


def make_model() -> nn.Module:
    """A small CNN. GroupNorm normalises each example by itself; BatchNorm would mix examples and is refused."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 10),
    )


def main() -> None:
    """Train within epsilon 3 and print accuracy and guarantee."""
    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    # Pixels are between 0 and 16, which is public. The test images are treated as public, so their score is free.
    images = torch.tensor(x / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    train_x, test_x, train_y, test_y = train_test_split(images, torch.tensor(y), test_size=360, random_state=0)

    model = make_model()
    run = tacit.PrivateRun(
        model,
        nn.functional.cross_entropy,
        data=(train_x, train_y),
        mechanism=tacit.methods.dpsgd(clip_norm=1.0),
        sampling=tacit.Poisson(lot_size=400, population=1437),
        steps=120,
        budget=tacit.Budget(epsilon=3, delta=1e-5),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    for lot in run:
        run.backward(lot)
        optimizer.step()

    with torch.no_grad():
        accuracy = (model(test_x).argmax(1) == test_y).float().mean()
    print(f"test accuracy {100 * accuracy:.1f} %")
    print(run.guarantee())


if __name__ == "__main__":
    main()
