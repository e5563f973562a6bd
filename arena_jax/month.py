"""One month of an episode: act, operate, keep the books, settle, check (design section 2.2). Glue over the rules.

Elementwise over any batch shape [...]; the month may be common to the batch (int32 []).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from arena_jax.draws import Draws, Flash
from arena_jax.funding import ask, company_value, coupon, empty_notice, empty_request, issue_price, settle
from arena_jax.ledger import book_month, revenue_ttm, total_assets
from arena_jax.operations import Market, in_range, market_at, operate, perturbed
from arena_jax.params import Params
from arena_jax.scenario import Scenario
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
    Books,
    Flows,
    Request,
    State,
    Tally,
)
from arena_jax.tools import empty_notebook


def opening_state(params: Params, market: Market) -> State:
    """The company as month 0 opens (design section 2.1); `market` is that of month 0. Leaves are scalars []."""
    base = operate(params, params.initial_users, params.initial_loans, in_range(market.base))
    none, zero = jnp.zeros_like(params.initial_cash), jnp.int32(0)
    # the public statements of t = 0: a month at base values that leaves the balances as they are
    provision = base.charge_offs - base.recoveries
    flows = Flows(
        originations=base.originations,
        repayments=base.repayments,
        charge_offs=base.charge_offs,
        recoveries=base.recoveries,
        new_users=base.new_users,
        interest_income=base.interest_income,
        provision=provision,
        operating_cost=base.operating_cost,
        interest_expense=none,
        tax_expense=none,
        net_income=base.interest_income - provision - base.operating_cost,
        interest_collected=base.interest_income,
        costs_paid=base.operating_cost,
        amortisation=none,
        tax_paid=none,
        equity_issued=none,
        debt_issued=none,
        shares_issued=none,
    )
    books = Books(
        users=params.initial_users,
        cash=params.initial_cash,
        loans_gross=params.initial_loans,
        allowance=params.allowance_months * market.loss_rate * params.initial_loans,
        interest_receivable=params.interest_lag * base.interest_income,
        accounts_payable=params.cost_lag * base.operating_cost,
        tax_payable=none,
        debt_principal=none,
        debt_coupon=none,
        paid_in_capital=params.initial_paid_in_capital,
        retained_earnings=none,
        tax_loss_carryforward=none,
        shares=params.initial_shares,
        flows=flows,
    )
    # retained earnings close the balance sheet
    books = books._replace(retained_earnings=total_assets(books) - books.accounts_payable - books.paid_in_capital)
    return State(
        month=zero,
        status=jnp.int32(RUNNING),
        books=books,
        revenue=jnp.broadcast_to(base.interest_income, (WINDOW,)),
        equity_rounds=zero,
        pending=(empty_request(none),) * params.max_pending,
        notices=(empty_notice(none),) * params.max_pending,
        turned_away=jnp.int32(NOT_TURNED_AWAY),
        books_closed_through=jnp.int32(-1),
        closed=books,
        financing_since_closing=none,
        interest_since_closing=none,
        flash=Flash(none, none, none),
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
    return company_value(params, revenue_ttm(start.revenue), start.books.cash, start.books.debt_principal)


def close_books(state: State, wanted: jax.Array) -> State:
    """Where `wanted` (bool[...]), reconcile through the end of the month before: the opening balances become public."""
    keep = lambda new, old: jnp.where(wanted, new, old)
    return dataclasses.replace(
        state,
        books_closed_through=keep(state.month - 1, state.books_closed_through),
        closed=jax.tree.map(keep, state.books, state.closed),
        financing_since_closing=keep(0.0, state.financing_since_closing),
        interest_since_closing=keep(0.0, state.interest_since_closing),
    )


def _act(params: Params, market: Market, state: State, action: Action, draws: Draws) -> State:
    """Step 2: the closing, then the request; counts both."""
    asked = ask(params, state, market.stress, action, draws.request)
    tally, amount = state.tally, jnp.where(asked.accepted, action.amount, 0.0)
    is_equity = action.instrument == EQUITY
    is_first = asked.accepted & (tally.first_request_month < 0)
    closes, requests = action.close_books.astype(jnp.int32), (action.instrument != NO_REQUEST).astype(jnp.int32)
    taken = jnp.maximum(closes, requests) if params.exclusive else closes + requests
    tally = dataclasses.replace(
        tally,
        calls_this_month=jnp.zeros_like(tally.calls_this_month),
        actions=tally.actions + taken,
        requests=tally.requests + asked.accepted.astype(jnp.int32),
        requested_equity=tally.requested_equity + jnp.where(is_equity, amount, 0.0),
        requested_debt=tally.requested_debt + jnp.where(is_equity, 0.0, amount),
        first_request_month=jnp.where(is_first, state.month, tally.first_request_month),
    )
    acted = dataclasses.replace(state, tally=tally, pending=asked.pending, turned_away=asked.turned_away)
    return close_books(acted, action.close_books)


def _flash_figures(params: Params, state: State, books: Books, normals: Flash) -> Flash:
    """This month's flash figures with their errors (design section 2.4)."""
    months_open = (state.month - state.books_closed_through).astype(books.cash.dtype)
    error = params.noise * params.flash_error * jnp.sqrt(months_open)
    flows = books.flows
    collections = flows.repayments + flows.recoveries + flows.interest_collected
    exact = (books.users, flows.originations, collections)
    return Flash(*[figure * (1.0 + error * normal) for figure, normal in zip(exact, normals, strict=True)])


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
    ops = operate(params, state.books.users, state.books.loans_gross, indicators)
    books = book_month(params, market.loss_rate, state.month, state.books, ops)

    # settlement: proceeds count before the check
    settled = settle(acted.pending, market.next_debt_rate)
    slot = state.month % WINDOW
    earned = jnp.where(running, ops.interest_income, jax.lax.dynamic_index_in_dim(state.revenue, slot, 0, False))
    revenue = jax.lax.dynamic_update_index_in_dim(state.revenue, earned, slot, 0)
    value = company_value(params, revenue_ttm(revenue), books.cash, books.debt_principal)
    shares_issued = settled.equity / issue_price(params, value, books.shares, listing_value)
    flows = dataclasses.replace(
        books.flows, equity_issued=settled.equity, debt_issued=settled.debt, shares_issued=shares_issued
    )
    proceeds = settled.equity + settled.debt
    books = books._replace(
        cash=jnp.where(running, books.cash + proceeds, state.books.cash),
        debt_principal=jnp.where(running, books.debt_principal + settled.debt, state.books.debt_principal),
        debt_coupon=books.debt_coupon + coupon(settled.debt, market.next_debt_rate),
        paid_in_capital=books.paid_in_capital + settled.equity,
        shares=books.shares + shares_issued,
        flows=flows,
    )

    # check
    is_last = state.month + 1 >= horizon
    ended = jnp.where(books.cash < 0.0, BANKRUPT, jnp.where(is_last, COMPLETED, RUNNING)).astype(jnp.int32)
    status = jnp.where(running, ended, state.status)
    lost = status != RUNNING  # what is still open when an episode ends is lost
    pending = tuple(
        Request(*[jnp.where(lost, jnp.zeros_like(value), value) for value in place]) for place in settled.pending
    )

    tally = acted.tally
    received_equity = tally.received_equity + settled.equity
    received_debt = tally.received_debt + settled.debt
    is_peak = (received_equity + received_debt <= 0.0) & (books.cash > tally.cash_peak)
    is_trough = books.cash < tally.cash_trough
    tally = dataclasses.replace(
        tally,
        requests_settled=tally.requests_settled + settled.settlements,
        approvals=tally.approvals + settled.equity_approvals + settled.debt_approvals,
        received_equity=received_equity,
        received_debt=received_debt,
        cash_peak=jnp.where(is_peak, books.cash, tally.cash_peak),
        cash_peak_month=jnp.where(is_peak, state.month + 1, tally.cash_peak_month),
        cash_trough=jnp.where(is_trough, books.cash, tally.cash_trough),
        cash_trough_month=jnp.where(is_trough, state.month + 1, tally.cash_trough_month),
    )
    return dataclasses.replace(
        acted,
        status=status,
        books=books,
        revenue=revenue,
        equity_rounds=acted.equity_rounds + settled.equity_approvals,
        pending=pending,
        notices=settled.notices,
        financing_since_closing=acted.financing_since_closing + (proceeds - flows.amortisation),
        interest_since_closing=acted.interest_since_closing + flows.interest_expense,
        flash=_flash_figures(params, acted, books, draws.month.flash),
        tally=tally,
    )
