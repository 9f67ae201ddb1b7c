"""Who is asked: tacit and its peers, each as its users would ask it.

Packages are loaded where they are used: each in its own process, before any clock runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accounting_questions import Setting, Target


@dataclass(frozen=True)
class Tool:
    """One way to ask for an epsilon, and perhaps for a multiplier."""

    name: str
    package: str
    how: str
    epsilon: Callable[[Setting], Any]
    multiplier: Callable[[Target], float] | None = None


def tacit_curve(setting: Setting) -> Any:
    """The privacy curve, from scratch."""
    from tacit.accounting import Gaussian, curve

    return curve(Gaussian(setting.multiplier).sampled(setting.rate) * setting.steps)


def tacit_epsilon(setting: Setting) -> tuple[float, float]:
    """Both certified bounds."""
    return tacit_curve(setting).epsilon_bounds(setting.delta)


def tacit_estimate(setting: Setting) -> float:
    """The point estimate: not part of the time, since the bounds do without."""
    return tacit_curve(setting).epsilon_estimate(setting.delta)


def tacit_multiplier(target: Target) -> float:
    """The smallest certified multiplier."""
    from tacit.accounting import multiplier_for

    return multiplier_for(epsilon=target.epsilon, delta=target.delta, rate=target.rate, steps=target.steps)


def dp_accounting_run(multiplier: float, rate: float, steps: int) -> Any:
    """The same steps as dp-accounting describes them."""
    import dp_accounting

    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    return dp_accounting.SelfComposedDpEvent(step, steps)


def dp_accounting_epsilon(accountant: str, setting: Setting) -> float:
    """The upper bound of a dp-accounting accountant with its defaults."""
    from dp_accounting import pld, rdp

    made = pld.PLDAccountant() if accountant == "pld" else rdp.RdpAccountant()
    made.compose(dp_accounting_run(setting.multiplier, setting.rate, setting.steps))
    return made.get_epsilon(setting.delta)


def dp_accounting_multiplier(target: Target) -> float:
    """dp-accounting's search with its PLD accountant and its own bracket."""
    from dp_accounting import calibrate_dp_mechanism, pld

    def run(multiplier: float) -> Any:
        return dp_accounting_run(multiplier, target.rate, target.steps)

    return calibrate_dp_mechanism(pld.PLDAccountant, run, target.epsilon, target.delta, tol=1e-4)


def opacus_epsilon(mechanism: str, setting: Setting) -> float:
    """What an Opacus accountant reports after these steps."""
    from opacus.accountants import create_accountant

    accountant = create_accountant(mechanism)
    accountant.history = [(setting.multiplier, setting.rate, setting.steps)]
    return accountant.get_epsilon(setting.delta)


def opacus_multiplier(mechanism: str, target: Target) -> float:
    """Opacus's search with its default tolerance (0.01 in epsilon)."""
    from opacus.accountants.utils import get_noise_multiplier

    return get_noise_multiplier(
        target_epsilon=target.epsilon,
        target_delta=target.delta,
        sample_rate=target.rate,
        steps=target.steps,
        accountant=mechanism,
    )


def prv_epsilon(setting: Setting) -> float:
    """The upper bound of prv-accountant; its error in delta is the thousandth that it recommends."""
    from prv_accountant.dpsgd import DPSGDAccountant

    accountant = DPSGDAccountant(setting.multiplier, setting.rate, setting.steps, delta_error=setting.delta / 1000)
    return accountant.compute_epsilon(setting.delta, setting.steps)[2]


TACIT = Tool("tacit", "tacit", "certified lower and upper bound", tacit_epsilon, tacit_multiplier)
PEERS = (
    Tool(
        "dp-accounting PLD",
        "dp_accounting",
        "upper bound, discretisation 1e-4 (its default); calibration with `tol=1e-4` and its default bracket",
        functools.partial(dp_accounting_epsilon, "pld"),
        dp_accounting_multiplier,
    ),
    Tool(
        "dp-accounting RDP",
        "dp_accounting",
        "upper bound, default orders",
        functools.partial(dp_accounting_epsilon, "rdp"),
    ),
    Tool(
        "Opacus PRV",
        "opacus",
        "upper bound, `eps_error=0.01` (its default); calibration with its default tolerance of 0.01 in epsilon",
        functools.partial(opacus_epsilon, "prv"),
        functools.partial(opacus_multiplier, "prv"),
    ),
    Tool(
        "Opacus RDP",
        "opacus",
        "upper bound, default orders; calibration with its default tolerance of 0.01 in epsilon",
        functools.partial(opacus_epsilon, "rdp"),
        functools.partial(opacus_multiplier, "rdp"),
    ),
    Tool("Opacus GDP", "opacus", "approximation by a limit, not a bound", functools.partial(opacus_epsilon, "gdp")),
    Tool(
        "prv-accountant",
        "prv_accountant",
        "upper bound, `eps_error=0.1` (its default), `delta_error=delta/1000`",
        prv_epsilon,
    ),
)
