"""`tacit plan`: what a budget buys before any data are touched: lots, steps, noise, signal and time."""

from typing import Annotated, Any, Literal

import typer

from tacit.cli import options

Kind = Literal["handwriting", "image", "table", "text"]


def plan(
    population: Annotated[float, options.numeric("Public number of examples to train on.")],
    epsilon: Annotated[float, options.numeric("The epsilon that everything may cost.")],
    delta: Annotated[float | None, options.numeric("Probability with which epsilon may fail (1e-5, or less).")] = None,
    kind: Annotated[Kind, typer.Option("--kind", help="What the data are; the recipe differs.")] = "image",
    features: Annotated[float, options.numeric("Features of an example (3969: scattering of 28 x 28 pixels).")] = 3969,
    classes: Annotated[float, options.numeric("Classes to tell apart.")] = 10,
    json: options.Json = False,
) -> None:
    """Show what a budget buys: lot size, steps, noise, signal-to-noise and time, for a linear model over features.

    The row with a star is the automatic recipe. No data are read; the time is that of two matrix products here.

    \b
    tacit plan --population 60000 --epsilon 1
    tacit plan --population 30000 --epsilon 0.5 --kind table --features 150 --classes 2
    """
    from tacit import _validate
    from tacit.cli.output import note, say, say_json, working
    from tacit.recipes.recipe import plan_steps
    from tacit.workflows.cautions import large_delta

    size = _validate.count("population", population)
    chosen = min(1e-5, 0.1 / size) if delta is None else delta
    with working("Accounting"):
        rows = plan_steps(
            kind,
            population=size,
            epsilon=epsilon,
            delta=chosen,
            columns=_validate.count("features", features),
            classes=_validate.count("classes", classes, at_least=2),
        )
    caution = large_delta(chosen, size)
    if caution is not None:
        note(caution)
    if json:
        say_json({"epsilon": epsilon, "delta": chosen, "population": size, "plans": [row.facts() for row in rows]})
        return
    head = f"epsilon {epsilon:g} at delta {chosen:g} out of {size:,} examples (one added or removed, PLD)"
    say([(head, _lines(rows)), ("What the columns say", _MEANING)])


_HEAD = (
    f"{'steps':>8}{'lot size':>10}{'epochs':>8}{'multiplier':>12}{'rate':>10}{'a step':>10}{'in all':>9}{'seconds':>9}"
)
_MEANING = [
    "multiplier: noise on the sum over a lot, as a multiple of the clip norm; rate: the learning rate of the rule.",
    "a step, in all: the longest sum that a lot can have over the length of the noise, and over all steps together.",
    "More steps with the same noise in the end follow the gradient better, and take longer. * is the recipe.",
]


def _lines(rows: list[Any]) -> list[str]:
    return [
        _HEAD,
        *(
            f"{row.steps:>7,}{'*' if row.is_recipe else ' '}{row.lot_size:>10,.0f}{row.epochs:>8.3g}"
            f"{row.multiplier:>12.4g}{row.learning_rate:>10.4g}{row.signal:>10.3g}{row.signal_in_all:>9.3g}"
            f"{row.seconds:>9.2g}"
            for row in rows
        ),
    ]
