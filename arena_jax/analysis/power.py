"""How many runs of each side tell two policies apart: 80% power at 5%, two-sided.

Up to 200 runs the answer is resampled from the units played, with the test that would be used on them, for the columns
are far from normal; beyond, where means of so many are near it, it comes from the noncentral t distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from arena_jax.analysis.metrics import CONFIDENCE

POWER = 0.8
MOST_RUNS = 10**7
_RESAMPLED_RUNS = 200
_RESAMPLES = 2_000
_LEAST_SHARES = 4  # Fisher's exact test tells no fewer against as many apart at 5%


@dataclass(frozen=True)
class Runs:
    """Runs of each side, over common worlds and over worlds of its own; None if nothing differs or over ten million."""

    paired: int | None
    unpaired: int | None


def runs_needed(one: np.ndarray, other: np.ndarray, *, is_binary: bool = False) -> Runs:
    """From n paired units, float64[n] each. is_binary: all 0 or 1, where pairs take McNemar's test; else t tests."""
    return Runs(*[_needed(one, other, is_paired, is_binary) for is_paired in (True, False)])


def _needed(one: np.ndarray, other: np.ndarray, is_paired: bool, is_binary: bool) -> int | None:
    if len(one) < 2 or one.mean() == other.mean():
        return None
    difference = other - one
    sd = difference.std(ddof=1) if is_paired else math.sqrt(one.var(ddof=1) + other.var(ddof=1))
    effect = abs(difference.mean()) / sd if sd > 0.0 else math.inf
    least = _LEAST_SHARES if is_binary and not is_paired else 2
    by_theory = _smallest(lambda n: _t_power(effect, n, 1 if is_paired else 2) >= POWER, least, MOST_RUNS)
    if by_theory is None or by_theory > _RESAMPLED_RUNS:
        return by_theory
    return _smallest(lambda n: _resampled_power(one, other, n, is_paired, is_binary) >= POWER, least, MOST_RUNS)


def _smallest(tells: Callable[[int], bool], least: int, most: int) -> int | None:
    """The smallest number from `least` to `most` that tells, if more always tell where fewer do."""
    low, high = least - 1, least
    while not tells(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tells(middle) else (middle, high)
    return high


def _t_power(effect: float, n: int, samples: int) -> float:
    from scipy import stats

    freedom, shift = samples * (n - 1), effect * math.sqrt(n)
    critical = stats.t.ppf(0.5 + CONFIDENCE / 2, freedom)
    # far beyond the critical value the distribution function is no longer computed
    return 1.0 if shift > 3 * critical + 10 else float(stats.nct.sf(critical, freedom, shift))


def _resampled_power(one: np.ndarray, other: np.ndarray, n: int, is_paired: bool, is_binary: bool) -> float:
    """The share of samples of n units of each side that their test tells apart."""
    from scipy import stats

    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(one), (_RESAMPLES, n))
    a, b = one[rows], other[rows if is_paired else rng.integers(0, len(other), (_RESAMPLES, n))]
    difference = b - a
    if is_paired and is_binary:
        up, down = (difference > 0.0).sum(axis=1), (difference < 0.0).sum(axis=1)
        return float(np.mean(2 * stats.binom.cdf(np.minimum(up, down), up + down, 0.5) < 1 - CONFIDENCE))
    variance = difference.var(axis=1, ddof=1) if is_paired else a.var(axis=1, ddof=1) + b.var(axis=1, ddof=1)
    critical = stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1 if is_paired else 2 * n - 2)
    return float(np.mean(np.abs(difference.mean(axis=1)) > critical * np.sqrt(variance / n)))
