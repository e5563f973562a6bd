"""A categorical distribution over masked actions. Logits float[..., n], mask bool[..., n] with at least one True."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def log_probabilities(logits: jax.Array, mask: jax.Array) -> jax.Array:
    """float[..., n]; of a masked action the lowest finite number, so that its probability is 0 and 0 * log 0 is 0."""
    lowest = jnp.finfo(logits.dtype).min
    return jnp.where(mask, jax.nn.log_softmax(jnp.where(mask, logits, lowest)), lowest)


def sample(key: jax.Array, logits: jax.Array, mask: jax.Array) -> jax.Array:
    """An action drawn, int32[...]."""
    return jax.random.categorical(key, log_probabilities(logits, mask)).astype(jnp.int32)


def log_prob(logits: jax.Array, mask: jax.Array, action: jax.Array) -> jax.Array:
    """Of an allowed action int32[...]: float[...]."""
    return jnp.take_along_axis(log_probabilities(logits, mask), action[..., None], axis=-1)[..., 0]


def entropy(logits: jax.Array, mask: jax.Array) -> jax.Array:
    """float[...] in nats."""
    log_p = log_probabilities(logits, mask)
    return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)
