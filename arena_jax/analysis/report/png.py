"""Figures as PNGs (matplotlib)."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from arena_jax.analysis.report.figures import (
    GREY,
    Bars,
    Dots,
    Figure,
    Line,
    Panel,
    Points,
    Rule,
    Signs,
    Span,
    Style,
    Tiles,
    limits,
    ticks,
)
from arena_jax.errors import ArenaError
from arena_jax.files import check_folder

_DASHES: dict[str, Any] = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (9, 3))}
_SYMBOLS = {"dot": "o", "hollow": "o", "diamond": "D"}
_WIDTH, _HEIGHT, _ROW, _TEXT_LINE = 10.0, 2.9, 0.42, 0.18  # inches: page, panel, row of a panel, line of text
_TITLE = {1: 110, 2: 60, 3: 40}  # characters of a panel's title, by panels side by side
_NOTE = 150  # characters of a line of the foot
_DPI = 130
_PAPER = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5}  # behind words that cross lines
_SETTINGS: Any = {"text.parse_math": False, "font.size": 9, "font.family": "DejaVu Sans"}  # a dollar is no formula


def check_png(folder: Path) -> None:
    """Refuse a folder that can't be written, or a missing matplotlib, before anything is read or played."""
    try:
        import matplotlib as mpl  # noqa: F401
    except ImportError:
        raise ArenaError("a PNG needs matplotlib: pip install 'arena_jax[report]'") from None
    check_folder(folder)


