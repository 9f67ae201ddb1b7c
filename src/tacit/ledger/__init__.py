"""What was ever released from a data set, kept in one file that outlives every process: reserve, release, settle."""

from tacit.ledger.budget import Budget, Terms

__all__ = ["Budget", "Terms"]
