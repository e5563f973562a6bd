"""The world in plain Python: a scalar float64 reference for the equations of design §2 and §5.3.

Money in dollars, rates in percent a year (user growth: percent a month), months from 0.
"""

import csv
import math
from dataclasses import dataclass, field, replace
from statistics import NormalDist

MONTHS = 132
CRISIS_MONTHS = (30, 55, 110)
RUNNING, BANKRUPT, COMPLETED = 0, 1, 2
EQUITY, DEBT = 1, 2

# fmt: off
DEFAULTS = {
    # the company at the start (§2.1)
    "initial_cash": 15e6, "initial_users": 5_000.0, "initial_loans": 50e6,
    "initial_shares": 10.5e6, "initial_price": 10.0, "initial_paid_in_capital": 70e6,
    # base values of the indicators, and the noise on them (§2.2, step 3)
    "loan_size": 10_000.0, "lending_margin": 3.8,
    "repayment_rate": 1 / 36, "repayment_stress": 0.0010,
    "charge_off_rate": 0.0024, "charge_off_stress": 0.25, "delinquency_norm": 2.3,
    "stress_floor": -0.5, "stress_cap": 3.0,
    "servicing_cost": 18.0, "fixed_cost": 88_000.0, "acquisition_cost": 390.0,
    "interest_lag": 0.15, "cost_lag": 0.40,
    "sigma_user_growth": 0.10, "sigma_loan_size": 200.0, "sigma_lending_rate": 0.10,
    "sigma_repayment_rate": 0.0006, "sigma_charge_off_rate": 0.0002,
    "sigma_servicing_cost": 1.0, "sigma_fixed_cost": 8_000.0, "sigma_acquisition_cost": 30.0,
    "sigma_interest_lag": 0.02, "sigma_cost_lag": 0.04, "noise": 1.0,
    # lending, the books and market stress (§2.2)
    "renewal_rate": 0.784, "recovery_rate": 0.1, "allowance_months": 18,
    "tax_rate": 0.21, "loss_limit": 0.8, "debt_term": 30,
    "volatility_center": 18.0, "volatility_scale": 6.0, "tightness_scale": 25.0,
    # funding (§2.3)
    "equity_logit": 1.0, "equity_stress": 1.0, "debt_logit": 1.5, "debt_stress": 1.1,
    "equity_round_factor": 0.778, "leverage_limit": 0.776,
    "fraction_min": 0.7, "fraction_max": 1.0, "delay_min": 1, "delay_max": 6,
    "max_request": 1e9, "debt_margin": 2.0, "listing_multiple": 5.0, "price_floor": 0.01,
    # score, tools and the rules of a month (§2.3 to §2.5)
    "revenue_multiple": 5.0, "tool_cost": 5_000.0, "tool_budget": 20, "flash_error": 0.02,
    "max_pending": 1, "exclusive": True,
    # capital is not free: the disciplined variant
    "disciplined": False, "size_aversion": 0.5,
}
INDICATORS = (
    "user_growth", "loan_size", "lending_rate", "repayment_rate", "charge_off_rate",
    "servicing_cost", "fixed_cost", "acquisition_cost", "interest_lag", "cost_lag",
)
FLASH = ("users", "originations", "collections")
COUNTERS = (
    "cash", "tool_calls", "actions", "requests", "requests_settled", "approvals",
    "requested_equity", "requested_debt", "received_equity", "received_debt",
    "first_request_month", "cash_peak", "cash_peak_month", "cash_trough", "cash_trough_month",
    "shares",
)
# fmt: on


@dataclass
class Draws:
    """One month's luck: standard normals, and a request's uniforms (outcome, fraction, delay)."""

    indicators: list
    flash: list
    request: list


@dataclass
class Action:
    close_books: bool = False
    instrument: int = 0
    amount: float = 0.0


@dataclass
class Request:
    instrument: int
    requested: float
    granted: float
    month_asked: int
    months_left: int


