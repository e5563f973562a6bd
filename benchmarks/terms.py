"""How one policy answers to lambda and m, and what information is worth to it.

    python -m benchmarks.terms --out benchmarks/results/terms.json

The policy (`ppo-terms`) sees the terms of the score and was trained over both, on the disciplined variant, a quarter of
the time without tools. It is played over a grid of them, and with tools free, priced and forbidden: the value of
information is what the objective gains over the same episodes without tools. It is this policy's: what a better one
would make of the same tools it does not show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.table import Table

import arena_jax
from arena_jax.analysis.compare import paired
from arena_jax.analysis.table import money
from arena_jax.cli.output import progress, table_console
from arena_jax.draws import MAX_SEED
from arena_jax.errors import ArenaError, check_count
from arena_jax.structs import TOOLS, Record
from benchmarks.harness import main, result_path, surroundings, write_json

ENVIRONMENT = "EnterpriseArena-Disciplined-v1"
COSTS = (0.0, 5e3, 20e3, 80e3)  # $ a call
MULTIPLES = (2.0, 5.0, 10.0)  # x revenue
PRICE, MULTIPLE = 5e3, 5.0  # the paper's


def play(policy: Any, seed: int, episodes: int, **terms: float) -> Record:
    """Episodes of the policy under the terms."""
    env = arena_jax.make(ENVIRONMENT, **terms)
    return arena_jax.rollout(env, policy, jax.random.key(seed), episodes)


def answer(record: Record, tool_cost: float, revenue_multiple: float) -> dict[str, Any]:
    """What the policy did under the terms: means over the episodes."""
    months = record.months_played.astype(np.float64)
    return {
        "tool_cost": tool_cost,
        "revenue_multiple": revenue_multiple,
        "calls_a_month": {tool: float((getattr(record, tool) / months).mean()) for tool in TOOLS},
        "requests": float(record.requests.mean()),
        "raised_equity": float(record.received_equity.mean()),
        "raised_debt": float(record.received_debt.mean()),
        "ownership_kept": float(record.ownership_kept.mean()),
        "survived": float(record.survived.mean()),
        "value_kept": float(record.value_kept.mean()),
    }


def worth(free: Record, priced: Record, forbidden: Record) -> dict[str, Any]:
    """Value kept with tools free, priced and forbidden, and the paired gains over none ($ and 95% interval)."""
    plays = {"free": free, "priced": priced, "forbidden": forbidden}
    kept = {name: record.value_kept.astype(np.float64) for name, record in plays.items()}
    gains = {name: paired(kept["forbidden"], kept[name]) for name in ("free", "priced")}
    return {
        "value_kept": {name: float(np.mean(values)) for name, values in kept.items()},
        "gain": {name: {"mean": g.mean, "low": g.low, "high": g.high} for name, g in gains.items()},
    }


def measure(policy: str, episodes: int, seed: int) -> dict[str, Any]:
    """The grid, and the worth of information at each m."""
    made = arena_jax.make_policy(policy)
    if not getattr(made, "shows_terms", False):
        raise ArenaError(f"{policy} does not see lambda and m, so it can't answer to them; ppo-terms does")
    rows, worths = [], []
    with progress(len(MULTIPLES) * (len(COSTS) + 1), "plays") as advance:
        for multiple in MULTIPLES:
            played = {}
            for cost in COSTS:
                played[cost] = play(made, seed, episodes, tool_cost=cost, revenue_multiple=multiple)
                rows.append(answer(played[cost], cost, multiple))
                advance(1)
            without = play(made, seed, episodes, tool_cost=PRICE, revenue_multiple=multiple, tool_budget=0)
            worths.append({"revenue_multiple": multiple} | worth(played[0.0], played[PRICE], without))
            advance(1)
    return {"policy": policy, "episodes": episodes, "seed": seed, "answers": rows, "worth": worths}


def tables(found: dict[str, Any]) -> list[Table]:
    """For people."""
    answers = Table("m", "lambda", "calls a month", "requests", "equity", "debt", "ownership kept", "survived", "kept")
    answers.title = f"{found['policy']} on {ENVIRONMENT}, {found['episodes']:,} episodes"
    for row in found["answers"]:
        answers.add_row(
            f"{row['revenue_multiple']:g}",
            money(row["tool_cost"]),
            f"{sum(row['calls_a_month'].values()):.2f}",
            f"{row['requests']:.1f}",
            money(row["raised_equity"]),
            money(row["raised_debt"]),
            f"{row['ownership_kept']:.1%}",
            f"{row['survived']:.1%}",
            money(row["value_kept"]),
        )
    worths = Table("m", "free", "priced", "forbidden", "gain free", "gain priced", title="Value of information")
    for row in found["worth"]:
        gains = [f"{money(g['mean'])} ({money(g['low'])} to {money(g['high'])})" for g in row["gain"].values()]
        worths.add_row(f"{row['revenue_multiple']:g}", *[money(v) for v in row["value_kept"].values()], *gains)
    return [answers, worths]


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
    found = measure(policy, episodes, seed)
    write_json(path, surroundings() | found)
    table_console().print(*tables(found), f"written to {path}", sep="\n")


if __name__ == "__main__":
    main(command)
