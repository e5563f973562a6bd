"""Surfaces, grids and Sobol indices for people (rich) and for machines (JSON)."""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from arena_jax.analysis.metrics import METRICS
from arena_jax.analysis.sensitivity import SHOWN, Cell
from arena_jax.analysis.sobol import Index
from arena_jax.analysis.surface import (
    DEFAULT_MULTIPLE,
    DEFAULT_TOOL_COST,
    Crossing,
    Ranking,
    crossing,
    elasticities,
    scores,
    written_order,
)
from arena_jax.analysis.table import figure, interval, money, or_null, plain_estimate, plain_table, signed
from arena_jax.errors import ArenaError

MAX_POLICIES = len(string.ascii_uppercase)

Terms = Mapping[str, np.ndarray]  # policy -> `score_terms`


def check_letters(policies: Sequence[str]) -> None:
    """Refuse more policies than a map has letters for."""
    if len(policies) > MAX_POLICIES:
        raise ArenaError(f"at most {MAX_POLICIES} policies are ranked, got {len(policies)}")


def surface_json(terms: Terms, ranked: Ranking) -> dict[str, Any]:
    """Planes, elasticities and rankings; `means` [P][L][M] in $, `order` indices of policies, the best first."""
    return {
        "policies": [
            {
                "policy": label,
                "score": scores(found, DEFAULT_TOOL_COST, DEFAULT_MULTIPLE).mean(),
                "revenue": found[:, 0].mean(),
                "cash": found[:, 1].mean(),
                "calls": found[:, 2].mean(),
                "elasticities": {
                    name: {key: or_null(value) for key, value in vars(one).items()}
                    for name, one in elasticities(found).items()
                },
            }
            for label, found in terms.items()
        ],
        "tool_cost": ranked.tool_costs.tolist(),
        "revenue_multiple": ranked.multiples.tolist(),
        "means": ranked.means.tolist(),
        "order": ranked.order.tolist(),
        "clear": ranked.clear.tolist(),
        "tau": [[or_null(value) for value in row] for row in ranked.tau.tolist()],
        "crossings": _crossings(terms),
    }


def _crossings(terms: Terms) -> list[dict[str, Any]]:
    """Per pair of policies, by index, where on λ and on m they change places (`Crossing`), NaN as null."""
    found: list[dict[str, Any]] = []
    for (i, one), (j, other) in itertools.combinations(enumerate(terms.values()), 2):
        places = zip(("tool_cost", "revenue_multiple"), crossing(one, other), strict=True)
        found.append({"a": i, "b": j} | {name: _crossing(place) for name, place in places})
    return found


def _crossing(found: Crossing) -> dict[str, Any]:
    return {"outcome": found.outcome} | {name: or_null(getattr(found, name)) for name in ("value", "low", "high")}


