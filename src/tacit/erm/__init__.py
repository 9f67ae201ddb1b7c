"""Empirical risk minimisation: convex losses, a certified solver, noise on the objective, the output or the data.

Linear models need numpy and scipy only.
"""

from tacit.erm import objective
from tacit.erm.descent import NoisyDescent, NoisyLots, NoisyPass, NoisySnapshots
from tacit.erm.individual import FilteredDescent, individual_descent
from tacit.erm.influence import InfluenceRule
from tacit.erm.losses import Huber, Logistic, Loss, Multinomial, OneVsRest, SmoothHinge, Squared, probabilities
from tacit.erm.noise import k_norm
from tacit.erm.noisy_data import DataRule, Descent, InputRule
from tacit.erm.problem import Problem, prepare
from tacit.erm.reports import Reporting
from tacit.erm.result import ErmResult, PerturbedData, load_data, save_data
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
    "Problem",
    "Reporting",
    "SmoothHinge",
    "Solution",
    "Squared",
    "individual_descent",
    "k_norm",
    "load_data",
    "minimise",
    "objective",
    "prepare",
    "probabilities",
    "save_data",
]
