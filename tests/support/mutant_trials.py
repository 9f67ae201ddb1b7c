"""What a user can do about a planted bug: train, and audit the run. Prints who noticed first, and what was found.

    python tests/support/mutant_trials.py NAME...   # "run", "recipe" or a training of a user's own; all by default

It prints one line of JSON: by "run time" (training was refused), "tacit audit" or null, and what was found.
"""

import json
import os
import sys
import tempfile
import warnings

import torch
from torch import nn

import tacit
from tacit.audit import Training, release_test
from tacit.methods import dpsgd
from tacit.stages.bounds import Clip, NormalisedClip
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import GaussianNoise

ROWS, WIDTH, CLASSES = 2400, 6, 3
# Commands whose folders are audited: a network in micro-batches on a ledger, and a recipe.
RUNS = {
    "run": {"epsilon": 3, "steps": 24, "lot_size": 60, "micro_batch": 16},
    "recipe": {"epsilon": 3, "recipe": "auto"},
}


def make_trainings():
    """Trainings of a user's own, as `tacit.audit.release_test` takes them."""
    torch.manual_seed(0)
    data = torch.randn(ROWS, WIDTH), torch.randint(CLASSES, (ROWS,))
    chain = nn.Sequential(nn.Linear(WIDTH, 24), nn.Tanh(), nn.Linear(24, 12), nn.Tanh(), nn.Linear(12, CLASSES))
    normed = nn.Sequential(nn.Linear(WIDTH, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, CLASSES))
    plain, poisson = dpsgd(clip_norm=0.4, multiplier=1.1), tacit.Poisson(120, ROWS)
    settings = {
        "chain": (chain, plain, poisson),
        "layers": (normed, plain, poisson),
        "rare": (nn.Linear(WIDTH, CLASSES), plain, tacit.Poisson(36, ROWS)),
        "by layer": (chain, Mechanism(Clip(0.4, per_layer=True), GaussianNoise(1.1)), poisson),
        "normalised": (normed, Mechanism(NormalisedClip(0.4), GaussianNoise(1.1)), poisson),
        "shuffled": (nn.Linear(WIDTH, CLASSES), plain, tacit.Shuffled(100, ROWS)),
        "half": (nn.Linear(WIDTH, CLASSES).bfloat16(), plain, poisson),
    }
    for name, (model, mechanism, sampling) in settings.items():
        inputs = data[0].bfloat16() if name == "half" else data[0]
        yield (
            name,
            Training(model, nn.functional.cross_entropy, (inputs, data[1]), mechanism, sampling, 40, _make_optimizer),
        )


def _make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def try_all(names) -> dict[str, str | None]:
    """Who noticed first, and what."""
    for name in [one for one in RUNS if one in names]:
        data = "iris" if name == "recipe" else "breast-cancer"
        try:
            tacit.train(data, out=name, ledger="all.ledger", **RUNS[name])
        except Exception as error:
            return {"by": "run time", "found": f"{type(error).__name__}: {error}"}
        found = tacit.audit_run(name, canaries=0)
        if found.is_refuted:
            return {"by": "tacit audit", "found": str(found.releases)}
    for name, training in make_trainings():
        if name not in names:
            continue
        try:
            test = release_test(training)
        except Exception as error:
            return {"by": "run time", "found": f"{type(error).__name__}: {error}"}
        if not test.passed:
            return {"by": "tacit audit", "found": str(test)}
    return {"by": None, "found": None}


def try_in_folder(names):
    """The same in a folder that is removed again; all of them if none is named."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = try_all(names or [*RUNS, *(name for name, _ in make_trainings())])
        os.chdir("/")
    return found


if __name__ == "__main__":
    print(json.dumps(try_in_folder(sys.argv[1:])))
