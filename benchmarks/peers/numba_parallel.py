"""The model in Numba: one compiled scalar loop per episode, episodes in parallel over the cores.

A month lives in registers: xoshiro256++ (Blackman and Vigna 2019) and the ziggurat (Marsaglia and Tsang 2000) need no
memory but two small tables. `fastmath` allows what leaves infinities and NaN alone: `Policy.threshold` may be infinite.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import int64, njit, prange, uint64

from benchmarks.peers.world import (
    ALLOWANCE_RATE,
    DEBT_MACRO,
    DEBT_RATE,
    EQUITY,
    EQUITY_MACRO,
    TAX_DUE,
    Ended,
    Outcome,
    Policy,
    World,
    make_outcome,
)

FASTMATH = {"contract", "reassoc", "nsz", "arcp"}
WINDOW = 12  # months of trailing revenue
BLOCK = 16  # episodes of one parallel task

# the ziggurat: 256 layers of area V, the lowest with the tail beyond R
R, V = 3.6541528853610088, 0.00492867323399
_edges = [V / math.exp(-0.5 * R * R), R]
while len(_edges) < 256:
    _edges.append(math.sqrt(-2.0 * math.log(V / _edges[-1] + math.exp(-0.5 * _edges[-1] ** 2))))
EDGE = np.array([*_edges, 0.0])
HEIGHT = np.exp(-0.5 * EDGE**2)
SCALE = EDGE[:256] * 2.0**-52  # of a signed 53-bit integer


@njit
def next_bits(s: Any) -> Any:
    """64 random bits and the next state of xoshiro256++."""
    a, b, c, d = s
    mixed = a + d
    bits = ((mixed << uint64(23)) | (mixed >> uint64(41))) + a
    shifted = b << uint64(17)
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= shifted
    d = (d << uint64(45)) | (d >> uint64(19))
    return bits, (a, b, c, d)


@njit
def split_mix(x: Any) -> Any:
    """A well-mixed word and the next state of SplitMix64, which seeds the generators."""
    x += uint64(0x9E3779B97F4A7C15)
    z = (x ^ (x >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31)), x


@njit
def seeded(seed: Any, episode: Any) -> Any:
    """The generator of an episode."""
    x, _ = split_mix(uint64(seed))
    x += uint64(episode) * uint64(0xD1342543DE82EF95)
    a, x = split_mix(x)
    b, x = split_mix(x)
    c, x = split_mix(x)
    d, x = split_mix(x)
    return a, b, c, d


@njit
def uniform(s: Any) -> Any:
    """Uniform strictly inside (0, 1)."""
    bits, s = next_bits(s)
    return (float(int64(bits >> uint64(12))) + 0.5) * 2.0**-52, s


@njit
def outside(layer: Any, x: Any, s: Any) -> Any:
    """A normal whose first try `x` fell outside the inner part of its `layer`: one in ninety."""
    while True:
        if layer == 0:
            while True:
                u, s = uniform(s)
                v, s = uniform(s)
                beyond, height = -math.log(u) / R, -math.log(v)
                if height + height > beyond * beyond:
                    return math.copysign(R + beyond, x), s
        u, s = uniform(s)
        if HEIGHT[layer] + u * (HEIGHT[layer + uint64(1)] - HEIGHT[layer]) < math.exp(-0.5 * x * x):
            return x, s
        bits, s = next_bits(s)
        layer = bits & uint64(255)
        x = float(int64(bits) >> 11) * SCALE[layer]
        if abs(x) < EDGE[layer + uint64(1)]:
            return x, s


@njit
def normal(s: Any) -> Any:
    """Standard normal: eight bits choose the layer, 53 others the place in it."""
    bits, s = next_bits(s)
    layer = bits & uint64(255)
    x = float(int64(bits) >> 11) * SCALE[layer]
    if abs(x) < EDGE[layer + uint64(1)]:
        return x, s
    return outside(layer, x, s)


@njit(fastmath=FASTMATH)
def _episode(world, policy, seed, episode, revenue):  # type: ignore[no-untyped-def]
    """One episode; `revenue` float64[12] is room for the window."""
    w, asks, is_equity = world, policy.amount > 0.0, policy.instrument == EQUITY
    months, sigma = w.months, w.sigma
    s = seeded(seed, episode)
    users, cash, loans, allowance = w.users, w.cash, w.loans, w.allowance
    receivable, payable, tax_payable, losses = w.receivable, w.payable, 0.0, 0.0
    debt, coupon, paid_in, retained, shares = 0.0, 0.0, w.paid_in, w.retained, w.shares
    revenue[:] = w.revenue
    revenue_ttm, slot, t = WINDOW * w.revenue, 0, 0
    months_left, granted, company, received = 0.0, 0.0, 1.0, 0.0
    tool_calls, requests, settled, approvals, first_request = 0, 0, 0, 0, -1
    peak, peak_month, trough, trough_month = cash, 0, cash, 0

    while t < months.shape[0] and cash >= 0.0:
        # act
        if asks and months_left <= 0.0:
            tool_calls += policy.verifies
            if cash < policy.threshold:
                if is_equity:
                    chance = months[t, EQUITY_MACRO] * company
                else:
                    leverage = debt / max(cash + loans - allowance + receivable, 1.0)
                    chance = months[t, DEBT_MACRO] * min(max(1.0 - leverage / w.leverage_limit, 0.0), 1.0)
                u, s = uniform(s)
                fraction, s = uniform(s)
                delay, s = uniform(s)
                granted = (w.fraction_min + w.fraction_span * fraction) * policy.amount if u < chance else 0.0
                months_left = w.delay_min + math.floor(w.delay_span * delay)
                first_request = t if requests == 0 else first_request
                requests += 1

        # operate
        e, s = normal(s)
        growth = max(months[t, 0] + sigma[0] * e, 0.0)
        e, s = normal(s)
        size = max(months[t, 1] + sigma[1] * e, 0.0)
        e, s = normal(s)
        rate = max(months[t, 2] + sigma[2] * e, 0.0)
        e, s = normal(s)
        repaid = min(max(months[t, 3] + sigma[3] * e, 0.0), 1.0)
        e, s = normal(s)
        lost = min(max(months[t, 4] + sigma[4] * e, 0.0), 1.0 - repaid)
        e, s = normal(s)
        servicing = max(months[t, 5] + sigma[5] * e, 0.0)
        e, s = normal(s)
        fixed = max(months[t, 6] + sigma[6] * e, 0.0)
        e, s = normal(s)
        acquisition = max(months[t, 7] + sigma[7] * e, 0.0)
        e, s = normal(s)
        interest_lag = min(max(months[t, 8] + sigma[8] * e, 0.0), 1.0)
        e, s = normal(s)
        cost_lag = min(max(months[t, 9] + sigma[9] * e, 0.0), 1.0)

        new = growth * users
        repayments = repaid * loans
        charge_offs = lost * loans
        recoveries = w.recovery_rate * charge_offs
        originations = new * size + w.renewal_rate * repayments
        interest = (loans - charge_offs) * rate
        users += new - ((1.0 - w.renewal_rate) * repaid + lost) * users
        loans += originations - repayments - charge_offs
        cost = servicing * users + fixed + acquisition * new

        # the books: accruals
        target = months[t, ALLOWANCE_RATE] * loans
        provision = target - (allowance - charge_offs + recoveries)
        allowance = target
        interest_expense = coupon * (1.0 / 12.0)
        pretax = interest - provision - cost - interest_expense
        income = max(pretax, 0.0)
        used = min(losses, w.loss_limit * income)
        tax = w.tax_rate * (income - used)
        losses += max(-pretax, 0.0) - used
        retained += pretax - tax

        # the books: cash
        tax_paid = (tax_payable + tax) * months[t, TAX_DUE]
        tax_payable += tax - tax_paid
        amortisation = debt * w.amortised
        interest_late, cost_late = interest_lag * interest, cost_lag * cost
        cash += repayments + recoveries + receivable + interest - interest_late
        cash -= originations + payable + cost - cost_late + interest_expense + amortisation + tax_paid
        receivable, payable = interest_late, cost_late
        debt -= amortisation
        coupon -= coupon * w.amortised
        revenue_ttm += interest - revenue[slot]
        revenue[slot] = interest
        slot = slot + 1 if slot < WINDOW - 1 else 0

        # settle
        if months_left > 0.0:
            months_left -= 1.0
            if months_left <= 0.0:
                settled += 1
                if granted > 0.0:
                    approvals += 1
                    received += granted
                    if is_equity:
                        company *= w.round_factor
                        value = w.listing_multiple * revenue_ttm + cash - debt
                        shares += granted / max(w.price_scale * value / shares, w.price_floor)
                        paid_in += granted
                    else:
                        debt += granted
                        coupon += granted * months[t, DEBT_RATE]
                    cash += granted

        # check
        t += 1
        if received <= 0.0 and cash > peak:
            peak, peak_month = cash, t
        if cash < trough:
            trough, trough_month = cash, t

    assets = cash + loans - allowance + receivable
    gap = (assets - payable - tax_payable - debt - paid_in - retained) / assets
    return (
        (cash < 0.0, t, revenue_ttm, cash, debt, shares, tool_calls, requests, settled, approvals, received)
        + (first_request, peak, peak_month, trough, trough_month, gap)
    )  # fmt: skip


@njit(parallel=True, fastmath=FASTMATH)
def _play(world, policy, episodes, seed):  # type: ignore[no-untyped-def]
    money, counts = np.empty((8, episodes)), np.empty((9, episodes), dtype=np.int32)
    for block in prange((episodes + BLOCK - 1) // BLOCK):
        revenue = np.empty(WINDOW)
        for i in range(block * BLOCK, min((block + 1) * BLOCK, episodes)):
            ended = _episode(world, policy, seed, i, revenue)
            counts[0, i], counts[1, i], money[0, i], money[1, i], money[2, i], money[3, i] = ended[:6]
            counts[2, i], counts[3, i], counts[4, i], counts[5, i], money[4, i] = ended[6:11]
            counts[6, i], money[5, i], counts[7, i], money[6, i], counts[8, i], money[7, i] = ended[11:]
    return money, counts


def play(world: World, policy: Policy, episodes: int, seed: int) -> Outcome:
    """Play the episodes to their ends; an episode's generator is seeded by `seed` and its index."""
    money, counts = _play(world, policy, episodes, seed)
    bankrupt, played, tool_calls, requests, settled, approvals, first_request, peak_month, trough_month = counts
    revenue_ttm, cash, debt, shares, received, peak, trough, gap = money
    ended = Ended(
        bankrupt, played, revenue_ttm, cash, debt, shares, tool_calls, requests, settled, approvals, received,
        first_request, peak, peak_month, trough, trough_month, gap,
    )  # fmt: skip
    return make_outcome(world, policy, ended)


@njit(parallel=True, fastmath=FASTMATH)
def _draw(episodes, months, seed):  # type: ignore[no-untyped-def]
    total = np.empty(episodes)
    for i in prange(episodes):
        s, drawn = seeded(seed, i), 0.0
        for _ in range(10 * months):
            e, s = normal(s)
            drawn += e
        total[i] = drawn
    return total


def draw(world: World, episodes: int, seed: int) -> np.ndarray:
    """The normals of all months alone, summed per episode [n]: what the random numbers cost."""
    return _draw(episodes, len(world.months), seed)
