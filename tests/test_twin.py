"""The reference world checked against itself, hand computation and the published anchors."""

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
import twin
from twin import DEBT, EQUITY, Action, Draws, Flows, Request

COLUMNS = twin.read_columns(Path(__file__).parents[1] / "data" / "macro_trajectory.csv")
PASS = Action()
CENT = 0.01


def episode_key(index):
    return twin.threefry2x32(0, 0, 0, index)


def months(policy, index, params=twin.DEFAULTS, columns=COLUMNS):
    """Play one episode; yield (opening state, flows, closing state) of every month."""
    state, key = twin.reset(params, columns), episode_key(index)
    while state.status == twin.RUNNING:
        luck = twin.draws(key, state.month, state.requests)
        after, flows = twin.step(params, columns, state, policy(state), luck)
        yield state, flows, after
        state = after


def play(policy, episodes, params=twin.DEFAULTS):
    """The records of episodes 0 .. episodes - 1."""
    last = [list(months(policy, i, params))[-1][2] for i in range(episodes)]
    return [twin.record(params, COLUMNS, state) for state in last]


def never_raise(state):
    return PASS


def close_always(state):
    return Action(close_books=True)


def greedy_equity(state):
    return PASS if state.pending else Action(instrument=EQUITY, amount=20e6)


def greedy_debt(state):
    return PASS if state.pending else Action(instrument=DEBT, amount=20e6)


def one_shot(state):
    return Action(instrument=EQUITY, amount=20e6) if state.month == 0 else PASS


def mixed(state):
    """Closes every third month and asks every month, in turn for equity and debt."""
    return Action(state.month % 3 == 0, 1 + state.month % 2, 4e6 + 1e5 * state.month)


RELAXED = twin.DEFAULTS | {"exclusive": False, "max_pending": 6}
CASES = {
    "never raise": (never_raise, twin.DEFAULTS),
    "close always": (close_always, twin.DEFAULTS),
    "one shot": (one_shot, twin.DEFAULTS),
    "greedy equity": (greedy_equity, twin.DEFAULTS),
    "greedy debt": (greedy_debt, twin.DEFAULTS),
    "mixed": (mixed, twin.DEFAULTS),
    "mixed, relaxed": (mixed, RELAXED),
    "no noise": (mixed, RELAXED | {"noise": 0.0}),
}


@pytest.fixture(params=CASES, scope="module")
def history(request):
    policy, params = CASES[request.param]
    return [month for i in range(6) for month in months(policy, i, params)]


# The random stream


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_known_answers(key, counter, words):
    assert twin.threefry2x32(*key, *counter) == words


def test_uniforms_stay_inside_the_unit_interval():
    assert twin.uniform(0) == 2.0**-24
    assert twin.uniform(0xFFFFFFFF) == 1 - 2.0**-24
    assert twin.normal(0.5) == 0.0


def test_draws_take_the_words_in_order():
    key = (7, 11)
    luck = twin.draws(key, 3, 2)
    w8, w9 = twin.threefry2x32(*key, 3, 4)
    w12, _ = twin.threefry2x32(*key, 3, 6)
    assert luck.indicators[8:] == [twin.normal(twin.uniform(w)) for w in (w8, w9)]
    assert luck.flash[2] == twin.normal(twin.uniform(w12))
    words = twin.threefry2x32(*key, 2, 16) + twin.threefry2x32(*key, 2, 17)
    assert luck.request == [twin.uniform(w) for w in words[:3]]


def test_the_kth_request_has_the_same_luck_in_any_month():
    assert twin.draws((1, 2), 5, 1).request == twin.draws((1, 2), 90, 1).request
    assert twin.draws((1, 2), 5, 1).request != twin.draws((1, 2), 5, 2).request