@dataclass
class State:
    """§2.1. Balances are those with which `month` opens."""

    month: int
    users: float
    cash: float
    loans_gross: float
    allowance: float
    interest_receivable: float
    accounts_payable: float
    tax_payable: float
    debt_principal: float
    debt_coupon: float
    paid_in_capital: float
    retained_earnings: float
    tax_loss_carryforward: float
    shares: float
    revenue: list
    cash_peak: float
    cash_trough: float
    equity_rounds: int = 0
    pending: list = field(default_factory=list)
    books_closed_through: int = -1
    flash: dict = field(default_factory=lambda: dict.fromkeys(FLASH, 0.0))
    status: int = RUNNING
    tool_calls: list = field(default_factory=lambda: [0, 0, 0, 0])
    actions: int = 0
    requests: int = 0
    requests_settled: int = 0
    approvals: int = 0
    requested_equity: float = 0.0
    requested_debt: float = 0.0
    received_equity: float = 0.0
    received_debt: float = 0.0
    first_request_month: int = -1
    cash_peak_month: int = 0
    cash_trough_month: int = 0


@dataclass
class Flows:
    """What one month moved: enough for its four statements."""

    originations: float = 0.0
    repayments: float = 0.0
    charge_offs: float = 0.0
    recoveries: float = 0.0
    new_users: float = 0.0
    interest_income: float = 0.0
    provision: float = 0.0
    operating_cost: float = 0.0
    interest_expense: float = 0.0
    tax_expense: float = 0.0
    net_income: float = 0.0
    interest_collected: float = 0.0
    costs_paid: float = 0.0
    amortisation: float = 0.0
    tax_paid: float = 0.0
    equity_issued: float = 0.0
    debt_issued: float = 0.0
    shares_issued: float = 0.0


# The random stream (§5.3)
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
WORD = 0xFFFFFFFF


def threefry2x32(k0, k1, x0, x1):
    """Threefry-2x32, 20 rounds: key (k0, k1), counter (x0, x1)."""
    keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = (x0 + k0) & WORD, (x1 + k1) & WORD
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x0 = (x0 + x1) & WORD
            x1 = ((x1 << rotation | x1 >> (32 - rotation)) & WORD) ^ x0
        x0 = (x0 + keys[(group + 1) % 3]) & WORD
        x1 = (x1 + keys[(group + 2) % 3] + group + 1) & WORD
    return x0, x1


def uniform(bits):
    """Strictly inside (0, 1)."""
    return ((bits >> 9) + 0.5) * 2**-23


def normal(u):
    return NormalDist().inv_cdf(u)


def draws(key, month, requests_made):
    """Blocks 0-6 at i = month for the world, 16-17 at i = requests made before for a request."""
    world = [uniform(w) for block in range(7) for w in threefry2x32(*key, month, block)]
    request = [uniform(w) for block in (16, 17) for w in threefry2x32(*key, requests_made, block)]
    return Draws([normal(u) for u in world[:10]], [normal(u) for u in world[10:13]], request[:3])


# The lending business (§2.2, step 3)
def clip(x, low, high):
    return min(max(x, low), high)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def stress(p, col, t):
    """z[t], the market stress index."""
    return (
        0.5 * (col["volatility"][t] - p["volatility_center"]) / p["volatility_scale"]
        + 0.5 * col["lending_tightness"][t] / p["tightness_scale"]
    )


def loss_rate(p, col, t):
    """q[t], the base charge-off rate a month."""
    z = clip(stress(p, col, t), p["stress_floor"], p["stress_cap"])
    delinquency = col["delinquency"][t] / p["delinquency_norm"]
    return p["charge_off_rate"] * max(1 + p["charge_off_stress"] * z, 0.0) * delinquency


def market_rate(col, t):
    return col["treasury_2y"][t] + col["credit_spread"][t]


def base_indicators(p, col, t):
    return {
        "user_growth": col["user_growth"][t],
        "loan_size": p["loan_size"],
        "lending_rate": market_rate(col, t) + p["lending_margin"],
        "repayment_rate": p["repayment_rate"] - p["repayment_stress"] * max(stress(p, col, t), 0),
        "charge_off_rate": loss_rate(p, col, t),
        "servicing_cost": p["servicing_cost"],
        "fixed_cost": p["fixed_cost"],
        "acquisition_cost": p["acquisition_cost"],
        "interest_lag": p["interest_lag"],
        "cost_lag": p["cost_lag"],
    }


