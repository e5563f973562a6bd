"""The two parts of a month that batch play can't do without: its random numbers alone, and its rules alone.

Their rates give the bound that `throughput.py` holds arena_jax against. Both are copies on purpose, of the draws and of
the month as batch play compiles them (without what no record reads): imported, a slower library would lower its own
bound. `tests/test_benchmarks.py` checks that the copies still play the same world.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.peers.world import (
    ALLOWANCE_RATE,
    DEBT,
    DEBT_MACRO,
    DEBT_RATE,
    EQUITY,
    EQUITY_MACRO,
    TAX_DUE,
    Policy,
    World,
)

COMPILER_OPTIONS = {"xla_cpu_prefer_vector_width": 512}
WINDOW = 12
RUNNING, BANKRUPT, COMPLETED = 0, 1, 2
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


class Draws(NamedTuple):
    """The random numbers of one month: ten normals, and three uniforms for a request; float32[n] each."""

    normals: tuple[jax.Array, ...]
    uniforms: tuple[jax.Array, ...]


def _uniforms(k0: jax.Array, k1: jax.Array, index: jax.Array, block: int | jax.Array) -> list[jax.Array]:
    """The two uniforms float32[n] of a block of Threefry-2x32-20."""
    keys = (k0, k1, k0 ^ k1 ^ jnp.uint32(0x1BD11BDA))
    x0, x1 = index + keys[0], jnp.asarray(block, dtype=jnp.uint32) + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << jnp.uint32(rotation)) | (x1 >> jnp.uint32(32 - rotation)))
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return [((word >> jnp.uint32(9)).astype(jnp.float32) + 0.5) * 2.0**-23 for word in (x0, x1)]


def _normal(u: jax.Array) -> jax.Array:
    """Standard normals by Giles' inverse CDF in single precision."""
    w = -jnp.log(4.0 * u * (1.0 - u))
    is_central = w < 5.0
    w = jnp.where(is_central, w - 2.5, jnp.sqrt(w) - 3.0)
    poly = jnp.where(is_central, jnp.float32(_CENTRAL[0]), jnp.float32(_TAIL[0]))
    for central, tail in zip(_CENTRAL[1:], _TAIL[1:], strict=True):
        poly = poly * w + jnp.where(is_central, jnp.float32(central), jnp.float32(tail))
    return poly * (2.0 * u - 1.0) * 2.0**0.5


def month_draws(run_key: jax.Array, episodes: jax.Array, month: jax.Array, requests: jax.Array) -> Draws:
    """What the episodes uint32[n] of a run draw in `month`, each with uint32[n] requests made before."""
    words = jax.random.key_data(jax.vmap(jax.random.fold_in, in_axes=(None, 0))(run_key, episodes))
    return _draws(words[:, 0], words[:, 1], month, requests)


def _draws(k0: jax.Array, k1: jax.Array, month: jax.Array, requests: jax.Array) -> Draws:
    normals = [_normal(u) for block in range(5) for u in _uniforms(k0, k1, month, block)]
    uniforms = [u for block in (16, 17) for u in _uniforms(k0, k1, requests, block)]
    return Draws(tuple(normals), tuple(uniforms[:3]))


