"""`arena-jax sensitivity`: what do λ and m, or any other parameter, do to the results?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from arena_jax.analysis.sensitivity import (
    BATCH,
    Range,
    grid,
    grid_cells,
    parse_ranges,
    plan,
    play_environments,
    play_terms,
    saltelli,
    sobol_indices,
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
from arena_jax.analysis.surface import ranking
from arena_jax.arena import make
from arena_jax.cli.cache import NoCache
from arena_jax.cli.options import AsJson, Batch, EnvSet, Policies, Seed, World
from arena_jax.cli.output import print_json, progress, run_about, run_title, table_console
from arena_jax.errors import ArenaError
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
    batch: Batch = BATCH,
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
    """
    ranges = parse_ranges(param or [], with_count=sobol is None)
    overrides = parse_overrides(env_set or [])
    if taken := next((one.name for one in ranges if one.name in overrides), None):
        raise ArenaError(f"parameter {taken} is both set (--env-set) and varied (--param)")
    make_policies(policy)
    check_letters(policy)
    about = run_about(seed, env_set, scenario) | {"episodes": episodes}
    title = f"{run_title(seed, env_set, scenario)}, {episodes:,} episodes"
    env, console = make(scenario=scenario, **overrides), table_console()
    if sobol is None and all(one.name in SCORING for one in ranges):
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
    with progress(len(policy) * size.environments * episodes, f"{size}; episodes") as advance:
        play = partial(
            play_environments, values=values, episodes=episodes, seed=seed, scenario=scenario, overrides=overrides,
            batch=batch, on_progress=advance,
        )  # fmt: skip
        tables: Sequence[Table | str]
        if sobol is None:
            cells = {spec: grid_cells(env, spec, values, play(spec), episodes, seed) for spec in policy}
            own = {one.name: float(getattr(env.params, one.name)) for one in ranges}
            rows, tables = grid_json(cells), grid_tables(cells, str(size), own)
        else:
            indices = {spec: sobol_indices(play(spec), values, sobol) for spec in policy}
            rows, tables = sobol_json(indices), sobol_tables(indices, str(size))
    if as_json:
        print_json(about | {"results": rows})
    else:
        console.print(title, *tables, sep="\n", highlight=False)


def _scoring_axes(ranges: Sequence[Range], params: Params) -> tuple[np.ndarray, np.ndarray]:
    """The values of λ and of m; one that is not varied is that of the environment."""
    values = grid(ranges)
    tool_costs, multiples = (np.unique(np.asarray(values.get(n, getattr(params, n)), np.float64)) for n in SCORING)
    return tool_costs, multiples
