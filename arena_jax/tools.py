"""What the agent knows: the tools, the notebook in which their answers stay, and the observation (design 2.4, 5.2).

`QUANTITIES` is the single table of what a tool can show: the notebook, the observation, its specification and the
documentation all follow it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.errors import ArenaError, is_number, shown, unknown
from arena_jax.ledger import statements
from arena_jax.params import Params
from arena_jax.projection import RANGES, is_valid, project
from arena_jax.scenario import COLUMNS, HIDDEN_COLUMNS, Scenario
from arena_jax.structs import (
    COUNTED_ASSUMPTIONS,
    MAX_PROJECTION,
    RUNNING,
    TOOLS,
    Assumptions,
    Observation,
    OpenRequest,
    Reading,
    Seen,
    State,
    ToolCall,
)

VERIFY, REVIEW, ANALYZE, PROJECT = range(len(TOOLS))

# documents of review_financial_records that change what the agent knows of the figures; adapters render more
DOCUMENT_LIST, FINANCIAL_PACKAGE = 0, 1
DOCUMENTS = {"list": DOCUMENT_LIST, "financial_package": FINANCIAL_PACKAGE}
INDICATORS = tuple(name for name in COLUMNS if name not in HIDDEN_COLUMNS)
ALL_INDICATORS = 2 ** len(INDICATORS) - 1
CHANGES = (3, 12)  # months over which the notebook keeps an indicator's change
PROJECTED = (3, 6, 12)  # months ahead whose projected cash the notebook keeps

TOOL_HELP = {
    "verify_cash_position": "current cash, one number",
    "review_financial_records": "last closed statements and, past the last closing, flash figures",
    "analyze_market_conditions": "market indicators up to this month, no forecast",
    "conduct_cashflow_projection": "cash ahead from the agent's own assumptions, on the last closed balances",
}


@dataclass(frozen=True)
class Quantity:
    """One quantity that a tool shows: the tool, unit, typical size (for normalisation) and meaning."""

    tool: int
    unit: str
    scale: float
    about: str


def _quantities() -> dict[str, Quantity]:
    closed = {
        "users": ("borrowers", 1e4, "active borrowers"),
        "cash": ("$", 1e7, "cash"),
        "loans_gross": ("$", 1e8, "gross loans"),
        "allowance": ("$", 1e7, "allowance for credit losses"),
        "interest_receivable": ("$", 1e5, "interest receivable"),
        "total_assets": ("$", 1e8, "total assets"),
        "accounts_payable": ("$", 1e5, "accounts payable"),
        "tax_payable": ("$", 1e5, "tax payable"),
        "debt": ("$", 1e7, "debt principal"),
        "total_equity": ("$", 1e8, "total equity"),
        "shares": ("shares", 1e7, "shares outstanding"),
        "interest_income": ("$ a month", 1e6, "revenue"),
        "provision": ("$ a month", 1e6, "provision for credit losses"),
        "operating_cost": ("$ a month", 1e6, "operating cost"),
        "interest_expense": ("$ a month", 1e6, "interest expense"),
        "net_income": ("$ a month", 1e6, "net income"),
        "originations": ("$ a month", 1e7, "loans originated"),
        "repayments": ("$ a month", 1e7, "loan repayments"),
        "charge_offs": ("$ a month", 1e6, "loans charged off"),
        "operating_cash_flow": ("$ a month", 1e6, "cash flow from operating activities"),
    }
    flash = {"users": ("borrowers", 1e4), "originations": ("$ a month", 1e7), "collections": ("$ a month", 1e7)}
    table = {"cash": Quantity(VERIFY, "$", 1e7, "current cash balance")}
    for name, (unit, scale, about) in closed.items():
        table[f"closed_{name}"] = Quantity(REVIEW, unit, scale, f"{about}, last closed statements")
    for name, (unit, scale) in flash.items():
        table[f"flash_{name}"] = Quantity(REVIEW, unit, scale, f"{name} of last month, flash figure")
    for name in INDICATORS:
        column = COLUMNS[name]
        table[name] = Quantity(ANALYZE, column.unit, column.scale, column.about)
        for months in CHANGES:
            about = f"{column.about}, change over {months} months"
            table[f"{name}_change_{months}"] = Quantity(ANALYZE, column.unit, column.scale, about)
    for months in PROJECTED:
        table[f"projected_cash_{months}"] = Quantity(PROJECT, "$", 1e7, f"projected cash {months} months ahead")
    table["projected_cash_min"] = Quantity(PROJECT, "$", 1e7, "lowest projected cash within the horizon")
    return table


QUANTITIES = _quantities()


def call_tool(
    tool: str,
    *,
    document: str = "financial_package",
    indicators: Sequence[str] = INDICATORS,
    assumptions: Assumptions | None = None,
) -> ToolCall:
    """A call by name; raises `ArenaError` for an unknown tool, document or indicator."""
    if tool not in TOOLS:
        raise unknown("tool", tool, TOOLS)
    if document not in DOCUMENTS:
        raise unknown("document", document, DOCUMENTS)
    for name in indicators:
        if name not in INDICATORS:
            raise unknown("indicator", name, INDICATORS)
    bits = sum(1 << INDICATORS.index(name) for name in set(indicators))
    argument = {REVIEW: DOCUMENTS[document], ANALYZE: bits}.get(TOOLS.index(tool), 0)
    return ToolCall(np.int32(TOOLS.index(tool)), np.int32(argument), assumptions or assume())


def assume(**assumptions: float) -> Assumptions:
    """Assumptions for a projection from plain numbers; what is not named is 0, the horizon 12 months."""
    names = [field.name for field in dataclasses.fields(Assumptions)]
    for name in assumptions:
        if name not in names:
            raise unknown("assumption", name, names)
    values: dict[str, Any] = {"horizon": 12} | assumptions
    for name, value in values.items():
        kind = "a whole number" if name in COUNTED_ASSUMPTIONS else "a number"
        low, high = RANGES[name]
        if not is_number(value) or not low <= value <= high or (name in COUNTED_ASSUMPTIONS and value != int(value)):
            raise ArenaError(f"assumption {name} must be {kind} in [{low:g}, {high:g}], got {shown(value)}")
    if values.get("funding", 0) > 0 and values.get("funding_month", 0) < 1:
        raise ArenaError("assumption funding needs a funding_month of at least 1 in which it arrives")
    kinds = {name: jnp.int32 if name in COUNTED_ASSUMPTIONS else jnp.result_type(float) for name in names}
    # NumPy scalars: ten of JAX's own would take longer than the call that they are for
    return Assumptions(**{name: np.asarray(values.get(name, 0), dtype=kinds[name]) for name in names})


def signals_at(scenario: Scenario, month: jax.Array) -> dict[str, jax.Array]:
    """Level of each market indicator in `month` (int32[...]) and its changes (over fewer months at the start)."""
    now = jnp.minimum(month, scenario.horizon - 1)
    found = {}
    for name in INDICATORS:
        column = getattr(scenario, name)
        found[name] = column[now]
        for months in CHANGES:
            found[f"{name}_change_{months}"] = column[now] - column[jnp.maximum(now - months, 0)]
    return found


def empty_notebook(like: jax.Array) -> dict[str, Seen]:
    """Nothing seen yet; `like` float[...] gives the shape."""
    never = jnp.full_like(like, -1, dtype=jnp.int32)
    return {name: Seen(jnp.zeros_like(like), never) for name in QUANTITIES}


def statement_lines(params: Params, state: State) -> dict[str, jax.Array]:
    """The main lines of the last closed statements, by quantity."""
    books, shown = state.closed, statements(params, state.closed)
    return {
        "closed_users": books.users,
        "closed_cash": books.cash,
        "closed_loans_gross": books.loans_gross,
        "closed_allowance": books.allowance,
        "closed_interest_receivable": books.interest_receivable,
        "closed_total_assets": shown.balance.total_assets,
        "closed_accounts_payable": books.accounts_payable,
        "closed_tax_payable": books.tax_payable,
        "closed_debt": books.debt_principal,
        "closed_total_equity": shown.balance.total_equity,
        "closed_shares": books.shares,
        "closed_interest_income": shown.income.interest_income,
        "closed_provision": shown.income.provision,
        "closed_operating_cost": shown.income.operating_cost,
        "closed_interest_expense": shown.income.interest_expense,
        "closed_net_income": shown.income.net_income,
        "closed_originations": books.flows.originations,
        "closed_repayments": books.flows.repayments,
        "closed_charge_offs": books.flows.charge_offs,
        "closed_operating_cash_flow": shown.cash_flow.operating,
    }


@dataclass(frozen=True)
class Arguments:
    """Arguments of a month's tool calls: document int32[...], indicators int32[...] (a bit set), assumptions."""

    document: jax.Array
    indicators: jax.Array
    assumptions: Assumptions

    def valid(self) -> tuple[jax.Array, ...]:
        """bool[...] per tool: a call with an invalid argument shows nothing and costs nothing."""
        documents = (self.document >= 0) & (self.document < len(DOCUMENTS))
        indicators = (self.indicators > 0) & (self.indicators <= ALL_INDICATORS)
        return jnp.bool_(True), documents, indicators, is_valid(self.assumptions)


