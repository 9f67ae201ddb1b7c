"""Post: what may be done with a release. It sees nothing private, so it costs nothing."""

from tacit.post.ks import KSDenoise
from tacit.post.smooth import LaplacianSmoothing
from tacit.post.topk import TopK

__all__ = ["KSDenoise", "LaplacianSmoothing", "TopK"]
