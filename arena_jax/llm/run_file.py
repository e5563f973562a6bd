"""`run.json` of a run directory: what is played and what agents are told. It is read without JAX."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from arena_jax.errors import ArenaError
from arena_jax.files import own_file, read_json

RUN = "run.json"
ONE_WORLD, OWN_WORLDS = "world.toml", "worlds/world-{:03d}.toml"
FORMAT = 1
MAX_EPISODES = 1_000


def _is_printable(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 200 and value.isprintable()


def _is_tool(value: Any) -> bool:
    """Whether a value is a tool as MCP lists it (`arena_jax.llm.tool_schemas.formatted`)."""
    return (
        isinstance(value, dict)
        and value.keys() == {"name", "description", "inputSchema", "annotations"}
        and _is_printable(value["name"])
        and isinstance(value["description"], str)
        and isinstance(value["inputSchema"], dict)
        and isinstance(value["annotations"], dict)
        and all(isinstance(hint, bool) for hint in value["annotations"].values())
    )


_SOUND: dict[str, Callable[[Any], bool]] = {
    "arena_jax": _is_printable,
    "episodes": lambda value: type(value) is int and 1 <= value <= MAX_EPISODES,
    "env_set": lambda value: isinstance(value, list) and all(map(_is_printable, value)),
    "world": lambda value: value in (None, ONE_WORLD, OWN_WORLDS),
    "scenarios": lambda value: (
        value is None
        or (
            isinstance(value, dict)
            and "kind" in value
            and all(_is_printable(name) and _is_printable(str(fact)) for name, fact in value.items())
        )
    ),
    "disclose_horizon": lambda value: isinstance(value, bool),
    "seeds_drawn": lambda value: isinstance(value, bool),
    "parameters_sha256": _is_printable,
    "trajectories_sha256": lambda value: isinstance(value, list) and all(map(_is_printable, value)),
    "system_prompt": lambda value: isinstance(value, str),
    "tools": lambda value: isinstance(value, list) and all(map(_is_tool, value)),
}


def read_run(directory: Path) -> dict[str, Any]:
    """What a run directory holds; raises `ArenaError` if it is none."""
    path = own_file(directory, RUN)
    if not path.exists():
        raise ArenaError(f"{directory} is not a run directory: it has no {RUN}; arena-jax agent new makes one")
    run = read_json(path)
    if not isinstance(run, dict) or run.get("format") != FORMAT:
        raise ArenaError(f"{path} does not describe a run of format {FORMAT}")
    for name, is_sound in _SOUND.items():
        if not is_sound(run.get(name)):
            raise ArenaError(f"{path}: field {name} is missing or malformed")
    if len(run["trajectories_sha256"]) != run["episodes"]:
        raise ArenaError(f"{path}: field trajectories_sha256 must have one hash for each episode")
    return run
