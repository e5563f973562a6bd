"""The environment's contract: trees, transformations, endings, tools, sweeps, batch play, golden values.

`python tests/test_environment.py --write-golden` rewrites tests/golden.json after a deliberate change of behaviour.
"""

import dataclasses
import functools
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy.special import ndtri

import arena_jax
from arena_jax import Action
from arena_jax.arena import Arena
from arena_jax.batch_play import rollout
from arena_jax.draws import episode_keys, uniform
from arena_jax.ledger import total_assets
from arena_jax.policies.heuristics import Heuristic, calls, none_open, request_if
from arena_jax.scenario import digest
from arena_jax.score import make_record, score
from arena_jax.structs import BANKRUPT, COMPLETED, DEBT, EQUITY, RUNNING, TOOLS
from arena_jax.tools import ALL_INDICATORS, QUANTITIES, assume, call_tool

GOLDEN = Path(__file__).with_name("golden.json")
MONTHS, N = 132, 128  # months of an episode; episodes of a batch
KEY, LEGACY = jax.random.key(0), jax.random.PRNGKey(0)
SWEPT = ("noise", "delay_max", "revenue_multiple", "tool_budget")
# a step is thousands of small operations, which compile three times faster unfused
QUICK = {"xla_disable_hlo_passes": "fusion", "xla_backend_optimization_level": 0}
QUICK_COMPILE = QUICK if jax.default_backend() == "cpu" else None

# One program serves every batch: N episodes that may differ in the swept parameters
AXES = arena_jax.sweep(arena_jax.make(), **{name: [1.0] for name in SWEPT})[1]
batch_reset = jax.jit(jax.vmap(Arena.reset, in_axes=(AXES, 0)))
batch_step = jax.jit(jax.vmap(Arena.step, in_axes=(AXES, 0, 0, 0)), compiler_options=QUICK_COMPILE)
batch_tool = jax.jit(jax.vmap(Arena.use_tool, in_axes=(AXES, 0, 0, 0)), compiler_options=QUICK_COMPILE)
single_reset = jax.jit(Arena.reset)
single_step = jax.jit(Arena.step, compiler_options=QUICK_COMPILE)


def batch_of(env, **values):
    """N environments like `env`, but for `values` [N] of the swept parameters."""
    own = {name: np.full(N, float(getattr(env.params, name))) for name in SWEPT}
    return arena_jax.sweep(env, **(own | values))[0]


def keys_of(key, indices=range(N)):
    return episode_keys(key, jnp.asarray(indices, dtype=jnp.uint32))


def spread(tree):
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (N,)), tree)


def as_numpy(tree):
    return jax.tree.map(np.asarray, tree)


def lane(tree, index):
    """Part of the leading axis, or axes, of every leaf; a NumPy array."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], tree)


def stacked(trees):
    """NumPy arrays [months, ...] of a list of trees."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def call(tools, **details):
    """A call of the tool of index `tools` (int32[N], or a name for all)."""
    named = spread(call_tool(tools if isinstance(tools, str) else TOOLS[0], **details))
    return named if isinstance(tools, str) else dataclasses.replace(named, tool=jnp.asarray(tools, dtype=jnp.int32))


def assert_identical(one, other):
    """Bit for bit: the same structure, dtypes and values."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and np.array_equal(a, b), jax.tree_util.keystr(path)


NO_MONEY = {"users", "new_users", "shares", "shares_issued", "rate", "ownership_kept", "value_per_share"}
NO_MONEY |= {name for name, quantity in QUANTITIES.items() if "$" not in quantity.unit}


def assert_equivalent(one, other, assets):
    """Discrete values equal; money to 1e-5 of total assets; users, shares, rates and the like to 1e-5 of themselves."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
        name, a, b = jax.tree_util.keystr(path), np.asarray(a), np.asarray(b)
        if not np.issubdtype(a.dtype, np.floating):
            assert np.array_equal(a, b), name
            continue
        is_money = NO_MONEY.isdisjoint(re.findall(r"\w+", name))
        scale = np.maximum(np.abs(assets), 1.0) if is_money else np.abs(b)
        assert (np.abs(a - b) <= 1e-5 * scale).all(), (name, a, b)


# Play through reset, use_tool and step


