"""Several people, one budget: `python examples/team_ledger.py`.

Every release of a data set is charged to one ledger. A release that would exceed the budget is refused before any noise
is drawn. For a server, give `postgresql://user@host/database` in place of the file.
"""

from __future__ import annotations

import tacit
from tacit.accounting import Gaussian
from tacit.errors import BudgetExceeded

LEDGER, NAME = "team.ledger", "breast-cancer"


def main() -> None:
    """Anna trains, Ben publishes a table, Carl is refused and trains with less."""
    ledger = tacit.Ledger(LEDGER)
    ledger.set_budget(NAME, tacit.Budget(epsilon=3, delta=1e-5))

    anna = tacit.train("breast-cancer", epsilon=2, delta=1e-5, ledger=LEDGER, out="runs/anna")
    print("Anna:", anna.score)

    ledger.spend(NAME, Gaussian(multiplier=5.0), about={"note": "Ben's table of means"})  # before it is published
    print(f"Ben: the data set has now spent epsilon {ledger.account(NAME).epsilon(1e-5):.2f} of 3")

    try:
        tacit.train("breast-cancer", epsilon=2.5, delta=1e-5, ledger=LEDGER, out="runs/carl")
    except BudgetExceeded as refused:
        print("Carl is refused:", refused)
    carl = tacit.train("breast-cancer", epsilon=1, delta=1e-5, ledger=LEDGER, out="runs/carl")
    print("Carl, with epsilon 1:", carl.score)
    print(f"All together: epsilon {ledger.account(NAME).epsilon(1e-5):.2f} of 3")


if __name__ == "__main__":
    main()
