"""Charts as text, for a terminal of any width."""

from __future__ import annotations

from collections.abc import Sequence

from arena_jax.analysis.table import money
from arena_jax.llm.dates import date_label

_BARS = "▁▂▃▄▅▆▇█"
_HANGING = "▔▀█"
_LABEL = 9  # columns of an axis label


def sparkline(values: Sequence[float]) -> str:
    """One character a value."""
    low, span = min(values), max(values) - min(values)
    return "".join(_BARS[int((value - low) / span * (len(_BARS) - 1)) if span else 3] for value in values)


def cash_chart(points: Sequence[tuple[int, float]], width: int, height: int = 8) -> str:
    """Amounts in $ over months, from zero: a column per month, or per few months where the width is short.

    points: (month, amount), at least one. Months without an amount stay blank; amounts below zero hang from the axis.
    """
    first, last = points[0][0], points[-1][0]
    room = max(width - _LABEL - 3, 10)
    per_column = -(-(last - first + 1) // room)
    columns: list[float] = [0.0] * ((last - first) // per_column + 1)
    for month, amount in points:
        columns[(month - first) // per_column] = amount  # the latest of a column's months
    high, low = max(0.0, *columns), -min(0.0, *columns)
    above = height if low == 0.0 else min(round(height * high / (high + low)), height - 1)
    below = height - above
    step = max(high / max(above, 1), low / max(below, 1)) or 1.0
    rows = []
    for row in range(above, 0, -1):
        label = money(row * step) if row == above else ""
        cells = "".join(_cell(amount / step - row + 1, _BARS) for amount in columns)
        rows.append(f"{label:>{_LABEL}} ┤{cells}".rstrip())
    rows.append(f"{money(0.0):>{_LABEL}} {'├' if below else '└'}{'─' * len(columns)}")
    for row in range(1, below + 1):
        label = money(-row * step) if row == below else ""
        cells = "".join(_cell(-amount / step - row + 1, _HANGING) for amount in columns)
        rows.append(f"{label:>{_LABEL}} ┤{cells}".rstrip())
    rows.append(f"{'':>{_LABEL}}  {date_label(first)}" + (f" to {date_label(last)}" if last > first else ""))
    return "\n".join(rows)


def _cell(filled: float, characters: str) -> str:
    """A character that is `filled` to some part, all of it from 1 on."""
    return " " if filled <= 0 else characters[min(int(filled * len(characters)), len(characters) - 1)]