def png(figure: Figure) -> bytes:
    """A figure that has panels, with its legend, what it shows and where it is from."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing

    across = min(len(figure.panels), figure.across)
    down = -(-len(figure.panels) // across)
    rows = max(len(panel.y.rows) for panel in figure.panels)
    notes = [line for text in (figure.about, figure.source) for line in textwrap.wrap(text, _NOTE)]
    handles = [_handle(style) for style in figure.legend]
    per_line = 3 if max((len(style.label) for style in figure.legend), default=0) < 46 else 2
    heights = (
        0.4 + 1.2 * _TEXT_LINE * -(-len(handles) // per_line),
        down * max(_HEIGHT if across > 1 else 1.4 * _HEIGHT, _ROW * rows + 0.8),
        _TEXT_LINE * (len(notes) + 0.7),
    )
    with mpl.rc_context(_SETTINGS):
        drawing = Drawing(figsize=(_WIDTH, sum(heights)), layout="constrained")
        strips: Any = drawing.subfigures(3, 1, height_ratios=heights)
        head, body, foot = strips
        head.text(0.01, 1 - 0.1 / heights[0], figure.title, fontsize=13, fontweight="bold", va="top")
        if handles:
            head.legend(handles=handles, loc="lower left", ncols=per_line, frameon=False, fontsize=9)
        foot.text(0.01, 1, "\n".join(notes), fontsize=8, va="top", color=GREY, linespacing=1.4)
        grid = np.atleast_1d(body.subplots(down, across)).ravel()
        for place, (axes, panel) in enumerate(zip(grid, figure.panels, strict=False)):
            _draw(axes, panel, across, names_rows=place % across == 0)
        for axes in grid[len(figure.panels) :]:
            axes.set_visible(False)
        drawn = BytesIO()
        FigureCanvasAgg(drawing)
        drawing.savefig(drawn, format="png", dpi=_DPI, metadata={"Software": None})
    return drawn.getvalue()


def _handle(style: Style) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if style.shape in ("area", "hatched"):
        return Patch(facecolor=style.color, hatch=_hatch(style), edgecolor="white", label=style.label)
    if style.shape in _SYMBOLS:
        return Line2D([], [], **_marker(style), linestyle="", label=style.label)
    return Line2D([], [], color=style.color, linestyle=_DASHES[style.dash], linewidth=2, label=style.label)


def _hatch(style: Style) -> str:
    return "///" if style.shape == "hatched" else ""


def _marker(style: Style) -> dict[str, Any]:
    face = "white" if style.shape == "hollow" else style.color
    return {"marker": _SYMBOLS[style.shape], "color": style.color, "markerfacecolor": face, "markersize": 6}


def _draw(axes: Any, panel: Panel, across: int, names_rows: bool) -> None:
    left, right, low, high = limits(panel)
    axes.set_xlim(left, right)
    axes.set_ylim((high, low) if panel.y.rows else (low, high))
    for mark in panel.marks:
        _DRAW[type(mark)](axes, mark)
    title = "\n".join(_wrapped(line, _TITLE[across]) for line in panel.title.split("\n"))
    above = any(isinstance(mark, Span | Rule) for mark in panel.marks)  # their names stand there
    axes.set_title(title, fontsize=8.5, loc="left", pad=14 if above else 6)
    axes.set_xlabel(panel.x.title)
    axes.set_ylabel(panel.y.title)
    axes.spines[["top", "right"]].set_visible(False)
    most = 12 if across == 1 else 6
    axes.set_xticks(*ticks(panel.x, left, right, most if panel.x.unit != "$" else 4))
    if panel.y.rows:
        axes.set_yticks([])
        for row, label in enumerate(panel.y.rows if names_rows else ()):
            axes.text(
                0, row - 0.32, f" {label}", transform=axes.get_yaxis_transform(), fontsize=8, va="center", bbox=_PAPER
            )
    else:
        axes.set_yticks(*ticks(panel.y, low, high))
    axes.grid(axis="x" if panel.y.rows else "y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)


def _wrapped(text: str, width: int) -> str:
    """Text in lines of at most `width` characters where it can be broken: at spaces, and in a policy at : and ,"""
    lines = [""]
    for piece in re.findall(r"[^\s:,]+[:,]?\s*|\s+|[:,]", text):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _line(axes: Any, mark: Line) -> None:
    if mark.low is not None and mark.high is not None:
        step: Any = "post" if mark.is_step else None
        axes.fill_between(mark.x, mark.low, mark.high, step=step, color=mark.style.color, alpha=0.2, linewidth=0)
    drawstyle = "steps-post" if mark.is_step else "default"
    axes.plot(mark.x, mark.y, color=mark.style.color, linestyle=_DASHES[mark.style.dash], drawstyle=drawstyle, lw=1.6)


def _bars(axes: Any, mark: Bars) -> None:
    style = mark.style
    axes.bar(mark.x, mark.height, mark.width, color=style.color, hatch=_hatch(style), edgecolor="white", linewidth=0.3)


def _points(axes: Any, mark: Points) -> None:
    rows, drawn = np.asarray(mark.rows, dtype=float), ~np.isnan(mark.low)
    if mark.has_bars:
        axes.barh(rows, mark.x, 0.36, color=mark.style.color, alpha=0.45)
    axes.hlines(rows[drawn], mark.low[drawn], mark.high[drawn], color=mark.style.color, linewidth=2)
    axes.plot(mark.x, rows, linestyle="", clip_on=False, **_marker(mark.style))


def _dots(axes: Any, mark: Dots) -> None:
    is_hollow = mark.style.shape == "hollow"
    face, edge = ("white", mark.style.color) if is_hollow else (mark.style.color, "white")
    symbol, size = _SYMBOLS[mark.style.shape], 4 if is_hollow else 8
    axes.plot(mark.x, mark.y, symbol, color=face, markersize=size, markeredgecolor=edge, clip_on=False)


def _signs(axes: Any, mark: Signs) -> None:
    for x, y, text in zip(mark.x, mark.y, mark.texts, strict=True):
        axes.text(x, y, text, ha="center", va="center", fontweight="bold", bbox=_PAPER)


def _tiles(axes: Any, mark: Tiles) -> None:
    from matplotlib.colors import ListedColormap

    colors = ListedColormap([style.color for style in mark.styles])
    axes.pcolormesh(mark.x, mark.y, mark.index, cmap=colors, vmin=-0.5, vmax=len(mark.styles) - 0.5, alpha=0.75)


def _span(axes: Any, mark: Span) -> None:
    left, right = axes.get_xlim()
    start, end = max(mark.start, left), min(mark.end, right)
    if start < end:
        axes.axvspan(start, end, facecolor="0.88", linewidth=0, zorder=0)
        _name(axes, (start + end) / 2, mark.label)


def _rule(axes: Any, mark: Rule) -> None:
    axes.axvline(mark.x, color=GREY, linewidth=1, linestyle="--", zorder=0)
    _name(axes, mark.x, mark.label)


def _name(axes: Any, x: float, label: str) -> None:
    axes.text(x, 1.01, label, transform=axes.get_xaxis_transform(), fontsize=7, ha="center", va="bottom", color=GREY)


_DRAW: dict[type, Callable[[Any, Any], None]] = {
    Line: _line, Bars: _bars, Points: _points, Dots: _dots, Signs: _signs, Tiles: _tiles, Span: _span, Rule: _rule,
}  # fmt: skip
