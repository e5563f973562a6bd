"""How much results differ from world to world, beside how much they differ within one.

A one-way random-effects analysis of variance (Searle, Casella and McCulloch 1992, chapter 3): the variance of the
worlds' means is the variance between worlds plus the sampling error that the means carry from their episodes, which is
taken off. The worlds are the independent units, so the interval of the mean is Student's t over their means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from arena_jax.analysis.metrics import CONFIDENCE, METRICS, Metric, episode_metrics, share_interval
from arena_jax.structs import Record

PERCENTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True)
class Spread:
    """A metric over `worlds` worlds of `episodes` episodes: mean, its 95% interval, SDs, percentiles of world means."""

    worlds: int
    episodes: int
    mean: float
    error: float  # standard error of the mean, over worlds
    low: float
    high: float
    sd_across: float  # of the worlds' true means
    sd_within: float  # of episodes of one world, on average
    percentiles: tuple[float, ...]  # of the worlds' means, at `PERCENTILES`


def spread(metric: Metric, means: np.ndarray, variances: np.ndarray, episodes: int) -> Spread:
    """From the mean and sample variance of each world, float64[worlds]; NaN where one world or episode can't tell."""
    from scipy import stats  # a second of start-up that only a finished evaluation pays

    worlds, mean = len(means), float(means.mean())
    error = low = high = sd_across = math.nan
    within = float(variances.mean())
    if worlds > 1:
        observed = float(means.var(ddof=1))
        sd_across = math.sqrt(max(observed - within / episodes, 0.0)) if episodes > 1 else math.nan
        error = math.sqrt(observed / worlds)
        half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, worlds - 1)) * error
        low, high = mean - half, mean + half
        if metric.is_share and observed == 0.0:  # no spread to go by: each world is one observation
            low, high = share_interval(round(mean * worlds), worlds)
        elif metric.is_share:
            low, high = max(low, 0.0), min(high, 1.0)
    percentiles = tuple(float(value) for value in np.percentile(means, PERCENTILES))
    return Spread(worlds, episodes, mean, error, low, high, sd_across, math.sqrt(within), percentiles)


class WorldTallies:
    """Mean and variance of every metric in each world, from parts that hold whole worlds of `episodes` episodes."""

    def __init__(self, episodes: int) -> None:
        self._episodes = episodes
        self._means: dict[str, list[np.ndarray]] = {name: [] for name in METRICS}
        self._variances: dict[str, list[np.ndarray]] = {name: [] for name in METRICS}

    def add(self, record: Record) -> None:
        """Add a part with leaves [worlds of the part * episodes], world after world."""
        for name, values in episode_metrics(record).items():
            by_world = values.reshape(-1, self._episodes)
            means = by_world.mean(axis=1)
            squares = np.square(by_world - means[:, None]).sum(axis=1)
            self._means[name].append(means)
            self._variances[name].append(squares / (self._episodes - 1) if self._episodes > 1 else squares * math.nan)

    def estimates(self) -> dict[str, Spread]:
        """A spread per metric."""
        return {
            name: spread(
                metric, np.concatenate(self._means[name]), np.concatenate(self._variances[name]), self._episodes
            )
            for name, metric in METRICS.items()
        }