def noisy_indicators(p, col, t, normals):
    """x' = x + noise * sigma * normal, clipped to each indicator's range."""
    base = base_indicators(p, col, t)
    x = {
        name: max(base[name] + p["noise"] * p["sigma_" + name] * e, 0.0)
        for name, e in zip(INDICATORS, normals, strict=True)
    }
    for share in ("repayment_rate", "interest_lag", "cost_lag"):
        x[share] = min(x[share], 1.0)
    x["charge_off_rate"] = min(x["charge_off_rate"], 1 - x["repayment_rate"])
    return x


def operate(p, x, users, loans):
    """A month of lending: its flows, and the users and loans it leaves."""
    f = Flows()
    r, c = x["repayment_rate"], x["charge_off_rate"]
    f.new_users = x["user_growth"] / 100 * users
    f.repayments = r * loans
    f.charge_offs = min(c * loans, loans - f.repayments)
    f.originations = f.new_users * x["loan_size"] + p["renewal_rate"] * f.repayments
    f.recoveries = p["recovery_rate"] * f.charge_offs
    f.interest_income = (loans - f.charge_offs) * x["lending_rate"] / 100 / 12

    loans = loans + f.originations - f.repayments - f.charge_offs
    users = users + f.new_users - ((1 - p["renewal_rate"]) * r + c) * users
    f.operating_cost = x["servicing_cost"] * users + x["fixed_cost"] + x["acquisition_cost"] * f.new_users
    return f, users, loans


def target_allowance(p, col, t, loans):
    return p["allowance_months"] * loss_rate(p, col, t) * loans


def keep_books(p, col, s, x, f, loans):
    """Step 4: accruals and cash of the month. `s` holds the opening balances and is moved on."""
    f.provision = target_allowance(p, col, s.month, loans) - (s.allowance - f.charge_offs + f.recoveries)
    f.interest_expense = s.debt_coupon / 12
    pretax = f.interest_income - f.provision - f.operating_cost - f.interest_expense
    loss_used = min(s.tax_loss_carryforward, p["loss_limit"] * max(pretax, 0.0))
    f.tax_expense = p["tax_rate"] * (max(pretax, 0.0) - loss_used)
    f.net_income = pretax - f.tax_expense

    f.interest_collected = s.interest_receivable + (1 - x["interest_lag"]) * f.interest_income
    f.costs_paid = s.accounts_payable + (1 - x["cost_lag"]) * f.operating_cost
    f.amortisation = s.debt_principal / p["debt_term"]
    tax_due = s.tax_payable + f.tax_expense
    f.tax_paid = tax_due if s.month % 3 == 2 else 0.0

    s.cash += (
        f.repayments + f.recoveries + f.interest_collected - f.originations
        - f.costs_paid - f.interest_expense - f.amortisation - f.tax_paid
    )  # fmt: skip
    s.allowance += f.provision - f.charge_offs + f.recoveries
    s.interest_receivable = x["interest_lag"] * f.interest_income
    s.accounts_payable = x["cost_lag"] * f.operating_cost
    s.tax_payable = tax_due - f.tax_paid
    s.debt_principal -= f.amortisation
    s.debt_coupon -= s.debt_coupon / p["debt_term"]
    s.retained_earnings += f.net_income
    s.tax_loss_carryforward += max(-pretax, 0.0) - loss_used
    s.revenue = s.revenue[1:] + [f.interest_income]


