"""JAX against the plain-Python twin: the same draws, actions and tool calls give the same months and records."""

import dataclasses
import functools
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import twin

import arena_jax
from arena_jax.draws import episode_keys, key_words, month_draws, normal, request_draws, threefry2x32, uniform
from arena_jax.ledger import total_assets
from arena_jax.policies import Heuristic
from arena_jax.pruning import pruned
from arena_jax.score import make_record
from arena_jax.structs import TOOLS, WINDOW, Action, ToolCall
from arena_jax.tools import ALL_INDICATORS, ANALYZE, FINANCIAL_PACKAGE

COLUMNS = twin.read_columns(Path(__file__).parents[1] / "data" / "macro_trajectory.csv")
EPISODES = 200
RUN_KEY, POLICY_KEY = jax.random.key(5), jax.random.key(6)
IS_X64 = jnp.result_type(float) == jnp.float64
CENT = 0.01
# a program of thousands of small operations compiles five times faster unfused
QUICK = {"xla_disable_hlo_passes": "fusion", "xla_backend_optimization_level": 0}
QUICK_COMPILE = QUICK if jax.default_backend() == "cpu" else None
RELATIVE = 1e-9 if IS_X64 else 1e-5  # of users, shares and probabilities
TIES_ALLOWED = 0.05  # share of the episodes


def money_tolerance(total_assets):
    """One cent in float64, 1e-5 of total assets in float32."""
    return np.full_like(total_assets, CENT) if IS_X64 else RELATIVE * np.abs(total_assets)


# The policies


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Mixed(Heuristic):
    """Closes every third month, asks in four of five, too much or with an unknown code at times; calls tools."""

    def choose_tools(self, carry, observation, key):
        carry, calls, assumptions = super().choose_tools(carry, observation, key)
        return carry, (observation.month + jnp.arange(len(TOOLS), dtype=jnp.int32)) % 2 + calls, assumptions

    def act(self, carry, observation, key):
        month = observation.month
        amount = jnp.where(month % 11 == 10, 2e9, 4e6 + 1e5 * month.astype(jnp.result_type(float)))
        instrument = jnp.where(month % 5 == 4, 0, jnp.where(month % 17 == 0, 3, 1 + month % 2))
        return carry, Action(month % 3 == 0, instrument.astype(jnp.int32), amount)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OneOf(Heuristic):
    """The policy of the index `which`, so that one program serves them all; the carry is that of each policy."""

    policies: Any
    which: Any

    def init(self, key):
        return tuple(policy.init(key) for policy in self.policies)

    def choose_tools(self, carry, observation, key):
        return self._decide("choose_tools", carry, observation, key)

    def act(self, carry, observation, key):
        return self._decide("act", carry, observation, key)

    def _decide(self, method, carry, observation, key):
        def branch(index):
            own, *decided = getattr(self.policies[index], method)(carry[index], observation, key)
            return ((*carry[:index], own, *carry[index + 1 :]), *decided)

        return jax.lax.switch(self.which, [partial(branch, index) for index in range(len(self.policies))])


# other policies look at more and do the same things to the world
REGISTERED = ("never-raise", "one-shot-equity", "greedy-equity", "greedy-debt", "cash-threshold", "random")
KEYLESS = REGISTERED[:-1]  # act alike whatever their key
OVERRIDES = {name: {} for name in REGISTERED} | {
    "mixed": {"exclusive": False, "max_pending": 6},
    "disciplined": {"disciplined": True, "size_aversion": 2.0},
}


def policy_of(name, among=REGISTERED):
    if name in ("mixed", "disciplined"):
        return Mixed()
    return OneOf(tuple(arena_jax.make_policy(known) for known in among), jnp.int32(among.index(name)))


# The JAX side: each month through use_tool and step


@dataclass(frozen=True)
class Stepped:
    """calls int32[months, episodes, 4], actions and the states after each month [months, episodes], the record."""

    calls: Any
    actions: Any
    states: Any
    record: Any


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def step_through(*args):
    return pruned(play_by_steps)(*args)


