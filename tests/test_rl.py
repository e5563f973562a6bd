"""EnterpriseArenaRL-v1 plays the arena's months decision by decision; masks, worlds, layout, simple policies."""

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arena_jax
from arena_jax.decisions.env import REWARD_UNIT
from arena_jax.decisions.layout import ACTIONS, AMOUNTS, CLOSE, FIRST_REQUEST, GROUPS, LIMIT, PASS, observation_table
from arena_jax.decisions.play import play
from arena_jax.decisions.sparse import where_wanted
from arena_jax.draws import episode_keys
from arena_jax.ledger import total_assets
from arena_jax.policies import categorical
from arena_jax.projection import assumptions_from
from arena_jax.score import make_record
from arena_jax.structs import BANKRUPT, COMPLETED, RUNNING, TOOLS, Action, ToolCall
from arena_jax.testing import check_env
from arena_jax.tools import ALL_INDICATORS, ANALYZE, FINANCIAL_PACKAGE, PROJECTED, QUANTITIES, observe
from arena_jax.worlds import parse_worlds

# a program of thousands of small operations compiles several times faster unfused
QUICK = {"xla_disable_hlo_passes": "fusion", "xla_backend_optimization_level": 0}
QUICK_COMPILE = QUICK if jax.default_backend() == "cpu" else None
KEY = jax.random.key(3)
N, DECISIONS, BUDGET = 64, 260, 3
WORLDS = "generated:3,seed=5"
FLOAT = jnp.result_type(float)
MONEY = 1e-9 if jnp.float64 == FLOAT else 1e-5  # of total assets


def make(**options):
    return arena_jax.make("EnterpriseArenaRL-v1", **options)


reset = jax.jit(arena_jax.ArenaRL.reset)


def keys_of(key, n=N):
    return episode_keys(key, jnp.arange(n, dtype=jnp.uint32))


# The same decisions through the arena


