"""The model in NumPy: a month of all episodes at a time, in one thread, on float32 arrays that fit the cache.

Ended episodes are marked by cash that is not a number, which no comparison accepts, and dropped once enough of them
have gathered: copying the state each month would cost more than it saves.
"""

from __future__ import annotations

from types import SimpleNamespace

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
BLOCK = 4096  # episodes played at once
LIVE_SHARE = 0.8  # below it ended episodes are dropped
DTYPE = np.float32
# rows of the state after the window of revenue; counts are floats too, so that one array holds the state
ROWS = (
    "users", "cash", "loans", "allowance", "receivable", "payable", "tax_payable", "losses", "debt", "coupon",
    "paid_in", "retained", "shares", "revenue_ttm", "due", "granted", "company", "received", "tool_calls", "requests",
    "requests_settled", "approvals", "first_request_month", "cash_peak", "cash_peak_month", "cash_trough",
    "cash_trough_month",
)  # fmt: skip


def play(world: World, policy: Policy, episodes: int, seed: int) -> Outcome:
    """Play the episodes to their ends, a block at a time."""
    rng = np.random.Generator(np.random.SFC64(seed))
    blocks = [_block(world, policy, min(BLOCK, episodes - first), rng) for first in range(0, episodes, BLOCK)]
    return make_outcome(world, policy, Ended(*map(np.concatenate, zip(*blocks, strict=True))))


def _opening(w: World, episodes: int) -> np.ndarray:
    """The state [12 + rows, n] as month 0 opens."""
    start = {name: value for name, value in w._asdict().items() if name in ROWS}
    start |= {"company": 1.0, "first_request_month": -1.0, "cash_peak": w.cash, "cash_trough": w.cash}
    start |= {"revenue_ttm": WINDOW * w.revenue}
    state = np.empty((WINDOW + len(ROWS), episodes), dtype=DTYPE)
    state[:WINDOW] = w.revenue
    state[WINDOW:] = np.array([[start.get(name, 0.0)] for name in ROWS])
    return state


def _rows(state: np.ndarray) -> SimpleNamespace:
    """Views of the state's rows by name."""
    return SimpleNamespace(**dict(zip(ROWS, state[WINDOW:], strict=True)))


def _block(w: World, policy: Policy, episodes: int, rng: np.random.Generator) -> Ended:
    state, sigma = _opening(w, episodes), w.sigma.astype(DTYPE)[:, None]
    s, noise = _rows(state), np.empty((len(INDICATORS), episodes), dtype=DTYPE)
    columns, live = np.arange(episodes), episodes  # the columns' places in the block; those still running
    final, bankrupt, played = np.empty_like(state), np.zeros(episodes, dtype=bool), np.full(episodes, len(w.months))

    for t, row in enumerate(w.months.tolist()):
        if policy.amount:
            _ask(w, policy, row, t, s, rng)
        rng.standard_normal(out=noise, dtype=DTYPE)
        _operate(w, row, sigma, s, noise, state[t % WINDOW])
        if policy.amount:
            _settle(w, policy, row, t, s)

        # check
        higher = (s.cash > s.cash_peak) & (s.received == 0.0)
        np.copyto(s.cash_peak, s.cash, where=higher)
        np.copyto(s.cash_peak_month, t + 1, where=higher)
        np.copyto(s.cash_trough_month, t + 1, where=s.cash < s.cash_trough)
        np.minimum(s.cash_trough, s.cash, out=s.cash_trough)
        dead = np.flatnonzero(s.cash < 0.0)
        if dead.size:
            places = columns[dead]
            final[:, places] = state[:, dead]
            bankrupt[places], played[places] = True, t + 1
            s.cash[dead], s.due[dead] = np.nan, -1.0
            live -= dead.size
            if live == 0:
                break
            if live < LIVE_SHARE * columns.size:
                running = ~np.isnan(s.cash)
                state, columns = state[:, running], columns[running]
                s, noise = _rows(state), np.empty((len(INDICATORS), live), dtype=DTYPE)

    running = ~np.isnan(s.cash)
    final[:, columns[running]] = state[:, running]
    return _ended(_rows(final), bankrupt, played)


def _ask(w: World, policy: Policy, row: list[float], t: int, s: SimpleNamespace, rng: np.random.Generator) -> None:
    none_open = s.due <= t
    if policy.verifies:
        s.tool_calls += none_open
    asking = np.flatnonzero(none_open & (s.cash < policy.threshold))
    if policy.instrument == EQUITY:
        chance = row[EQUITY_MACRO] * s.company[asking]
    else:
        assets = s.cash[asking] + s.loans[asking] - s.allowance[asking] + s.receivable[asking]
        leverage = s.debt[asking] / np.maximum(assets, 1.0)
        chance = row[DEBT_MACRO] * np.clip(1.0 - leverage / w.leverage_limit, 0.0, 1.0)
    outcome, fraction, delay = rng.random((3, asking.size), dtype=DTYPE)
    s.granted[asking] = (outcome < chance) * (w.fraction_min + w.fraction_span * fraction) * policy.amount
    s.due[asking] = t + w.delay_min + np.floor(w.delay_span * delay)
    s.first_request_month[asking[s.requests[asking] == 0.0]] = t
    s.requests[asking] += 1.0