def play(envs, policy, keys, memory=()):
    """What a policy makes of N episodes: state and timestep as each month opens, a list of MONTHS + 1."""
    choose, act = jax.jit(jax.vmap(policy.choose_tools)), jax.jit(jax.vmap(policy.act))
    state, timestep = batch_reset(envs, keys)
    history = [(state, timestep)]
    for _ in range(MONTHS):
        memory, counts, _ = as_numpy(choose(memory, timestep.observation, keys))
        for tool in range(len(TOOLS)):
            if counts[:, tool].any():
                state, timestep = batch_tool(envs, state, call(np.where(counts[:, tool] > 0, tool, -1)), keys)
        memory, action = act(memory, timestep.observation, keys)
        state, timestep = batch_step(envs, state, action, keys)
        history.append((state, timestep))
    return history


class OneOf:
    """The policy whose index is the memory, so that one batch serves several."""

    def __init__(self, names):
        self.policies = [arena_jax.make_policy(name) for name in names]

    def choose_tools(self, memory, observation, key):
        branches = [policy.choose_tools for policy in self.policies]
        return memory, *jax.lax.switch(memory, branches, (), observation, key)[1:]

    def act(self, memory, observation, key):
        return memory, jax.lax.switch(memory, [policy.act for policy in self.policies], (), observation, key)[1]


def random_actions(seed):
    """Actions [months, N] without a plan: closings, requests of any size, some of them out of bounds."""
    rng = np.random.default_rng(seed)
    shape = (MONTHS, N)
    amounts = np.exp(rng.uniform(np.log(1e5), np.log(4e7), shape))
    odd = rng.choice([np.nan, np.inf, -1.0, 0.0, 2e9], shape)
    return Action(
        rng.uniform(size=shape) < 0.1,
        rng.choice(np.asarray([0, 1, 1, 1, 2, 2, 3, -1], dtype=np.int32), shape),
        np.where(rng.uniform(size=shape) < 0.1, odd, amounts).astype(jnp.result_type(float)),
    )


@dataclass(frozen=True)
class Played:
    """Months 0..T of N episodes, as NumPy arrays [T + 1, N]."""

    actions: Action  # [T, N]
    states: Any
    timesteps: Any
    state: Any  # the last, on the device
    timestep: Any


@pytest.fixture(scope="module")
def played(env):
    envs, keys, actions = batch_of(env), keys_of(KEY), random_actions(0)
    history = [batch_reset(envs, keys)]
    for month in range(MONTHS):
        history.append(batch_step(envs, history[-1][0], lane(actions, month), keys))
    states, timesteps = zip(*history, strict=True)
    return Played(actions, stacked(states), stacked(timesteps), *history[-1])


# Trees


def signature(tree):
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]


def test_every_call_returns_the_identical_tree():
    """In another configuration than the default, and with plain numbers in the action."""
    env = arena_jax.make(max_pending=3, exclusive=False, noise=0, tool_budget=5)
    state, timestep = env.reset(KEY)
    expected = signature((state, timestep))
    assert not any(weak for _, _, weak in expected[1])
    for action in (Action(False, np.int64(1), 2e6), Action(True, 2, 1_000_000)):
        assert signature(jax.eval_shape(lambda key, action=action: env.step(state, action, key), KEY)) == expected
    assert signature(jax.eval_shape(env.use_tool, state, call_tool("conduct_cashflow_projection"), KEY)) == expected
    assert signature(jax.eval_shape(env.close_books, state)) == expected


def test_compiled_calls_return_the_tree_of_reset(env, played):
    structure, leaves = signature(env.reset(KEY))
    assert not any(weak for _, _, weak in leaves)
    batch = (structure, [((N, *shape), dtype, weak) for shape, dtype, weak in leaves])
    assert signature((played.state, played.timestep)) == batch
    assert signature(batch_tool(batch_of(env), played.state, call("verify_cash_position"), keys_of(KEY))) == batch


def test_every_leaf_of_a_state_is_a_scalar_but_the_revenue_window(env):
    state, timestep = env.reset(KEY)
    assert state.revenue.shape == (12,)
    assert {leaf.shape for leaf in jax.tree.leaves(dataclasses.replace(state, revenue=()))} == {()}
    assert {leaf.shape for leaf in jax.tree.leaves(timestep)} == {()}


