"""The page: one HTML file that needs nothing else, made from the facts that its JSON twin holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jinja2

from tacit._files import write_whole
from tacit.accounting import other_accountants
from tacit.errors import InvalidArgument
from tacit.reports import figures
from tacit.reports.facts import Facts
from tacit.reports.scores import interval_words, value_words
from tacit.reports.series import Spending, Tradeoff
from tacit.reports.wording import down, near, percent_up, up


def write(facts: Facts, page: str, folder: Path, *, is_private: bool = False) -> tuple[Path, Path]:
    """Put the page and its twin into the folder; if they are private, for their owner alone."""
    written = folder / "report.html", folder / "report.json"
    with writing(folder):
        for path, text in zip(written, (page, json.dumps(facts, indent=1, allow_nan=False)), strict=True):
            write_whole(path, text.encode(), is_private=is_private)
    return written


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn what the disk refuses into `InvalidArgument`."""
    try:
        yield
    except OSError as error:
        raise InvalidArgument(
            f"The report cannot be written to {folder}: {error.strerror or error}. Choose another --out."
        ) from error


def run_page(facts: Facts) -> str:
    """The report of one run."""
    return render("run.html", facts, figures=_run_figures(facts))


def render(template: str, facts: Facts, **values: Any) -> str:
    """A page of this package, with the facts in it for machines too."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tacit.reports", "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(up=_or(up), down=_or(down), near=_or(near), percent=_percent, percent_up=percent_up)
    environment.filters.update(words=_words, shown=_shown, accountants=_list_accountants)
    environment.globals.update(score=value_words, ends=interval_words)
    # Within a page, the end of a script must not stand in its text.
    twin = json.dumps(facts, allow_nan=False).replace("</", "<\\/")
    return environment.get_template(template).render(facts=facts, twin=twin, **values)


def _run_figures(facts: Facts) -> list[Facts]:
    """Each with its title and the sentence that says what is seen."""
    guarantee, found = facts["guarantee"], []
    if guarantee["is_proven"]:
        few, more = (one["members_found"] for one in guarantee["attacker"]["found"])
        found.append(
            _figure(
                "tradeoff",
                figures.tradeoff(Tradeoff(**facts["tradeoff"])),
                "What an attacker can do",
                "Members missed over false alarms. No attack comes below the solid curve: with 0.1 % false alarms at "
                f"most {percent_up(few)} of members are found, with 1 % at most {percent_up(more)}.",
            )
        )
        spent = Spending(**facts["epsilon_over_steps"])
        found.append(
            _figure(
                "steps",
                figures.epsilon_over_steps(spent, facts["settings"]["epsilon"]),
                "What the steps cost",
                f"Epsilon at delta {spent.delta:g} over the steps, certified and by other accountants; after "
                f"{_all_steps(facts)} it is at most {up(guarantee['epsilon']['upper'])}.",
            )
        )
    return found + _score_figures(facts["utility"])


def _all_steps(facts: Facts) -> str:
    """How many steps there are; on the axis, what prepares counts as the first ones."""
    steps, before = facts["epsilon_over_steps"]["steps"][-1], facts.get("preparation")
    if before is None:
        return f"{steps:,} steps"
    count = before["releases"]
    return f"{count} {'release' if count == 1 else 'releases'} that prepare and {steps - count:,} steps"


def _score_figures(utility: Facts) -> list[Facts]:
    """Scores over the steps; a single one is said, and not drawn."""
    points, measure, other = utility["by_step"], utility["measure"], utility["non_private"]
    if len(points) < 2:
        return []
    lines = [figures.Line(points, "private")]
    if other is not None:
        # It is trained in its own way, for as long as it takes: its steps are no steps of this run.
        flat = [[step, other["final"]] for step, _ in points]
        lines.append(figures.Line(flat, "without privacy", is_private=False))
    words = f"The {measure} on test examples over the steps; at the end it is {value_words(measure, utility['final'])}."
    return [_figure("scores", figures.scores(lines, measure), "What the model learnt", words)]


def _figure(key: str, figure: Any, title: str, words: str) -> Facts:
    svg = figures.as_svg(figure, key=key, title=title, description=words)
    return {"key": key, "svg": svg, "title": title, "words": words}


def _or(shown: Any) -> Any:
    """None, where there is no finite number, in a word."""

    def filtered(value: float | None, digits: int = 5) -> str:
        return "none" if value is None else str(shown(value, digits))

    return filtered


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.2f} %"


def _list_accountants(epsilons: dict[str, float | None]) -> str:
    """The epsilons of other accountants, each with its label."""
    listed = [other for other in other_accountants() if other.name in epsilons]
    return ", ".join(
        f"{other.full_label} {_or(near if other.is_asymptotic else up)(epsilons[other.name])}" for other in listed
    )


def _shown(value: Any) -> str:
    """A setting, with as many digits as anyone can use.

    >>> _shown(2.4534010630), _shown(True), _shown(337), _shown({"variant": "w1", "keep": 0.2})
    ('2.4534', 'yes', '337', 'variant w1, keep 0.2')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{_words(name)} {_shown(inner)}" for name, inner in value.items()) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _words(name: str) -> str:
    """A name of the code as words.

    >>> _words("lot_size")
    'lot size'
    """
    return name.replace("_", " ")
