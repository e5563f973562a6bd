"""New worlds: random trajectories of every column, with the statistics of the default one (paper, limitations).

The model, in the order in which a world is drawn; its constants are in `data/generator.json`, written by
`baselines/fit_generator.py` from the default trajectory and nothing else:

- The market's phase (expansion, neutral, recession) is a semi-Markov chain: log-normal spells, fitted transitions.
- Each macro column and the sector margin is a transformed latent column (`from_latent`): rates never fall below zero.
  The latent columns are a rotation of as many components x, each drawn to its mean m of the phase s:
  x' = x + v',  v' = k (m[s] - x) + p v + w,  w ~ N(0, S[s]), one covariance S for each phase.
- A world begins after 20 years of the same process, so its start is as random as its end.
- User growth is constant but for surges: three in 132 months (one in 44), anywhere, of random length and size, and
  independent of the market.
- A crisis is such a surge: originations eat the cash. Its crisis month is the 11th of the surge, which is where the
  default trajectory's crises lie (its surges begin 10, 9 and 11 months before months 30, 55 and 110).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.data import data_path
from arena_jax.draws import Key, key_words, normal, threefry2x32, uniform
from arena_jax.errors import check_count
from arena_jax.scenario import COLUMNS, HORIZON, MAX_HORIZON, Scenario

VERSION = 1  # raised whenever a key would give another world
SURGE_SPACING = 44  # months of horizon for each surge: three in 132
_BURN_IN = 240
_SHORTEST_SPELL = 3  # months
# blocks of the random stream, apart from those of episodes (draws.py); innovations use the blocks from 34 on
_REGIME_BLOCK, _SURGE_BLOCK, _FIRST_BLOCK = range(32, 33), range(33, 34), 34
INDUSTRY_MEAN, INDUSTRY_DELAY = 6, 3  # months: industry_user_growth is a six-month mean, published three months late


@dataclasses.dataclass(frozen=True)
class Surges:
    """Growth surges: trapezoids of user growth, % a month, over a constant base."""

    base: float
    size: float  # median height above the base, % a month
    months: float  # median length
    spread: float  # SD of the logarithms of height and length
    ramp: int  # months from base to full height, and back
    gap: int  # least months before each surge
    crisis: int  # months from a surge's start to its crisis month


@dataclasses.dataclass(frozen=True)
class Model:
    """Fitted constants; n latent columns, as many components, 3 phases."""

    fitted_to: str  # digest of the default trajectory
    columns: list[str]
    center: np.ndarray  # float[n], latent units
    scale: np.ndarray  # float[n]
    rotation: np.ndarray  # float[n, n]: latent column = center + scale * (rotation @ components)
    reversion: np.ndarray  # float[n], share of the gap closed each month
    momentum: np.ndarray  # float[n]
    regime_means: np.ndarray  # float[3, n]
    innovations: np.ndarray  # float[3, n, n], Cholesky factors
    transitions: np.ndarray  # float[3, 3]
    spell_months: np.ndarray  # float[3], mean length
    spell_spread: float  # SD of the logarithm of a spell's length
    surges: Surges


def model_bytes() -> bytes:
    """The file of fitted constants."""
    return data_path("generator.json").read_bytes()


def model_digest() -> str:
    """SHA-256 of the fitted constants: with `VERSION`, what a key means."""
    return hashlib.sha256(model_bytes()).hexdigest()


@functools.lru_cache(maxsize=1)
def fitted_model() -> Model:
    """The constants in `data/generator.json`."""
    found: dict[str, Any] = json.loads(model_bytes())
    tables = {name: np.asarray(value) for name, value in found.items() if isinstance(value, list) and name != "columns"}
    return Model(**found | tables | {"surges": Surges(**found["surges"])})


def to_latent(name: str, values: np.ndarray) -> np.ndarray:
    """A column float[T] on the scale on which the model is linear; the inverse of `from_latent`."""
    column = COLUMNS[name]
    if column.low < 0:
        return values
    return column.scale * np.log(np.expm1(np.maximum(values, 1e-3) / column.scale))


def from_latent(name: str, latent: jax.Array) -> jax.Array:
    """float[T] to the column's unit: softplus at the column's scale where it can't be negative, kept in its range."""
    column = COLUMNS[name]
    value = latent if column.low < 0 else column.scale * jax.nn.softplus(latent / column.scale)
    return jnp.clip(value, column.low, column.high)


def _uniforms(key: Key, count: int, blocks: range) -> jax.Array:
    """float[count, 2 * blocks] uniforms: counters (0 .. count - 1, block)."""
    counters = jnp.meshgrid(*[jnp.asarray(axis, dtype=jnp.uint32) for axis in (range(count), blocks)], indexing="ij")
    words = threefry2x32(Key(*[jnp.broadcast_to(word, counters[0].shape) for word in key]), *counters)
    return uniform(jnp.stack(words, axis=-1)).reshape(count, -1)