def play_by_steps(env, policy, keys, policy_keys):
    """Calls int32[months, n, 4], actions and the states after each month [months, n], records [n].

    keys [n] are the episodes', policy_keys [months + 1, 2, n] those of the policy's start and decisions.
    """

    def one_month(carry, decision_keys):
        memory, state, observation = carry
        memory, calls, assumptions = jax.vmap(policy.choose_tools)(memory, observation, decision_keys[0])

        def use_tool(carry, tool):
            called = jnp.where(calls[:, tool] > 0, tool, -1)  # -1 is no tool: the call is not made
            argument = jnp.where(called == ANALYZE, ALL_INDICATORS, FINANCIAL_PACKAGE)
            state, timestep = jax.vmap(env.use_tool)(carry[0], ToolCall(called, argument, assumptions), keys)
            return (state, timestep.observation), None

        tools = jnp.arange(len(TOOLS), dtype=jnp.int32)
        (state, observation), _ = jax.lax.scan(use_tool, (state, observation), tools)
        memory, action = jax.vmap(policy.act)(memory, observation, decision_keys[1])
        state, timestep = jax.vmap(env.step)(state, action, keys)
        kept = dataclasses.replace(state, notebook=None, closed=None, financing_since_closing=None)
        return (memory, state, timestep.observation), (calls, action, kept)

    state, timestep = jax.vmap(env.reset)(keys)
    start = (jax.vmap(policy.init)(policy_keys[-1, 0]), state, timestep.observation)
    (_, last, _), months = jax.lax.scan(one_month, start, policy_keys[:-1])
    record = jax.vmap(make_record, in_axes=(None, None, 0))(env.params, env.scenario, last)
    return *months, record


@functools.cache
def stepped(name):
    env, keys = arena_jax.make(**OVERRIDES[name]), episode_keys(RUN_KEY, jnp.arange(EPISODES, dtype=jnp.uint32))
    policy_keys = jax.random.split(POLICY_KEY, (twin.MONTHS + 1, 2, EPISODES))
    found = jax.tree.map(np.asarray, step_through(env, policy_of(name), keys, policy_keys))
    assert found[0].min() >= 0 and found[0].max() <= 1  # step_through makes at most one call of each tool
    return Stepped(*found)


# The twin's side, and both as one row per episode and month

BALANCES = (
    *("cash", "loans_gross", "allowance", "interest_receivable", "accounts_payable", "tax_payable"),
    *("debt_principal", "debt_coupon", "paid_in_capital", "retained_earnings", "tax_loss_carryforward"),
)
AMOUNTS = ("requested_equity", "requested_debt", "received_equity", "received_debt", "cash_peak", "cash_trough")
FLOWS = tuple(f.name for f in dataclasses.fields(twin.Flows) if f.name not in ("new_users", "shares_issued"))
COUNTS = ("status", "month", "equity_rounds", "books_closed_through")
TALLIES = (
    *("actions", "requests", "requests_settled", "approvals"),
    *("first_request_month", "cash_peak_month", "cash_trough_month"),
)
PLACE = ("month_asked", "instrument", "months_left", "requested", "granted")


def places(pending):
    """Open requests of every row, by month asked: rows of (PLACE, ...), free places zero and last."""
    asked, instrument = pending[..., 0], pending[..., 1]
    order = np.argsort(np.where(instrument == 0, np.inf, asked), axis=-1, kind="stable")
    return np.take_along_axis(pending, order[..., None], axis=-2)


def jax_rows(found, months, episodes):
    """The rows of JAX's states for these pairs of month and episode: money, relative and discrete columns."""

    def at(leaf):
        return leaf[months, episodes].astype(np.float64)

    states, tally, books = found.states, found.states.tally, found.states.books
    flows = books.flows
    revenue = found.states.revenue[months, episodes].astype(np.float64)
    window = (months[:, None] + 1 + np.arange(WINDOW)) % WINDOW  # oldest first, as the twin keeps it
    pending = np.stack([np.stack([at(getattr(p, key)) for key in PLACE], axis=-1) for p in states.pending], axis=-2)
    pending = places(pending)
    money = {name: at(getattr(books, name)) for name in BALANCES}
    money |= {name: at(getattr(tally, name)) for name in AMOUNTS}
    money |= {f"flow {name}": at(getattr(flows, name)) for name in FLOWS}
    money |= {f"flash {name}": at(getattr(states.flash, name)) for name in ("originations", "collections")}
    money |= {f"revenue {k}": column for k, column in enumerate(np.take_along_axis(revenue, window, axis=1).T)}
    money |= {f"pending {PLACE[k]} {j}": pending[:, j, k] for j in range(pending.shape[1]) for k in (3, 4)}
    relative = {"users": at(books.users), "new users": at(flows.new_users), "flash users": at(states.flash.users)}
    relative |= {"shares": at(books.shares), "shares issued": at(flows.shares_issued)}
    discrete = {name: at(getattr(states, name)) for name in COUNTS}
    discrete |= {name: at(getattr(tally, name)) for name in TALLIES}
    discrete |= {name: at(calls) for name, calls in zip(TOOLS, tally.tool_calls, strict=True)}
    discrete |= {f"pending {PLACE[k]} {j}": pending[:, j, k] for j in range(pending.shape[1]) for k in (0, 1, 2)}
    discrete |= {f"pending granted {j}": pending[:, j, 4] > 0 for j in range(pending.shape[1])}
    discrete |= {"turned away": at(states.turned_away) != 0}
    return money, relative, discrete


