"""`run.json` of a run directory: what is played and what agents are told. It is read without JAX."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arena_jax.errors import ArenaError

RUN = "run.json"
ONE_WORLD, OWN_WORLDS = "world.toml", "worlds/world-{:03d}.toml"
FORMAT = 1
MAX_EPISODES = 1_000

_SOUND: dict[str, Callable[[Any], bool]] = {
    "episodes": lambda value: isinstance(value, int) and 1 <= value <= MAX_EPISODES,
    "env_set": lambda value: (
        isinstance(value, list) and all(isinstance(pair, str) and pair.isprintable() for pair in value)
    ),
    "world": lambda value: value in (None, ONE_WORLD, OWN_WORLDS),
    "scenarios": lambda value: value is None or isinstance(value, dict),
    "disclose_horizon": lambda value: isinstance(value, bool),
    "parameters_sha256": lambda value: isinstance(value, str),
    "trajectories_sha256": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "system_prompt": lambda value: isinstance(value, str),
    "tools": lambda value: isinstance(value, list) and all(isinstance(tool, dict) for tool in value),
}


def read_run(directory: Path) -> dict[str, Any]:
    """What a run directory holds; raises `ArenaError` if it is none."""
    path = directory / RUN
    try:
        run = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ArenaError(
            f"{directory} is not a run directory: it has no {RUN}; arena-jax agent new makes one"
        ) from None
    except (OSError, ValueError):
        raise ArenaError(f"{path} is not readable JSON") from None
    if not isinstance(run, dict) or run.get("format") != FORMAT:
        raise ArenaError(f"{path} does not describe a run of format {FORMAT}")
    for name, is_sound in _SOUND.items():
        if not is_sound(run.get(name)):
            raise ArenaError(f"{path}: field {name} is missing or malformed")
    if len(run["trajectories_sha256"]) != run["episodes"]:
        raise ArenaError(f"{path}: field trajectories_sha256 must have one hash for each episode")
    return run
