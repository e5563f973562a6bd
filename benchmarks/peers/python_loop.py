"""The model in plain Python: one scalar loop per episode, with the standard library's random numbers."""

from __future__ import annotations

import random

import numpy as np

from benchmarks.peers.world import (
    ALLOWANCE_RATE,
    DEBT_MACRO,
    DEBT_RATE,
    EQUITY,
    EQUITY_MACRO,
    INDICATORS,
    TAX_DUE,
    Ended,
    Outcome,
    Policy,
    World,
    make_outcome,
)

WINDOW = 12  # months of trailing revenue


def play(world: World, policy: Policy, episodes: int, seed: int) -> Outcome:
    """Play the episodes to their ends, one after the other."""
    rng = random.Random(seed)
    # lists and floats of Python itself: NumPy's scalars are slower
    months, sigma = world.months.tolist(), world.sigma.tolist()
    rows = [_episode(world, policy, months, sigma, rng) for _ in range(episodes)]
    return make_outcome(world, policy, Ended(*map(np.array, zip(*rows, strict=True))))


def _episode(
    w: World, policy: Policy, months: list[list[float]], sigma: list[float], rng: random.Random
) -> tuple[float, ...]:
    gauss, uniform = rng.gauss, rng.random
    s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 = sigma
    amount, threshold, is_equity = policy.amount, policy.threshold, policy.instrument == EQUITY
    renewal_rate, recovery_rate, amortised = w.renewal_rate, w.recovery_rate, w.amortised
    tax_rate, loss_limit = w.tax_rate, w.loss_limit
    users, cash, loans, allowance = w.users, w.cash, w.loans, w.allowance
    receivable, payable, tax_payable, losses = w.receivable, w.payable, 0.0, 0.0
    debt, coupon, paid_in, retained, shares = 0.0, 0.0, w.paid_in, w.retained, w.shares
    revenue, revenue_ttm = [w.revenue] * WINDOW, WINDOW * w.revenue
    months_left, granted, company, received = 0, 0.0, 1.0, 0.0
    tool_calls, requests, settled, approvals, first_request = 0, 0, 0, 0, -1
    peak, peak_month, trough, trough_month = cash, 0, cash, 0

    for t, row in enumerate(months):
        # act
        if amount and not months_left:
            tool_calls += policy.verifies
            if cash < threshold:
                if is_equity:
                    chance = row[EQUITY_MACRO] * company
                else:
                    leverage = debt / max(cash + loans - allowance + receivable, 1.0)
                    chance = row[DEBT_MACRO] * min(max(1.0 - leverage / w.leverage_limit, 0.0), 1.0)
                approved = uniform() < chance
                granted = (w.fraction_min + w.fraction_span * uniform()) * amount if approved else 0.0
                months_left = int(w.delay_min + w.delay_span * uniform())
                if not requests:
                    first_request = t
                requests += 1

        # operate; a comparison is quicker than a call of min or max
        growth = row[0] + s0 * gauss(0.0, 1.0)
        size = row[1] + s1 * gauss(0.0, 1.0)
        rate = row[2] + s2 * gauss(0.0, 1.0)
        repaid = row[3] + s3 * gauss(0.0, 1.0)
        lost = row[4] + s4 * gauss(0.0, 1.0)
        servicing = row[5] + s5 * gauss(0.0, 1.0)
        fixed = row[6] + s6 * gauss(0.0, 1.0)
        acquisition = row[7] + s7 * gauss(0.0, 1.0)
        interest_lag = row[8] + s8 * gauss(0.0, 1.0)
        cost_lag = row[9] + s9 * gauss(0.0, 1.0)
        growth = growth if growth > 0.0 else 0.0
        size = size if size > 0.0 else 0.0
        rate = rate if rate > 0.0 else 0.0
        repaid = 0.0 if repaid < 0.0 else 1.0 if repaid > 1.0 else repaid
        lost = 0.0 if lost < 0.0 else 1.0 - repaid if lost > 1.0 - repaid else lost
        servicing = servicing if servicing > 0.0 else 0.0
        fixed = fixed if fixed > 0.0 else 0.0
        acquisition = acquisition if acquisition > 0.0 else 0.0
        interest_lag = 0.0 if interest_lag < 0.0 else 1.0 if interest_lag > 1.0 else interest_lag
        cost_lag = 0.0 if cost_lag < 0.0 else 1.0 if cost_lag > 1.0 else cost_lag

        new = growth * users
        repayments = repaid * loans
        charge_offs = lost * loans
        recoveries = recovery_rate * charge_offs
        originations = new * size + renewal_rate * repayments
        interest = (loans - charge_offs) * rate
        users += new - ((1.0 - renewal_rate) * repaid + lost) * users
        loans += originations - repayments - charge_offs
        cost = servicing * users + fixed + acquisition * new

        # the books: accruals
        target = row[ALLOWANCE_RATE] * loans
        provision = target - (allowance - charge_offs + recoveries)
        allowance = target
        interest_expense = coupon / 12.0
        pretax = interest - provision - cost - interest_expense
        tax = 0.0
        if pretax > 0.0:
            used = loss_limit * pretax
            used = used if used < losses else losses
            tax = tax_rate * (pretax - used)
            losses -= used
        else:
            losses -= pretax
        retained += pretax - tax

        # the books: cash
        tax_payable += tax
        tax_paid = tax_payable if row[TAX_DUE] else 0.0
        tax_payable -= tax_paid
        amortisation = debt * amortised
        interest_late, cost_late = interest_lag * interest, cost_lag * cost
        cash += (
            repayments + recoveries + receivable + interest - interest_late
            - originations - payable - cost + cost_late - interest_expense - amortisation - tax_paid
        )  # fmt: skip
        receivable, payable = interest_late, cost_late
        debt -= amortisation
        coupon -= coupon * amortised
        slot = t % WINDOW
        revenue_ttm += interest - revenue[slot]
        revenue[slot] = interest

        # settle
        if months_left:
            months_left -= 1
            if not months_left:
                settled += 1
                if granted:
                    approvals += 1
                    received += granted
                    if is_equity:
                        company *= w.round_factor
                        value = w.listing_multiple * revenue_ttm + cash - debt
                        shares += granted / max(w.price_scale * value / shares, w.price_floor)
                        paid_in += granted
                    else:
                        debt += granted
                        coupon += granted * row[DEBT_RATE]
                    cash += granted

        # check
        if cash > peak and not received:
            peak, peak_month = cash, t + 1
        if cash < trough:
            trough, trough_month = cash, t + 1
            if cash < 0.0:
                break

    assets = cash + loans - allowance + receivable
    gap = (assets - payable - tax_payable - debt - paid_in - retained) / assets
    return (
        cash < 0.0, t + 1, revenue_ttm, cash, debt, shares, tool_calls, requests, settled, approvals, received,
        first_request, peak, peak_month, trough, trough_month, gap,
    )  # fmt: skip


def draw(world: World, episodes: int, seed: int) -> np.ndarray:
    """The normals of all months alone, summed per episode [n]: what the random numbers cost."""
    gauss = random.Random(seed).gauss
    count = len(world.months) * len(INDICATORS)
    return np.array([sum([gauss(0.0, 1.0) for _ in range(count)]) for _ in range(episodes)])
