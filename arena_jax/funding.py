"""Raising money: approval, the pipeline of open requests, settlement (design sections 2.2 step 5 and 2.3).

Elementwise over any batch shape [...]; `pending` and `notices` are tuples of `max_pending` records, unrolled.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from arena_jax.draws import RequestDraws
from arena_jax.ledger import revenue_ttm, total_assets
from arena_jax.operations import PERCENT
from arena_jax.params import Params
from arena_jax.structs import (
    BAD_REQUEST,
    DEBT,
    EQUITY,
    MONTH_TAKEN,
    NO_REQUEST,
    NOT_TURNED_AWAY,
    PIPELINE_FULL,
    Action,
    Notice,
    Request,
    State,
)


def empty_request(like: jax.Array) -> Request:
    """A free place in the pipeline; `like` float[...] gives the shape."""
    money, count = jnp.zeros_like(like), jnp.zeros_like(like, dtype=jnp.int32)
    return Request(count, money, money, count, count)


def empty_notice(like: jax.Array) -> Notice:
    """No notice; `like` float[...] gives the shape."""
    money, count = jnp.zeros_like(like), jnp.zeros_like(like, dtype=jnp.int32)
    return Notice(count, money, money, money, count)


def approval_probability(
    params: Params, state: State, stress: jax.Array, instrument: jax.Array, amount: jax.Array
) -> jax.Array:
    """p_adj = p_macro * m_company of a request made now, float[...] in [0, 1].

    In the disciplined variant m_company falls with the amount (float[...] $) against the company's value.
    """
    equity_macro = jax.nn.sigmoid(params.equity_logit - params.equity_stress * stress)
    debt_macro = jax.nn.sigmoid(params.debt_logit - params.debt_stress * stress)
    equity_company = params.equity_round_factor ** state.equity_rounds.astype(state.books.cash.dtype)
    leverage = state.books.debt_principal / jnp.maximum(total_assets(state.books), 1.0)
    debt_company = jnp.clip(1.0 - leverage / params.leverage_limit, 0.0, 1.0)
    approval = jnp.where(instrument == EQUITY, equity_macro * equity_company, debt_macro * debt_company)
    if params.disciplined:
        value = company_value(params, revenue_ttm(state.revenue), state.books.cash, state.books.debt_principal)
        approval = approval * jnp.exp(-params.size_aversion * amount / jnp.maximum(value, 1.0))
    return approval


class Asked(NamedTuple):
    """The pipeline after this month's action."""

    pending: tuple[Request, ...]
    accepted: jax.Array  # bool[...]: a request was entered
    turned_away: jax.Array  # int32[...]: why it was not


def ask(params: Params, state: State, stress: jax.Array, action: Action, draws: RequestDraws) -> Asked:
    """Enter the action's request, if it has one; outcome, fraction and delay are drawn now and stay hidden."""
    free = [place.instrument == NO_REQUEST for place in state.pending]
    any_free = free[0]
    for place_free in free[1:]:
        any_free = any_free | place_free
    good_amount = jnp.isfinite(action.amount) & (action.amount > 0.0) & (action.amount <= params.max_request)
    good_instrument = (action.instrument == EQUITY) | (action.instrument == DEBT)
    turned_away = jnp.where(any_free, NOT_TURNED_AWAY, PIPELINE_FULL)
    turned_away = jnp.where(good_amount & good_instrument, turned_away, BAD_REQUEST)
    if params.exclusive:
        turned_away = jnp.where(action.close_books, MONTH_TAKEN, turned_away)
    is_request = action.instrument != NO_REQUEST
    turned_away = jnp.where(is_request, turned_away, NOT_TURNED_AWAY).astype(jnp.int32)
    accepted = is_request & (turned_away == NOT_TURNED_AWAY)

    approved = draws.outcome < approval_probability(params, state, stress, action.instrument, action.amount)
    fraction = params.fraction_min + (params.fraction_max - params.fraction_min) * draws.fraction
    span = (params.delay_max - params.delay_min + 1).astype(fraction.dtype)
    delay = params.delay_min + jnp.floor(span * draws.delay).astype(jnp.int32)
    request = Request(
        instrument=action.instrument,
        requested=action.amount,
        granted=jnp.where(approved, fraction * action.amount, 0.0),
        month_asked=jnp.broadcast_to(state.month, accepted.shape),
        months_left=jnp.minimum(delay, params.delay_max),  # float32 may round span * u up to span
    )
    pending = []
    waiting = accepted
    for place, place_free in zip(state.pending, free, strict=True):
        enter = waiting & place_free
        pending.append(Request(*[jnp.where(enter, new, old) for new, old in zip(request, place, strict=True)]))
        waiting = waiting & ~place_free
    return Asked(tuple(pending), accepted, turned_away)


