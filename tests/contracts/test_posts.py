"""What every Post promises. A new post gets these tests by being listed."""

import pytest
import torch
from safetensors.torch import load, save

from support.slow_gradients import SlowGradients
from tacit.randomness import Purpose, SeededSource
from tacit.stages.bounds import Clip
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import GaussianNoise
from tacit.stages.post import KSDenoise, LaplacianSmoothing, TopK

POSTS = [
    LaplacianSmoothing(),
    LaplacianSmoothing(strength=0),
    KSDenoise(),
    KSDenoise(is_relative=True),
    TopK(keep=0.2),
    TopK(keep=0.01),
    TopK(keep=0.5, error_feedback=False),
]
SHAPES = {"first.weight": (4, 3), "first.bias": (4,), "scale": (), "none": (0,)}
every_post = pytest.mark.parametrize("post", POSTS, ids=str)


def like(dtype=torch.float32):
    return {name: torch.zeros(shape, dtype=dtype) for name, shape in SHAPES.items()}


def release(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in SHAPES.items()}


def known(post):
    """The post as a mechanism has it, and its first state."""
    mechanism = Mechanism(Clip(1.0), GaussianNoise(1.0), (post,))
    state = mechanism.init(like(), 10.0).post[0]
    return mechanism.post[0], {name: torch.ones_like(v) if name == "noise_std" else v for name, v in state.items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@every_post
def test_it_is_a_function_of_its_arguments_only(post):
    post, state = known(post)
    for seed in range(3):
        first, second = post.apply(release(seed), state), post.apply(release(seed), state)
        assert equal(first[0], second[0])
        assert equal(first[1], second[1])
        state = first[1]


@every_post
def test_it_leaves_its_arguments_as_they_were(post):
    post, state = known(post)
    _, state = post.apply(release(0), state)
    values, before = release(1), {name: value.clone() for name, value in state.items()}
    post.apply(values, state)
    assert equal(values, release(1))
    assert equal(state, before)


@every_post
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_precision_stay(post, dtype):
    post, state = known(post)
    values, _ = post.apply(release(0, dtype), state)
    assert {name: tuple(value.shape) for name, value in values.items()} == SHAPES
    assert {value.dtype for value in values.values()} == {dtype}


@every_post
def test_state_survives_save_and_load(post):
    post, state = known(post)
    for seed in range(2):
        _, state = post.apply(release(seed), state)
    loaded = load(save({name: value.contiguous() for name, value in state.items()}))
    there, here = post.apply(release(5), loaded), post.apply(release(5), state)
    assert equal(there[0], here[0])
    assert equal(there[1], here[1])


@every_post
def test_nothing_released_is_nothing(post):
    post, _ = known(post)
    assert post.apply({}, {"noise_std": torch.ones(())} if isinstance(post, KSDenoise) else {})[0] == {}


@every_post
def test_a_release_costs_the_same_with_and_without_it(post):
    gradients = SlowGradients({name: torch.ones(5, *shape) for name, shape in SHAPES.items()})
    events = []
    for posts in ((), (post,)):
        mechanism = Mechanism(Clip(1.0), GaussianNoise(0.8), posts)
        stream = SeededSource(0).stream(Purpose.NOISE, 0)
        events.append(mechanism.step(gradients, mechanism.init(like(), 5.0), stream)[0].event)
    assert events[0] == events[1]
