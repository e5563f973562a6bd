"""Failure patterns for people (rich) and for machines (JSON)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from arena_jax.analysis.failures import FIGURES, GROUPS, Failures, published_failures
from arena_jax.analysis.survival import Survival
from arena_jax.analysis.table import figure, interval, or_null, plain_table

CAPTION = (
    "Mean or ratio of sums, and its 95% interval; months count from 0. Cash peak: the month with the highest opening "
    "cash before any proceeds; its figures are over companies that asked. External calls: market and records; internal "
    "ones: cash and projections. Paper: RQ3, 10 survived and 10 failed runs. Survival: Kaplan-Meier, exponential "
    "Greenwood interval, at 100% that of a share of the companies still observed."
)


def failures_rows(found: Failures) -> list[dict[str, str]]:
    """The figures of one set of records as text: a row a figure, survivors and bankrupt companies with the paper's."""
    published = published_failures()
    rows = []
    for name, metric in FIGURES.items():
        row = {"": metric.heading}
        for group in GROUPS:
            one = found.groups[group][name]
            row[f"{group.capitalize()} ({found.sizes[group]:,})"] = _cell(metric.unit, one.mean, one.low, one.high)
            told = published.get(name, {}).get(group, "")
            row[f"Paper, {group}"] = told if isinstance(told, str) else figure(metric.unit, told)
        rows.append(row)
    return rows


def _cell(unit: str, mean: float, low: float, high: float) -> str:
    text = figure(unit, mean)
    return text if math.isnan(low) else f"{text} ({interval(unit, low, high)})"


def survival_line(found: Survival, months: Sequence[int]) -> str:
    """The survival function at some months, and the median, in one line."""
    points = [f"month {month}: {_cell('share', *at)}" for month in months if (at := found.at(month)) is not None]
    median = "more than half live on" if found.median is None else f"half are bankrupt by month {found.median}"
    return "; ".join([*points, median])


def notes(found: Failures, months: Sequence[int]) -> str:
    """What stands below the table of one set of records."""
    stopped = f" {found.stopped} whose player stopped are in neither group." if found.stopped else ""
    pooled = " No intervals: the same seeds, played by several, are not independent." if found.is_pooled else ""
    return f"Alive after {survival_line(found.survival, months)}.{stopped}{pooled}"


def failures_heading(found: Failures) -> str:
    """The name of one set of records, with n and seeds."""
    return f"{found.label}, n {found.n:,}" + (f", {found.seeds}" if found.seeds else "")


def failures_tables(found: Sequence[Failures], title: str, months: Sequence[int]) -> list[Table]:
    """A table for each set of records; `months`: where the survival function is told."""
    tables: list[Table] = []
    for one in found:
        heading = escape(failures_heading(one))
        table = plain_table(f"{escape(title)}\n{heading}" if not tables else heading)
        rows = failures_rows(one)
        for name in rows[0]:
            table.add_column(name, justify="left" if name == "" else "right", overflow="fold")
        for row in rows:
            table.add_row(*map(escape, row.values()))
        table.caption = notes(one, months)
        tables.append(table)
    tables[-1].caption = f"{tables[-1].caption}\n\n{CAPTION}"
    return tables


def failures_json(found: Sequence[Failures]) -> list[dict[str, Any]]:
    """The same figures as plain data: money in $, shares in [0, 1], NaN as null; the whole survival function."""
    return [
        {
            "label": one.label,
            "seeds": one.seeds or None,
            "episodes": one.n,
            "stopped": one.stopped,
            **{
                group: {
                    "episodes": one.sizes[group],
                    "figures": {
                        name: {key: or_null(getattr(estimate, key)) for key in ("mean", "low", "high")}
                        for name, estimate in one.groups[group].items()
                    },
                }
                for group in GROUPS
            },
            "survival": {
                "median": one.survival.median,
                **{name: [*map(or_null, getattr(one.survival, name).tolist())] for name in ("share", "low", "high")},
            },
        }
        for one in found
    ]
