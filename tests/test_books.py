"""The books: worked numbers, and identities that hold every month under random and extreme play."""

import collections
import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import arena_jax
from arena_jax.draws import Draws, Flash, Indicators, MonthDraws, RequestDraws
from arena_jax.ledger import Statements, revenue_ttm, statements, total_assets
from arena_jax.month import advance, opening_state, opening_value
from arena_jax.operations import market_at
from arena_jax.params import CONTRADICTIONS, FIELDS, STATIC
from arena_jax.pruning import pruned
from arena_jax.scenario import COLUMNS, HORIZON, make_scenario
from arena_jax.score import make_record
from arena_jax.structs import (
    BAD_REQUEST,
    BANKRUPT,
    COMPLETED,
    EQUITY,
    MONTH_TAKEN,
    NO_REQUEST,
    NOT_TURNED_AWAY,
    PIPELINE_FULL,
    RUNNING,
    Action,
    Books,
    State,
)

FLOAT = jnp.result_type(float)
IS_X64 = jnp.float64 == FLOAT
# a program of thousands of small operations compiles several times faster unfused
QUICK = {"xla_disable_hlo_passes": "fusion", "xla_backend_optimization_level": 0}
QUICK_COMPILE = QUICK if jax.default_backend() == "cpu" else None


def a_month(env, state, action, draws):
    """One month as `Arena.step` plays it, with its luck given."""
    market = market_at(env.params, env.scenario, state.month)
    listing_value = opening_value(env.params, env.scenario)
    after = advance(env.params, env.scenario.horizon, listing_value, market, state, action, draws)
    return dataclasses.replace(after, month=jnp.where(after.status == BANKRUPT, state.month, state.month + 1))


def opening(env):
    return opening_state(env.params, market_at(env.params, env.scenario, jnp.int32(0)))


# Worked numbers, in a world simple enough for paper and pencil: $500,000 of interest a month and nothing else

FLAT = dict.fromkeys(
    ("repayment_rate", "repayment_stress", "charge_off_rate", "servicing_cost", "fixed_cost")
    + ("interest_lag", "cost_lag", "noise"),
    0.0,
) | {"fraction_min": 1.0}
# lends at 2.0 + 6.2 + 3.8 = 12%: $50M earn $500,000 a month
LEVELS = {"treasury_2y": 2.0, "credit_spread": 6.2, "volatility": 18.0, "delinquency": 2.3}
PASS = arena_jax.pass_month()
step = jax.jit(a_month, compiler_options=QUICK_COMPILE)


def flat(rates=(), **overrides):
    """The flat world; rates: pairs of month and 2-year yield that differ from 2.0."""
    columns = {name: np.full(HORIZON, LEVELS.get(name, 0.0)) for name in COLUMNS}
    for month, rate in rates:
        columns["treasury_2y"][month] = rate
    return arena_jax.make(scenario=make_scenario(columns), **FLAT | overrides)


def luck(outcome=0.1, fraction=0.5, delay=0.01):
    """Indicators at their base values, and the uniforms of a request."""
    zero = jnp.zeros((), dtype=FLOAT)
    month = MonthDraws(Indicators(*[zero] * len(Indicators._fields)), Flash(zero, zero, zero))
    return Draws(month, RequestDraws(*[jnp.asarray(u, dtype=FLOAT) for u in (outcome, fraction, delay)]))


def states_of(env, actions, draws, **books):
    """The states after each of the months; books: what the company starts with instead."""
    state = opening(env)
    typed = {name: jnp.asarray(value, dtype=FLOAT) for name, value in books.items()}
    state, states = dataclasses.replace(state, books=state.books._replace(**typed)), []
    for action in actions:
        state = step(env, state, action, luck() if draws is None else draws)
        states.append(state)
    return states


def play(env, actions, draws=None, **books):
    """`states_of` with Python numbers for leaves."""
    return [jax.tree.map(lambda leaf: leaf.tolist(), state) for state in states_of(env, actions, draws, **books)]


def about(expected):
    return pytest.approx(expected, rel=1e-12 if IS_X64 else 2e-6)


