"""Sobol indices of parameters: what share of a metric's variance over environments is each one's doing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from arena_jax.analysis.metrics import CONFIDENCE
from arena_jax.analysis.sensitivity import MAX_ENVIRONMENTS, SHOWN, Chunk, Range, Values, is_whole
from arena_jax.errors import ArenaError
from arena_jax.params import STATIC

_RESAMPLES = 999


@dataclass(frozen=True)
class Index:
    """First-order and total Sobol index of a parameter, each with a 95% interval; NaN where nothing varies."""

    first: float
    first_low: float
    first_high: float
    total: float
    total_low: float
    total_high: float


def saltelli(ranges: Sequence[Range], samples: int, seed: int = 0) -> Values:
    """Environments for Sobol indices (Saltelli et al. 2010): A, B, then A with parameter i of B, for each i.

    samples: a power of 2; there are samples * (d + 2) environments. Parameters are uniform over their ranges, whole
    numbers over those in it.
    """
    from scipy import stats

    if bad := [one.name for one in ranges if one.name in STATIC]:
        raise ArenaError(f"parameter {bad[0]} is static: a grid takes it (NAME=LO:HI:N), Sobol indices don't")
    if len(ranges) < 2:
        raise ArenaError("Sobol indices compare parameters: give at least two ranges")
    if samples < 16 or samples & (samples - 1):
        raise ArenaError(f"samples of Sobol indices must be a power of 2 from 16 on, got {samples}")
    total = samples * (len(ranges) + 2)
    if total > MAX_ENVIRONMENTS:
        raise ArenaError(f"{samples:,} samples of {len(ranges)} parameters make {total:,} environments, at most "
                         f"{MAX_ENVIRONMENTS:,}")  # fmt: skip
    unit = stats.qmc.Sobol(2 * len(ranges), rng=np.random.default_rng(seed)).random(samples)
    distributions = [
        stats.randint(int(one.low), int(one.high) + 1)
        if is_whole(one.name)
        else stats.uniform(one.low, one.high - one.low)
        for one in ranges
    ]
    a, b = (
        np.stack([law.ppf(half[:, i]) for i, law in enumerate(distributions)])
        for half in (unit[:, : len(ranges)], unit[:, len(ranges) :])
    )
    mixed = np.repeat(a[None], len(ranges), axis=0)
    mixed[np.arange(len(ranges)), np.arange(len(ranges))] = b
    table = np.concatenate([a, b, *mixed], axis=1)
    return {one.name: table[i] for i, one in enumerate(ranges)}


def sobol_indices(played: Iterable[Chunk], values: Values, samples: int) -> dict[str, dict[str, Index]]:
    """Per shown metric and parameter the indices of the metric's mean over the environments of `saltelli`.

    played: by `play_environments`, with the values and samples of `saltelli`.
    """
    environments = len(next(iter(values.values())))
    means = {name: np.empty(environments) for name in SHOWN}
    for where, metrics in played:
        for name in SHOWN:
            means[name][where] = metrics[name].mean(axis=1)
    return {name: _indices(found.reshape(len(values) + 2, samples), tuple(values)) for name, found in means.items()}


def _indices(f: np.ndarray, parameters: Sequence[str]) -> dict[str, Index]:
    """From a function's values in A, B and each A with a parameter of B, float64[d + 2, samples]."""
    from scipy import stats

    samples = f.shape[1]
    if f.min() == f.max():
        return {name: Index(*[math.nan] * 6) for name in parameters}

    def both(rows: np.ndarray) -> np.ndarray:
        chosen = f[:, rows]
        given = {"f_A": chosen[:1], "f_B": chosen[1:2], "f_AB": chosen[2:, None]}
        found = stats.sobol_indices(func=given, n=samples)
        return np.stack([found.first_order, found.total_order])

    interval = stats.bootstrap(
        (np.arange(samples),), both, n_resamples=_RESAMPLES, method="percentile", confidence_level=CONFIDENCE,
        vectorized=False, rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    mean, low, high = both(np.arange(samples)), interval.low, interval.high
    return {
        name: Index(*[float(bound[kind, i]) for kind in (0, 1) for bound in (mean, low, high)])
        for i, name in enumerate(parameters)
    }