def test_no_leaf_of_a_state_could_hold_a_key(env):
    floating = jnp.result_type(float)
    allowed = {jnp.dtype(jnp.int32), jnp.dtype(jnp.bool_), floating}
    assert {leaf.dtype for leaf in jax.tree.leaves(env.reset(KEY))} <= allowed


# Transformations


def test_jit_equals_vmap(env, played):
    for episode in (0, N - 1):
        check_against_single_steps(env, played, episode, single_step)


@pytest.mark.slow
def test_default_compilation_equals_vmap(env, played):
    step = jax.jit(Arena.step)
    for episode in range(8):
        check_against_single_steps(env, played, episode, step)


def check_against_single_steps(env, played, episode, step):
    key = keys_of(KEY)[episode]
    state, timestep = single_reset(env, key)
    for month in range(MONTHS):
        state, timestep = step(env, state, lane(played.actions, (month, episode)), key)
        if month % 11 == 0 or month == MONTHS - 1:
            expected = lane((played.states, played.timesteps), (month + 1, episode))
            assert_equivalent((state, timestep), expected, total_assets(expected[0].books))


@pytest.mark.parametrize("legacy", [False, True])
def test_eager_equals_vmap(env, played, legacy):
    """With a typed key or a legacy one."""
    key, actions = keys_of(KEY)[3], lane(played.actions, (slice(None), 3))
    key = jax.random.key_data(key) if legacy else key
    state, timestep = env.reset(key)
    for month in range(5):
        state, timestep = env.step(state, lane(actions, month), key)
        expected = lane((played.states, played.timesteps), (month + 1, 3))
        assert_equivalent((state, timestep), expected, total_assets(expected[0].books))
    assert int(state.tally.requests) > 0


@pytest.mark.parametrize("tool", ["review_financial_records", "conduct_cashflow_projection"])
def test_eager_tools_equal_vmap(env, played, tool):
    """On the books of month 24, with assumptions that make the projection work."""
    details = {"assumptions": assume(user_growth=0.5, lending_rate=8.0, repayment_rate=0.03, fixed_cost=2e5, horizon=9)}
    states = jax.tree.map(jnp.asarray, lane(played.states, 24))
    running = int(np.flatnonzero(np.asarray(states.status) == RUNNING)[0])
    together = batch_tool(batch_of(env), states, call(tool, **details), keys_of(KEY))
    alone = env.use_tool(jax.tree.map(jnp.asarray, lane(states, running)), call_tool(tool, **details), KEY)
    assert_equivalent(alone, lane(together, running), total_assets(lane(states.books, running)))
    assert int(alone[0].tally.tool_calls[TOOLS.index(tool)]) == 1


def test_equal_configurations_share_one_trace():
    traced = []

    def step(env, state, action, key):
        traced.append(None)
        return env.step(state, action, key)

    compiled = jax.jit(step)
    one = arena_jax.make()
    others = [
        arena_jax.make(noise=0, tool_budget=np.int64(5), delay_max=np.float32(2)),
        arena_jax.make(initial_cash=20_000_000, price_floor=jnp.float32(0.5), exclusive=np.bool_(True)),
        arena_jax.make("EnterpriseArena-v1", scenario=one.scenario, max_pending=np.int32(1)),
    ]
    for env in (one, *others):
        state, _ = env.reset(KEY)
        compiled.trace(env, state, arena_jax.pass_month(), KEY)
        compiled.trace(env, state, arena_jax.request_funding("debt", 5), KEY)
        compiled.trace(env, state, arena_jax.close_books(), KEY)
    assert len(traced) == 1
    compiled.trace(arena_jax.make(exclusive=False), state, arena_jax.pass_month(), KEY)
    assert len(traced) == 2


# The key


