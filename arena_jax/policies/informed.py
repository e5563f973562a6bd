"""Scripted policies that decide on what they have paid to see. Interface: `arena_jax.policies.heuristics`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from arena_jax.params import MAX_REQUEST
from arena_jax.policies.heuristics import (
    HELD,
    Heuristic,
    amount_option,
    calls,
    none_open,
    option,
    policy_class,
    request_if,
)
from arena_jax.projection import assumptions_from
from arena_jax.structs import EQUITY, Action, Assumptions, Observation

NOT_VERIFIED = -1.0


def proceeds(observation: Observation) -> jax.Array:
    """$ float[]: what settled as this month opened."""
    received = [notice.received for notice in observation.notices]
    return sum(received[1:], start=received[0])


@policy_class
class Runway(Heuristic):
    """Verifies the cash every month and asks once recent burn would use it up within some months."""

    months: Any = option(9.0, "months", 0.0, 132.0, "asks when cash lasts less long than this at the recent burn")
    amount: Any = amount_option(20e6)

    def init(self, key: jax.Array) -> Any:
        zero = jnp.zeros((), dtype=jnp.result_type(float))
        return zero + NOT_VERIFIED, zero  # cash verified last month, smoothed monthly burn

    def choose_tools(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, jax.Array, Assumptions]:
        _, no_calls, assumptions = super().choose_tools(carry, observation, key)
        return carry, no_calls + calls(verify_cash_position=1), assumptions

    def act(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, Action]:
        last_cash, burn = carry
        cash = observation.readings["cash"]
        seen = cash.age == 0
        burned = last_cash + proceeds(observation) - cash.value
        smoothed = jnp.where(seen & (last_cash >= 0.0), 0.75 * burn + 0.25 * burned, burn)
        wanted = none_open(observation) & seen & (cash.value < self.months * smoothed)
        carry = (jnp.where(seen, cash.value, NOT_VERIFIED), smoothed)
        return carry, request_if(wanted, EQUITY, self.amount)


@policy_class
class MarketTimer(Heuristic):
    """Looks at the market alone, and asks for equity while volatility and lending standards are easy."""

    max_volatility: Any = option(18.0, "index points", 0.0, 150.0, "asks at or below this volatility")
    max_tightness: Any = option(5.0, "net %", -100.0, 100.0, "asks at or below this lending tightness")
    amount: Any = amount_option(20e6)

    def choose_tools(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, jax.Array, Assumptions]:
        _, no_calls, assumptions = super().choose_tools(carry, observation, key)
        return carry, no_calls + calls(analyze_market_conditions=none_open(observation)), assumptions

    def act(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, Action]:
        volatility, tightness = observation.readings["volatility"], observation.readings["lending_tightness"]
        easy = (volatility.value <= self.max_volatility) & (tightness.value <= self.max_tightness)
        return carry, request_if(none_open(observation) & (volatility.age == 0) & easy, EQUITY, self.amount)


@policy_class
class LateRaiser(Heuristic):
    """Asks only once verified cash has fallen well below its verified peak: the failure that the paper describes."""

    drop: Any = option(0.2, "share", 0.0, 1.0, "fall below the peak at which it asks")
    amount: Any = amount_option(12.6e6)

    def init(self, key: jax.Array) -> Any:
        return jnp.zeros((), dtype=jnp.result_type(float))  # highest verified cash

    def choose_tools(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, jax.Array, Assumptions]:
        _, no_calls, assumptions = super().choose_tools(carry, observation, key)
        return carry, no_calls + calls(verify_cash_position=1), assumptions

    def act(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, Action]:
        cash = observation.readings["cash"]
        peak = jnp.where(cash.age == 0, jnp.maximum(carry, cash.value), carry)
        fallen = (cash.age == 0) & (cash.value < (1.0 - self.drop) * peak)
        return peak, request_if(none_open(observation) & fallen, EQUITY, self.amount)


@policy_class
class PrudentCFO(Heuristic):
    """Closes each quarter, reads the statements and the market, projects, and raises ahead of need.

    Month 1 of each quarter closes the books, month 2 reads statements and market, month 3 projects. It asks while the
    lowest projected cash is below the buffer, in a closing month too: where a month holds one action the closing wins.
    """

    buffer: Any = option(10e6, "$", 0.0, MAX_REQUEST, "asks while the lowest projected cash is below this", search=HELD)
    amount: Any = amount_option(20e6)

    def choose_tools(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, jax.Array, Assumptions]:
        quarter_month = observation.month % 3
        reads, projects = quarter_month == 2, (quarter_month == 0) & (observation.month > 0)
        chosen = calls(
            review_financial_records=reads, analyze_market_conditions=reads, conduct_cashflow_projection=projects
        )
        return carry, chosen, assumptions_from(observation.readings, horizon=12)

    def act(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, Action]:
        lowest = observation.readings["projected_cash_min"]
        wanted = none_open(observation) & (lowest.age >= 0) & (lowest.value < self.buffer)
        request = request_if(wanted, EQUITY, self.amount)
        return carry, Action(observation.month % 3 == 1, request.instrument, request.amount)


@policy_class
class InformationHungry(Heuristic):
    """Uses any budget: verifies, reads every record, studies the market, and projects with what calls are left.

    A projection decides if there was one this month; with a budget too small for it only a low verified cash does.
    """

    buffer: Any = option(10e6, "$", 0.0, MAX_REQUEST, "asks while the lowest projected cash is below this", search=HELD)
    threshold: Any = option(
        5e6, "$", 0.0, MAX_REQUEST, "without a projection asks below this verified cash", search=HELD
    )
    amount: Any = amount_option(20e6)
    reading_calls: Any = option(6, "calls", 0, 1_000, "records read each month before anything else", search=(0, 20))
    market_calls: Any = option(8, "calls", 0, 1_000, "looks at the market each month after that", search=(0, 20))

    def choose_tools(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, jax.Array, Assumptions]:
        left = observation.calls_left - 1
        reading = jnp.clip(left, 0, self.reading_calls)
        market = jnp.clip(left - reading, 0, self.market_calls)
        chosen = calls(
            verify_cash_position=1,
            review_financial_records=reading,
            analyze_market_conditions=market,
            conduct_cashflow_projection=jnp.maximum(left - reading - market, 0),
        )
        return carry, chosen, assumptions_from(observation.readings, horizon=12)

    def act(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, Action]:
        cash, lowest = observation.readings["cash"], observation.readings["projected_cash_min"]
        is_projected = lowest.age == 0
        is_low = (cash.age == 0) & (cash.value < self.threshold)
        wanted = none_open(observation) & jnp.where(is_projected, lowest.value < self.buffer, is_low)
        request = request_if(wanted, EQUITY, self.amount)
        return carry, Action(observation.month % 3 == 1, request.instrument, request.amount)
