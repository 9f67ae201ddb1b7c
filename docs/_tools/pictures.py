"""Draw the pictures of the documentation: `python docs/_tools/pictures.py`. The same program draws the same bytes."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

from tacit.accounting import Gaussian, curve, multiplier_for

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
DELTA, RATE, STEPS = 1e-5, 0.01, 1000
COLOURS = {0.5: "#0b7285", 1: "#2b8a3e", 3: "#e67700", 8: "#c92a2a"}


def event_for(epsilon: float) -> Gaussian:
    """DP-SGD with the settings of the pages, calibrated to this epsilon."""
    multiplier = multiplier_for(epsilon=epsilon, delta=DELTA, rate=RATE, steps=STEPS)
    return Gaussian(multiplier).sampled(RATE) * STEPS


def draw_tradeoff() -> plt.Figure:
    """Members found over false alarms, for several epsilons."""
    figure, axes = plt.subplots(figsize=(6.4, 4.2))
    alarms = np.concatenate([np.linspace(0, 0.02, 30), np.linspace(0.025, 1, 60)])
    for epsilon, colour in COLOURS.items():
        privacy = curve(event_for(epsilon))
        found = [privacy.true_positive_rate(float(share)) for share in alarms]
        axes.plot(100 * alarms, 100 * np.array(found), color=colour, linewidth=2)
        place = int(np.argmin(np.abs(alarms - 0.22)))
        axes.annotate(
            f"ε = {epsilon:g}", (100 * alarms[place], 100 * found[place]), xytext=(-6, 6), textcoords="offset points",
            color=colour, ha="right",
        )  # fmt: skip
    axes.plot([0, 100], [0, 100], color="#868e96", linestyle=":")
    axes.annotate("guessing", (62, 58), color="#868e96")
    axes.set(xlabel="false alarms, % of people who were not in the data", ylabel="members found at most, %")
    axes.set(xlim=(0, 100), ylim=(0, 100))
    return figure


def draw_composition() -> plt.Figure:
    """Epsilon of several equal runs together."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    runs = np.arange(1, 21)
    together = [curve(event_for(1) * int(count)).epsilon(DELTA) for count in runs]
    axes.plot(runs, runs, color="#868e96", linestyle="--")
    axes.annotate("plain sum of the epsilons", (11.5, 12.4), ha="right", color="#868e96")
    axes.plot(runs, together, color="#0b7285", linewidth=2)
    axes.annotate("certified cost of all runs together", (13, together[12]), xytext=(0, -16),
                  textcoords="offset points", color="#0b7285")  # fmt: skip
    axes.set(xlabel="runs of ε = 1 on the same data", ylabel="ε at δ = 1e-5", xlim=(0, 20.5), ylim=(0, 21))
    axes.set_xticks([1, 5, 10, 15, 20])
    return figure


BOXES = [
    ("data", "private"), ("lot", "private"), ("gradients", "private"), ("bounded sum", "private"),
    ("release", "public"), ("model", "public"),
]  # fmt: skip
STEPS_BETWEEN = ["sample", "one by one", "clip, sum", "add noise", "optimizer"]


def write_pipeline() -> str:
    """The line from private data to a public model, as SVG."""
    wide, gap, left = 108, 62, 16
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 990 200" font-family="sans-serif" font-size="14" '
        'role="img" aria-label="data, lot, gradients and bounded sum are private; release and model are public">',
        '<rect width="990" height="200" rx="8" fill="#ffffff"/>',
        '<rect x="6" y="34" width="662" height="92" rx="8" fill="#fff4e6"/>',
        '<rect x="686" y="34" width="298" height="92" rx="8" fill="#e6fcf5"/>',
        '<text x="16" y="24" fill="#d9480f">private: never leaves the process</text>',
        '<text x="696" y="24" fill="#087f5b">public: may be released</text>',
    ]
    for number, (name, kind) in enumerate(BOXES):
        x = left + number * (wide + gap)
        line = "#d9480f" if kind == "private" else "#087f5b"
        parts.append(
            f'<rect x="{x}" y="58" width="{wide}" height="44" rx="6" fill="#ffffff" stroke="{line}" '
            'stroke-width="1.5"/>'
        )
        parts.append(f'<text x="{x + wide / 2:g}" y="85" text-anchor="middle" fill="#212529">{name}</text>')
        if number < len(STEPS_BETWEEN):
            begin, end = x + wide + 4, x + wide + gap - 4
            parts.append(f'<path d="M{begin} 80H{end - 7}" stroke="#495057" stroke-width="1.5"/>')
            parts.append(f'<path d="M{end} 80l-8 -4v8z" fill="#495057"/>')
            middle = x + wide + gap / 2
            parts.append(
                f'<text x="{middle:g}" y="118" text-anchor="middle" font-size="11" fill="#495057">'
                f"{STEPS_BETWEEN[number]}</text>"
            )
    release = left + 4 * (wide + gap) + wide / 2
    parts.append(f'<path d="M{release:g} 104V150" stroke="#495057" stroke-width="1.5"/>')
    parts.append(f'<path d="M{release:g} 158l-4 -8h8z" fill="#495057"/>')
    parts.append(
        f'<text x="{release:g}" y="178" text-anchor="middle" fill="#212529">'
        "event → ledger and accountant → guarantee</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Draw all of them."""
    plt.rcParams.update({"svg.hashsalt": "tacit", "svg.fonttype": "none", "font.size": 11, "axes.spines.top": False})
    plt.rcParams.update(
        {"axes.spines.right": False, "font.family": "sans-serif", "figure.constrained_layout.use": True}
    )
    for name, figure in {"tradeoff": draw_tradeoff(), "composition": draw_composition()}.items():
        figure.savefig(PICTURES / f"{name}.svg", metadata={"Date": None, "Creator": None})
    (PICTURES / "pipeline.svg").write_text(write_pipeline(), encoding="utf-8")


if __name__ == "__main__":
    main()
