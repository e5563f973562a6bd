"""`arena-jax evaluate`: the paper's Table 1 for scripted policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from arena_jax.analysis.table import published_json, results_json, results_tables, spreads_json, spreads_tables
from arena_jax.arena import ENVIRONMENTS, make
from arena_jax.cli.cache import NoCache
from arena_jax.cli.output import print_json, progress, table_console
from arena_jax.evaluate import evaluate
from arena_jax.params import parse_overrides
from arena_jax.parts import Split, parse_shard
from arena_jax.rollout import DEFAULT_BATCH
from arena_jax.version import __version__
from arena_jax.worlds import FORMS, parse_worlds

EXAMPLES = """
Examples:

  arena-jax evaluate --policy greedy-equity:amount=20e6 --policy never-raise --episodes 10000

  arena-jax evaluate --policy cash-threshold:threshold=8e6,amount=12.6e6 --env-set noise=0 --json

  arena-jax evaluate --policy random --episodes 1000000 --out runs/random

  arena-jax evaluate --policy greedy-equity --episodes 1000 --scenarios generated:1000
"""


def evaluate_command(
    policy: Annotated[
        list[str],
        typer.Option(help="NAME[:option=value,...] or package.module:factory[:option=value,...]; repeatable."),
    ],
    episodes: Annotated[int, typer.Option(help="Episodes per policy, and per world.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the run; the same seed gives the same worlds.")] = 0,
    env_set: Annotated[list[str] | None, typer.Option(help="Parameter override NAME=VALUE; repeatable.")] = None,
    scenario: Annotated[
        Path | None, typer.Option(help="World of your own: a trajectory CSV or a TOML (arena-jax scenario new).")
    ] = None,
    scenarios: Annotated[
        str | None,
        typer.Option(help=f"Other trajectories for the same company and horizon: {escape(FORMS)}."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory for the records; an interrupted run resumes there.")
    ] = None,
    shard: Annotated[str, typer.Option(help="I/N plays the I-th of N shares of the parts.")] = "1/1",
    record: Annotated[
        list[str] | None, typer.Option(help="Field to write month by month; repeatable; see arena-jax list fields.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Episodes played at once.")] = DEFAULT_BATCH,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    no_cache: NoCache = False,
) -> None:
    """Play policies over many episodes and print the paper's Table 1 with 95% intervals.

    Over several worlds (--scenarios) it prints how the columns differ across worlds and within one.
    """
    env = make(scenario=scenario, **parse_overrides(env_set or []))
    share = parse_shard(shard)
    worlds = None if scenarios is None else parse_worlds(scenarios)
    split = Split(episodes, worlds.count if worlds else 1)
    total = len(policy) * sum(split.size(start) for start in split.starts(share))
    with progress(total, "episodes") as advance:
        results = evaluate(
            env,
            policy,
            episodes=episodes,
            scenarios=scenarios,
            seed=seed,
            batch=batch,
            out=out,
            shard=share,
            record=record or [],
            on_progress=advance,
        )
    if as_json:
        about = {
            "arena_jax": __version__,
            "seed": seed,
            "env_set": env_set or [],
            "scenario": scenario and str(scenario),
            "scenarios": worlds and {"worlds": worlds.count, **worlds.about},
        }
        if split.worlds > 1:
            print_json(about | {"results": spreads_json(results)})
        else:
            print_json(about | {"results": results_json(results), "published": published_json()})
        return
    changed = "".join(f", {pair}" for pair in env_set or [])
    where = f"{worlds.count:,} {worlds.about['kind']} worlds, " if worlds else f"{scenario}, " if scenario else ""
    title = f"{ENVIRONMENTS[0]}, arena_jax {__version__}, {where}seed {seed}{changed}"
    console = table_console()
    if split.worlds > 1:
        console.print(*spreads_tables(results, f"{title}, {episodes:,} episodes each", console.width), sep="\n")
    else:
        console.print(*results_tables(results, title, console.width), sep="\n")


evaluate_command.__doc__ = f"{evaluate_command.__doc__}\n{EXAMPLES}"
