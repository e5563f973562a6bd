"""Learning curves: a row per update and seed, as CSV and as a PNG."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from arena_jax.errors import ArenaError
from arena_jax.files import read_whole, write_atomic

Row = dict[str, float]
WHOLE = ("update", "seed", "decisions")
_PANELS = {
    "objective": ("objective of ended episodes ($M)", 1e-6),
    "survived": ("share that survived", 1.0),
    "calls": ("tool calls a month", 1.0),
    "entropy": ("entropy of the policy (nats)", 1.0),
    "divergence": ("divergence of an update (nats)", 1.0),
    "value_explained": ("variance that the critic explains", 1.0),
}


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write all rows; what was not seen (no episode ended) is left empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {
                name: int(value) if name in WHOLE else "" if math.isnan(value) else f"{value:.6g}"
                for name, value in row.items()
            }
        )
    write_atomic(path, text.getvalue().encode())


def read_csv(path: Path, updates: int, seeds: Sequence[int]) -> list[Row]:
    """The rows of the first updates, one a seed; raises `ArenaError` if they can't be read or are not all there."""
    text = read_whole(path, "learning curves").decode(errors="replace")
    try:
        rows = [
            {name: float(value or "nan") for name, value in row.items()} for row in csv.DictReader(text.splitlines())
        ]
        rows = [row for row in rows if row["update"] <= updates]
        is_whole = [(row["update"], row["seed"]) for row in rows] == list(product(range(1, updates + 1), seeds))
    except (ValueError, KeyError, TypeError, csv.Error):
        is_whole = False
    if not is_whole:
        raise ArenaError(f"learning curves {path} don't hold updates 1 to {updates} of the run's seeds")
    return rows


def check_drawing() -> None:
    """Refuse to begin without what draws the curves."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ArenaError("learning curves need matplotlib: pip install 'arena_jax[report]'") from None


def write_png(path: Path, rows: Sequence[Row], title: str) -> None:
    """Draw the curves over decisions, a line a seed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(12, 6.5), layout="constrained")
    drawing.suptitle(title)
    for panel, (name, (label, unit)) in zip(drawing.subplots(2, 3, sharex=True).flat, _PANELS.items(), strict=True):
        for seed in sorted({row["seed"] for row in rows}):
            shown = [row for row in rows if row["seed"] == seed]
            panel.plot(
                [row["decisions"] / 1e6 for row in shown],
                [row.get(name, math.nan) * unit for row in shown],
                linewidth=1,
                label=f"seed {seed:g}",
            )
        panel.set_title(label, fontsize=9)
        panel.set_xlabel("decisions (M)", fontsize=8)
        panel.grid(alpha=0.3)
    drawing.axes[0].legend(fontsize=8)
    drawn = io.BytesIO()
    FigureCanvasAgg(drawing).print_png(drawn)
    write_atomic(path, drawn.getvalue())
