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
from arena_jax.errors import ArenaError
from arena_jax.parts import FORMAT, PART, open_run, part_starts, policy_folder, read_part, write_part
from arena_jax.policies import make_policy
from arena_jax.rollout import DEFAULT_BATCH, rollout
from arena_jax.scenario import digest
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
    on_progress: Callable[[int], None] = lambda episodes_done: None,
) -> dict[str, dict[str, Estimate]]:
    """Play every policy over the same `episodes` worlds; an estimate per policy and metric.

    policies: specs as `make_policy` takes them. seed: whole number in [0, 2^32); the run key is `jax.random.key(seed)`.
    out: a run directory; finished parts in it are read, not played again. shard: (i, n) plays every n-th part only.
    on_progress: called with the number of episodes just finished. Raises `ArenaError` before anything is compiled.
    """
    made = {spec: make_policy(spec) for spec in policies}
    if not policies or len(made) < len(policies):
        raise ArenaError("give at least one policy, and each only once")
    check_count("episodes", episodes, 1, MAX_SEED - 1)
    check_count("seed", seed, 0, MAX_SEED)
    check_count("batch", batch, 1, MAX_SEED)
    check_count("shard count", shard[1], 1, MAX_SEED)
    check_count("shard", shard[0], 1, shard[1])
    starts = part_starts(episodes, shard)
    if not starts:
        raise ArenaError(
            f"shard {shard[0]}/{shard[1]} is empty: {episodes} episodes make {len(part_starts(episodes))} parts"
        )
    if out is not None:
        open_run(Path(out), run_manifest(env, policies, episodes, seed, shard))

    key, results = jax.random.key(seed), {}
    for number, (spec, policy) in enumerate(made.items()):
        folder = None if out is None else Path(out) / policy_folder(number, spec)
        tallies = Tallies()
        for start in starts:
            size = min(PART, episodes - start)
            record = None if folder is None else read_part(folder, start, size)
            if record is None:
                record = rollout(env, policy, key, size, batch=batch, first=start)
                if folder is not None:
                    write_part(folder, start, record)
            tallies.add(record)
            on_progress(size)
        results[spec] = tallies.estimates()
    return results


def check_count(name: str, value: Any, low: int, high: int) -> None:
    """Refuse anything but a whole number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise ArenaError(f"{name} must be a whole number from {low} to {high}, got {value!r}")


def run_manifest(
    env: Arena, policies: Sequence[str], episodes: int, seed: int, shard: tuple[int, int]
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
        "parameters": parameters,
        "parameters_sha256": digest(env.params),
        "trajectory_sha256": digest(env.scenario),
    }
