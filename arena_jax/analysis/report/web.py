"""Figures for a page (plotly): a plot for each panel, so that panels stand side by side or below each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np

from arena_jax.analysis.report.figures import (
    GREY,
    Bars,
    Dots,
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

_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_HEIGHT, _WIDE_HEIGHT, _ROW = 280, 400, 40  # pixels: of a panel, of one that stands alone, of a row


def plotly_js() -> str:
    """The library that draws the page, to be written into it."""
    graph_objects()
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def plot(panel: Panel, is_alone: bool) -> str:
    """A panel as plotly's JSON."""
    go = graph_objects()
    drawing = go.Figure()
    for mark in panel.marks:
        _DRAW[type(mark)](go, drawing, mark)
    left, right, low, high = limits(panel)
    height = _WIDE_HEIGHT if is_alone and not panel.y.rows else _HEIGHT
    most = 11 if is_alone and panel.x.unit == "month" else 4 if panel.x.unit == "$" else 5
    x_ticks, y_ticks = ticks(panel.x, left, right, most), ticks(panel.y, low, high)
    drawing.update_layout(
        template=None,
        font={"family": _FONT, "size": 13, "color": "#1a1a1a"},
        margin={"l": 12, "r": 24, "t": 24, "b": 44},
        height=max(height, _ROW * len(panel.y.rows) + 70),
        showlegend=False,
        hovermode="closest",
        barmode="overlay",
        dragmode=False,
        plot_bgcolor="white",
        paper_bgcolor="white",
        hoverlabel={"align": "left"},
        xaxis=_axis(panel.x.title, [left, right], x_ticks, has_grid=bool(panel.y.rows)),
        yaxis=_axis(panel.y.title, [low, high], y_ticks, has_grid=not panel.y.rows),
    )
    if panel.y.rows:
        drawing.update_yaxes(range=[high, low], showticklabels=False, ticks="")
        for row, label in enumerate(panel.y.rows):
            drawing.add_annotation(
                x=0, xref="paper", xanchor="left", xshift=4, y=row - 0.34, text=escape(label), showarrow=False,
                font={"size": 12}, align="left", bgcolor="rgba(255,255,255,0.8)", borderpad=0,
            )  # fmt: skip
    return str(drawing.to_json())


def graph_objects() -> Any:
    """plotly.graph_objects; raises `ArenaError` where plotly is missing."""
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise ArenaError("a page needs plotly: pip install 'arena_jax[report]'") from None
    return go


def _axis(title: str, ends: list[float], found: tuple[list[float], list[str]], has_grid: bool) -> dict[str, Any]:
    return {
        "title": {"text": escape(title), "standoff": 8},
        "range": ends,
        "tickvals": found[0],
        "ticktext": found[1],
        "showgrid": has_grid,
        "gridcolor": "#e4e4e4",
        "zeroline": False,
        "linecolor": "#1a1a1a",
        "ticks": "outside",
        "ticklen": 4,
        "automargin": True,
        "ticklabeloverflow": "allow",
        "fixedrange": True,
    }


def _hover(notes: Sequence[str]) -> dict[str, Any]:
    if not len(notes):
        return {"hoverinfo": "skip"}
    return {"hovertext": [escape(note) for note in notes], "hovertemplate": "%{hovertext}<extra></extra>"}


def _line(go: Any, drawing: Any, mark: Line) -> None:
    shape = "hv" if mark.is_step else "linear"
    if mark.low is not None and mark.high is not None:
        edge = {"mode": "lines", "line": {"width": 0, "shape": shape, "color": mark.style.color}, "hoverinfo": "skip"}
        drawing.add_trace(go.Scatter(x=mark.x, y=_short(mark.low), **edge))
        fill = {"fill": "tonexty", "fillcolor": _pale(mark.style.color)}
        drawing.add_trace(go.Scatter(x=mark.x, y=_short(mark.high), **edge, **fill))
    line = {"color": mark.style.color, "dash": mark.style.dash, "width": 2, "shape": shape}
    drawing.add_trace(go.Scatter(x=mark.x, y=_short(mark.y), mode="lines", line=line, **_hover(mark.notes)))


def _bars(go: Any, drawing: Any, mark: Bars) -> None:
    pattern = (
        {"shape": "/", "fgcolor": "white", "size": 6, "fillmode": "overlay"} if mark.style.shape == "hatched" else {}
    )
    look = {"color": mark.style.color, "line": {"width": 0.5, "color": "white"}, "pattern": pattern}
    drawing.add_trace(go.Bar(x=mark.x, y=_short(mark.height), width=mark.width, marker=look, **_hover(mark.notes)))


