"""Static public embeddings of words beside hashed words: do they help texts at small budgets?

The embeddings are those of the package `wordllama`: 256 numbers for each token, under the MIT licence. It is not a
dependency, and without it nothing is run; only two of its files are read. Texts and scoring are those of `tried.py`:
seed k holds out every fifth training text, beginning with text k.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache, lru_cache, partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments.library import Cell, Order, Record, markdown_table
from numpy.typing import NDArray
from safetensors.numpy import load_file

import tacit
from tacit.datasets import load_words
from tacit.errors import DataMissing
from tacit.features import HashedWords, PrivateCentring, PrivateWordWeights
from tacit.features.text import pad_words
from tacit.recipes.recipe import RecipePlan, auto
from tacit.recipes.run import LOSS, WORDS, WordScores, make_optimizer
from tacit.training.fit import fit

from .preparation import over_seeds

EMBEDDINGS = "embeddings"
_WORDS, _EMBEDDED, _BOTH = "hashed words, as it ships", "embeddings alone", "both"
# How the squared norm of a row is shared.
_SHARES = {_WORDS: (1.0, 0.0), _EMBEDDED: (0.0, 1.0), _BOTH: (0.5, 0.5)}
_PACKAGE, _ONE_IN = "wordllama", 5
_WEIGHTS, _TOKENS = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
_CONSTANT = 0.3


def embedding_cells(order: Order) -> Iterator[Cell]:
    """Every form at every budget with every seed."""
    about = order.settings[EMBEDDINGS]
    if about["data"] not in order.settings["data"]:
        return
    for epsilon in about["epsilons"]:
        for form in _SHARES:
            for seed in range(about["seeds"]):
                asked = {"form": form, "epsilon": epsilon, "seed": seed, "size": order.size}
                yield Cell(EMBEDDINGS, asked, partial(_scored, order, form, epsilon, seed))


class WordsAndEmbedding(torch.nn.Module):
    """A linear model of the words of a text and of its embedding."""

    def __init__(self, places: int, numbers: int, outputs: int) -> None:
        super().__init__()
        self.words, self.numbers = WordScores(places, outputs), torch.nn.Linear(numbers, outputs, bias=False)
        torch.nn.init.zeros_(self.numbers.weight)

    def forward(self, words: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """[texts, outputs]."""
        found: torch.Tensor = self.words(words) + self.numbers(numbers)
        return found


def _scored(order: Order, form: str, epsilon: float, seed: int) -> dict[str, Any]:
    """The recipe for texts and its budget; only what a text is turned into differs.

    Words get their private weights and embeddings lose their private mean, as of images. For both together, each of
    these two releases gets half of what one is given alone.
    """
    delta = order.settings["delta"]
    rows, embedded, labels = _read(order.settings["data"][order.settings[EMBEDDINGS]["data"]]["data"], order)
    out = np.arange(len(labels)) % _ONE_IN == seed % _ONE_IN
    recipe = auto("text", population=int(np.sum(~out)), epsilon=epsilon, delta=delta)
    plan = RecipePlan.of(recipe, tacit.Budget(epsilon, delta))
    first = plan.multipliers[0]
    assert first is not None
    # A share of the squared norm for each part, so that rows keep the norm for which the recipe's numbers were chosen.
    shares = _SHARES[form]
    several = sum(share > 0 for share in shares) ** 0.5
    makers = (PrivateWordWeights, PrivateCentring)
    made = [make(several * first, recipe.population, random_state=seed) for make in makers]
    for each, part, share in zip(made, (rows, embedded), shares, strict=True):
        if share:
            each.fit(part[~out])

    def inputs(chosen: NDArray[np.bool_]) -> tuple[torch.Tensor, torch.Tensor]:
        kept, numbers = rows[chosen], np.zeros((int(chosen.sum()), embedded.shape[1]), np.float32)
        words = pad_words(made[0].transform(kept) if shares[0] else kept, WORDS)
        words[:, 1] *= shares[0] ** 0.5
        constant = np.broadcast_to(np.array([[rows.shape[1] + 1], [_CONSTANT]], np.float32), (len(words), 2, 1))
        if shares[1]:
            numbers = (shares[1] ** 0.5 * made[1].transform(embedded[chosen])).astype(np.float32)
        return torch.from_numpy(np.concatenate([words, constant], axis=2)), torch.from_numpy(numbers)

    model = WordsAndEmbedding(rows.shape[1] + 2, embedded.shape[1], 2)
    run = tacit.PrivateRun(
        model, LOSS, data=(inputs(~out), torch.from_numpy(labels[~out])), mechanism=plan.mechanism,
        sampling=plan.sampling, steps=recipe.steps, seed=seed,
    )  # fmt: skip
    fit(run, make_optimizer(recipe, model))
    with torch.no_grad():
        right = model(*inputs(out)).argmax(1).numpy() == labels[out]
    released = [each.event_ for each, share in zip(made, shares, strict=True) if share]
    spent = tacit.accounting.curve(reduce(add, released, run.guarantee().event)).epsilon(delta)
    return {"accuracy": float(right.mean()), "certified": spent}


@lru_cache(maxsize=1)
def _embed_words() -> Any:
    """A function from a word to the sum of its tokens' embeddings and their number."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise DataMissing(f"the package {_PACKAGE} is not installed: pip install {_PACKAGE}", "")
    from tokenizers import Tokenizer

    folder = Path(found.origin).parent
    table = load_file(folder / _WEIGHTS)["embedding.weight"].astype(np.float32)
    tokens = Tokenizer.from_file(str(folder / _TOKENS))

    @cache
    def embed(word: str) -> tuple[NDArray[np.float32], int]:
        ids = tokens.encode(word, add_special_tokens=False).ids
        return table[ids].sum(0), len(ids)

    return embed


_READ: dict[tuple[str, int], tuple[Any, NDArray[np.float32], NDArray[np.int64]]] = {}


def _read(name: str, order: Order) -> tuple[Any, NDArray[np.float32], NDArray[np.int64]]:
    """Hashed words, embeddings of norm 1 and labels of the training texts. All words count, common ones too."""
    most = order.settings["most_rows"]
    if (name, most) not in _READ:
        embed = _embed_words()
        texts, labels = load_words(name)[0]
        step = max(1, len(labels) // most)
        texts, labels = texts[::step], labels[::step]
        embedded = np.zeros((len(texts), 256), np.float32)
        for place, words in enumerate(texts):
            parts = [embed(word) for word in words]
            total = np.sum([part for part, _ in parts], axis=0) / max(1, sum(count for _, count in parts))
            embedded[place] = total / max(float(np.linalg.norm(total)), 1e-12)
        _READ[name, most] = HashedWords().of_words(texts), embedded, labels
    return _READ[name, most]


def embedding_table(order: Order, records: list[Record]) -> str:
    """A row for each form, a column for each budget."""
    epsilons = order.settings[EMBEDDINGS]["epsilons"]
    here = [each for each in records if each.part == EMBEDDINGS]
    rows = [
        (form, *(over_seeds(order, [r for r in here if (r.asked["form"], r.asked["epsilon"]) == (form, epsilon)])
                 for epsilon in epsilons))
        for form in _SHARES
    ]  # fmt: skip
    return markdown_table([("", *(f"ε = {epsilon:g}" for epsilon in epsilons)), *rows])
