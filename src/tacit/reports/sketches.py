"""Small figures that are written without matplotlib: a comparison has one for every row, and drawing takes its time."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from tacit.reports.series import Tradeoff

# The square that curves lie in: its left and upper edge, and how long its sides are.
_LEFT, _TOP, _SIDE = 62.0, 10.0, 270.0
_WIDE, _HIGH = 352.0, 322.0
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def tradeoff(found: Tradeoff, *, key: str, description: str) -> str:
    """The trade-off curve as an element of a page, in its colours; `key` keeps its names apart from those of others."""
    lower = list(zip(found.false_alarms, found.missed_lower, strict=True))
    upper = list(zip(found.false_alarms, found.missed_upper, strict=True))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE:g} {_HIGH:g}" font-size="12" role="img" '
        f'aria-labelledby="{key}-title {key}-words">',
        f'<title id="{key}-title">What an attacker can do</title><desc id="{key}-words">{escape(description)}</desc>',
        *(_tick(share) for share in _TICKS),
        _text(_LEFT + _SIDE / 2, _HIGH - 4, "false alarms α", "middle"),
        f'<g transform="rotate(-90)">{_text(-_TOP - _SIDE / 2, 13, "members missed β", "middle")}</g>',
        _line([(0.0, 1.0), (1.0, 0.0)], "var(--faint)", 1.0),
        f'<polygon points="{_points([*lower, *reversed(upper)])}" fill="var(--blue)" fill-opacity="0.3"/>',
        _line(lower, "var(--blue)", 2.2),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(parts)


def _legend() -> list[str]:
    """Above the line of guessing, where no curve goes."""
    right = _LEFT + _SIDE - 6
    said = [("var(--blue)", "certified: no attack is below"), ("var(--faint)", "guessing: no privacy lost")]
    return [_text(right, _TOP + 18 + 17 * place, words, "end", ink) for place, (ink, words) in enumerate(said)]


def _tick(share: float) -> str:
    """The share in percent on both axes, with lines across."""
    (x, y), name = _place(share, share), f"{100 * share:g} %"
    across = [[(share, 0.0), (share, 1.0)], [(0.0, share), (1.0, share)]]
    lines = "".join(_line(ends, "var(--grid)", 0.6) for ends in across)
    return lines + _text(x, _TOP + _SIDE + 17, name, "middle") + _text(_LEFT - 6, y + 4, name, "end")


def _line(points: Iterable[tuple[float, float]], ink: str, wide: float) -> str:
    return f'<polyline points="{_points(points)}" fill="none" stroke="{ink}" stroke-width="{wide:g}"/>'


def _text(x: float, y: float, words: str, anchor: str, ink: str = "currentColor") -> str:
    # The page has a colour for all text of figures: only a style of its own is stronger.
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="fill: {ink}">{escape(words)}</text>'


def _points(points: Iterable[tuple[float, float]]) -> str:
    places = (_place(alarms, missed) for alarms, missed in points)
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _place(alarms: float, missed: float) -> tuple[float, float]:
    return _LEFT + alarms * _SIDE, _TOP + (1 - missed) * _SIDE
