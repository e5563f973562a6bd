"""Policies over many episodes, streamed: play a part, write it, merge its sums, forget it (design section 5.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.analysis.metrics import Estimate, Tallies
from arena_jax.arena import ENVIRONMENTS, Arena
from arena_jax.errors import ArenaError, check_count
from arena_jax.parts import FORMAT, PART, open_run, parse_shard, part_starts, policy_folder, read_part, write_part
from arena_jax.policies import make_policy, source_digest
from arena_jax.rollout import DEFAULT_BATCH, Months, rollout
from arena_jax.scenario import digest
from arena_jax.trajectory import check_fields
from arena_jax.version import __version__

MAX_SEED = 2**32 - 1


def evaluate(
    env: Arena,
    policies: Sequence[str],
    *,
    episodes: int,
    seed: int = 0,
    batch: int = DEFAULT_BATCH,
    out: str | Path | None = None,
    shard: tuple[int, int] = (1, 1),
    record: Sequence[str] = (),
    on_progress: Callable[[int], None] = lambda episodes_done: None,
) -> dict[str, dict[str, Estimate]]:
    """Play every policy over the same `episodes` worlds; an estimate per policy and metric.

    policies: specs as `make_policy` takes them. seed: whole number in [0, 2^32); the run key is `jax.random.key(seed)`.
    out: a run directory; finished parts in it are read, not played again. shard: (i, n) plays every n-th part only.
    record: fields to write month by month beside the records (`arena_jax.trajectory.RECORDERS`); needs `out`.
    on_progress: called with the number of episodes just finished. Raises `ArenaError` before anything is compiled.
    """
    made = {spec: make_policy(spec) for spec in policies}
    if not policies or len(made) < len(policies):
        raise ArenaError("give at least one policy, and each only once")
    check_count("seed", seed, 0, MAX_SEED)
    check_count("batch", batch, 1, MAX_SEED)
    parse_shard(f"{shard[0]}/{shard[1]}")
    starts = part_starts(episodes, shard)
    if not starts:
        raise ArenaError(
            f"shard {shard[0]}/{shard[1]} is empty: {episodes} episodes make {len(part_starts(episodes))} parts"
        )
    fields = check_fields(record)
    if fields and out is None:
        raise ArenaError("recording fields needs a run directory to write them to (out)")
    if out is not None:
        open_run(Path(out), run_manifest(env, policies, episodes, seed, shard, fields))

    key, results = jax.random.key(seed), {}
    for number, (spec, policy) in enumerate(made.items()):
        folder = None if out is None else Path(out) / policy_folder(number, spec)
        tallies = Tallies()
        for start in starts:
            size = min(PART, episodes - start)
            outcome = None if folder is None else read_part(folder, start, size, with_months=bool(fields))
            if outcome is None:
                options: dict[str, Any] = {"batch": batch, "first": start, "on_progress": on_progress}
                months: Months | None = None
                if fields:
                    outcome, months = rollout(env, policy, key, size, record=fields, **options)
                else:
                    outcome = rollout(env, policy, key, size, **options)
                if folder is not None:
                    write_part(folder, start, outcome, months)
            else:
                on_progress(size)
            tallies.add(outcome)
        results[spec] = tallies.estimates()
    return results


def run_manifest(
    env: Arena, policies: Sequence[str], episodes: int, seed: int, shard: tuple[int, int], fields: Sequence[str]
) -> dict[str, Any]:
    """What makes a run what it is: two runs with equal manifests (device and shard aside) hold the same episodes."""
    parameters = {name: np.asarray(value).tolist() for name, value in vars(env.params).items()}
    return {
        "format": FORMAT,
        "environment": ENVIRONMENTS[0],
        "arena_jax": __version__,
        "jax": jax.__version__,
        "platform": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "dtype": jnp.result_type(float).name,
        "seed": int(seed),
        "episodes": int(episodes),
        "part": PART,
        "shard": f"{shard[0]}/{shard[1]}",
        "policies": list(policies),
        "policy_sources": {spec: source_digest(spec) for spec in policies},
        "record": list(fields),
        "parameters": parameters,
        "parameters_sha256": digest(env.params),
        "trajectory_sha256": digest(env.scenario),
    }
