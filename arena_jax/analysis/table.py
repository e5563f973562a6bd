"""The paper's Table 1 for people (rich; Markdown and HTML as files) and for machines (JSON)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from arena_jax.analysis.metrics import METRICS, Estimate, Metric
from arena_jax.analysis.published import published_results
from arena_jax.analysis.spread import PERCENTILES, Spread

# the published rows that every evaluation is set beside
BESIDE = ("Human", "DeepSeek-V4", "Codex CLI + GPT-5.5", "Overall")
# its columns, in the paper's order
TABLE_1 = (
    "full_survival",
    "months",
    "score",
    "crisis_1",
    "crisis_2",
    "crisis_3",
    "tools_per_month",
    "actions",
    "raised",
)
_CENTS = 0.5  # dollars that are written as $0, which has no sign
SCORES = TABLE_1.index("score") + 1  # columns up to the score, after which the disciplined variant has its own
WIDE, WIDE_SPREAD = 175, 100  # columns that the whole tables need


def money(dollars: float) -> str:
    """$34.7M, -$1.2M, $950K, $12, $1.24B."""
    sign, size = ("-" if dollars < -_CENTS else ""), abs(dollars)
    for limit, divisor, suffix, digits in ((999.95e6, 1e9, "B", 2), (999.5e3, 1e6, "M", 1), (999.5, 1e3, "K", 0)):
        if size >= limit:
            return f"{sign}${size / divisor:.{digits}f}{suffix}"
    return f"{sign}${size:.0f}"


def plain_table(title: str = "") -> Table:
    """An empty table in the style of all of them."""
    return Table(
        box=SIMPLE_HEAD, title=title or None, title_justify="left", caption_justify="left", padding=(0, 1),
        pad_edge=False, show_edge=False,
    )  # fmt: skip


def or_null(value: float) -> float | None:
    """NaN as null, as JSON has no NaN."""
    return None if math.isnan(value) else value


def figure(unit: str, value: float | None, is_difference: bool = False) -> str:
    """A figure; a difference carries its sign, and one of shares is in percentage points. NaN and null as a dash."""
    if value is None or math.isnan(value):
        return "–"
    sign = "+" if is_difference else ""
    if unit == "share":
        return f"{100 * value:{sign}z.1f}{' pts' if is_difference else '%'}"
    if unit == "$":
        return (sign if value > -_CENTS else "") + money(value)
    return f"{value:{sign}z.{2 if unit == 'calls' else 1}f}"


def interval(unit: str, low: float | None, high: float | None, is_difference: bool = False) -> str:
    """An interval of figures: `12.1% to 13.0%`, `-0.8 to -0.2 pts`; a dash where there is none."""
    least, most = figure(unit, low, is_difference), figure(unit, high, is_difference)
    return most if most == "–" else f"{least.removesuffix(' pts')} to {most}"


def signed(unit: str, found: Mapping[str, float | None]) -> str:
    """A difference as plain data, mean, low and high: `+1.8 pts (+1.6 to +2.0)`."""
    between = interval(unit, found["low"], found["high"], True).removesuffix(" pts")
    return f"{figure(unit, found['mean'], True)} ({between})"


def plain_estimate(found: Any) -> dict[str, float | None]:
    """Mean and 95% interval as plain data, NaN as null."""
    return {name: or_null(getattr(found, name)) for name in ("mean", "low", "high")}


def cell(metric: Metric, mean: float, sd: float, low: float = math.nan, high: float = math.nan) -> str:
    """A mean with its SD where the metric shows one, and below it the interval if there is one."""
    text = figure(metric.unit, mean)
    if metric.shows_sd and not math.isnan(sd):
        text += f" ± {figure(metric.unit, sd)}"
    return text if math.isnan(low) else f"{text}\n[dim]{figure(metric.unit, low)}–{figure(metric.unit, high)}[/dim]"


_UNTOLD = "agents, as in the paper, are not told the horizon."


def _columns(disciplined: bool) -> tuple[str, ...]:
    return (*TABLE_1[:SCORES], "value_kept", *TABLE_1[SCORES:]) if disciplined else TABLE_1


def results_tables(
    results: Mapping[str, Mapping[str, Estimate]],
    title: str,
    width: int,
    disclosed: bool = False,
    disciplined: bool = False,
) -> list[Table]:
    """The paper's Table 1: the policies, then the published rows; in two halves where `width` columns are too few.

    disclosed: the agents were told the horizon. disciplined: with the value kept beside the score.
    """
    columns, scores = _columns(disciplined), SCORES + disciplined
    halves = [columns] if width >= WIDE else [columns[:scores] + columns[-1:], columns[scores:-1]]
    tables = [_results_table(results, names) for names in halves]
    tables[0].title = title
    tables[-1].caption = (
        "mean ± SD over episodes; below it the 95% interval of the share or mean. Published rows: paper, Table 1. "
        "Scripted and trained policies see the month; "
        + ("agents were told the horizon, the paper's were not." if disclosed else _UNTOLD)
    )
    return tables


def _results_table(results: Mapping[str, Mapping[str, Estimate]], names: Sequence[str]) -> Table:
    table = plain_table()
    table.add_column("Agent", overflow="fold", max_width=40)
    table.add_column("n", justify="right", no_wrap=True)
    for name in names:
        table.add_column(METRICS[name].heading, justify="right", overflow="fold")
    for label, estimates in results.items():
        chosen = [(METRICS[name], estimates[name]) for name in names]
        table.add_row(
            escape(label), f"{estimates['months'].n:,}", *[cell(m, e.mean, e.sd, e.low, e.high) for m, e in chosen]
        )
    table.add_section()
    rows = published_results()
    for agent in BESIDE:
        row = rows[agent]
        cells = [
            cell(METRICS[name], row.means[name], row.sds.get(name, math.nan)) if name in row.means else ""
            for name in names
        ]
        table.add_row(f"{agent} (published)", f"{row.runs}", *cells)
    return table


def spreads_tables(
    results: Mapping[str, Mapping[str, Spread]], title: str, width: int, disciplined: bool = False
) -> list[Table]:
    """A table a policy, the columns of Table 1 as rows: how they differ across worlds and within one.

    Percentiles are left out where `width` columns are too few.
    """
    caption = (
        "95%: interval of the mean over worlds. SD across: of the worlds' means, sampling error taken off; within: "
        "of one world's episodes."
    )
    percentiles = PERCENTILES if width >= WIDE_SPREAD else ()
    if percentiles:
        caption += " 5th to 95th: percentiles of the worlds' means."
    columns = _columns(disciplined)
    tables = [_spreads_table(label, spreads, columns, percentiles) for label, spreads in results.items()]
    tables[0].title = f"{title}\n{tables[0].title}"
    tables[-1].caption = caption
    return tables


def _spreads_table(
    label: str, spreads: Mapping[str, Spread], columns: Sequence[str], percentiles: Sequence[int]
) -> Table:
    table = plain_table(escape(label))
    table.add_column("", no_wrap=True)
    for heading in ("Mean", "95%", "SD across", "SD within", *(f"{share}th" for share in percentiles)):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in columns:
        metric, found = METRICS[name], spreads[name]
        number = lambda value, metric=metric: figure(metric.unit, value)
        between = "–" if math.isnan(found.low) else f"{number(found.low)}–{number(found.high)}"
        numbers = [
            number(value) for value in (found.sd_across, found.sd_within, *found.percentiles[: len(percentiles)])
        ]
        table.add_row(metric.heading, number(found.mean), between, *numbers)
    return table


def spreads_json(results: Mapping[str, Mapping[str, Spread]]) -> list[dict[str, Any]]:
    """The same rows as plain data: money in $, shares in [0, 1], NaN as null."""

    def plain(found: Spread) -> dict[str, Any]:
        values = {name: getattr(found, name) for name in ("mean", "low", "high", "sd_across", "sd_within")}
        percentiles = {str(share): value for share, value in zip(PERCENTILES, found.percentiles, strict=True)}
        return {name: or_null(value) for name, value in values.items()} | {"percentiles": percentiles}

    return [
        {
            "policy": label,
            "worlds": spreads["months"].worlds,
            "episodes": spreads["months"].episodes,
            "metrics": {name: plain(found) for name, found in spreads.items()},
        }
        for label, spreads in results.items()
    ]


def results_json(results: Mapping[str, Mapping[str, Estimate]]) -> list[dict[str, Any]]:
    """The same rows as plain data: money in $, shares in [0, 1], NaN as null."""

    def plain(e: Estimate) -> dict[str, float | None]:
        values = {"mean": e.mean, "sd": e.sd, "low": e.low, "high": e.high}
        return {name: or_null(value) for name, value in values.items()}

    return [
        {
            "policy": label,
            "episodes": estimates["months"].n,
            "metrics": {name: plain(e) for name, e in estimates.items()},
        }
        for label, estimates in results.items()
    ]


def published_json() -> list[dict[str, Any]]:
    """The published rows that stand beside the results."""
    rows = published_results()
    return [
        {"agent": row.agent, "runs": row.runs, "means": row.means, "sds": row.sds}
        for row in (rows[agent] for agent in BESIDE)
    ]
