"""What the peers share: the world as plain numbers, the policies they are specialised for, and their outcome."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from arena_jax.arena import Arena
from arena_jax.errors import ArenaError, unknown

EQUITY, DEBT = 1, 2
INDICATORS = (
    "user_growth",
    "loan_size",
    "lending_rate",
    "repayment_rate",
    "charge_off_rate",
    "servicing_cost",
    "fixed_cost",
    "acquisition_cost",
    "interest_lag",
    "cost_lag",
)
# columns of `World.months` after the ten base indicators
ALLOWANCE_RATE, EQUITY_MACRO, DEBT_MACRO, DEBT_RATE, TAX_DUE = range(len(INDICATORS), len(INDICATORS) + 5)


class Policy(NamedTuple):
    """Asks for `amount` $ in any month in which no request is open and the cash is below `threshold` $."""

    instrument: int  # EQUITY or DEBT
    amount: float  # 0: never asks
    threshold: float  # infinite: whatever the cash
    verifies: bool  # pays for a look at the cash in every month in which no request is open


# the policies of the benchmark, and greedy-debt so that tests reach the books of debt
POLICIES = {
    "never-raise": Policy(EQUITY, 0.0, np.inf, False),
    "greedy-equity:amount=20e6": Policy(EQUITY, 20e6, np.inf, False),
    "cash-threshold:threshold=8e6,amount=12.6e6": Policy(EQUITY, 12.6e6, 8e6, True),
    "greedy-debt:amount=20e6": Policy(DEBT, 20e6, np.inf, False),
}


def peer_policy(spec: str) -> Policy:
    """The peers' form of a policy spec; raises `ArenaError` for one they are not written for."""
    if spec not in POLICIES:
        raise unknown("policy of the peers", spec, POLICIES)
    return POLICIES[spec]


class World(NamedTuple):
    """Parameters and trajectory as float64: what a month needs, computed once (design sections 2.1 to 2.5).

    months float64[T, 15]: base indicators, then the columns named above. Rates are per month, the debt's per year.
    """

    months: np.ndarray
    sigma: np.ndarray  # float64[10], noise of the indicators, scaled by the parameter `noise`
    # the company as month 0 opens
    users: float
    cash: float
    loans: float
    allowance: float
    receivable: float
    payable: float
    paid_in: float
    retained: float
    shares: float
    revenue: float  # of one month
    # rules
    renewal_rate: float
    recovery_rate: float
    tax_rate: float
    loss_limit: float
    amortised: float  # share of the debt repaid each month
    round_factor: float
    leverage_limit: float
    fraction_min: float
    fraction_span: float
    delay_min: float
    delay_span: float
    listing_multiple: float
    price_scale: float  # listed price = price_scale * V / shares
    price_floor: float
    revenue_multiple: float
    tool_cost: float
    crisis_months: np.ndarray


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + np.exp(-x))


