"""Scores over λ and m from one rollout (design section 2.5).

Neither λ nor m changes what a fixed policy does, so one rollout holds every score: an episode that survives is worth
revenue * m + cash - calls * λ, a bankrupt one 0. The mean over episodes is a plane in (λ, m), and two policies change
places along a straight line of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arena_jax.analysis.metrics import CONFIDENCE, DIFFERENCE, Moments, bootstrap, estimate
from arena_jax.errors import ArenaError
from arena_jax.params import Params
from arena_jax.structs import TOOLS, Record

DEFAULT_TOOL_COST: float = Params().tool_cost
DEFAULT_MULTIPLE: float = Params().revenue_multiple
_FEW_SURVIVORS = 20


@dataclass(frozen=True)
class Ranking:
    """Policies ranked by mean score at every point of a (λ, m) grid of L x M points.

    policies: P labels, as given. tool_costs: float64[L], $. multiples: float64[M]. means: float64[P, L, M], $.
    order: int64[L, M, P], indices of `policies`, the best first. clear: bool[L, M, P - 1], whether the lead of place k
    over place k + 1 is told from zero (95%). tau: float64[L, M], Kendall's tau-b of the means against those at
    the default λ and m; NaN for one policy and where all are equal.
    """

    policies: tuple[str, ...]
    tool_costs: np.ndarray
    multiples: np.ndarray
    means: np.ndarray
    order: np.ndarray
    clear: np.ndarray
    tau: np.ndarray


@dataclass(frozen=True)
class Crossing:
    """Where on λ ($) or m two policies change places, with its 95% interval; NaN unless `outcome` is "at".

    outcome: "at"; "nowhere" from 0 up; "equal", where the two always score the same; "unclear", where from 0 up a lead
    is told from zero on one side of it at the most.
    """

    outcome: str
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan


@dataclass(frozen=True)
class Elasticity:
    """Percent by which the mean score changes for one percent more of a parameter, with its 95% interval."""

    value: float
    low: float
    high: float


def score_terms(record: Record) -> np.ndarray:
    """Revenue of 12 months ($), cash ($) and answered calls of each episode, float64[n, 3]; zeros where bankrupt.

    record: leaves [n].
    """
    calls = sum(np.asarray(getattr(record, tool), dtype=np.float64) for tool in TOOLS)
    terms = np.stack([np.asarray(record.revenue_ttm, np.float64), np.asarray(record.cash, np.float64), calls], axis=-1)
    return np.where(np.asarray(record.survived)[:, None], terms, 0.0)


def scores(terms: np.ndarray, tool_cost: float, multiple: float) -> np.ndarray:
    """The score of each episode at one (λ, m), float64[n], $, from `score_terms`."""
    return terms @ np.array([multiple, 1.0, -tool_cost])


def surface(terms: np.ndarray, tool_costs: np.ndarray, multiples: np.ndarray) -> np.ndarray:
    """The mean score at every point of a grid, float64[L, M], $, from `score_terms` of one policy."""
    revenue, cash, calls = terms.mean(axis=0)
    return multiples[None, :] * revenue + cash - tool_costs[:, None] * calls


def ranking(
    terms: Mapping[str, np.ndarray], tool_costs: np.ndarray, multiples: np.ndarray, is_paired: bool = True
) -> Ranking:
    """Policies by mean score over a grid, from the `score_terms` of each.

    is_paired: over the same episodes in the same order; else leads are tested as those of independent samples.
    """
    from scipy import stats  # a second of start-up that only a finished rollout pays

    if is_paired and len({len(found) for found in terms.values()}) != 1:
        raise ArenaError(f"a ranking needs policies played over the same episodes, got {_sizes(terms)}")
    policies, found = tuple(terms), list(terms.values())
    means = np.stack([surface(one, tool_costs, multiples) for one in found])
    at_default = [scores(one, DEFAULT_TOOL_COST, DEFAULT_MULTIPLE).mean() for one in found]
    order = np.argsort(-means, axis=0, kind="stable").transpose(1, 2, 0)
    clear, tau = np.zeros((*means.shape[1:], len(found) - 1), dtype=bool), np.full(means.shape[1:], np.nan)
    lead = _Lead.paired if is_paired else _Lead.unpaired
    leads = {(i, j): lead(found[i], found[j]) for i, j in itertools.combinations(range(len(found)), 2)}
    for cell in np.ndindex(*means.shape[1:]):
        weights = np.array([multiples[cell[1]], 1.0, -tool_costs[cell[0]]])
        # the better of two leads, so the lead is clear of zero on that side
        clear[cell] = [leads[min(pair), max(pair)].is_clear(weights) for pair in itertools.pairwise(order[cell])]
        if len(found) > 1:
            tau[cell] = stats.kendalltau(means[:, *cell], at_default).statistic
    return Ranking(policies, tool_costs, multiples, means, order, clear, tau)


def written_order(names: Sequence[str], order: Sequence[int], clear: Sequence[bool], links: tuple[str, str]) -> str:
    """Names by rank, the best first; links: what stands behind a name whose lead is told from zero, or is not."""
    behind = [links[0] if is_clear else links[1] for is_clear in clear]
    return "".join(names[i] + link for i, link in zip(order, [*behind, ""], strict=True))


def crossing(one: np.ndarray, other: np.ndarray) -> tuple[Crossing, Crossing]:
    """Where two policies change places: λ at the default m, and m at the default λ.

    one, other: `score_terms` of the same episodes.
    """
    lead = _Lead.paired(one, other)
    return (
        lead.crossing(np.array([DEFAULT_MULTIPLE, 1.0, 0.0]), np.array([0.0, 0.0, -1.0])),
        lead.crossing(np.array([0.0, 1.0, -DEFAULT_TOOL_COST]), np.array([1.0, 0.0, 0.0])),
    )


def elasticities(terms: np.ndarray) -> dict[str, Elasticity]:
    """Elasticities of the mean score in λ and m at their defaults, by parameter name; NaN where nothing survives.

    Where fewer than 20 episodes survive they have no interval: some resamples would hold no survivor.
    """
    total = scores(terms, DEFAULT_TOOL_COST, DEFAULT_MULTIPLE)
    parts = {"tool_cost": -DEFAULT_TOOL_COST * terms[:, 2], "revenue_multiple": DEFAULT_MULTIPLE * terms[:, 0]}
    if not total.any():
        return {name: Elasticity(np.nan, np.nan, np.nan) for name in parts}
    if np.count_nonzero(total) < _FEW_SURVIVORS:
        return {name: Elasticity(part.sum() / total.sum(), np.nan, np.nan) for name, part in parts.items()}
    return {name: Elasticity(*bootstrap("rate", part, total)) for name, part in parts.items()}


@dataclass(frozen=True)
class _Lead:
    """Mean and covariance of what one policy's `score_terms` have over another's: enough for every (λ, m)."""

    n: int
    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def paired(cls, one: np.ndarray, other: np.ndarray) -> _Lead:
        difference = one - other
        return cls(len(difference), difference.mean(axis=0), np.cov(difference.T, ddof=0))

    @classmethod
    def unpaired(cls, one: np.ndarray, other: np.ndarray) -> _Lead:
        """Of two independent samples, with the degrees of freedom of the smaller one (Welch has as many at least)."""
        n = min(len(one), len(other))
        parts = [np.cov(terms.T, ddof=0) / max(len(terms) - 1, 1) for terms in (one, other)]
        return cls(n, one.mean(axis=0) - other.mean(axis=0), (n - 1) * (parts[0] + parts[1]))

    def is_clear(self, weights: np.ndarray) -> bool:
        m2 = max(float(weights @ self.covariance @ weights), 0.0) * self.n
        found = estimate(DIFFERENCE, Moments(self.n, float(weights @ self.mean), m2))
        return found.low > 0.0 or found.high < 0.0

    def crossing(self, start: np.ndarray, slope: np.ndarray) -> Crossing:
        """Where from 0 up the lead at weights start + x slope is nil; the interval is Fieller's.

        It holds every x at which the lead is not told from zero, as `is_clear` has it.
        """
        from scipy import stats

        if not self.mean.any() and not self.covariance.any():
            return Crossing("equal")
        if not slope @ self.covariance @ slope and not slope @ self.mean:
            return Crossing("nowhere")  # the lead is the same for every x
        factor = stats.t.ppf(0.5 + CONFIDENCE / 2, self.n - 1) ** 2 / (self.n - 1) if self.n > 1 else np.inf
        matrix = np.outer(self.mean, self.mean) - factor * self.covariance
        squared, linear, constant = slope @ matrix @ slope, slope @ matrix @ start, start @ matrix @ start
        if not squared > 0.0:
            return Crossing("unclear")
        middle, half = -linear / squared, np.sqrt(max(linear**2 - squared * constant, 0.0)) / squared
        low, high, value = middle - half, middle + half, -(start @ self.mean) / (slope @ self.mean)
        if high < 0.0:
            return Crossing("nowhere")
        return Crossing("at", float(value), float(low), float(high)) if low >= 0.0 else Crossing("unclear")


def _sizes(terms: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"{label}: {len(found):,}" for label, found in terms.items()) or "none"
