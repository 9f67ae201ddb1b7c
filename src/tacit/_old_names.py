"""Old names in saved files: modules that have moved, and assumptions from before they had keys.

Such files are read for ever, so entries are never changed or removed.
"""

from __future__ import annotations

import re
from functools import cache

UNKNOWN = "other"

# Modules and classes ("module:Class") that checkpoints name, and where they are now. A target may itself have moved.
_MOVED = {
    "tacit.bounds": "tacit.stages.bounds",
    "tacit.budget:Budget": "tacit.accounting.calibrate:Budget",
    "tacit.claims": "tacit.stages.claims",
    "tacit.ledger.budget": "tacit.budget",
    "tacit.mechanism": "tacit.stages.mechanism",
    "tacit.noise": "tacit.stages.noise",
    "tacit.plan": "tacit.training.plan",
    "tacit.post": "tacit.stages.post",
    "tacit.recipe": "tacit.recipes.recipe",
    "tacit.sampling": "tacit.stages.sampling",
    "tacit.stages.bounds.adaclip": "tacit.stages.bounds.whiten",
    "tacit.stages.bounds.counted": "tacit.stages.bounds.clip",
    "tacit.stages.bounds.quantile": "tacit.stages.bounds.clip",
    "tacit.stages.bounds.shaped": "tacit.stages.bounds.whiten",
    "tacit.stages.bounds.vectors": "tacit.stages.bounds.encode",
    "tacit.stages.claims": "tacit.stages.mechanism",
    "tacit.stages.noise.directional": "tacit.stages.noise.published",
    "tacit.stages.noise.families:Cauchy": "tacit.stages.noise.student_t:Cauchy",
    "tacit.stages.noise.families:Laplace": "tacit.stages.noise.laplace:Laplace",
    "tacit.stages.noise.families:Normal": "tacit.stages.noise.gaussian:Normal",
    "tacit.stages.noise.families:Sech": "tacit.stages.noise.sech:Sech",
    "tacit.stages.noise.families:StudentT": "tacit.stages.noise.student_t:StudentT",
    "tacit.stages.noise.families:VarianceGamma": "tacit.stages.noise.laplace:VarianceGamma",
    "tacit.stages.noise.inverse_banded": "tacit.stages.noise.buffered",
    "tacit.stages.noise.laplace": "tacit.stages.noise.laws",
    "tacit.stages.noise.pruned": "tacit.stages.noise.published",
    "tacit.stages.noise.realised": "tacit.stages.noise.published",
    "tacit.stages.noise.sech": "tacit.stages.noise.laws",
    "tacit.stages.noise.student_t": "tacit.stages.noise.laws",
    "tacit.stages.post.ks": "tacit.stages.post",
    "tacit.stages.post.smooth": "tacit.stages.post",
    "tacit.stages.post.topk": "tacit.stages.post",
}

