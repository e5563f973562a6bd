"""`arena-jax list`: what there is, from the tables that the code itself reads."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.markup import escape

from arena_jax.analysis.table import plain_table
from arena_jax.cli.output import print_json, table_console
from arena_jax.decisions.layout import ACTIONS, observation_table
from arena_jax.errors import unknown
from arena_jax.params import FIELDS
from arena_jax.policies import POLICIES, TRAINED
from arena_jax.structs import TOOLS
from arena_jax.tools import DOCUMENTS, INDICATORS, QUANTITIES, TOOL_HELP
from arena_jax.trajectory import RECORDERS

Rows = list[dict[str, Any]]


def _policies() -> Rows:
    rows = []
    for name, policy in POLICIES.items():
        options = [
            f"{field.name}={_plain(field.default)} ({field.metadata['unit']})" for field in dataclasses.fields(policy)
        ]
        about = (inspect.getdoc(policy) or "").split("\n\n")[0].replace("\n", " ")
        rows.append({"policy": name, "options": ", ".join(options), "about": about})
    trained = [{"policy": name, "options": "weights=FILE", "about": about} for name, about in TRAINED.items()]
    return rows + trained


def _tools() -> Rows:
    arguments = {
        "review_financial_records": "document: " + ", ".join(DOCUMENTS),
        "analyze_market_conditions": "indicators: " + ", ".join(INDICATORS),
        "conduct_cashflow_projection": "assumptions, horizon up to 36 months",
    }
    return [{"tool": name, "argument": arguments.get(name, ""), "shows": TOOL_HELP[name]} for name in TOOLS]


def _parameters() -> Rows:
    return [
        {
            "parameter": name,
            "default": _plain(field.default),
            "unit": field.metadata["unit"],
            "range": f"{_plain(field.metadata['low'])} to {_plain(field.metadata['high'])}",
            "source": field.metadata["source"],
            "about": field.metadata["about"],
        }
        for name, field in FIELDS.items()
    ]


def _quantities() -> Rows:
    return [
        {"quantity": name, "unit": q.unit, "scale": _plain(q.scale), "tool": TOOLS[q.tool], "about": q.about}
        for name, q in QUANTITIES.items()
    ]


def _fields() -> Rows:
    return [{"field": name} for name in RECORDERS]


def _decisions() -> Rows:
    return [{"action": number, "decision": name} for number, name in enumerate(ACTIONS)]


def _layout() -> Rows:
    return [
        {"index": index, "entry": entry.name, "unit": entry.unit, "scale": _plain(entry.scale), "about": entry.about}
        for index, entry in enumerate(observation_table(max_pending=1, shows_terms=False))
    ]


def _plain(value: Any) -> str:
    """A default or limit as one types it: 20e6, 0.01, true."""
    if isinstance(value, bool | str):
        return str(value).lower()
    if abs(value) >= 1e6:
        exponent = 9 if abs(value) >= 1e9 else 6
        return f"{value / 10**exponent:.6g}e{exponent}"
    return f"{value:.6g}"


LISTS: dict[str, Callable[[], Rows]] = {
    "policies": _policies,
    "tools": _tools,
    "parameters": _parameters,
    "quantities": _quantities,
    "fields": _fields,
    "decisions": _decisions,
    "layout": _layout,
}


def list_command(
    what: Annotated[str, typer.Argument(metavar="|".join(LISTS), help="What to list.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List policies, tools, parameters (unit, range, provenance), quantities of the observation, or record fields;
    decisions and flat observation of the world for reinforcement learning.

    Examples:

      arena-jax list parameters

      arena-jax list policies --json
    """
    if what not in LISTS:
        raise unknown("list", what, LISTS)
    rows = LISTS[what]()
    if as_json:
        print_json(rows)
        return
    table = plain_table()
    for heading in rows[0]:
        table.add_column(heading)
    for row in rows:
        table.add_row(*[escape(str(value)) for value in row.values()])
    table_console().print(table)