balances_of, amounts_of, flows_of = attrgetter(*BALANCES), attrgetter(*AMOUNTS), attrgetter(*FLOWS)
counts_of, tallies_of = attrgetter(*COUNTS), attrgetter(*TALLIES)


def twin_row(p, before, after, f, action):
    """One row of the twin, in the order of `jax_rows`: money, relative and discrete."""
    by_month = sorted(after.pending, key=lambda r: r.month_asked)
    by_month += [twin.Request(0, 0.0, 0.0, 0, 0)] * (p["max_pending"] - len(by_month))
    flash = after.flash
    money = [*balances_of(after), *amounts_of(after), *flows_of(f), flash["originations"], flash["collections"]]
    money += after.revenue + [amount for r in by_month for amount in (r.requested, r.granted)]
    relative = [after.users, f.new_users, flash["users"], after.shares, f.shares_issued]
    discrete = [*counts_of(after), *tallies_of(after), *after.tool_calls]
    discrete += [n for r in by_month for n in (r.month_asked, r.instrument, r.months_left)]
    discrete += [r.granted > 0 for r in by_month]
    discrete.append(action.instrument != 0 and after.requests == before.requests)
    return money, relative, discrete


def is_tie(p, before, after, f, luck, tolerance):
    """Whether a rounding could turn an outcome of this month: an approval, bankruptcy, a new peak or trough."""
    asked = after.requests > before.requests
    instrument = twin.EQUITY if after.requested_equity > before.requested_equity else twin.DEBT
    amount = after.requested_equity + after.requested_debt - before.requested_equity - before.requested_debt
    near_approval = asked and abs(luck.request[0] - twin.approval(p, COLUMNS, before, instrument, amount)) <= RELATIVE
    levels = [0.0, before.cash_trough]
    if after.received_equity + after.received_debt == 0:
        levels.append(before.cash_peak)
    return near_approval or any(abs(after.cash - level) <= tolerance for level in levels)


@dataclass(frozen=True)
class Replayed:
    """Rows of the twin, one per episode and month played, and its last states."""

    months: np.ndarray
    episodes: np.ndarray
    assets: np.ndarray  # total assets as the month ends
    money: np.ndarray
    relative: np.ndarray
    discrete: np.ndarray
    last: list
    tie_month: np.ndarray  # [episodes] the month of the first tie, or 132


@functools.cache
def every_month():
    """The key words and the months of all episodes, one entry for each pair, [EPISODES * MONTHS]."""
    keys = episode_keys(RUN_KEY, jnp.arange(EPISODES, dtype=jnp.uint32))
    return key_words(jnp.repeat(keys, twin.MONTHS)), jnp.arange(EPISODES * twin.MONTHS) % twin.MONTHS


@functools.cache
def luck_of_episodes():
    """JAX's normals [episodes][months][13] and request uniforms [episodes][requests before][3]."""
    key, months = every_month()
    found = jax.tree.leaves(month_draws(key, months)), request_draws(key, months)
    return [np.array(part).reshape(-1, EPISODES, twin.MONTHS).transpose(1, 2, 0).tolist() for part in found]


