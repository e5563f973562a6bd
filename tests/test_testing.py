"""The conformance suite passes on our environments and catches what it is for."""

import dataclasses

import jax.numpy as jnp
import pytest

import arena_jax
from arena_jax.arena import Arena
from arena_jax.testing import check_env


class Leaky(Arena):
    """Steps on after the end."""

    def step(self, state, action, key):
        after, timestep = super().step(state, action, key)
        tally = dataclasses.replace(after.tally, actions=after.tally.actions + 1)
        return dataclasses.replace(after, tally=tally), timestep


class Weak(Arena):
    """Lets a weak type into the tree."""

    def reset(self, key):
        state, timestep = super().reset(key)
        return dataclasses.replace(state, month=jnp.asarray(0)), timestep


def test_check_env_passes():
    check_env(arena_jax.make(), episodes=16)


@pytest.mark.slow
def test_check_env_passes_on_a_relaxed_world():
    check_env(arena_jax.make(exclusive=False, max_pending=3, tool_budget=1))


@pytest.mark.parametrize(
    ("broken", "message"),
    [(Weak, "another tree"), pytest.param(Leaky, "changed after", marks=pytest.mark.slow)],
)
def test_check_env_catches(broken, message):
    env = arena_jax.make()
    with pytest.raises(AssertionError, match=message):
        check_env(broken(env.params, env.scenario), episodes=16)
