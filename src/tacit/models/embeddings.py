"""Networks for inputs that are numbers of words, people or films: those of Bu et al. 2019."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_UNITS = 16
_FACTORS, _MORE_FACTORS = 5, 10


class Reviews(nn.Module):
    """Words into 16 units, their mean over the review, one layer of 16. The space after the end counts as a word."""

    def __init__(self, words: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, _UNITS)
        self.layers = nn.Sequential(nn.Linear(_UNITS, _UNITS), nn.ReLU(), nn.Linear(_UNITS, outputs))

    def forward(self, words: Tensor) -> Tensor:
        """[reviews, outputs] of [reviews, length]."""
        scores: Tensor = self.layers(self.embedding(words).mean(1))
        return scores


class Ratings(nn.Module):
    """Five factors of person and film, multiplied; ten more of each beside them; one layer over all."""

    def __init__(self, people: int, films: int, outputs: int) -> None:
        super().__init__()
        self.person, self.film = nn.Embedding(people, _FACTORS), nn.Embedding(films, _FACTORS)
        self.more_person, self.more_film = nn.Embedding(people, _MORE_FACTORS), nn.Embedding(films, _MORE_FACTORS)
        self.last = nn.Linear(_FACTORS + 2 * _MORE_FACTORS, outputs)

    def forward(self, pairs: Tensor) -> Tensor:
        """[pairs, outputs] of [pairs, 2]."""
        person, film = pairs[:, 0], pairs[:, 1]
        factors = [self.person(person) * self.film(film), self.more_person(person), self.more_film(film)]
        scores: Tensor = self.last(torch.cat(factors, 1))
        return scores