def test_draws_look_normal_and_uniform():
    sample = [twin.draws(episode_key(i), t, t) for i in range(40) for t in range(25)]
    normals = [e for d in sample for e in d.indicators + d.flash]
    uniforms = [u for d in sample for u in d.request]
    assert mean(normals) == pytest.approx(0, abs=0.03)
    assert mean(e * e for e in normals) == pytest.approx(1, abs=0.05)
    assert mean(uniforms) == pytest.approx(0.5, abs=0.02)


# The books


def equity_of(s):
    return s.paid_in_capital + s.retained_earnings


def gap(s):
    assets = s.cash + s.loans_gross - s.allowance + s.interest_receivable
    return assets - s.accounts_payable - s.tax_payable - s.debt_principal - equity_of(s)


def test_balance_sheet_closes(history):
    assert abs(gap(history[0][0])) < CENT
    assert max(abs(gap(after)) for _, _, after in history) < CENT


def test_direct_and_indirect_cash_flow_agree(history):
    for before, f, after in history:
        direct = f.interest_collected - f.costs_paid - f.interest_expense - f.tax_paid
        indirect = f.net_income + f.provision
        indirect -= after.interest_receivable - before.interest_receivable
        indirect += after.accounts_payable - before.accounts_payable
        indirect += after.tax_payable - before.tax_payable
        investing = f.repayments + f.recoveries - f.originations
        financing = f.equity_issued + f.debt_issued - f.amortisation
        assert abs(direct - indirect) < CENT
        assert abs(direct + investing + financing - (after.cash - before.cash)) < CENT


def test_balances_roll(history):
    for before, f, after in history:
        earned = f.interest_income - f.provision - f.operating_cost - f.interest_expense
        assert abs(earned - f.tax_expense - f.net_income) < CENT
        rolls = {
            "retained_earnings": f.net_income,
            "allowance": f.provision - f.charge_offs + f.recoveries,
            "loans_gross": f.originations - f.repayments - f.charge_offs,
            "debt_principal": f.debt_issued - f.amortisation,
            "tax_payable": f.tax_expense - f.tax_paid,
            "paid_in_capital": f.equity_issued,
            "shares": f.shares_issued,
        }
        for name, change in rolls.items():
            assert abs(getattr(after, name) - getattr(before, name) - change) < CENT, name
        target = twin.target_allowance(twin.DEFAULTS, COLUMNS, before.month, after.loans_gross)
        assert abs(after.allowance - target) < CENT
        assert after.revenue == [*before.revenue[1:], f.interest_income]


def test_tax_is_paid_each_quarter_and_never_negative(history):
    for before, f, after in history:
        assert f.tax_expense >= 0 and after.tax_loss_carryforward >= -CENT
        assert after.tax_payable == 0 if before.month % 3 == 2 else f.tax_paid == 0


def test_coupon_is_the_sum_over_tranches():
    """One number for all open debt equals tranche by tranche book-keeping."""
    tranches, term = [], RELAXED["debt_term"]
    for before, f, after in months(mixed, 3, RELAXED):
        assert f.interest_expense == pytest.approx(sum(p * r / 100 for p, r in tranches) / 12)
        tranches = [(p * (1 - 1 / term), r) for p, r in tranches]
        rate = twin.market_rate(COLUMNS, min(before.month + 1, 131)) + 2.0
        if f.debt_issued:
            tranches.append((f.debt_issued, rate))
        assert after.debt_principal == pytest.approx(sum(p for p, _ in tranches))
    assert len(tranches) > 3


def test_loss_carryforward_shelters_at_most_80_percent():
    state = replace(twin.reset(FLAT, FLAT_COLUMNS), tax_loss_carryforward=1e6)
    after, f = twin.step(FLAT, FLAT_COLUMNS, state, PASS, luck())
    assert f.tax_expense == pytest.approx(0.21 * 0.2 * 500_000)
    assert after.tax_loss_carryforward == pytest.approx(600_000)


# A world simple enough for paper and pencil: $500,000 of interest a month and nothing else


