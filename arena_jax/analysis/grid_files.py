"""A grid's figures on disk, chunk by chunk: what was interrupted goes on, and many machines may play.

DIR/grid.json                                what is played: versions, values, episodes, seed, policies
DIR/00-cash-threshold/chunk-000000.parquet   shown metrics in the environment as it is, one row per episode
DIR/00-cash-threshold/chunk-000001.parquet   and of the first chunk, one row per environment and episode
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arena_jax.analysis.sensitivity import SHOWN, Chunk, chunk_environments, play_environments, play_own
from arena_jax.arena import make
from arena_jax.errors import ArenaError
from arena_jax.files import own_file, read_json
from arena_jax.folders import open_folder, policy_folder
from arena_jax.parts import HUGE, differences, read_columns, what_plays, write_columns
from arena_jax.scenario import MAX_HORIZON, digest

GRID = "grid.json"
FORMAT = 1


def grid_manifest(policies: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a grid what it is; settings: arguments of `play_environments`."""
    env = make(scenario=settings["scenario"], **settings["overrides"])
    values = hashlib.sha256()
    for name, column in settings["values"].items():
        values.update(name.encode() + np.ascontiguousarray(column).tobytes())
    return {
        "format": FORMAT,
        **what_plays(env, policies),
        **{name: settings[name] for name in ("seed", "episodes", "batch")},
        "values": list(settings["values"]),
        "values_sha256": values.hexdigest(),
        "trajectory_sha256": digest(env.scenario),
    }


def open_grid(directory: Path, manifest: dict[str, Any]) -> None:
    """Create a folder for a grid, or check that the one there is of the same grid (`open_folder`)."""
    open_folder(directory, GRID, manifest, _check)


def _is_metric(name: str, values: np.ndarray) -> bool:
    """Whether a column can be that metric of episodes."""
    if name == "full_survival":
        return bool(np.isin(values, (0, 1)).all())
    low, high = (0, MAX_HORIZON) if name == "months" else (-HUGE, HUGE)
    return bool(low <= values.min() and values.max() <= high)


def _check(directory: Path, manifest: dict[str, Any]) -> None:
    held = read_json(own_file(directory, GRID))
    found = next(differences(held if isinstance(held, dict) else {}, manifest, ()), None)
    if found:
        raise ArenaError(f"{directory} holds another grid ({found}); choose another folder")


def keep_chunk(directory: Path, policies: Sequence[str], settings: Mapping[str, Any], policy: int, number: int) -> int:
    """`kept_chunk` for another process: has the chunk played and written, and returns its number of episodes.

    Raises `ArenaError` if the folder is not to be seen here, or if this machine would play something else.
    """
    if not (directory / GRID).exists():
        raise ArenaError(f"{directory} is not there: all workers must see it, on a file system that they share")
    _check(directory, grid_manifest(policies, settings))
    where, _ = kept_chunk(directory, policies, settings, policy, number)
    return len(where) * int(settings["episodes"])


def kept_chunk(
    directory: Path,
    policies: Sequence[str],
    settings: Mapping[str, Any],
    policy: int,
    number: int,
    is_played: bool = False,
) -> Chunk:
    """A chunk of one of the policies, in a folder that is open: read if it is there, else played and written.

    policy: counted from 0. number: of a chunk, counted from 1; 0 is the environment as it is, told as number -1.
    is_played: others have played it; raises `ArenaError` if it is not to be seen here.
    """
    spec, episodes = policies[policy], settings["episodes"]
    chunks = [np.array([-1]), *chunk_environments(settings["values"], episodes, settings["batch"])]
    where = chunks[number]
    path = own_file(directory, f"{policy_folder(policy, spec)}/chunk-{number:06d}.parquet")
    rows = {"environment": np.repeat(where, episodes), "episode": np.tile(np.arange(episodes), len(where))}
    if not path.is_file():
        if is_played:
            raise ArenaError(f"{path} is missing: this machine doesn't see what others played there; run the same "
                             "command again where it does")  # fmt: skip
        metrics = _played(spec, settings, number)
        write_columns(path, rows | {name: metrics[name].ravel() for name in SHOWN})
        return where, metrics
    columns = read_columns(path, (*rows, *SHOWN), len(rows["episode"]))
    if any(not np.array_equal(columns[name], values) for name, values in rows.items()):
        raise ArenaError(f"{path} holds other environments or episodes; delete it and run again")
    if not all(_is_metric(name, columns[name]) for name in SHOWN):
        raise ArenaError(f"{path} holds no metrics of episodes; delete it and run again")
    return where, {name: columns[name].reshape(-1, episodes) for name in SHOWN}


def _played(spec: str, settings: Mapping[str, Any], number: int) -> dict[str, np.ndarray]:
    """The shown metrics float64[environments, episodes] of a chunk."""
    if number:
        ((_, metrics),) = play_environments(spec, **settings, only=number - 1)
        return metrics
    own = play_own(spec, **{name: settings[name] for name in ("episodes", "seed", "scenario", "overrides")})
    return {name: values[None] for name, values in own.items()}