def test_the_key_decides_nothing_but_the_draws_to_come(env):
    """The start, the tools and what is already in the pipeline are the same under any key."""
    envs, one, other = batch_of(env), keys_of(jax.random.key(1)), keys_of(jax.random.key(2))
    start = batch_reset(envs, one)
    assert_identical(start, batch_reset(envs, other))
    asked, _ = batch_step(envs, start[0], spread(arena_jax.request_funding("equity", 5e6)), one)
    ends = []
    for keys in (one, other):
        state, _ = batch_tool(envs, asked, call("verify_cash_position"), keys)
        assert_identical(state, batch_tool(envs, asked, call("verify_cash_position"), one)[0])
        for _ in range(5):
            state, _ = batch_step(envs, state, spread(arena_jax.pass_month()), keys)
        ends.append(state)
    assert (np.asarray(ends[0].tally.requests_settled) == 1).all()
    assert 0.2 < np.mean(ends[0].tally.approvals) < 0.9
    assert_identical(ends[0].tally.received_equity, ends[1].tally.received_equity)
    assert_identical(ends[0].equity_rounds, ends[1].equity_rounds)
    assert (np.asarray(ends[0].books.cash) != np.asarray(ends[1].books.cash)).all()


@pytest.mark.parametrize("month", [0, 60])
def test_a_step_takes_its_draws_from_its_key_and_month(month):
    """Fixed cost is the whole operating cost here, so that the books reveal its draw."""
    fixed, sigma = 1e6, 1e5
    nothing = ("servicing_cost", "sigma_servicing_cost", "acquisition_cost", "sigma_acquisition_cost")
    envs = batch_of(arena_jax.make(fixed_cost=fixed, sigma_fixed_cost=sigma, **dict.fromkeys(nothing, 0.0)))
    keys = jax.random.split(jax.random.key(9), N)
    start = dataclasses.replace(batch_reset(envs, keys)[0], month=jnp.full(N, month, dtype=jnp.int32))
    state, _ = batch_step(envs, start, spread(arena_jax.pass_month()), keys)
    found = (np.asarray(state.books.flows.operating_cost) - fixed) / sigma
    counter = jnp.asarray([month, 3], dtype=jnp.uint32)  # fixed cost is the seventh indicator: block 3, first word
    word = jax.vmap(threefry_2x32, in_axes=(0, None))(jax.random.key_data(keys), counter)[:, 0]
    np.testing.assert_allclose(found, ndtri((np.asarray(word >> 9) + 0.5) * 2.0**-23), atol=2e-5)


def test_the_kth_request_has_the_same_luck_in_any_month(env):
    """One key for all: only the market tells the months apart, and it decides on approval alone."""
    envs, keys = batch_of(env), jnp.broadcast_to(jax.random.key(0), (N,))
    start, ask = batch_reset(envs, keys)[0], spread(arena_jax.request_funding("equity", 1e6))
    months = jnp.arange(N, dtype=jnp.int32)
    luck = []
    for made in range(3):
        tally = dataclasses.replace(start.tally, requests=jnp.full(N, made, dtype=jnp.int32))
        state, _ = batch_step(envs, dataclasses.replace(start, month=months, tally=tally), ask, keys)
        opened = lane(state.pending[0], np.asarray(state.pending[0].months_left) > 0)  # not settled at once
        settled = lane(state.notices[0], np.asarray(state.notices[0].instrument) > 0)
        received = np.concatenate([opened.granted, settled.received])
        assert len(received) == N and len({len(opened.granted), len(settled.received)} - {0}) == 1
        luck.append((set(received[received > 0].tolist()), set(opened.months_left.tolist())))
    fractions, delays = zip(*luck, strict=True)
    assert all(len(fraction) == 1 for fraction in fractions) and len(set.union(*fractions)) == 3
    assert all(len(delay) <= 1 for delay in delays)


# Endings


def batch_score(env, state):
    return np.asarray(jax.vmap(score, in_axes=(None, 0))(env.params, state))


def test_random_play_ends_in_both_ways(played):
    status = played.states.status
    assert set(status[-1]) == {BANKRUPT, COMPLETED}
    assert (np.diff(status, axis=0)[status[:-1] != RUNNING] == 0).all()


def test_terminated_at_bankruptcy_and_at_the_horizon_and_never_truncated(played):
    status, cash, month = played.states.status, played.states.books.cash, played.states.month
    assert_identical(played.timesteps.terminated, status != RUNNING)
    assert_identical(status == BANKRUPT, cash < 0)
    assert_identical(status == COMPLETED, month == MONTHS)
    elapsed = np.broadcast_to(np.arange(MONTHS + 1)[:, None], month.shape)
    assert (month == elapsed)[status == RUNNING].all()
    first_ended = (status != RUNNING).argmax(axis=0)
    bankrupt = status[-1] == BANKRUPT
    assert (month[-1] == np.where(bankrupt, first_ended - 1, first_ended)).all()
    assert not played.timesteps.truncated.any()


