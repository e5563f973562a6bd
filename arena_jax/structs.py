"""The data that flows through the world. Money in US dollars, rates in percent a year unless said.

Every leaf is a scalar per episode; the functions of the core are elementwise, so that a batch is simply the same
structure with leaves of shape [...]. Only the revenue window has an axis of its own, and that axis comes first:
[12, ...] lets a batch write one month of it as one contiguous row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from arena_jax.draws import Flash
from arena_jax.errors import ArenaError, is_number, shown, unknown
from arena_jax.params import MAX_REQUEST

# status of an episode
RUNNING, BANKRUPT, COMPLETED = 0, 1, 2
# instrument of a funding request
NO_REQUEST, EQUITY, DEBT = 0, 1, 2
INSTRUMENTS = {"equity": EQUITY, "debt": DEBT}
INSTRUMENT_NAMES = {number: name for name, number in INSTRUMENTS.items()}
# why a request was turned away
NOT_TURNED_AWAY, PIPELINE_FULL, BAD_REQUEST, MONTH_TAKEN = 0, 1, 2, 3
# tools, in the order of design section 2.4
TOOLS = (
    "verify_cash_position",
    "review_financial_records",
    "analyze_market_conditions",
    "conduct_cashflow_projection",
)
WINDOW = 12  # months of trailing revenue
COUNTED_ASSUMPTIONS = ("funding_month", "horizon")  # int32; the other assumptions are floats
MAX_PROJECTION = 36  # months that a projection may reach


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Action:
    """What the agent does with the month: a closing, a request, or neither (pass).

    close_books bool[...]; instrument int32[...] (0 none, 1 equity, 2 debt); amount float[...] in $.
    With `exclusive=True` a closing takes the month and a request in the same action is turned away.
    """

    close_books: Any
    instrument: Any
    amount: Any


def _action(close: bool, instrument: int, amount: float) -> Action:
    return Action(jnp.bool_(close), jnp.int32(instrument), jnp.asarray(amount, dtype=jnp.result_type(float)))


def pass_month() -> Action:
    """Let the month pass."""
    return _action(False, NO_REQUEST, 0.0)


def close_books() -> Action:
    """Reconcile through the end of the month before."""
    return _action(True, NO_REQUEST, 0.0)


def request_funding(instrument: str, amount: float, *, close_books: bool = False) -> Action:
    """Ask for `amount` dollars of "equity" or "debt"; with `exclusive=False` the month may also close the books."""
    if instrument not in INSTRUMENTS:
        raise unknown("instrument", instrument, INSTRUMENTS)
    if not is_number(amount) or not math.isfinite(amount) or not 0 < amount <= MAX_REQUEST:
        raise ArenaError(f"amount must be a number in (0, {MAX_REQUEST:g}] ($), got {shown(amount)}")
    if not isinstance(close_books, bool):
        raise ArenaError(f"close_books must be true or false, got {shown(close_books)}")
    return _action(close_books, INSTRUMENTS[instrument], amount)


class Request(NamedTuple):
    """An open funding request; instrument 0 marks a free place. `granted` is 0 for a refusal still unknown."""

    instrument: jax.Array  # int32
    requested: jax.Array  # float, $
    granted: jax.Array  # float, $: what will arrive
    month_asked: jax.Array  # int32
    months_left: jax.Array  # int32, until settlement


class Notice(NamedTuple):
    """How a request ended that settled as this month opened; instrument 0 means no notice."""

    instrument: Any  # int32
    requested: Any  # float, $
    received: Any  # float, $; 0 is a refusal
    rate: Any  # float, % a year; 0 unless debt was received
    month_asked: Any  # int32


class Seen(NamedTuple):
    """A quantity in the agent's notebook: the value last shown and the month in which it was shown (-1: never)."""

    value: jax.Array  # float
    month: jax.Array  # int32


class Reading(NamedTuple):
    """A quantity as the agent sees it: the value last shown and its age in months (-1: never shown)."""

    value: Any  # float
    age: Any  # int32


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Flows:
    """What happened in one month; every leaf float[...] in $, but new_users and shares_issued."""

    originations: Any
    repayments: Any
    charge_offs: Any
    recoveries: Any
    new_users: Any
    interest_income: Any
    provision: Any
    operating_cost: Any
    interest_expense: Any
    tax_expense: Any
    net_income: Any
    interest_collected: Any
    costs_paid: Any
    amortisation: Any
    tax_paid: Any
    equity_issued: Any
    debt_issued: Any
    shares_issued: Any