def decoded(action):
    """A decision in the arena's terms: tool (-1: none), whether it closes, instrument, amount."""
    place = action - FIRST_REQUEST
    is_request = (place >= 0) & (place < 2 * len(AMOUNTS))
    tool = jnp.where((action >= 0) & (action < len(TOOLS)), action, -1)
    instrument = jnp.where(is_request, 1 + place // len(AMOUNTS), 0)
    amount = jnp.where(is_request, jnp.asarray(AMOUNTS, dtype=FLOAT)[place % len(AMOUNTS)], 0.0)
    return tool, action == CLOSE, instrument, amount


def decide_in_arena(arena, state, action, key):
    """One decision by `use_tool` or `step`: over budget a tool call lets the month pass."""
    tool, closes, instrument, amount = decoded(action)
    before = observe(arena.params, state)
    argument = jnp.where(tool == ANALYZE, ALL_INDICATORS, FINANCIAL_PACKAGE)
    assumptions = assumptions_from(before.readings, max(PROJECTED))
    is_call = (tool >= 0) & (before.calls_left > 0)
    called, shown = arena.use_tool(state, ToolCall(jnp.where(is_call, tool, -1), argument, assumptions), key)
    stepped, ended = arena.step(state, Action(closes, instrument.astype(jnp.int32), amount), key)
    return jax.tree.map(lambda look, act: jnp.where(is_call, look, act), (called, shown), (stepped, ended))


@functools.partial(jax.jit, compiler_options=QUICK_COMPILE)
def both(env, keys, actions):
    """States and timesteps [decisions, n] of the environment and of the arena."""
    start, _ = jax.vmap(env.reset)(keys)
    arenas = jax.vmap(env.arena)(start.world)
    arena_start = jax.vmap(lambda arena, key: arena.reset(key)[0])(arenas, keys)

    def one(carry, action):
        state, arena_state = carry
        state, timestep = jax.vmap(env.step)(state, action, keys)
        arena_state, arena_timestep = jax.vmap(decide_in_arena)(arenas, arena_state, action, keys)
        kept = dataclasses.replace(arena_state, notebook={})
        return (state, arena_state), ((state.hidden, timestep), (kept, arena_timestep))

    return start.world, jax.lax.scan(one, (start, arena_start), actions)[1]


def flattened(table, observation):
    """The entries of an arena's observation, float64[..., n], from the table's names alone."""
    values = {
        "month": observation.month,
        "calls_left": observation.calls_left,
        "turned_away": observation.turned_away != 0,
    }
    for place, (request, notice) in enumerate(zip(observation.open_requests, observation.notices, strict=True)):
        for name, record in ((f"open_requests[{place}]", request), (f"notices[{place}]", notice)):
            values |= {f"{name}.is_equity": record.instrument == 1, f"{name}.is_debt": record.instrument == 2}
            values |= {f"{name}.requested": record.requested}
        age = np.where(request.instrument > 0, observation.month - request.month_asked, 0)
        values |= {f"open_requests[{place}].age": age}
        values |= {f"notices[{place}].received": notice.received, f"notices[{place}].rate": notice.rate}
    values |= {name: reading.value for name, reading in observation.readings.items()}
    scales = {entry.name: entry.scale for entry in table}
    for group, names in GROUPS.items():
        ages = [observation.readings[name].age for name in names]
        assert all(np.array_equal(age, ages[0]) for age in ages), f"quantities of {group} differ in age"
        values[f"{group}.age"] = np.where(ages[0] < 0, -scales[f"{group}.age"], ages[0])
    columns = [np.asarray(values[entry.name], dtype=np.float64) / entry.scale for entry in table]
    return np.clip(np.stack(columns, axis=-1), -LIMIT, LIMIT)


@functools.cache
def compared():
    env = make(scenarios=WORLDS, tool_budget=BUDGET, max_pending=2, disciplined=True, initial_cash=40e6)
    rng = np.random.default_rng(0)
    actions = jnp.asarray(rng.integers(-1, len(ACTIONS) + 1, (DECISIONS, N)), dtype=jnp.int32)
    return env, actions, jax.tree.map(np.asarray, both(env, keys_of(KEY), actions))


@pytest.mark.slow
def test_decisions_equal_those_played_through_the_arena():
    _, actions, (_, ((states, timesteps), (arena_states, arena_timesteps))) = compared()
    assets = np.abs(total_assets(arena_states.books)).astype(np.float64)
    for (path, ours), theirs in zip(jax.tree.leaves_with_path(states), jax.tree.leaves(arena_states), strict=True):
        where = jax.tree_util.keystr(path)
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, where
        if ours.dtype.kind in "ib":
            np.testing.assert_array_equal(ours, theirs, err_msg=where)
        else:  # users and shares in proportion to themselves
            scale = np.maximum(assets, np.abs(theirs)) if ours.ndim == assets.ndim else np.abs(theirs) + 1.0
            assert (np.abs(ours.astype(np.float64) - theirs) <= MONEY * scale).all(), where
    ends = np.asarray(arena_timesteps.terminated)
    assert set(np.unique(states.status)) == {RUNNING, BANKRUPT, COMPLETED}
    np.testing.assert_array_equal(timesteps.terminated, ends)
    np.testing.assert_allclose(timesteps.reward, arena_timesteps.reward / REWARD_UNIT, rtol=1e-4, atol=1e-6)
    assert (timesteps.reward != 0).sum() == ends[-1].sum()
    assert {int(a) for a in np.unique(actions)} == {*range(-1, len(ACTIONS) + 1)}


def test_the_disciplined_reward_is_the_value_kept():
    env, _, (world, ((states, timesteps), _)) = compared()
    last = jax.tree.map(lambda leaf: leaf[-1], states)
    record = jax.jit(jax.vmap(lambda world, state: make_record(env.params, env.scenario(world), state)))(world, last)
    np.testing.assert_allclose(timesteps.reward.sum(axis=0) * REWARD_UNIT, record.value_kept, rtol=1e-5)
    assert (np.asarray(record.score) != record.value_kept).all() and (np.asarray(record.value_kept) < 0).any()


def test_the_observation_is_the_notebook_in_the_order_of_the_table():
    env, _, (_, ((_, timesteps), (_, arena_timesteps))) = compared()
    expected = flattened(env.layout, arena_timesteps.observation)
    assert timesteps.observation.dtype == np.float32 and timesteps.observation.shape == expected.shape
    np.testing.assert_allclose(timesteps.observation, expected, rtol=2e-5, atol=2e-5)
    # every entry moves in these episodes, so that no column is right by chance
    still = [
        entry.name
        for entry, column in zip(env.layout, expected.reshape(-1, len(env.layout)).T, strict=True)
        if np.ptp(column) == 0
    ]
    assert not still


def test_masked_is_what_the_arena_turns_away():
    _, actions, (_, ((states, timesteps), _)) = compared()
    mask, chosen = timesteps.action_mask[:-1], np.asarray(actions[1:])
    before, after = jax.tree.map(lambda leaf: leaf[:-1], states), jax.tree.map(lambda leaf: leaf[1:], states)
    running = before.status == RUNNING
    known = (chosen >= 0) & (chosen < len(ACTIONS))
    allowed = np.take_along_axis(mask, np.clip(chosen, 0, len(ACTIONS) - 1)[..., None], axis=-1)[..., 0] & known
    is_tool, is_request = known & (chosen < len(TOOLS)), known & (chosen >= FIRST_REQUEST)
    calls = lambda states: sum(states.tally.tool_calls)
    assert (running & is_tool & ~allowed).any() and (running & is_request & ~allowed).any()
    # calls: answered where allowed, else the month passes
    np.testing.assert_array_equal(calls(after) - calls(before), running & is_tool & allowed)
    moved = (after.month > before.month) | (after.status != before.status)
    np.testing.assert_array_equal(moved, running & ~(is_tool & allowed))
    # requests: entered where allowed, else turned away
    np.testing.assert_array_equal(after.tally.requests - before.tally.requests, running & is_request & allowed)
    np.testing.assert_array_equal((after.turned_away != 0)[moved], (is_request & ~allowed)[moved])
    # an ended episode has nothing but pass
    assert (mask[~running].sum(axis=-1) == 1).all() and mask[..., PASS].all() and mask[running][:, CLOSE].all()


def test_requests_above_the_largest_allowed_are_masked():
    mask = np.asarray(reset(make(max_request=15e6), KEY)[1].action_mask)
    np.testing.assert_array_equal(mask[FIRST_REQUEST:], np.tile(np.array(AMOUNTS) <= 15e6, 2))
    assert not np.asarray(reset(make(tool_budget=0), KEY)[1].action_mask)[: len(TOOLS)].any()


# Worlds


def test_an_episodes_key_chooses_among_the_generated_worlds():
    env, _, (chosen, _) = compared()
    worlds = parse_worlds(WORLDS)
    assert sorted(np.unique(chosen)) == [0, 1, 2]
    for index in range(3):
        ours, theirs = env.scenario(jnp.int32(index)), worlds.scenario(index, 132)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), ours, theirs)


