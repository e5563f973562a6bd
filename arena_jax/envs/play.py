"""Batch play at decision level: a policy over many episodes of EnterpriseArenaRL-v1.

A policy is a pytree with `init(key) -> carry` and `decide(carry, observation, action_mask, key) -> (carry, action)`.
Episodes are those of `arena_jax.rollout`: with the same run key, index and decisions the same months come out.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from arena_jax.batch_play import POLICY_STREAM
from arena_jax.draws import episode_keys
from arena_jax.envs.rl import ArenaRL
from arena_jax.programs import Program
from arena_jax.structs import RUNNING, Record


def _play(env: ArenaRL, policy: Any, run_key: jax.Array, episodes: jax.Array) -> Record:
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

    is_live = lambda loop: jnp.any(loop[2].arena.status == RUNNING)
    _, _, state, _ = jax.lax.while_loop(is_live, one_decision, (jnp.uint32(0), carry, state, timestep))
    return jax.vmap(env.record)(state)


play = Program(_play)
