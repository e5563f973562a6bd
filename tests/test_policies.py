"""Policies pay for what they look at, are found by name and by path, and show the paper's findings."""

import dataclasses
import functools
import inspect

import jax
import numpy as np
import pytest

import arena_jax
from arena_jax.batch_play import play as PLAY
from arena_jax.policies import POLICIES, make_policy
from arena_jax.structs import TOOLS

BLIND = ("never-raise", "one-shot-equity", "greedy-equity", "greedy-debt", "equity-debt-equity")
LOOKS = {
    "cash-threshold": {"verify_cash_position"},
    "runway": {"verify_cash_position"},
    "late-raiser": {"verify_cash_position"},
    "market-timer": {"analyze_market_conditions"},
    "prudent-cfo": set(TOOLS) - {"verify_cash_position"},
    "information-hungry": set(TOOLS),
    "random": set(TOOLS),
}
EPISODES = 2048


@functools.cache
def play(spec, **overrides):
    return arena_jax.rollout(arena_jax.make(**overrides), make_policy(spec), jax.random.key(0), EPISODES)


def calls(record):
    return sum(getattr(record, tool) for tool in TOOLS)


def test_the_lists_above_are_complete():
    assert {*BLIND, *LOOKS} == set(POLICIES)


QUICK = ("greedy-equity", "information-hungry")  # the others in make verify


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in POLICIES]
)
def test_a_policy_pays_for_what_it_looks_at_and_is_blind_without_a_budget(name):
    record, blind = play(name), play(name, tool_budget=0)
    used = {tool for tool in TOOLS if getattr(record, tool).sum() > 0}
    assert used == LOOKS.get(name, set())
    assert calls(blind).sum() == 0
    if name in BLIND:
        np.testing.assert_array_equal(record.score, blind.score)
    elif name != "random":
        assert blind.requests.sum() == 0
        assert record.requests.sum() > 0


@pytest.mark.parametrize("name", POLICIES)
def test_options_are_documented(name):
    assert inspect.getdoc(POLICIES[name])
    for field in dataclasses.fields(POLICIES[name]):
        assert field.metadata["about"]
        assert field.metadata["unit"]


@pytest.mark.parametrize(
    ("spec", "survival", "months"),
    [
        ("never-raise", 0.0, 33),
        ("one-shot-equity", 0.0, 57),
        ("greedy-debt", 0.0, 79),
        ("greedy-equity", 1.0, 131),
    ],
)
def test_published_anchors_come_out(spec, survival, months):
    """Scripted $20M policies of an independent replication study (agentic-procedural-graphs, arXiv 2609.09153)."""
    record = play(spec)
    assert record.survived.mean() == pytest.approx(survival, abs=0.08)
    assert record.months_survived.mean() == pytest.approx(months, abs=6)
    if spec == "greedy-equity":
        assert record.approvals.mean() == pytest.approx(8.3, abs=0.7)
        assert record.received_equity.mean() == pytest.approx(139e6, abs=12e6)
        assert np.median(record.score) == pytest.approx(156e6, abs=15e6)


@pytest.mark.slow
def test_late_raiser_asks_after_the_peak_and_prudent_cfo_raises_ahead_of_need():
    late, prudent = play("late-raiser"), play("prudent-cfo:amount=12.6e6")
    asked = late.first_request_month >= 0
    assert (late.first_request_month > late.cash_peak_month)[asked].mean() > 0.99
    assert prudent.survived.mean() > play("cash-threshold:threshold=4e6,amount=12.6e6").survived.mean()


@pytest.mark.slow
def test_dropping_exclusivity_lifts_the_score_and_leaves_survival():
    """RQ2: a policy that both closes and raises; the same worlds on both sides."""
    exclusive, relaxed = play("prudent-cfo"), play("prudent-cfo", exclusive=False)
    gain = relaxed.score.astype(float) - exclusive.score
    assert gain.mean() > 2 * gain.std() / EPISODES**0.5
    assert abs(relaxed.survived.mean() - exclusive.survived.mean()) < 0.05


def test_a_small_budget_hurts_the_information_hungry_more_than_a_large_one():
    """RQ2: all collapse at 5 calls a month."""
    results = {budget: play("information-hungry", tool_budget=budget) for budget in (5, 20, 25)}
    for budget, record in results.items():
        np.testing.assert_allclose(calls(record) / record.months_played, budget)
    scores = {budget: record.score.mean() for budget, record in results.items()}
    assert scores[20] - scores[5] > abs(scores[20] - scores[25])
    assert results[5].survived.mean() < 0.2 < results[25].survived.mean()


@pytest.mark.slow
def test_equity_debt_equity_takes_turns():
    record = play("equity-debt-equity:amount=1e6")
    ratio = record.requested_equity / np.maximum(record.requested_debt, 1)
    assert ((ratio >= 1) & (ratio <= 3)).all()


def make_stubborn(amount=1e6):
    """A factory that users may name by path."""
    return make_policy("greedy-equity", amount=amount)


def test_a_policy_by_path_is_the_same_in_python():
    by_path = make_policy("test_policies:make_stubborn:amount=2e6")
    assert by_path == make_stubborn(2e6)
    record = arena_jax.rollout(arena_jax.make(), by_path, jax.random.key(0), 64)
    assert record.requested_equity.max() == 2e6 * record.requests.max()


class Faulty(arena_jax.policies.Heuristic):
    """A policy with a fault in one method."""

    def __init__(self, method, result):
        self.method, self.result = method, result

    def act(self, carry, observation, key):
        return carry, arena_jax.pass_month()

    def __getattribute__(self, name):
        if name in ("init", "choose_tools", "act") and name == object.__getattribute__(self, "method"):
            return lambda *_: object.__getattribute__(self, "result")()
        return object.__getattribute__(self, name)


def raises():
    raise KeyError("mine")


@pytest.mark.parametrize(
    ("method", "result", "message"),
    [
        ("init", raises, "Faulty.init failed with KeyError: 'mine'"),
        ("act", raises, "Faulty.act failed with KeyError"),
        ("act", lambda: None, "act returns"),
        ("act", lambda: ((), None), "action must be an Action"),
        ("act", lambda: (1.0, arena_jax.pass_month()), "carry must keep"),
        ("choose_tools", lambda: ((), [0, 0, 0, 0], None), "choose_tools must return int32"),
        ("choose_tools", lambda: ((), None), "choose_tools returns"),
        ("init", lambda: "text", "carries are arrays"),
    ],
)
def test_faults_of_a_users_policy_are_one_line(env, method, result, message):
    with pytest.raises(arena_jax.ArenaError, match=message) as error:
        arena_jax.rollout(env, Faulty(method, result), jax.random.key(0), 64)
    assert "\n" not in str(error.value)


def test_a_sweep_is_played_by_vmap(env):
    envs, axes = arena_jax.sweep(env, initial_cash=[15e6, 30e6])
    with pytest.raises(arena_jax.ArenaError, match=r"jax\.vmap"):
        arena_jax.rollout(envs, make_policy("never-raise"), jax.random.key(0), 64)
    indices = np.arange(64, dtype=np.uint32)
    swept = jax.vmap(lambda e: PLAY(e, make_policy("never-raise"), jax.random.key(0), indices)[0], in_axes=(axes,))(
        envs
    )
    assert swept.months_survived.shape == (2, 64)
    assert (swept.months_survived[1] > swept.months_survived[0]).all()