def test_worlds_are_chosen_evenly():
    env, _, _ = compared()
    chosen = jax.jit(jax.vmap(lambda key: env.reset(key)[0].world))(keys_of(KEY, 3000))
    counts = np.bincount(chosen)
    assert len(counts) == 3 and abs(counts - 1000).max() < 5 * 1000**0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scenarios": "mars"}, "scenarios must be one of"),
        ({"scenarios": "generated:2", "scenario": "mine.csv"}, "not both"),
        ({"shows_terms": 1}, "shows_terms must be true or false"),
        ({"nose": 0}, "unknown parameter 'nose'; did you mean noise"),
    ],
)
def test_bad_options_are_one_line(options, message):
    with pytest.raises(arena_jax.ArenaError, match=message) as error:
        make(**options)
    assert "\n" not in str(error.value)


def test_held_out_worlds_are_refused(monkeypatch):
    monkeypatch.setenv("ARENA_JAX_SECRET", "ab" * 32)
    with pytest.raises(arena_jax.ArenaError, match="not for training"):
        make(scenarios="secret")


@pytest.mark.parametrize("action", [1.0, True, "pass", [1, 2], 2**40, np.int64(2**32 + PASS)])
def test_an_action_must_be_one_integer(action):
    env = make()
    with pytest.raises(arena_jax.ArenaError, match="action must be"):
        env.step(reset(env, KEY)[0], action, KEY)


# Layout


def test_the_layout_names_every_quantity_once_and_its_digest_moves_with_it(monkeypatch):
    names = [entry.name for entry in observation_table(1, True)]
    assert len(set(names)) == len(names) and set(QUANTITIES) < set(names)
    assert names[-2:] == ["tool_cost", "revenue_multiple"]
    env = make()
    digests = {env.layout_digest, make(max_pending=2).layout_digest, make(shows_terms=True).layout_digest}
    monkeypatch.setitem(QUANTITIES, "cash", dataclasses.replace(QUANTITIES["cash"], scale=2e7))
    digests.add(env.layout_digest)
    assert len(digests) == 4
    assert make(tool_cost=0, disciplined=True).layout_digest == env.layout_digest


