"""Linear models with convex losses: constants, a certified solver, sensitivities, noise. Needs numpy and scipy only."""

from tacit.convex import objective
from tacit.convex.classes import Multinomial, OneVsRest, probabilities
from tacit.convex.descent import NoisyDescent, NoisyLots, NoisyPass
from tacit.convex.individual import FilteredDescent, individual_descent, individual_descent_and_spent
from tacit.convex.losses import Huber, Logistic, Loss, SmoothHinge, Squared
from tacit.convex.noise import k_norm
from tacit.convex.problem import Problem, prepare
from tacit.convex.result import ErmResult
from tacit.convex.snapshots import NoisySnapshots
from tacit.convex.solver import Solution, minimise
from tacit.convex.training import FullDescent, Minimiser, PermutedDescent

__all__ = [
    "ErmResult",
    "FilteredDescent",
    "FullDescent",
    "Huber",
    "Logistic",
    "Loss",
    "Minimiser",
    "Multinomial",
    "NoisyDescent",
    "NoisyLots",
    "NoisyPass",
    "NoisySnapshots",
    "OneVsRest",
    "PermutedDescent",
    "Problem",
    "SmoothHinge",
    "Solution",
    "Squared",
    "individual_descent",
    "individual_descent_and_spent",
    "k_norm",
    "minimise",
    "objective",
    "prepare",
    "probabilities",
]
