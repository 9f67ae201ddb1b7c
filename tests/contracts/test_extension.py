"""One file outside the package adds a method, a noise law, and so on; nothing central is edited.

Each toy is a module in a temporary folder, which is put on the path as an installed package would be.
"""

import inspect
import json
import math
import sys
from importlib import import_module

import pytest
import torch
from typer.testing import CliRunner

import tacit
from contracts import test_noises
from tacit.accounting import curve
from tacit.accounting.densities import DENSITIES
from tacit.accounting.events import from_json
from tacit.cli import app
from tacit.errors import InvalidArgument
from tacit.methods import registry
from tacit.stages.noise import BoxNoise, find_family, laws, list_families

TOY_METHOD = """
from tacit.methods import Entry, register
from tacit.stages.bounds import Clip
from tacit.stages.mechanism import Mechanism, Method, Mode
from tacit.stages.noise import GaussianNoise

ENTRY = Entry(
    name="toy",
    kind="gradient",
    paper="Doe 2026",
    idea="Gradients are clipped at a share of the clip norm.",
    status="proven",
    verdict="It is DP-SGD with another clip norm.",
    rigorous="The same.",
    options={"shrink": "share of the clip norm"},
    page="https://example.org/toy",
    module=__name__,
)


def toy(clip_norm: float = 1.0, multiplier: float | None = None, *, mode: Mode = "rigorous", shrink: float = 0.5):
    return Mechanism(Clip(shrink * clip_norm), GaussianNoise(multiplier), method=Method("toy", "Doe 2026", mode))
"""