def equity(amount):
    return arena_jax.request_funding("equity", amount)


def debt(amount):
    return arena_jax.request_funding("debt", amount)


def test_provision():
    """1% of $50M is charged off, a tenth recovered; 18 months of 1% on what remains, $49.5M, is the allowance."""
    env = flat(charge_off_rate=0.01)
    assert float(opening(env).books.allowance) == about(9e6)
    books = play(env, [PASS])[0].books
    assert (books.flows.charge_offs, books.flows.recoveries) == (about(500_000), about(50_000))
    assert (books.loans_gross, books.allowance) == (about(49.5e6), about(8.91e6))
    assert books.flows.provision == pytest.approx(360_000, abs=2)  # 8.91M - (9M - 0.5M + 0.05M)
    assert books.flows.interest_income == about(495_000)  # on what was not charged off
    assert books.flows.net_income == pytest.approx(0.79 * 135_000, abs=2)
    assert books.cash == about(15e6 + 495_000 + 50_000)


def test_the_allowance_is_not_negative_in_calm_markets():
    """Stress 2 below its centre at twice the usual response: losses can't fall below nothing."""
    env = flat(charge_off_rate=0.0024, charge_off_stress=2.0, stress_floor=-2.0, volatility_center=100.0)
    assert float(opening(env).books.allowance) >= 0
    books = play(env, [PASS])[0].books
    assert (books.flows.charge_offs, books.allowance) == (0, 0)


def test_loans_all_repaid_or_charged_off_leave_nothing():
    """Nor less than nothing, by rounding."""
    values = {"repayment_rate": 0.1543, "charge_off_rate": 0.05, "delinquency_norm": 0.1, "initial_loans": 33_333_333.3}
    books = play(flat(renewal_rate=0.0, **values), [PASS])[0].books
    assert 0 <= books.loans_gross <= 1e-6 * 33_333_333.3


def test_tax_after_losses():
    """Old losses shelter at most 80% of a month's $500,000, until they are used up."""
    books = [state.books for state in play(flat(), [PASS] * 4, tax_loss_carryforward=1e6)]
    assert [b.flows.tax_expense for b in books] == [about(x) for x in (21_000, 21_000, 63_000, 105_000)]
    assert [b.tax_loss_carryforward for b in books] == [about(x) for x in (600_000, 200_000, 0, 0)]


def test_losses_are_carried_forward_untaxed():
    first, second = (state.books for state in play(flat(fixed_cost=600_000), [PASS] * 2))
    assert first.flows.tax_expense == second.flows.tax_expense == 0
    assert first.flows.net_income == about(-100_000)
    assert second.tax_loss_carryforward == about(200_000)


def test_tax_is_paid_each_quarter():
    """Three months' $105,000, the third month's own included."""
    books = [state.books for state in play(flat(), [PASS] * 4)]
    assert [b.flows.tax_paid for b in books] == [0, 0, about(315_000), 0]
    assert [b.tax_payable for b in books] == [about(105_000), about(210_000), 0, about(105_000)]
    assert [b.cash for b in books[1:3]] == [about(16e6), about(16.5e6 - 315_000)]


def test_amortisation_and_coupon_shrink_in_step():
    """$6M at 10.2% from month 1: a thirtieth of principal and coupon goes each month."""
    first, second, third = (state.books for state in play(flat(), [debt(6e6), PASS, PASS]))
    assert (first.debt_principal, first.debt_coupon) == (about(6e6), about(612_000))
    assert first.flows.amortisation == first.flows.interest_expense == 0
    assert (second.flows.amortisation, second.flows.interest_expense) == (about(200_000), about(51_000))
    assert (second.debt_principal, second.debt_coupon) == (about(5.8e6), about(591_600))
    assert (third.flows.amortisation, third.flows.interest_expense) == (about(5.8e6 / 30), about(49_300))
    assert third.debt_coupon / third.debt_principal == about(0.102)


