"""Published methods: what each is made of, what its paper claims, what is proven."""

from collections.abc import Callable

from tacit.mechanism import Mechanism
from tacit.methods.adaclip import adaclip
from tacit.methods.directional import directional
from tacit.methods.dp_lssgd import dp_lssgd
from tacit.methods.dpsgd import dpsgd, noisy_adam, noisy_sgd
from tacit.methods.encoded import encoded
from tacit.methods.pruned import pruned

# Every gradient method by its name: each takes clip_norm, multiplier and mode.
GRADIENT_METHODS: dict[str, Callable[..., Mechanism]] = {
    "adaclip": adaclip,
    "directional": directional,
    "dp_lssgd": dp_lssgd,
    "dpsgd": dpsgd,
    "encoded": encoded,
    "noisy_adam": noisy_adam,
    "noisy_sgd": noisy_sgd,
    "pruned": pruned,
}

__all__ = [
    "GRADIENT_METHODS",
    "adaclip",
    "directional",
    "dp_lssgd",
    "dpsgd",
    "encoded",
    "noisy_adam",
    "noisy_sgd",
    "pruned",
]
