"""What the commands do, callable from Python: train, compare, tune, audit, report, and the numbers behind them."""

from tacit.datasets import SHIPPED

__all__ = ["SHIPPED"]
