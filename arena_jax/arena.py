"""The environment: `make`, `reset`, `use_tool`, `step`. Glue only; the rules live in the modules it calls."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from arena_jax.draws import Draws, Flash, key_words, month_draws, request_draws
from arena_jax.errors import ArenaError, unknown
from arena_jax.funding import (
    ask,
    company_value,
    coupon,
    empty_notice,
    empty_request,
    issue_price,
    settle,
)
from arena_jax.ledger import book_month, revenue_ttm
from arena_jax.operations import Market, flash_error, in_range, market_at, operate, perturbed
from arena_jax.params import FIELDS, Params, checked_values, make_params, with_leaves
from arena_jax.scenario import Scenario, default_scenario, load_scenario
from arena_jax.score import score
from arena_jax.structs import (
    BANKRUPT,
    COMPLETED,
    EQUITY,
    NO_REQUEST,
    NOT_TURNED_AWAY,
    RUNNING,
    TOOLS,
    WINDOW,
    Action,
    Flows,
    Request,
    State,
    Tally,
    Timestep,
    ToolCall,
)
from arena_jax.tools import call_tools, empty_notebook, observe

ENVIRONMENTS = ("EnterpriseArena-v1",)


def opening_state(params: Params, market: Market) -> State:
    """The company as month 0 opens (design section 2.1); `market` is that of month 0. Leaves are scalars []."""
    base = operate(params, params.initial_users, params.initial_loans, in_range(market.base))
    none, zero = jnp.zeros_like(params.initial_cash), jnp.int32(0)
    balances = {
        "cash": params.initial_cash,
        "loans_gross": params.initial_loans,
        "allowance": params.allowance_months * market.loss_rate * params.initial_loans,
        "interest_receivable": params.interest_lag * base.interest_income,
        "accounts_payable": params.cost_lag * base.operating_cost,
        "paid_in_capital": params.initial_paid_in_capital,
    }
    assets = balances["cash"] + balances["loans_gross"] - balances["allowance"] + balances["interest_receivable"]
    return State(
        month=zero,
        status=jnp.int32(RUNNING),
        users=params.initial_users,
        **balances,
        tax_payable=none,
        debt_principal=none,
        debt_coupon=none,
        retained_earnings=assets - balances["accounts_payable"] - balances["paid_in_capital"],
        tax_loss_carryforward=none,
        shares=params.initial_shares,
        revenue=jnp.broadcast_to(base.interest_income, (WINDOW,)),
        equity_rounds=zero,
        pending=(empty_request(none),) * params.max_pending,
        notices=(empty_notice(none),) * params.max_pending,
        turned_away=jnp.int32(NOT_TURNED_AWAY),
        books_closed_through=jnp.int32(-1),
        flash=Flash(none, none, none),
        flows=Flows(*[none] * len(dataclasses.fields(Flows))),
        notebook=empty_notebook(none),
        tally=Tally(
            calls_this_month=zero,
            tool_calls=(zero,) * len(TOOLS),
            actions=zero,
            requests=zero,
            requests_settled=zero,
            approvals=zero,
            requested_equity=none,
            requested_debt=none,
            received_equity=none,
            received_debt=none,
            first_request_month=jnp.int32(-1),
            cash_peak=params.initial_cash,
            cash_peak_month=zero,
            cash_trough=params.initial_cash,
            cash_trough_month=zero,
        ),
    )


def opening_value(params: Params, scenario: Scenario) -> jax.Array:
    """V of the company at the start, $ []: what the listed price is indexed to."""
    start = opening_state(params, market_at(params, scenario, jnp.int32(0)))
    return company_value(params, revenue_ttm(start.revenue), start.cash, start.debt_principal)


@dataclass(frozen=True)
class _Acted:
    """After the action, before operations."""

    state: State
    pending: tuple[Request, ...]


def _act(params: Params, market: Market, state: State, action: Action, draws: Draws) -> _Acted:
    """Step 2 of the month: close the books and enter the request; counts both."""
    asked = ask(params, state, market.stress, action, draws.request)
    tally, amount = state.tally, jnp.where(asked.accepted, action.amount, 0.0)
    is_equity = action.instrument == EQUITY
    accepted = asked.accepted.astype(jnp.int32)
    is_first = asked.accepted & (tally.first_request_month < 0)
    tally = dataclasses.replace(
        tally,
        calls_this_month=jnp.zeros_like(tally.calls_this_month),
        actions=tally.actions
        + action.close_books.astype(jnp.int32)
        + (action.instrument != NO_REQUEST).astype(jnp.int32),
        requests=tally.requests + accepted,
        requested_equity=tally.requested_equity + jnp.where(is_equity, amount, 0.0),
        requested_debt=tally.requested_debt + jnp.where(is_equity, 0.0, amount),
        first_request_month=jnp.where(is_first, state.month, tally.first_request_month),
    )
    closed_through = jnp.where(action.close_books, state.month - 1, state.books_closed_through)
    acted = dataclasses.replace(state, tally=tally, books_closed_through=closed_through, turned_away=asked.turned_away)
    return _Acted(acted, asked.pending)


def advance(
    params: Params, horizon: int, listing_value: jax.Array, market: Market, state: State, action: Action, draws: Draws
) -> State:
    """One month, from its action to the opening of the next; `state.month` is left for the caller to move on.

    Of an episode that has already ended everything that its record reads stays as it is; the other leaves may
    drift, and `Arena.step` restores them. This keeps a select over every leaf out of batch play.
    """
    running = state.status == RUNNING
    action = dataclasses.replace(
        action,
        close_books=action.close_books & running,
        instrument=jnp.where(running, action.instrument, NO_REQUEST),
    )
    acted = _act(params, market, state, action, draws)
    indicators = perturbed(params, market.base, draws.month.indicators)
    ops = operate(params, state.users, state.loans_gross, indicators)
    booked, flows = book_month(params, market.loss_rate, acted.state, ops)
    error = flash_error(params, booked)
    collections = ops.repayments + ops.recoveries + flows.interest_collected
    flash = Flash(
        *[
            figure * (1.0 + error * normal)
            for figure, normal in zip((ops.users, ops.originations, collections), draws.month.flash, strict=True)
        ]
    )

    # settlement: proceeds count before the check
    settled = settle(acted.pending, market.next_debt_rate)
    slot = state.month % WINDOW
    earned = jnp.where(running, ops.interest_income, jax.lax.dynamic_index_in_dim(state.revenue, slot, 0, False))
    revenue = jax.lax.dynamic_update_index_in_dim(state.revenue, earned, slot, 0)
    value = company_value(params, revenue_ttm(revenue), booked.cash, booked.debt_principal)
    shares_issued = settled.equity / issue_price(params, value, state.shares, listing_value)
    cash = jnp.where(running, booked.cash + (settled.equity + settled.debt), state.cash)
    debt = jnp.where(running, booked.debt_principal + settled.debt, state.debt_principal)

    # check
    is_bankrupt = cash < 0.0
    is_last = state.month + 1 >= horizon
    ended = jnp.where(is_bankrupt, BANKRUPT, jnp.where(is_last, COMPLETED, RUNNING)).astype(jnp.int32)
    status = jnp.where(running, ended, state.status)
    lost = status != RUNNING  # what is still open when an episode ends is lost
    pending = tuple(
        Request(*[jnp.where(lost, jnp.zeros_like(value), value) for value in place]) for place in settled.pending
    )

    tally = acted.state.tally
    received_equity = tally.received_equity + settled.equity
    received_debt = tally.received_debt + settled.debt
    is_peak = (received_equity + received_debt <= 0.0) & (cash > tally.cash_peak)
    is_trough = cash < tally.cash_trough
    tally = dataclasses.replace(
        tally,
        requests_settled=tally.requests_settled + settled.settlements,
        approvals=tally.approvals + settled.equity_approvals + settled.debt_approvals,
        received_equity=received_equity,
        received_debt=received_debt,
        cash_peak=jnp.where(is_peak, cash, tally.cash_peak),
        cash_peak_month=jnp.where(is_peak, state.month + 1, tally.cash_peak_month),
        cash_trough=jnp.where(is_trough, cash, tally.cash_trough),
        cash_trough_month=jnp.where(is_trough, state.month + 1, tally.cash_trough_month),
    )
    return dataclasses.replace(
        booked,
        status=status,
        cash=cash,
        debt_principal=debt,
        debt_coupon=booked.debt_coupon + coupon(settled.debt, market.next_debt_rate),
        paid_in_capital=booked.paid_in_capital + settled.equity,
        shares=state.shares + shares_issued,
        revenue=revenue,
        equity_rounds=booked.equity_rounds + settled.equity_approvals,
        pending=pending,
        notices=settled.notices,
        flash=flash,
        flows=dataclasses.replace(
            flows, equity_issued=settled.equity, debt_issued=settled.debt, shares_issued=shares_issued
        ),
        tally=tally,
    )


def _check_leaf(name: str, value: Any, kind: Any, dtype: Any, shape: tuple[int, ...]) -> jax.Array:
    """A leaf of an Action or ToolCall, or an error; Python numbers are accepted and typed."""
    kinds = {jnp.bool_: "bool", jnp.integer: "integer", jnp.floating: "float"}
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError):
        raise ArenaError(f"{name} must be a {kinds[kind]} scalar, got {type(value).__name__}") from None
    is_number = kind is jnp.floating and isinstance(value, int) and not isinstance(value, bool)
    if array.shape != shape or not (jnp.issubdtype(array.dtype, kind) or is_number):
        raise ArenaError(f"{name} must be {kinds[kind]}{list(shape)}, got {array.dtype}{list(array.shape)}")
    return array.astype(dtype)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)  # compared by identity, so that `jax.jit(env.step)` can hash it
class Arena:
    """EnterpriseArena-v1: a FinTech lender's CFO for 132 months under partial observability.

    Pure, jit- and vmap-able. Numbers are pytree leaves, so that `vmap` over environments is a parameter sweep.

        >>> import jax, arena_jax
        >>> env = arena_jax.make("EnterpriseArena-v1")
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> action = arena_jax.request_funding("equity", 20e6)
        >>> state, timestep = env.step(state, action, jax.random.key(0))
        >>> int(timestep.observation.month), bool(timestep.terminated)
        (1, False)

    State: `arena_jax.structs.State`, hidden from the agent. Observation: `arena_jax.structs.Observation`.
    Action: `arena_jax.structs.Action` (close_books, instrument, amount); see `action_spec` for bounds and units.
    Reward: the score (paper section 3.6) in the step that ends the episode, else 0. Terminated at bankruptcy
    and after the last month; never truncated. Stepping an ended episode changes nothing and gives reward 0.
    """

    params: Params
    scenario: Scenario

    def reset(self, key: jax.Array) -> tuple[State, Timestep]:
        """The first month of an episode. `key`: the episode's threefry key (the start itself is not random)."""
        key_words(key)
        state = opening_state(self.params, market_at(self.params, self.scenario, jnp.int32(0)))
        return state, self._timestep(state, jnp.zeros_like(state.cash))

    def use_tool(self, state: State, call: ToolCall, key: jax.Array) -> tuple[State, Timestep]:
        """Call a tool; the month stays open. Over budget the call is turned away and costs nothing."""
        key_words(key)
        tool = _check_leaf("ToolCall.tool", call.tool, jnp.integer, jnp.int32, state.status.shape)
        calls = tuple((tool == index).astype(jnp.int32) for index in range(len(TOOLS)))
        state = call_tools(self.params, state, calls)
        return state, self._timestep(state, jnp.zeros_like(state.cash))

    def step(self, state: State, action: Action, key: jax.Array) -> tuple[State, Timestep]:
        """Act and end the month. A fresh key each step or one key throughout are both correct: the counter moves."""
        words, shape = key_words(key), state.status.shape
        action = Action(
            _check_leaf("Action.close_books", action.close_books, jnp.bool_, jnp.bool_, shape),
            _check_leaf("Action.instrument", action.instrument, jnp.integer, jnp.int32, shape),
            _check_leaf("Action.amount", action.amount, jnp.floating, state.cash.dtype, shape),
        )
        draws = Draws(month_draws(words, state.month), request_draws(words, state.tally.requests))
        market = market_at(self.params, self.scenario, state.month)
        value = opening_value(self.params, self.scenario)
        after = advance(self.params, self.scenario.horizon, value, market, state, action, draws)
        month = jnp.where(after.status == BANKRUPT, state.month, state.month + 1)
        after = dataclasses.replace(after, month=month)
        running = state.status == RUNNING
        after = jax.tree.map(lambda new, old: jnp.where(running, new, old), after, state)
        just_ended = running & (after.status != RUNNING)
        reward = jnp.where(just_ended, score(self.params, after), 0.0)
        return after, self._timestep(after, reward)

    def _timestep(self, state: State, reward: jax.Array) -> Timestep:
        terminated = state.status != RUNNING
        return Timestep(observe(self.params, state), reward, terminated, jnp.zeros_like(terminated))


