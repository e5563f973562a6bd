"""Batch play: a policy over many episodes, one common month at a time (design section 5.5).

What makes it fast (benchmarks/README.md): every leaf is a scalar per episode, so a batch is a set of [batch] arrays
and the compiler vectorises across episodes; the month is common to the batch, so the market is computed once a month
and the revenue window is written as one contiguous row; next month's draws are computed in this month's body and
carried by the scan, so that they cross a loop boundary and are not computed again by each of their consumers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.arena import Arena, advance, opening_state, opening_value
from arena_jax.draws import Draws, episode_keys, key_words, month_draws, request_draws
from arena_jax.errors import ArenaError
from arena_jax.operations import market_at
from arena_jax.score import make_record
from arena_jax.structs import BANKRUPT, Observation, Record, State
from arena_jax.tools import call_tools, observe

DEFAULT_BATCH = 4096
_LANES = 64
# episodes use fold_in(run key, index) with index below this number; the policies' keys branch off here
_POLICY_STREAM = 2**32 - 1


def _observation_axes(observation: Observation) -> Observation:
    """`in_axes` for a batch of observations that share one month."""
    return dataclasses.replace(jax.tree.map(lambda _: 0, observation), month=None)


def _broadcast_state(state: State, batch: int) -> State:
    """The opening state for every episode: [] to [batch], the revenue window to [12, batch], the month common."""
    spread = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (batch,)), dataclasses.replace(state, revenue=state.cash))
    revenue = jnp.broadcast_to(state.revenue[:, None], (state.revenue.shape[0], batch))
    return dataclasses.replace(spread, month=state.month, revenue=revenue)


@partial(jax.jit, static_argnames="policy_static")
def play(env: Arena, policy: Any, run_key: jax.Array, episodes: jax.Array, policy_static: Any = None) -> Record:
    """Play the episodes with the indices uint32[n] to their ends; the record has leaves [n]."""
    policy = policy if policy_static is None else policy_static
    params, scenario, horizon = env.params, env.scenario, env.scenario.horizon
    words = key_words(episode_keys(run_key, episodes))
    policy_keys = episode_keys(jax.random.fold_in(run_key, _POLICY_STREAM), episodes)
    months = jnp.arange(horizon, dtype=jnp.int32)
    markets = market_at(params, scenario, months)
    # constants of the company, not of the month
    markets = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (horizon,)), markets)
    listing_value = opening_value(params, scenario)
    start = opening_state(params, market_at(params, scenario, jnp.int32(0)))
    state = _broadcast_state(start, episodes.shape[0])
    survived = state.tally.cash_peak_month  # int32 zeros [n]

    def decide(choose: Any, carry: Any, state: State, salt: int) -> Any:
        observation = observe(params, state)
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(policy_keys, 2 * state.month + salt)
        return jax.vmap(choose, in_axes=(0, _observation_axes(observation), 0))(carry, observation, keys)

    def one_month(carry: Any, market: Any) -> tuple[Any, None]:
        state, survived, memory, draws = carry
        memory, calls, _ = decide(policy.choose_tools, memory, state, 0)
        state = call_tools(params, state, tuple(calls[:, i] for i in range(calls.shape[1])))
        memory, action = decide(policy.act, memory, state, 1)
        after = advance(params, horizon, listing_value, market, state, action, draws)
        survived = jnp.where(after.status == BANKRUPT, survived, state.month + 1)
        following = state.month + 1
        draws = Draws(month_draws(words, following), request_draws(words, after.tally.requests))
        return (dataclasses.replace(after, month=following), survived, memory, draws), None

    memory = jax.vmap(policy.init)(policy_keys)
    draws = Draws(month_draws(words, jnp.int32(0)), request_draws(words, state.tally.requests))
    (state, survived, _, _), _ = jax.lax.scan(one_month, (state, survived, memory, draws), markets)
    return make_record(params, scenario.crisis_months, dataclasses.replace(state, month=survived))


def rollout(
    env: Arena, policy: Any, key: jax.Array, episodes: int, *, batch: int = DEFAULT_BATCH, first: int = 0
) -> Record:
    """The record of episodes first .. first + episodes - 1 as NumPy arrays [episodes].

    key: the run key; an episode's key is fold_in(key, index), so its outcome depends on neither batch nor order.
    batch: episodes played at once; more use more memory. Raises `ArenaError` for numbers out of range.
    """
    parts = [part for _, part in rollout_parts(env, policy, key, episodes, batch=batch, first=first)]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def rollout_parts(
    env: Arena, policy: Any, key: jax.Array, episodes: int, *, batch: int = DEFAULT_BATCH, first: int = 0
) -> Iterator[tuple[int, Record]]:
    """Play batch by batch, one compilation for all; yields (index of the first episode, record [<= batch])."""
    key_words(key)
    for name, value, low in (("episodes", episodes, 1), ("batch", batch, 1), ("first", first, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
            raise ArenaError(f"{name} must be a whole number of at least {low}, got {value!r}")
    if first + episodes > _POLICY_STREAM:
        raise ArenaError(f"episode indices must stay below {_POLICY_STREAM}, got {first + episodes - 1}")
    # whole vectors of the processor only: a remainder loop might round differently
    size = -(-min(batch, episodes) // _LANES) * _LANES
    dynamic, static = (None, policy) if _is_opaque(policy) else (policy, None)
    for start in range(first, first + episodes, size):
        wanted = min(size, first + episodes - start)
        indices = (start + np.arange(size, dtype=np.uint64)).astype(np.uint32)
        record = play(env, dynamic, key, jnp.asarray(indices), policy_static=static)
        yield start, jax.tree.map(lambda leaf: np.asarray(leaf)[:wanted], record)  # noqa: B023


def _is_opaque(policy: Any) -> bool:
    """Whether a policy is a plain object, to be compiled in, rather than a pytree of options."""
    return jax.tree_util.all_leaves([policy])
