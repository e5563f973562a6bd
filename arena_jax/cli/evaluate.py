"""`arena-jax evaluate`: the paper's Table 1 for scripted policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from arena_jax.analysis.few_runs import MIN_TABLES, FewRuns
from arena_jax.analysis.few_runs_view import few_runs_json, few_runs_tables
from arena_jax.analysis.table import published_json, results_json, results_tables, spreads_json, spreads_tables
from arena_jax.arena import make
from arena_jax.batch_play import DEFAULT_BATCH
from arena_jax.cli.cache import NoCache
from arena_jax.cli.cluster import CPUS, GPUS, Cluster, RayAddress, RayCpus, RayGpus, cluster
from arena_jax.cli.options import AsJson, Batch, EnvSet, Policies, Scenarios, Seed, World
from arena_jax.cli.output import note_training, print_json, progress, run_about, run_title, table_console
from arena_jax.errors import ArenaError, check_count
from arena_jax.evaluation import Job, play_shard
from arena_jax.params import parse_overrides
from arena_jax.parts import open_run, parse_shard
from arena_jax.trajectory import check_fields

EXAMPLES = """
Examples:

  arena-jax evaluate --policy greedy-equity:amount=20e6 --policy never-raise --episodes 10000

  arena-jax evaluate --policy cash-threshold:threshold=8e6,amount=12.6e6 --env-set noise=0 --json

  arena-jax evaluate --policy random --episodes 1000000 --out runs/random

  arena-jax evaluate --policy greedy-equity --episodes 1000 --scenarios generated:1000

  arena-jax evaluate --policy cash-threshold --runs 5     # and what tables of five runs would have shown

  arena-jax evaluate --policy random --episodes 100000000 --out /shared/random --ray auto --shards 500
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
    ray: RayAddress = None,
    shards: Annotated[
        int | None, typer.Option(help="With --ray: tasks to play in; one for each part if left out.")
    ] = None,
    ray_cpus: RayCpus = CPUS,
    ray_gpus: RayGpus = GPUS,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Play policies over many episodes and print the paper's Table 1 with 95% intervals.

    Over several worlds (--scenarios) it prints how the columns differ across worlds and within one.
    """
    share = parse_shard(shard)
    if ray is None and shards is not None:
        raise ArenaError("--shards is the number of Ray's tasks: give --ray, or --shard I/N to play one share here")
    if ray is not None and (out is None or share != (1, 1)):
        raise ArenaError("--ray needs --out, a run directory that all workers see, and no --shard")
    env = make(scenario=scenario, **parse_overrides(env_set or []))
    note_training(policy, env)
    job = Job(env, tuple(policy), episodes, scenarios, seed, batch, check_fields(record or []))
    job.check_played(out, share)
    split, worlds = job.split, job.worlds
    each = sum(split.size(start) for start in split.starts(share))
    tasks = len(split.starts()) if shards is None else shards
    check_count("shards", tasks, 1, len(split.starts()))
    few = _few_runs(policy, runs, each, split.worlds)
    with cluster(ray, ray_cpus, ray_gpus, no_cache) as workers, progress(len(policy) * each, "episodes") as advance:
        if workers and out:
            _play_on(workers, job, out.absolute(), tasks, advance)
        elif out:
            open_run(out, job.manifest(share))
        results = job.estimates(
            out,
            share,
            on_part=lambda spec, part: few[spec].add(part) if few else None,
            on_progress=(lambda count: None) if workers else advance,
            is_played=workers is not None,
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


def _few_runs(policies: Sequence[str], runs: int | None, episodes: int, worlds: int) -> dict[str, FewRuns]:
    """What cuts each policy's episodes into tables of so few runs; nothing if that is not asked for."""
    if runs is None:
        return {}
    if worlds > 1:
        raise ArenaError("--runs is about tables of one world; leave out --scenarios or name one world")
    if episodes < 2 * MIN_TABLES:
        raise ArenaError(f"--runs needs {2 * MIN_TABLES} episodes at the least, got {episodes}")
    check_count(f"runs (with {episodes:,} episodes; {MIN_TABLES} tables at least)", runs, 2, episodes // MIN_TABLES)
    return {spec: FewRuns(runs) for spec in policies}


def _play_on(workers: Cluster, job: Job, out: Path, tasks: int, on_progress: Callable[[int], None]) -> None:
    """Have Ray's workers play what is missing in a run directory, whose manifest says what machines they are."""
    open_run(out, next(workers.map(Job.manifest, [(job,)])))
    for episodes in workers.map(play_shard, [((i, tasks),) for i in range(1, tasks + 1)], (job, out)):
        on_progress(episodes)


evaluate_command.__doc__ = f"{evaluate_command.__doc__}\n{EXAMPLES}"