def _points(go: Any, drawing: Any, mark: Points) -> None:
    up, down = _filled(mark.high - mark.x), _filled(mark.x - mark.low)
    error = {"type": "data", "symmetric": False, "array": up, "arrayminus": down}
    error |= {"color": mark.style.color, "thickness": 2, "width": 0}
    rows, face = list(mark.rows), "white" if mark.style.shape == "hollow" else mark.style.color
    if mark.has_bars:
        pale = {"color": mark.style.color, "opacity": 0.45}
        drawing.add_trace(go.Bar(x=_short(mark.x), y=rows, orientation="h", width=0.36, marker=pale, hoverinfo="skip"))
    look = {"size": 9, "color": face, "line": {"width": 2, "color": mark.style.color}}
    drawing.add_trace(
        go.Scatter(
            x=mark.x,
            y=rows,
            mode="markers",
            marker=look,
            error_x=error,
            cliponaxis=False,
            **_hover(mark.notes),
        )
    )


def _dots(go: Any, drawing: Any, mark: Dots) -> None:
    is_hollow = mark.style.shape == "hollow"
    face, edge = ("white", mark.style.color) if is_hollow else (mark.style.color, "white")
    symbol = "circle" if mark.style.shape in ("dot", "hollow") else mark.style.shape
    look = {"size": 7 if is_hollow else 11, "color": face, "symbol": symbol, "line": {"width": 1, "color": edge}}
    drawing.add_trace(go.Scatter(x=mark.x, y=_short(mark.y), mode="markers", marker=look, **_hover(mark.notes)))


def _signs(go: Any, drawing: Any, mark: Signs) -> None:
    for x, y, text in zip(mark.x, mark.y, mark.texts, strict=True):
        drawing.add_annotation(
            x=float(x), y=float(y), text=f"<b>{escape(text)}</b>", showarrow=False, borderpad=1,
            bgcolor="rgba(255,255,255,0.8)",
        )  # fmt: skip


def _tiles(go: Any, drawing: Any, mark: Tiles) -> None:
    count = len(mark.styles)
    scale = [[(i + end) / count, style.color] for i, style in enumerate(mark.styles) for end in (0, 1)]
    drawing.add_trace(
        go.Heatmap(
            x=mark.x, y=mark.y, z=mark.index, zmin=-0.5, zmax=count - 0.5, colorscale=scale, showscale=False,
            opacity=0.75, text=[[escape(note) for note in row] for row in mark.notes],
            hovertemplate="%{text}<extra></extra>",
        )
    )  # fmt: skip


def _span(go: Any, drawing: Any, mark: Span) -> None:
    drawing.add_shape(
        type="rect",
        x0=mark.start,
        x1=mark.end,
        y0=0,
        y1=1,
        yref="paper",
        fillcolor="#e0e0e0",
        line_width=0,
        layer="below",
    )
    _name(drawing, (mark.start + mark.end) / 2, mark.label)


def _rule(go: Any, drawing: Any, mark: Rule) -> None:
    drawing.add_shape(
        type="line", x0=mark.x, x1=mark.x, y0=0, y1=1, yref="paper", line={"color": GREY, "dash": "dash", "width": 1}
    )
    _name(drawing, mark.x, mark.label)


def _name(drawing: Any, x: float, label: str) -> None:
    drawing.add_annotation(
        x=x, y=1, yref="paper", yanchor="bottom", text=escape(label), showarrow=False, font={"size": 11, "color": GREY}
    )


def _short(values: np.ndarray) -> list[float]:
    """Six digits are more than a screen shows, and a third of the bytes."""
    return [float(f"{value:.6g}") for value in np.asarray(values, dtype=np.float64)]


def _filled(values: np.ndarray) -> list[float]:
    return _short(np.nan_to_num(values))


def _pale(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.2)"


_DRAW: dict[type, Callable[[Any, Any, Any], None]] = {
    Line: _line, Bars: _bars, Points: _points, Dots: _dots, Signs: _signs, Tiles: _tiles, Span: _span, Rule: _rule,
}  # fmt: skip


_DIAMOND = "M17 1l6 6-6 6-6-6z"


def swatch(style: Style) -> str:
    """A style as a small picture for the legend."""
    color = style.color
    if style.shape == "line":
        dash = {"solid": "", "dash": "6 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "12 4"}[style.dash]
        inner = f'<path d="M1 7H33" stroke="{color}" stroke-width="3" stroke-dasharray="{dash}"/>'
    elif style.shape in ("dot", "hollow"):
        face = "white" if style.shape == "hollow" else color
        inner = f'<circle cx="17" cy="7" r="5" fill="{face}" stroke="{color}" stroke-width="2"/>'
    elif style.shape == "diamond":
        inner = f'<path d="{_DIAMOND}" fill="{color}" stroke="{color}" stroke-width="2"/>'
    else:
        inner = f'<rect x="3" y="1" width="28" height="12" fill="{color}"/>'
        if style.shape == "hatched":
            inner += "".join(f'<path d="M{x} 13L{x + 8} 1" stroke="white" stroke-width="2"/>' for x in (3, 11, 19))
    return f'<svg width="34" height="14" aria-hidden="true">{inner}</svg>'
