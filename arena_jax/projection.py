"""conduct_cashflow_projection: the agent's own assumptions run through the model's books (design section 2.4).

It starts with the month after the last closed balances and uses nothing hidden: the closed balances, the debt service
and proceeds known from notices, and what the agent assumes. Stale books or bad assumptions give a bad forecast.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from arena_jax.draws import Indicators
from arena_jax.ledger import book_month
from arena_jax.operations import in_range, operate
from arena_jax.params import Params
from arena_jax.structs import COUNTED_ASSUMPTIONS, MAX_PROJECTION, Assumptions, Books, State


def assumed_indicators(params: Params, assumptions: Assumptions) -> Indicators:
    """The month that the agent assumes; loan size and lags are those of the contracts."""
    return in_range(
        Indicators(
            user_growth=assumptions.user_growth,
            loan_size=params.loan_size,
            lending_rate=assumptions.lending_rate,
            repayment_rate=assumptions.repayment_rate,
            charge_off_rate=assumptions.charge_off_rate,
            servicing_cost=assumptions.servicing_cost,
            fixed_cost=assumptions.fixed_cost,
            acquisition_cost=assumptions.acquisition_cost,
            interest_lag=params.interest_lag,
            cost_lag=params.cost_lag,
        )
    )


def is_valid(assumptions: Assumptions) -> jax.Array:
    """bool[...]: every figure finite and not negative, and 1 <= horizon <= MAX_PROJECTION."""
    horizon = assumptions.horizon
    valid = (horizon >= 1) & (horizon <= MAX_PROJECTION)
    for field in dataclasses.fields(assumptions):
        if field.name not in COUNTED_ASSUMPTIONS:
            figure = getattr(assumptions, field.name)
            valid = valid & jnp.isfinite(figure) & (figure >= 0.0)
    return valid


def project(params: Params, state: State, assumptions: Assumptions) -> jax.Array:
    """Cash $ as each of the next MAX_PROJECTION months opens: float[MAX_PROJECTION, ...]."""
    indicators = assumed_indicators(params, assumptions)

    def one_month(books: Books, month: jax.Array) -> Books:
        ops = operate(params, books.users, books.loans_gross, indicators)
        return book_month(params, indicators.charge_off_rate, month, books, ops)

    # from the closed balances to today without debt, whose service and proceeds up to today are known exactly
    none = jnp.zeros_like(state.closed.cash)
    closed = state.closed._replace(debt_principal=none, debt_coupon=none)
    gap = jnp.broadcast_to(state.month - 1 - state.books_closed_through, none.shape)

    def catch_up(carry: tuple[jax.Array, Books]) -> tuple[jax.Array, Books]:
        done, books = carry
        after = one_month(books, state.books_closed_through + 1 + done)
        return done + 1, jax.tree.map(lambda new, old: jnp.where(done < gap, new, old), after, books)

    start = (jnp.int32(0), closed)
    _, today = jax.lax.while_loop(lambda carry: jnp.any(carry[0] < gap), catch_up, start)
    today = today._replace(
        cash=today.cash + state.financing_since_closing,
        debt_principal=state.books.debt_principal,
        debt_coupon=state.books.debt_coupon,
    )

    def ahead(books: Books, months_ahead: jax.Array) -> tuple[Books, jax.Array]:
        books = one_month(books, state.month + months_ahead - 1)
        arrives = assumptions.funding_month == months_ahead
        books = books._replace(cash=books.cash + jnp.where(arrives, assumptions.funding, 0.0))
        return books, books.cash

    return jax.lax.scan(ahead, today, jnp.arange(1, MAX_PROJECTION + 1, dtype=jnp.int32))[1]
