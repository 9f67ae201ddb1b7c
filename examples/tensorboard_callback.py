"""Follow a private run in TensorBoard: `python examples/tensorboard_callback.py`, then `tensorboard --logdir logs`.

Needs `pip install "tacit[examples]"`. A callback may write anything that follows from released values, such as the
weights and the epsilon spent so far. The loss of a lot is computed from private examples: it is not written here.
"""

from __future__ import annotations

from torch.utils.tensorboard import SummaryWriter

import tacit
from tacit.training.fit import Step


def main() -> None:
    """Train on iris; write the norm of the weights and epsilon every ten steps."""
    writer = SummaryWriter("logs")

    def log(step: Step) -> None:
        if step.number % 10:
            return
        norm = sum(float(weight.detach().square().sum()) for weight in step.run.model.parameters()) ** 0.5
        writer.add_scalar("norm of the weights", norm, step.number)
        writer.add_scalar("epsilon spent", step.run.guarantee().epsilon(delta=1e-5), step.number)

    run = tacit.train("iris", epsilon=3, steps=40, lot_size=32, out="runs/tensorboard", callbacks=[log])
    writer.close()
    print(run.score, run.guarantee.epsilon(delta=1e-5))


if __name__ == "__main__":
    main()