# Funding (§2.3)
def approval(p, col, s, instrument, amount):
    """p_adj = p_macro * m_company, on the balances and the market with which the month opens."""
    z = stress(p, col, s.month)
    if instrument == EQUITY:
        p_macro = sigmoid(p["equity_logit"] - p["equity_stress"] * z)
        m_company = p["equity_round_factor"] ** s.equity_rounds
    else:
        p_macro = sigmoid(p["debt_logit"] - p["debt_stress"] * z)
        assets = s.cash + s.loans_gross - s.allowance + s.interest_receivable
        leverage = s.debt_principal / max(assets, 1.0)
        m_company = clip(1 - leverage / p["leverage_limit"], 0.0, 1.0)
    if p["disciplined"]:
        m_company *= math.exp(-p["size_aversion"] * amount / max(equity_value(p, s), 1.0))
    return p_macro * m_company


def admissible(p, s, action):
    return (
        action.instrument in (EQUITY, DEBT)
        and math.isfinite(action.amount)
        and 0 < action.amount <= p["max_request"]
        and len(s.pending) < p["max_pending"]
        and not (p["exclusive"] and action.close_books)
    )


def act(p, col, s, action, luck):
    """Step 2: a closing, a request, neither or (where not exclusive) both."""
    if action.close_books:
        s.books_closed_through = s.month - 1
    taken = [bool(action.close_books), action.instrument != 0]
    s.actions += any(taken) if p["exclusive"] else sum(taken)
    if not admissible(p, s, action):
        return
    u_outcome, u_fraction, u_delay = luck
    approved = u_outcome < approval(p, col, s, action.instrument, action.amount)
    fraction = p["fraction_min"] + u_fraction * (p["fraction_max"] - p["fraction_min"])
    delay = p["delay_min"] + math.floor(u_delay * (p["delay_max"] - p["delay_min"] + 1))
    granted = fraction * action.amount if approved else 0.0
    s.pending.append(Request(action.instrument, action.amount, granted, s.month, delay))
    if s.requests == 0:
        s.first_request_month = s.month
    s.requests += 1
    if action.instrument == EQUITY:
        s.requested_equity += action.amount
    else:
        s.requested_debt += action.amount


def equity_value(p, s):
    """V, to which the listed price is indexed, and at which the disciplined variant issues shares."""
    return p["listing_multiple"] * sum(s.revenue) + s.cash - s.debt_principal


def share_price(p, col, s):
    if p["disciplined"]:
        return max(equity_value(p, s) / s.shares, p["price_floor"])
    opening = reset(p, col)
    indexed = (equity_value(p, s) / s.shares) / (equity_value(p, opening) / opening.shares)
    return max(p["initial_price"] * indexed, p["price_floor"])


def settle(p, col, s, f):
    """Step 5: what is due when the next month opens arrives, all at one price and one rate."""
    waiting = [replace(r, months_left=r.months_left - 1) for r in s.pending]
    s.pending = [r for r in waiting if r.months_left > 0]
    due = [r for r in waiting if r.months_left <= 0]
    granted = [r for r in due if r.granted > 0]
    f.equity_issued = sum((r.granted for r in granted if r.instrument == EQUITY), 0.0)
    f.debt_issued = sum((r.granted for r in granted if r.instrument == DEBT), 0.0)
    if f.equity_issued:
        f.shares_issued = f.equity_issued / share_price(p, col, s)
    rate = market_rate(col, min(s.month + 1, MONTHS - 1)) + p["debt_margin"]

    s.cash += f.equity_issued + f.debt_issued
    s.shares += f.shares_issued
    s.paid_in_capital += f.equity_issued
    s.debt_principal += f.debt_issued
    s.debt_coupon += f.debt_issued * rate / 100
    s.requests_settled += len(due)
    s.approvals += len(granted)
    s.equity_rounds += sum(r.instrument == EQUITY for r in granted)
    s.received_equity += f.equity_issued
    s.received_debt += f.debt_issued


