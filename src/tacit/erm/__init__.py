"""Empirical risk minimisation: convex losses, a certified solver, noise on the objective, the output or the data.

Linear models need numpy and scipy only.
"""

from tacit.erm import objective
from tacit.erm.classes import Multinomial, OneVsRest, probabilities
from tacit.erm.descent import NoisyDescent, NoisyLots, NoisyPass
from tacit.erm.individual import FilteredDescent, individual_descent, individual_descent_and_spent
from tacit.erm.influence import InfluenceRule
from tacit.erm.losses import Huber, Logistic, Loss, SmoothHinge, Squared
from tacit.erm.noise import k_norm
from tacit.erm.noisy_data import DataRule, Descent, InputRule, PerturbedData, PerturbedResult
from tacit.erm.problem import Problem, prepare
from tacit.erm.reports import Reporting
from tacit.erm.result import ErmResult
from tacit.erm.snapshots import NoisySnapshots
from tacit.erm.solver import Solution, minimise
from tacit.erm.trainers import FullDescent, Minimiser, PermutedDescent

__all__ = [
    "DataRule",
    "Descent",
    "ErmResult",
    "FilteredDescent",
    "FullDescent",
    "Huber",
    "InfluenceRule",
    "InputRule",
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
    "PerturbedData",
    "PerturbedResult",
    "Problem",
    "Reporting",
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
