"""How strong the white-box audit is: MNIST, DP-SGD at epsilon 4, one run with a thousand gradient canaries.

    python benchmarks/audit.py --data-path MNIST --folder FOLDER --picture audit.png

Three settings, from large lots, where what is released is close to Gaussian, to the lots of 256 that `tacit train`
takes; two seeds each (one for the longest), since luck moves a single audit by a fifth of what it shows. Runs are kept
in the folder: a second call goes on, or reads off another confidence.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import torch

from results import RESULTS, environment, show_table, write_section
from tacit import Budget, Poisson, datasets
from tacit.audit import AuditReport, Training, audit_training
from tacit.methods import dpsgd
from tacit.reports.audit_plots import draw_audit
from tacit.training.plan import Plan
from tacit.workflows.defaults import network_for

EPSILON, DELTA, POPULATION, CANARIES = 4.0, 1e-5, 60_000, 1000


@dataclass(frozen=True)
class Setting:
    """Lots of this size, so many of them, the learning rate that suits them, and the seeds."""

    lot_size: float
    steps: int
    learning_rate: float
    seeds: tuple[int, ...] = (0, 1)


SETTINGS = (Setting(30_000, 20, 2.0), Setting(2048, 300, 1.0), Setting(256, 3516, 0.25, seeds=(0,)))
CONFIDENCES = (0.99, 0.95)
COLUMNS = [
    "lot size",
    "steps",
    "confidence",
    "audited, each seed",
    "mean share of proven",
    "Gaussian estimate",
    "verdict",
]
# Of one setting: a list for each seed, with a report for each confidence.
Reports = list[list[AuditReport]]


def audited(setting: Setting, data: datasets.Data, folder: Path, seed: int) -> list[AuditReport]:
    """One run with canaries, read off at every confidence; the noise is what the budget asks for."""
    torch.manual_seed(seed)
    model = network_for("cnn", data)
    sampling = Poisson(setting.lot_size, POPULATION)
    dimension = sum(parameter.numel() for parameter in model.parameters())
    plan = Plan(dpsgd(clip_norm=1.0), sampling, setting.steps, dimension, Budget(EPSILON, DELTA)).calibrate()
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


def section(found: list[tuple[Setting, Reports]]) -> str:
    """The table, as Markdown: epsilon and its share of what is proven."""
    rows = [COLUMNS]
    for setting, by_seed in found:
        for reports in zip(*by_seed, strict=True):
            rows.append([f"{setting.lot_size:g}", str(setting.steps), *row(reports)])
    title = f"## Audit: MNIST at epsilon {EPSILON:g}, delta {DELTA:g}, one run, {CANARIES:,} gradient canaries"
    return "\n\n".join([title, environment(["tacit", "torch", "numpy", "scipy"]), show_table(rows)])


def row(reports: Sequence[AuditReport]) -> list[str]:
    """One setting at one confidence, over all seeds."""
    bounds = [report.finding.bound for report in reports]
    shares = [bound.epsilon / report.proven for bound, report in zip(bounds, reports, strict=True)]
    gaussian = [f"{report.finding.gaussian.epsilon:.2f}" for report in reports]
    return [
        f"{100 * bounds[0].confidence:g} %",
        ", ".join(f"{bound.epsilon:.2f}" for bound in bounds),
        f"{100 * mean(shares):.0f} %",
        ", ".join(gaussian),
        ", ".join(sorted({str(report.verdict) for report in reports})),
    ]


def main() -> None:
    """Audit all settings and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-path", type=Path, required=True, help="folder with MNIST")
    parser.add_argument("--folder", type=Path, required=True, help="where runs are kept")
    parser.add_argument(
        "--only", type=int, nargs=2, metavar=("SETTING", "SEED"), help="make this run, and write nothing"
    )
    parser.add_argument("--quick", action="store_true", help="large lots and one seed only, printed and not written")
    parser.add_argument("--picture", type=Path, help="where the trade-off curve of the first setting goes")
    options = parser.parse_args()
    data = datasets.load("mnist", options.data_path)
    if options.only:
        print(*audited(SETTINGS[options.only[0]], data, options.folder, options.only[1]), sep="\n")
        return
    settings = (replace(SETTINGS[0], seeds=(0,)),) if options.quick else SETTINGS
    found = [(one, [audited(one, data, options.folder, seed) for seed in one.seeds]) for one in settings]
    print(section(found))
    if options.picture is not None:
        draw_audit(found[0][1][0][0]).savefig(options.picture, dpi=150)
    if not options.quick:
        write_section(RESULTS, "audit", section(found))


if __name__ == "__main__":
    main()