def test_coupon_of_two_tranches():
    """$6M at 10.2% and, two months later, $3M at 13.2%."""
    books = [state.books for state in play(flat([(3, 5.0)]), [debt(6e6), PASS, debt(3e6), PASS])]
    kept = (29 / 30) ** 2
    assert books[2].debt_coupon == about(612_000 * kept + 396_000)
    assert books[3].flows.interest_expense == about((612_000 * kept + 396_000) / 12)
    assert books[3].debt_principal == about((6e6 * kept + 3e6) * 29 / 30)


def test_shares_are_issued_at_the_listed_price():
    """V0 = 5 * 6M + 15M = 45M; a month later V = 45.5M, so the price is 10 * 45.5/45 and $9.1M buy 900,000 shares."""
    (state,) = play(flat(), [equity(9.1e6)])
    assert (state.books.flows.shares_issued, state.books.shares) == (about(900_000), about(11.4e6))
    assert (state.books.paid_in_capital, state.books.cash) == (about(79.1e6), about(24.6e6))
    assert (state.equity_rounds, state.tally.approvals) == (1, 1)


def test_the_issue_price_has_a_floor():
    (state,) = play(flat(), [equity(1e4)], debt_principal=1e9, cash=50e6)
    assert state.books.flows.shares_issued == about(1e6)


def test_debt_takes_the_rate_of_the_month_in_which_it_opens():
    """Asked in month 0, settled as month 2 opens, at month 2's 4.0 + 6.2 + 2.0."""
    env = flat([(1, 3.0), (2, 4.0), (3, 9.0)])
    first, second = play(env, [debt(6e6), PASS], luck(delay=0.2))
    assert first.books.debt_principal == 0
    assert (second.books.debt_coupon, second.notices[0].rate) == (about(6e6 * 0.122), about(12.2))


def test_debt_that_opens_at_the_horizon_takes_the_rate_of_the_last_month():
    env = flat([(130, 3.0), (131, 4.0)])
    last = play(env, [PASS] * 131 + [debt(6e6)])[-1]
    assert (last.status, last.month) == (COMPLETED, 132)
    assert last.books.debt_coupon == about(6e6 * 0.122)


@pytest.mark.parametrize(
    ("delay", "status", "cash"), [(0.01, RUNNING, 4.5e6), (0.2, BANKRUPT, -0.5e6)], ids=["in_time", "late"]
)
def test_what_settles_counts_before_the_check(delay, status, cash):
    """$1M and $0.5M of interest can't pay $2M of cost, but for proceeds that arrive as the next month opens."""
    (state,) = play(flat(fixed_cost=2e6), [equity(5e6)], luck(delay=delay), cash=1e6)
    assert (state.status, state.books.cash) == (status, about(cash))
    assert state.month == (1 if status == RUNNING else 0)
    assert state.pending[0].instrument == NO_REQUEST


@pytest.mark.parametrize(
    ("u", "months"), [(1e-6, 1), (0.166, 1), (0.168, 2), (0.34, 3), (0.51, 4), (0.67, 5), (0.84, 6), (0.999999, 6)]
)
def test_delay(u, months):
    states = play(flat(), [equity(5e6)] + [PASS] * 6, luck(delay=u))
    arrival = [t + 1 == months for t in range(7)]
    assert [state.books.flows.equity_issued > 0 for state in states] == arrival
    assert [state.notices[0].instrument == EQUITY for state in states] == arrival


@pytest.mark.parametrize(("u", "fraction"), [(1e-6, 0.7), (0.5, 0.85), (0.999999, 1.0)])
def test_fraction(u, fraction):
    (state,) = play(flat(fraction_min=0.7), [debt(10e6)], luck(fraction=u))
    assert state.books.flows.debt_issued == pytest.approx(10e6 * fraction, abs=20)


def test_an_equity_round_counts_when_it_settles():
    states = play(flat(), [equity(5e6), PASS, PASS, PASS], luck(delay=0.4))
    assert [state.equity_rounds for state in states] == [0, 0, 1, 1]
    assert [state.tally.requests for state in states] == [1, 1, 1, 1]


def test_a_refusal_settles_and_counts_no_round():
    first, second = play(flat(), [equity(5e6), PASS], luck(outcome=0.99, delay=0.2))
    assert (first.tally.requests_settled, first.pending[0].instrument) == (0, EQUITY)
    assert (second.tally.requests_settled, second.tally.approvals, second.equity_rounds) == (1, 0, 0)
    assert (second.notices[0].instrument, second.notices[0].received) == (EQUITY, 0)


