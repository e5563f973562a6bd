"""Two policies, or two environments, over the same worlds: differences on common draws, and what the pairing is worth.

The units are what is independent: episodes of one world, or worlds, each with the mean of its episodes.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arena_jax.analysis.metrics import (
    CONFIDENCE,
    DIFFERENCE,
    METRICS,
    Estimate,
    Moments,
    episode_metrics,
    estimate,
    share_interval,
)
from arena_jax.analysis.power import Runs, runs_needed
from arena_jax.arena import Arena
from arena_jax.batch_play import DEFAULT_BATCH
from arena_jax.errors import ArenaError, check_count
from arena_jax.evaluation import evaluate
from arena_jax.structs import Record
from arena_jax.worlds import parse_worlds

MAX_EPISODES = 10**6  # kept in memory, unlike those of `evaluate`: 80 MB a side
_FEW_DISCORDANT = 25  # pairs; the t interval of fewer covers less than it says

Units = dict[str, np.ndarray]  # metric -> float64[units]


@dataclass(frozen=True)
class Contrast:
    """A metric of one side less that of the other, over n units that both played.

    low, high: 95% interval of the mean difference; unpaired_low, unpaired_high: what it would be, had each side played
    worlds of its own. p: of no difference, by McNemar's exact test where a unit is one episode's share, else by a
    paired t test; NaN where all units differ alike. above, below: shares of units with a positive and a negative
    difference. variance_saved: share of the variance of the unpaired difference that pairing takes away; NaN where
    that has none.
    """

    n: int
    mean: float
    low: float
    high: float
    p: float
    unpaired_low: float
    unpaired_high: float
    above: float
    below: float
    variance_saved: float

    @property
    def width_ratio(self) -> float:
        """Width of the paired interval by that of the unpaired one; NaN where that has none."""
        unpaired = self.unpaired_high - self.unpaired_low
        return (self.high - self.low) / unpaired if unpaired > 0.0 else math.nan


def play_units(
    env: Arena,
    policies: Sequence[str],
    *,
    episodes: int,
    scenarios: str | None = None,
    seed: int = 0,
    batch: int = DEFAULT_BATCH,
    on_progress: Callable[[int], None] = lambda episodes_done: None,
) -> tuple[dict[str, dict[str, Any]], dict[str, Units]]:
    """Play policies as `evaluate` does: its estimates, and per policy and metric the units in order.

    Raises `ArenaError` as `evaluate` does and for more than a million episodes.
    """
    worlds = 1 if scenarios is None else parse_worlds(scenarios).count
    check_count("episodes", episodes, 1, MAX_EPISODES)
    check_count("episodes over all worlds", episodes * worlds, 1, MAX_EPISODES)
    parts: dict[str, list[Units]] = {spec: [] for spec in policies}

    def keep(spec: str, record: Record) -> None:
        found = episode_metrics(record)
        parts[spec].append(
            {name: values.reshape(-1, episodes).mean(axis=1) for name, values in found.items()} if worlds > 1 else found
        )

    estimates = evaluate(
        env, policies, episodes=episodes, scenarios=scenarios, seed=seed, batch=batch, on_part=keep,
        on_progress=on_progress,
    )  # fmt: skip
    units = {
        spec: {name: np.concatenate([part[name] for part in found]) for name in METRICS}
        for spec, found in parts.items()
    }
    return estimates, units


def contrasts(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> dict[str, Contrast]:
    """Every metric of `other` less that of `one`, unit by unit."""
    return {name: contrast(one[name], other[name], is_share=METRICS[name].is_share) for name in METRICS}


def all_runs(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> dict[str, Runs]:
    """For every metric the runs that would tell the two sides apart."""
    return {
        name: runs_needed(one[name], other[name], is_binary=metric.is_share and are_binary(one[name], other[name]))
        for name, metric in METRICS.items()
    }


def contrast(one: np.ndarray, other: np.ndarray, *, is_share: bool = False) -> Contrast:
    """`other` less `one`, float64[n] each, unit i of both having been played on the same draws."""
    from scipy import stats  # a second of start-up that only a finished evaluation pays

    if one.shape != other.shape:
        raise ArenaError(f"paired values must be as many on both sides, got {len(one)} and {len(other)}")
    n, difference = len(one), other - one
    above, below = int((difference > 0.0).sum()), int((difference < 0.0).sum())
    is_single = is_share and are_binary(one, other)
    found = paired(one, other, is_share)
    variance = one.var(ddof=1) + other.var(ddof=1) if n > 1 else 0.0
    unpaired_low = unpaired_high = math.nan if n == 1 else found.mean
    p = math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns that are all alike but for rounding
        if variance > 0.0:
            unpaired = stats.ttest_ind(other, one, equal_var=False).confidence_interval(CONFIDENCE)
            unpaired_low, unpaired_high = float(unpaired.low), float(unpaired.high)
        if is_single:
            p = float(stats.binomtest(above, above + below).pvalue) if above + below else 1.0
        elif found.sd > 0.0:
            p = float(stats.ttest_rel(other, one).pvalue)
    return Contrast(
        n=n,
        mean=found.mean,
        low=found.low,
        high=found.high,
        p=p,
        unpaired_low=unpaired_low,
        unpaired_high=unpaired_high,
        above=above / n,
        below=below / n,
        variance_saved=1 - found.sd**2 / variance if variance > 0.0 else math.nan,
    )


def paired(one: np.ndarray, other: np.ndarray, is_share: bool = False) -> Estimate:
    """The mean of `other` less `one`, float64[n] each, with the 95% interval of the pairs.

    Student's t; where fewer than 25 pairs of a share differ, exact.
    """
    difference = other - one
    found = estimate(DIFFERENCE, Moments.of(difference))
    if not is_share:
        return found
    low, high = max(found.low, -1.0), min(found.high, 1.0)
    above, below = int((difference > 0.0).sum()), int((difference < 0.0).sum())
    if are_binary(one, other):
        if above + below < _FEW_DISCORDANT:
            low, high = _exact_interval(above, below, found.n)
        elif found.sd == 0.0:  # every pair differs alike
            common = share_interval(found.n, found.n)[0]
            low, high = (common, 1.0) if above else (-1.0, -common)
    return dataclasses.replace(found, low=low, high=high)


def are_binary(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether all units are 0 or 1, as a share's are where a unit is one episode."""
    return bool(np.isin(one, (0.0, 1.0)).all() and np.isin(other, (0.0, 1.0)).all())


def _exact_interval(above: int, below: int, n: int) -> tuple[float, float]:
    """Interval of a difference of shares from the few of n pairs that differ.

    The difference is q (2 u - 1), where a share q of all pairs differs and a share u of these upwards. The bounds are
    the least and the most of it over the exact intervals of q and u, so they cover at least what they say, and hold
    0 just where McNemar's exact test, which is of u alone, finds nothing.
    """
    from scipy import stats

    rates = stats.binomtest(above + below, n).proportion_ci(CONFIDENCE)
    ups = stats.binomtest(above, above + below).proportion_ci(CONFIDENCE) if above + below else None
    tilts = (2 * ups.low - 1, 2 * ups.high - 1) if ups else (-1.0, 1.0)
    corners = [rate * tilt for rate in (rates.low, rates.high) for tilt in tilts]
    return float(min(corners)), float(max(corners))
