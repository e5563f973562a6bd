"""The score and the record of an episode (design sections 2.5 and 2.6). Elementwise over any batch shape [...]."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from arena_jax.funding import company_value
from arena_jax.ledger import revenue_ttm
from arena_jax.params import Params
from arena_jax.structs import BANKRUPT, COMPLETED, TOOLS, Record, State


def score(params: Params, state: State) -> jax.Array:
    """m * revenue of 12 months + cash - lambda * tool calls, float[...] $; 0 if bankrupt (paper section 3.6).

    Two properties to know: raised equity counts as value one for one, and open debt is not subtracted.
    """
    calls = sum(state.tally.tool_calls).astype(state.books.cash.dtype)
    value = params.revenue_multiple * revenue_ttm(state.revenue) + state.books.cash - params.tool_cost * calls
    return jnp.where(state.status == BANKRUPT, 0.0, value)


def make_record(params: Params, crisis_months: jax.Array, state: State) -> Record:
    """The record of the episode so far; of an ended episode, its outcome."""
    tally, bankrupt = state.tally, state.status == BANKRUPT
    passed = [(state.month >= crisis_months[i]).astype(jnp.int32) for i in range(crisis_months.shape[0])]
    value = company_value(params, revenue_ttm(state.revenue), state.books.cash, state.books.debt_principal)
    return Record(
        survived=state.status == COMPLETED,
        months_survived=state.month,
        months_played=state.month + bankrupt.astype(jnp.int32),
        score=score(params, state),
        revenue_ttm=revenue_ttm(state.revenue),
        cash=state.books.cash,
        debt=state.books.debt_principal,
        **dict(zip(TOOLS, tally.tool_calls, strict=True)),
        actions=tally.actions,
        requests=tally.requests,
        requests_settled=tally.requests_settled,
        approvals=tally.approvals,
        requested_equity=tally.requested_equity,
        requested_debt=tally.requested_debt,
        received_equity=tally.received_equity,
        received_debt=tally.received_debt,
        crises_passed=sum(passed[1:], start=passed[0]),
        first_request_month=tally.first_request_month,
        cash_peak=tally.cash_peak,
        cash_peak_month=tally.cash_peak_month,
        cash_trough=tally.cash_trough,
        cash_trough_month=tally.cash_trough_month,
        shares=state.books.shares,
        ownership_kept=params.initial_shares / state.books.shares,
        value_per_share=jnp.where(bankrupt, 0.0, value / state.books.shares),
    )
