"""What a table of a few runs would have shown: its columns' sampling distribution for one policy.

The episodes of a policy are cut into tables of R runs each. They share no episode, so they are independent tables, and
their quantiles are those of the sampling distribution. A share of R runs moves in steps of 1/R, whose probabilities
are the binomial ones at the share of all episodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from arena_jax.analysis.metrics import METRICS, Estimate, episode_metrics
from arena_jax.structs import Record

PERCENTILES = (2.5, 25, 50, 75, 97.5)
MIN_TABLES = 40  # so that one lies beyond each of the outer percentiles
MAX_TABLES = 20_000  # kept; more would tell no more


@dataclass(frozen=True)
class Sampling:
    """A metric over `tables` tables of `runs` runs: percentiles of the tables' figures, at `PERCENTILES`.

    steps: of a share, the probabilities that 0, 1, ... `runs` runs have it; empty for a mean.
    """

    runs: int
    tables: int
    mean: float  # over all episodes
    percentiles: tuple[float, ...]
    steps: tuple[float, ...]


class FewRuns:
    """The tables of the parts added so far; episodes that do not yet fill one wait for those of the next part."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._tables: dict[str, list[np.ndarray]] = {name: [] for name in METRICS}
        self._rest: dict[str, np.ndarray] = {name: np.empty(0) for name in METRICS}

    def add(self, record: Record) -> None:
        """Add a part with leaves [n]."""
        wanted = MAX_TABLES - sum(len(tables) for tables in self._tables["months"])
        for name, values in episode_metrics(record).items():
            waiting = np.concatenate([self._rest[name], values])[: wanted * self._runs]
            full = len(waiting) // self._runs * self._runs
            self._tables[name].append(waiting[:full].reshape(-1, self._runs).mean(axis=1))
            self._rest[name] = waiting[full:]

    def sampling(self, estimates: Mapping[str, Estimate]) -> dict[str, Sampling]:
        """The sampling distribution of every metric; estimates: of the metrics over all episodes."""
        from scipy import stats  # a second of start-up that only a finished evaluation pays

        found: dict[str, Sampling] = {}
        for name, metric in METRICS.items():
            tables, mean = np.concatenate(self._tables[name]), estimates[name].mean
            steps = stats.binom.pmf(np.arange(self._runs + 1), self._runs, mean) if metric.is_share else ()
            percentiles = tuple(map(float, np.percentile(tables, PERCENTILES)))
            found[name] = Sampling(self._runs, len(tables), mean, percentiles, tuple(map(float, steps)))
        return found