def test_trailing_revenue_is_that_of_twelve_months():
    """The rate rises by 1.2 points a month from 12%, the income by $50,000 from $500,000."""
    env = flat([(t, 2.0 + 1.2 * t) for t in range(20)])
    states = states_of(env, [PASS] * 15, None)
    earned = [500_000] * 12 + [500_000 + 50_000 * t for t in range(15)]
    assert float(revenue_ttm(opening(env).revenue)) == about(6e6)
    assert [float(revenue_ttm(s.revenue)) for s in states] == [about(sum(earned[t + 1 : t + 13])) for t in range(15)]
    record = make_record(env.params, env.scenario, states[-1])
    assert float(record.score) == about(5 * sum(earned[15:27]) + float(states[-1].books.cash))


def test_the_disciplined_variant_prices_capital():
    """V0 = 45M: asking 9.1M leaves exp(-0.5 * 9.1/45) of the approval, and the shares go at 45.5M / 10.5M a piece."""
    env = flat(disciplined=True)
    approval = math.exp(-0.5 * 9.1 / 45) / (1 + math.exp(-1))
    assert env.name == "EnterpriseArena-Disciplined-v1"
    for outcome, shares in ((approval - 1e-5, 12.6e6), (approval + 1e-5, 10.5e6)):
        (state,) = states_of(env, [equity(9.1e6)], luck(outcome=outcome))
        assert float(state.books.shares) == pytest.approx(shares, rel=1e-6)
    (state,) = states_of(env, [equity(9.1e6)], luck(outcome=approval - 1e-5))
    # 30M of revenue at 5 and 24.6M of cash; 10.5 of 12.6M shares are the first holders'
    record = make_record(env.params, env.scenario, state)
    assert (float(record.score), float(record.value_kept)) == (about(54.6e6), about(54.6e6 * 10.5 / 12.6 - 45e6))
    broke = dataclasses.replace(state, status=jnp.int32(BANKRUPT))
    assert float(make_record(env.params, env.scenario, broke).value_kept) == about(-45e6)


def test_the_disciplined_variant_holds_a_debt_request_to_v_too_and_subtracts_debt():
    env = flat(disciplined=True, size_aversion=1.0, tool_cost=0.0)
    approval = math.exp(-1) / (1 + math.exp(-1.5))
    refused, granted = (states_of(env, [debt(45e6)], luck(outcome=approval + sign * 1e-5))[0] for sign in (1, -1))
    assert (refused.books.debt_principal, granted.books.debt_principal) == (0, about(45e6))
    kept = [float(make_record(env.params, env.scenario, state).value_kept) for state in (refused, granted)]
    assert kept == [about(0.5e6), about(0.5e6)]  # a month's cash; the proceeds are owed


def turned_away(state):
    return state.turned_away, state.tally.actions, state.tally.requests, state.month


def test_a_full_pipeline_turns_a_request_away():
    first, second = play(flat(), [equity(5e6), debt(6e6)], luck(delay=0.9))
    assert turned_away(first) == (NOT_TURNED_AWAY, 1, 1, 1)
    assert turned_away(second) == (PIPELINE_FULL, 2, 1, 2)
    assert (second.pending[0].instrument, second.tally.requested_debt) == (EQUITY, 0)


@pytest.mark.parametrize(
    ("instrument", "amount"),
    [(EQUITY, a) for a in (0.0, -1.0, math.nan, math.inf, -math.inf, 1.001e9)] + [(3, 1e6), (-1, 1e6)],
)
def test_a_bad_request_is_turned_away(instrument, amount):
    (state,) = play(flat(), [Action(jnp.bool_(False), jnp.int32(instrument), jnp.asarray(amount, dtype=FLOAT))])
    assert turned_away(state) == (BAD_REQUEST, 1, 0, 1)
    assert state.tally.requested_equity == state.tally.requested_debt == 0
    assert (state.tally.first_request_month, state.books.cash) == (-1, about(15.5e6))


