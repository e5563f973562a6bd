"""The random stream: counter-based, so that the state holds no key (design section 5.3).

An episode's key gives two 32-bit words; threefry2x32 with counter (i, block) gives two words a block.
Blocks 0-6 with i = month are the world's month; blocks 16-17 with i = number of requests made before are the
next request's luck: the k-th request of an episode has the same luck whenever it is made. Block 24 with i = 0 is
for environments that hold many worlds: it chooses the episode's.

All functions are elementwise on uint32 arrays of any shape [...]. They are written on scalars per episode, not on
small per-episode vectors, because only then the CPU compiler vectorises them across the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from arena_jax.errors import ArenaError

MAX_SEED = 2**32 - 1
# episodes use fold_in(run key, index) with index below this number; the policies' keys branch off here
POLICY_STREAM = 2**32 - 1

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_INDICATOR_BLOCKS, _FLASH_BLOCKS, _REQUEST_BLOCKS = range(0, 5), range(5, 7), range(16, 18)
_WORLD_BLOCK = 24

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


def _pairs(
    distribution: Callable[[jax.Array], jax.Array], key: Key, index: jax.Array, blocks: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Two draws float[...] for the counter (index, block), from the words' uniforms."""
    first, second = threefry2x32(key, index, blocks)
    return distribution(uniform(first)), distribution(uniform(second))


def _draw(distribution: Callable[[jax.Array], jax.Array], key: Key, index: jax.Array, blocks: range) -> list[jax.Array]:
    """Two draws float[...] for each block, in order; a loop over the blocks keeps the program small."""
    index = jnp.broadcast_to(index.astype(jnp.uint32), key.k0.shape)
    one_block = lambda block: _pairs(distribution, key, index, jnp.broadcast_to(block, index.shape))
    firsts, seconds = jax.lax.map(one_block, jnp.asarray(blocks, dtype=jnp.uint32))
    return [half[i] for i in range(len(blocks)) for half in (firsts, seconds)]


def month_draws(key: Key, month: jax.Array) -> MonthDraws:
    """The standard normals of `month` (int32, scalar or [...]): words 0-9 the indicators, 10-12 the flash errors."""
    indicators = _draw(normal, key, month, _INDICATOR_BLOCKS)
    return MonthDraws(Indicators(*indicators), Flash(*_draw(normal, key, month, _FLASH_BLOCKS)[:3]))


def request_draws(key: Key, requests_made: jax.Array) -> RequestDraws:
    """The luck of the next request of an episode that has made `requests_made` (int32[...]) before."""
    return RequestDraws(*_draw(_as_they_are, key, requests_made, _REQUEST_BLOCKS)[:3])


def world_draw(key: Key) -> jax.Array:
    """The uniform float[...] that chooses an episode's world among many."""
    return _pairs(_as_they_are, key, jnp.zeros_like(key.k0), jnp.full_like(key.k0, _WORLD_BLOCK))[0]


def _as_they_are(uniforms: jax.Array) -> jax.Array:
    return uniforms


class PackedDraws(NamedTuple):
    """Everything random in one month, as batch play carries it: [blocks, episodes], two draws of a block together."""

    indicators: Any
    flash: Any
    request: Any


def packed_draws(key: Key, month: jax.Array, requests_made: jax.Array) -> PackedDraws:
    """The draws of `month` int32[] of a batch: keys uint32[n], requests_made int32[n].

    The CPU compiler writes one array a loop, and would run each block twice, once for each of its two draws. Packed
    into one 64-bit word a block runs once. Blocks are an axis, so that three loops make all the draws.
    """

    def blocks_of(distribution: Callable[[jax.Array], jax.Array], index: jax.Array, blocks: range) -> Any:
        shape = (len(blocks), *key.k0.shape)
        rows = Key(jnp.broadcast_to(key.k0, shape), jnp.broadcast_to(key.k1, shape))
        counter = jnp.broadcast_to(jnp.asarray(blocks, dtype=jnp.uint32)[:, None], shape)
        return _pack(*_pairs(distribution, rows, jnp.broadcast_to(index.astype(jnp.uint32), shape), counter))

    return PackedDraws(
        indicators=blocks_of(normal, month, _INDICATOR_BLOCKS),
        flash=blocks_of(normal, month, _FLASH_BLOCKS),
        request=blocks_of(_as_they_are, requests_made, _REQUEST_BLOCKS),
    )


def unpacked_draws(packed: PackedDraws) -> Draws:
    """What `month_draws` and `request_draws` give, leaves [n]."""
    indicators, flash, request = ([draw for pair in zip(*_unpack(x), strict=True) for draw in pair] for x in packed)
    return Draws(MonthDraws(Indicators(*indicators), Flash(*flash[:3])), RequestDraws(*request[:3]))


def _pack(first: jax.Array, second: jax.Array) -> Any:
    """Two float32[...] as one uint64[...]; float64 stays a pair, for no word holds two of them."""
    if first.dtype != jnp.float32:
        return first, second
    high, low = (jax.lax.bitcast_convert_type(half, jnp.uint32) for half in (first, second))
    with jax.enable_x64(True):
        return (high.astype(jnp.uint64) << jnp.uint64(32)) | low.astype(jnp.uint64)


def _unpack(packed: Any) -> tuple[jax.Array, jax.Array]:
    if isinstance(packed, tuple):
        return packed
    with jax.enable_x64(True):
        halves = (packed >> jnp.uint64(32)).astype(jnp.uint32), packed.astype(jnp.uint32)
    first, second = (jax.lax.bitcast_convert_type(half, jnp.float32) for half in halves)
    return first, second


def episode_keys(run_key: jax.Array, episodes: jax.Array) -> jax.Array:
    """Key of each episode: fold_in(run key, index) for uint32[n] indices."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(run_key, episodes)