def test_the_layout_is_pinned():
    """Weights are bound to it: a change raises `layout.VERSION`."""
    assert make().layout_digest == "5ae3a4c5702945de9d8bbe962f381455886e3a29ff8788edff4e53d13d971792"


def test_terms_of_the_score_are_shown_where_wanted():
    shown = reset(make(shows_terms=True, tool_cost=40e3, revenue_multiple=2), KEY)[1].observation
    np.testing.assert_allclose(shown[-2:], [0.5, 0.2])
    assert len(shown) == len(make().layout) + 2


def test_a_sweep_differs_in_the_terms_that_it_sweeps():
    envs, axes = arena_jax.sweep(make(shows_terms=True), tool_cost=[0.0, 80e3], revenue_multiple=[2.0, 10.0])
    shown = jax.jit(jax.vmap(lambda env: env.reset(KEY)[1].observation, in_axes=(axes,)))(envs)
    np.testing.assert_allclose(shown[:, -2:], [[0.0, 0.2], [1.0, 1.0]])
    assert axes.trajectories is None and axes.params.tool_cost == 0


# Simple policies: what arithmetic says


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Prefers:
    """Takes the first of `actions` (int32[k]) that the mask allows, or, as `how` says, one in another way."""

    actions: Any
    how: Any  # int32[], a place in WAYS

    def init(self, key):
        return jnp.int32(0)

    def decide(self, carry, observation, action_mask, key):
        first = self.actions[jnp.argmax(action_mask[self.actions])]
        in_turn = jnp.where(action_mask[self.actions[0]], self.actions[carry % len(self.actions)], PASS)
        any_number = jax.random.randint(key, (), -1, len(ACTIONS) + 1, dtype=jnp.int32)
        allowed = categorical.sample(key, jnp.zeros(len(ACTIONS), dtype=jnp.float32), action_mask)
        return carry + 1, jnp.stack([first, in_turn, any_number, allowed])[self.how]


# in turn: while the mask allows the first; any: at random, masked ones and numbers that are no action too
WAYS = ("first", "in turn", "any", "allowed")


@functools.cache
def record_of(*actions, how="first", episodes=32, **overrides):
    wanted = jnp.asarray((*actions, *[PASS] * (4 - len(actions))), dtype=jnp.int32)
    policy = Prefers(wanted, jnp.int32(WAYS.index(how)))
    played = play(make(**overrides), policy, jax.random.key(0), jnp.arange(episodes, dtype=jnp.uint32))
    return jax.tree.map(np.asarray, played)


def assert_same_records(ours, theirs):
    for name, value in vars(theirs).items():
        found = getattr(ours, name)
        if value.dtype.kind in "ib":
            np.testing.assert_array_equal(found, value, err_msg=name)
        else:
            scale = 5 * np.abs(theirs.revenue_ttm) + np.abs(theirs.cash) + np.abs(theirs.debt)
            assert (np.abs(found.astype(np.float64) - value) <= MONEY * np.maximum(scale, np.abs(value))).all(), name


def action(name):
    return ACTIONS.index(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actions", "spec"),
    [
        ((PASS,), "never-raise"),
        ((ACTIONS.index("equity $20M"),), "greedy-equity:amount=20e6"),
        ((ACTIONS.index("debt $40M"),), "greedy-debt:amount=40e6"),
    ],
)
def test_constant_policies_play_the_heuristics_records(actions, spec):
    theirs = arena_jax.rollout(arena_jax.make(), arena_jax.make_policy(spec), jax.random.key(0), 32)
    assert_same_records(record_of(*actions), theirs)


def test_all_tools_cost_the_whole_budget_each_month_and_change_nothing_else():
    passing, looking = (
        record_of(PASS, initial_cash=200e6),
        record_of(action("verify_cash_position"), initial_cash=200e6),
    )
    assert passing.survived.all() and looking.survived.all()
    np.testing.assert_array_equal(looking.verify_cash_position, 20 * 132)
    np.testing.assert_allclose(passing.score.astype(np.float64) - looking.score, 20 * 132 * 5_000, rtol=1e-4)
    assert_same_records(
        dataclasses.replace(
            looking,
            score=passing.score,
            value_kept=passing.value_kept,
            verify_cash_position=passing.verify_cash_position,
        ),
        passing,
    )


