"""Batch play at decision level: a policy over many episodes of EnterpriseArenaRL-v1.

A policy is a pytree with `init(key) -> carry` and `decide(carry, observation, action_mask, key) -> (carry, action)`;
its attribute `shows_terms`, if it has one, says which observation it takes, and `layout_digest` which table.
Episodes are those of `arena_jax.rollout`: with the same run key, index and decisions the same months come out.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from arena_jax.arena import Arena
from arena_jax.decisions.env import ArenaRL
from arena_jax.decisions.make import at_decision_level
from arena_jax.draws import POLICY_STREAM, episode_keys
from arena_jax.errors import ArenaError
from arena_jax.programs import Program
from arena_jax.structs import RUNNING, Record


def world_for(policy: Any, arena: Arena) -> ArenaRL:
    """The world of an `Arena` as a policy sees it; raises `ArenaError` if it was made for another observation."""
    env = at_decision_level(arena, getattr(policy, "shows_terms", False))
    if getattr(policy, "layout_digest", env.layout_digest) != env.layout_digest:
        pending = arena.params.max_pending
        raise ArenaError(
            f"{type(policy).__name__} was made for another observation than this environment's {len(env.layout)} "
            f"entries (max_pending={pending}); play it with the parameters that it was trained with"
        )
    return env


def play_decisions(env: ArenaRL, policy: Any, run_key: jax.Array, episodes: jax.Array) -> Record:
    """Play the episodes with the indices uint32[n] to their ends; the record has leaves [n]."""
    keys = episode_keys(run_key, episodes)
    policy_keys = episode_keys(jax.random.fold_in(run_key, POLICY_STREAM), episodes)
    state, timestep = jax.vmap(env.reset)(keys)
    carry = jax.vmap(policy.init)(jax.vmap(jax.random.fold_in, in_axes=(0, None))(policy_keys, jnp.uint32(0)))

    def one_decision(loop: Any) -> Any:
        decisions, carry, state, timestep = loop
        decision_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(policy_keys, decisions + 1)
        carry, action = jax.vmap(policy.decide)(carry, timestep.observation, timestep.action_mask, decision_keys)
        state, timestep = jax.vmap(env.step)(state, action, keys)
        return decisions + 1, carry, state, timestep

    is_live = lambda loop: jnp.any(loop[2].hidden.status == RUNNING)
    _, _, state, _ = jax.lax.while_loop(is_live, one_decision, (jnp.uint32(0), carry, state, timestep))
    return jax.vmap(env.record)(state)


play = Program(play_decisions)