def test_reward_is_the_score_in_the_step_that_ends_the_episode(env, played):
    reward, ended = played.timesteps.reward, played.timesteps.terminated
    ends = ended & ~np.concatenate([np.zeros((1, N), bool), ended[:-1]])
    assert (ends.sum(axis=0) == 1).all()
    assert (reward[~ends] == 0).all()
    final = batch_score(env, played.state)
    assert_identical(reward.sum(axis=0), final)
    assert (final == 0)[played.states.status[-1] == BANKRUPT].all()
    assert (final > 0)[played.states.status[-1] == COMPLETED].all()


def test_an_ended_episode_is_left_alone(env, played):
    envs, keys = batch_of(env), keys_of(jax.random.key(3))
    asks = arena_jax.request_funding("equity", 5e6)
    for action in (asks, arena_jax.request_funding("debt", 1e6), arena_jax.close_books()):
        state, timestep = batch_step(envs, played.state, spread(action), keys)
        assert_identical(state, played.state)
        check_nothing_happened(timestep, played.timestep)
    for tool in TOOLS:
        state, timestep = batch_tool(envs, played.state, call(tool), keys)
        assert_identical(state, played.state)
        check_nothing_happened(timestep, played.timestep)


def check_nothing_happened(timestep, before):
    assert_identical(timestep.observation, before.observation)
    assert (np.asarray(timestep.reward) == 0).all()
    assert np.asarray(timestep.terminated).all() and not np.asarray(timestep.truncated).any()


# Tools


def test_the_budget_is_kept_and_what_exceeds_it_is_free(env):
    budget = np.arange(N) % 8
    envs, keys = batch_of(env, tool_budget=budget), keys_of(KEY)
    state, timestep = batch_reset(envs, keys)
    for month in range(2):
        for made in range(10):
            assert_identical(np.asarray(timestep.observation.calls_left), np.maximum(budget - made, 0).astype("int32"))
            before, tool = state, TOOLS[made % len(TOOLS)]
            state, timestep = batch_tool(envs, state, call(tool), keys)
            turned_away = np.flatnonzero(made >= budget)
            assert_identical(lane(state, turned_away), lane(before, turned_away))
            answered = np.asarray(sum(state.tally.tool_calls)) - np.asarray(sum(before.tally.tool_calls))
            assert_identical(answered, (made < budget).astype("int32"))
        state, timestep = batch_step(envs, state, spread(arena_jax.pass_month()), keys)
        assert_identical(np.asarray(sum(state.tally.tool_calls)), ((month + 1) * budget).astype("int32"))
    free = batch_reset(envs, keys)[0]
    for _ in range(2):
        free, _ = batch_step(envs, free, pass_all(), keys)
    assert_identical(state.books, free.books)
    paid = batch_score(env, free) - batch_score(env, state)
    np.testing.assert_allclose(paid, 5_000.0 * 2 * budget, atol=32.0 if paid.dtype == np.float32 else 1e-6)


def pass_all():
    return spread(arena_jax.pass_month())


def test_invalid_calls_change_nothing(env, played):
    envs, keys = batch_of(env), keys_of(KEY)
    states = jax.tree.map(jnp.asarray, lane(played.states, 24))
    assert (np.asarray(states.status) == RUNNING).mean() > 0.5
    review, analyze, project = (call(name) for name in TOOLS[1:])
    wrong = [
        call(np.full(N, -1)),
        call(np.full(N, len(TOOLS))),
        dataclasses.replace(review, argument=jnp.full(N, 99, dtype=jnp.int32)),
        dataclasses.replace(analyze, argument=jnp.zeros(N, dtype=jnp.int32)),
        dataclasses.replace(analyze, argument=jnp.full(N, ALL_INDICATORS + 1, dtype=jnp.int32)),
        dataclasses.replace(project, assumptions=spread(dataclasses.replace(assume(), horizon=jnp.int32(37)))),
        dataclasses.replace(project, assumptions=spread(dataclasses.replace(assume(), fixed_cost=jnp.asarray(np.nan)))),
    ]
    for bad in wrong:
        assert_identical(batch_tool(envs, states, bad, keys)[0], states)


