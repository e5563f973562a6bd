"""What tools show and what they must not: partial observability is the point of the benchmark."""

import dataclasses
import math
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arena_jax
from arena_jax.policies.heuristics import policy_class
from arena_jax.projection import project
from arena_jax.structs import TOOLS, Action
from arena_jax.tools import CHANGES, INDICATORS, PROJECTED, QUANTITIES, assume, call_tool

PROJECTED_PATH = jax.jit(project)
EPISODES = 8
HORIZON = 132
PASS, CLOSE = arena_jax.pass_month(), arena_jax.close_books()


def spread(tree):
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (EPISODES, *jnp.shape(leaf))), tree)


@jax.jit
def play_months(env, state, actions, months, keys):
    """Step a batch through the first `months` months of actions [T, episodes]."""

    def one(carry, row):
        month, action = row
        after, timestep = jax.vmap(env.step)(carry[0], action, keys)
        chosen = jax.tree.map(lambda new, old: jnp.where(month < months, new, old), (after, timestep), carry)
        return chosen, None

    start = jax.vmap(env.use_tool)(state, spread(call_tool("review_financial_records", document="list")), keys)
    rows = (jnp.arange(HORIZON, dtype=jnp.int32), actions)
    return jax.lax.scan(one, start, rows)[0]


@jax.jit
def ask(env, state, call, keys):
    return jax.vmap(env.use_tool)(state, spread(call), keys)


@pytest.fixture(scope="module")
def start(env):
    keys = jax.random.split(jax.random.key(3), EPISODES)
    return jax.vmap(env.reset)(keys)[0], keys


def random_actions(seed):
    rng = np.random.default_rng(seed)
    shape = (HORIZON, EPISODES)
    return Action(
        jnp.asarray(rng.uniform(size=shape) < 0.2),
        jnp.asarray(rng.integers(0, 3, shape), dtype=jnp.int32),
        jnp.asarray(rng.uniform(1e6, 3e7, shape), dtype=jnp.result_type(float)),
    )


SOME = assume(user_growth=0.8, lending_rate=7.0, repayment_rate=0.028, charge_off_rate=0.002, fixed_cost=2e5)
CALLS = [
    call_tool("verify_cash_position"),
    call_tool("review_financial_records", document="list"),
    call_tool("review_financial_records", document="financial_package"),
    *[call_tool("analyze_market_conditions", indicators=[name]) for name in INDICATORS],
    call_tool("analyze_market_conditions"),
    *[
        call_tool("conduct_cashflow_projection", assumptions=dataclasses.replace(SOME, horizon=jnp.int32(months)))
        for months in (1, 3, 12, 36)
    ],
]


def with_other_future(env, month, seed):
    """The same environment with every trajectory row after `month` replaced."""
    rng = np.random.default_rng(seed)
    late = np.arange(HORIZON) > month
    columns = {}
    for field in dataclasses.fields(env.scenario):
        column = getattr(env.scenario, field.name)
        if field.name != "crisis_months":
            other = np.asarray(column) * rng.uniform(0.5, 2.0, HORIZON) + rng.uniform(0, 1, HORIZON)
            column = jnp.asarray(np.where(late, other, column), dtype=column.dtype)
        columns[field.name] = column
    return dataclasses.replace(env, scenario=dataclasses.replace(env.scenario, **columns))


def with_other_luck(state, seed):
    """The same state with other outcomes and delays of the open requests."""
    rng = np.random.default_rng(seed)
    granted = jnp.asarray(rng.uniform(0, 2e7, EPISODES), dtype=jnp.result_type(float))
    left = jnp.asarray(rng.integers(1, 7, EPISODES), dtype=jnp.int32)
    return dataclasses.replace(
        state, pending=tuple(place._replace(granted=granted, months_left=left) for place in state.pending)
    )


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(month=st.integers(0, HORIZON - 1), seed=st.integers(0, 2**31))
def test_nothing_shows_the_future_or_what_is_drawn_and_not_settled(env, start, month, seed):
    state, keys = start
    actions = random_actions(seed)
    other_env = with_other_future(env, month, seed)
    here = play_months(env, state, actions, jnp.int32(month), keys)
    there = play_months(other_env, state, actions, jnp.int32(month), keys)
    chex.assert_trees_all_equal(here[1], there[1])
    other_state = with_other_luck(there[0], seed)
    other_keys = jax.random.split(jax.random.key(seed), EPISODES)
    for call in CALLS:
        shown = ask(env, here[0], call, keys)[1]
        other = ask(other_env, other_state, call, other_keys)[1]
        for mine, theirs in zip(jax.tree.leaves(shown), jax.tree.leaves(other), strict=True):
            assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()


