"""How one policy answers to lambda and m, and what information is worth to it.

    python -m benchmarks.terms --out benchmarks/results/terms.json

The policy (`ppo-terms`) sees the terms of the score and was trained over both, on the disciplined variant, a quarter of
the time without tools. It is played over a grid of them in the default world, with its tools and without any, over the
same episodes: the value of information under the same terms is the paired difference. It is this policy's: a best one
would gain nothing below zero, since it could leave tools alone, and what it would gain this does not show.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.table import Table

import arena_jax
from arena_jax.analysis.compare import paired
from arena_jax.analysis.table import money, plain_table
from arena_jax.cli.output import progress, table_console
from arena_jax.draws import MAX_SEED
from arena_jax.errors import ArenaError, check_count
from arena_jax.files import check_folder
from arena_jax.policies import source_digest
from arena_jax.structs import TOOLS, Record
from benchmarks.harness import main, result_path, surroundings, write_json

ENVIRONMENT = "EnterpriseArena-Disciplined-v1"
COSTS = (0.0, 5e3, 20e3, 80e3)  # $ a call; 5e3 is the paper's
MULTIPLES = (2.0, 5.0, 10.0)  # x revenue; 5 is the paper's


def play(policy: Any, seed: int, episodes: int, **terms: float) -> Record:
    """Episodes of the policy under the terms."""
    env = arena_jax.make(ENVIRONMENT, **terms)
    return arena_jax.rollout(env, policy, jax.random.key(seed), episodes)


def answer(record: Record) -> dict[str, Any]:
    """What the policy did: means over the episodes."""
    months = record.months_played.astype(np.float64)
    return {
        "calls_a_month": {tool: float((getattr(record, tool) / months).mean()) for tool in TOOLS},
        "requests": float(record.requests.mean()),
        "raised_equity": float(record.received_equity.mean()),
        "raised_debt": float(record.received_debt.mean()),
        "ownership_kept": float(record.ownership_kept.mean()),
        "survived": float(record.survived.mean()),
        "value_kept": float(record.value_kept.mean()),
    }


def worth(allowed: Record, forbidden: Record) -> dict[str, float]:
    """What the value kept gains by tools over the same episodes: $, mean and 95% interval."""
    gain = paired(*[record.value_kept.astype(np.float64) for record in (forbidden, allowed)])
    return {"mean": gain.mean, "low": gain.low, "high": gain.high}


def measure(policy: str, episodes: int, seed: int) -> dict[str, Any]:
    """A row for each pair of terms: how the policy answers, what it keeps without tools, and what they gain it."""
    made = arena_jax.make_policy(policy)
    if not getattr(made, "shows_terms", False):
        raise ArenaError(f"{policy} does not see lambda and m, so it can't answer to them; ppo-terms does")
    rows = []
    with progress(2 * len(MULTIPLES) * len(COSTS), "plays") as advance:
        for multiple, cost in itertools.product(MULTIPLES, COSTS):
            terms = {"tool_cost": cost, "revenue_multiple": multiple}
            allowed = play(made, seed, episodes, **terms)
            forbidden = play(made, seed, episodes, tool_budget=0, **terms)
            without = {"value_kept_without_tools": float(forbidden.value_kept.mean())}
            rows.append(terms | answer(allowed) | without | {"worth_of_tools": worth(allowed, forbidden)})
            advance(2)
    return {"policy": policy, "source": source_digest(policy), "episodes": episodes, "seed": seed, "answers": rows}


def cells(row: dict[str, Any]) -> dict[str, str]:
    """A row as text by heading."""
    gain = row["worth_of_tools"]
    return {
        "m": f"{row['revenue_multiple']:g}",
        "λ": money(row["tool_cost"]),
        "calls a month": f"{sum(row['calls_a_month'].values()):.2f}",
        "equity raised": money(row["raised_equity"]),
        "debt raised": money(row["raised_debt"]),
        "survived": f"{row['survived']:.1%}",
        "value kept": money(row["value_kept"]),
        "without tools": money(row["value_kept_without_tools"]),
        "worth of tools (95%)": f"{money(gain['mean'])} ({money(gain['low'])} to {money(gain['high'])})",
    }


def table(found: dict[str, Any]) -> Table:
    """For people."""
    rows = [cells(row) for row in found["answers"]]
    made = plain_table(f"{found['policy']} on {ENVIRONMENT}, {found['episodes']:,} episodes")
    for heading in rows[0]:
        made.add_column(heading, overflow="fold")
    for row in rows:
        made.add_row(*row.values())
    return made


def command(
    policy: Annotated[str, typer.Option(help="A policy that sees the terms.")] = "ppo-terms",
    episodes: Annotated[int, typer.Option(help="Episodes of each cell.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed, not one of training.")] = 1000,
    out: Annotated[Path | None, typer.Option(help="Results as JSON.")] = None,
) -> None:
    """How a policy answers to lambda and m."""
    check_count("episodes", episodes, 2, 10**6)
    check_count("seed", seed, 0, MAX_SEED)
    path = out or result_path("terms")
    check_folder(path.parent)
    found = measure(policy, episodes, seed)
    write_json(path, surroundings() | found)
    table_console().print(table(found), f"written to {path}", sep="\n")


if __name__ == "__main__":
    main(command)