class _Market(NamedTuple):
    """The latent market of one month."""

    regime: jax.Array  # int32 []
    months_left: jax.Array  # float []
    components: jax.Array  # float [n]
    change: jax.Array  # float [n]


def _market_columns(key: Key, horizon: int) -> dict[str, jax.Array]:
    """The macro columns and the sector margin, float[T] each."""
    model, dtype = fitted_model(), jnp.result_type(float)
    constant = lambda name: jnp.asarray(getattr(model, name), dtype=dtype)
    reversion, momentum, means = constant("reversion"), constant("momentum"), constant("regime_means")
    innovations, climb = constant("innovations"), jnp.cumsum(constant("transitions"), axis=1)
    spell_months, spread = constant("spell_months"), constant("spell_spread")

    def one_month(now: _Market, luck: Any) -> tuple[_Market, jax.Array]:
        (where, how_long), shocks = luck
        ended = now.months_left <= 0
        following = jnp.sum(where > climb[now.regime][:-1]).astype(jnp.int32)
        regime = jnp.where(ended, following, now.regime)
        length = jnp.round(spell_months[regime] * jnp.exp(spread * normal(how_long) - 0.5 * spread * spread))
        months_left = jnp.where(ended, jnp.maximum(length, _SHORTEST_SPELL), now.months_left) - 1
        change = reversion * (means[regime] - now.components) + momentum * now.change + innovations[regime] @ shocks
        components = now.components + change
        return _Market(regime, months_left, components, change), components

    months, count = _BURN_IN + horizon, len(model.columns)
    shocks = normal(_uniforms(key, months, range(_FIRST_BLOCK, _FIRST_BLOCK + -(-count // 2))))[:, :count]
    luck = (_uniforms(key, months, _REGIME_BLOCK), shocks)
    start = _Market(jnp.int32(0), jnp.zeros((), dtype=dtype), means[0], jnp.zeros_like(means[0]))
    _, components = jax.lax.scan(one_month, start, luck)
    latent = constant("center")[None, :] + constant("scale")[None, :] * (components[_BURN_IN:] @ constant("rotation").T)
    return {name: from_latent(name, latent[:, i]) for i, name in enumerate(model.columns)}


def _growth_columns(key: Key, horizon: int) -> tuple[dict[str, jax.Array], jax.Array]:
    """user_growth and industry_user_growth, float[T], and the crisis months, int32[horizon // 44]."""
    surges, count = fitted_model().surges, horizon // SURGE_SPACING
    lucks = _uniforms(key, 2 * count + 1, _SURGE_BLOCK)
    height, stretch = [jnp.exp(surges.spread * normal(lucks[:count, i])) for i in range(2)]
    length = jnp.clip(jnp.round(surges.months * stretch), 2.0 * surges.ramp, SURGE_SPACING - surges.gap)
    # what is left of the horizon is spread over the gaps like the gaps between uniform points
    gaps = -jnp.log(lucks[count:, 0])
    spare = horizon - jnp.sum(length) - count * surges.gap
    gap = surges.gap + jnp.floor(spare * gaps[:count] / jnp.sum(gaps))
    end = jnp.cumsum(gap + length)
    start = end - length
    month = jnp.arange(horizon, dtype=end.dtype)[:, None]
    profile = jnp.clip(jnp.minimum(month - start[None, :] + 1.0, end[None, :] - month) / surges.ramp, 0.0, 1.0)
    growth = surges.base + profile @ (surges.size * height)
    earlier = jnp.full(INDUSTRY_MEAN + INDUSTRY_DELAY - 1, surges.base, dtype=growth.dtype)
    known = jnp.concatenate([earlier, growth])
    windows = [known[i : i + horizon] for i in range(INDUSTRY_MEAN)]
    published = sum(windows[1:], start=windows[0]) / INDUSTRY_MEAN
    columns = {"user_growth": growth, "industry_user_growth": published}
    return columns, (start + surges.crisis).astype(jnp.int32)


@partial(jax.jit, static_argnames=("horizon",))
def sample_scenario(key: jax.Array, horizon: int = HORIZON) -> Scenario:
    """A new world of `horizon` months: leaves float[T] per column, crisis_months int32[horizon // 44], at least three.

    Pure, and vmap-able over `key`, a threefry key. The same key, `VERSION` and `data/generator.json` give the same
    world whatever the version of JAX. horizon: static, 132 to 12,000. Raises `ArenaError` for other keys and horizons.
    """
    check_count("horizon", horizon, HORIZON, MAX_HORIZON)
    words = key_words(key, ())
    growth, crisis_months = _growth_columns(words, horizon)
    return Scenario(**_market_columns(words, horizon), **growth, crisis_months=crisis_months)
