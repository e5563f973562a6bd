"""Charts as text, for a terminal of any width."""

from __future__ import annotations

from collections.abc import Sequence

from arena_jax.analysis.table import money
from arena_jax.llm.dates import date_label

_BARS = "▁▂▃▄▅▆▇█"
_LABEL = 9  # columns of an axis label


def sparkline(values: Sequence[float]) -> str:
    """One character a value."""
    low, span = min(values), max(values) - min(values)
    return "".join(_BARS[int((value - low) / span * (len(_BARS) - 1)) if span else 3] for value in values)


def cash_chart(points: Sequence[tuple[int, float]], width: int, height: int = 8) -> str:
    """Amounts in $ over months, from zero: a column per month, or per few months where the width is short.

    points: (month, amount), at least one. Months without an amount stay blank.
    """
    first, last = points[0][0], points[-1][0]
    room = max(width - _LABEL - 3, 10)
    per_column = -(-(last - first + 1) // room)
    columns: dict[int, float] = {}
    for month, amount in points:
        columns[(month - first) // per_column] = amount  # the latest of a column's months
    low, high = min(0.0, *columns.values()), max(*columns.values(), 1.0)
    rows = []
    for row in range(height, 0, -1):
        level = low + (high - low) * row / height
        below = low + (high - low) * (row - 1) / height
        label = money(high) if row == height else money(low) if row == 1 else ""
        cells = "".join(_cell(columns.get(i), below, level) for i in range((last - first) // per_column + 1))
        rows.append(f"{label:>{_LABEL}} ┤{cells}".rstrip())
    rows.append(f"{'':>{_LABEL}} └{'─' * ((last - first) // per_column + 1)}")
    rows.append(f"{'':>{_LABEL}}  {date_label(first)}" + (f" to {date_label(last)}" if last > first else ""))
    return "\n".join(rows)


def _cell(amount: float | None, below: float, level: float) -> str:
    if amount is None or amount <= below:
        return " "
    return _BARS[min(int((amount - below) / (level - below) * len(_BARS)), len(_BARS) - 1)]