def test_the_future_does_matter_later(env, start):
    """The property above can fail: the same two worlds part once the rows differ."""
    state, keys = start
    other_env = with_other_future(env, 20, 1)
    actions = random_actions(1)
    here, there = (play_months(e, state, actions, jnp.int32(24), keys)[0] for e in (env, other_env))
    assert (np.asarray(here.books.cash) != np.asarray(there.books.cash)).all()


FREE = ("month", "pending", "notices", "turned_away", "notebook")


def test_who_asks_nothing_sees_only_the_free_facts(env, start):
    state, keys = start
    state, timestep = play_months(env, state, random_actions(5), jnp.int32(30), keys)
    nothing = jax.tree.map(lambda reading: (reading == 0) | (reading == -1), timestep.observation.readings)
    assert all(np.asarray(leaf).all() for leaf in jax.tree.leaves(nothing))
    seen = arena_jax.tools.observe(env.params, state)
    hidden = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        name = jax.tree_util.keystr(path)
        is_free = name.startswith(tuple(f".{part}" for part in FREE)) or name == ".tally.calls_this_month"
        if is_free and not name.endswith((".granted", ".months_left")):
            continue
        bumped = jax.tree_util.tree_map_with_path(
            lambda other, value, name=name: (
                (2 * value + 1).astype(value.dtype) if jax.tree_util.keystr(other) == name else value
            ),
            state,
        )
        assert not np.array_equal(leaf, 2 * leaf + 1)
        chex.assert_trees_all_equal(arena_jax.tools.observe(env.params, bumped), seen)
        hidden += 1
    assert hidden > 60


def test_the_table_of_quantities_is_the_notebook(env, start):
    state, keys = start
    readings = ask(env, state, CALLS[0], keys)[1].observation.readings
    assert readings.keys() == QUANTITIES.keys()
    shown_by = {name: set() for name in QUANTITIES}
    later = play_months(env, state, random_actions(2), jnp.int32(9), keys)[0]
    for call in CALLS:
        readings = ask(env, later, call, keys)[1].observation.readings
        for name, reading in readings.items():
            if (np.asarray(reading.age) >= 0).any():
                shown_by[name].add(int(call.tool))
    assert shown_by == {name: {quantity.tool} for name, quantity in QUANTITIES.items()}


def test_market_tool_shows_history_and_changes(env, start):
    state, keys = start
    month = 40
    state = play_months(env, state, random_actions(4), jnp.int32(month), keys)[0]
    alive = np.asarray(state.status) == 0
    readings = ask(env, state, call_tool("analyze_market_conditions", indicators=["volatility"]), keys)[1]
    readings = readings.observation.readings
    column = np.asarray(env.scenario.volatility)
    assert alive.any()
    np.testing.assert_allclose(np.asarray(readings["volatility"].value)[alive], column[month])
    for months in CHANGES:
        change = np.asarray(readings[f"volatility_change_{months}"].value)[alive]
        np.testing.assert_allclose(change, column[month] - column[month - months], atol=1e-5)
    assert (np.asarray(readings["pe"].age) == -1).all()


def test_budget_is_spent_in_the_order_of_the_tools_and_invalid_calls_are_free():
    env = arena_jax.make(tool_budget=2)
    key = jax.random.key(0)
    state, _ = env.reset(key)
    bad = [
        dataclasses.replace(call_tool("review_financial_records"), argument=jnp.int32(99)),
        dataclasses.replace(call_tool("analyze_market_conditions"), argument=jnp.int32(0)),
        dataclasses.replace(call_tool("verify_cash_position"), tool=jnp.int32(len(TOOLS))),
        *[
            call_tool("conduct_cashflow_projection", assumptions=dataclasses.replace(assume(), **odd))
            for odd in (
                {"lending_rate": jnp.asarray(math.nan)},
                {"user_growth": jnp.asarray(1e6)},
                {"fixed_cost": jnp.asarray(-1.0)},
                {"horizon": jnp.int32(37)},
                {"funding": jnp.asarray(1e6)},
            )
        ],
    ]
    use = jax.jit(env.use_tool)
    for call in bad:
        after, timestep = use(state, call, key)
        assert int(timestep.observation.calls_left) == 2
        assert sum(int(n) for n in after.tally.tool_calls) == 0
    for expected in (1, 0, 0):
        state, timestep = use(state, call_tool("verify_cash_position"), key)
        assert int(timestep.observation.calls_left) == expected
    state, timestep = use(state, call_tool("review_financial_records"), key)
    assert [int(n) for n in state.tally.tool_calls] == [2, 0, 0, 0]
    assert int(timestep.observation.readings["closed_cash"].age) == -1


