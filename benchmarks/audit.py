"""How strong the white-box audit is: MNIST, DP-SGD at epsilon 4, one run with a thousand gradient canaries.

    python benchmarks/audit.py --data-path MNIST --folder FOLDER --picture audit.png

Three settings, from large lots, where what is released is close to Gaussian, to the lots of 256 that `tacit train`
takes. Runs are kept in the folder: a second call goes on, or reads off another confidence.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from results import RESULTS, environment, show_table, write_section

from tacit import Budget, Poisson, datasets
from tacit.audit import AuditReport, Training, audit_training
from tacit.audit.pictures import draw_audit
from tacit.cli.networks import network_for
from tacit.methods import dpsgd
from tacit.plan import Plan

EPSILON, DELTA, POPULATION, CANARIES = 4.0, 1e-5, 60_000, 1000


@dataclass(frozen=True)
class Setting:
    """Lots of this size, so many of them, and the learning rate that suits them."""

    lot_size: float
    steps: int
    learning_rate: float


SETTINGS = (Setting(30_000, 20, 2.0), Setting(2048, 300, 1.0), Setting(256, 3516, 0.25))
CONFIDENCES = (0.99, 0.95)


def audited(setting: Setting, data: datasets.Data, folder: Path, seed: int) -> list[AuditReport]:
    """One run with canaries, read off at every confidence; the noise is what the budget asks for."""
    torch.manual_seed(seed)
    model = network_for("cnn", data)
    sampling = Poisson(setting.lot_size, POPULATION)
    dimension = sum(parameter.numel() for parameter in model.parameters())
    plan = Plan(dpsgd(clip_norm=1.0), sampling, setting.steps, dimension, Budget(EPSILON, DELTA)).settled()
    training = Training(
        model,
        torch.nn.functional.cross_entropy,
        data.train,
        plan.mechanism,
        sampling,
        setting.steps,
        lambda network: torch.optim.SGD(network.parameters(), lr=setting.learning_rate),
        micro_batch=2048,
    )
    place = folder / f"{setting.lot_size:g}-{setting.steps}-{seed}"
    return [
        audit_training(training, delta=DELTA, canaries=CANARIES, confidence=sure, folder=place, seed=seed)
        for sure in CONFIDENCES
    ]


def section(found: list[tuple[Setting, list[AuditReport]]]) -> str:
    """The table, as Markdown: epsilon and its share of what is proven."""
    rows = [["lot size", "steps", "confidence", "proven", "audited", "share of proven", "Gaussian estimate", "verdict"]]
    for setting, reports in found:
        for report in reports:
            bound, gaussian = report.finding.bound, report.finding.gaussian
            where = [f"{setting.lot_size:g}", str(setting.steps), f"{100 * bound.confidence:g} %"]
            share = f"{100 * bound.epsilon / report.proven:.0f} %"
            numbers = [f"{report.proven:.3f}", f"{bound.epsilon:.3f}", share, f"{gaussian.epsilon:.3f}"]
            rows.append([*where, *numbers, str(report.verdict)])
    title = f"## Audit: MNIST at epsilon {EPSILON:g}, delta {DELTA:g}, one run, {CANARIES:,} gradient canaries"
    return "\n\n".join([title, environment(["tacit", "torch", "numpy", "scipy"]), show_table(rows)])


def main() -> None:
    """Audit both settings and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-path", type=Path, required=True, help="folder with MNIST")
    parser.add_argument("--folder", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="large lots only, printed and not written")
    parser.add_argument("--picture", type=Path, help="where the trade-off curve of the first setting goes")
    options = parser.parse_args()
    data = datasets.load("mnist", options.data_path)
    settings = SETTINGS[:1] if options.quick else SETTINGS
    found = [(setting, audited(setting, data, options.folder, options.seed)) for setting in settings]
    print(section(found))
    if options.picture is not None:
        draw_audit(found[0][1][0]).savefig(options.picture, dpi=150)
    if not options.quick:
        write_section(RESULTS, "audit", section(found))


if __name__ == "__main__":
    main()
