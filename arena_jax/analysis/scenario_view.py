"""A trajectory for people: sparklines for a terminal, a figure as PNG, a summary as plain data."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import jax.numpy as jnp
import numpy as np

from arena_jax.arena import Arena
from arena_jax.errors import ArenaError
from arena_jax.operations import market_at
from arena_jax.regimes import REGIMES, regimes, spells
from arena_jax.scenario import COLUMNS

_BARS = "▁▂▃▄▅▆▇█"
_PHASES = "·░█"  # expansion, neutral, recession
_SHADES = ("none", "0.92", "0.78")
LEGEND = f"regime: {', '.join(f'{mark} {name}' for mark, name in zip(_PHASES, REGIMES, strict=True))}; ▲ crisis"


def phases(env: Arena) -> np.ndarray:
    """The market's phase in each month: int[T] indices into `REGIMES`."""
    stress = market_at(env.params, env.scenario, jnp.arange(env.scenario.horizon, dtype=jnp.int32)).stress
    return regimes(np.asarray(stress))


def summary(env: Arena) -> dict[str, Any]:
    """Months, crises, share and spells (months) of each phase, and each column's lowest, mean and highest value."""
    labels = phases(env)
    runs = spells(labels)
    columns = {name: np.asarray(getattr(env.scenario, name), dtype=np.float64) for name in COLUMNS}
    return {
        "months": env.scenario.horizon,
        "crisis_months": np.asarray(env.scenario.crisis_months).tolist(),
        "regimes": {
            name: {"share": float(np.mean(labels == i)), "spells": [months for label, months in runs if label == i]}
            for i, name in enumerate(REGIMES)
        },
        "columns": {
            name: {"unit": COLUMNS[name].unit, "low": x.min().item(), "mean": x.mean().item(), "high": x.max().item()}
            for name, x in columns.items()
        },
    }


def sparkline(values: np.ndarray, width: int) -> str:
    """float[T] as `width` bars or fewer, each the mean of equal numbers of months, from the lowest to the highest."""
    bins = np.array([chunk.mean() for chunk in np.array_split(values, min(width, len(values)))])
    low, high = float(bins.min()), float(bins.max())
    level = np.zeros(len(bins)) if high == low else (bins - low) / (high - low)
    return "".join(_BARS[round(float(share) * (len(_BARS) - 1))] for share in level)


def rows(env: Arena, width: int) -> list[tuple[str, str, str]]:
    """Heading, line of at most `width` characters, and note of each column, of the phases and of the crises."""
    horizon = env.scenario.horizon
    lines = []
    for name, column in COLUMNS.items():
        values = np.asarray(getattr(env.scenario, name), dtype=np.float64)
        note = f"{values.min():.4g} to {values.max():.4g} {column.unit}"
        lines.append((name, sparkline(values, width), note))
    chunks = np.array_split(phases(env), min(width, horizon))
    phase = "".join(_PHASES[np.bincount(chunk).argmax()] for chunk in chunks)
    marks = [" "] * len(chunks)
    firsts = np.cumsum([0] + [len(chunk) for chunk in chunks])
    crises = np.asarray(env.scenario.crisis_months).tolist()
    for month in crises:
        marks[min(int(np.searchsorted(firsts, month, side="right")) - 1, len(marks) - 1)] = "▲"
    return [*lines, ("regime", phase, ""), ("crises", "".join(marks), f"months {', '.join(map(str, crises))}")]


def figure(env: Arena, title: str) -> bytes:
    """A PNG: one panel per column, recessions and neutral phases shaded, crisis months as red lines."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ArenaError("a PNG needs matplotlib: pip install 'arena_jax[report]'") from None
    across = 4
    drawing = Figure(figsize=(16, 10), layout="constrained")
    drawing.suptitle(f"{title}: shaded neutral (light) and recession (dark), red: crisis months")
    panels = drawing.subplots(-(-len(COLUMNS) // across), across, sharex=True)
    month = 0
    shaded = []
    for label, months in spells(phases(env)):
        shaded.append((month, month + months, _SHADES[label]))
        month += months
    for panel, (name, column) in zip(panels.flat, COLUMNS.items(), strict=True):
        for start, end, shade in shaded:
            panel.axvspan(start, end, facecolor=shade, linewidth=0)
        for crisis in np.asarray(env.scenario.crisis_months):
            panel.axvline(crisis, color="tab:red", linewidth=1)
        panel.plot(np.asarray(getattr(env.scenario, name)), color="tab:blue", linewidth=1.2)
        panel.set_title(f"{name} ({column.unit})", fontsize=9)
        panel.set_xlim(0, env.scenario.horizon)
    for panel in panels[-1]:
        panel.set_xlabel("month")
    drawn = BytesIO()
    FigureCanvasAgg(drawing).print_png(drawn)
    return drawn.getvalue()
