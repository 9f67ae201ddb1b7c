"""Published methods: what each is made of, what its paper claims, what is proven."""

from tacit.methods.dpsgd import dpsgd, noisy_adam, noisy_sgd

__all__ = ["dpsgd", "noisy_adam", "noisy_sgd"]
