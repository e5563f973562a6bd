"""conduct_cashflow_projection: the agent's own assumptions run through the model's books (design section 2.4).

It starts with the month after the last closed balances and uses nothing hidden: the closed balances, the debt service
and proceeds known from notices, and what the agent assumes. Stale books or bad assumptions give a bad forecast.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from arena_jax.draws import Indicators
from arena_jax.ledger import book_month
from arena_jax.operations import MONTHS_A_YEAR, PERCENT, in_range, operate
from arena_jax.params import MAX_REQUEST, Params
from arena_jax.structs import MAX_PROJECTION, Assumptions, Books, Reading, State


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


# allowed range of each assumption: wide for any forecast, and narrow enough that no projection overflows
RANGES = {
    "user_growth": (0.0, 20.0),
    "lending_rate": (0.0, 100.0),
    "repayment_rate": (0.0, 1.0),
    "charge_off_rate": (0.0, 1.0),
    "servicing_cost": (0.0, 1_000.0),
    "fixed_cost": (0.0, 1e8),
    "acquisition_cost": (0.0, 1e4),
    "funding": (0.0, MAX_REQUEST),
    "funding_month": (0, MAX_PROJECTION),
    "horizon": (1, MAX_PROJECTION),
}


def is_valid(assumptions: Assumptions) -> jax.Array:
    """bool[...]: every assumption in its range (`RANGES`), and funding has a month in which it arrives."""
    valid = (assumptions.funding == 0.0) | (assumptions.funding_month >= 1)
    for name, (low, high) in RANGES.items():
        value = getattr(assumptions, name)
        valid = valid & (value >= low) & (value <= high)
    return valid


def assumptions_from(readings: Mapping[str, Reading], horizon: int) -> Assumptions:
    """A projection's assumptions from the last closed statements and the industry's growth, as far as they are known.

    Rates are ratios of the closed month's lines to its loans; the whole operating cost is taken as fixed. Each is kept
    in its range, so that such a call is never refused.
    """
    loans = jnp.maximum(readings["closed_loans_gross"].value, 1.0)
    none = jnp.zeros_like(loans)
    figures = {
        "user_growth": readings["industry_user_growth"].value,
        "lending_rate": PERCENT * MONTHS_A_YEAR * readings["closed_interest_income"].value / loans,
        "repayment_rate": readings["closed_repayments"].value / loans,
        "charge_off_rate": readings["closed_charge_offs"].value / loans,
        "fixed_cost": readings["closed_operating_cost"].value,
    }
    return Assumptions(
        **{name: jnp.clip(value, *RANGES[name]) for name, value in figures.items()},
        servicing_cost=none,
        acquisition_cost=none,
        funding=none,
        funding_month=jnp.int32(0),
        horizon=jnp.int32(horizon),
    )


def project(params: Params, state: State, assumptions: Assumptions, months: int = MAX_PROJECTION) -> jax.Array:
    """Cash $ as each of the next `months` months opens: float[months, ...]."""
    indicators = assumed_indicators(params, assumptions)

    def one_month(books: Books, month: jax.Array) -> Books:
        ops = operate(params, books.users, books.loans_gross, indicators)
        return book_month(params, indicators.charge_off_rate, month, books, ops)

    # from the closed balances to today the proceeds, amortisation and interest are known in sum: the interest is
    # spread evenly, since it lowers each month's tax, and the rest is added at the end
    none = jnp.zeros_like(state.closed.cash)
    closed = state.closed._replace(debt_principal=none)
    gap = jnp.broadcast_to(state.month - 1 - state.books_closed_through, none.shape)
    coupon = MONTHS_A_YEAR * state.interest_since_closing / jnp.maximum(gap, 1).astype(none.dtype)

    def catch_up(carry: tuple[jax.Array, Books]) -> tuple[jax.Array, Books]:
        done, books = carry
        after = one_month(books._replace(debt_coupon=coupon), state.books_closed_through + 1 + done)
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

    return jax.lax.scan(ahead, today, jnp.arange(1, months + 1, dtype=jnp.int32))[1]