def plane_rows(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """Per policy the plane of its mean score and the elasticities, as text by heading, from `surface_json`."""
    return [
        {
            "": letter,
            "Policy": one["policy"],
            "Score": money(one["score"]),
            "m ×": money(one["revenue"]),
            "plus cash": money(one["cash"]),
            "less λ ×": f"{one['calls']:,.1f} calls",
            "Elasticity in m": _span(*one["elasticities"]["revenue_multiple"].values()),
            "in λ": _span(*one["elasticities"]["tool_cost"].values()),
        }
        for letter, one in zip(string.ascii_uppercase, found["policies"], strict=False)
    ]


def map_rows(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """Per λ the rankings over m, as text by heading, from `surface_json`: `AC=B` where C's lead over B is not clear."""
    letters, multiples = string.ascii_uppercase, [f"m = {multiple:.4g}" for multiple in found["revenue_multiple"]]
    return [
        {"λ": money(tool_cost)}
        | {m: written_order(letters, o, c, ("", "=")) for m, o, c in zip(multiples, order, clear, strict=True)}
        for tool_cost, order, clear in zip(found["tool_cost"], found["order"], found["clear"], strict=True)
    ]


def surface_tables(found: Mapping[str, Any], title: str) -> list[Table | str]:
    """From `surface_json` the planes; for several policies where they change places, and the map of rankings; notes."""
    planes = _rows_table(plane_rows(found), title, left=("", "Policy"))
    planes.caption = (
        "Mean score = m × revenue of 12 months + cash − λ × calls, bankrupt episodes 0: a plane in λ and m. Score and "
        "elasticities (% of score for 1% more, 95% interval) at "
        f"λ = {money(DEFAULT_TOOL_COST)}, m = {DEFAULT_MULTIPLE:g}."
    )
    if len(found["policies"]) < 2:
        return [planes]
    tau = [value for row in found["tau"] for value in row if value is not None]
    note = (
        "=: the lead is not told from zero (95%, paired). Kendall's tau against the ranking at "
        f"({DEFAULT_TOOL_COST:,.0f}, {DEFAULT_MULTIPLE:g}): {_tau(min(tau, default=math.nan))} at the least, 1 on "
        f"{np.mean(np.array(tau) > 1 - 1e-12) if tau else 0:.0%} of the grid."
    )
    ranks = _rows_table(map_rows(found), "\nRanking by mean score, the best first", left=())
    return [planes, _changes_table(found), ranks, note]


def _rows_table(rows: Sequence[Mapping[str, str]], title: str, left: Sequence[str]) -> Table:
    table = plain_table(title)
    for heading in rows[0]:
        table.add_column(heading, justify="left" if heading in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row.values()))
    return table


def _changes_table(found: Mapping[str, Any]) -> Table:
    table = plain_table("\nWhere two policies change places")
    table.add_column("")
    table.add_column(f"λ at m = {DEFAULT_MULTIPLE:g}", justify="right")
    table.add_column(f"m at λ = {money(DEFAULT_TOOL_COST)}", justify="right")
    for pair in found["crossings"]:
        letters = f"{string.ascii_uppercase[pair['a']]}, {string.ascii_uppercase[pair['b']]}"
        table.add_row(letters, _place(pair["tool_cost"], money), _place(pair["revenue_multiple"], "{:.2f}".format))
    table.caption = (
        "In brackets 95% intervals (Fieller): there the lead is not told from zero. unclear: from 0 up it is told "
        "from zero on one side at the most."
    )
    return table


def _place(found: Mapping[str, Any], shown: Callable[[float], str]) -> str:
    if found["outcome"] != "at":
        return found["outcome"]
    value, low, high = (shown(found[name]) for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def grid_tables(grids: Mapping[str, Sequence[Cell]], size: str, own: Mapping[str, float]) -> list[Table | str]:
    """A table a policy, a row an environment; for several policies their ranking; a note with the grid's size.

    own: the values of the varied parameters that changes are counted from.
    """
    tables = [_grid_table(label, cells) for label, cells in grids.items()]
    base = ", ".join(f"{name} = {value:.6g}" for name, value in own.items())
    note = f"\n{size}. In brackets 95% intervals. Change: from {base}, paired on the same episodes."
    if len(grids) == 1:
        return [*tables, note]
    named = ", ".join(
        f"{letter}: {escape(label)}" for letter, label in zip(string.ascii_uppercase, grids, strict=False)
    )
    note += f"\n{named}; by mean score, the best first. tau: Kendall's, against the order at those values."
    return [*tables, _rankings_table(grids), note]


def _parameters_table(title: str, parameters: Sequence[str]) -> Table:
    table = plain_table(title)
    for name in parameters:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _grid_table(label: str, cells: Sequence[Cell]) -> Table:
    table = _parameters_table(f"\n{escape(label)}", list(cells[0].parameters))
    for name in SHOWN:
        table.add_column(METRICS[name].heading, justify="right", no_wrap=True)
        table.add_column("Change", justify="right", no_wrap=True)
    for cell in cells:
        row = [f"{value:.6g}" for value in cell.parameters.values()]
        for name in SHOWN:
            unit, found = METRICS[name].unit, cell.metrics[name]
            row.append(f"{figure(unit, found.mean)} ({interval(unit, found.low, found.high)})")
            row.append(signed(unit, plain_estimate(cell.differences[name])))
        table.add_row(*row)
    return table


def _rankings_table(grids: Mapping[str, Sequence[Cell]]) -> Table:
    cells = next(iter(grids.values()))
    table = _parameters_table("\nRanking", list(cells[0].parameters))
    table.add_column("", no_wrap=True)
    table.add_column("tau", justify="right", no_wrap=True)
    for cell, found in zip(cells, rankings(grids), strict=True):
        letters = "".join(string.ascii_uppercase[i] for i in found["order"])
        table.add_row(*[f"{value:.6g}" for value in cell.parameters.values()], letters, _tau(found["tau"]))
    return table


def rankings(grids: Mapping[str, Sequence[Cell]]) -> list[dict[str, Any]]:
    """Per environment the indices of the policies by mean score, the best first, and Kendall's tau (NaN: undefined)."""
    from scipy import stats

    found = []
    for cells in zip(*grids.values(), strict=True):
        means = np.array([cell.metrics["score"].mean for cell in cells])
        own = means - [cell.differences["score"].mean for cell in cells]
        tau = float(stats.kendalltau(means, own).statistic)
        found.append({"order": np.argsort(-means, kind="stable").tolist(), "tau": tau})
    return found


def grid_json(grids: Mapping[str, Sequence[Cell]]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [
        {
            "policy": label,
            "cells": [
                {
                    "parameters": cell.parameters,
                    "metrics": {name: plain_estimate(found) for name, found in cell.metrics.items()},
                    "differences": {name: plain_estimate(found) for name, found in cell.differences.items()},
                }
                for cell in cells
            ],
        }
        for label, cells in grids.items()
    ]


Indices = Mapping[str, Mapping[str, Index]]  # metric -> parameter


def sobol_tables(results: Mapping[str, Indices], size: str) -> list[Table]:
    """A table a policy: per parameter and metric the first-order and the total index."""
    tables = [_sobol_table(label, indices) for label, indices in results.items()]
    tables[-1].caption = (
        f"{size}. Shares of the variance of a metric's mean that a parameter explains alone (first) and with all its "
        "interactions (total), uniform over the ranges; in brackets 95% bootstrap intervals. Estimates, so they may "
        "fall below 0 or above 1: more points (--sobol) bring them nearer."
    )
    return tables


def _sobol_table(label: str, indices: Indices) -> Table:
    table = plain_table(f"\n{escape(label)}")
    table.add_column("", no_wrap=True)
    for name in SHOWN:
        table.add_column(f"{METRICS[name].heading}, first", justify="right", no_wrap=True)
        table.add_column("total", justify="right", no_wrap=True)
    for parameter in indices[SHOWN[0]]:
        row = [parameter]
        for found in (indices[name][parameter] for name in SHOWN):
            row.append(_span(found.first, found.first_low, found.first_high))
            row.append(_span(found.total, found.total_low, found.total_high))
        table.add_row(*row)
    return table


def sobol_json(results: Mapping[str, Indices]) -> list[dict[str, Any]]:
    """The same as plain data, NaN as null."""
    return [
        {
            "policy": label,
            "indices": {
                metric: {
                    parameter: {key: or_null(value) for key, value in vars(found).items()}
                    for parameter, found in by_parameter.items()
                }
                for metric, by_parameter in indices.items()
            },
        }
        for label, indices in results.items()
    ]


def _span(value: float | None, low: float | None, high: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} ({low:.3f} to {high:.3f})"


def _tau(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
