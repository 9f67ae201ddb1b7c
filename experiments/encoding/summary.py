"""The numbers of the summary: by name, for the sentences in expected.toml."""

from __future__ import annotations

from experiments.library import Order, Record

from . import tuned


def values(order: Order, records: list[Record]) -> dict[str, float]:
    """Accuracies in per cent, as FORM_DENOISING; what else the other tables have."""
    found: dict[str, float] = {}
    for form, denoise in tuned.curves():
        best = tuned.best_run(records, form, denoise)
        if best is not None:
            found[f"{form}_{denoise}"] = 100 * best.found["scores"][-1]
    for run in tuned.runs_of(records, "gaussian", "literal"):
        if run.asked["rate"] == order.settings["tuned"]["rates"]["no"][0]:
            found["literal_same_rate"] = 100 * run.found["scores"][-1]
    for record in records:
        asked, result = record.asked, record.found
        if record.part == "accounting":
            found[f"claimed_{asked['form']}_{_point(asked['multiplier'])}"] = result["claimed"]
            found[f"certified_{asked['form']}_{_point(asked['multiplier'])}"] = result["certified"]
        elif record.part == "counterexamples":
            found |= result
        elif record.part == "figure 6, order 2":
            found["order_2"] = result["student_t"] / result["gaussian"]
        elif record.part == "figure 6":
            found["same_epsilon"] = result["student_t"]["l1"] / result["gaussian"]["l1"]
        elif record.part == "as published":
            name = next(each for each in ("vectors", "micro_batch", "lots") if each in asked and asked[each] != 1)
            found[f"published_{name}"] = 100 * result["scores"][-1]
        elif record.part == "mnist":
            if asked["multiplier"] == order.settings["compared"][asked["form"]]:
                name = "denoised" if asked["denoise"] else "plain"
                found[f"full_{asked['form']}_{name}"] = 100 * result["scores"][-1]
            if asked["form"] == "dpsgd":
                _reached(found, result)
        elif record.part == "cifar10":
            found[f"cifar_{asked['form']}"] = 100 * result["scores"][-1]
            found["cifar_steps"] = round(asked["epochs"] * asked["examples"] / asked["lot_size"])
    return found


def _point(number: float) -> str:
    return f"{number:g}".replace(".", "p")


def _reached(found: dict[str, float], result: dict[str, list[float]]) -> None:
    """The least certified epsilon at which DP-SGD was ever seen at 96 %."""
    for score, epsilon in zip(result["scores"], result["certified"], strict=True):
        if score >= 0.96:
            found["dpsgd_96"] = min(epsilon, found.get("dpsgd_96", epsilon))
