"""What must not pass the type checker. Every line marked `wrong` has to be reported, and no other."""

from tacit.randomness import Stream
from tacit.stages.mechanism import Mechanism, MechanismState
from tacit.types import Bound, BoundedSum, Noise, PerExampleGradients, Post, Release, State, Tensors


def smoothing_a_private_sum(post: Post, bounded: BoundedSum, state: State) -> None:
    post.apply(bounded, state)  # wrong


def smoothing_private_gradients(post: Post, gradients: PerExampleGradients, state: State) -> None:
    post.apply(gradients, state)  # wrong


def noise_on_what_is_not_bounded(noise: Noise, gradients: PerExampleGradients, values: Tensors, rng: Stream) -> None:
    noise.add(gradients, rng)  # wrong
    noise.add(values, rng)  # wrong


def a_gradient_that_skipped_the_noise(bound: Bound, gradients: PerExampleGradients, state: State) -> Tensors:
    return bound.sum(gradients, state)  # wrong


def a_release_without_an_event(values: Tensors) -> Release:
    return Release(values)  # wrong


def a_bound_that_learns_from_private_data(bound: Bound, bounded: BoundedSum, state: State) -> None:
    bound.receive(bounded, state)  # wrong


def gradients_that_were_not_summed(
    mechanism: Mechanism, gradients: PerExampleGradients, state: MechanismState, rng: Stream
) -> None:
    mechanism.release(gradients, state, rng)  # wrong


def stages_swapped(bound: Bound, noise: Noise) -> Mechanism:
    return Mechanism(noise, bound)  # wrong
