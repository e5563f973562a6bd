"""The networks of trained policies, and what they see: training and playing use the same ones. Needs flax.

Both are an actor and a critic that share nothing. Of a feed-forward network the memory is (), of a GRU the float[units]
of each. Written for one observation or for any batch of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

KINDS = ("feed-forward", "gru")
CLIP = 10.0  # of a normalised entry, either way
_LEAST_VARIANCE = 1e-4  # entries are of order 1 by their scales; what hardly moves is not blown up


@dataclass(frozen=True)
class Sizes:
    """What a network is made of: units of each hidden layer, entries of the observation, actions."""

    kind: str
    hidden: tuple[int, ...]
    observation: int
    actions: int


class Body(nn.Module):
    """Hidden layers, of a GRU the last one recurrent, and a linear head."""

    sizes: Sizes
    outputs: int
    head_scale: float

    @nn.compact
    def __call__(self, memory: Any, seen: jax.Array) -> tuple[Any, jax.Array]:
        *_, units = self.sizes.hidden
        is_gru = self.sizes.kind == "gru"
        for width in self.sizes.hidden[:-1] if is_gru else self.sizes.hidden:
            seen = nn.tanh(nn.Dense(width, kernel_init=nn.initializers.orthogonal(math.sqrt(2)))(seen))
        if is_gru:
            memory, seen = nn.GRUCell(units)(memory, seen)
        return memory, nn.Dense(self.outputs, kernel_init=nn.initializers.orthogonal(self.head_scale))(seen)


class Actor(nn.Module):
    """memory, normalised observation float[..., n] -> memory, logits float[..., actions]."""

    sizes: Sizes

    @nn.compact
    def __call__(self, memory: Any, seen: jax.Array) -> tuple[Any, jax.Array]:
        return Body(self.sizes, self.sizes.actions, 0.01)(memory, seen)


class Critic(nn.Module):
    """memory, normalised observation float[..., n] -> memory, value float[...]."""

    sizes: Sizes

    @nn.compact
    def __call__(self, memory: Any, seen: jax.Array) -> tuple[Any, jax.Array]:
        memory, value = Body(self.sizes, 1, 1.0)(memory, seen)
        return memory, value[..., 0]


def start_memory(sizes: Sizes, shape: tuple[int, ...] = ()) -> Any:
    """The memory at an episode's start, of one network."""
    return jnp.zeros((*shape, sizes.hidden[-1]), dtype=jnp.float32) if sizes.kind == "gru" else ()


def new_actor(sizes: Sizes, key: jax.Array) -> Any:
    """An actor's weights before training."""
    return Actor(sizes).init(key, start_memory(sizes), jnp.zeros(sizes.observation, dtype=jnp.float32))["params"]


def new_critic(sizes: Sizes, key: jax.Array) -> Any:
    """A critic's weights before training."""
    return Critic(sizes).init(key, start_memory(sizes), jnp.zeros(sizes.observation, dtype=jnp.float32))["params"]


def act(sizes: Sizes, weights: Any, memory: Any, seen: jax.Array) -> tuple[Any, jax.Array]:
    """An actor's memory and logits."""
    found: Any = Actor(sizes).apply({"params": weights}, memory, seen)
    return found


def judge(sizes: Sizes, weights: Any, memory: Any, seen: jax.Array) -> tuple[Any, jax.Array]:
    """A critic's memory and value."""
    found: Any = Critic(sizes).apply({"params": weights}, memory, seen)
    return found


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Normaliser:
    """Running mean and variance of observations: float32[n] each, and float32[] how many they are of."""

    mean: Any
    variance: Any
    count: Any

    def __call__(self, observation: jax.Array) -> jax.Array:
        """float[..., n] of mean about 0 and variance about 1, at most `CLIP` either way."""
        lead = observation.ndim - self.mean.ndim
        mean, variance = (leaf.reshape((1,) * lead + leaf.shape) for leaf in (self.mean, self.variance))
        return jnp.clip((observation - mean) / jnp.sqrt(jnp.maximum(variance, _LEAST_VARIANCE)), -CLIP, CLIP)

    def updated(self, observations: jax.Array) -> Normaliser:
        """With more observations float32[..., n] merged in."""
        rows = observations.reshape(-1, observations.shape[-1])
        count, mean, variance = jnp.float32(rows.shape[0]), rows.mean(axis=0), rows.var(axis=0)
        total, change = self.count + count, mean - self.mean
        spread = self.variance * self.count + variance * count + change**2 * (self.count * count / total)
        return Normaliser(self.mean + change * (count / total), spread / total, total)


def new_normaliser(entries: int) -> Normaliser:
    """Before any observation."""
    return Normaliser(
        jnp.zeros(entries, dtype=jnp.float32), jnp.ones(entries, dtype=jnp.float32), jnp.zeros((), dtype=jnp.float32)
    )
