"""`arena-jax compare`: two policies over the same worlds."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from arena_jax.analysis.compare import all_runs, contrasts, play_units
from arena_jax.analysis.contrast_view import comparison_json, comparison_rows, comparison_table
from arena_jax.arena import make
from arena_jax.batch_play import DEFAULT_BATCH
from arena_jax.cli.cache import NoCache
from arena_jax.cli.options import AsJson, Batch, EnvSet, Scenarios, Seed, World
from arena_jax.cli.output import note_training, print_json, progress, run_about, run_title, table_console
from arena_jax.params import parse_overrides
from arena_jax.worlds import parse_worlds


def compare_command(
    a: Annotated[str, typer.Argument(metavar="A", help="A policy, as evaluate takes it.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    episodes: Annotated[int, typer.Option(help="Episodes of each, and per world.")] = 2_000,
    seed: Seed = 0,
    env_set: EnvSet = None,
    scenario: World = None,
    scenarios: Scenarios = None,
    batch: Batch = DEFAULT_BATCH,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Play two policies over the same worlds and print B less A, with paired 95% intervals.

    An episode's draws are the same for both, and the k-th request has the same luck whenever it is made, so most of
    the luck cancels. Over several worlds (--scenarios) the worlds are the pairs.

    Examples:

      arena-jax compare cash-threshold:threshold=8e6,amount=12.6e6 cash-threshold:threshold=10e6,amount=12.6e6

      arena-jax compare prudent-cfo greedy-equity --episodes 100 --scenarios generated:200 --json
    """
    env = make(scenario=scenario, **parse_overrides(env_set or []))
    note_training([a, b], env)
    worlds = None if scenarios is None else parse_worlds(scenarios)
    count = worlds.count if worlds else 1
    with progress(2 * episodes * count, "episodes") as advance:
        results, units = play_units(
            env, [a, b], episodes=episodes, scenarios=scenarios, seed=seed, batch=batch, on_progress=advance
        )
    sides = (units[a], units[b])
    found = comparison_json([results[a], results[b]], contrasts(*sides), all_runs(*sides))
    paired = "worlds" if count > 1 else "episodes"
    if as_json:
        about = run_about(seed, env_set, scenario, worlds) | {"episodes": episodes, "a": a, "b": b, "pairs": paired}
        print_json(about | {"metrics": found})
        return
    played = f"{episodes:,} episodes{' each' if count > 1 else ''}"
    title = f"{run_title(seed, env_set, scenario, worlds)}, {played}\nA: {escape(a)}\nB: {escape(b)}"
    table_console().print(comparison_table(comparison_rows(found, paired), title, paired))
