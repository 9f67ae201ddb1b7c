"""Networks for private training, and a user's own from FILE:FUNCTION."""

from tacit.models.networks import (
    Ratings,
    Reviews,
    Tempered,
    is_own_model,
    make_own_model,
    standardised,
    tempered_cnn,
)

__all__ = ["Ratings", "Reviews", "Tempered", "is_own_model", "make_own_model", "standardised", "tempered_cnn"]
