"""Cash by month over many episodes: how its distribution spreads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVELS = (5, 25, 50, 75, 95)  # percentiles


@dataclass(frozen=True)
class Fan:
    """Percentiles of opening cash ($) over the episodes alive in each month: float64[T, len(LEVELS)]; alive int[T]."""

    n: int
    percentiles: np.ndarray
    alive: np.ndarray


def fan(cash: Sequence[np.ndarray]) -> Fan:
    """From opening cash float64[n, months] of several parts, NaN after an episode's end; months may differ."""
    months = max(part.shape[1] for part in cash)
    columns = []
    alive = np.zeros(months, dtype=np.int64)
    for month in range(months):
        there = [part[:, month] for part in cash if month < part.shape[1]]
        values = np.concatenate([column[~np.isnan(column)] for column in there])
        alive[month] = len(values)
        columns.append(np.percentile(values, LEVELS))
    return Fan(sum(len(part) for part in cash), np.array(columns), alive)
