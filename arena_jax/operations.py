"""The lending business of one month (design section 2.2, step 3). Elementwise over any batch shape [...]."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from arena_jax.draws import Indicators
from arena_jax.params import Params
from arena_jax.scenario import Scenario

MONTHS_A_YEAR = 12.0
PERCENT = 100.0


class Market(NamedTuple):
    """What a month's market means for the company. Known to the step alone, never to the agent."""

    stress: jax.Array  # z, index
    loss_rate: jax.Array  # q, charge-offs per month before noise; also drives the allowance
    base: Indicators  # indicators before noise
    next_debt_rate: jax.Array  # % a year: rate of debt that settles as the next month opens


def market_at(params: Params, scenario: Scenario, month: jax.Array) -> Market:
    """The market of `month` (int32[...], clamped to the horizon)."""
    last = scenario.horizon - 1
    now = jnp.minimum(month, last)
    following = jnp.minimum(month + 1, last)
    stress = 0.5 * (scenario.volatility[now] - params.volatility_center) / params.volatility_scale + (
        0.5 * scenario.lending_tightness[now] / params.tightness_scale
    )
    loss_stress = jnp.clip(stress, params.stress_floor, params.stress_cap)
    loss_rate = params.charge_off_rate * jnp.maximum(1.0 + params.charge_off_stress * loss_stress, 0.0) * (
        scenario.delinquency[now] / params.delinquency_norm
    )  # fmt: skip
    base = Indicators(
        user_growth=scenario.user_growth[now],
        loan_size=params.loan_size,
        lending_rate=scenario.treasury_2y[now] + scenario.credit_spread[now] + params.lending_margin,
        repayment_rate=params.repayment_rate - params.repayment_stress * jnp.maximum(stress, 0.0),
        charge_off_rate=loss_rate,
        servicing_cost=params.servicing_cost,
        fixed_cost=params.fixed_cost,
        acquisition_cost=params.acquisition_cost,
        interest_lag=params.interest_lag,
        cost_lag=params.cost_lag,
    )
    next_debt_rate = scenario.treasury_2y[following] + scenario.credit_spread[following] + params.debt_margin
    return Market(stress, loss_rate, base, next_debt_rate)


def perturbed(params: Params, base: Indicators, normals: Indicators) -> Indicators:
    """Indicators of the month: base + noise * sigma * normal, each kept in its range."""
    sigma = Indicators(*[getattr(params, f"sigma_{name}") for name in Indicators._fields])
    raw = Indicators(*[b + params.noise * s * n for b, s, n in zip(base, sigma, normals, strict=True)])
    return in_range(raw)


def in_range(raw: Indicators) -> Indicators:
    """Indicators clipped to the ranges of design section 2.2."""
    repayment_rate = jnp.clip(raw.repayment_rate, 0.0, 1.0)
    return Indicators(
        user_growth=jnp.maximum(raw.user_growth, 0.0),
        loan_size=jnp.maximum(raw.loan_size, 0.0),
        lending_rate=jnp.maximum(raw.lending_rate, 0.0),
        repayment_rate=repayment_rate,
        charge_off_rate=jnp.clip(raw.charge_off_rate, 0.0, 1.0 - repayment_rate),
        servicing_cost=jnp.maximum(raw.servicing_cost, 0.0),
        fixed_cost=jnp.maximum(raw.fixed_cost, 0.0),
        acquisition_cost=jnp.maximum(raw.acquisition_cost, 0.0),
        interest_lag=jnp.clip(raw.interest_lag, 0.0, 1.0),
        cost_lag=jnp.clip(raw.cost_lag, 0.0, 1.0),
    )


class Operations(NamedTuple):
    """The month's business, float[...]: flows in $, users and loans as the month ends."""

    users: jax.Array
    loans_gross: jax.Array
    new_users: jax.Array
    originations: jax.Array
    repayments: jax.Array
    charge_offs: jax.Array
    recoveries: jax.Array
    interest_income: jax.Array
    operating_cost: jax.Array
    interest_late: jax.Array  # part of the interest income that is collected next month
    cost_late: jax.Array  # part of the operating cost that is paid next month


def operate(params: Params, users: jax.Array, loans_gross: jax.Array, indicators: Indicators) -> Operations:
    """Lend, collect and serve for a month, from the opening users and gross loans."""
    x = indicators
    new_users = x.user_growth / PERCENT * users
    repayments = x.repayment_rate * loans_gross
    # at most what repayments leave: rounding must not take more
    charge_offs = jnp.minimum(x.charge_off_rate * loans_gross, loans_gross - repayments)
    originations = new_users * x.loan_size + params.renewal_rate * repayments
    # who repays without renewing, or defaults, leaves
    leaving = ((1.0 - params.renewal_rate) * x.repayment_rate + x.charge_off_rate) * users
    closing_users = users + new_users - leaving
    interest_income = (loans_gross - charge_offs) * x.lending_rate / (PERCENT * MONTHS_A_YEAR)
    operating_cost = x.servicing_cost * closing_users + x.fixed_cost + x.acquisition_cost * new_users
    return Operations(
        users=closing_users,
        loans_gross=loans_gross + originations - repayments - charge_offs,
        new_users=new_users,
        originations=originations,
        repayments=repayments,
        charge_offs=charge_offs,
        recoveries=params.recovery_rate * charge_offs,
        interest_income=interest_income,
        operating_cost=operating_cost,
        interest_late=x.interest_lag * interest_income,
        cost_late=x.cost_lag * operating_cost,
    )
