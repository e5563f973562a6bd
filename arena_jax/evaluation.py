"""Policies over many episodes, streamed: play a part, write it, merge its sums, forget it (design section 5.5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.analysis.metrics import Tallies
from arena_jax.analysis.spread import WorldTallies
from arena_jax.arena import Arena
from arena_jax.batch_play import DEFAULT_BATCH, Months, rollout
from arena_jax.draws import MAX_SEED
from arena_jax.errors import ArenaError, check_count
from arena_jax.parts import FORMAT, Split, open_run, parse_shard, policy_folder, read_part, write_part
from arena_jax.policies import make_policies, source_digest
from arena_jax.scenario import HORIZON, MAX_HORIZON, digest
from arena_jax.structs import Record
from arena_jax.trajectory import check_fields
from arena_jax.version import __version__
from arena_jax.worlds import Worlds, parse_worlds


def evaluate(
    env: Arena,
    policies: Sequence[str],
    *,
    episodes: int,
    scenarios: str | None = None,
    seed: int = 0,
    batch: int = DEFAULT_BATCH,
    out: str | Path | None = None,
    shard: tuple[int, int] = (1, 1),
    record: Sequence[str] = (),
    on_part: Callable[[str, Record], None] = lambda spec, part: None,
    on_progress: Callable[[int], None] = lambda episodes_done: None,
) -> dict[str, dict[str, Any]]:
    """Play every policy over the same episodes; per policy and metric an `Estimate`, over several worlds a `Spread`.

    policies: specs as `make_policy` takes them. seed: whole number in [0, 2^32); the run key is `jax.random.key(seed)`.
    episodes: of each policy in each world. scenarios: worlds in place of `env.scenario` (`arena_jax.worlds.FORMS`),
    with its horizon; episode e of world w has the run's episode number w * episodes + e, so no luck is shared.
    out: a run directory; finished parts in it are read, not played again. shard: (i, n) plays every n-th part only.
    record: fields to write month by month beside the records (`arena_jax.trajectory.RECORDERS`); needs `out`.
    on_part: called with a policy's spec and the records of each of its parts, in order.
    on_progress: called with the number of episodes just finished. Raises `ArenaError` before anything is compiled.
    """
    made = make_policies(policies)
    check_count("seed", seed, 0, MAX_SEED)
    check_count("batch", batch, 1, MAX_SEED)
    parse_shard(f"{shard[0]}/{shard[1]}")
    worlds = None if scenarios is None else parse_worlds(scenarios)
    split = Split(episodes, worlds.count if worlds else 1)
    starts = split.starts(shard)
    if not starts:
        raise ArenaError(f"shard {shard[0]}/{shard[1]} is empty: the episodes make {len(split.starts())} parts")
    fields = check_fields(record)
    if fields and out is None:
        raise ArenaError("recording fields needs a run directory to write them to (out)")
    if fields and worlds and worlds.held_out:
        raise ArenaError("the months of held-out worlds are not recorded: they would show the trajectory")
    if worlds:
        check_count("horizon of generated worlds", env.scenario.horizon, HORIZON, MAX_HORIZON)
    if out is not None:
        open_run(Path(out), run_manifest(env, policies, split, worlds, seed, shard, fields))

    key, pad_to = jax.random.key(seed), min(split.part, split.episodes)  # one program for all parts and worlds
    results: dict[str, dict[str, Any]] = {}
    for number, (spec, policy) in enumerate(made.items()):
        folder = None if out is None else Path(out) / policy_folder(number, spec)
        tallies = Tallies() if split.worlds == 1 else WorldTallies(episodes)
        for start in starts:
            outcome = None if folder is None else read_part(folder, split, start, with_months=bool(fields))
            if outcome is None:
                play = partial(
                    rollout, policy=policy, key=key, batch=batch, pad_to=pad_to, record=fields, on_progress=on_progress
                )
                outcome, months = _play_part(play, env, worlds, split, start)
                if folder is not None:
                    write_part(folder, split, start, outcome, months)
            else:
                on_progress(split.size(start))
            tallies.add(outcome)
            on_part(spec, outcome)
        results[spec] = tallies.estimates()
    return results


def _play_part(
    play: Callable[..., Any], env: Arena, worlds: Worlds | None, split: Split, start: int
) -> tuple[Record, Months | None]:
    """A part's records and, where recorded, its months; world by world."""
    stop = start + split.size(start)
    played = []
    for first in range(start, stop, split.part if split.worlds == 1 else split.episodes):
        if worlds:
            scenario = worlds.scenario(first // split.episodes, env.scenario.horizon)
            env = dataclasses.replace(env, scenario=scenario)
        found = play(env, episodes=min(split.episodes, stop - first), first=first)
        played.append(found if isinstance(found, tuple) else (found, None))
    outcome, months = jax.tree.map(lambda *leaves: np.concatenate(leaves), *played)
    return outcome, months


def run_manifest(
    env: Arena,
    policies: Sequence[str],
    split: Split,
    worlds: Worlds | None,
    seed: int,
    shard: tuple[int, int],
    fields: Sequence[str],
) -> dict[str, Any]:
    """What makes a run what it is: two runs with equal manifests (device and shard aside) hold the same episodes."""
    parameters = {name: np.asarray(value).tolist() for name, value in vars(env.params).items()}
    return {
        "format": FORMAT,
        "environment": env.name,
        "arena_jax": __version__,
        "jax": jax.__version__,
        "platform": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "dtype": jnp.result_type(float).name,
        "seed": int(seed),
        "episodes": split.episodes,
        "worlds": split.worlds,
        "part": split.part,
        "shard": f"{shard[0]}/{shard[1]}",
        "policies": list(policies),
        "policy_sources": {spec: source_digest(spec) for spec in policies},
        "record": list(fields),
        "parameters": parameters,
        "parameters_sha256": digest(env.params),
        "trajectory_sha256": None if worlds else digest(env.scenario),
        "scenarios": worlds.about | {"horizon": env.scenario.horizon} if worlds else None,
    }
