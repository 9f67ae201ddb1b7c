"""`tacit ledger`: what was ever released from a data set, and what may still be."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import options

if TYPE_CHECKING:
    from tacit.accounting import Event
    from tacit.workflows.numbers import RunNumbers

ledger = typer.Typer(
    help="Record what a data set has released, and keep its budget.", rich_markup_mode=None, no_args_is_help=True
)

File = Annotated[
    str, typer.Argument(help="The ledger: a file, or postgresql://user@host/database.", show_default=False)
]
DataSet = Annotated[str, typer.Argument(help="The data set's name in the ledger.", show_default=False)]


@ledger.command()
def show(
    file: File,
    dataset: Annotated[str | None, typer.Argument(help="Only this data set.", show_default=False)] = None,
    delta: Annotated[float | None, options.accept("Delta to show epsilon at (the budget's, or 1e-5).")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every run; else only the last twenty.")] = False,
    json: options.Json = False,
) -> None:
    """Show what is spent, by which runs, and what is left.

    \b
    tacit ledger show adult.ledger
    """
    from tacit.cli.output import say, say_json
    from tacit.workflows.ledger import find, open_ledger, paragraphs, to_json
    from tacit.workflows.progress import show_status

    one = open_ledger(file)
    with show_status("Accounting"):
        balances = find(one, dataset, delta, most=None if every else 20)
    if json:
        say_json(to_json(str(one.path), balances))
    else:
        say([paragraph for balance in balances for paragraph in paragraphs(balance)] or [(f"{one.path} is empty", [])])


@ledger.command()
def budget(
    file: File,
    dataset: DataSet,
    epsilon: Annotated[float, options.accept("The epsilon that everything may cost.")],
    delta: options.Delta,
    adjacency: options.AdjacencyOption = None,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Enforce it by a filter: later runs may depend on earlier results.")
    ] = False,
    like: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --adaptive: choose the filter that fits most runs like this event."),
    ] = None,
) -> None:
    """Set the budget of a data set, and create the ledger if needed.

    \b
    tacit ledger budget adult.ledger adult --epsilon 3 --delta 1e-5
    """
    from tacit.accounting import Adjacency
    from tacit.cli.output import say
    from tacit.errors import InvalidArgument
    from tacit.workflows.ledger import Budget, Ledger, storage_at
    from tacit.workflows.numbers import read_event

    if like is not None and not adaptive:
        raise InvalidArgument("--like needs --adaptive, whose filter it chooses. Give both, or neither.")
    allowed, compared = Budget(epsilon, delta), Adjacency(adjacency or "add_remove")
    event = None if like is None else read_event(like)
    account = Ledger(file).account(dataset) if storage_at(file).exists() else None
    before = None if account is None else account.terms
    Ledger(file).set_budget(dataset, allowed, adjacency=compared, adaptive=adaptive, like=event)
    how = "enforced by a Rényi filter" if adaptive else "enforced by exact composition"
    old = []
    if before is not None:
        was = before.budget
        old = [f"Before, it was epsilon {was.epsilon:g} at delta {was.delta:g} ({before.adjacency})."]
    say([(f"{dataset} may cost epsilon {allowed.epsilon:g} at delta {allowed.delta:g} ({compared}), {how}.", old)])


@ledger.command()
def add(
    file: File,
    dataset: DataSet,
    event: Annotated[Path | None, typer.Option(metavar="FILE", help="An event written by Event.to_json.")] = None,
    multiplier: options.Multiplier = None,
    lot_size: options.LotSize = None,
    population: options.Population = None,
    rate: options.Rate = None,
    steps: options.Steps = None,
    epochs: options.Epochs = None,
    epsilon: Annotated[float | None, options.accept("If only epsilon (and delta) is known.")] = None,
    delta: Annotated[float | None, options.accept("Goes with --epsilon (0).")] = None,
    adjacency: options.AdjacencyOption = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="What was released.")] = "",
    released: Annotated[
        bool, typer.Option("--released", help="It was released already: record it even if it exceeds the budget.")
    ] = False,
) -> None:
    """Charge a release that tacit did not make.

    Do this before the release.

    \b
    tacit ledger add adult.ledger adult --epsilon 0.1 --note "table of means"
    tacit ledger add adult.ledger adult --multiplier 1.1 --rate 0.01 --steps 500
    """
    from tacit.cli.output import say
    from tacit.errors import BudgetExceeded
    from tacit.workflows.ledger import open_ledger
    from tacit.workflows.numbers import RunNumbers
    from tacit.workflows.progress import show_status

    plan = RunNumbers(multiplier, rate, lot_size, population, steps, epochs, adjacency)
    with show_status("Accounting"):
        planned = _resolve_event(plan, event, epsilon, delta)
        try:
            run = open_ledger(file).spend(dataset, planned, about={"note": note}, is_released=released)
        except BudgetExceeded as refused:
            raise BudgetExceeded(f"{refused} If it was released already, record it by --released.") from None
    say([(f"Charged to {dataset} as run {run}.", [])])


@ledger.command()
def settle(
    file: File,
    run: Annotated[str, typer.Argument(help="The run, as `tacit ledger show` names it.", show_default=False)],
) -> None:
    """End a stopped run: charge what it drew, free the rest.

    If a process is still training it, that process is stopped before its next step.
    """
    from tacit.cli.output import say
    from tacit.workflows.ledger import name_event, open_ledger

    event = open_ledger(file).settle(run)
    say([(f"Run {run} has ended. Charged: {name_event(event)}.", [])])


@ledger.command()
def verify(
    file: File,
    head: Annotated[
        str | None, typer.Option(metavar="SEAL", help="A seal you noted earlier: the ledger must still contain it.")
    ] = None,
) -> None:
    """Check that no row of the ledger was changed."""
    from tacit.cli.output import say
    from tacit.workflows.ledger import open_ledger

    one = open_ledger(file)
    seal = one.verify(head)
    lines = [
        f"Newest seal: {seal}",
        "Keep this seal elsewhere. `tacit ledger verify FILE --head SEAL` shows whether the ledger was rewritten.",
    ]
    say([(f"{one.path} is unchanged: {len(one.entries()):,} entries.", lines)])


@ledger.command()
def export(file: File) -> None:
    """Print all rows as JSON.

    Fingerprints are keyed with a secret that stays in the ledger.
    """
    from tacit.cli.output import say_json
    from tacit.workflows.ledger import open_ledger

    say_json(open_ledger(file).export())


def _resolve_event(plan: "RunNumbers", file: Path | None, epsilon: float | None, delta: float | None) -> "Event":
    from tacit.accounting import EpsilonDelta
    from tacit.errors import InvalidArgument
    from tacit.workflows.numbers import read_event

    pair = [name for name, value in (("--epsilon", epsilon), ("--delta", delta)) if value is not None]
    typed = [*(["--event"] if file else []), *pair]
    run = [name for name in plan.given() if name != "--adjacency"]
    if sum(map(bool, (file, pair, run))) != 1 or (file and plan.given()):
        raise InvalidArgument(
            f"The release is not known. Give one of --event FILE, --multiplier with --rate and --steps, or --epsilon. "
            f"Got "
            f"{', '.join([*typed, *plan.given()]) or 'none of them'}."
        )
    if file is not None:
        return read_event(file)
    if run:
        return plan.event()
    if epsilon is None:
        raise InvalidArgument("--delta was given without --epsilon. Give both.")
    return EpsilonDelta(epsilon, 0.0 if delta is None else delta, plan.neighbours())