@functools.cache
def replayed(name):
    found, p = stepped(name), twin.DEFAULTS | OVERRIDES[name]
    normals, uniforms = luck_of_episodes()
    actions = found.actions
    close, instrument, amount = (leaf.T.tolist() for leaf in (actions.close_books, actions.instrument, actions.amount))
    calls = found.calls.transpose(1, 0, 2).tolist()
    at, assets_of, rows, last, tie_month = [], [], [], [], np.full(EPISODES, twin.MONTHS)
    for e in range(EPISODES):
        state = twin.reset(p, COLUMNS)
        while state.status == twin.RUNNING:
            t = state.month
            luck = twin.Draws(normals[e][t][:10], normals[e][t][10:], uniforms[e][state.requests])
            action = twin.Action(close[e][t], instrument[e][t], amount[e][t])
            after, f = twin.step(p, COLUMNS, state, action, luck, calls[e][t])
            assets = after.cash + after.loans_gross - after.allowance + after.interest_receivable
            at.append((t, e))
            assets_of.append(assets)
            rows.append(twin_row(p, state, after, f, action))
            if is_tie(p, state, after, f, luck, float(money_tolerance(np.float64(assets)))):
                tie_month[e] = min(tie_month[e], t)
            state = after
        last.append(state)
    money, relative, discrete = (np.array(part, dtype=np.float64) for part in zip(*rows, strict=True))
    return Replayed(*np.array(at).T, np.array(assets_of), money, relative, discrete, last, tie_month)


# What must agree


def assert_close(where, rows, names, found, expected, tolerance):
    """Columns [rows, names] within `tolerance` [rows, 1] or [rows, names]; names the worst of those that are not."""
    share = np.abs(found - expected) / tolerance
    row, column = np.unravel_index(np.argmax(share), share.shape)  # argmax finds a NaN first
    assert share[row, column] <= 1, (
        f"{where} {rows[row]}: {names[column]} is {found[row, column]!r}, not {expected[row, column]!r}"
    )
    return share[row, column]


def relative_tolerance(expected):
    """Of users and of shares, in proportion to the stock; a flow of users or shares to its own stock."""
    users, shares = np.maximum(expected[:, [0, 2]].max(axis=1), 1.0), expected[:, 3]
    return RELATIVE * np.stack([users, users, users, shares, shares], axis=1)


def check_months(name):
    found, twins = stepped(name), replayed(name)
    tied = twins.tie_month < twin.MONTHS
    print(f"{name}: {len(twins.months)} months in {EPISODES} episodes, {tied.sum()} of them with a tie")
    assert tied.mean() <= TIES_ALLOWED
    keep = twins.months < twins.tie_month[twins.episodes]
    months, episodes = twins.months[keep], twins.episodes[keep]
    at, (money, relative, discrete) = np.stack([months, episodes], axis=1), jax_rows(found, months, episodes)
    for label, columns, expected, tolerance in (
        ("discrete", discrete, twins.discrete[keep], np.full((1, 1), 0.5)),
        ("money", money, twins.money[keep], money_tolerance(twins.assets[keep])[:, None]),
        ("relative", relative, twins.relative[keep], relative_tolerance(twins.relative[keep])),
    ):
        assert len(columns) == expected.shape[1]
        values = np.stack(list(columns.values()), axis=1).astype(np.float64)
        worst = assert_close(f"{name}, month and episode", at, list(columns), values, expected, tolerance)
        print(f"  {label}: largest deviation {worst:.3g} of the tolerance")


MONEY_OF_A_RECORD = (
    *("score", "value_kept", "revenue_ttm", "cash", "debt", "requested_equity", "requested_debt"),
    *("received_equity", "received_debt", "cash_peak", "cash_trough"),
)


def record_tolerances(assets, shares):
    """Per field of a record, [episodes]; a discrete field has to be equal."""
    tolerance = {f.name: np.full_like(assets, 0.5) for f in dataclasses.fields(arena_jax.Record)}
    tolerance |= dict.fromkeys(MONEY_OF_A_RECORD, money_tolerance(assets))
    tolerance["shares"], tolerance["ownership_kept"] = RELATIVE * shares, np.full_like(assets, RELATIVE)
    return tolerance | {"value_per_share": money_tolerance(assets) / shares}


def record_columns(record, keep):
    return np.stack(
        [np.asarray(getattr(record, f.name), dtype=np.float64)[keep] for f in dataclasses.fields(record)], axis=1
    )


