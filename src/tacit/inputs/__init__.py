"""Noise on the data before any training: as Kang et al. publish it, and as reports that are proven to protect."""

from tacit.inputs.influence import InfluenceRule
from tacit.inputs.local import Reporting
from tacit.inputs.perturb import DataRule, Descent, InputRule, PerturbedData, PerturbedResult

__all__ = ["DataRule", "Descent", "InfluenceRule", "InputRule", "PerturbedData", "PerturbedResult", "Reporting"]