def test_verified_cash_is_exact_and_ages(env):
    envs, keys = batch_of(env, tool_budget=np.full(N, 1)), keys_of(KEY)
    state, timestep = batch_reset(envs, keys)
    assert (np.asarray(timestep.observation.readings["cash"].age) == -1).all()
    verified = None
    for month in range(6):
        if month in (1, 4):
            state, timestep = batch_tool(envs, state, call("verify_cash_position"), keys)
            verified, verified_in = state.books.cash, month
        if month in (3, 5):  # the one call of the month goes elsewhere, and the second is turned away
            state, _ = batch_tool(envs, state, call("analyze_market_conditions"), keys)
            state, timestep = batch_tool(envs, state, call("verify_cash_position"), keys)
        cash = timestep.observation.readings["cash"]
        if verified is not None:
            assert_identical(cash.value, verified)
            assert (np.asarray(cash.age) == month - verified_in).all()
        state, timestep = batch_step(envs, state, pass_all(), keys)
    assert (np.asarray(state.books.cash) != np.asarray(verified)).all()


# What an observation may depend on


VISIBLE = (".month", ".notices", ".turned_away", ".notebook", ".tally.calls_this_month")
VISIBLE_OF_PENDING = (".pending[0].instrument", ".pending[0].requested", ".pending[0].month_asked")


def changed(state, fields, others=False):
    """`state` with every leaf under `fields`, or every leaf but those, set to another value."""

    def other(path, leaf):
        if jax.tree_util.keystr(path).startswith(fields) == others:
            return leaf
        return leaf + 1 if jnp.issubdtype(leaf.dtype, jnp.integer) else -leaf - 1.5

    return jax.tree_util.tree_map_with_path(other, state)


def test_nothing_hidden_shows(env, played):
    """Month 24 of random play: whatever else the state holds, the free facts and the notebook are all that shows."""
    envs, keys, nothing = batch_of(env), keys_of(KEY), call(np.full(N, -1))
    states = lane(played.states, 24)
    running = np.resize(np.flatnonzero(states.status == RUNNING), N)
    state = lane(states, running)
    assert (state.pending[0].instrument > 0).mean() > 0.2
    observation = batch_tool(envs, state, nothing, keys)[1].observation
    # what an open request will bring and when, the books, open and closed, flash figures, revenue, counters
    hidden = changed(state, (".status", *VISIBLE, *VISIBLE_OF_PENDING), others=True)
    for name in ("granted", "months_left"):
        assert (getattr(hidden.pending[0], name) != getattr(state.pending[0], name)).all()
    assert_identical(batch_tool(envs, hidden, nothing, keys)[1].observation, observation)
    for field in (*VISIBLE, *VISIBLE_OF_PENDING):
        known = batch_tool(envs, changed(state, (field,)), nothing, keys)[1].observation
        differs = jax.tree.map(lambda a, b: not np.array_equal(a, b), known, observation)
        assert any(jax.tree.leaves(differs)), field


# Sweeps


def test_a_sweep_shares_the_trajectory(env):
    envs, axes = arena_jax.sweep(env, noise=[0.0, 1.0], tool_budget=[5, 25])
    shared = dataclasses.replace(envs.params, noise=env.params.noise, tool_budget=env.params.tool_budget)
    leaves = zip(jax.tree.leaves((envs.scenario, shared)), jax.tree.leaves((env.scenario, env.params)), strict=True)
    assert all(own is given for own, given in leaves)
    assert jax.tree.leaves(axes) == [0, 0]
    assert (axes.params.noise, axes.params.tool_budget) == (0, 0)
    assert envs.params.noise.dtype == env.params.noise.dtype and envs.params.noise.shape == (2,)
    assert envs.params.tool_budget.dtype == jnp.int32
    assert env.params.noise.shape == ()


def test_a_sweep_equals_one_by_one_makes(env):
    rng = np.random.default_rng(1)
    values = {
        "noise": rng.uniform(0, 3, N),
        "delay_max": rng.integers(1, 7, N),
        "revenue_multiple": rng.uniform(1, 9, N),
    }
    keys, policy = keys_of(jax.random.key(4)), arena_jax.make_policy("greedy-debt")
    history = play(batch_of(env, **values), policy, keys)
    act = jax.jit(policy.act)
    for episode in (0, 50, 99):
        own = arena_jax.make(**{name: column[episode] for name, column in values.items()})
        state, timestep = single_reset(own, keys[episode])
        for _ in range(MONTHS):
            _, action = act((), timestep.observation, keys[episode])
            state, timestep = single_step(own, state, action, keys[episode])
        expected = lane(history[-1], episode)
        assert_equivalent((state, timestep), expected, total_assets(expected[0].books))


