"""The numbers of the summary: by name, for the sentences in expected.toml."""

from __future__ import annotations

from experiments.library import Order, Record

from . import tiny, tuned
from .forms import NO_NOISE

# Short names of methods and figures in the sentences.
FORMS = {
    "none": NO_NOISE,
    "proven": "Gaussian, certified (and w = 1)",
    "gaussian": "Gaussian",
    "w1": "ours, w = 1",
    "ours": "ours",
    "adaclip": "AdaClip",
    "gaussian_pruned": "Gaussian, pruned",
    "w1_pruned": "ours, w = 1, pruned",
    "ours_pruned": "ours, pruned",
}


def values(order: Order, records: list[Record]) -> dict[str, float]:
    """Accuracies as FIGURE_FORM_VALUE, in per cent, such as `4a_w1_0.2`; and what the other tables have."""
    found = {**_table_1(records), **_table_2(records), **_figure_1(records)}
    for record in records:
        if record.part == "orders":
            found |= {f"orders_{name}": value for name, value in record.found.items()}
    for about in order.settings["tuned"].values():
        for short, form in FORMS.items():
            for value in about["values"] if form in about["forms"] else ():
                best = tuned.best_run(records, about, form, value)
                if best is not None:
                    found[f"{about['short']}_{short}_{value:.3g}"] = tuned.accuracy(best)
    names = {form: name for name, form in FORMS.items()}
    for sweep in order.settings["sweeps"]:
        for record in records:
            if record.part == sweep["figure"]:
                value = f"{record.asked[sweep['varied']]:g}"
                found[f"sweep_{names[record.asked['form']]}_{value}"] = 100 * max(record.found["scores"])
    for record in records:
        short = names.get(record.asked.get("form", ""))
        if record.part in _SETS and short is not None and record.asked["epsilon"] is not None:
            name = f"{_SETS[record.part]}_{short}_{record.asked['epsilon']:g}"
            found[name] = 100 * max(record.found["scores"])
    return {name.replace(".", "p"): value for name, value in found.items()}


_SETS = {"mnist": "full", "cifar10, AlexNet": "alexnet", "cifar10, ResNet-18": "resnet"}


def _table_1(records: list[Record]) -> dict[str, float]:
    runs = [one for one in records if one.part == "table 1"]
    return {f"certified_{one.asked['set']}_{one.asked['epsilon']:g}": one.found["certified"] for one in runs}


def _table_2(records: list[Record]) -> dict[str, float]:
    seconds = {(r.asked["form"], r.asked["examples"]): r.found["seconds"] for r in records if r.part == "table 2"}
    gaussian = [value for (form, _), value in seconds.items() if form == "Gaussian"]
    ours = sorted((examples, value) for (form, examples), value in seconds.items() if form == "ours")
    if not gaussian or not ours:
        return {}
    images, most = ours[-1]
    return {"images": images, "most": most / gaussian[0]}


def _figure_1(records: list[Record]) -> dict[str, float]:
    runs = [one for one in records if one.part == "figure 1"]
    if not runs:
        return {}
    (theta_low, theta_high), (b_low, b_high) = tiny.ranges(runs[0].found["theta_1"])
    return {"theta_low": theta_low, "theta_high": theta_high, "b_low": b_low, "b_high": b_high}