def test_a_closing_takes_the_month():
    both = arena_jax.request_funding("equity", 5e6, close_books=True)
    last = play(flat(), [PASS] * 4 + [both])[-1]
    assert turned_away(last) == (MONTH_TAKEN, 1, 0, 5)
    assert last.books_closed_through == 3


# Identities under random and extreme play

BATCH, EXAMPLES = 1024, 10
SETTINGS = ({"max_pending": 1, "exclusive": True}, {"max_pending": 6, "exclusive": False})
TOLERANCE = 1e-12 if IS_X64 else 1e-5
BALANCES = (
    *("cash", "loans_gross", "allowance", "interest_receivable", "accounts_payable", "tax_payable"),
    *("debt_principal", "paid_in_capital", "retained_earnings", "tax_loss_carryforward"),
)
NEVER_NEGATIVE = (
    *("users", "loans_gross", "allowance", "interest_receivable", "accounts_payable", "tax_payable"),
    *("debt_principal", "debt_coupon", "tax_loss_carryforward", "shares"),
)
NOT_MONEY = ("new_users", "shares_issued")


def identities(params, month, before: Books, after: Books, shown: Statements):
    """What has to be zero in `month`, by name: $, and shares."""
    income, sheet, cash, capital = shown
    flows = after.flows
    change = {name: getattr(after, name) - getattr(before, name) for name in (*BALANCES, "shares")}
    pretax = flows.interest_income - flows.provision - flows.operating_cost - flows.interest_expense
    loss_used = jnp.maximum(-pretax, 0.0) - change["tax_loss_carryforward"]
    taxable = jnp.maximum(pretax, 0.0) - loss_used
    lines = {
        "assets are liabilities and equity": sheet.total_assets - sheet.total_liabilities - sheet.total_equity,
        "change in cash": cash.change_in_cash - change["cash"],
        "opening cash": cash.opening_cash - before.cash,
        "closing cash": cash.closing_cash - after.cash,
        "direct is indirect": cash.operating - cash.operating_indirect,
        "indirect, from the balances": cash.operating
        - (flows.net_income + flows.provision - change["interest_receivable"])
        - (change["accounts_payable"] + change["tax_payable"]),
        "retained earnings": change["retained_earnings"] - flows.net_income,
        "allowance": change["allowance"] - (flows.provision - flows.charge_offs + flows.recoveries),
        "loans": change["loans_gross"] - (flows.originations - flows.repayments - flows.charge_offs),
        "debt": change["debt_principal"] - (flows.debt_issued - flows.amortisation),
        "receivable": change["interest_receivable"] - (flows.interest_income - flows.interest_collected),
        "payable": change["accounts_payable"] - (flows.operating_cost - flows.costs_paid),
        "tax payable": change["tax_payable"] - (flows.tax_expense - flows.tax_paid),
        "tax expense": flows.tax_expense - params.tax_rate * taxable,
        "loss limit": jnp.maximum(loss_used - params.loss_limit * jnp.maximum(pretax, 0.0), 0.0),
        "quarterly tax": jnp.where(month % 3 == 2, after.tax_payable, flows.tax_paid),
        "paid-in capital": change["paid_in_capital"] - flows.equity_issued,
        "income statement": income.net_income - flows.net_income,
        "net interest income": income.interest_income - income.interest_expense - income.net_interest_income,
        "pre-tax income": income.pretax_income
        - (income.net_interest_income - income.provision - income.operating_cost),
        "net income": income.pretax_income - income.tax_expense - income.net_income,
        "net loans": sheet.loans_gross - sheet.allowance - sheet.loans_net,
        "total assets": sheet.cash + sheet.loans_net + sheet.interest_receivable - sheet.total_assets,
        "parts of debt": sheet.debt_current + sheet.debt_noncurrent - after.debt_principal,
        "current debt": jnp.minimum(jnp.minimum(sheet.debt_current, sheet.debt_noncurrent), 0.0),
        "total liabilities": sheet.total_liabilities
        - (sheet.accounts_payable + sheet.tax_payable + sheet.debt_current + sheet.debt_noncurrent),
        "total equity": sheet.paid_in_capital + sheet.retained_earnings - sheet.total_equity,
        "operating": cash.operating
        - (cash.interest_collected - cash.costs_paid - cash.interest_paid - cash.tax_paid),
        "investing": cash.investing - (cash.repayments + cash.recoveries - cash.originations),
        "financing": cash.financing - (cash.equity_issued + cash.debt_issued - cash.amortisation),
        "cash flow": cash.change_in_cash - (cash.operating + cash.investing + cash.financing),
        "opening equity": capital.opening_equity - (before.paid_in_capital + before.retained_earnings),
        "closing equity": capital.closing_equity
        - (capital.opening_equity + capital.equity_issued + capital.net_income),
    }  # fmt: skip
    shares = {
        "shares": change["shares"] - flows.shares_issued,
        "opening shares": capital.opening_shares - before.shares,
        "closing shares": capital.closing_shares - after.shares,
    }
    return lines, shares