# Batch play


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Coin(Heuristic):
    """Verifies the cash and, while no request is open, asks for equity and debt in turn, each if a coin says so."""

    amount: Any
    rate: Any  # at 1 the policy's key does not matter

    def choose_tools(self, carry, observation, key):
        carry, none, assumptions = super().choose_tools(carry, observation, key)
        return carry, none + calls(verify_cash_position=self.says_yes(key)), assumptions

    def says_yes(self, key):
        return uniform(jax.random.key_data(key)[0]) < self.rate  # a key that is used once is as good as a draw

    def act(self, carry, observation, key):
        TRACES.append(None)
        wanted = none_open(observation) & self.says_yes(key)
        instrument = jnp.where(observation.month % 2 == 0, EQUITY, DEBT)
        return carry, request_if(wanted, instrument, self.amount)


TRACES = []


class Plain:
    """The same as a plain object, which batch play compiles in."""

    def __init__(self, policy):
        self.init, self.choose_tools, self.act = policy.init, policy.choose_tools, policy.act


def coin(amount=8e6, rate=0.6):
    floating = jnp.result_type(float)
    return Coin(jnp.asarray(amount, dtype=floating), jnp.asarray(rate, dtype=floating))


@pytest.fixture(scope="module")
def thousand(env):
    """Episodes 0..999 in batches of 64."""
    record = rollout(env, coin(), KEY, 1000, batch=64)
    assert record.survived.shape == (1000,) and 0 < record.survived.sum() < 1000
    return record


@pytest.mark.parametrize("batch", [1, 7, pytest.param(100, marks=pytest.mark.slow)])
def test_episodes_do_not_depend_on_the_batch(env, thousand, batch):
    assert_identical(rollout(env, coin(), KEY, 1000, batch=batch), thousand)


@pytest.mark.parametrize(("first", "episodes"), [(0, 1), (0, 65), (37, 130), (999, 1)])
def test_episodes_do_not_depend_on_how_many_are_played_nor_from_which(env, thousand, first, episodes):
    record = rollout(env, coin(), KEY, episodes, batch=64, first=first)
    assert_identical(record, lane(thousand, slice(first, first + episodes)))


def test_a_plain_object_in_one_batch_of_1000_plays_the_same_episodes(env, thousand):
    assert_identical(rollout(env, Plain(coin()), KEY, 1000, batch=1000), thousand)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrap", "batch", "key"), [(dataclasses.replace, 1000, KEY), (Plain, 64, KEY), (dataclasses.replace, 64, LEGACY)]
)
def test_episodes_depend_neither_on_the_batch_nor_on_the_kind_of_policy_or_key(env, thousand, wrap, batch, key):
    assert_identical(rollout(env, wrap(coin()), key, 1000, batch=batch), thousand)


def test_the_policy_gets_keys_of_its_own(env, thousand):
    """Its coin tells which: they branch off at the last index of the run, and change with every decision."""
    policies = keys_of(jax.random.fold_in(KEY, 2**32 - 1), range(100))
    decisions = jax.vmap(episode_keys, in_axes=(0, None))(policies, jnp.arange(0, 2 * MONTHS, 2, dtype=jnp.uint32))
    says_yes = np.asarray(uniform(jax.random.key_data(decisions)[..., 0])) < 0.6
    played = np.arange(MONTHS) < thousand.months_played[:100, None]
    assert_identical((says_yes & played).sum(axis=1, dtype=np.int32), thousand.verify_cash_position[:100])


def test_batch_play_is_traced_once_for_equal_configurations(env, thousand):
    before = len(TRACES)
    assert before > 0
    for other, policy in (
        (arena_jax.make(noise=0, delay_max=np.int64(3)), coin(amount=9e6)),
        (arena_jax.make(initial_cash=10_000_000), coin(amount=1, rate=0.0)),
    ):
        record = rollout(other, policy, jax.random.key(1), 64, batch=64)
        assert not np.array_equal(record.cash, thousand.cash[:64])
    assert len(TRACES) == before


