"""The score and the record of an episode (design sections 2.5 and 2.6). Elementwise over any batch shape [...]."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from arena_jax.funding import company_value
from arena_jax.ledger import revenue_ttm
from arena_jax.month import opening_value
from arena_jax.params import Params
from arena_jax.scenario import Scenario
from arena_jax.structs import BANKRUPT, COMPLETED, TOOLS, Record, State


def score(params: Params, state: State) -> jax.Array:
    """m * revenue of 12 months + cash - lambda * tool calls, float[...] $; 0 if bankrupt (paper section 3.6).

    Two properties to know: raised equity counts as value one for one, and open debt is not subtracted.
    """
    value = params.revenue_multiple * revenue_ttm(state.revenue) + state.books.cash - _paid_for_tools(params, state)
    return jnp.where(state.status == BANKRUPT, 0.0, value)


def value_kept(params: Params, opening_value: jax.Array, state: State) -> jax.Array:
    """What a holder of all initial shares gained, float[...] $: the objective of the disciplined variant.

    ((m * revenue of 12 months + cash - debt - lambda * tool calls) / shares) * initial shares - opening value (V of
    design section 2.3, float[] $); if bankrupt, the opening value is lost.
    """
    revenue, books = revenue_ttm(state.revenue), state.books
    value = params.revenue_multiple * revenue + books.cash - books.debt_principal - _paid_for_tools(params, state)
    value = jnp.where(state.status == BANKRUPT, 0.0, value / books.shares * params.initial_shares)
    return value - opening_value


def objective(params: Params, opening_value: jax.Array, state: State) -> jax.Array:
    """What the environment pays at the end, float[...] $: the paper's score, or value kept in the variant."""
    return value_kept(params, opening_value, state) if params.disciplined else score(params, state)


def _paid_for_tools(params: Params, state: State) -> jax.Array:
    return params.tool_cost * sum(state.tally.tool_calls).astype(state.books.cash.dtype)


def make_record(params: Params, scenario: Scenario, state: State) -> Record:
    """The record of the episode so far; of an ended episode, its outcome."""
    crisis_months = scenario.crisis_months
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
        value_kept=value_kept(params, opening_value(params, scenario), state),
    )