class Settled(NamedTuple):
    """What settles as the next month opens; leaves [...]."""

    pending: tuple[Request, ...]
    notices: tuple[Notice, ...]
    settlements: jax.Array  # int32, refusals included
    equity_approvals: jax.Array  # int32
    debt_approvals: jax.Array  # int32
    equity: jax.Array  # $ received
    debt: jax.Array  # $ received


def settle(pending: tuple[Request, ...], debt_rate: jax.Array) -> Settled:
    """Count every open request down by a month and settle those that are due at `debt_rate` (% a year)."""
    money, count = jnp.zeros_like(pending[0].requested), jnp.zeros_like(pending[0].instrument)
    settled = Settled((), (), count, count, count, money, money)
    for place in pending:
        months_left = place.months_left - 1
        due = (place.instrument != NO_REQUEST) & (months_left <= 0)
        received = jnp.where(due, place.granted, 0.0)
        arrived = received > 0.0
        is_equity, is_debt = place.instrument == EQUITY, place.instrument == DEBT
        kept = Request(
            instrument=jnp.where(due, NO_REQUEST, place.instrument),
            requested=jnp.where(due, 0.0, place.requested),
            granted=jnp.where(due, 0.0, place.granted),
            month_asked=jnp.where(due, 0, place.month_asked),
            months_left=jnp.where(due, 0, jnp.maximum(months_left, 0)),
        )
        notice = Notice(
            instrument=jnp.where(due, place.instrument, NO_REQUEST),
            requested=jnp.where(due, place.requested, 0.0),
            received=received,
            rate=jnp.where(arrived & is_debt, debt_rate, 0.0),
            month_asked=jnp.where(due, place.month_asked, 0),
        )
        settled = Settled(
            pending=(*settled.pending, kept),
            notices=(*settled.notices, notice),
            settlements=settled.settlements + due.astype(jnp.int32),
            equity_approvals=settled.equity_approvals + (arrived & is_equity).astype(jnp.int32),
            debt_approvals=settled.debt_approvals + (arrived & is_debt).astype(jnp.int32),
            equity=settled.equity + jnp.where(is_equity, received, 0.0),
            debt=settled.debt + jnp.where(is_debt, received, 0.0),
        )
    return settled


def company_value(params: Params, revenue_ttm: jax.Array, cash: jax.Array, debt: jax.Array) -> jax.Array:
    """V = listing multiple * revenue of 12 months + cash - debt, float[...] $; may be negative."""
    return params.listing_multiple * revenue_ttm + cash - debt


def issue_price(params: Params, value: jax.Array, shares: jax.Array, opening_value: jax.Array) -> jax.Array:
    """Listed price $ a share: the opening price indexed to V per share since the start, at least the floor.

    In the disciplined variant shares are issued at V per share itself.
    """
    if params.disciplined:
        return jnp.maximum(value / shares, params.price_floor)
    opening_per_share = jnp.maximum(opening_value, 1.0) / params.initial_shares
    listed = params.initial_price * (value / shares) / opening_per_share
    return jnp.maximum(listed, params.price_floor)


def coupon(principal: jax.Array, rate: jax.Array) -> jax.Array:
    """Yearly interest $ on `principal` at `rate` % a year."""
    return principal * rate / PERCENT