TOY_LAW = '''
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from tacit.accounting.densities import register_density
from tacit.stages.noise.laws import draw_uniform, register_family


@dataclass(frozen=True)
class LogisticDensity:
    """e^-x / (1 + e^-x)^2, stretched by `scale`."""

    scale: float = 1.0

    @property
    def typical_scale(self):
        return self.scale

    def log_density(self, x):
        a = np.abs(x) / self.scale
        return -a - 2 * np.log1p(np.exp(-a)) - math.log(self.scale)

    def survival(self, x):
        return special.expit(-x / self.scale)

    def loss(self, x, shift):
        return self.log_density(x - shift) - self.log_density(x)

    def loss_turns(self, shift):
        return ()

    def loss_limit(self, shift):
        return shift / self.scale


@dataclass(frozen=True)
class Logistic:
    """The logistic law. Its variance is pi^2 scale^2 / 3."""

    name: ClassVar[str] = "toy_logistic"
    label: ClassVar[str] = "logistic"
    mean_absolute: ClassVar[float] = 2 * math.log(2) * math.sqrt(3) / math.pi
    mean_square: ClassVar[float] = 1.0

    def density(self, size):
        return LogisticDensity(size * math.sqrt(3) / math.pi)

    def draw(self, rng, count):
        return -math.sqrt(3) / math.pi * special.logit(draw_uniform(rng, count))


register_density("toy_logistic", LogisticDensity)
register_family(Logistic())
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that puts a module on the path, as an installed package with an entry point of that group."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(module: str, source: str, group: str | None) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        if group is not None:
            package = tmp_path / f"{module}-0.1.dist-info"
            package.mkdir()
            (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 0.1\n")
            (package / "entry_points.txt").write_text(f"[{group}]\n{module} = {module}\n")

    yield write
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def toy_law(install, monkeypatch):
    """The toy law, found by its entry point; forgotten afterwards."""
    monkeypatch.setattr(laws, "_families", dict(laws._families))
    install("toy_law", TOY_LAW, laws.GROUP)
    yield find_family("toy_logistic")
    DENSITIES.pop("toy_logistic", None)


def run(line: str) -> str:
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 0, result.output
    return result.output


def test_a_method_in_one_file_is_listed_without_being_imported(install):
    install("toy_method", TOY_METHOD, registry.GROUP)
    assert "Doe 2026" in run("methods")
    assert "https://example.org/toy" in run("methods toy")
    assert "toy_method" not in sys.modules


@pytest.mark.slow
def test_a_method_in_one_file_is_trained_accounted_and_reported(install, tmp_path):
    install("toy_method", TOY_METHOD, registry.GROUP)
    folder = tmp_path / "run"
    run(f"train iris --method toy --set shrink=0.25 --epsilon 5 --delta 1e-3 --steps 20 --out {folder}")
    proven = json.loads((folder / "guarantee.json").read_text())["proven"]
    assert 4 < proven["epsilon_upper"] <= 5
    run(f"report {folder}")
    assert json.loads((folder / "report.json").read_text())
    assert "toy" in (folder / "report.html").read_text()


def test_a_method_is_a_function_of_the_package_and_of_the_estimators(install):
    install("toy_method", TOY_METHOD, registry.GROUP)
    assert tacit.methods.toy(clip_norm=2.0).bound.norm == 1.0
    assert "toy" in tacit.methods.GRADIENT_METHODS


def test_a_method_can_be_registered_without_a_package(install, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    install("toy_method", TOY_METHOD + "\n\nregister(ENTRY)\n", None)
    module = import_module("toy_method")
    assert registry.find_method("toy").load() is module.toy
    registry.register(module.ENTRY)
    other = registry.Entry(**{**vars(module.ENTRY), "module": "elsewhere"})
    with pytest.raises(InvalidArgument, match="already a method 'toy'"):
        registry.register(other)


def test_a_package_cannot_replace_a_method(install):
    install("toy_method", TOY_METHOD.replace('name="toy"', 'name="dpsgd"'), registry.GROUP)
    with pytest.raises(InvalidArgument, match="already a method 'dpsgd'"):
        registry.list_methods()


def test_an_entry_that_must_be_executed_is_refused(install):
    install("toy_method", TOY_METHOD.replace('"Doe 2026",\n    idea', 'str("Doe 2026"),\n    idea'), registry.GROUP)
    with pytest.raises(InvalidArgument, match="literal values"):
        registry.list_methods()


def contract_of_noises():
    """Every test of the noise contract, with its further arguments."""
    arguments = {"noise": None, "sensitivity": 2.5, "dtype": torch.float32}
    for check in vars(test_noises).values():
        lists = [mark.args[1] for mark in getattr(check, "pytestmark", ())]
        if test_noises.NOISES in (values[: len(test_noises.NOISES)] for values in lists):
            names = inspect.signature(check).parameters
            yield check, {name: arguments[name] for name in names}


def test_a_noise_law_in_one_file_keeps_the_contract_of_noises(toy_law):
    checks = list(contract_of_noises())
    assert len(checks) >= 9
    for check, arguments in checks:
        check(**{**arguments, "noise": BoxNoise(toy_law, test_noises.BOX, 1.1)})


@pytest.mark.slow
def test_a_noise_law_in_one_file_is_accounted_for_and_its_events_can_be_saved(toy_law):
    event = BoxNoise(toy_law, test_noises.BOX, 1.1).event(100).sampled(0.01) * 50
    lower, upper = curve(event).epsilon_bounds(1e-5)
    assert 0 < lower <= upper < math.inf
    assert curve(from_json(event.to_json())).epsilon(1e-5) == upper


@pytest.mark.slow
def test_a_noise_law_in_one_file_is_listed_compared_and_trained_with(toy_law, tmp_path):
    assert list_families()["toy_logistic"] is toy_law
    assert "logistic" in run(f"noise --families --epsilon 1 --delta 1e-5 --dimension 1 --plot {tmp_path / 'laws.svg'}")
    assert "logistic" in (tmp_path / "laws.svg").read_text()
    settings = f"--epsilon 5 --delta 1e-3 --steps 5 --out {tmp_path / 'run'}"
    run(f"train iris --method encoded --set noise=toy_logistic {settings}")
    proven = json.loads((tmp_path / "run" / "guarantee.json").read_text())["proven"]
    assert 4 < proven["epsilon_upper"] <= 5
