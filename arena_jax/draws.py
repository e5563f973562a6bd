"""The random stream: counter-based, so that the state holds no key (design section 5.3).

An episode's key gives two 32-bit words; threefry2x32 with counter (i, block) gives two words a block.
Blocks 0-6 with i = month are the world's month; blocks 16-17 with i = number of requests made before are the
next request's luck: the k-th request of an episode has the same luck whenever it is made.

All functions are elementwise on uint32 arrays of any shape [...]. They are written on scalars per episode, not on
small per-episode vectors, because only then the CPU compiler vectorises them across the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from arena_jax.errors import ArenaError

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_INDICATOR_BLOCKS, _FLASH_BLOCKS, _REQUEST_BLOCKS = range(0, 5), range(5, 7), range(16, 18)

# Giles (2010), "Approximating the erfinv function", single precision: coefficients for w < 5 and w >= 5
_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


class Key(NamedTuple):
    """The two uint32[...] words of an episode's key."""

    k0: jax.Array
    k1: jax.Array


class Indicators(NamedTuple):
    """One value per operational indicator, in the order of design section 2.2; leaves float[...]."""

    user_growth: jax.Array
    loan_size: jax.Array
    lending_rate: jax.Array
    repayment_rate: jax.Array
    charge_off_rate: jax.Array
    servicing_cost: jax.Array
    fixed_cost: jax.Array
    acquisition_cost: jax.Array
    interest_lag: jax.Array
    cost_lag: jax.Array


class Flash(NamedTuple):
    """One value per flash figure; leaves float[...]."""

    users: jax.Array
    originations: jax.Array
    collections: jax.Array


class MonthDraws(NamedTuple):
    """The world's standard normals of one month."""

    indicators: Indicators
    flash: Flash


class RequestDraws(NamedTuple):
    """The uniforms in (0, 1) that decide a funding request."""

    outcome: jax.Array
    fraction: jax.Array
    delay: jax.Array


class Draws(NamedTuple):
    """Everything random in one month."""

    month: MonthDraws
    request: RequestDraws


def key_words(key: jax.Array, shape: tuple[int, ...] | None = None) -> Key:
    """The words of a typed or legacy threefry key, or of a batch of them; other keys raise `ArenaError`."""
    if not isinstance(key, jax.Array):
        raise ArenaError(f"key must be a JAX threefry key such as jax.random.key(0), got {type(key).__name__}")
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if str(jax.random.key_impl(key)) != "threefry2x32":
            raise ArenaError(f"key must be a threefry2x32 key, got {jax.random.key_impl(key)}")
        key = jax.random.key_data(key)
    if key.dtype != jnp.uint32 or key.ndim == 0 or key.shape[-1] != 2:
        raise ArenaError(f"key must be a threefry key of two uint32 words, got {key.dtype}{list(key.shape)}")
    if shape is not None and key.shape[:-1] != shape:
        raise ArenaError(f"key must be one key here, got keys{list(key.shape[:-1])}; use jax.vmap for a batch")
    return Key(key[..., 0], key[..., 1])


def threefry2x32(key: Key, x0: jax.Array, x1: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two uint32[...] words of Threefry-2x32-20 (Salmon et al. 2011), bit-equal to JAX's."""
    keys = (key.k0, key.k1, key.k0 ^ key.k1 ^ jnp.uint32(_PARITY))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << jnp.uint32(rotation)) | (x1 >> jnp.uint32(32 - rotation))
            x1 = x0 ^ x1
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return x0, x1


def uniform(bits: jax.Array) -> jax.Array:
    """uint32[...] to float[...] strictly inside (0, 1): the midpoints of 2^23 equal cells."""
    dtype = jnp.result_type(float)
    return ((bits >> jnp.uint32(9)).astype(dtype) + 0.5) * 2.0**-23


def normal(uniforms: jax.Array) -> jax.Array:
    """Standard normals float[...] by the inverse CDF of float[...] uniforms; absolute error below 2e-6."""
    w = -jnp.log(4.0 * uniforms * (1.0 - uniforms))
    is_central = w < 5.0
    w = jnp.where(is_central, w - 2.5, jnp.sqrt(w) - 3.0)
    poly = jnp.where(is_central, _CENTRAL[0], _TAIL[0]).astype(w.dtype)
    for central, tail in zip(_CENTRAL[1:], _TAIL[1:], strict=True):
        poly = poly * w + jnp.where(is_central, central, tail).astype(w.dtype)
    return poly * (2.0 * uniforms - 1.0) * 2.0**0.5


def _draw(
    distribution: Callable[[jax.Array], jax.Array], key: Key, index: jax.Array, blocks: range, unroll: bool
) -> list[jax.Array]:
    """Two draws float[...] for each counter (index, block), in order, from the words' uniforms.

    Unrolled, the expressions vectorise across a batch, but the compiler copies the generator into every consumer of a
    draw: right where the draws cross a loop boundary anyway (batch play). Else a loop keeps the program small.
    """
    index = jnp.broadcast_to(jnp.asarray(index).astype(jnp.uint32), key.k0.shape)

    def one_block(block: jax.Array) -> list[jax.Array]:
        return [distribution(uniform(word)) for word in threefry2x32(key, index, jnp.broadcast_to(block, index.shape))]

    if unroll:
        return [draw for block in blocks for draw in one_block(jnp.uint32(block))]
    firsts, seconds = jax.lax.map(one_block, jnp.asarray(blocks, dtype=jnp.uint32))
    return [half[i] for i in range(len(blocks)) for half in (firsts, seconds)]


def month_draws(key: Key, month: jax.Array, *, unroll: bool = False) -> MonthDraws:
    """The standard normals of `month` (int32, scalar or [...]): words 0-9 the indicators, 10-12 the flash errors."""
    indicators = _draw(normal, key, month, _INDICATOR_BLOCKS, unroll)
    return MonthDraws(Indicators(*indicators), Flash(*_draw(normal, key, month, _FLASH_BLOCKS, unroll)[:3]))


def request_draws(key: Key, requests_made: jax.Array, *, unroll: bool = False) -> RequestDraws:
    """The luck of the next request of an episode that has made `requests_made` (int32[...]) before."""
    return RequestDraws(*_draw(lambda u: u, key, requests_made, _REQUEST_BLOCKS, unroll)[:3])


def episode_keys(run_key: jax.Array, episodes: jax.Array) -> jax.Array:
    """Key of each episode: fold_in(run key, index) for uint32[n] indices."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(run_key, episodes)
