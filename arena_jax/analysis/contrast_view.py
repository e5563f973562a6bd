"""Comparisons and ablations as plain data (JSON), and from that for people (rich)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from arena_jax.analysis.ablation import Ablation
from arena_jax.analysis.compare import Contrast
from arena_jax.analysis.metrics import METRICS
from arena_jax.analysis.power import Runs
from arena_jax.analysis.table import TABLE_1, figure, interval, or_null, plain_estimate, plain_table, signed

EFFECTS = ("full_survival", "months", "score")  # the columns of an ablation


def comparison_json(
    estimates: Sequence[Mapping[str, Any]], contrasts: Mapping[str, Contrast], runs: Mapping[str, Runs]
) -> dict[str, Any]:
    """Every metric of A, of B, and of B less A: money in $, shares in [0, 1], NaN as null.

    estimates: of A and of B, each with a mean and an interval.
    """
    return {
        name: {
            "a": plain_estimate(estimates[0][name]),
            "b": plain_estimate(estimates[1][name]),
            "difference": _difference(found),
            "unpaired": {"low": or_null(found.unpaired_low), "high": or_null(found.unpaired_high)},
            "width_ratio": or_null(found.width_ratio),
            "variance_saved": or_null(found.variance_saved),
            "a_higher": found.below,
            "b_higher": found.above,
            "runs": vars(runs[name]),
        }
        for name, found in contrasts.items()
    }


def comparison_rows(metrics: Mapping[str, Any], units: str) -> list[dict[str, str]]:
    """A row per column of Table 1, as text by heading, from `comparison_json`. units: what is paired.

    Where the interval holds 0 there is no difference to size an experiment by, and the runs are a dash.
    """
    rows = []
    for name in TABLE_1:
        unit, found = METRICS[name].unit, metrics[name]
        difference, runs = found["difference"], found["runs"]
        if difference["low"] is None or difference["low"] <= 0.0 <= difference["high"]:
            runs = dict.fromkeys(runs)
        rows.append(
            {
                "": METRICS[name].heading,
                "A": figure(unit, found["a"]["mean"]),
                "B": figure(unit, found["b"]["mean"]),
                "B − A": figure(unit, difference["mean"], True),
                "95%, paired": interval(unit, difference["low"], difference["high"], True),
                "p": _p(difference["p"]),
                "A higher": figure("share", found["a_higher"]),
                "B higher": figure("share", found["b_higher"]),
                "Variance saved": _percent(found["variance_saved"]),
                f"{_number(units)}, paired": _runs(runs["paired"]),
                "unpaired": _runs(runs["unpaired"]),
            }
        )
    return rows


def comparison_table(rows: Sequence[Mapping[str, str]], title: str, units: str) -> Table:
    """The rows of a comparison. units: what is paired, episodes or worlds."""
    table = plain_table(title)
    for heading in rows[0]:
        table.add_column(heading, justify="right" if heading else "left", overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    table.caption = (
        f"Both play the same {units}. A higher, B higher: share of {units}. p: McNemar's exact test for a share of "
        "single episodes, else a paired t test. Variance saved: by pairing. "
        f"{_number(units)}: of each side, to tell the two apart with 80% power at 5%, were the difference as found."
    )
    return table


def ablations_json(ablations: Mapping[str, Ablation]) -> list[dict[str, Any]]:
    """Per policy the default world and the effects, for every metric: money in $, shares in [0, 1], NaN as null."""
    return [
        {
            "policy": label,
            "default": {name: plain_estimate(found) for name, found in ablation.default.items()},
            "effects": [
                {
                    "switches": list(effect.switches),
                    "environment": effect.environment,
                    "metrics": {name: plain_estimate(found) for name, found in effect.metrics.items()},
                    "differences": {name: _difference(found) for name, found in effect.differences.items()},
                    "interaction": {name: plain_estimate(found) for name, found in effect.interaction.items()} or None,
                    "published": effect.published,
                }
                for effect in ablation.effects
            ],
        }
        for label, ablation in ablations.items()
    ]


def ablation_rows(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """One policy's default world, then each effect, as text by heading, from `ablations_json`."""
    headings = {name: METRICS[name].heading for name in EFFECTS}
    default = {headings[name]: _with_interval(METRICS[name].unit, result["default"][name]) for name in EFFECTS}
    rows = [{"": "default"} | default | {"Beyond the sum": "", "Paper": ""}]
    for effect in result["effects"]:
        cells = {headings[name]: signed(METRICS[name].unit, effect["differences"][name]) for name in EFFECTS}
        beyond = signed("share", effect["interaction"]["full_survival"]) if effect["interaction"] else ""
        rows.append(
            {"": " + ".join(effect["switches"])} | cells | {"Beyond the sum": beyond, "Paper": effect["published"]}
        )
    return rows


def ablation_table(result: Mapping[str, Any], source: str) -> Table:
    """The effects of one policy, switches first and then pairs, the largest effect on survival first."""
    table = plain_table(f"\n{escape(result['policy'])}")
    rows = ablation_rows(result)
    for heading in rows[0]:
        is_text = heading in ("", "Paper")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=heading != "Paper")
    for row in rows:
        table.add_row(*map(escape, row.values()))
    table.caption = (
        "In brackets 95% intervals; below the default differences from it on the same worlds (paired). Beyond the "
        f"sum: a pair's effect on survival less those of its two switches. Last column: {source}."
    )
    return table


def _with_interval(unit: str, found: Mapping[str, Any]) -> str:
    """As `signed` has a difference, so that a column reads alike."""
    text = figure(unit, found["mean"])
    return text if found["low"] is None else f"{text} ({interval(unit, found['low'], found['high'])})"


def _difference(found: Contrast) -> dict[str, float | None]:
    return plain_estimate(found) | {"p": or_null(found.p)}


def _p(value: float | None) -> str:
    return "–" if value is None else "<0.0001" if value < 1e-4 else f"{value:.4f}"


def _number(units: str) -> str:
    return "Worlds" if units == "worlds" else "Runs"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{round(share, 2) + 0.0:.0%}"  # + 0.0: no -0%


def _runs(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"