FLAT = twin.DEFAULTS | dict.fromkeys(
    ("repayment_rate", "repayment_stress", "charge_off_rate", "servicing_cost", "fixed_cost")
    + ("interest_lag", "cost_lag", "noise"),
    0.0,
)
FLAT |= {"fraction_min": 1.0}
FLAT_COLUMNS = {
    "treasury_2y": [2.0] * 132,
    "credit_spread": [6.2] * 132,  # lends at 2.0 + 6.2 + 3.8 = 12%: $50M earn $500,000 a month
    "user_growth": [0.0] * 132,
    "volatility": [18.0] * 132,
    "lending_tightness": [0.0] * 132,
    "delinquency": [2.3] * 132,
}


def luck(outcome=0.5, fraction=0.5, delay=0.01):
    return Draws([0.0] * 10, [0.0] * 3, [outcome, fraction, delay])


def test_equity_settles_at_the_indexed_price():
    """V0 = 5 * 6M + 15M = 45M; a month later cash is 15.5M, V = 45.5M, the price 10 * 45.5/45."""
    state = twin.reset(FLAT, FLAT_COLUMNS)
    state, f = twin.step(FLAT, FLAT_COLUMNS, state, Action(False, EQUITY, 9.1e6), luck())
    assert f.net_income == pytest.approx(395_000)  # 500,000 less 21% tax, due in month 2
    assert f.shares_issued == pytest.approx(900_000)  # 9.1M / 10.111
    assert state.cash == pytest.approx(24.6e6)
    assert (state.month, state.equity_rounds, state.approvals, state.pending) == (1, 1, 1, [])
    assert twin.record(FLAT, FLAT_COLUMNS, state)["ownership_kept"] == pytest.approx(10.5 / 11.4)
    assert twin.record(FLAT, FLAT_COLUMNS, state)["value_per_share"] == pytest.approx(54.6 / 11.4)


def test_debt_takes_the_rate_of_the_month_it_opens():
    """Settled when month 1 opens, at month 1's 3.0 + 6.7 + 2.0 = 11.7%; serviced from month 1."""
    columns = deepcopy(FLAT_COLUMNS)
    columns["treasury_2y"][1], columns["credit_spread"][1] = 3.0, 6.7
    state = twin.reset(FLAT, columns)
    state, f = twin.step(FLAT, columns, state, Action(False, DEBT, 6e6), luck())
    assert (f.debt_issued, f.interest_expense, f.amortisation) == (6e6, 0.0, 0.0)
    assert state.debt_coupon == pytest.approx(702_000)
    assert state.cash == pytest.approx(21.5e6)
    state, f = twin.step(FLAT, columns, state, PASS, luck())
    assert f.interest_expense == pytest.approx(58_500)
    assert f.amortisation == pytest.approx(200_000)
    assert state.debt_principal == pytest.approx(5.8e6)
    assert state.debt_coupon == pytest.approx(678_600)


def test_what_settles_together_is_priced_before_all_proceeds():
    params = FLAT | {"max_pending": 2}
    state = twin.reset(params, FLAT_COLUMNS)
    state, f = twin.step(params, FLAT_COLUMNS, state, Action(False, DEBT, 6e6), luck(delay=0.2))
    assert state.pending == [Request(DEBT, 6e6, 6e6, 0, 1)] and f.debt_issued == 0
    state, f = twin.step(params, FLAT_COLUMNS, state, Action(False, EQUITY, 9.2e6), luck())
    assert (f.debt_issued, f.equity_issued) == (6e6, 9.2e6)
    assert f.shares_issued == pytest.approx(900_000)  # 10 * 46/45 a share
    assert state.cash == pytest.approx(16e6 + 15.2e6)


def test_price_has_a_floor():
    state = replace(twin.reset(FLAT, FLAT_COLUMNS), debt_principal=1e9)
    _, f = twin.step(FLAT, FLAT_COLUMNS, state, Action(False, EQUITY, 1e4), luck(0.1))
    assert f.shares_issued == pytest.approx(1e6)