def is_finite(tree):
    finite = jnp.bool_(True)
    for leaf in jax.tree.leaves(tree):
        finite = finite & jnp.isfinite(leaf).all()
    return finite


def gaps_of(params, before: State, after: State, scale):
    """The gap of each identity in the month between the states, relative to `scale` ($) or the shares."""
    shown = statements(params, after.books)
    money, shares = identities(params, before.month, before.books, after.books, shown)
    gaps = {name: jnp.abs(gap) / scale for name, gap in money.items()}
    gaps |= {name: jnp.abs(gap) / after.books.shares for name, gap in shares.items()}
    sound = {f"negative {name}": getattr(after.books, name) >= 0.0 for name in NEVER_NEGATIVE}
    sound["not finite"] = is_finite((dataclasses.replace(after, notebook=None, closed=None), shown))
    gaps |= {name: jnp.where(holds, 0.0, jnp.inf) for name, holds in sound.items()}
    return {name: jnp.where(before.status == RUNNING, gap, 0.0) for name, gap in gaps.items()}


def largest(books: Books, scale):
    """The largest of `scale`, the balances and the flows, $."""
    sizes = [getattr(books, name) for name in BALANCES] + [total_assets(books)]
    sizes += [flow for name, flow in vars(books.flows).items() if name not in NOT_MONEY]
    for size in sizes:
        scale = jnp.maximum(scale, jnp.abs(size))
    return scale


def episode(env, actions, draws):
    """Play one episode of [months] actions and luck: the worst gap of each identity, the months played, the end.

    The scale is the largest balance or flow of the episode so far: a sum such as retained earnings keeps the
    rounding of the largest numbers that went through it, also when the company has shrunk since.
    """

    def one_month(carry, given):
        state, scale, worst = carry
        after = a_month(env, state, *given)
        scale = largest(after.books, scale)
        gaps = gaps_of(env.params, state, after, scale)
        return (after, scale, {name: jnp.maximum(worst[name], gaps[name]) for name in gaps}), state.status == RUNNING

    start = opening(env)
    scale = largest(start.books, jnp.zeros_like(start.books.cash))
    worst = {name: jnp.zeros_like(scale) for name in jax.eval_shape(gaps_of, env.params, start, start, scale)}
    (last, _, worst), played = jax.lax.scan(one_month, (start, scale, worst), (actions, draws))
    return worst, played.sum(), last.status


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def episodes(env, values, actions, draws):
    def one(env, values, actions, draws):
        return episode(dataclasses.replace(env, params=dataclasses.replace(env.params, **values)), actions, draws)

    return pruned(jax.vmap(one, in_axes=(None, 0, 0, 0)))(env, values, actions, draws)


def random_values(rng, n):
    """Each parameter of each of n episodes at its default, an end of its range or between; some keep most defaults."""
    share = rng.choice([0.0, 0.02, 0.1, 0.3, 1.0], n)
    values = {}
    for name, field in FIELDS.items():
        if name in STATIC:
            continue
        low, high = float(field.metadata["low"]), float(field.metadata["high"])
        between = low + (high - low) * rng.random(n) ** 3
        if isinstance(field.default, int):
            between = np.round(between)
        moved = np.where(rng.random(n) < 0.2, between, np.where(rng.random(n) < 0.5, low, high))
        values[name] = np.where(rng.random(n) < share, moved, field.default)
    for low, high in CONTRADICTIONS:
        values[low], values[high] = np.minimum(values[low], values[high]), np.maximum(values[low], values[high])
    return values


