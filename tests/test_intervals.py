"""Intervals cover what they say, and the tables of a few runs are those that few runs would show."""

import json

import jax
import numpy as np
import pytest
from scipy import stats
from test_cli import arena

import arena_jax
from arena_jax.analysis import few_runs
from arena_jax.analysis.compare import paired
from arena_jax.analysis.few_runs import FewRuns
from arena_jax.analysis.metrics import METRICS, Moments, Tallies, bootstrap, episode_metrics, estimate, share_interval

POLICIES = ["cash-threshold:threshold=8e6", "cash-threshold:threshold=10e6"]
POOL = 5_000


@pytest.fixture(scope="module")
def records(env):
    return [arena_jax.rollout(env, arena_jax.make_policy(p), jax.random.key(1), POOL) for p in POLICIES]


@pytest.fixture(scope="module")
def pools(records):
    return [episode_metrics(record) for record in records]


def coverage(n, shares):
    """The probability that the interval of a share from n episodes holds the true one, for each true one."""
    bounds = np.array([share_interval(k, n) for k in range(n + 1)])
    return np.array(
        [stats.binom.pmf(np.arange(n + 1), n, p)[(bounds[:, 0] <= p) & (p <= bounds[:, 1])].sum() for p in shares]
    )


@pytest.mark.parametrize("n", [200, 500])
def test_shares_of_many_episodes_are_covered_as_said(n):
    found = coverage(n, np.linspace(0.05, 0.95, 91))
    assert found.min() >= 0.93 and found.max() <= 0.97
    assert found.mean() == pytest.approx(0.95, abs=0.003)


@pytest.mark.parametrize("n", [5, 20, 199])
def test_shares_of_few_episodes_are_covered_at_least(n):
    assert coverage(n, np.linspace(0.001, 0.999, 200)).min() >= 0.95


@pytest.mark.parametrize(("n", "value", "has_interval"), [(5, 0.0, False), (7, 0.1, False), (200, 0.0, True)])
def test_few_equal_values_have_no_interval(n, value, has_interval):
    found = estimate(METRICS["score"], Moments.of(np.full(n, value)))
    assert np.isnan([found.low, found.high]).all() == (not has_interval)
    assert found.mean == pytest.approx(value)


@pytest.mark.parametrize("n", [200, 1000])
@pytest.mark.parametrize("name", ["full_survival", "months", "score", "raised"])
def test_columns_and_paired_differences_are_covered_as_said(pools, name, n):
    """Samples drawn from a pool of episodes, whose mean is the truth."""
    metric, (one, other) = METRICS[name], (pool[name] for pool in pools)
    rows = np.random.default_rng(3).integers(0, POOL, (2000, n))
    means = [estimate(metric, Moments.of(one[row])) for row in rows]
    changes = [paired(one[row], other[row], metric.is_share) for row in rows]
    for found, truth in ((means, one.mean()), (changes, (other - one).mean())):
        assert 0.93 <= np.mean([e.low <= truth <= e.high for e in found]) <= 0.97


@pytest.mark.parametrize(("n", "up", "down"), [(50, 0.1, 0.0), (50, 0.05, 0.02), (20, 0.3, 0.1), (400, 0.01, 0.003)])
def test_differences_of_few_unlike_pairs_are_covered_at_least(n, up, down):
    """Summed over all that n pairs may show; the interval and McNemar's exact p agree."""
    covered = 0.0
    for above in range(n + 1):
        for below in range(min(n - above, 24 - above) + 1):
            one, other = np.zeros(n), np.zeros(n)
            one[above : above + below], other[:above] = 1.0, 1.0
            found, chance = (
                paired(one, other, True),
                stats.multinomial.pmf([above, below, n - above - below], n, [up, down, 1 - up - down]),
            )
            covered += chance * (found.low <= up - down <= found.high)
            if above + below:
                assert (found.low <= 0 <= found.high) == (stats.binomtest(above, above + below).pvalue >= 0.05)
    assert covered >= 0.95


