"""How companies fail (paper, RQ3): when money is first asked for, how much, and what the tool calls look at.

Survivors against bankrupt companies, over any records. A figure per request, approval or call is a ratio of sums over
episodes; its interval is that of the linearised ratio (Cochran 1977, section 6.4), the t interval of a mean. Where all
or none of them count, that has no width; there each episode is one observation of a share.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import numpy as np

from arena_jax.analysis.metrics import Estimate, Metric, Moments, episode_metrics, estimate, share_interval
from arena_jax.analysis.sources import Source, Sources
from arena_jax.analysis.survival import Survival, survival
from arena_jax.data import data_path
from arena_jax.structs import TOOLS, Record

EXTERNAL = ("review_financial_records", "analyze_market_conditions")  # paper, Figure 4c; the others look inward
GROUPS = ("survivors", "bankrupt")
_NOTHING = Estimate(0, math.nan, math.nan, math.nan, math.nan)

# figure -> heading and unit
FIGURES: dict[str, Metric] = {
    "asked": Metric("ever asked for money", "share", is_share=True),
    "first_request": Metric("first request, month", "months"),
    "before_peak": Metric("first request no later than the cash peak", "share", is_share=True),
    "after_peak": Metric("first request after the cash peak, months", "months"),
    "requests": Metric("requests", "requests"),
    "request_size": Metric("asked per request", "$"),
    "received_size": Metric("received per approval", "$"),
    "approval_rate": Metric("approvals per request", "share"),
    "tools_per_month": Metric("tool calls per month", "calls"),
    "external_share": Metric("external share of tool calls", "share"),
}


@dataclass(frozen=True)
class Failures:
    """The figures of survivors and of bankrupt companies, by group and name, and the survival function of all.

    Companies whose player stopped are in neither group, and censored in the survival function. is_pooled: of several
    sources that played the same seeds, and so are not independent: then nothing has an interval (NaN).
    """

    label: str
    seeds: str
    n: int
    stopped: int
    groups: dict[str, dict[str, Estimate]]
    sizes: dict[str, int]
    survival: Survival
    is_pooled: bool = False


def failures(sources: Sources) -> list[Failures]:
    """One for each source, and where there are several a first one for all of their records together."""
    found = [_failures(source.label, source.seed_text, source.record, source.stopped) for source in sources.sources]
    if len(found) == 1:
        return found
    stopped = np.concatenate([source.stopped for source in sources.sources])
    pooled = _failures("all together", "", sources.records, stopped)
    return [_without_intervals(pooled) if sources.share_seeds else pooled, *found]


def _without_intervals(found: Failures) -> Failures:
    none = np.full(len(found.survival.share), math.nan)
    bare = lambda figures: {name: replace(one, low=math.nan, high=math.nan) for name, one in figures.items()}
    return replace(
        found,
        groups={group: bare(figures) for group, figures in found.groups.items()},
        survival=replace(found.survival, low=none, high=none),
        is_pooled=True,
    )


def lifetimes(source: Source) -> Survival:
    """The survival function of a source."""
    return survival(np.asarray(source.record.months_played), source.bankrupt)


def months_after_peak(record: Record) -> np.ndarray:
    """Months from the cash peak before any proceeds to the first request, float64[n]; NaN where nothing was asked."""
    first, peak = (
        np.asarray(month, dtype=np.float64) for month in (record.first_request_month, record.cash_peak_month)
    )
    return np.where(first >= 0, first - peak, math.nan)


def published_failures() -> dict[str, dict[str, float | str]]:
    """The paper's figures by name and group."""
    found = tomllib.loads(data_path("findings.toml").read_text(encoding="utf-8"))["failures"]
    return {name: found[name] for name in FIGURES if name in found}


def _failures(label: str, seeds: str, record: Record, stopped: np.ndarray) -> Failures:
    survived = np.asarray(record.survived, dtype=bool)
    bankrupt = ~(survived | stopped)
    members = dict(zip(GROUPS, (survived, bankrupt), strict=True))
    return Failures(
        label=label,
        seeds=seeds,
        n=len(survived),
        stopped=int(np.count_nonzero(stopped)),
        groups={name: _figures(jax.tree.map(lambda leaf: leaf[mask], record)) for name, mask in members.items()},  # noqa: B023
        sizes={name: int(np.count_nonzero(mask)) for name, mask in members.items()},
        survival=survival(np.asarray(record.months_played), bankrupt),
    )


def _figures(record: Record) -> dict[str, Estimate]:
    """Every figure of a group's records, leaves [n], n >= 0."""
    total = lambda *names: np.sum([np.asarray(getattr(record, name), dtype=np.float64) for name in names], axis=0)
    requests, approvals, late = total("requests"), total("approvals"), months_after_peak(record)
    has_asked = ~np.isnan(late)
    found: dict[str, Estimate] = {
        "asked": _mean("asked", has_asked),
        "first_request": _mean("first_request", total("first_request_month")[has_asked]),
        "before_peak": _mean("before_peak", late[has_asked] <= 0),
        "after_peak": _mean("after_peak", late[has_asked]),
        "requests": _mean("requests", requests),
        "request_size": _ratio("request_size", total("requested_equity", "requested_debt"), requests),
        "received_size": _ratio("received_size", total("received_equity", "received_debt"), approvals),
        "approval_rate": _ratio("approval_rate", approvals, requests),
        "tools_per_month": _mean("tools_per_month", episode_metrics(record)["tools_per_month"]),
        "external_share": _ratio("external_share", total(*EXTERNAL), total(*TOOLS)),
    }
    return {name: found[name] for name in FIGURES}


def _mean(name: str, values: np.ndarray) -> Estimate:
    return estimate(FIGURES[name], Moments.of(values.astype(np.float64))) if len(values) else _NOTHING


def _ratio(name: str, above: np.ndarray, below: np.ndarray) -> Estimate:
    """Sum of `above` over sum of `below`, float64[n] each, with the interval of the linearised ratio."""
    if not below.any():
        return _NOTHING
    ratio = float(above.sum() / below.sum())
    is_share = FIGURES[name].unit == "share"
    if is_share and ratio in (0.0, 1.0):
        episodes = int(np.count_nonzero(below))
        return Estimate(episodes, ratio, math.nan, *share_interval(round(ratio * episodes), episodes))
    found = estimate(FIGURES[name], Moments.of(ratio + (above - ratio * below) / below.mean()))
    clipped: Callable[[float], float] = lambda x: min(max(x, 0.0), 1.0) if is_share else x
    bounds = (bound if math.isnan(bound) else clipped(bound) for bound in (found.low, found.high))
    return Estimate(found.n, ratio, math.nan, *bounds)
