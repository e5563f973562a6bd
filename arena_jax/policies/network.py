"""The networks of trained policies, and what they see: training and playing use the same ones. Needs flax.

The memory of a feed-forward actor is (), that of a GRU float[units]. Written for one observation or for any batch of
them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from arena_jax.errors import ArenaError, check_count, shown

KINDS = ("feed-forward", "gru")
MAX_LAYERS, MAX_WIDTH = 8, 4096
CLIP = 10.0  # of a normalised entry, either way
_LEAST_VARIANCE = 1e-4  # entries are of order 1 by their scales; what hardly moves is not blown up


@dataclass(frozen=True)
class Sizes:
    """What a network is made of: units of each hidden layer, entries of the observation, actions.

    Raises `ArenaError` for what is no network, or a larger one than is played.
    """

    kind: str
    hidden: tuple[int, ...]
    observation: int
    actions: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ArenaError(f"a network must be one of {', '.join(KINDS)}, got {shown(self.kind)}")
        if not isinstance(self.hidden, tuple) or not 1 <= len(self.hidden) <= MAX_LAYERS:
            raise ArenaError(f"a network has 1 to {MAX_LAYERS} hidden layers, got {shown(self.hidden)}")
        for count in (*self.hidden, self.observation, self.actions):
            check_count("units of a layer", count, 1, MAX_WIDTH)


class Actor(nn.Module):
    """memory, normalised observation float[..., n] -> memory, logits float[..., actions]."""

    sizes: Sizes

    @nn.compact
    def __call__(self, memory: Any, seen: jax.Array) -> tuple[Any, jax.Array]:
        *widths, last = self.sizes.hidden
        for width in widths:
            seen = nn.tanh(dense(width, math.sqrt(2))(seen))
        if self.sizes.kind == "gru":
            memory, seen = nn.GRUCell(last)(memory, seen)
        else:
            seen = nn.tanh(dense(last, math.sqrt(2))(seen))
        return memory, dense(self.sizes.actions, 0.01)(seen)


def dense(width: int, scale: float) -> nn.Dense:
    """A layer whose weights begin orthogonal, times `scale`."""
    return nn.Dense(width, kernel_init=nn.initializers.orthogonal(scale))


def start_memory(sizes: Sizes, shape: tuple[int, ...] = ()) -> Any:
    """An actor's memory at an episode's start."""
    return jnp.zeros((*shape, sizes.hidden[-1]), dtype=jnp.float32) if sizes.kind == "gru" else ()


def new_actor(sizes: Sizes, key: jax.Array) -> Any:
    """An actor's weights before training."""
    return Actor(sizes).init(key, start_memory(sizes), jnp.zeros(sizes.observation, dtype=jnp.float32))["params"]


def act(sizes: Sizes, weights: Any, memory: Any, seen: jax.Array) -> tuple[Any, jax.Array]:
    """An actor's memory and logits."""
    found: Any = Actor(sizes).apply({"params": weights}, memory, seen)
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

    def first(self, entries: int) -> Normaliser:
        """Of the first entries alone."""
        return Normaliser(self.mean[:entries], self.variance[:entries], self.count)

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