@pytest.mark.slow
def test_a_bootstrap_interval_covers_as_said(pools):
    values = pools[0]["months"]
    rows = np.random.default_rng(4).integers(0, POOL, (1000, 200))
    found = [bootstrap("rate", values[row], 2 * values[row] + row % 3) for row in rows]
    truth = values.sum() / (2 * values + np.arange(POOL) % 3).sum()
    assert 0.93 <= np.mean([low <= truth <= high for _, low, high in found]) <= 0.97


def test_tables_of_few_runs_share_no_episode(records, monkeypatch):
    record = records[0]
    tables, tallies = FewRuns(5), Tallies()
    for part in (slice(0, 64), slice(64, POOL)):
        for kept in (tables, tallies):
            kept.add(jax.tree.map(lambda leaf, part=part: leaf[part], record))
    found = tables.sampling(tallies.estimates())
    months = np.asarray(record.months_survived, np.float64)
    means = months.reshape(-1, 5).mean(axis=1)
    assert found["months"].tables == POOL // 5, "four episodes of the first part wait for one of the second"
    expected = np.percentile(means, few_runs.PERCENTILES)
    np.testing.assert_allclose(found["months"].percentiles, expected)
    share = record.survived.mean()
    assert found["full_survival"].steps[0] == pytest.approx((1 - share) ** 5)
    assert sum(found["full_survival"].steps) == pytest.approx(1.0) and len(found["full_survival"].steps) == 6
    assert found["months"].steps == ()
    # the steps are what the tables themselves show
    seen = record.survived[: POOL - POOL % 5].reshape(-1, 5).sum(axis=1)
    np.testing.assert_allclose(found["full_survival"].steps, np.bincount(seen, minlength=6) / len(seen), atol=0.04)
    monkeypatch.setattr(few_runs, "MAX_TABLES", 20)
    bounded = FewRuns(5)
    for _ in range(3):
        bounded.add(jax.tree.map(lambda leaf: leaf[:60], record))
    assert bounded.sampling(tallies.estimates())["months"].tables == 20
    large = FewRuns(100)  # more than a part holds
    for start in range(0, 240, 60):
        large.add(jax.tree.map(lambda leaf, start=start: leaf[start : start + 60], record))
    found = large.sampling(tallies.estimates())["months"]
    two = months[:200].reshape(2, 100).mean(axis=1)
    assert found.tables == 2 and found.percentiles[2] == pytest.approx(np.median(two))


def test_evaluate_prints_what_five_runs_would_show(monkeypatch, capsys):
    command = ["evaluate", "--policy", "cash-threshold", "--policy", "never-raise", "--episodes", "256", "--runs", "5"]
    out = arena(monkeypatch, capsys, *command)[1]
    assert "cash-threshold: what a table of 5 runs shows" in out and "Probability that a table of 5 runs says" in out
    found = json.loads(arena(monkeypatch, capsys, *command, "--json")[1])
    one, other = found["few_runs"]
    assert (one["policy"], one["runs"], one["tables"]) == ("cash-threshold", 5, 51)
    assert other["metrics"]["full_survival"]["steps"] == [1, 0, 0, 0, 0, 0]
    columns = found["results"][0]["metrics"]
    assert one["metrics"]["months"]["mean"] == columns["months"]["mean"]
    assert columns.keys() == METRICS.keys(), "every column has an interval"
    assert all(column["low"] <= column["mean"] <= column["high"] for column in columns.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runs", "1"], "whole number from 2 to 6, got 1"),
        (["--runs", "7"], "whole number from 2 to 6, got 7"),
        (["--runs", "5", "--episodes", "79"], "--runs needs 80 episodes at the least, got 79"),
        (["--runs", "5", "--scenarios", "generated:3"], "tables of one world"),
    ],
)
def test_bad_runs_are_one_line(monkeypatch, capsys, arguments, message):
    code, out, err = arena(monkeypatch, capsys, "evaluate", "--policy", "never-raise", "--episodes", "256", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1) and message in err