def test_batch_play_equals_stepping_with_the_key_of_the_episode_throughout(env):
    """A coin that always says yes, so that only the world is random; the last index allowed is among them."""
    last = 2**32 - 2
    policy, keys = coin(rate=1.0), keys_of(KEY, [*range(N - 1), last])
    state, _ = play(batch_of(env), policy, keys)[-1]
    stepped = jax.vmap(make_record, in_axes=(None, None, 0))(env.params, env.scenario, state)
    batch = rollout(env, policy, KEY, N - 1, batch=64)
    record = jax.tree.map(
        lambda *parts: np.concatenate(parts), batch, rollout(env, policy, KEY, 1, batch=64, first=last)
    )
    assert_equivalent(record, jax.tree.map(np.asarray, stepped), total_assets(state.books))
    assert 0 < record.survived.sum() < N


# Golden values


GOLDEN_POLICIES = ("greedy-equity", "greedy-debt", "cash-threshold")
GOLDEN_EPISODES = 3


def golden_episodes():
    """Every twelfth month of episodes 0, 1 and 2 of key 0 under three policies: {policy: [episode: [row]]}."""
    policy, index = np.divmod(np.arange(N, dtype=np.int32) % 9, GOLDEN_EPISODES)
    history = play(batch_of(arena_jax.make()), OneOf(GOLDEN_POLICIES), keys_of(KEY, index), policy)
    years = [golden_rows(history[month][0]) for month in range(12, MONTHS + 1, 12)]
    episodes = iter(zip(*years, strict=True))
    return {name: [list(next(episodes)) for _ in range(GOLDEN_EPISODES)] for name in GOLDEN_POLICIES}


def golden_rows(state):
    """One row for each of the first nine episodes."""
    counts = {"month": state.month, "status": state.status, "equity_rounds": state.equity_rounds}
    books = ("cash", "loans_gross", "allowance", "users", "retained_earnings", "debt_principal", "shares")
    columns = {**counts, **{name: getattr(state.books, name) for name in books}}
    columns = {name: np.asarray(column)[:9].tolist() for name, column in columns.items()}
    return [{name: column[i] for name, column in columns.items()} for i in range(9)]


@functools.cache
def read_golden():
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_golden_episodes():
    """Cash and retained earnings are differences of larger sums: 1e-5 of gross loans; all else 1e-5 of itself."""
    found, golden = golden_episodes(), read_golden()
    assert found.keys() == golden.keys()
    for name in golden:
        for episode, (rows, expected_rows) in enumerate(zip(found[name], golden[name], strict=True)):
            for row, expected in zip(rows, expected_rows, strict=True):
                loans = expected["loans_gross"]
                scale = {"cash": loans, "retained_earnings": loans, "month": 0, "status": 0, "equity_rounds": 0}
                for field, value in expected.items():
                    where = (name, episode, expected["month"], field)
                    assert abs(row[field] - value) <= 1e-5 * scale.get(field, abs(value)), where


def test_golden_episodes_end_in_both_ways():
    last = [episode[-1]["status"] for episodes in read_golden().values() for episode in episodes]
    assert {BANKRUPT, COMPLETED} == set(last)


def test_golden_settings(env):
    """The default dynamics are pinned; a change of them is a new version of the environment."""
    assert digest(env.params) == "8b4375c6b1f3141af60cde23367b2d852c69b5a624fd81d35fd61a9ca8913028"
    assert digest(env.scenario) == "8e7493a56a85381cc3153b5b038f1df2caeefd19dac6018319650f8b58e3006b"


def golden_line(row):
    return json.dumps({name: value if isinstance(value, int) else float(f"{value:.9g}") for name, value in row.items()})


def write_golden():
    """One line an episode and month, so that a change is easy to review."""
    lines = []
    for name, episodes in golden_episodes().items():
        rows = [",\n".join("   " + golden_line(row) for row in episode) for episode in episodes]
        lines.append(f'"{name}": [\n' + ",\n".join(f"  [\n{episode}\n  ]" for episode in rows) + "\n]")
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write-golden"]:
        sys.exit("usage: python tests/test_environment.py --write-golden")
    write_golden()