# `{}` stands for what differs from run to run.
_SENTENCES = {
    "poisson_lots": (
        "Lots are Poisson samples at rate {}, and which examples they held stays secret.",
        "Lots are Poisson samples, and which examples they held stays secret.",
    ),
    "full_batch": ("Every example takes part in every step; nothing is gained from sampling.",),
    "shuffled_lots": (
        "Lots are consecutive pieces of shuffled epochs, which no proof amplifies: every epoch is charged as one "
        "release without sampling, for one example replaced by another. The number of examples is public.",
    ),
    "single_draws": ("Each step draws one example uniformly, and which it was stays secret.",),
    "ordered_lots": ("Lots are consecutive pieces of the data, whose order does not depend on its values.",),
    "public_lot_size": ("Sums are divided by the public lot size, never by the number of examples that came.",),
    "fixed_in_advance": ("Noise levels, lot sizes and the number of steps were fixed before the first lot was drawn.",),
    "nothing_fitted_before": (
        "The model's first weights, and all that was done to the data before, did not depend on the examples.",
    ),
    "prepared_by_release": (
        "The model's first weights did not depend on the examples, nor did their features, but for the mean (for "
        "whitening also second moments, for cells also counts) that was released first.",
        "The model's first weights did not depend on the examples, nor did their features, but for the mean (for "
        "whitening also second moments) that was released first.",
        "The model's first weights did not depend on the examples, nor did their features, but for the mean (of images "
        "also second moments) that was released first.",
        "The model's first weights did not depend on the examples, nor did their features, but for the mean that was "
        "released first.",
    ),
    "public_first_weights": ("The network started from weights that do not depend on the data.",),
    "noise_on_a_grid": (
        "The noise is drawn in floating point, and rounded together with the sum to a public grid.",
        "The noise is a normal number in floating point, rounded together with the sum to a public grid.",
    ),
    "lost_steps_not_charged": (
        "{} lost steps were not charged, as whoever resumed declared that nothing of them left the process.",
    ),
    "gradients_given": (
        "Gradients were made by a function that was given: each row must be one example's, and depend on no other.",
    ),
    "same_examples_everywhere": (
        "Each of {} processes held the same examples in the same order, and summed those that it owns.",
    ),
    "rows_clipped": (
        "Every row was clipped to a norm of {}, which was declared and not looked up.",
        "Every row, the 1 of its intercept included, was clipped to a norm of {}, which was declared and not looked "
        "up.",
        "The features of every example were clipped to a norm of {}, which was declared and not looked up.",
    ),
    "public_count": (
        "The number of examples is public.",
        "The number of rows is public: an example that is removed leaves a row of zeros in its place.",
        "The number that sums are divided by is public: it does not follow the data.",
    ),
    "counted_examples": ("The number of examples, {}, is public: it was counted, not declared.",),
    "public_population": ("The population of {} is public: {}.",),
    "reports_shuffled": (
        "The reports were shuffled before anyone saw them; against whoever sees them with their senders the local "
        "statement holds, and no more.",
    ),
    "public_classes": ("Which classes there are is public: they were read off y, not declared.",),
    "one_fit": (
        "This is the cost of one fit. Every further fit on the same examples, in a search, a cross-validation or by "
        "hand, adds its own; give all of them one ledger to have them added up. Scores on these examples have no noise "
        "and no guarantee, and neither has a choice based on them: choose with public examples.",
        "This is the cost of one fit. Every further fit on the same examples, in a search, a cross-validation or by "
        "hand, adds its own; give all of them one ledger to have them added up. Scores on these examples have no noise "
        "and no guarantee, nor has a choice by such scores: choose by examples that are public.",
        "This is the cost of one fit. Every further fit on the same examples, in a search, a cross-validation or by "
        "hand, adds its own; give all of them one ledger to have them added up.",
    ),
    "public_scaling": ("Inputs were scaled without looking at them: {}.",),
    "public_test": ("The test examples are public; only examples trained on are protected.",),
    "private_test": (
        "Which rows were held out for testing, a hash of each row alone decided; a score of theirs is released only "
        "with noise of its own, which protects those rows no less than training protects the others.",
        "Which rows were held out for testing, a hash of each row alone decided; the score was released with noise of "
        "its own, which protects those rows no less than training protects the others.",
    ),
    "not_tested": ("No rows were held out for testing, as was declared, and nothing was scored.",),
    "one_unit": ("What is protected is one {}; whoever has several in the data is protected less.",),
    "secret_trials": (
        "The number of trials was drawn at random ({} on average) and stays secret, as do all other trials.",
    ),
    "public_scores": (
        "Trials were compared by a score that is part of what each of them releases, or that public examples give.",
    ),
    "fixed_search_space": (
        "The space of settings was fixed before the first trial, and did not depend on the examples.",
    ),
}


def key_of(sentence: str) -> str:
    """The key of a sentence that an earlier version wrote; "other" for any other sentence.

    >>> key_of("Lots are Poisson samples at rate 0.01, and which examples they held stays secret.")
    'poisson_lots'
    >>> key_of("The moon is made of cheese.")
    'other'
    """
    return next((key for key, pattern in _patterns() if pattern.fullmatch(sentence)), UNKNOWN)


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    return [
        (key, re.compile(".+".join(map(re.escape, sentence.split("{}"))), re.DOTALL))
        for key, sentences in _SENTENCES.items()
        for sentence in sentences
    ]


def class_now(name: str) -> str:
    """Where a class is today that an earlier version called `name` ("module:Class"); `name` itself if it never moved.

    >>> class_now("tacit.claims:ByAccountant")
    'tacit.stages.mechanism:ByAccountant'
    >>> class_now("tacit.noises:Noise")
    'tacit.noises:Noise'
    """
    for old, new in _MOVED.items():
        if name == old or name.startswith((f"{old}.", f"{old}:")):
            return class_now(new + name.removeprefix(old))
    return name
