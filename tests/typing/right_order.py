"""The line as it should be: it passes the type checker."""

from tacit.randomness import Stream
from tacit.stages.mechanism import Mechanism
from tacit.types import Bound, Noise, PerExampleGradients, Post, State, Tensors


def whole_line(
    gradients: PerExampleGradients, bound: Bound, noise: Noise, post: Post, state: State, rng: Stream
) -> Tensors:
    noisy = noise.add(bound.sum(gradients, state), rng)
    received, _ = bound.receive(noisy, state)
    smoothed, _ = post.apply(received, state)
    return smoothed


def as_a_mechanism(bound: Bound, noise: Noise, post: Post) -> Mechanism:
    return Mechanism(bound, noise, (post,))
