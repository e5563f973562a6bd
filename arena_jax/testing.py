"""The conformance suite: what every environment with this interface must keep to, for users' variants as for ours."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.arena import Arena
from arena_jax.decisions.env import ArenaRL, DecisionTimestep
from arena_jax.decisions.layout import ACTIONS, LIMIT, PASS
from arena_jax.specs import Spec
from arena_jax.structs import COUNTED_ASSUMPTIONS, DEBT, TOOLS, Action, Assumptions, Timestep, ToolCall
from arena_jax.tools import ALL_INDICATORS, assume


def check_env(env: Arena | ArenaRL, *, seed: int = 0, episodes: int = 64) -> None:
    """Play random and extreme episodes to their ends; raises AssertionError at the first broken promise.

    Checks: reset, use_tool and step return the identical tree (structure, shapes, dtypes, no weak types); every
    observation is inside its specification; every leaf is finite; rewards are 0 before the end; episodes end, and
    stay ended unchanged with reward 0. Extreme actions hold NaN, infinite, negative and zero amounts, unknown
    instruments and tools; they must be turned away without harm. An `ArenaRL` gets decisions, allowed and masked ones
    and numbers that are none.
    """
    if isinstance(env, ArenaRL):
        _check_decisions(env, seed, episodes)
    else:
        _check_months(env, seed, episodes)


def _check_months(env: Arena, seed: int, episodes: int) -> None:
    start = jax.vmap(env.reset)(_keys(seed, 0, episodes))
    step, use_tool = jax.jit(jax.vmap(env.step)), jax.jit(jax.vmap(env.use_tool))
    expected = _signature(start)
    state, timestep = start
    rng = np.random.default_rng(seed)
    for month in range(env.scenario.horizon):
        keys = _keys(seed, month, episodes)
        for _ in range(2):
            shown = use_tool(state, _random_call(rng, episodes), keys)
            assert _signature(shown) == expected, "use_tool returns another tree than reset"
            _check_timestep(env, shown[1])
            state = shown[0]
        before, ended = state, np.asarray(timestep.terminated)
        state, timestep = step(state, _random_action(rng, episodes), keys)
        assert _signature((state, timestep)) == expected, "step returns another tree than reset"
        _check_timestep(env, timestep)
        _check_finite(state)
        reward = np.asarray(timestep.reward)
        assert (reward[~np.asarray(timestep.terminated)] == 0).all(), "a reward before the episode's end"
        assert (reward[ended] == 0).all(), "a reward after the episode's end"
        _check_unchanged(before, state, ended)
    assert np.asarray(timestep.terminated).all(), "an episode did not end within the horizon"
    assert not np.asarray(timestep.truncated).any(), "an episode was truncated"


def _check_decisions(env: ArenaRL, seed: int, episodes: int) -> None:
    start = jax.jit(jax.vmap(env.reset))(_keys(seed, 0, episodes))
    step, expected, (state, timestep) = jax.jit(jax.vmap(env.step)), _signature(start), start
    rng = np.random.default_rng(seed)
    for decision in range(int(env.max_steps_in_episode)):
        before, ended = state, np.asarray(timestep.terminated)
        if ended.all():
            break
        actions = jnp.asarray(rng.integers(-1, len(ACTIONS) + 1, episodes), dtype=jnp.int32)
        state, timestep = step(state, actions, _keys(seed, decision, episodes))
        assert _signature((state, timestep)) == expected, "step returns another tree than reset"
        _check_decision_timestep(env, timestep)
        _check_finite(state)
        reward = np.asarray(timestep.reward)
        assert (reward[~np.asarray(timestep.terminated)] == 0).all(), "a reward before the episode's end"
        assert (reward[ended] == 0).all(), "a reward after the episode's end"
        _check_unchanged(before, state, ended)
    assert np.asarray(timestep.terminated).all(), "an episode did not end within max_steps_in_episode"
    assert not np.asarray(timestep.truncated).any(), "an episode was truncated"


def _check_decision_timestep(env: ArenaRL, timestep: DecisionTimestep) -> None:
    observation, mask = np.asarray(timestep.observation), np.asarray(timestep.action_mask)
    assert observation.dtype == np.float32 and mask.dtype == np.bool_, "an observation is float32, a mask bool"
    assert observation.shape[1:] == (len(env.layout),), f"{observation.shape[1]} entries, {len(env.layout)} specified"
    for entry, values in zip(env.layout, observation.T, strict=True):
        assert np.isfinite(values).all(), f"{entry.name} is not finite"
        assert (np.abs(values) <= LIMIT).all(), f"{entry.name} is outside [-{LIMIT}, {LIMIT}]"
    assert mask.shape[1:] == (len(ACTIONS),) and mask[:, PASS].all(), "a mask must allow pass"


def _keys(seed: int, month: int, episodes: int) -> jax.Array:
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), month), episodes)


def _signature(tree: Any) -> Any:
    """Structure, shapes, dtypes and weak types of a tree."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]


