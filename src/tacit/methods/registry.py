"""Every published method by name: its paper, what it does, how well its claim stands, and what is proven instead.

Plain text, so that listing the methods loads none of them; `load` does, and tests compare both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from tacit.errors import InvalidArgument

Kind = Literal["gradient", "linear"]
StatusName = Literal["proven", "asymptotic", "unproven", "refuted"]

_EXAMPLE = "one example added or removed"
_REPLACED = "one example replaced by any other"


@dataclass(frozen=True)
class Entry:
    """One method. `status` rates its paper's claim about the form that mode="paper" gives by default.

    `verdict` says why and, where there are several published forms, rates each of them.

    `kind` is "gradient" for any differentiable model, "linear" for linear models. `idea` is what it does, `rigorous`
    its form with a proof, `protects` whom that hides, `exposed` what the published form does not hide.
    """

    name: str
    kind: Kind
    paper: str
    idea: str
    status: StatusName
    verdict: str
    rigorous: str
    protects: str
    options: tuple[tuple[str, str], ...] = ()
    exposed: tuple[str, ...] = ()
    home: str = ""

    def load(self) -> Callable[..., Any]:
        """The function in tacit.methods that makes it."""
        found: Callable[..., Any] = getattr(import_module(f"tacit.methods.{self.home or self.name}"), self.name)
        return found

    @property
    def page(self) -> str:
        """Where the argument is."""
        return f"docs/methods/{self.home or self.name}.md"


METHODS: tuple[Entry, ...] = (
    Entry(
        "dpsgd",
        "gradient",
        "Abadi et al. 2016",
        "Every example's gradient is clipped, they are summed over a random lot, and Gaussian noise is added.",
        "proven",
        "The moments accountant is an upper bound: about a third too large over many steps, more over few.",
        "The same, with the exact privacy curve.",
        _EXAMPLE,
        (
            ("clipping", "flat, per_layer, normalised or quantile"),
            ("denominator", "public; realised divides by the lot that came, which is refuted"),
        ),
    ),
    Entry(
        "noisy_sgd",
        "gradient",
        "Bu et al. 2019",
        "DP-SGD, accounted for by a central limit theorem of Gaussian differential privacy.",
        "refuted",
        "As printed, sums are divided by the size of the lot that came, which doubles what one example moves (epsilon "
        "12.9 where 2.4 is claimed); and the central limit is too small in eight of nine published settings.",
        "A constant denominator, which costs nothing, and the exact privacy curve.",
        _EXAMPLE,
        (("clipping", "flat, per_layer, normalised or quantile"),),
        home="dpsgd",
    ),
    Entry(
        "noisy_adam",
        "gradient",
        "Bu et al. 2019",
        "The same noisy gradients, given to Adam.",
        "refuted",
        "As for noisy_sgd: the optimizer costs nothing, and the denominator is the same.",
        "A constant denominator, which costs nothing, and the exact privacy curve.",
        _EXAMPLE,
        (("clipping", "flat, per_layer, normalised or quantile"),),
        home="dpsgd",
    ),
    Entry(
        "directional",
        "gradient",
        "Xiang et al. 2023",
        "Noise that differs between coordinates, by how much each matters to the loss.",
        "refuted",
        "The noise is least in directions that one example can use in full, the noisy direction has twice the "
        "sensitivity that it is given, and dividing the budget by the sampling rate is no theorem.",
        "Whitened clipping with a scale from past releases: less noise where it matters, and a proof.",
        _EXAMPLE,
        (
            ("variant", "full, w1 (isotropic), minimax (its equations solved correctly) or floored"),
            ("objective", "l1 or l2: which noise is made small"),
            ("grain", "coordinate or parameter: how finely the scale varies"),
        ),
    ),
    Entry(
        "adaclip",
        "gradient",
        "Pichapati et al. 2019",
        "Clipping in coordinates that past releases have centred and whitened.",
        "proven",
        "Mean and width come from past releases alone, so every step is a Gaussian release.",
        "The same, with the exact privacy curve.",
        _EXAMPLE,
        (("gamma", "expected squared length of a whitened gradient"),),
    ),
    Entry(
        "pruned",
        "gradient",
        "Xiang et al. 2023",
        "Only the largest coordinates move the model; what is left out is fed back into the next gradients.",
        "refuted",
        "Which coordinates are kept is decided by private data without noise, and what is left out enters every "
        "gradient of the next step as it is.",
        "The largest coordinates after the noise, with error feedback; or a mask from past releases.",
        _EXAMPLE,
        (
            ("keep", "share of the coordinates that is kept"),
            ("select_by", "release (after the noise) or past (a mask from past releases)"),
            ("refresh", "with past: every so many steps all coordinates are looked at"),
        ),
        exposed=("support", "residual"),
    ),
    Entry(
        "encoded",
        "gradient",
        "Nasr et al. 2020",
        "Gradients are clamped to preselected vectors, coordinate by coordinate, so that noise of any law can be "
        "accounted for; releases are scaled by how little they look like noise.",
        "proven",
        "With the sign of its lemma put right, one example per encoding, Poisson lots and vectors that do not depend "
        "on the data. Micro-batches of several examples, as in its experiments, are refuted, and refused here.",
        "The exact privacy curve of noise on a box; several examples per encoding in random buckets only.",
        _EXAMPLE,
        (
            (
                "noise",
                "gaussian, student_t, laplace, cauchy, variance_gamma or sech; `tacit noise --families` compares",
            ),
            ("denoise", "true or false: scale releases by their distance from pure noise"),
            ("vectors", "in Python only: Profile(levels), DrawnVectors(count, seed) or GivenVectors(...)"),
            ("buckets", "deal examples into so many buckets and encode their means"),
        ),
    ),
    Entry(
        "dp_lssgd",
        "gradient",
        "Wang et al. 2019",
        "Noisy gradients, smoothed over neighbouring coordinates before the step.",
        "proven",
        "Smoothing is a fixed map of what was released and costs nothing; the published noise is several times what is "
        "needed.",
        "The same, with as much noise as the exact privacy curve asks for.",
        _EXAMPLE,
        (("strength", "how strongly neighbours are drawn together"),),
    ),
    Entry(
        "output_perturbation",
        "linear",
        "Chaudhuri et al. 2011, Wu et al. 2017, Zhang et al. 2017",
        "Train without noise, then add some to the coefficients.",
        "proven",
        "For exact minimisers, fixed orders and constant divisors, with the sensitivities that are proven.",
        "The same, with a certified solver and the exact Gaussian curve.",
        _REPLACED,
    ),
    Entry(
        "objective_perturbation",
        "linear",
        "Chaudhuri et al. 2011, Kifer et al. 2012",
        "A random linear term is added to the objective, and its minimiser released.",
        "proven",
        "For the exact minimiser, which no solver returns.",
        "The solver's answer is certified to be close, and gets a little more noise that hides the rest.",
        _REPLACED,
    ),
    Entry(
        "gradient_perturbation",
        "linear",
        "Song et al. 2013, Bassily et al. 2014, Wang et al. 2017",
        "Every step of a descent gets noise, and all of them are accounted for together.",
        "refuted",
        "Wang et al. (full gradients, the default) leave a constant open, and with 1 the epsilon is 2.4 where 1 is "
        "claimed (at delta 1e-5; from 4.84 on it is proven). Song et al. (NoisyPass) and Bassily et al. (NoisyLots) "
        "are proven; for DP-SVRG (NoisySnapshots) no constant has a proof.",
        "As much noise as a certified accountant asks for.",
        _REPLACED,
    ),
    Entry(
        "input_perturbation",
        "linear",
        "Kang et al. 2020",
        "Noise on the training data, once, and then any number of steps.",
        "refuted",
        "Noise that all examples share cancels, noise for each averages out, and labels have none.",
        "Features and labels both get noise, as reports that shuffling protects.",
        _REPLACED,
        (("module", "a torch module to train on the noisy examples, in place of a linear model"),),
        exposed=("labels", "examples"),
    ),
    Entry(
        "data_perturbation",
        "linear",
        "Kang et al. 2021, algorithm 1",
        "Noise on the training data, then steps over random lots.",
        "refuted",
        "Labels have no noise, shared noise cancels on balanced lots, and noise for each example averages out.",
        "As for input_perturbation.",
        _REPLACED,
        (("module", "a torch module to train on the noisy examples, in place of a linear model"),),
        exposed=("labels", "examples"),
    ),
    Entry(
        "influence_perturbation",
        "linear",
        "Kang et al. 2021, algorithm 2",
        "Noise for examples that move the model, none for others.",
        "refuted",
        "Training starts from a model that saw the data without noise, and examples of little influence go in as they "
        "are: outcomes of two neighbours can have nothing in common.",
        "Everyone's gradient gets the same noise, and who has spent the budget is left out (individual accounting).",
        _REPLACED,
        (("module", "a torch module in place of a linear model; in paper form only"),),
        exposed=("labels", "examples"),
    ),
)


def entry(name: str) -> Entry:
    """The method of that name; `InvalidArgument` with all names if there is none."""
    for one in METHODS:
        if one.name == name:
            return one
    raise InvalidArgument(f"There is no method {name!r}. Known: {', '.join(one.name for one in METHODS)}.")


def gradient_names() -> tuple[str, ...]:
    """The methods that train any differentiable model, as `tacit train` does."""
    return tuple(one.name for one in METHODS if one.kind == "gradient")
