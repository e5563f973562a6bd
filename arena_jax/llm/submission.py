"""Whether a run directory can be submitted: complete, played by one player in one way, every journal replayed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from arena_jax.errors import ArenaError
from arena_jax.files import check_own
from arena_jax.llm.runs import SCORED, Played, confirm_episode, played_episodes, read_run, run_environment, run_seeds
from arena_jax.version import __version__


def problems_of(directory: Path, on_episode: Callable[[int], None] = lambda count: None) -> list[str]:
    """What keeps a run from being submitted, a line each; none if it is valid.

    A replay holds the journal against the world of its seed, and its header against the prompt and the tools that this
    version has for that world. No file may be a link. on_episode: called with 1 for each journal that was looked at.
    """
    try:
        check_own(directory)
        run = read_run(directory)
        if run["arena_jax"] != __version__:
            return [f"it was made with arena_jax {run['arena_jax']}: check it with that version, this is {__version__}"]
        run_seeds(directory)
        run_environment(directory, 0)
        episodes = played_episodes(directory)
    except ArenaError as error:
        return [str(error)]
    found = []
    for played in episodes:
        problem = _problem(directory, played)
        if problem:
            found.append(f"episode {played.episode}: {problem}")
        on_episode(1)
    players = sorted({played.player for played in episodes if played.status in SCORED})
    if len(players) > 1:
        found.append(f"a run is of one player, this one of {', '.join(players)}")
    return found


def _problem(directory: Path, played: Played) -> str | None:
    if played.status not in SCORED:
        return f"{played.status}{f' ({played.reason})' if played.reason else ''}"
    version = played.played_as["arena_jax"]
    if version != __version__:
        return f"it was played with arena_jax {version}, this is {__version__}"
    try:
        confirm_episode(directory, played.episode)
    except ArenaError as error:
        return str(error)
    return None


def disclosed(run: dict[str, Any]) -> dict[str, str]:
    """What a reader of a run's results has to know: versions, world, and what the agent was told."""
    changed = f", {', '.join(run['env_set'])}" if run["env_set"] else ""
    if run["scenarios"]:
        facts = (f"{name} {value}" for name, value in run["scenarios"].items())
        world = f"one for each episode: {', '.join(facts)}"
    else:
        world = "the default one" if run["world"] is None else f"of its own, trajectory {run['trajectories_sha256'][0]}"
    return {
        "version": f"arena_jax {run['arena_jax']}",
        "world": world + changed,
        "horizon": "told to the agents" if run["disclose_horizon"] else "not told to the agents, as in the paper",
    }


def seeds_policy(run: dict[str, Any]) -> str:
    """How a run came by its seeds."""
    return "random" if run["seeds_drawn"] else "chosen"