@partial(jax.jit, static_argnames="months", compiler_options=COMPILER_OPTIONS)
def stream_alone(run_key: jax.Array, episodes: jax.Array, months: int) -> tuple[jax.Array, jax.Array]:
    """All draws of all months, left in memory as the rules read them; returns the last month's, uint64[blocks, n]."""
    words = jax.random.key_data(jax.vmap(jax.random.fold_in, in_axes=(None, 0))(run_key, episodes))

    def packed(index: jax.Array, blocks: tuple[int, ...], to_normal: bool) -> jax.Array:
        shape = (len(blocks), len(episodes))
        k0, k1, index = (jnp.broadcast_to(leaf, shape) for leaf in (words[:, 0], words[:, 1], index))
        block = jnp.broadcast_to(jnp.asarray(blocks, dtype=jnp.uint32)[:, None], shape)
        halves = [_normal(u) if to_normal else u for u in _uniforms(k0, k1, index, block)]
        high, low = (jax.lax.bitcast_convert_type(half, jnp.uint32) for half in halves)
        with jax.enable_x64(True):
            return (high.astype(jnp.uint64) << jnp.uint64(32)) | low.astype(jnp.uint64)

    def draws(month: jax.Array) -> tuple[jax.Array, jax.Array]:
        return packed(month[None], (0, 1, 2, 3, 4), True), packed(month[None], (16, 17), False)

    def one_month(last: tuple[jax.Array, jax.Array], month: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        return draws(month), None

    return jax.lax.scan(one_month, draws(jnp.uint32(0)), jnp.arange(months, dtype=jnp.uint32))[0]


class Company(NamedTuple):
    """What a month hands to the next; float32[n] but the counts int32[n] and the window float32[12, n]."""

    status: jax.Array
    users: jax.Array
    cash: jax.Array
    loans: jax.Array
    allowance: jax.Array
    receivable: jax.Array
    payable: jax.Array
    tax_payable: jax.Array
    losses: jax.Array
    debt: jax.Array
    coupon: jax.Array
    shares: jax.Array
    revenue: jax.Array
    rounds: jax.Array
    instrument: jax.Array  # of the open request; 0: none
    granted: jax.Array
    months_left: jax.Array
    months_survived: jax.Array
    tool_calls: jax.Array
    requests: jax.Array
    requests_settled: jax.Array
    approvals: jax.Array
    requested: jax.Array
    received_equity: jax.Array
    received_debt: jax.Array
    first_request_month: jax.Array
    cash_peak: jax.Array
    cash_peak_month: jax.Array
    cash_trough: jax.Array
    cash_trough_month: jax.Array


def opening(w: World, episodes: int) -> Company:
    """The company as month 0 opens, for n episodes."""
    money = {name: getattr(w, name) for name in ("users", "cash", "loans", "allowance", "receivable", "payable")}
    money |= dict.fromkeys(("tax_payable", "losses", "debt", "coupon", "granted", "requested"), 0.0)
    money |= {"received_equity": 0.0, "received_debt": 0.0, "shares": w.shares, "cash_peak": w.cash}
    money |= {"cash_trough": w.cash}
    counts = {name: 0 for name in Company._fields if name not in money} | {"first_request_month": -1}
    start = {name: jnp.full(episodes, value, dtype=jnp.float32) for name, value in money.items()}
    start |= {name: jnp.full(episodes, value, dtype=jnp.int32) for name, value in counts.items()}
    return Company(**start | {"revenue": jnp.full((WINDOW, episodes), w.revenue, dtype=jnp.float32)})


def month(w: World, policy: Policy, t: jax.Array, row: jax.Array, sigma: jax.Array, s: Company, d: Draws) -> Company:
    """Month t of a policy: look, act, operate, keep the books, settle, check. `row` is that of `World.months`."""
    running = s.status == RUNNING

    # look and act
    none_open = s.instrument == 0
    wanted = running & none_open & (s.cash < policy.threshold) & (policy.amount > 0.0)
    chosen = jnp.where(wanted, jnp.int32(policy.instrument), 0)
    leverage = s.debt / jnp.maximum(s.cash + s.loans - s.allowance + s.receivable, 1.0)
    equity_chance = row[EQUITY_MACRO] * w.round_factor ** s.rounds.astype(jnp.float32)
    debt_chance = row[DEBT_MACRO] * jnp.clip(1.0 - leverage / w.leverage_limit, 0.0, 1.0)
    approved = d.uniforms[0] < jnp.where(chosen == EQUITY, equity_chance, debt_chance)
    fraction = w.fraction_min + w.fraction_span * d.uniforms[1]
    delay = jnp.floor(w.delay_min + w.delay_span * d.uniforms[2]).astype(jnp.int32)
    instrument = jnp.where(wanted, chosen, s.instrument)
    granted = jnp.where(wanted, jnp.where(approved, fraction * policy.amount, 0.0), s.granted)
    months_left = jnp.where(wanted, delay, s.months_left) - 1

    # operate
    x = [jnp.maximum(row[i] + sigma[i] * normal, 0.0) for i, normal in enumerate(d.normals)]
    growth, size, rate, repaid, lost, servicing, fixed, acquisition, interest_lag, cost_lag = x
    repaid = jnp.minimum(repaid, 1.0)
    lost = jnp.minimum(lost, 1.0 - repaid)
    new = growth * s.users
    repayments, charge_offs = repaid * s.loans, lost * s.loans
    recoveries = w.recovery_rate * charge_offs
    originations = new * size + w.renewal_rate * repayments
    interest = (s.loans - charge_offs) * rate
    users = s.users + new - ((1.0 - w.renewal_rate) * repaid + lost) * s.users
    loans = s.loans + originations - repayments - charge_offs
    cost = servicing * users + fixed + acquisition * new

    # keep the books
    allowance = row[ALLOWANCE_RATE] * loans
    provision = allowance - (s.allowance - charge_offs + recoveries)
    pretax = interest - provision - cost - s.coupon / 12.0
    income = jnp.maximum(pretax, 0.0)
    used = jnp.minimum(s.losses, w.loss_limit * income)
    tax_due = s.tax_payable + w.tax_rate * (income - used)
    tax_paid = row[TAX_DUE] * tax_due
    receivable = jnp.minimum(interest_lag, 1.0) * interest
    payable = jnp.minimum(cost_lag, 1.0) * cost
    inflow = repayments + recoveries + s.receivable + interest - receivable
    outflow = originations + s.payable + cost - payable + s.coupon / 12.0 + s.debt * w.amortised + tax_paid
    cash, debt = s.cash + inflow - outflow, s.debt - s.debt * w.amortised

    # settle
    due = (instrument != 0) & (months_left <= 0)
    received = jnp.where(due, granted, 0.0)
    equity, loan = (jnp.where(instrument == kind, received, 0.0) for kind in (EQUITY, DEBT))
    slot = t % WINDOW
    earned = jnp.where(running, interest, jax.lax.dynamic_index_in_dim(s.revenue, slot, 0, False))
    revenue = jax.lax.dynamic_update_index_in_dim(s.revenue, earned, slot, 0)
    value = w.listing_multiple * _ttm(revenue) + cash - debt
    shares = s.shares + equity / jnp.maximum(w.price_scale * value / s.shares, w.price_floor)
    cash = jnp.where(running, cash + equity + loan, s.cash)
    debt = jnp.where(running, debt + loan, s.debt)

    # check
    ended = jnp.where(cash < 0.0, BANKRUPT, jnp.where(t + 1 >= w.months.shape[0], COMPLETED, RUNNING))
    status = jnp.where(running, ended, s.status).astype(jnp.int32)
    stays_open = (status == RUNNING) & ~due
    received_equity, received_debt = s.received_equity + equity, s.received_debt + loan
    is_peak = (received_equity + received_debt <= 0.0) & (cash > s.cash_peak)
    is_trough = cash < s.cash_trough
    return Company(
        status=status,
        users=users,
        cash=cash,
        loans=loans,
        allowance=allowance,
        receivable=receivable,
        payable=payable,
        tax_payable=tax_due - tax_paid,
        losses=s.losses - used + jnp.maximum(-pretax, 0.0),
        debt=debt,
        coupon=s.coupon * (1.0 - w.amortised) + loan * row[DEBT_RATE],
        shares=shares,
        revenue=revenue,
        rounds=s.rounds + (equity > 0.0).astype(jnp.int32),
        instrument=jnp.where(stays_open, instrument, 0),
        granted=jnp.where(stays_open, granted, 0.0),
        months_left=jnp.where(stays_open, jnp.maximum(months_left, 0), 0),
        months_survived=jnp.where(status == BANKRUPT, s.months_survived, t + 1),
        tool_calls=s.tool_calls + (running & none_open & policy.verifies).astype(jnp.int32),
        requests=s.requests + wanted.astype(jnp.int32),
        requests_settled=s.requests_settled + due.astype(jnp.int32),
        approvals=s.approvals + (received > 0.0).astype(jnp.int32),
        requested=s.requested + jnp.where(wanted, policy.amount, 0.0),
        received_equity=received_equity,
        received_debt=received_debt,
        first_request_month=jnp.where(wanted & (s.first_request_month < 0), t, s.first_request_month),
        cash_peak=jnp.where(is_peak, cash, s.cash_peak),
        cash_peak_month=jnp.where(is_peak, t + 1, s.cash_peak_month),
        cash_trough=jnp.where(is_trough, cash, s.cash_trough),
        cash_trough_month=jnp.where(is_trough, t + 1, s.cash_trough_month),
    )


def _ttm(revenue: jax.Array) -> jax.Array:
    total = revenue[0]
    for row in range(1, WINDOW):
        total = total + revenue[row]
    return total


def rules_alone(world: World, policy: Policy, draws: Draws) -> Company:
    """The episodes of `draws` (leaves float32[n]) played with the same draws every month, their sign in turn."""
    months = jnp.asarray(world.months, dtype=jnp.float32)
    # the sign keeps the compiler from computing the indicators once for all months
    sigma = (
        jnp.asarray(world.sigma, dtype=jnp.float32) * jnp.where(jnp.arange(len(months)) % 2 == 0, 1.0, -1.0)[:, None]
    )
    t = jnp.arange(len(months), dtype=jnp.int32)

    def one_month(company: Company, this: tuple[jax.Array, ...]) -> tuple[Company, None]:
        t, row, sigma = this
        return month(world, policy, t, row, sigma, company, draws), None

    return jax.lax.scan(one_month, opening(world, len(draws.normals[0])), (t, months, sigma))[0]
