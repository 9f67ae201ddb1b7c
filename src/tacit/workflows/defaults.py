"""What a network is trained with where the user gives no option: the model and the settings."""

from __future__ import annotations

import math

import torch
from torch import nn

from tacit import _validate
from tacit._files import expand_home
from tacit.datasets import Data, TrainingDefaults
from tacit.errors import InvalidArgument
from tacit.methods.choices import read_choices
from tacit.methods.registry import find_method, list_gradient_names
from tacit.models import Ratings, Reviews, is_own_model, make_own_model, tempered_cnn
from tacit.workflows.numbers import RunNumbers
from tacit.workflows.settings import (
    Settings,
    Table,
    TrainOptions,
    check_share,
    or_default,
    resolve_population,
)

MODELS = ("linear", "mlp", "cnn", "embedding", "tempered")
_HIDDEN = 32
_GROUPS = 4
_IMAGE, _COLOUR = (1, 28, 28), (3, 32, 32)
# Above this learning rate, steps overflow single precision.
_NO_STEP = 1e30
# Channels, height and width.
_IMAGE_DIMENSIONS = 3
# With several views of each image, so many examples go through the model at once.
_VIEWED_AT_ONCE = 256
# Large lots, few and long steps, averaged weights: found on training images of MNIST (docs/explanations/recipes.md).
_TEMPERED = TrainingDefaults(
    "tempered",
    lot_size=2_048,
    epochs=20,
    learning_rate=12.0,
    adam_rate=0.002,
    clip_norm=0.1,
    momentum=0.9,
    averaging=0.98,
)


def find_defaults(data: Data, model: str | None = None) -> TrainingDefaults:
    """The defaults of the tempered model, or else of the data set; without any, those for its public size."""
    if model == _TEMPERED.model:
        return _TEMPERED
    if data.defaults is not None:
        return data.defaults
    rate = 0.2 if data.classes is None else 1.0
    lot_size = min(512.0, max(1.0, round(data.population / 8)))
    return TrainingDefaults("linear", lot_size, epochs=30, learning_rate=rate, adam_rate=0.02)


def resolve_settings(data: Data, options: TrainOptions, table: Table | None = None) -> Settings:
    """Fill in what was not given from the defaults of the data set; `InvalidArgument` for values out of range."""
    if data.words is not None:
        raise InvalidArgument(
            "Only the automatic recipe trains on texts of your own. Give --epsilon, and leave out what it chooses."
        )
    defaults = find_defaults(data, options.model)
    method, mode = _find_gradient_method(options.method), options.mode or "rigorous"
    population = resolve_population(data, options)
    # If the population is smaller than the default lot, a lot is a tenth of it.
    lot_size = or_default(options.lot_size, defaults.lot_size if defaults.lot_size <= population else population / 10)
    epochs = options.epochs if options.epochs is not None or options.steps is not None else defaults.epochs
    numbers = RunNumbers(options.multiplier, None, lot_size, population, options.steps, epochs)
    numbers.sampling_rate()
    choices = read_choices(method, options.set) if options.set else {}
    if choices:
        # Made once, so that options that do not fit are refused now.
        find_method(method).load()(mode=mode, **choices)
    views = _validate.count("views", or_default(options.views, defaults.views))
    if views > 1 and len(data.shape) != _IMAGE_DIMENSIONS:
        raise InvalidArgument(f"--views shifts images, and {data.name} has no images. Leave it out.")
    micro_batch = or_default(options.micro_batch, _VIEWED_AT_ONCE) if views > 1 else options.micro_batch
    default_rate = defaults.adam_rate if method == "noisy_adam" else defaults.learning_rate
    model = options.model or defaults.model
    if ":" in model:
        # FILE:FUNCTION with the absolute path of the file, so that a run resumes from anywhere.
        path, _, function = model.rpartition(":")
        model = f"{expand_home(path).absolute()}:{function}"
    return Settings.of(
        data,
        options,
        table,
        method=method,
        mode=mode,
        model=model,
        epsilon=_resolve_epsilon(options),
        lot_size=float(lot_size),
        steps=numbers.step_count(),
        clip_norm=_validate.positive("clip_norm", or_default(options.clip_norm, defaults.clip_norm)),
        learning_rate=_validate.positive(
            "learning_rate", or_default(options.learning_rate, default_rate), below=_NO_STEP
        ),
        micro_batch=None if micro_batch is None else _validate.count("micro_batch", micro_batch),
        choices=choices,
        momentum=_resolve_momentum(options.momentum, defaults, method),
        views=views,
        averaging=check_share("averaging", or_default(options.averaging, defaults.averaging)),
    )


