"""NoisyAdam: the optimizer as Bu et al. 2019 print it."""

import pytest
import torch

from tacit.methods.noisy_adam import PrintedAdam
from tacit.workflows.descent import make_method_optimizer
from tacit.workflows.settings import Settings

GRADIENTS = torch.randn(30, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def follow(optimizer_of):
    weights = torch.ones(4, dtype=torch.float64, requires_grad=True)
    optimizer = optimizer_of([weights])
    for gradient in GRADIENTS:
        weights.grad = gradient.clone()
        optimizer.step()
    return weights.detach()


def test_printed_adam_follows_algorithm_2_line_by_line():
    theta, m, u = torch.ones(4, dtype=torch.float64), 0.0, 0.0
    for v in GRADIENTS:
        m = 0.9 * m + 0.1 * v
        u = 0.999 * u + 0.001 * v * v
        theta = theta - 0.01 * m / (u.sqrt() + 1e-8)
    assert torch.allclose(follow(lambda weights: PrintedAdam(weights, lr=0.01)), theta, rtol=1e-12)


def test_printed_adam_with_corrected_rates_is_the_adam_of_torch():
    """Torch's Adam is the printed one with rate lr * sqrt(1 - b2^t) / (1 - b1^t) and eps * sqrt(1 - b2^t)."""
    weights = torch.ones(4, dtype=torch.float64, requires_grad=True)
    optimizer = PrintedAdam([weights])
    for t, gradient in enumerate(GRADIENTS, 1):
        correction = (1 - 0.999**t) ** 0.5
        optimizer.param_groups[0].update(lr=0.01 * correction / (1 - 0.9**t), eps=1e-8 * correction)
        weights.grad = gradient.clone()
        optimizer.step()
    assert torch.allclose(weights.detach(), follow(lambda each: torch.optim.Adam(each, lr=0.01)), rtol=1e-10)


@pytest.mark.parametrize(("mode", "kind"), [("paper", PrintedAdam), ("rigorous", torch.optim.Adam)])
def test_paper_mode_trains_with_adam_as_printed(mode, kind):
    fields = dict.fromkeys(Settings.__dataclass_fields__) | {"method": "noisy_adam", "mode": mode, "learning_rate": 0.1}
    settings = Settings(**fields)
    assert type(make_method_optimizer(torch.nn.Linear(2, 2), settings)) is kind
