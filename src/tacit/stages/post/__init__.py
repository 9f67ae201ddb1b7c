"""Post: what may be done with a release. It sees nothing private, so it costs nothing."""

from tacit.stages.post.ks import KSDenoise
from tacit.stages.post.smooth import LaplacianSmoothing
from tacit.stages.post.topk import TopK

__all__ = ["KSDenoise", "LaplacianSmoothing", "TopK"]