def _find_gradient_method(name: str | None) -> str:
    chosen = find_method(name or "dpsgd")
    if chosen.kind != "gradient":
        raise InvalidArgument(
            f"{chosen.name} trains linear models by one release, without steps: use `tacit train` or `tacit compare`. "
            f"Methods with steps are {', '.join(list_gradient_names())}."
        )
    return chosen.name


def _resolve_epsilon(options: TrainOptions) -> float | None:
    if (options.epsilon is None) == (options.multiplier is None):
        given = "Both --epsilon and --multiplier were" if options.epsilon is not None else "No --epsilon was"
        raise InvalidArgument(
            f"{given} given, and exactly one of --epsilon and --multiplier determines the noise. Give --epsilon (and "
            "--delta) to have the multiplier computed from the budget, or --multiplier."
        )
    if options.multiplier is not None:
        _validate.positive("multiplier", options.multiplier)
    return None if options.epsilon is None else _validate.positive("epsilon", options.epsilon)


def _resolve_momentum(momentum: float | None, defaults: TrainingDefaults, method: str) -> float:
    if method != "noisy_adam":
        return check_share("momentum", or_default(momentum, defaults.momentum))
    if momentum is not None:
        raise InvalidArgument(f"Adam has its own momentum. Leave out --momentum {momentum:g}, or use another method.")
    return 0.0


def network_for(name: str, data: Data) -> nn.Module:
    """A fresh model; its first weights come from torch's generator, and never from the data."""
    if is_own_model(name):
        return make_own_model(name, data.shape, data.classes)
    if bool(data.vocabulary) != (name == "embedding"):
        fitting = "Its inputs are numbers of words or people: use embedding." if data.vocabulary else "It is for words."
        raise InvalidArgument(f"--model {name} does not fit {data.name}. {fitting}")
    outputs, inputs = data.classes or 1, math.prod(data.shape)
    match name:
        case "linear":
            return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))
        case "mlp":
            return nn.Sequential(nn.Flatten(), nn.Linear(inputs, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, outputs))
        case "cnn":
            return _make_convolutions(data, outputs)
        case "tempered":
            return _make_tempered(data, outputs)
        case "embedding":
            first, *others = data.vocabulary
            return Ratings(first, others[0], outputs) if others else Reviews(first, outputs)
    raise InvalidArgument(
        f"There is no model {name!r}. Known are {', '.join(MODELS)}; your own is net.py:make_model, a file and the "
        "function in it that makes the model."
    )


def refuse_unless_fitting(name: str, data: Data) -> None:
    """Raise `InvalidArgument` if there is no such model, or if it cannot take an input of zeros and answer it."""
    model = network_for(name, data)
    zeros = torch.zeros(2, *data.shape, dtype=torch.from_numpy(data.train[0][:0]).dtype)
    outputs = data.classes or 1
    try:
        with torch.no_grad():
            found = tuple(model(zeros).shape)
    except Exception as error:
        shown = " ".join(str(error).split())
        raise InvalidArgument(
            f"--model {name} does not take inputs of shape {data.shape}, as those of {data.name} are: {shown}."
        ) from error
    if found != (2, outputs):
        raise InvalidArgument(
            f"--model {name} must answer each input of {data.name} with {outputs} numbers, one for each class (one, "
            f"if a number is predicted). Two inputs gave {found}."
        )


def _make_convolutions(data: Data, outputs: int) -> nn.Module:
    if data.shape == _IMAGE:
        return _make_image_network(outputs)
    if data.shape == _COLOUR:
        return _make_colour_network(outputs)
    raise InvalidArgument(
        f"--model cnn is for images of 28 x 28 pixels, or of 32 x 32 in colour. {data.name} has inputs of shape "
        f"{data.shape}. Use --model mlp."
    )


def _make_tempered(data: Data, outputs: int) -> nn.Module:
    if len(data.shape) != len(_IMAGE):
        raise InvalidArgument(
            f"--model tempered is for images. {data.name} has inputs of shape {data.shape}. Use --model mlp."
        )
    channels, height, width = data.shape
    return tempered_cnn((channels, height, width), outputs, groups=_GROUPS, hidden=0)


def _make_colour_network(outputs: int) -> nn.Module:
    """Three pairs of convolutions that end in a mean over places, with the bounded units of Papernot et al. 2021."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.Tanh(), nn.Conv2d(after, after, 3, padding=1), nn.Tanh()]
        layers.append(nn.AvgPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, outputs))


def _make_image_network(outputs: int) -> nn.Module:
    """The network of Bu et al. 2019 for MNIST, with the first weights that their framework draws."""
    network = nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, kernel_size=4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, outputs),
    )
    for parameter in network.parameters():
        # Glorot and Bengio 2010; torch's own are about half as large, and cost some points of accuracy.
        nn.init.xavier_uniform_(parameter) if parameter.dim() > 1 else nn.init.zeros_(parameter)
    return network
