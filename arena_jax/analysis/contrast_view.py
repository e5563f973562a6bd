"""Comparisons and ablations for people (rich) and for machines (JSON)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from arena_jax.analysis.ablation import Ablation
from arena_jax.analysis.compare import Contrast
from arena_jax.analysis.metrics import METRICS
from arena_jax.analysis.power import Runs
from arena_jax.analysis.table import TABLE_1, figure, interval, or_null, plain_table, signed

# the columns of an ablation
EFFECTS = ("full_survival", "months", "score")
_BEYOND = "Beyond the sum"


def comparison_rows(
    estimates: Sequence[Mapping[str, Any]], contrasts: Mapping[str, Contrast], runs: Mapping[str, Runs]
) -> list[dict[str, str]]:
    """A row per column of Table 1, as text by heading. estimates: of A and of B, with a mean."""
    rows = []
    for name in TABLE_1:
        metric, found = METRICS[name], contrasts[name]
        ratio = "–" if math.isnan(found.width_ratio) else f"{found.width_ratio:.2f}"
        rows.append(
            {
                "": metric.heading,
                "A": figure(metric.unit, estimates[0][name].mean),
                "B": figure(metric.unit, estimates[1][name].mean),
                "B − A": figure(metric.unit, found.mean, True),
                "95%, paired": interval(metric.unit, found.low, found.high, True),
                "p": _p(found.p),
                "A higher": figure("share", found.below),
                "B higher": figure("share", found.above),
                "Width": ratio,
                "Runs, paired": _runs(runs[name].paired),
                "unpaired": _runs(runs[name].unpaired),
            }
        )
    return rows


def comparison_table(rows: list[dict[str, str]], title: str, units: str) -> Table:
    """The rows of a comparison. units: what is paired, episodes or worlds."""
    table = plain_table(title)
    for heading in rows[0]:
        table.add_column(heading, justify="right" if heading else "left", overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    table.caption = (
        f"Both play the same {units}. A higher, B higher: share of {units}. p: McNemar's exact test for a share of "
        "single episodes, else a paired t test. Width: of the paired interval by that of an unpaired one. Runs: of "
        "each side, to tell the two apart with 80% power at 5%."
    )
    return table


def comparison_json(
    estimates: Sequence[Mapping[str, Any]], contrasts: Mapping[str, Contrast], runs: Mapping[str, Runs]
) -> dict[str, Any]:
    """The same as plain data for every metric: money in $, shares in [0, 1], NaN as null."""
    return {
        name: {
            "a": _estimate(estimates[0][name]),
            "b": _estimate(estimates[1][name]),
            "difference": _difference(found),
            "unpaired": {"low": found.unpaired_low, "high": found.unpaired_high},
            "width_ratio": or_null(found.width_ratio),
            "variance_saved": or_null(1 - found.width_ratio**2),
            "a_higher": found.below,
            "b_higher": found.above,
            "runs": vars(runs[name]),
        }
        for name, found in contrasts.items()
    }


def ablation_rows(ablation: Ablation) -> list[dict[str, str]]:
    """The default world, then each effect, as text by heading."""
    headings = {name: METRICS[name].heading for name in EFFECTS}
    default = {headings[name]: figure(METRICS[name].unit, ablation.default[name].mean) for name in EFFECTS}
    rows = [{"": "default"} | default | {_BEYOND: "", "Paper": ""}]
    for effect in ablation.effects:
        cells = {headings[name]: signed(METRICS[name].unit, effect.differences[name]) for name in EFFECTS}
        beyond = signed("share", effect.interaction["full_survival"]) if effect.interaction else ""
        rows.append({"": " + ".join(effect.switches)} | cells | {_BEYOND: beyond, "Paper": effect.published})
    return rows


def ablation_table(ablation: Ablation, title: str, source: str) -> Table:
    """The effects of one policy, switches first and then pairs, the largest effect on survival first."""
    table = plain_table(title)
    rows = ablation_rows(ablation)
    for heading in rows[0]:
        table.add_column(heading, justify="left" if heading in ("", "Paper") else "right", no_wrap=heading != "Paper")
    for row in rows:
        table.add_row(*map(escape, row.values()))
    table.caption = (
        "Differences from the default on the same worlds, with 95% intervals (paired). Beyond the sum: a pair's effect "
        f"on survival less those of its two switches. Last column: {source}."
    )
    return table


def ablations_json(ablations: Mapping[str, Ablation]) -> list[dict[str, Any]]:
    """The same as plain data for every metric."""
    return [
        {
            "policy": label,
            "default": {name: _estimate(found) for name, found in ablation.default.items()},
            "effects": [
                {
                    "switches": list(effect.switches),
                    "environment": effect.environment,
                    "metrics": {name: _estimate(found) for name, found in effect.metrics.items()},
                    "differences": {name: _difference(found) for name, found in effect.differences.items()},
                    "interaction": {name: _estimate(found) for name, found in effect.interaction.items()} or None,
                    "published": effect.published,
                }
                for effect in ablation.effects
            ],
        }
        for label, ablation in ablations.items()
    ]


def _estimate(found: Any) -> dict[str, float | None]:
    return {name: or_null(getattr(found, name)) for name in ("mean", "low", "high")}


def _difference(found: Contrast) -> dict[str, float | None]:
    return _estimate(found) | {"p": or_null(found.p)}


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "<0.0001" if value < 1e-4 else f"{value:.4f}"


def _runs(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"
