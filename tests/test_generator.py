"""Generated worlds: their law is the default trajectory's, the task in them is the task, and a key is a world."""

import csv
import importlib.util
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arena_jax
from arena_jax.analysis.metrics import Estimate
from arena_jax.analysis.spread import Spread
from arena_jax.data import data_path
from arena_jax.generator import VERSION, fitted_model, sample_scenario
from arena_jax.operations import market_at
from arena_jax.regimes import REGIMES, regimes, spells
from arena_jax.scenario import COLUMNS, CRISIS_MONTHS, HORIZON, MAX_HORIZON, default_columns

RATES = [name for name, column in COLUMNS.items() if column.low == 0]
MANY = jax.jit(jax.vmap(sample_scenario))


def keys(count, seed=0):
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(jax.random.key(seed), jnp.arange(count, dtype=jnp.uint32))


@pytest.fixture(scope="module")
def worlds():
    return jax.tree.map(np.asarray, MANY(keys(400)))


@pytest.fixture(scope="module")
def many():
    return jax.tree.map(np.asarray, MANY(keys(10_000, seed=1)))


def baseline(name):
    """A program of baselines/ as a module."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "baselines" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_fitting_again_gives_the_file():
    program = baseline("fit_generator")
    found, stored = program.rounded(program.fit()), json.loads(data_path("generator.json").read_bytes())
    assert list(found) == list(stored)
    for name, value in stored.items():
        if isinstance(value, list) and not isinstance(value[0], str):
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
        else:
            assert found[name] == value, name


def test_regimes_of_the_default_trajectory_are_its_labels(env):
    with open(data_path("macro_trajectory.csv"), newline="") as file:
        expected = [row["regime"] for row in csv.DictReader(file)]
    stress = market_at(env.params, env.scenario, jnp.arange(HORIZON, dtype=jnp.int32)).stress
    assert [REGIMES[label] for label in regimes(np.asarray(stress))] == expected


@pytest.mark.parametrize(
    ("stress", "expected"),
    [
        ([1, 1, 1, 0, 0, 0], [2, 2, 2, 1, 1, 1]),
        ([1, 0, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1]),  # the first joins the next, a short last one the one before
        ([0, 0, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]),  # what a merger makes neighbours is one spell
        ([1], [2]),
        ([-0.1, -0.1, -0.1, 0.6, 0.6, 0.6], [1, 1, 1, 2, 2, 2]),
    ],
)
def test_regime_rule(stress, expected):
    assert regimes(np.array(stress, dtype=float)).tolist() == expected


def test_the_same_key_gives_the_same_world_one_by_one_or_at_once(worlds):
    for i in (0, 399):
        one = sample_scenario(jax.random.fold_in(jax.random.key(0), i))
        for leaf, leaves in zip(jax.tree.leaves(one), jax.tree.leaves(worlds), strict=True):
            np.testing.assert_allclose(np.asarray(leaf), leaves[i], rtol=2e-4, atol=2e-4)
    legacy, typed = sample_scenario(jax.random.PRNGKey(0)), sample_scenario(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, legacy, typed)


KEY_0 = {
    "crisis_months": [20, 62, 103],
    "policy_rate": [0.042307, 0.032832, 0.037009, 0.024636],
    "lending_tightness": [3.1461, 11.396, 17.708, 22.794],
    "sector_margin": [44.11, 43.76, 43.513, 43.356],
    "user_growth": [*[0.53] * 10, 0.87041, 1.2108, 1.5512, 1.8916, 2.2321],
}


def test_what_key_0_means_in_version_1():
    """Fails if a change makes old keys mean other worlds: raise `VERSION` then, and pin the new one."""
    assert VERSION == 1
    world = sample_scenario(jax.random.key(0))
    for name, values in KEY_0.items():
        np.testing.assert_allclose(np.asarray(getattr(world, name))[: len(values)], values, rtol=1e-3)


def test_leaves_and_longer_horizons(env):
    world = sample_scenario(jax.random.key(0))
    assert jax.tree.structure(world) == jax.tree.structure(env.scenario)
    for one, default in zip(jax.tree.leaves(world), jax.tree.leaves(env.scenario), strict=True):
        assert (one.shape, one.dtype, one.weak_type) == (default.shape, default.dtype, False)
    longer = sample_scenario(jax.random.key(0), horizon=264)
    assert longer.horizon == 264
    assert longer.crisis_months.shape == (6,)


@pytest.mark.parametrize("horizon", [131, 0, -1, MAX_HORIZON + 1, 132.0, True, "132"])
def test_bad_horizons(horizon):
    with pytest.raises(arena_jax.ArenaError, match="horizon must be a whole number from 132"):
        sample_scenario(jax.random.key(0), horizon=horizon)


def test_bad_keys():
    with pytest.raises(arena_jax.ArenaError, match="key"):
        sample_scenario(jax.random.key(0, impl="rbg"))


def check_ranges(found):
    for name, column in COLUMNS.items():
        values = getattr(found, name)
        assert np.isfinite(values).all(), name
        assert values.min() >= column.low and values.max() <= column.high, name
    for name in RATES:
        assert getattr(found, name).min() >= 0.0, name


def check_growth(found):
    """Surges: three, apart, over the base, each with its crisis month; the industry's figure is late."""
    base, gap = np.float32(fitted_model().surges.base), fitted_model().surges.gap
    for growth, crises in zip(found.user_growth, found.crisis_months, strict=True):
        runs, month = spells((growth > base + 1e-4).astype(int)), 0
        starts = []
        for is_surge, months in runs:
            if is_surge:
                starts.append(month)
                assert 10 <= months <= 35
            month += months
        assert len(starts) == 3
        assert starts[0] >= gap
        assert all(months >= gap for is_surge, months in runs[1:-1] if not is_surge)
        assert crises.tolist() == [start + 10 for start in starts]
        assert crises[-1] < HORIZON
    padded = np.concatenate([np.full((len(found.user_growth), 8), base), found.user_growth], axis=1)
    late = np.mean([padded[:, i : i + HORIZON] for i in range(6)], axis=0)
    np.testing.assert_allclose(found.industry_user_growth, late, rtol=1e-5)