def test_all_tools_in_turn_share_the_budget():
    record = record_of(*range(len(TOOLS)), how="in turn", initial_cash=200e6)
    for tool in TOOLS:
        np.testing.assert_array_equal(getattr(record, tool), 5 * record.months_played, err_msg=tool)


def a_month(record, name):
    """The mean of a count of `record` a month, over all episodes."""
    return getattr(record, name).sum() / record.months_played.sum()


def calls_a_month(chance, budget):
    """Expected calls of a month whose every decision is a call with some chance, while the budget lasts; variance."""
    shares = np.array([(1 - chance) * chance**calls for calls in range(budget)] + [chance**budget])
    mean = shares @ np.arange(budget + 1)
    return mean, shares @ (np.arange(budget + 1) - mean) ** 2


@pytest.mark.parametrize("budget", [20, 2, 0])
def test_any_numbers_call_and_act_as_often_as_chance_has_it(budget):
    """24 numbers, four of them calls: others end the month, and so does a call over budget; all end."""
    record = record_of(PASS, how="any", tool_budget=budget)
    months = record.months_played.sum()
    calls = sum(getattr(record, tool).sum() for tool in TOOLS) / months
    mean, variance = calls_a_month(4 / 24, budget)
    assert abs(calls - mean) <= 4 * np.sqrt(variance / months)
    for tool in TOOLS:
        assert a_month(record, tool) == pytest.approx(mean / 4, abs=0.02)
    # 17 of the 20 numbers that end a month within the budget close or ask, and of all 24 beyond it
    over = (4 / 24) ** budget
    assert a_month(record, "actions") == pytest.approx((1 - over) * 17 / 20 + over * 17 / 24, abs=0.03)


def test_allowed_decisions_call_and_ask_as_often_as_chance_has_it():
    """22 actions are allowed, four of them calls and 16 requests; while a request is open, only 6."""
    record = record_of(PASS, how="allowed")
    months, asked = record.months_played.sum(), record.requests.sum()
    free = asked * 18 / 16  # months without an open request: of their 18 endings 16 ask
    assert 0.1 < free / months < 0.9
    expected = free * calls_a_month(4 / 22, 20)[0] + (months - free) * calls_a_month(4 / 6, 20)[0]
    assert sum(getattr(record, tool).sum() for tool in TOOLS) == pytest.approx(expected, rel=0.1)
    # months of either kind close as often as they pass
    assert record.actions.sum() - asked == pytest.approx(free / 18 + (months - free) / 2, rel=0.1)
    assert record.requested_equity.sum() > 0 and record.requested_debt.sum() > 0


def test_a_closing_each_month_is_an_action_each_month_and_a_pass_none():
    record, passing = record_of(CLOSE), record_of(PASS)
    np.testing.assert_array_equal(record.actions, record.months_played)
    assert record.requests.sum() == passing.actions.sum() == 0
    assert not any(getattr(one, tool).any() for one in (record, passing) for tool in TOOLS)


# Contract


def test_check_env_passes():
    check_env(make(tool_budget=2), episodes=8)


def test_trajectories_are_shared_by_a_batch():
    """The program of a batched step gets them once: no leaf of a state holds a trajectory."""
    state = reset(compared()[0], KEY)[0]
    assert max(leaf.size for leaf in jax.tree.leaves(state)) == 12  # the revenue window


def test_an_answer_is_computed_for_those_that_want_it_under_any_vmap():
    @jax.jit
    def answers(wanted, scale, x):
        function = lambda scale, x: jnp.stack([scale * x, x + 1.0])
        return jax.vmap(jax.vmap(where_wanted, in_axes=(None, 0, None, 0)), in_axes=(None, 0, 0, 0))(
            function, wanted, scale, x
        )

    rng = np.random.default_rng(0)
    for share in (0.0, 0.03, 0.5, 1.0):
        wanted, x = rng.uniform(size=(3, 50)) < share, rng.normal(size=(3, 50)).astype(np.float32)
        scale = np.arange(1.0, 4.0, dtype=np.float32)
        expected = np.stack([scale[:, None] * x, x + 1], axis=-1) * wanted[..., None]
        np.testing.assert_allclose(answers(wanted, scale, x), expected, rtol=1e-6)
    np.testing.assert_array_equal(where_wanted(lambda x: x[None], jnp.bool_(False), jnp.float32(2.0)), [0])
    np.testing.assert_array_equal(where_wanted(lambda x: x[None], jnp.bool_(True), jnp.float32(2.0)), [2])
