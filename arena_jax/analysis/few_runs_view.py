"""What tables of a few runs would have shown, for people (rich) and for machines (JSON)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from arena_jax.analysis.few_runs import PERCENTILES, Sampling
from arena_jax.analysis.metrics import METRICS
from arena_jax.analysis.table import TABLE_1, figure, plain_table

_MOST_STEPS = 10  # runs whose steps fit a table

Samplings = Mapping[str, Mapping[str, Sampling]]  # policy -> metric


def few_runs_tables(results: Samplings) -> list[Table]:
    """Per policy the percentiles of every column; then, of every share, the probability of each step."""
    tables = []
    for label, samplings in results.items():
        runs, count = samplings["months"].runs, samplings["months"].tables
        table = plain_table(f"\n{escape(label)}: what a table of {runs} runs shows")
        table.add_column("", no_wrap=True)
        for heading in ("All episodes", *(f"{share:g}%" for share in PERCENTILES)):
            table.add_column(heading, justify="right", no_wrap=True)
        for name in TABLE_1:
            found, metric = samplings[name], METRICS[name]
            table.add_row(metric.heading, *[figure(metric.unit, value) for value in (found.mean, *found.percentiles)])
        table.caption = f"percentiles of the figures of {count:,} tables of {runs} runs each, which share no episode."
        tables.append(table)
        if runs <= _MOST_STEPS:
            tables.append(_steps_table(samplings))
    return tables


def _steps_table(samplings: Mapping[str, Sampling]) -> Table:
    runs = samplings["months"].runs
    table = plain_table(f"\nProbability that a table of {runs} runs says")
    table.add_column("", no_wrap=True)
    for k in range(runs + 1):
        table.add_column(f"{k / runs:.0%}", justify="right", no_wrap=True)
    for name, found in samplings.items():
        if METRICS[name].is_share:
            table.add_row(METRICS[name].heading, *[figure("share", step) for step in found.steps])
    return table


def few_runs_json(results: Samplings) -> list[dict[str, Any]]:
    """The same as plain data: percentiles by name, steps[k] the probability of k runs in all."""
    return [
        {
            "policy": label,
            "runs": samplings["months"].runs,
            "tables": samplings["months"].tables,
            "metrics": {
                name: {
                    "mean": found.mean,
                    "percentiles": {
                        f"{share:g}": value for share, value in zip(PERCENTILES, found.percentiles, strict=True)
                    },
                    "steps": list(found.steps),
                }
                for name, found in samplings.items()
            },
        }
        for label, samplings in results.items()
    ]
