"""`arena-jax evaluate`: the paper's Table 1 for scripted policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arena_jax.analysis.few_runs import MIN_TABLES, FewRuns
from arena_jax.analysis.few_runs_view import few_runs_json, few_runs_tables
from arena_jax.analysis.table import published_json, results_json, results_tables, spreads_json, spreads_tables
from arena_jax.arena import make
from arena_jax.batch_play import DEFAULT_BATCH
from arena_jax.cli.cache import NoCache
from arena_jax.cli.options import AsJson, Batch, EnvSet, Policies, Scenarios, Seed, World
from arena_jax.cli.output import print_json, progress, run_about, run_title, table_console
from arena_jax.errors import ArenaError, check_count
from arena_jax.evaluation import evaluate
from arena_jax.params import parse_overrides
from arena_jax.parts import Split, parse_shard
from arena_jax.worlds import parse_worlds

EXAMPLES = """
Examples:

  arena-jax evaluate --policy greedy-equity:amount=20e6 --policy never-raise --episodes 10000

  arena-jax evaluate --policy cash-threshold:threshold=8e6,amount=12.6e6 --env-set noise=0 --json

  arena-jax evaluate --policy random --episodes 1000000 --out runs/random

  arena-jax evaluate --policy greedy-equity --episodes 1000 --scenarios generated:1000

  arena-jax evaluate --policy cash-threshold --runs 5     # and what tables of five runs would have shown
"""


def evaluate_command(
    policy: Policies,
    episodes: Annotated[int, typer.Option(help="Episodes per policy, and per world.")] = 10_000,
    seed: Seed = 0,
    env_set: EnvSet = None,
    scenario: World = None,
    scenarios: Scenarios = None,
    runs: Annotated[
        int | None, typer.Option(help="Also print what tables of so few runs would have shown; 5 as in the paper.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory for the records; an interrupted run resumes there.")
    ] = None,
    shard: Annotated[str, typer.Option(help="I/N plays the I-th of N shares of the parts.")] = "1/1",
    record: Annotated[
        list[str] | None, typer.Option(help="Field to write month by month; repeatable; see arena-jax list fields.")
    ] = None,
    batch: Batch = DEFAULT_BATCH,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Play policies over many episodes and print the paper's Table 1 with 95% intervals.

    Over several worlds (--scenarios) it prints how the columns differ across worlds and within one.
    """
    env = make(scenario=scenario, **parse_overrides(env_set or []))
    share = parse_shard(shard)
    worlds = None if scenarios is None else parse_worlds(scenarios)
    split = Split(episodes, worlds.count if worlds else 1)
    each = sum(split.size(start) for start in split.starts(share))
    if runs is not None:
        if split.worlds > 1:
            raise ArenaError("--runs is about tables of one world; leave out --scenarios or name one world")
        if each < 2 * MIN_TABLES:
            raise ArenaError(f"--runs needs {2 * MIN_TABLES} episodes at the least, got {each}")
        check_count(f"runs (with {each:,} episodes; {MIN_TABLES} tables at least)", runs, 2, each // MIN_TABLES)
    few = {spec: FewRuns(runs) for spec in policy} if runs else {}
    with progress(len(policy) * each, "episodes") as advance:
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
            on_part=lambda spec, part: few[spec].add(part) if few else None,
            on_progress=advance,
        )
    samplings = {spec: tables.sampling(results[spec]) for spec, tables in few.items()}
    if as_json:
        about = run_about(seed, env_set, scenario, worlds)
        if split.worlds > 1:
            print_json(about | {"results": spreads_json(results)})
        else:
            about |= {"results": results_json(results), "published": published_json()}
            print_json(about | ({"few_runs": few_runs_json(samplings)} if few else {}))
        return
    title = run_title(seed, env_set, scenario, worlds)
    console = table_console()
    if split.worlds > 1:
        title = f"{title}, {episodes:,} episodes each"
        console.print(*spreads_tables(results, title, console.width, env.params.disciplined), sep="\n")
    else:
        tables = results_tables(results, title, console.width, disciplined=env.params.disciplined)
        console.print(*tables, *few_runs_tables(samplings), sep="\n")


evaluate_command.__doc__ = f"{evaluate_command.__doc__}\n{EXAMPLES}"