def make(name: str = ENVIRONMENTS[0], *, scenario: str | Path | Scenario | None = None, **overrides: Any) -> Arena:
    """An environment by name, with parameters overridden by name; raises `ArenaError` on any bad value.

    scenario: a trajectory CSV, a `Scenario`, or None for the default trajectory.
    """
    if name not in ENVIRONMENTS:
        raise unknown("environment", name, ENVIRONMENTS)
    params = make_params(**overrides)
    if scenario is None:
        return Arena(params, default_scenario())
    return Arena(params, scenario if isinstance(scenario, Scenario) else load_scenario(scenario))


def sweep(env: Arena, **values: Any) -> tuple[Arena, Arena]:
    """A batch of environments for `jax.vmap`, and its `in_axes`; the trajectory is shared, not copied.

    values: per parameter an array of n numbers, all of one length.

        >>> import jax, arena_jax
        >>> envs, axes = arena_jax.sweep(arena_jax.make(), tool_cost=[0.0, 5e3, 8e4])
        >>> start = lambda env: env.reset(jax.random.key(0))[0].cash
        >>> jax.vmap(start, in_axes=(axes,))(envs).shape
        (3,)
    """
    if not values:
        raise ArenaError(f"sweep needs at least one parameter; known: {', '.join(FIELDS)}")
    arrays = {name: checked_values(name, value) for name, value in values.items()}
    if any(array.ndim != 1 or array.size == 0 for array in arrays.values()):
        raise ArenaError("sweep values must be one-dimensional and not empty")
    if len({array.size for array in arrays.values()}) > 1:
        raise ArenaError(f"sweep values differ in length: { ({n: a.size for n, a in arrays.items()}) }")
    params = with_leaves(env.params, arrays)
    axes = jax.tree.map(lambda _: None, env)
    axes = dataclasses.replace(axes, params=dataclasses.replace(axes.params, **dict.fromkeys(arrays, 0)))
    return dataclasses.replace(env, params=params), axes
