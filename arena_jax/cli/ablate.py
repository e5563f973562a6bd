"""`arena-jax ablate`: which of RQ2's conditions makes the task hard for a policy?"""

from __future__ import annotations

from typing import Annotated

import typer

from arena_jax.analysis.ablation import ablate, combinations, rq2_switches
from arena_jax.analysis.contrast_view import ablation_table, ablations_json
from arena_jax.analysis.sources import plain_params
from arena_jax.arena import make
from arena_jax.cli.cache import NoCache
from arena_jax.cli.options import AsJson, EnvSet, Policies, Scenarios, Seed, World
from arena_jax.cli.output import note_training, print_json, progress, run_about, run_title, table_console
from arena_jax.params import parse_overrides
from arena_jax.policies import make_policies
from arena_jax.scenario import digest
from arena_jax.worlds import parse_worlds


def ablate_command(
    policy: Policies,
    episodes: Annotated[int, typer.Option(help="Episodes per condition, and per world.")] = 2_000,
    seed: Seed = 0,
    env_set: EnvSet = None,
    scenario: World = None,
    scenarios: Scenarios = None,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Relax the paper's RQ2 conditions (delay, noise, tool budget, exclusivity), each and in pairs; print the effects.

    Effects are differences from the default on the same worlds, the largest on survival first, with the paper's
    direction beside.

    Examples:

      arena-jax ablate --policy cash-threshold:threshold=8e6,amount=12.6e6

      arena-jax ablate --policy prudent-cfo --policy information-hungry --json > ablation.json
    """
    overrides = parse_overrides(env_set or [])
    worlds = None if scenarios is None else parse_worlds(scenarios)
    make_policies(policy)
    env = make(scenario=scenario, **overrides)
    note_training(policy, env)
    source, switches = rq2_switches()
    conditions = 1 + len(combinations(switches))
    with progress(len(policy) * conditions * episodes * (worlds.count if worlds else 1), "episodes") as advance:
        found = {
            spec: ablate(
                spec, switches, episodes=episodes, scenario=scenario, scenarios=scenarios, seed=seed,
                overrides=overrides, on_progress=advance,
            )
            for spec in policy
        }  # fmt: skip
    results = ablations_json(found)
    if as_json:
        about = run_about(seed, env_set, scenario, worlds) | {"episodes": episodes, "source": source}
        about |= {"parameters": plain_params(env.params), "trajectory": None if worlds else digest(env.scenario)}
        print_json(about | {"results": results})
        return
    console = table_console()
    console.print(f"{run_title(seed, env_set, scenario, worlds)}, {episodes:,} episodes a row", highlight=False)
    console.print(*[ablation_table(result, source) for result in results], sep="\n")