def random_actions(rng, n):
    """[n, months] closings, known and unknown instruments, and amounts good, tiny, huge and senseless."""
    shape = (n, HORIZON)
    known, codes = rng.integers(0, 3, shape), np.array([-(2**31), -1, 3, 7, 2**31 - 1])
    instrument = np.where(rng.random(shape) < 0.05, rng.choice(codes, shape), known)
    instrument = np.where(rng.random(shape) < rng.random((n, 1)), instrument, NO_REQUEST)
    extremes = np.array([np.nan, np.inf, -np.inf, 0.0, -1e7, 1e-40, 1e-6, 1e9, 1.1e9, 3e38])
    amount = np.where(rng.random(shape) < 0.1, rng.choice(extremes, shape), 10 ** rng.uniform(0, 9, shape))
    amount = np.where(rng.random(shape) < rng.random((n, 1)), rng.uniform(1e6, 40e6, shape), amount)
    close = rng.random(shape) < rng.random((n, 1)) ** 2
    return Action(jnp.asarray(close), jnp.asarray(instrument, dtype=jnp.int32), jnp.asarray(amount, dtype=FLOAT))


def random_luck(rng, n):
    """[n, months] draws, some of them at the ends of what the stream can give: 5.4 sigma, uniforms next to 0 and 1."""
    normals = rng.standard_normal((13, n, HORIZON))
    normals = np.where(rng.random(normals.shape) < 0.02, 5.42 * np.sign(normals), normals)
    uniforms = rng.random((3, n, HORIZON))
    uniforms = np.where(rng.random(uniforms.shape) < 0.05, np.round(uniforms), uniforms).clip(2.0**-24, 1 - 2.0**-24)
    normals, uniforms = (jnp.asarray(part, dtype=FLOAT) for part in (normals, uniforms))
    return Draws(MonthDraws(Indicators(*normals[:10]), Flash(*normals[10:])), RequestDraws(*uniforms))


def test_the_books_close_in_ten_thousand_random_episodes():
    played, months, ends, worst = collections.Counter(), 0, collections.Counter(), collections.Counter()

    @settings(
        max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, phases=[Phase.explicit, Phase.generate]
    )
    @given(setting=st.sampled_from(range(len(SETTINGS))), seed=st.integers(0, 2**32 - 1))
    def play_a_batch(setting, seed):
        nonlocal months
        rng = np.random.default_rng(seed)
        env, values = arena_jax.make(**SETTINGS[setting]), random_values(rng, BATCH)
        swept, _ = arena_jax.sweep(env, **values)
        leaves = {name: getattr(swept.params, name) for name in values}
        gaps, lived, status = episodes(env, leaves, random_actions(rng, BATCH), random_luck(rng, BATCH))
        for name, gap in gaps.items():
            row = int(np.argmax(np.asarray(gap)))  # finds a NaN first
            worst[name] = max(worst[name], float(gap[row]))
            assert gap[row] <= TOLERANCE, (
                f"{name}: a gap of {float(gap[row]):.3g} of the scale in episode {row} of batch {(setting, seed)} with "
                f"{ {key: float(v[row]) for key, v in values.items() if v[row] != FIELDS[key].default} }"
            )
        played[setting] += BATCH
        months += int(lived.sum())
        ends.update(np.asarray(status).tolist())

    play_a_batch()
    print(f"episodes by setting {dict(played)}, months {months}, ends {dict(ends)}")
    for name, gap in worst.most_common(8):
        print(f"  {name}: at most {gap:.3g} of the scale")
    assert sum(played.values()) >= 10_000 and len(played) == len(SETTINGS)
    assert min(ends[BANKRUPT], ends[COMPLETED]) >= 1_000 and months >= 30 * 10_000