def test_columns_are_in_the_ranges_of_the_file_check(worlds):
    check_ranges(worlds)
    check_growth(worlds)


def test_the_crisis_rule_holds_for_the_default_trajectory():
    growth = default_columns()["user_growth"]
    starts = np.flatnonzero((growth[1:] > 0.53) & (growth[:-1] == 0.53)) + 1
    assert np.abs(starts + fitted_model().surges.crisis - np.array(CRISIS_MONTHS)).max() <= 1


def test_worlds_differ(worlds):
    assert len({tuple(row) for row in worlds.crisis_months.tolist()}) > 390
    assert np.corrcoef(worlds.treasury_2y[:, 60], worlds.treasury_2y[:, 72])[0, 1] > 0.2  # one world is smooth in time
    assert abs(np.corrcoef(worlds.treasury_2y[:-1, 60], worlds.treasury_2y[1:, 60])[0, 1]) < 0.2  # worlds are apart


def statistics(columns, params):
    """Statistics of worlds, float64[worlds, T] per column: float64[worlds] by name, NaN where no such spell is."""
    found = {}
    z = 0.5 * (columns["volatility"] - float(params.volatility_center)) / float(params.volatility_scale) + (
        0.5 * columns["lending_tightness"] / float(params.tightness_scale)
    )
    labels = np.array([regimes(row) for row in z])
    starts = np.concatenate([np.ones((len(labels), 1), dtype=bool), labels[:, 1:] != labels[:, :-1]], axis=1)
    for i, name in enumerate(REGIMES):
        months, runs = (labels == i).sum(axis=1), (starts & (labels == i)).sum(axis=1)
        found[f"share of {name}"] = months / labels.shape[1]
        found[f"mean spell of {name}"] = np.where(runs > 0, months / np.maximum(runs, 1), np.nan)
    standard = {}
    for name, values in columns.items():
        change = np.diff(values, axis=1)
        centred = values - values.mean(axis=1, keepdims=True)
        sd = centred.std(axis=1, keepdims=True)
        standard[name] = centred / sd
        found[f"mean of {name}"] = values.mean(axis=1)
        found[f"SD of {name}"] = sd[:, 0]
        found[f"SD of the change of {name}"] = change.std(axis=1)
        for lag in (1, 3, 12):
            lagged = (standard[name][:, lag:] * standard[name][:, :-lag]).sum(axis=1)
            found[f"autocorrelation {lag} of {name}"] = lagged / values.shape[1]
    for i, one in enumerate(standard):
        for other in list(standard)[:i]:
            found[f"correlation of {other} and {one}"] = (standard[one] * standard[other]).mean(axis=1)
    return found


@pytest.mark.slow
def test_the_default_trajectory_is_a_typical_world(many, env):
    """Every statistic of the default lies in the central 95% of 10,000 generated worlds."""
    generated = statistics({name: getattr(many, name).astype(np.float64) for name in COLUMNS}, env.params)
    default = statistics({name: default_columns()[name][None] for name in COLUMNS}, env.params)
    outside = []
    for name, (value,) in default.items():
        low, high = np.nanpercentile(generated[name], [2.5, 97.5])
        if not low <= value <= high:
            outside.append(f"{name}: {value:.3f} is not in [{low:.3f}, {high:.3f}]")
    assert len(default) == 222
    assert outside == []


@pytest.mark.slow
def test_ten_thousand_worlds_obey_the_file_check(many):
    check_ranges(many)
    check_growth(many)


def test_the_drop_is_a_difference_of_independent_means():
    default = Estimate(400, 0.9, 0.3, 0.87, 0.93)
    generated = Spread(100, 20, 0.7, 0.02, 0.66, 0.74, 0.2, 0.4, ())
    mean, low, high = baseline("other_worlds").drop(default, generated)
    assert mean == pytest.approx(0.2)
    half = 1.984 * (0.015**2 + 0.02**2) ** 0.5  # t with 99 degrees of freedom
    assert (low, high) == (pytest.approx(0.2 - half, rel=1e-3), pytest.approx(0.2 + half, rel=1e-3))


@pytest.mark.slow
def test_the_task_stays_the_task(env):
    policies = ["never-raise", "greedy-equity:amount=20e6"]
    found = arena_jax.evaluate(env, policies, episodes=200, seed=2, scenarios="generated:1000,seed=3")
    never, greedy = [found[spec]["full_survival"] for spec in policies]
    assert never.high < 0.10
    assert greedy.low > 0.90
    assert found[policies[1]]["crisis_1"].mean > 0.99  # the first downturn is passed, as in the paper