class Books(NamedTuple):
    """The company as a month opens, and the flows of the month before it; leaves float[...], $ but users and shares."""

    users: jax.Array
    cash: jax.Array
    loans_gross: jax.Array
    allowance: jax.Array
    interest_receivable: jax.Array
    accounts_payable: jax.Array
    tax_payable: jax.Array
    debt_principal: jax.Array
    debt_coupon: jax.Array  # $ a year: the sum of principal times rate
    paid_in_capital: jax.Array
    retained_earnings: jax.Array
    tax_loss_carryforward: jax.Array
    shares: jax.Array
    flows: Flows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tally:
    """Counters of the record (design section 2.6); int32[...] but the amounts, float[...] in $."""

    calls_this_month: Any
    tool_calls: Any  # tuple of one count per tool
    actions: Any
    requests: Any
    requests_settled: Any
    approvals: Any
    requested_equity: Any
    requested_debt: Any
    received_equity: Any
    received_debt: Any
    first_request_month: Any  # -1: none
    cash_peak: Any  # highest opening cash before the first proceeds
    cash_peak_month: Any
    cash_trough: Any  # lowest opening cash, the fatal one included
    cash_trough_month: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """One episode as a month opens (design section 2.1). No key is kept: a copied state can't see the future."""

    month: Any  # int32, 0..T; months survived
    status: Any  # int32: RUNNING, BANKRUPT, COMPLETED
    books: Books  # hidden balances as the month opens
    revenue: Any  # float[12, ...]: the last twelve months, that of month t in row t mod 12
    equity_rounds: Any  # int32
    pending: Any  # tuple of max_pending Request
    notices: Any  # tuple of max_pending Notice
    turned_away: Any  # int32: why last month's request was turned away, 0 if it was not
    books_closed_through: Any  # int32 month
    closed: Books  # the books as they stood at the last closing, debt and proceeds apart known to the agent
    financing_since_closing: Any  # $: proceeds less amortisation, known from notices
    interest_since_closing: Any  # $ paid on debt, known from notices
    flash: Flash  # figures of the month just ended, with their errors
    notebook: Any  # dict quantity -> Seen
    tally: Tally


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Assumptions:
    """What the agent assumes for `conduct_cashflow_projection`; every leaf float[...] but the months, int32[...]."""

    user_growth: Any  # % a month
    lending_rate: Any  # % a year
    repayment_rate: Any  # share of loans a month
    charge_off_rate: Any  # share of loans a month
    servicing_cost: Any  # $ a borrower and month
    fixed_cost: Any  # $ a month
    acquisition_cost: Any  # $ a new borrower
    funding: Any  # $ of proceeds expected
    funding_month: Any  # int32 months from now until they arrive
    horizon: Any  # int32 months from now, 1..MAX_PROJECTION


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ToolCall:
    """One call of a tool; build with `call_tool`.

    tool int32[...]: index in `TOOLS`. argument int32[...]: for review_financial_records a document (`DOCUMENTS`), for
    analyze_market_conditions a set of indicators (bit i for column i of `INDICATORS`), else ignored.
    """

    tool: Any
    argument: Any
    assumptions: Assumptions


class OpenRequest(NamedTuple):
    """What the agent knows of an open request; instrument 0 marks a free place."""

    instrument: Any  # int32
    requested: Any  # float, $
    month_asked: Any  # int32


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Observation:
    """What the agent knows, and nothing else (design section 5.2)."""

    month: Any  # int32
    calls_left: Any  # int32
    open_requests: Any  # tuple of max_pending OpenRequest
    notices: Any  # tuple of max_pending Notice
    turned_away: Any  # int32
    readings: Any  # dict quantity -> Reading


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Timestep:
    """What `reset`, `use_tool` and `step` show. reward float[...]: the score when the episode ends, else 0.

    The disciplined variant pays the value kept in place of the score.
    """

    observation: Observation
    reward: Any
    terminated: Any  # bool
    truncated: Any  # bool, always False: the horizon is part of the task


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Record:
    """The outcome of one episode (design section 2.6), one schema for simulated, LLM and human play."""

    survived: Any  # bool
    months_survived: Any  # int32
    months_played: Any  # int32
    score: Any  # $
    revenue_ttm: Any  # $
    cash: Any  # $
    debt: Any  # $
    verify_cash_position: Any  # int32 calls
    review_financial_records: Any
    analyze_market_conditions: Any
    conduct_cashflow_projection: Any
    actions: Any  # int32, not counting pass
    requests: Any  # int32
    requests_settled: Any  # int32
    approvals: Any  # int32
    requested_equity: Any  # $
    requested_debt: Any  # $
    received_equity: Any  # $
    received_debt: Any  # $
    crises_passed: Any  # int32
    first_request_month: Any  # int32, -1: none
    cash_peak: Any  # $, before the first proceeds
    cash_peak_month: Any  # int32
    cash_trough: Any  # $
    cash_trough_month: Any  # int32
    shares: Any  # shares
    ownership_kept: Any  # share of the company that the first holders keep
    value_per_share: Any  # $, 0 if bankrupt
    value_kept: Any  # $: what the initial shares gained, less what the tools cost
