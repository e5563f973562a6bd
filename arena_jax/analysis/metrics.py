"""The columns of the paper's Table 1 and their intervals, from records that arrive part by part.

`Moments` hold a count, a mean and a sum of squared deviations per metric in float64. They merge (Chan, Golub and
LeVeque 1983), so an evaluation of any size needs constant memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from arena_jax.structs import TOOLS, Record

CONFIDENCE = 0.95
_SMALL = 200  # below as many episodes Wilson's interval of a share may cover less, and equal values tell no spread
_ROUNDING = 1e-12  # of a mean: what sums of equal numbers may differ by
_RESAMPLES = 999
_RESAMPLED = 2_000_000  # values at a time


@dataclass(frozen=True)
class Metric:
    """A column: its heading, unit and kind. A share is a proportion of episodes; a mean may show its SD."""

    heading: str
    unit: str
    is_share: bool = False
    shows_sd: bool = False


METRICS: dict[str, Metric] = {
    "full_survival": Metric("Full surv.", "share", is_share=True),
    "months": Metric("Months", "months", shows_sd=True),
    "score": Metric("Score", "$", shows_sd=True),
    "value_kept": Metric("Value kept", "$", shows_sd=True),
    "crisis_1": Metric("1st crisis", "share", is_share=True),
    "crisis_2": Metric("2nd crisis", "share", is_share=True),
    "crisis_3": Metric("3rd crisis", "share", is_share=True),
    "tools_per_month": Metric("Tools/mo", "calls"),
    "actions": Metric("Actions", "actions"),
    "raised": Metric("Raised", "$", shows_sd=True),
    "approvals": Metric("Approvals", "rounds"),
}
DIFFERENCE = Metric("difference", "of the metric")  # a mean, also where the metric is a share


def episode_metrics(record: Record) -> dict[str, np.ndarray]:
    """The metrics of each episode, float64[n], from a record with leaves [n]."""
    calls = sum(np.asarray(getattr(record, tool), dtype=np.float64) for tool in TOOLS)
    received = [np.asarray(money, dtype=np.float64) for money in (record.received_equity, record.received_debt)]
    found = {
        "full_survival": record.survived,
        "months": record.months_survived,
        "score": record.score,
        "value_kept": record.value_kept,
        "crisis_1": np.asarray(record.crises_passed) >= 1,
        "crisis_2": np.asarray(record.crises_passed) >= 2,
        "crisis_3": np.asarray(record.crises_passed) >= 3,
        "tools_per_month": calls / np.maximum(record.months_played, 1),
        "actions": record.actions,
        "raised": received[0] + received[1],
        "approvals": record.approvals,
    }
    return {name: np.asarray(found[name], dtype=np.float64) for name in METRICS}


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of one metric."""

    n: int
    mean: float
    m2: float

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """The moments of float64[n], n >= 1."""
        mean = float(np.mean(values))
        return cls(len(values), mean, float(np.sum((values - mean) ** 2)))

    def merge(self, other: Moments) -> Moments:
        """The moments of both samples together."""
        n, delta = self.n + other.n, other.mean - self.mean
        return Moments(n, self.mean + delta * other.n / n, self.m2 + other.m2 + delta * delta * self.n * other.n / n)

    @property
    def sd(self) -> float:
        """Sample standard deviation; NaN for one observation."""
        return math.sqrt(self.m2 / (self.n - 1)) if self.n > 1 else math.nan


@dataclass(frozen=True)
class Estimate:
    """A metric over n episodes: mean, sample SD, and a 95% interval of the mean."""

    n: int
    mean: float
    sd: float
    low: float
    high: float


def share_interval(successes: int, n: int) -> tuple[float, float]:
    """95% interval of a share: Clopper and Pearson's exact one for few episodes, else Wilson's."""
    from scipy import stats  # a second of start-up that only a finished evaluation pays

    method = "exact" if n < _SMALL else "wilson"
    interval = stats.binomtest(successes, n).proportion_ci(CONFIDENCE, method=method)
    return float(interval.low), float(interval.high)


def estimate(metric: Metric, moments: Moments) -> Estimate:
    """`share_interval` for a share, Student's t for a mean.

    No interval (NaN) for a mean of one episode, nor of fewer than 200 that are all equal: they may differ yet. A
    difference may be constant by what it is, and keeps its interval.
    """
    from scipy import stats

    if metric.is_share:
        successes = round(moments.mean * moments.n)
        low, high = share_interval(successes, moments.n)
        return Estimate(moments.n, successes / moments.n, moments.sd, low, high)
    are_equal = moments.n == 1 or moments.sd <= _ROUNDING * abs(moments.mean)
    if moments.n == 1 or (are_equal and moments.n < _SMALL and metric is not DIFFERENCE):
        return Estimate(moments.n, moments.mean, moments.sd, math.nan, math.nan)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, moments.n - 1)) * moments.sd / math.sqrt(moments.n)
    return Estimate(moments.n, moments.mean, moments.sd, moments.mean - half, moments.mean + half)


_STATISTICS: dict[str, Callable[..., Any]] = {
    "median": lambda x, axis: np.median(x, axis=axis),
    "sd": lambda x, axis: np.std(x, axis=axis, ddof=1),
    "rate": lambda x, y, axis: x.sum(axis=axis) / y.sum(axis=axis),
}


def bootstrap(statistic: str, *data: np.ndarray) -> tuple[float, float, float]:
    """A statistic of float64[n], "median", "sd" or "rate" (sum x / sum y), and its percentile bootstrap interval.

    data: one array, or two of the same episodes for a rate.
    """
    from scipy import stats

    function = _STATISTICS[statistic]
    interval = stats.bootstrap(
        data,
        function,
        paired=True,
        n_resamples=_RESAMPLES,
        batch=max(1, _RESAMPLED // len(data[0])),
        method="percentile",
        confidence_level=CONFIDENCE,
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(function(*data, axis=0)), float(interval.low), float(interval.high)


class Tallies:
    """Running moments of every metric over the parts added so far."""

    def __init__(self) -> None:
        self._moments: dict[str, Moments] = {}

    def add(self, record: Record) -> None:
        """Merge a part with leaves [n], n >= 1. Parts must be added in order: floating-point sums depend on it."""
        for name, values in episode_metrics(record).items():
            part = Moments.of(values)
            self._moments[name] = self._moments[name].merge(part) if name in self._moments else part

    def estimates(self) -> dict[str, Estimate]:
        """An estimate per metric."""
        return {name: estimate(METRICS[name], moments) for name, moments in self._moments.items()}
