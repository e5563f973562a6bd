"""Learning curves: a row per update and seed, as CSV and as a PNG."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from arena_jax.errors import ArenaError
from arena_jax.files import write_atomic

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


def read_csv(path: Path, updates: int) -> list[Row]:
    """The rows of the first updates; raises `ArenaError` if they can't be read."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [{name: float(value or "nan") for name, value in row.items()} for row in csv.DictReader(file)]
        return [row for row in rows if row["update"] <= updates]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArenaError(f"learning curves {path} can't be read: {error}") from None


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