def make_world(env: Arena) -> World:
    """The world of `env`, from its parameters and its trajectory alone.

    The peers hold one open request, and one verification a month: other settings raise `ArenaError`.
    """
    p: dict[str, Any] = {name: np.asarray(value, dtype=np.float64).item() for name, value in vars(env.params).items()}
    if p["max_pending"] != 1 or p["tool_budget"] < 1:
        raise ArenaError("the peers are written for max_pending=1 and a tool_budget of at least 1")
    column = {name: np.asarray(value, dtype=np.float64) for name, value in vars(env.scenario).items()}
    horizon = env.scenario.horizon

    stress = 0.5 * (column["volatility"] - p["volatility_center"]) / p["volatility_scale"]
    stress = stress + 0.5 * column["lending_tightness"] / p["tightness_scale"]
    loss_stress = np.clip(stress, p["stress_floor"], p["stress_cap"])
    loss_rate = p["charge_off_rate"] * np.maximum(1.0 + p["charge_off_stress"] * loss_stress, 0.0)
    loss_rate = loss_rate * column["delinquency"] / p["delinquency_norm"]
    market_rate = column["treasury_2y"] + column["credit_spread"]
    base = {name: np.full(horizon, p.get(name, 0.0)) for name in INDICATORS}
    base["user_growth"] = column["user_growth"]
    base["lending_rate"] = market_rate + p["lending_margin"]
    base["repayment_rate"] = p["repayment_rate"] - p["repayment_stress"] * np.maximum(stress, 0.0)
    base["charge_off_rate"] = loss_rate
    scale = {"user_growth": 1 / 100, "lending_rate": 1 / 1200}  # % a month, % a year
    months = np.stack(
        [base[name] * scale.get(name, 1.0) for name in INDICATORS]
        + [
            p["allowance_months"] * loss_rate,
            sigmoid(p["equity_logit"] - p["equity_stress"] * stress),
            sigmoid(p["debt_logit"] - p["debt_stress"] * stress),
            (np.append(market_rate[1:], market_rate[-1]) + p["debt_margin"]) / 100,
            (np.arange(horizon) % 3 == 2).astype(np.float64),
        ],
        axis=1,
    )

    growth, _, rate, repaid, lost, servicing, fixed, acquisition, interest_lag, cost_lag = months[0, :10]
    users, loans, cash, shares = (p[f"initial_{name}"] for name in ("users", "loans", "cash", "shares"))
    new = growth * users
    closing_users = users + new - ((1 - p["renewal_rate"]) * repaid + lost) * users
    revenue = loans * (1 - lost) * rate
    receivable = interest_lag * revenue
    payable = cost_lag * (servicing * closing_users + fixed + acquisition * new)
    allowance = months[0, ALLOWANCE_RATE] * loans
    value = p["listing_multiple"] * 12 * revenue + cash
    return World(
        months=months,
        sigma=np.array([p["noise"] * p[f"sigma_{name}"] * scale.get(name, 1.0) for name in INDICATORS]),
        users=users,
        cash=cash,
        loans=loans,
        allowance=allowance,
        receivable=receivable,
        payable=payable,
        paid_in=p["initial_paid_in_capital"],
        retained=cash + loans - allowance + receivable - payable - p["initial_paid_in_capital"],
        shares=shares,
        revenue=revenue,
        renewal_rate=p["renewal_rate"],
        recovery_rate=p["recovery_rate"],
        tax_rate=p["tax_rate"],
        loss_limit=p["loss_limit"],
        amortised=1 / p["debt_term"],
        round_factor=p["equity_round_factor"],
        leverage_limit=p["leverage_limit"],
        fraction_min=p["fraction_min"],
        fraction_span=p["fraction_max"] - p["fraction_min"],
        delay_min=p["delay_min"],
        delay_span=p["delay_max"] - p["delay_min"] + 1,
        listing_multiple=p["listing_multiple"],
        price_scale=p["initial_price"] * shares / max(value, 1.0),
        price_floor=p["price_floor"],
        revenue_multiple=p["revenue_multiple"],
        tool_cost=p["tool_cost"],
        crisis_months=np.asarray(env.scenario.crisis_months),
    )


class Ended(NamedTuple):
    """How episodes stood when they ended; one number each, or arrays [n]."""

    bankrupt: Any
    months_played: Any
    revenue_ttm: Any  # $
    cash: Any
    debt: Any
    shares: Any
    tool_calls: Any
    requests: Any
    requests_settled: Any
    approvals: Any
    received: Any  # $
    first_request_month: Any  # -1: none
    cash_peak: Any  # $, before the first proceeds
    cash_peak_month: Any
    cash_trough: Any
    cash_trough_month: Any
    balance_gap: Any  # assets less liabilities and equity as a share of assets: rounding alone


class Outcome(NamedTuple):
    """The record of design section 2.6 as arrays [n], instruments and tools not apart: each policy uses one at most."""

    survived: np.ndarray
    months_survived: np.ndarray
    months_played: np.ndarray
    score: np.ndarray  # $
    revenue_ttm: np.ndarray  # $
    cash: np.ndarray
    debt: np.ndarray
    tool_calls: np.ndarray
    actions: np.ndarray
    requests: np.ndarray
    requests_settled: np.ndarray
    approvals: np.ndarray
    requested: np.ndarray  # $
    received: np.ndarray  # $
    crises_passed: np.ndarray
    first_request_month: np.ndarray
    cash_peak: np.ndarray
    cash_peak_month: np.ndarray
    cash_trough: np.ndarray
    cash_trough_month: np.ndarray
    shares: np.ndarray
    ownership_kept: np.ndarray
    value_per_share: np.ndarray
    balance_gap: np.ndarray


def make_outcome(world: World, policy: Policy, ended: Ended) -> Outcome:
    """Score and record of ended episodes, arrays [n]."""
    survived = np.asarray(ended.bankrupt) == 0
    played, requests = (np.asarray(count).astype(np.int32) for count in (ended.months_played, ended.requests))
    months = played - ~survived
    value = world.revenue_multiple * ended.revenue_ttm + ended.cash - world.tool_cost * ended.tool_calls
    listed = world.listing_multiple * ended.revenue_ttm + ended.cash - ended.debt
    return Outcome(
        survived=survived,
        months_survived=months,
        score=np.where(survived, value, 0.0),
        actions=requests,
        requested=policy.amount * requests,
        crises_passed=sum((months >= crisis).astype(np.int32) for crisis in world.crisis_months),
        ownership_kept=world.shares / ended.shares,
        value_per_share=np.where(survived, listed / ended.shares, 0.0),
        **{name: value for name, value in ended._asdict().items() if name != "bankrupt"},
    )
