"""EnterpriseArenaRL-v1 by options, and from an `Arena`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from arena_jax.arena import Arena, make
from arena_jax.decisions.env import TABLE, ArenaRL
from arena_jax.errors import ArenaError, shown
from arena_jax.params import Params
from arena_jax.scenario import Scenario
from arena_jax.worlds import parse_worlds


def make_rl(
    *,
    scenario: str | Path | Scenario | None = None,
    scenarios: str | None = None,
    shows_terms: bool = False,
    **overrides: Any,
) -> ArenaRL:
    """EnterpriseArenaRL-v1; raises `ArenaError` on any bad value.

    scenario: as for `arena_jax.make`, the one trajectory of all episodes. scenarios: generated trajectories of which
        each episode's key chooses one, such as "generated:1000,seed=1"; about 9 kB each.
    shows_terms: the observation ends with lambda and m of the score, for policies that are to answer to them.
    overrides: parameters by name; disciplined=True is the variant in which capital is not free.
    """
    if not isinstance(shows_terms, bool):
        raise ArenaError(f"shows_terms must be true or false, got {shown(shows_terms)}")
    if scenario is not None and scenarios is not None:
        raise ArenaError("give a scenario or scenarios, not both")
    arena = make(scenario=scenario, **overrides)
    if scenarios is None:
        return at_decision_level(arena, shows_terms)
    return _on_trajectories(arena.params, _generated(scenarios, arena.scenario.horizon), shows_terms)


def at_decision_level(arena: Arena, shows_terms: bool = False) -> ArenaRL:
    """The world of an `Arena` with single decisions as steps; inside `jax.jit` too."""
    return _on_trajectories(arena.params, jax.tree.map(lambda leaf: leaf[None], arena.scenario), shows_terms)


def _on_trajectories(params: Params, trajectories: Scenario, shows_terms: bool) -> ArenaRL:
    """trajectories: leaves [worlds, T]."""
    table = jnp.stack([getattr(trajectories, name) for name in TABLE], axis=-1)
    table = jnp.concatenate([table, table[:, -1:]], axis=1)
    return ArenaRL(params, table, trajectories.crisis_months, shows_terms)


def _generated(scenarios: str, horizon: int) -> Scenario:
    """All worlds of a set, leaves [worlds, T]."""
    worlds = parse_worlds(scenarios)
    if worlds.held_out:
        raise ArenaError("held-out worlds are not for training: their months would be in the environment's leaves")
    return worlds.scenarios(horizon)