def check_records(name):
    found, twins, p = stepped(name), replayed(name), twin.DEFAULTS | OVERRIDES[name]
    keep = twins.tie_month == twin.MONTHS
    names = [f.name for f in dataclasses.fields(arena_jax.Record)]
    rows = [twin.record(p, COLUMNS, state) for state in twins.last]
    rows = [row | dict(zip(TOOLS, row.pop("tool_calls"), strict=True)) for row in rows]
    assert all(set(row) == set(names) for row in rows)
    expected = np.array([[row[field] for field in names] for row in rows], dtype=np.float64)
    assets = np.array([s.cash + s.loans_gross - s.allowance + s.interest_receivable for s in twins.last])
    tolerance = record_tolerances(assets, expected[:, names.index("shares")])
    tolerance = np.stack([tolerance[field] for field in names], axis=1)
    found = record_columns(found.record, keep)
    assert_close(f"{name}, record of episode", np.flatnonzero(keep), names, found, expected[keep], tolerance[keep])


def check_batch_play(name):
    """`rollout` gives the records of the stepped episodes; `cash-threshold` may meet a tie of its own."""
    env, found, books = arena_jax.make(**OVERRIDES[name]), stepped(name), stepped(name).states.books
    record = arena_jax.rollout(env, policy_of(name, KEYLESS), RUN_KEY, EPISODES)
    assets = total_assets(books).astype(np.float64)
    keep = replayed(name).tie_month == twin.MONTHS
    if name == "cash-threshold":
        threshold = float(arena_jax.make_policy(name).threshold)
        keep &= (np.abs(books.cash - threshold) > money_tolerance(assets)).all(axis=0)
    print(f"{name}: {(~keep).sum()} of {EPISODES} episodes with a tie")
    assert (~keep).mean() <= TIES_ALLOWED
    tolerance = record_tolerances(assets[-1], found.record.shares.astype(np.float64))
    names = list(tolerance)
    tolerance = np.stack([tolerance[field] for field in names], axis=1)
    found, expected = record_columns(record, keep), record_columns(found.record, keep)
    assert_close(f"{name}, batch play, episode", np.flatnonzero(keep), names, found, expected, tolerance[keep])


def test_registered_policies():
    """One test, so that their program is compiled once."""
    for name in REGISTERED:
        check_months(name)
        check_records(name)
        if name in KEYLESS:
            check_batch_play(name)


def test_the_disciplined_variant():
    check_months("disciplined")
    check_records("disciplined")


@pytest.mark.slow
def test_mixed_actions():
    check_months("mixed")
    check_records("mixed")


@pytest.mark.slow
def test_batch_play_of_mixed_actions():
    check_batch_play("mixed")


# The random stream


def test_draws_agree():
    key, months = every_month()
    normals, uniforms = luck_of_episodes()
    blocks = [threefry2x32(key, months.astype(jnp.uint32), jnp.full_like(key.k0, block)) for block in range(7)]
    bits = np.array([word for block in blocks for word in block][:13]).T
    worst = 0.0
    for row in range(0, EPISODES * twin.MONTHS, 17):
        e, t = divmod(row, twin.MONTHS)
        k0, k1 = int(key.k0[row]), int(key.k1[row])
        expected = twin.draws((k0, k1), t, t)
        assert uniforms[e][t] == expected.request
        assert bits[row].tolist() == [w for block in range(7) for w in twin.threefry2x32(k0, k1, t, block)][:13]
        expected_normals = np.array(expected.indicators + expected.flash)
        worst = max(worst, np.abs(expected_normals - normals[e][t]).max())
    print(f"normals: largest deviation {worst:.3g}")
    assert worst < 2e-6


def test_uniforms_agree_exactly():
    bits = [511, 512, 2**31 - 1, 2**31, 2**32 - 513, *range(0, 2**32, 104_729_711), 2**32 - 1]
    assert uniform(jnp.array(bits, dtype=jnp.uint32)).tolist() == [twin.uniform(word) for word in bits]


def test_normals_agree_at_the_ends_of_the_unit_interval():
    uniforms = uniform(jnp.array([0, 512, 2**31 - 1, 2**31, 2**32 - 513, 2**32 - 1], dtype=jnp.uint32))
    expected = np.array([twin.normal(u) for u in uniforms.tolist()])
    assert np.abs(np.asarray(normal(uniforms), dtype=np.float64) - expected).max() < 2e-6
