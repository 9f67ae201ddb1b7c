"""The figures of the paper: accuracy and optimality gap over epsilon, at equal claimed and at equal certified epsilon.

What is run and how it is shown is the same for both papers of Kang et al.; the methods and statements are settings.
"""

from experiments.erm.curves import cells, pictures, tables

__all__ = ["cells", "pictures", "tables"]
