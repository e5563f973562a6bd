"""`arena-jax sensitivity`: what do λ and m, or any other parameter, do to the results?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from arena_jax.analysis.grid_files import grid_manifest, keep_chunk, kept_chunk, open_grid
from arena_jax.analysis.sensitivity import (
    BATCH,
    Chunk,
    Range,
    chunk_environments,
    grid,
    grid_cells,
    parse_ranges,
    plan,
    play_environments,
    play_own,
    play_terms,
)
from arena_jax.analysis.sensitivity_view import (
    check_letters,
    grid_json,
    grid_tables,
    sobol_json,
    sobol_tables,
    surface_json,
    surface_tables,
)
from arena_jax.analysis.sobol import saltelli, sobol_indices
from arena_jax.analysis.surface import ranking
from arena_jax.arena import make
from arena_jax.cli.cache import NoCache
from arena_jax.cli.cluster import CPUS, GPUS, RayAddress, RayCpus, RayGpus, cluster
from arena_jax.cli.options import AsJson, Batch, EnvSet, Policies, Seed, World
from arena_jax.cli.output import note_training, print_json, progress, run_about, run_title, table_console
from arena_jax.draws import MAX_SEED
from arena_jax.errors import ArenaError, check_count
from arena_jax.folders import clear_left
from arena_jax.params import Params, parse_overrides
from arena_jax.policies import make_policies

# λ and m, and what of them is looked at if nothing is said
SCORING = {"tool_cost": "tool_cost=0:50000:11", "revenue_multiple": "revenue_multiple=0:10:11"}


def sensitivity_command(
    policy: Policies,
    param: Annotated[
        list[str] | None,
        typer.Option(help="NAME=LO:HI:N varies a parameter over N values (NAME=LO:HI with --sobol); repeatable."),
    ] = None,
    sobol: Annotated[
        int | None, typer.Option(help="Sobol indices of the parameters from so many samples, a power of 2.")
    ] = None,
    episodes: Annotated[int, typer.Option(help="Episodes per policy and environment.")] = 2_000,
    seed: Seed = 0,
    env_set: EnvSet = None,
    scenario: World = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for what was played of a grid; an interrupted one goes on there.")
    ] = None,
    batch: Batch = BATCH,
    ray: RayAddress = None,
    ray_cpus: RayCpus = CPUS,
    ray_gpus: RayGpus = GPUS,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Show how results depend on λ and m, or on any parameters.

    λ (tool_cost) and m (revenue_multiple) change no decision, so one play of each policy gives the whole surface: its
    elasticities, and where the ranking of the policies changes. Other parameters are played anew, all environments
    over the same episodes, in chunks that fit in memory.

    Examples:

      arena-jax sensitivity --policy prudent-cfo --policy greedy-equity --policy information-hungry

      arena-jax sensitivity --policy cash-threshold --param delay_max=1:6:6 --param noise=0:2:5

      arena-jax sensitivity --policy cash-threshold --param equity_logit=0:2 --param renewal_rate=0.75:0.8 --sobol 256

      arena-jax sensitivity --policy cash-threshold --param delay_max=1:6:6 --param noise=0:2:9 --out runs/g --ray
    """
    ranges = parse_ranges(param or [], with_count=sobol is None)
    is_surface = sobol is None and all(one.name in SCORING for one in ranges)
    if is_surface and (ray is not None or out is not None):
        raise ArenaError("λ and m change no decision and are played once: --out and --ray are for other parameters")
    if ray is not None and out is None:
        raise ArenaError("--ray needs --out, a folder that all workers see")
    overrides = parse_overrides(env_set or [])
    if taken := next((one.name for one in ranges if one.name in overrides), None):
        raise ArenaError(f"parameter {taken} is both set (--env-set) and varied (--param)")
    make_policies(policy)
    check_count("seed", seed, 0, MAX_SEED)
    check_letters(policy)
    about = run_about(seed, env_set, scenario) | {"episodes": episodes}
    title = f"{run_title(seed, env_set, scenario)}, {episodes:,} episodes"
    env, console = make(scenario=scenario, **overrides), table_console()
    note_training(policy, env)
    if is_surface:
        with progress(len(policy) * episodes, "episodes") as advance:
            terms = play_terms(env, policy, episodes=episodes, seed=seed, batch=batch, on_progress=advance)
        ranges = ranges or parse_ranges([text for name, text in SCORING.items() if name not in overrides])
        ranked = ranking(terms, *_scoring_axes(ranges, env.params))
        found = surface_json(terms, ranked)
        if as_json:
            print_json(about | found)
        else:
            console.print(*surface_tables(found, title), sep="\n", highlight=False)
        return
    values = grid(ranges) if sobol is None else saltelli(ranges, sobol, seed)
    size = plan(env, len(values[ranges[0].name]), episodes, batch)
    about |= {"size": vars(size) | {"calls": size.calls}}
    settings: dict[str, Any] = {
        "values": values, "episodes": episodes, "seed": seed, "scenario": scenario and scenario.absolute(),
        "overrides": overrides, "batch": batch,
    }  # fmt: skip
    play_environments(policy[0], **settings)  # refuses bad values before anything is written
    with (
        cluster(ray, ray_cpus, ray_gpus, no_cache) as workers,
        progress(len(policy) * (size.environments + (sobol is None)) * episodes, f"{size}; episodes") as advance,
    ):
        first = 0 if sobol is None else 1  # indices are not compared with the environment as it is
        numbers = range(first, len(chunk_environments(values, episodes, batch)) + 1)
        if out is not None:
            common = (out.absolute(), policy, settings)
            manifest = next(workers.map(grid_manifest, [common[1:]])) if workers else grid_manifest(*common[1:])
            open_grid(out, manifest)
            if workers:
                for count in workers.map(keep_chunk, list(product(range(len(policy)), numbers)), common):
                    advance(count)

        def kept(spec: str, number: int) -> Chunk:
            found = kept_chunk(*common, policy.index(spec), number, is_played=workers is not None)
            if not workers:
                advance(len(found[0]) * episodes)
            return found

        def played(spec: str) -> Iterator[Chunk]:
            if out is not None:
                return (kept(spec, number) for number in numbers if number)
            return play_environments(spec, **settings, on_progress=advance)

        def own(spec: str) -> dict[str, np.ndarray]:
            if out is not None:
                return {name: found[0] for name, found in kept(spec, 0)[1].items()}
            found = play_own(spec, episodes=episodes, seed=seed, scenario=settings["scenario"], overrides=overrides)
            advance(episodes)
            return found

        tables: Sequence[Table | str]
        if sobol is None:
            cells = {spec: grid_cells(values, own(spec), played(spec)) for spec in policy}
            defaults = {one.name: float(getattr(env.params, one.name)) for one in ranges}
            rows, tables = grid_json(cells), grid_tables(cells, str(size), defaults)
        else:
            indices = {spec: sobol_indices(played(spec), values, sobol) for spec in policy}
            rows, tables = sobol_json(indices), sobol_tables(indices, str(size))
        if out is not None:
            clear_left(out, policy)
    if as_json:
        print_json(about | {"results": rows})
    else:
        console.print(title, *tables, sep="\n", highlight=False)


def _scoring_axes(ranges: Sequence[Range], params: Params) -> tuple[np.ndarray, np.ndarray]:
    """The values of λ and of m; one that is not varied is that of the environment."""
    values = grid(ranges)
    tool_costs, multiples = (np.unique(np.asarray(values.get(n, getattr(params, n)), np.float64)) for n in SCORING)
    return tool_costs, multiples
