"""How many runs of each side tell two policies apart: 80% power at 5%, two-sided.

Up to 200 runs, of shares up to 2,000, the answer is resampled from the units played, with the test that would be used
on them, for the columns are far from normal; beyond, where means of so many are near it, it comes from the noncentral t
distribution. Shares take exact tests on both sides, McNemar's in pairs and Fisher's unpaired, so that the two compare.
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
_RESAMPLED_SHARES = 2_000
_RESAMPLES = 2_000
_LEAST_SHARES = 4  # Fisher's exact test tells no fewer against as many apart at 5%


@dataclass(frozen=True)
class Runs:
    """Runs of each side, over common worlds and over worlds of its own; None if nothing differs or over ten million."""

    paired: int | None
    unpaired: int | None


def runs_needed(one: np.ndarray, other: np.ndarray, *, is_binary: bool = False) -> Runs:
    """From n paired units, float64[n] each. is_binary: all 0 or 1, where the tests are exact; else t tests."""
    return Runs(*[_needed(one, other, is_paired, is_binary) for is_paired in (True, False)])


def _needed(one: np.ndarray, other: np.ndarray, is_paired: bool, is_binary: bool) -> int | None:
    if len(one) < 2 or one.mean() == other.mean():
        return None
    difference = other - one
    sd = difference.std(ddof=1) if is_paired else math.sqrt(one.var(ddof=1) + other.var(ddof=1))
    effect = abs(difference.mean()) / sd if sd > 0.0 else math.inf
    least = _LEAST_SHARES if is_binary and not is_paired else 2
    by_theory = _smallest(lambda n: _t_power(effect, n, 1 if is_paired else 2) >= POWER, least, MOST_RUNS)
    if by_theory is None or by_theory > (_RESAMPLED_SHARES if is_binary else _RESAMPLED_RUNS):
        return by_theory
    resampled = _share_power if is_binary else _mean_power
    return _smallest(lambda n: resampled(one, other, n, is_paired) >= POWER, least, MOST_RUNS)


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


def _share_power(one: np.ndarray, other: np.ndarray, n: int, is_paired: bool) -> float:
    """The share of samples of n units of each side that the exact test of shares tells apart."""
    from scipy import stats

    rng = np.random.default_rng(0)
    if is_paired:
        changes = [np.mean(other > one), np.mean(other < one), np.mean(other == one)]
        up, down, _ = rng.multinomial(n, changes, _RESAMPLES).T
        tails = stats.binom.cdf(np.minimum(up, down), up + down, 0.5)
    else:
        a, b = rng.binomial(n, one.mean(), _RESAMPLES), rng.binomial(n, other.mean(), _RESAMPLES)
        tails = stats.hypergeom.cdf(np.minimum(a, b), 2 * n, n, a + b)  # Fisher's, symmetric as sides are of one size
    return float(np.mean(2 * tails < 1 - CONFIDENCE))


def _mean_power(one: np.ndarray, other: np.ndarray, n: int, is_paired: bool) -> float:
    """The share of samples of n units of each side that the t test, unpaired Welch's, tells apart."""
    from scipy import stats

    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(one), (_RESAMPLES, n))
    a, b = one[rows], other[rows if is_paired else rng.integers(0, len(other), (_RESAMPLES, n))]
    if is_paired:
        difference = b - a
        critical = stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1) / math.sqrt(n)
        return float(np.mean(np.abs(difference.mean(axis=1)) > critical * difference.std(axis=1, ddof=1)))
    sides = [part for values in (a, b) for part in (values.mean(axis=1), values.std(axis=1, ddof=1), n)]
    return float(np.mean(stats.ttest_ind_from_stats(*sides, equal_var=False).pvalue < 1 - CONFIDENCE))