# The episode
def reset(params, columns):
    """§2.1: the balances that month 0's base values imply; retained earnings close the sheet."""
    p = params
    x = noisy_indicators(p, columns, 0, [0.0] * len(INDICATORS))
    f, _, _ = operate(p, x, p["initial_users"], p["initial_loans"])
    allowance = target_allowance(p, columns, 0, p["initial_loans"])
    receivable = p["interest_lag"] * f.interest_income
    payable = p["cost_lag"] * f.operating_cost
    assets = p["initial_cash"] + p["initial_loans"] - allowance + receivable
    return State(
        month=0,
        users=p["initial_users"],
        cash=p["initial_cash"],
        loans_gross=p["initial_loans"],
        allowance=allowance,
        interest_receivable=receivable,
        accounts_payable=payable,
        tax_payable=0.0,
        debt_principal=0.0,
        debt_coupon=0.0,
        paid_in_capital=p["initial_paid_in_capital"],
        retained_earnings=assets - payable - p["initial_paid_in_capital"],
        tax_loss_carryforward=0.0,
        shares=p["initial_shares"],
        revenue=[f.interest_income] * 12,
        cash_peak=p["initial_cash"],
        cash_trough=p["initial_cash"],
    )


def show_flash(p, s, f, normals):
    """§2.4: the month's own figures; the error grows with the root of the months unclosed."""
    sigma = p["noise"] * p["flash_error"] * math.sqrt(s.month - s.books_closed_through)
    exact = (s.users, f.originations, f.repayments + f.recoveries + f.interest_collected)
    s.flash = {k: v * (1 + sigma * e) for k, v, e in zip(FLASH, exact, normals, strict=True)}


def check(s):
    """Step 6, with the peak and trough of opening cash for the record."""
    opens = s.month + 1
    if s.received_equity + s.received_debt == 0 and s.cash > s.cash_peak:
        s.cash_peak, s.cash_peak_month = s.cash, opens
    if s.cash < s.cash_trough:
        s.cash_trough, s.cash_trough_month = s.cash, opens
    if s.cash < 0:
        s.status = BANKRUPT
    else:
        s.month = opens
        s.status = COMPLETED if opens == MONTHS else RUNNING
    if s.status != RUNNING:
        s.pending = []


def step(params, columns, state, action, draws, tool_calls=(0, 0, 0, 0)):
    """§2.2: one month; a finished episode stays as it is."""
    if state.status != RUNNING:
        return state, Flows()
    calls = [a + b for a, b in zip(state.tool_calls, tool_calls, strict=True)]
    s = replace(state, pending=list(state.pending), tool_calls=calls)
    act(params, columns, s, action, draws.request)
    x = noisy_indicators(params, columns, s.month, draws.indicators)
    f, users, loans = operate(params, x, s.users, s.loans_gross)
    keep_books(params, columns, s, x, f, loans)
    s.users, s.loans_gross = users, loans
    show_flash(params, s, f, draws.flash)
    settle(params, columns, s, f)
    check(s)
    return s, f


def score(params, state):
    """§2.5; 0 if bankrupt."""
    if state.status == BANKRUPT:
        return 0.0
    value = params["revenue_multiple"] * sum(state.revenue) + state.cash
    return value - params["tool_cost"] * sum(state.tool_calls)


def value_kept(params, columns, state):
    """The objective of the disciplined variant: what the initial shares gained, or the opening value lost."""
    opening = equity_value(params, reset(params, columns))
    if state.status == BANKRUPT:
        return -opening
    value = params["revenue_multiple"] * sum(state.revenue) + state.cash - state.debt_principal
    value -= params["tool_cost"] * sum(state.tool_calls)
    return value / state.shares * params["initial_shares"] - opening


def record(params, columns, state):
    """§2.6: the episode in one row."""
    bankrupt = state.status == BANKRUPT
    return {name: getattr(state, name) for name in COUNTERS} | {
        "survived": state.status == COMPLETED,
        "months_survived": state.month,
        "months_played": state.month + bankrupt,
        "score": score(params, state),
        "revenue_ttm": sum(state.revenue),
        "debt": state.debt_principal,
        "tool_calls": list(state.tool_calls),
        "crises_passed": sum(state.month >= month for month in CRISIS_MONTHS),
        "ownership_kept": params["initial_shares"] / state.shares,
        "value_per_share": 0.0 if bankrupt else equity_value(params, state) / state.shares,
        "value_kept": value_kept(params, columns, state),
    }


def read_columns(path):
    """The trajectory by column; `regime` is a label and left out."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in rows[0] if name != "regime"}
