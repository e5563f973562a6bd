"""How long companies live: the Kaplan-Meier estimate over months, from scipy."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from arena_jax.analysis.metrics import CONFIDENCE, share_interval


@dataclass(frozen=True)
class Survival:
    """S(t), the share of n companies that live through t months, for t = 0, 1, ... : float64[t], with a 95% interval.

    At a crisis month S is the share that passes it in Table 1, unless players stopped before.
    """

    n: int
    deaths: int
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def median(self) -> int | None:
        """The first month by which half of the companies are bankrupt; None if fewer ever are."""
        below = np.flatnonzero(self.share <= 0.5)
        return int(below[0]) if len(below) else None

    def at(self, month: int) -> tuple[float, float, float] | None:
        """S and its interval at a month; None past the last month that was observed, unless nobody lived so long."""
        if month >= len(self.share) and self.share[-1] > 0:
            return None
        month = min(month, len(self.share) - 1)
        return float(self.share[month]), float(self.low[month]), float(self.high[month])


def survival(months_played: np.ndarray, bankrupt: np.ndarray) -> Survival:
    """Kaplan-Meier of n >= 1 episodes: int[n] months played, bool[n] whether bankruptcy ended them.

    The others are censored: they reached the horizon, or their player stopped while the company lived. The interval is
    the exponential Greenwood one, which an estimate of 0 or 1 leaves undefined. At 1 it is `share_interval` of those
    observed so far; at 0 that of those alive before the last bankruptcies, no wider than the month before's.
    """
    from scipy import stats  # a second of start-up that only a finished evaluation pays

    months = np.asarray(months_played, dtype=np.int64)
    found = stats.ecdf(stats.CensoredData.right_censored(months, ~np.asarray(bankrupt))).sf
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)
        interval = found.confidence_interval(CONFIDENCE, method="log-log")
    time = np.arange(months.max() + 1)
    share = found.evaluate(time)
    low, high = interval.low.evaluate(time), interval.high.evaluate(time)
    observed = len(months) - np.searchsorted(np.sort(months), time)  # through each month
    for count in np.unique(observed[share == 1.0]):
        of_all = (share == 1.0) & (observed == count)
        low[of_all], high[of_all] = share_interval(int(count), int(count))
    for last in np.flatnonzero(share == 0.0)[:1]:
        before = high[last - 1] if last else 1.0
        low[last:], high[last:] = 0.0, min(share_interval(0, int(observed[last]))[1], before)
    return Survival(len(months), int(np.count_nonzero(bankrupt)), share, low, high)
