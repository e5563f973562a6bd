"""What a figure is, before anything draws it: panels of marks on two axes, a table of its data, and where it is from.

The page (plotly) and the PNGs (matplotlib) draw the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from arena_jax.analysis.table import money

# Okabe and Ito's palette, without the yellow that paper does not show: told apart by the colour-blind too
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")  # a second sign, for print in grey
BLUE, ORANGE, GREY = PALETTE[0], PALETTE[1], "#595959"


@dataclass(frozen=True)
class Style:
    """Colour, dash and the name that the legend has for it.

    shape: line, area or hatched; of marks at points dot, hollow or diamond.
    """

    label: str
    color: str = BLUE
    dash: str = "solid"
    shape: str = "line"


def style(index: int, label: str) -> Style:
    """The style of series number `index`."""
    turn = index // len(PALETTE)
    return Style(label, PALETTE[index % len(PALETTE)], DASHES[(index + turn) % len(DASHES)])


@dataclass(frozen=True)
class Line:
    """y over x, with a band from low to high; `is_step`: y holds until the next x. notes: text of each point."""

    style: Style
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    is_step: bool = False
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Bars:
    """Upright bars of one width."""

    style: Style
    x: np.ndarray
    height: np.ndarray
    width: float
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Points:
    """A value with its interval in each row of a panel, from the top; NaN bounds draw no interval.

    has_bars: a bar from 0 to each value.
    """

    style: Style
    rows: Sequence[int]
    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    notes: Sequence[str] = ()
    has_bars: bool = False


@dataclass(frozen=True)
class Dots:
    """Marks at points, of the style's shape."""

    style: Style
    x: np.ndarray
    y: np.ndarray
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Signs:
    """Letters at points, that the legend names."""

    x: np.ndarray
    y: np.ndarray
    texts: Sequence[str]


@dataclass(frozen=True)
class Tiles:
    """A map: which style holds at each (x, y), int[len(y), len(x)] indices into `styles`."""

    styles: Sequence[Style]
    x: np.ndarray
    y: np.ndarray
    index: np.ndarray
    notes: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Span:
    """Shading from one x to another."""

    start: float
    end: float
    label: str


@dataclass(frozen=True)
class Rule:
    """An upright line of reference."""

    x: float
    label: str


Mark = Line | Bars | Points | Dots | Signs | Tiles | Span | Rule


@dataclass(frozen=True)
class Axis:
    """unit: share, points, $, month or "" (a number). rows: labels, from the top. NaN: as far as the marks go."""

    title: str
    unit: str = ""
    low: float = math.nan
    high: float = math.nan
    rows: Sequence[str] = ()


@dataclass(frozen=True)
class Panel:
    """Marks on two axes; the title may have a second line."""

    title: str
    x: Axis
    y: Axis
    marks: Sequence[Mark]


@dataclass(frozen=True)
class DataTable:
    """Text in rows; the first column names a row."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """key: its name as a file. about: what one sees and how to read it. source: n, seed, version. missing: why there is
    nothing to draw, in place of panels. legend: styles to explain. summary: the figure in a sentence, for those who
    can't see it. across: panels side by side, at most."""

    key: str
    title: str
    about: str
    source: str
    summary: str = ""
    panels: Sequence[Panel] = ()
    legend: Sequence[Style] = ()
    table: DataTable = field(default_factory=lambda: DataTable((), ()))
    missing: str = ""
    across: int = 3


def ticks(axis: Axis, low: float, high: float, most: int = 6) -> tuple[list[float], list[str]]:
    """At most `most` round values and one more within [low, high], and how people write them."""
    if axis.unit == "month":
        step: float = next((s for s in (1, 2, 3, 6, 12, 24, 36, 60) if (high - low) / s <= most), 120)
    else:
        span = max(high - low, 1e-12)
        magnitude = 10.0 ** math.floor(math.log10(span / most))
        step = next(magnitude * factor for factor in (1, 2, 5, 10) if span / (magnitude * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    values = [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]
    return values, [_written(axis.unit, value, step) for value in values]


def _written(unit: str, value: float, step: float) -> str:
    """A number of an axis whose numbers are `step` apart: $40M, $2.5M, 15%, 132."""
    if unit == "$":
        text = money(value)
        return text.replace(".0M", "M").replace(".00B", "B")
    if unit in ("share", "points"):
        text = f"{100 * value:z.{_digits(100 * step)}f}"
        return f"{text}%" if unit == "share" else text
    return f"{value:z,.{_digits(step)}f}"


def _digits(step: float) -> int:
    """Digits behind the point that tell numbers apart."""
    return max(0, -math.floor(math.log10(step) + 1e-9))


def limits(panel: Panel) -> tuple[float, float, float, float]:
    """x from and to, y from and to: as the axes say, else as the marks need."""
    xs, ys = [], []
    for mark in panel.marks:
        if isinstance(mark, Points):
            xs += [mark.x, mark.low, mark.high]
        elif isinstance(mark, Bars):
            xs += [mark.x - mark.width / 2, mark.x + mark.width / 2]
            ys.append(mark.height)
        elif isinstance(mark, Line | Dots | Tiles):
            xs.append(mark.x)
            ys += (
                [mark.y] if not isinstance(mark, Line) else [y for y in (mark.y, mark.low, mark.high) if y is not None]
            )
    if panel.y.rows:
        ys = [np.array([-0.4, len(panel.y.rows) - 0.4])]
    found = []
    for axis, values in ((panel.x, xs), (panel.y, ys)):
        every = np.concatenate([np.ravel(value) for value in values])
        low = float(np.nanmin(every)) if math.isnan(axis.low) else axis.low
        high = float(np.nanmax(every)) if math.isnan(axis.high) else axis.high
        room = 0.04 * (high - low) or 1.0
        found += [low - room if math.isnan(axis.low) else low, high + room if math.isnan(axis.high) else high]
    return found[0], found[1], found[2], found[3]