def test_approval_by_hand():
    """z = 0: sigmoid(1) = 0.731 * 0.778^2 for equity; leverage 0.194 leaves 3/4 of sigmoid(1.5)."""
    state = replace(twin.reset(FLAT, FLAT_COLUMNS), equity_rounds=2, debt_principal=0.194 * 65e6)
    p_equity = twin.approval(FLAT, FLAT_COLUMNS, state, EQUITY, 5e6)
    assert p_equity == pytest.approx(0.778**2 / (1 + math.exp(-1)))
    p_debt = twin.approval(FLAT, FLAT_COLUMNS, state, DEBT, 5e6)
    assert p_debt == pytest.approx(0.75 / (1 + math.exp(-1.5)))
    for outcome, granted in ((p_equity - 1e-9, 5e6), (p_equity + 1e-9, 0.0)):
        ask = Action(False, EQUITY, 5e6)
        after, _ = twin.step(FLAT, FLAT_COLUMNS, state, ask, luck(outcome, delay=0.99))
        assert after.pending == [Request(EQUITY, 5e6, granted, 0, 5)]


DISCIPLINED = FLAT | {"disciplined": True}


def test_capital_costs_its_price_in_the_disciplined_variant():
    """V0 = 45M. Asking 9.1M leaves exp(-0.5 * 9.1/45) of the approval; the shares go at 45.5M / 10.5M a piece."""
    state = twin.reset(DISCIPLINED, FLAT_COLUMNS)
    free = twin.approval(FLAT, FLAT_COLUMNS, state, EQUITY, 9.1e6)
    p_equity = twin.approval(DISCIPLINED, FLAT_COLUMNS, state, EQUITY, 9.1e6)
    assert p_equity == pytest.approx(free * math.exp(-0.5 * 9.1 / 45))
    assert twin.approval(DISCIPLINED, FLAT_COLUMNS, state, DEBT, 45e6) == pytest.approx(
        math.exp(-0.5) / (1 + math.exp(-1.5))
    )
    ask = Action(False, EQUITY, 9.1e6)
    refused, f = twin.step(DISCIPLINED, FLAT_COLUMNS, state, ask, luck(p_equity + 1e-9))
    assert f.shares_issued == 0 and refused.requests_settled == 1
    state, f = twin.step(DISCIPLINED, FLAT_COLUMNS, state, ask, luck(p_equity - 1e-9), (1, 0, 2, 1))
    assert f.shares_issued == pytest.approx(2.1e6)
    # 30M of revenue at 5, 24.6M of cash and 20,000 of tools make 54.58M; 10.5 of 12.6M shares are the first holders'
    r = twin.record(DISCIPLINED, FLAT_COLUMNS, state)
    assert r["value_kept"] == pytest.approx(54.58e6 * 10.5 / 12.6 - 45e6)
    assert r["score"] == pytest.approx(54.58e6)
    broke = replace(state, status=twin.BANKRUPT)
    assert twin.record(DISCIPLINED, FLAT_COLUMNS, broke)["value_kept"] == pytest.approx(-45e6)


# The rules of a month


@pytest.mark.parametrize("amount", [0.0, -1.0, math.nan, math.inf, 1.0001e9])
def test_an_amount_out_of_bounds_is_turned_away(amount):
    state = twin.reset(FLAT, FLAT_COLUMNS)
    after, _ = twin.step(FLAT, FLAT_COLUMNS, state, Action(False, DEBT, amount), luck())
    assert (after.actions, after.requests, after.first_request_month) == (1, 0, -1)


def test_closing_and_request_in_one_month():
    both = Action(True, EQUITY, 1e6)
    state = replace(twin.reset(FLAT, FLAT_COLUMNS), month=4)
    for params, actions, requests in ((FLAT, 1, 0), (FLAT | {"exclusive": False}, 2, 1)):
        after, _ = twin.step(params, FLAT_COLUMNS, state, both, luck(delay=0.9))
        assert (after.books_closed_through, after.actions, after.requests) == (3, actions, requests)


