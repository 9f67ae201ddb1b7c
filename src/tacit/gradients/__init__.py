"""Per-example gradients of any PyTorch model whose examples do not mix: private values, made in one backward pass."""

from tacit.gradients.backends import in_pieces, per_example_gradients
from tacit.gradients.contributions import BackendUsed, LotGradients
from tacit.gradients.models import replace_batch_norm, trainable

__all__ = ["BackendUsed", "LotGradients", "in_pieces", "per_example_gradients", "replace_batch_norm", "trainable"]
