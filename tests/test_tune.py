"""Heuristics are tuned where their options say, reproducibly, on stated episodes; finished families are kept."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest

import arena_jax
from arena_jax.analysis.metrics import METRICS, Moments, estimate
from arena_jax.analysis.spread import spread
from arena_jax.arena import ENVIRONMENTS
from arena_jax.decisions.layout import AMOUNTS
from arena_jax.errors import ArenaError
from arena_jax.policies import POLICIES
from arena_jax.worlds import parse_worlds
from baselines import held_out, tune

CASH = "cash-threshold"


def options(policy):
    return {field.name: getattr(policy, field.name) for field in dataclasses.fields(policy)}


def test_every_family_with_options_is_tuned():
    assert set(POLICIES) - set(tune.FAMILIES) == {"never-raise"}


@pytest.mark.parametrize("name", tune.FAMILIES)
def test_points_are_written_as_policies_within_the_search(name):
    fields = dataclasses.fields(POLICIES[name])
    limits = np.array([tune.bounds(field) for field in fields])
    points = np.concatenate([limits.T, np.random.default_rng(0).uniform(*limits.T, (20, len(fields)))])
    for point in points:
        found = options(arena_jax.make_policy(tune.written(name, point)))
        for field, number in zip(fields, point, strict=True):
            (low, high), value = field.metadata["search"], float(found[field.name])
            assert field.metadata["low"] <= low < high <= field.metadata["high"]
            assert low - 1e-6 * abs(low) <= value <= high * (1 + 1e-6)
            lower = field.metadata["not_below"]
            wanted = math.exp(number) if field.metadata["unit"] == "$" else number
            wanted = max(wanted, float(found[lower])) if lower else wanted
            assert value == pytest.approx(round(wanted) if tune.is_whole(field) else wanted, rel=1e-3)


def test_money_is_searched_on_a_log_scale_and_requests_where_the_decision_level_makes_them():
    amount, month = (dataclasses.fields(POLICIES["one-shot-equity"])[i] for i in range(2))
    assert tune.bounds(amount) == pytest.approx((math.log(min(AMOUNTS)), math.log(max(AMOUNTS))))
    assert tune.bounds(month) == (0.0, 131.0)
    assert [tune.is_whole(field) for field in dataclasses.fields(POLICIES[CASH])] == [False, False, True]


def hill(calls):
    """Highest at $30M of debt below $5M; what it is called with goes to `calls`."""

    def means(specs):
        calls.append(specs)
        found = [{name: float(value) for name, value in options(arena_jax.make_policy(spec)).items()} for spec in specs]
        far = [
            abs(math.log(p["amount"] / 30e6)) + abs(math.log(p["threshold"] / 5e6)) + (p["instrument"] != 2)
            for p in found
        ]
        return -np.array(far, dtype=np.float64)

    return means


def search(seed, calls, population=10):
    return tune.tune(CASH, hill(calls), generations=40, population=population, seed=seed)


def test_the_search_finds_a_known_optimum_and_the_same_one_again():
    calls, again, other = [], [], []
    found = search(0, calls)
    best = options(arena_jax.make_policy(found.spec))
    assert (best["amount"], best["threshold"]) == (pytest.approx(30e6, rel=0.05), pytest.approx(5e6, rel=0.05))
    assert "instrument=debt" in found.spec
    assert found.training == hill([])([found.spec])[0] == max(hill([])([s for specs in calls for s in specs]))
    assert {len(specs) for specs in calls} == {10}
    assert (found.generations, found.evaluations) == (len(calls) - 1, 10 * len(calls))
    assert search(0, again) == found and again == calls
    search(1, other)
    assert other[0] != calls[0]


def test_training_objective_is_the_mean_of_what_the_episodes_pay():
    env, specs = arena_jax.make("EnterpriseArena-Disciplined-v1"), ["greedy-equity:amount=5e6", "greedy-equity"]
    found = tune.training_means(env, tune.training_worlds(env, 2, 5), 5, specs)
    generated = parse_worlds("generated:2,seed=5")
    scenarios = [env.scenario, env.scenario, *(generated.scenario(world, 132) for world in range(2))]
    for spec, mean in zip(specs, found, strict=True):
        paid = [
            arena_jax.rollout(
                dataclasses.replace(env, scenario=scenario), arena_jax.make_policy(spec), jax.random.key(5), tune.EACH,
                first=tune.EACH * place,
            ).value_kept.mean(dtype=np.float64)
            for place, scenario in enumerate(scenarios)
        ]  # fmt: skip
        assert mean == pytest.approx(np.mean(paid), rel=1e-4)
    assert [held_out.objective(arena_jax.make(name)) for name in ENVIRONMENTS] == ["score", "value_kept"]


def test_held_out_objective_is_half_of_each_place():
    rng = np.random.default_rng(0)
    default, worlds = rng.normal(3.0, 2.0, 400), rng.normal(5.0, 1.0, 50)
    metric = METRICS["score"]
    found = held_out.mixture(estimate(metric, Moments.of(default)), spread(metric, worlds, np.ones(50), held_out.EACH))
    error = 0.5 * math.sqrt(default.var(ddof=1) / 400 + worlds.var(ddof=1) / 50)
    assert found["mean"] == pytest.approx((default.mean() + worlds.mean()) / 2)
    assert found["high"] - found["mean"] == found["mean"] - found["low"] == pytest.approx(1.959964 * error)
    for place in held_out.places(200).values():
        worlds = parse_worlds(place["scenarios"]).count if "scenarios" in place else 1
        assert (place["seed"], worlds * place["episodes"]) == (held_out.SEED, 200)


@pytest.fixture
def fast(monkeypatch):
    """The program without a world: calls by family, and a family that is interrupted."""
    calls = {"interrupts": None, "families": []}

    def means(env, worlds, seed, specs):
        family = specs[0].partition(":")[0]
        if (env.name, family) == calls["interrupts"]:
            raise KeyboardInterrupt
        calls["families"].append((env.name, family))
        return np.arange(len(specs), dtype=np.float64)

    monkeypatch.setattr(tune, "training_worlds", lambda env, count, seed: None)
    monkeypatch.setattr(tune, "training_means", means)
    monkeypatch.setattr(tune, "held_out", lambda env, spec, episodes: {"mean": 1.0, "low": 0.5, "high": 1.5})
    return calls


def run(out, **settings):
    options = {"policy": ["greedy-debt", "greedy-equity"], "generations": 2, "population": 5, "worlds": 1, "seed": 1}
    tune.command(**(options | {"held_out_episodes": 20, "out": out} | settings))
    return json.loads(out.read_text())


def test_finished_families_are_kept(fast, tmp_path, capsys):
    out = tmp_path / "tuned.json"
    fast["interrupts"] = (ENVIRONMENTS[0], "greedy-equity")
    with pytest.raises(KeyboardInterrupt):
        run(out)
    kept = json.loads(out.read_text())["tuned"]
    assert [(row["environment"], row["policy"]) for row in kept] == [
        (ENVIRONMENTS[0], "greedy-debt"),
        (ENVIRONMENTS[1], "greedy-debt"),
    ]
    fast.update(interrupts=None, families=[])
    found = run(out)
    assert found["tuned"][:2] == kept and len(found["tuned"]) == 4
    assert {family for _, family in fast["families"]} == {"greedy-equity"}
    assert found["settings"]["held_out_seed"] == held_out.SEED and found["settings"]["seed"] == 1
    assert all(min(row["seconds"], row["processor_seconds"]) > 0.0 for row in found["tuned"])
    shown = capsys.readouterr().out
    assert "greedy-equity:amount=" in shown and "processor s" in shown
    fast["families"].clear()
    assert run(out) == found and fast["families"] == []


def test_what_cannot_be_tuned_is_refused(fast, tmp_path):
    out = tmp_path / "tuned.json"
    run(out)
    for settings, fault in (
        ({"population": 6}, "tuned otherwise"),
        ({"seed": held_out.SEED}, "held-out"),
        ({"held_out_episodes": 25}, "multiple of 10"),
        ({"policy": ["never-raise"]}, "unknown policy with options"),
        ({"generations": 0}, "generations must be"),
    ):
        with pytest.raises(ArenaError, match=fault):
            run(out, **settings)
    spoilt = json.loads(out.read_text())
    del spoilt["tuned"][0]["held_out"]["low"]
    out.write_text(json.dumps(spoilt))
    with pytest.raises(ArenaError, match="not a file of tuned policies"):
        run(out)
    out.write_text("[1]")
    with pytest.raises(ArenaError, match="not a file of tuned policies"):
        run(out)
    assert out.read_text() == "[1]"