def _random_action(rng: np.random.Generator, episodes: int) -> Action:
    amounts = np.exp(rng.uniform(0, np.log(1e9), episodes))
    odd = rng.choice([math.nan, math.inf, -math.inf, -1.0, 0.0, 1e30], episodes)
    amounts = np.where(rng.uniform(size=episodes) < 0.2, odd, amounts)
    return Action(
        jnp.asarray(rng.uniform(size=episodes) < 0.3),
        jnp.asarray(rng.integers(-1, DEBT + 2, episodes), dtype=jnp.int32),
        jnp.asarray(amounts, dtype=jnp.result_type(float)),
    )


def _random_call(rng: np.random.Generator, episodes: int) -> ToolCall:
    spread = lambda leaf: jnp.broadcast_to(leaf, (episodes,))
    names = [field.name for field in dataclasses.fields(Assumptions) if field.name not in COUNTED_ASSUMPTIONS]
    figures = rng.choice([math.nan, math.inf, -1.0, 0.0, 0.5, 1e6], len(names))
    changed: dict[str, Any] = {
        "funding_month": jnp.int32(rng.integers(-2, 40)),
        "horizon": jnp.int32(rng.integers(-2, 40)),
    }
    one = int(rng.integers(2 * len(names)))  # in half of the calls one figure is odd
    if one < len(names):
        changed[names[one]] = jnp.asarray(figures[one], dtype=jnp.result_type(float))
    assumptions = dataclasses.replace(assume(), **changed)
    return ToolCall(
        jnp.asarray(rng.integers(-1, len(TOOLS) + 1, episodes), dtype=jnp.int32),
        jnp.asarray(rng.choice([-1, 0, 1, 5, ALL_INDICATORS, ALL_INDICATORS + 1], episodes), dtype=jnp.int32),
        jax.tree.map(spread, assumptions),
    )


def _check_timestep(env: Arena, timestep: Timestep) -> None:
    is_spec = lambda leaf: isinstance(leaf, Spec)
    specs = jax.tree.leaves(env.observation_spec, is_leaf=is_spec)
    leaves = jax.tree.leaves(timestep.observation)
    assert len(specs) == len(leaves), "the observation has not the leaves of its specification"
    for spec, leaf in zip(specs, leaves, strict=True):
        values = np.asarray(leaf)
        assert values.dtype == spec.dtype, f"{spec.name} is {values.dtype}, specified {spec.dtype}"
        assert values.shape[1:] == spec.shape, f"{spec.name} has shape {values.shape[1:]}, specified {spec.shape}"
        assert np.isfinite(values).all(), f"{spec.name} is not finite"
        outside = values[(values < spec.low) | (values > spec.high)]
        assert not outside.size, f"{spec.name} is {outside[:1]}, specified [{spec.low}, {spec.high}]"


def _check_finite(state: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        assert np.isfinite(np.asarray(leaf)).all(), f"state{jax.tree_util.keystr(path)} is not finite"


def _check_unchanged(before: Any, after: Any, ended: np.ndarray) -> None:
    for (path, old), new in zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True):
        same = np.array_equal(np.asarray(old)[ended], np.asarray(new)[ended])
        assert same, f"state{jax.tree_util.keystr(path)} changed after the episode's end"
