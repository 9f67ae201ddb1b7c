"""The command `tacit`: it reads arguments, calls a workflow and prints the result.

A command imports what it computes with inside its own function, so `tacit --help` answers at once. Errors go
to standard error with exit code 2; Ctrl-C ends with 130.
"""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tacit.cli.audit import audit
from tacit.cli.bounds import bounds
from tacit.cli.compare import compare
from tacit.cli.epsilon import epsilon
from tacit.cli.ledger import ledger
from tacit.cli.methods import methods
from tacit.cli.noise import noise
from tacit.cli.plan import plan
from tacit.cli.predict import predict
from tacit.cli.report import report
from tacit.cli.reproduce import reproduce
from tacit.cli.train import train
from tacit.cli.tune import tune
from tacit.errors import TacitError

# What typer raises for arguments that it cannot read.
_UsageError: Any = typer.BadParameter.__base__


class _Commands(TyperGroup):
    """All commands. Typer would swallow what a workflow says when Ctrl-C stops it, and not wrap long errors."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            from tacit.cli.output import note

            # Workflows say what was saved and how to resume.
            if str(stopped):
                note(str(stopped))
            raise typer.Exit(130) from None
        except _UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError" or error.ctx is None:
                raise
            from tacit.cli.output import complain

            typer.echo(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
            # The closest one comes first; the usual message sorts them, and names distant ones too.
            close = getattr(error, "possibilities", None) if type(error).__name__ == "NoSuchOption" else None
            told = f"No such option: {error.option_name}. Did you mean {close[0]}?" if close else error.format_message()
            complain(told.replace("Value error, ", ""))
            raise typer.Exit(2) from None


app = typer.Typer(
    name="tacit",
    cls=_Commands,
    add_completion=False,
    # Plain help is three times faster than a framed one, and survives a pipe.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _command in (audit, bounds, compare, epsilon, methods, noise, plan, predict, report, reproduce, train, tune):
    app.command()(_command)
app.add_typer(ledger, name="ledger")


@app.callback(invoke_without_command=True)
def _tacit(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Differentially private machine learning with guarantees that can be checked."""
    if version:
        import tacit

        typer.echo(f"tacit {tacit.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line given in `sys.argv`, and end the program."""
    from tacit.cli.output import complain, escape_unprintable, print_cautions

    escape_unprintable()
    try:
        with print_cautions():
            app(prog_name="tacit")
    except TacitError as error:
        complain(str(error))
        raise SystemExit(2) from None