def call_tools(
    params: Params, signals: dict[str, jax.Array], state: State, calls: tuple[jax.Array, ...], arguments: Arguments
) -> State:
    """Answer `calls` (int32[...] per tool) in the order of `TOOLS` until the month's budget is spent.

    signals: the market of the month (`signals_at`). Invalid calls, calls over budget and calls of an ended episode
    are turned away and cost nothing.
    """
    left = params.tool_budget - state.tally.calls_this_month
    left = jnp.where(state.status == RUNNING, left, 0)
    answered = []
    for count, is_valid_call in zip(calls, arguments.valid(), strict=True):
        answered.append(jnp.where(is_valid_call, jnp.clip(count, 0, left), 0))
        left = left - answered[-1]
    tally = dataclasses.replace(
        state.tally,
        calls_this_month=state.tally.calls_this_month + sum(answered[1:], start=answered[0]),
        tool_calls=tuple(old + new for old, new in zip(state.tally.tool_calls, answered, strict=True)),
    )
    shown = [count > 0 for count in answered]
    notebook = dict(state.notebook)

    def note(name: str, value: jax.Array, when: jax.Array, as_of: jax.Array) -> None:
        before = notebook[name]
        notebook[name] = Seen(jnp.where(when, value, before.value), jnp.where(when, as_of, before.month))

    note("cash", state.books.cash, shown[VERIFY], state.month)
    is_package = shown[REVIEW] & (arguments.document == FINANCIAL_PACKAGE)
    for name, value in statement_lines(params, state).items():
        note(name, value, is_package, state.books_closed_through + 1)
    # flash figures exist only past the last closing
    is_flash = is_package & (state.books_closed_through < state.month - 1)
    for name, value in state.flash._asdict().items():
        note(f"flash_{name}", value, is_flash, state.month)
    for bit, name in enumerate(INDICATORS):
        is_asked = shown[ANALYZE] & ((arguments.indicators >> bit) % 2 == 1)
        for key in (name, *[f"{name}_change_{months}" for months in CHANGES]):
            note(key, signals[key], is_asked, state.month)
    path, horizon = _projected(params, state, arguments.assumptions, shown[PROJECT]), arguments.assumptions.horizon
    for months in PROJECTED:
        note(f"projected_cash_{months}", path[months - 1], shown[PROJECT] & (horizon >= months), state.month)
    lowest = path[0]
    for row in range(1, MAX_PROJECTION):
        lowest = jnp.where(row < horizon, jnp.minimum(lowest, path[row]), lowest)
    note("projected_cash_min", lowest, shown[PROJECT], state.month)
    return dataclasses.replace(state, tally=tally, notebook=notebook)


def _projected(params: Params, state: State, assumptions: Assumptions, wanted: jax.Array) -> jax.Array:
    """The projection, or zeros where nobody in the batch asked: the one costly tool, so a real branch."""
    like = jnp.zeros((MAX_PROJECTION, *wanted.shape), dtype=state.books.cash.dtype)
    return jax.lax.cond(jnp.any(wanted), lambda: project(params, state, assumptions), lambda: like)


def observe(params: Params, state: State) -> Observation:
    """The free facts of the month and the notebook; nothing else of `state` shows."""
    readings = {
        name: Reading(seen.value, jnp.where(seen.month < 0, -1, state.month - seen.month))
        for name, seen in state.notebook.items()
    }
    return Observation(
        month=state.month,
        calls_left=params.tool_budget - state.tally.calls_this_month,
        open_requests=tuple(
            OpenRequest(place.instrument, place.requested, place.month_asked) for place in state.pending
        ),
        notices=state.notices,
        turned_away=state.turned_away,
        readings=readings,
    )
