"""The critic, of use in training alone: a feed-forward network that shares nothing with the actor."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from arena_jax.policies.network import dense


class Critic(nn.Module):
    """Normalised observation float[..., n] -> value float[...]."""

    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, seen: jax.Array) -> jax.Array:
        for width in self.hidden:
            seen = nn.tanh(dense(width, math.sqrt(2))(seen))
        return dense(1, 1.0)(seen)[..., 0]


def new_critic(hidden: tuple[int, ...], entries: int, key: jax.Array) -> Any:
    """A critic's weights before training."""
    return Critic(hidden).init(key, jnp.zeros(entries, dtype=jnp.float32))["params"]


def judge(hidden: tuple[int, ...], weights: Any, seen: jax.Array) -> jax.Array:
    """A critic's value."""
    found: Any = Critic(hidden).apply({"params": weights}, seen)
    return found
