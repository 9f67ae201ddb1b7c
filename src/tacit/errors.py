"""What can go wrong, as a tree: catch the branch that you can act on.

    TacitError
    ├── InvalidArgument     (also a ValueError)
    ├── NotProven
    ├── Asymptotic
    ├── AdjacencyMismatch
    ├── NotAccountable
    ├── NotAchievable
    ├── NotConverged
    ├── BudgetExceeded
    ├── OutOfOrder
    ├── CannotResume
    ├── BadLedger
    ├── DataMissing
    └── MixesExamples

A message says what was wrong, with the value; why it matters; and what to do. Where a guarantee might not hold, there
is an error; a `Caution` is a warning about something else.
"""

# The names say what happened; that it is an error, the word `raise` says.
# ruff: noqa: N818

import re
import shlex

# A command at the end of a sentence, which has no full stop then; another one may follow.
_COMMAND = re.compile(r"(?<=: )tacit (?:(?!\. |; and with: ).)*(?<!\.)(?=; and with: |\. Resume with: |$)")


class TacitError(Exception):
    """Every error that tacit raises on purpose."""

    def __str__(self) -> str:
        """All arguments, as sentences."""
        return " ".join(map(str, self.args))


class InvalidArgument(TacitError, ValueError):
    """An argument lies outside the range in which it means something."""


class NotProven(TacitError):
    """An event without a proven bound was given to an accountant."""


class Asymptotic(TacitError):
    """A number that is true only in a limit was asked to serve as a guarantee."""


class AdjacencyMismatch(TacitError):
    """Events, or guarantees, about different neighbouring data sets were put together."""


class NotAccountable(TacitError):
    """This accountant cannot treat this event; another one can."""


class NotAchievable(TacitError):
    """Calibration has no solution: no setting within reach meets the budget."""


class NotConverged(TacitError):
    """A solver did not come as close to the minimiser as the guarantee needs."""


class BudgetExceeded(TacitError):
    """A release, or a plan of them, would cost more than the budget allows. A second argument says what would fit."""


class OutOfOrder(TacitError):
    """A run was asked for something that would break what its guarantee counts."""


class CannotResume(TacitError):
    """A saved run does not fit what it is to be resumed with."""


class BadLedger(TacitError):
    """A file that is no ledger, or one that is damaged, was edited, or was written by a newer tacit."""


class DataMissing(TacitError):
    """A data set is not on this machine and could not be downloaded.

    `missing` says which files, and where they go; the second argument how else a copy can be pointed to. Whoever has
    no such way leaves it out.
    """

    @property
    def missing(self) -> str:
        """Which files are missing, and where they go."""
        return str(self.args[0])


class MixesExamples(TacitError):
    """A model or loss in which examples influence each other: no example has a gradient of its own."""


class Caution(UserWarning):
    """Something was probably not meant. What is proven holds all the same."""


def split_command(text: str) -> tuple[str, str, str] | None:
    """What is before a command in the text, the command, and what is after it; None if there is no command.

    >>> split_command("Stopped. Resume with: tacit train --resume runs/1")
    ('Stopped. Resume with:', 'tacit train --resume runs/1', '')
    >>> split_command("It has no proof: tacit audit --claims shows an attack.")
    """
    found = _COMMAND.search(text)
    return None if found is None else (text[: found.start()].rstrip(), found[0], text[found.end() :].lstrip(";. "))


def break_command(command: str, width: int) -> list[str]:
    """The command as lines of at most `width` columns that a shell reads as one command; no word is broken.

    >>> break_command("tacit train iris --epsilon 3 --out 'my runs/1'", 22)
    ['tacit train iris \\\\', '  --epsilon 3 --out \\\\', "  'my runs/1'"]
    """
    try:
        words = [shlex.quote(word) for word in shlex.split(command)]
    except ValueError:
        words = command.split()
    lines = words[:1]
    for place, word in enumerate(words[1:], start=2):
        # All lines but the last end with a backslash.
        end = "" if place == len(words) else " \\"
        if len(f"{lines[-1]} {word}{end}") > width:
            lines[-1] += " \\"
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return lines