def test_statements_age_from_the_closing(env, start):
    state, keys = start
    actions = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (HORIZON, EPISODES)), PASS)
    closing = dataclasses.replace(actions, close_books=actions.close_books.at[7].set(True))
    for month, age, exact_from in ((7, 7, 0), (8, 1, 7), (12, 5, 7)):
        later = play_months(env, state, closing, jnp.int32(month), keys)[0]
        readings = ask(env, later, call_tool("review_financial_records"), keys)[1].observation.readings
        assert (np.asarray(readings["closed_cash"].age) == age).all()
        before = play_months(env, state, closing, jnp.int32(exact_from), keys)[0]
        np.testing.assert_array_equal(readings["closed_cash"].value, before.books.cash)
        np.testing.assert_allclose(readings["closed_net_income"].value, before.books.flows.net_income, atol=1.0)


@pytest.mark.parametrize(
    ("noise", "closed_in", "months_open"), [(1.0, -1, 12), (1.0, 8, 4), (2.0, 8, 4), (0.0, -1, 12)]
)
def test_flash_error_grows_with_the_root_of_the_months_unclosed(noise, closed_in, months_open):
    """Moments over 4,096 episodes of the figures of month 11: sd = 2% * noise * sqrt(months since the last closing)."""
    env = arena_jax.make(noise=noise)
    episodes = 4096
    fields = ["seen_flash_users", "users", "seen_flash_originations", "last_originations"]
    _, months = arena_jax.rollout(env, months_of(ReviewsIn, 12, closed_in), jax.random.key(1), episodes, record=fields)
    for seen, true in (("seen_flash_users", "users"), ("seen_flash_originations", "last_originations")):
        error = months[seen][:, 12].astype(float) / months[true][:, 12] - 1
        sd = 0.02 * noise * math.sqrt(months_open)
        assert error.mean() == pytest.approx(0, abs=4 * sd / math.sqrt(episodes) + 1e-6)
        assert error.std() == pytest.approx(sd, rel=4 / math.sqrt(2 * episodes), abs=1e-6)


@policy_class
class ReviewsIn(arena_jax.policies.Heuristic):
    """Closes in one month, reviews the records in another."""

    review_month: Any
    closing_month: Any

    def choose_tools(self, carry, observation, key):
        _, calls, assumptions = super().choose_tools(carry, observation, key)
        return carry, calls.at[1].set((observation.month == self.review_month).astype(jnp.int32)), assumptions

    def act(self, carry, observation, key):
        return carry, dataclasses.replace(PASS, close_books=observation.month == self.closing_month)


def months_of(policy_type, month, closing_month):
    """Options as leaves, so that one compilation serves every month."""
    return policy_type(jnp.int32(month), jnp.int32(closing_month))


def still_world(**overrides):
    """No noise and a market that never changes, so that a forecast can be exact."""
    env = arena_jax.make(noise=0.0, exclusive=False, fraction_min=1.0, delay_max=1, debt_logit=10.0, **overrides)
    flat = jax.tree.map(lambda column: jnp.broadcast_to(column[0], column.shape), env.scenario)
    return dataclasses.replace(env, scenario=dataclasses.replace(flat, crisis_months=env.scenario.crisis_months))


def true_assumptions(env):
    """What the still world really does each month."""
    base = arena_jax.operations.market_at(env.params, env.scenario, jnp.int32(0)).base
    names = [field.name for field in dataclasses.fields(SOME) if field.name in base._fields]
    return assume(**{name: getattr(base, name) for name in names}, horizon=36)