def _operate(
    w: World, row: list[float], sigma: np.ndarray, s: SimpleNamespace, noise: np.ndarray, earned: np.ndarray
) -> None:
    """Lend for a month and keep both books; `earned` is the month's row of the revenue window."""
    noise *= sigma
    noise += np.array(row[: len(INDICATORS)], dtype=DTYPE)[:, None]
    np.maximum(noise, 0.0, out=noise)
    growth, size, rate, repaid, lost, servicing, cost, acquisition, interest_lag, cost_lag = noise
    np.minimum(repaid, 1.0, out=repaid)
    np.minimum(lost, 1.0 - repaid, out=lost)
    np.minimum(noise[8:], 1.0, out=noise[8:])

    new = growth
    new *= s.users
    repayments = repaid * s.loans
    charge_offs = lost * s.loans
    recoveries = w.recovery_rate * charge_offs
    originations = size
    originations *= new
    originations += w.renewal_rate * repayments
    leaving = repaid
    leaving *= 1.0 - w.renewal_rate
    leaving += lost
    leaving *= s.users
    s.users += new
    s.users -= leaving
    s.loans -= charge_offs
    interest = rate
    interest *= s.loans
    s.loans -= repayments
    s.loans += originations
    servicing *= s.users
    acquisition *= new
    cost += servicing
    cost += acquisition

    # accruals
    target = row[ALLOWANCE_RATE] * s.loans
    interest_expense = s.coupon * (1.0 / 12.0)
    pretax = s.allowance - target
    pretax += recoveries
    pretax -= charge_offs
    pretax += interest
    pretax -= cost
    pretax -= interest_expense
    s.allowance[:] = target
    income = np.maximum(pretax, 0.0)
    used = np.minimum(s.losses, w.loss_limit * income)
    s.losses += income
    s.losses -= pretax
    s.losses -= used
    tax = income
    tax -= used
    tax *= w.tax_rate
    s.retained += pretax
    s.retained -= tax

    # cash
    s.tax_payable += tax
    amortisation = s.debt * w.amortised
    s.cash += repayments
    s.cash += recoveries
    s.cash += s.receivable
    s.cash += interest
    s.cash -= originations
    s.cash -= s.payable
    s.cash -= cost
    s.cash -= interest_expense
    s.cash -= amortisation
    if row[TAX_DUE]:
        s.cash -= s.tax_payable
        s.tax_payable[:] = 0.0
    np.multiply(interest_lag, interest, out=s.receivable)
    np.multiply(cost_lag, cost, out=s.payable)
    s.cash -= s.receivable
    s.cash += s.payable
    s.debt -= amortisation
    s.coupon *= 1.0 - w.amortised
    s.revenue_ttm += interest
    s.revenue_ttm -= earned
    earned[:] = interest


def _settle(w: World, policy: Policy, row: list[float], t: int, s: SimpleNamespace) -> None:
    due = np.flatnonzero(s.due == t + 1)
    s.requests_settled[due] += 1.0
    due = due[s.granted[due] > 0.0]
    granted = s.granted[due]
    s.approvals[due] += 1.0
    s.received[due] += granted
    if policy.instrument == EQUITY:
        value = w.listing_multiple * s.revenue_ttm[due] + s.cash[due] - s.debt[due]
        s.shares[due] += granted / np.maximum(w.price_scale * value / s.shares[due], w.price_floor)
        s.company[due] *= w.round_factor
        s.paid_in[due] += granted
    else:
        s.debt[due] += granted
        s.coupon[due] += granted * row[DEBT_RATE]
    s.cash[due] += granted


def _ended(s: SimpleNamespace, bankrupt: np.ndarray, played: np.ndarray) -> Ended:
    assets = s.cash + s.loans - s.allowance + s.receivable
    gap = assets - s.payable - s.tax_payable - s.debt - s.paid_in - s.retained
    known = {"bankrupt": bankrupt, "months_played": played, "balance_gap": gap / assets}
    return Ended(**known, **{name: getattr(s, name) for name in Ended._fields if name not in known})


def draw(world: World, episodes: int, seed: int) -> np.ndarray:
    """The normals of all months alone: what the random numbers cost. Returns the sum of each month's first [n]."""
    rng, drawn = np.random.Generator(np.random.SFC64(seed)), np.zeros(episodes, dtype=DTYPE)
    for first in range(0, episodes, BLOCK):
        noise = np.empty((len(INDICATORS), min(BLOCK, episodes - first)), dtype=DTYPE)
        for _ in range(len(world.months)):
            rng.standard_normal(out=noise, dtype=DTYPE)
            drawn[first : first + BLOCK] += noise[0]
    return drawn
