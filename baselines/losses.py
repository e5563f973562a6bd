"""The losses of PPO (Schulman et al. 2017) and generalised advantages (Schulman et al. 2016), on arrays alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def advantages(
    rewards: jax.Array, values: jax.Array, ended: jax.Array, last_value: jax.Array, gamma: float, trace: float
) -> jax.Array:
    """Generalised advantage estimates float[T, n]; `trace` is lambda there.

    rewards, values float[T, n]: of each step, and of what was seen before it; ended bool[T, n]: with this step;
    last_value float[n]: of what is seen after the last one. Nothing is carried across an end.
    """

    def back(carry: tuple[jax.Array, jax.Array], row: Any) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        following, advantage = carry
        reward, value, is_end = row
        goes_on = 1.0 - is_end.astype(value.dtype)
        error = reward + gamma * following * goes_on - value
        advantage = error + gamma * trace * goes_on * advantage
        return (value, advantage), advantage

    start = (last_value, jnp.zeros_like(last_value))
    return jax.lax.scan(back, start, (rewards, values, ended), reverse=True)[1]


def policy_loss(log_prob: jax.Array, old_log_prob: jax.Array, advantage: jax.Array, clip: float) -> jax.Array:
    """The clipped surrogate, float[]; arrays float[...] of one shape."""
    ratio = jnp.exp(log_prob - old_log_prob)
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))


def value_loss(value: jax.Array, target: jax.Array) -> jax.Array:
    """Half the mean squared error, float[]."""
    return 0.5 * jnp.mean((value - target) ** 2)


def normalised(advantage: jax.Array) -> jax.Array:
    """Of mean 0 and standard deviation 1."""
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def divergence(log_prob: jax.Array, old_log_prob: jax.Array) -> jax.Array:
    """An estimate of the Kullback-Leibler divergence of new from old, float[]: E[ratio - 1 - log ratio]."""
    change = log_prob - old_log_prob
    return jnp.mean(jnp.exp(change) - 1.0 - change)