def test_a_refusal_settles_too():
    ask = Action(False, EQUITY, 1e6)
    state, f = twin.step(FLAT, FLAT_COLUMNS, twin.reset(FLAT, FLAT_COLUMNS), ask, luck(0.99))
    assert (state.requests_settled, state.approvals, state.equity_rounds) == (1, 0, 0)
    assert f.equity_issued == 0 and state.pending == []


def test_flash_error_grows_with_the_root_of_the_open_months():
    noisy = Draws([0.0] * 10, [1.0, -1.0, 0.5], [0.5] * 3)
    state = replace(twin.reset(FLAT, FLAT_COLUMNS), month=8, books_closed_through=-1)
    params = FLAT | {"noise": 1.0}
    stale, f = twin.step(params, FLAT_COLUMNS, state, PASS, noisy)
    assert stale.flash["users"] == pytest.approx(5000 * 1.06)
    assert stale.flash["collections"] == pytest.approx(1.03 * f.interest_collected)
    fresh, _ = twin.step(params, FLAT_COLUMNS, state, Action(close_books=True), noisy)
    assert fresh.flash["users"] == pytest.approx(5000 * 1.02)


def test_a_finished_state_is_left_alone():
    for policy in (never_raise, greedy_equity):
        end = list(months(policy, 0))[-1][2]
        assert end.status != twin.RUNNING and end.pending == []
        ask = Action(True, EQUITY, 20e6)
        after, flows = twin.step(twin.DEFAULTS, COLUMNS, end, ask, luck(), (1, 1, 1, 1))
        assert after == end and flows == Flows()


def test_a_step_leaves_its_input_alone():
    for before, _, _ in months(mixed, 1, RELAXED):
        kept = deepcopy(before)
        draws = twin.draws(episode_key(1), before.month, before.requests)
        twin.step(RELAXED, COLUMNS, before, mixed(before), draws, (1, 2, 3, 4))
        assert before == kept


def test_bankruptcy_keeps_the_month_and_scores_nothing():
    before, _, end = list(months(never_raise, 0))[-1]
    r = twin.record(twin.DEFAULTS, COLUMNS, end)
    assert end.status == twin.BANKRUPT and end.cash < 0 and end.month == before.month
    assert (r["months_survived"], r["months_played"]) == (end.month, end.month + 1)
    assert (r["survived"], r["score"], r["value_per_share"]) == (False, 0.0, 0.0)
    assert (r["cash_trough"], r["cash_trough_month"]) == (end.cash, end.month + 1)


def test_peak_is_taken_before_the_first_proceeds():
    state, f = twin.step(FLAT, FLAT_COLUMNS, twin.reset(FLAT, FLAT_COLUMNS), Action(False, EQUITY, 9.1e6), luck())
    assert f.equity_issued and (state.cash_peak, state.cash_peak_month) == (15e6, 0)
    state, _ = twin.step(FLAT, FLAT_COLUMNS, twin.reset(FLAT, FLAT_COLUMNS), PASS, luck())
    assert (state.cash_peak, state.cash_peak_month) == (15.5e6, 1)


def test_score_pays_for_tools():
    state = twin.reset(FLAT, FLAT_COLUMNS)
    state, _ = twin.step(FLAT, FLAT_COLUMNS, state, PASS, luck(), (1, 0, 2, 1))
    assert twin.score(FLAT, state) == pytest.approx(5 * 6e6 + 15.5e6 - 20_000)
    assert twin.record(FLAT, FLAT_COLUMNS, state)["tool_calls"] == [1, 0, 2, 1]


# The published anchors


def test_never_raise_dies_at_about_33_months():
    records = play(never_raise, 200)
    assert not any(r["survived"] for r in records)
    assert mean(r["months_survived"] for r in records) == pytest.approx(33.3, abs=0.5)


def test_greedy_equity_survives():
    records = play(greedy_equity, 200)
    assert mean(r["survived"] for r in records) >= 0.98
    assert mean(r["approvals"] for r in records) == pytest.approx(8.1, abs=0.3)
