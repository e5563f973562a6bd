"""Published results beside simulated ones: does the simulator reproduce them, and from where is each figure?

The published figures are data (data/findings.toml), one row a finding with its source and its rule. Every arm, a
policy in an environment, is played once; a difference of two arms is taken episode by episode on the same draws.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from arena_jax.analysis.metrics import DIFFERENCE, METRICS, Metric, Moments, bootstrap, episode_metrics, estimate
from arena_jax.arena import make
from arena_jax.batch_play import rollout
from arena_jax.data import data_path
from arena_jax.errors import ArenaError, brief, check_count
from arena_jax.policies import make_policy
from arena_jax.structs import Record

EPISODES = 20_000
MIN_EPISODES = 100
_Z = 1.959964  # half-width of a 95% interval in standard errors


@dataclass(frozen=True)
class Arm:
    """One side of a finding: a policy, and the parameters that differ from the defaults."""

    policy: str
    environment: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Finding:
    """One published result; the fields are described at the head of data/findings.toml."""

    claim: str
    source: str
    metric: str
    rule: str
    statistic: str = "mean"
    policy: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    against: Mapping[str, Any] | None = None
    across: tuple[str, ...] = ()
    published: float | None = None
    published_text: str = ""
    runs: int = 0
    tolerance: float = 0.0
    least: float = 0.0
    difference: str = ""
    expected: float = math.nan

    @property
    def arms(self) -> tuple[Arm, ...]:
        """What has to be played."""
        if self.across:
            return (Arm("never-raise"), *[Arm(policy) for policy in self.across])
        arm = Arm(self.policy, tuple(self.environment.items()))
        if self.against is None:
            return (arm,)
        return arm, Arm(self.against["policy"], tuple(self.against.get("environment", {}).items()))

    @property
    def is_difference(self) -> bool:
        """Whether it is a difference of two arms rather than a level."""
        return self.against is not None or bool(self.across)

    @property
    def unit(self) -> str:
        """Unit of the published and the measured figure."""
        return "share" if self.statistic == "rate" else METRICS[self.metric].unit


@dataclass(frozen=True)
class Verdict:
    """A finding as measured, in its unit, with a 95% interval [low, high].

    allowance: how far the measured figure may lie from the published one; None where the rule has no such distance.
    verdict: "pass", "fail", "known" (outside, with a stated reason) or "" (no verdict).
    """

    finding: Finding
    measured: float
    low: float
    high: float
    allowance: float | None
    verdict: str


def published_findings() -> tuple[dict[str, str], list[Finding]]:
    """The sources by key, and the findings in order."""
    path = data_path("findings.toml")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return data["sources"], [Finding(**row) for row in data["finding"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ArenaError(f"{path} is damaged: {brief(error)}; install arena_jax again") from None


def fidelity(
    findings: Sequence[Finding],
    *,
    episodes: int = EPISODES,
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
    on_progress: Callable[[int], None] = lambda arms_done: None,
) -> list[Verdict]:
    """Play every arm of the findings over the same `episodes` worlds and judge each finding.

    overrides: parameters of all environments, under those of a finding. on_progress: called after each arm.
    """
    check_count("episodes", episodes, MIN_EPISODES, 10**7)
    check_count("seed", seed, 0, 2**32 - 1)
    records: dict[Arm, Record] = {}
    for arm in arms_of(findings):
        env = make(**(dict(overrides or {}) | dict(arm.environment)))
        records[arm] = rollout(env, make_policy(arm.policy), jax.random.key(seed), episodes)
        on_progress(1)
    return [_judge(finding, [records[arm] for arm in finding.arms]) for finding in findings]


def arms_of(findings: Sequence[Finding]) -> list[Arm]:
    """The different arms, each once."""
    return list(dict.fromkeys(arm for finding in findings for arm in finding.arms))


def _judge(finding: Finding, records: Sequence[Record]) -> Verdict:
    values = [episode_metrics(record)[finding.metric] for record in records]
    if finding.across:
        early = [_asks_before_peak(record, records[0]) for record in records[1:]]
        groups = [[v for v, e in zip(values[1:], early, strict=True) if e == wanted] for wanted in (True, False)]
        # undefined where all policies ask on one side of the peak
        measured, low, high = (
            _mean(DIFFERENCE, np.mean(groups[0], 0) - np.mean(groups[1], 0)) if all(groups) else (math.nan,) * 3
        )
    elif finding.against is not None:
        measured, low, high = _mean(DIFFERENCE, values[0] - values[1])
    elif finding.statistic == "mean":
        measured, low, high = _mean(METRICS[finding.metric], values[0])
    else:
        measured, low, high = _resampled(finding.statistic, values[0], np.asarray(records[0].requests, np.float64))
    allowance, holds = _rule(finding, measured, low, high, len(values[0]))
    is_known = bool(finding.difference) and abs(measured - finding.expected) <= finding.tolerance
    outside = "known" if is_known else "fail"
    return Verdict(finding, measured, low, high, allowance, "" if holds is None else "pass" if holds else outside)


def _asks_before_peak(record: Record, unfunded: Record) -> bool:
    """Whether a policy mostly makes its first request before the month in which cash, unfunded, is at its peak."""
    first = np.asarray(record.first_request_month)
    return float(np.mean((first >= 0) & (first < np.asarray(unfunded.cash_peak_month)))) > 0.5


def _mean(metric: Metric, values: np.ndarray) -> tuple[float, float, float]:
    found = estimate(metric, Moments.of(values))
    return found.mean, found.low, found.high


def _resampled(statistic: str, values: np.ndarray, requests: np.ndarray) -> tuple[float, float, float]:
    if statistic != "rate":
        return bootstrap(statistic, values)
    return bootstrap("rate", values, requests) if requests.any() else (math.nan,) * 3


def _rule(finding: Finding, measured: float, low: float, high: float, n: int) -> tuple[float | None, bool | None]:
    """The allowance of the finding's rule, and whether it holds (None: no verdict)."""
    if finding.rule == "report":
        return None, None
    if finding.rule == "at least":
        return None, low > finding.least
    assert finding.published is not None, finding.claim
    allowance = finding.tolerance
    if finding.rule == "near":
        # the spread of the published runs is rarely given: ours stands in for it
        ours = (high - low) / 2 / _Z
        allowance += 2 * ours * math.sqrt(1 + n / finding.runs)
    return allowance, abs(measured - finding.published) <= allowance
