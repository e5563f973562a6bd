"""Two policies, or two environments, over the same worlds: differences on common draws, and what the pairing is worth.

The units are what is independent: episodes of one world, or worlds, each with the mean of its episodes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arena_jax.analysis.metrics import (
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

MAX_EPISODES = 10**7  # kept in memory, unlike those of `evaluate`

Units = dict[str, np.ndarray]  # metric -> float64[units]


@dataclass(frozen=True)
class Contrast:
    """A metric of one side less that of the other, over n units that both played.

    low, high: 95% interval of the mean difference; unpaired_low, unpaired_high: what it would be, had each side played
    worlds of its own. p: of no difference, by McNemar's exact test where a unit is one episode's share, else by a
    paired t test; NaN where all units differ alike. above, below: shares of units with a positive and a negative
    difference.
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

    Raises `ArenaError` as `evaluate` does and for more than ten million episodes.
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
    # the interval that uncorrelated pairs would give
    variance = one.var(ddof=1) + other.var(ddof=1) if n > 1 else math.nan
    unpaired = estimate(DIFFERENCE, Moments(n, found.mean, variance * (n - 1)))
    p = math.nan
    if is_single:
        p = float(stats.binomtest(above, above + below).pvalue) if above + below else 1.0
    elif found.sd > 0.0:
        p = float(2 * stats.t.sf(abs(found.mean) / (found.sd / math.sqrt(n)), n - 1))
    return Contrast(
        n=n,
        mean=found.mean,
        low=found.low,
        high=found.high,
        p=p,
        unpaired_low=unpaired.low,
        unpaired_high=unpaired.high,
        above=above / n,
        below=below / n,
    )


def paired(one: np.ndarray, other: np.ndarray, is_share: bool = False) -> Estimate:
    """The mean of `other` less `one`, float64[n] each, with the 95% interval of the pairs."""
    found = estimate(DIFFERENCE, Moments.of(other - one))
    if not is_share:
        return found
    low, high = max(found.low, -1.0), min(found.high, 1.0)
    if (found.sd == 0.0 or found.n == 1) and are_binary(one, other):  # no spread to go by
        low, high = _uniform_interval(found.mean, found.n)
    return dataclasses.replace(found, low=low, high=high)


def are_binary(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether all units are 0 or 1, as a share's are where a unit is one episode."""
    return bool(np.isin(one, (0.0, 1.0)).all() and np.isin(other, (0.0, 1.0)).all())


def _uniform_interval(difference: float, n: int) -> tuple[float, float]:
    """Interval of a difference of shares where every pair shows the same one, -1, 0 or 1."""
    if difference == 0.0:
        rare = share_interval(0, n)[1]
        return -rare, rare
    common = share_interval(n, n)[0]
    return (common, 1.0) if difference > 0.0 else (-1.0, -common)
