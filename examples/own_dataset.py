"""A data set of your own, given as a DataLoader: `python examples/own_dataset.py`.

Each item must depend on one example only: scale by public bounds, never by the mean of the rows.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import tacit

# The largest value of each column, as known from the instruments: not looked up in the rows.
HIGHEST = torch.tensor([40.0, 50.0, 250.0, 3000.0])


class Patients(Dataset[tuple[Tensor, int]]):
    """The four mean sizes of a tumour and its diagnosis."""

    def __init__(self) -> None:
        x, y = load_breast_cancer(return_X_y=True)
        self.rows, self.labels = torch.tensor(x[:, :4], dtype=torch.float32), y

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        scaled = (self.rows[place] / HIGHEST).clamp(0, 1) * 2 - 1
        return scaled, int(self.labels[place])


def main() -> None:
    """Train within epsilon 2 and print the guarantee."""
    torch.manual_seed(0)
    # Of the loader, the data set, collate_fn and workers are used. Its sampler is replaced by Poisson lots.
    loader = DataLoader(Patients(), batch_size=64, shuffle=True)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    run = tacit.PrivateRun(
        model,
        nn.functional.cross_entropy,
        data=loader,
        mechanism=tacit.methods.dpsgd(clip_norm=0.5),
        sampling=tacit.Poisson(lot_size=200, population=569),
        steps=60,
        budget=tacit.Budget(epsilon=2, delta=1e-4),
    )
    for lot in run:
        run.backward(lot)
        optimizer.step()
    print(run.guarantee())

    data = Patients()
    rows, labels = torch.stack([data[place][0] for place in range(len(data))]), torch.tensor(data.labels)
    with torch.no_grad():
        accuracy = (model(rows).argmax(1) == labels).float().mean()
    # A score of private rows is not covered by the guarantee: it is printed here, and must not be published.
    print(f"training accuracy {100 * accuracy:.1f} % (private)")


if __name__ == "__main__":
    main()
