"""A private LSTM that reads a digit row by row: `python examples/pytorch_lstm.py`."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import tacit


class RowReader(nn.Module):
    """An LSTM over the eight rows of an image; the last state decides the class."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 32, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of the classes, for [examples, 8 rows, 8 pixels]."""
        states, _ = self.lstm(rows)
        scores: Tensor = self.head(states[:, -1])
        return scores


def main() -> None:
    """Train within epsilon 4 and print accuracy and guarantee."""
    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    rows = torch.tensor(x / 16, dtype=torch.float32).reshape(-1, 8, 8)
    train_x, test_x, train_y, test_y = train_test_split(rows, torch.tensor(y), test_size=360, random_state=0)

    model = RowReader()
    run = tacit.PrivateRun(
        model,
        nn.functional.cross_entropy,
        data=(train_x, train_y),
        mechanism=tacit.methods.dpsgd(clip_norm=0.3),
        sampling=tacit.Poisson(lot_size=700, population=1437),
        steps=200,
        budget=tacit.Budget(epsilon=4, delta=1e-5),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for lot in run:
        run.backward(lot)
        optimizer.step()

    with torch.no_grad():
        accuracy = (model(test_x).argmax(1) == test_y).float().mean()
    print(f"test accuracy {100 * accuracy:.1f} %")
    print(run.guarantee())


if __name__ == "__main__":
    main()