def test_a_projection_from_fresh_books_and_true_assumptions_is_exact():
    env, key = still_world(), jax.random.key(0)
    step, state = jax.jit(env.step), env.reset(key)[0]
    for month in range(6):
        asks = arena_jax.request_funding("debt", 8e6)
        state, _ = step(state, asks if month == 2 else PASS, key)
    assert float(state.books.debt_principal) > 7e6
    fresh, _ = env.close_books(state)
    path = np.asarray(PROJECTED_PATH(env.params, fresh, true_assumptions(env)))
    shown = env.use_tool(fresh, call_tool("conduct_cashflow_projection", assumptions=true_assumptions(env)), key)[1]
    actual = []
    for _ in range(12):
        state, _ = step(state, PASS, key)
        actual.append(float(state.books.cash))
    np.testing.assert_allclose(path[:12], actual, rtol=2e-5)
    for months in PROJECTED:
        assert float(shown.observation.readings[f"projected_cash_{months}"].value) == pytest.approx(path[months - 1])
    assert float(shown.observation.readings["projected_cash_min"].value) == pytest.approx(path.min())


def test_a_projection_from_stale_books_knows_proceeds_debt_service_and_tax():
    """In a still world with true assumptions a closing 14 months old costs next to nothing: all else is known."""
    env, key = still_world(), jax.random.key(0)
    step, state = jax.jit(env.step), env.reset(key)[0]
    for month in range(18):
        if month == 4:
            state, _ = env.close_books(state)
        asks = arena_jax.request_funding("debt", 15e6)
        state, _ = step(state, asks if month == 6 else PASS, key)
    assert float(state.interest_since_closing) > 5e5
    path = np.asarray(PROJECTED_PATH(env.params, state, true_assumptions(env)))
    state, _ = step(state, PASS, key)
    assert path[0] == pytest.approx(float(state.books.cash), abs=1e4)


@pytest.mark.parametrize(
    "extreme",
    [{"user_growth": 20.0}, {"fixed_cost": 1e8}, {"funding": 1e9, "funding_month": 36}, {"lending_rate": 100.0}],
)
def test_no_valid_projection_overflows(env, extreme):
    state = env.reset(jax.random.key(0))[0]
    old = dataclasses.replace(state, month=jnp.int32(131))
    assert np.isfinite(np.asarray(PROJECTED_PATH(env.params, old, assume(**extreme, horizon=36)))).all()


def test_expected_funding_arrives_in_its_month(env):
    state = env.reset(jax.random.key(0))[0]
    without = project(env.params, state, SOME)
    with_funds = project(
        env.params, state, dataclasses.replace(SOME, funding=jnp.asarray(5e6), funding_month=jnp.int32(4))
    )
    difference = np.asarray(with_funds - without)
    np.testing.assert_allclose(difference[:3], 0, atol=1)
    np.testing.assert_allclose(difference[3:], 5e6, rtol=1e-5)


@pytest.mark.slow
def test_stale_books_forecast_worse_than_fresh_ones():
    """Mean absolute error of cash three months ahead after a growth surge, assumptions read off the same books."""
    env = arena_jax.make(initial_cash=60e6)
    fields = ["cash", "seen_projected_cash_3"]
    errors = {}
    for name, closing in (("fresh", 40), ("stale", 22)):
        _, months = arena_jax.rollout(env, months_of(ProjectsIn, 41, closing), jax.random.key(2), 1024, record=fields)
        both = months["alive"][:, 45]
        assert both.all()
        errors[name] = np.abs(months["seen_projected_cash_3"][:, 42] - months["cash"][:, 45]).mean()
    assert errors["stale"] > 1.5 * errors["fresh"]


@policy_class
class ProjectsIn(ReviewsIn):
    """Reviews records and market, projects the month after on what the last closed statements say."""

    def choose_tools(self, carry, observation, key):
        carry, calls, _ = ReviewsIn.choose_tools(self, carry, observation, key)
        projects = observation.month == self.review_month + 1
        calls = calls.at[2].set(calls[1]).at[3].set(projects.astype(jnp.int32))
        return carry, calls, arena_jax.policies.informed.assumptions_from(observation.readings, 12)


def test_close_books_leaves_the_month_open_and_needs_a_relaxed_world(env):
    key = jax.random.key(0)
    with pytest.raises(arena_jax.ArenaError, match="exclusive=False"):
        env.close_books(env.reset(key)[0])
    relaxed = arena_jax.make(exclusive=False)
    state = relaxed.step(relaxed.reset(key)[0], PASS, key)[0]
    closed, timestep = relaxed.close_books(state)
    assert (int(closed.month), int(closed.books_closed_through), int(closed.tally.actions)) == (1, 0, 1)
    assert not bool(timestep.terminated)
    readings = relaxed.use_tool(closed, call_tool("review_financial_records"), key)[1].observation.readings
    assert int(readings["closed_cash"].age) == 0
    assert int(readings["flash_users"].age) == -1  # exact statements take the place of flash figures
