"""Networks for private training."""

from tacit.models.networks import Tempered, standardised, tempered_cnn

__all__ = ["Tempered", "standardised", "tempered_cnn"]
