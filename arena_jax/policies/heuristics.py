"""Scripted policies. Each is a small frozen pytree of options and pays for what it looks at (design section 5.4).

A policy sees the observation alone:

    init(key) -> carry
    choose_tools(carry, observation, key) -> (carry, int32[4] calls in the order of TOOLS, Assumptions)
    act(carry, observation, key) -> (carry, Action)

The functions are written for one episode; batch play applies `jax.vmap`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from arena_jax.params import MAX_REQUEST
from arena_jax.structs import (
    DEBT,
    EQUITY,
    INSTRUMENTS,
    NO_REQUEST,
    TOOLS,
    Action,
    Assumptions,
    Observation,
)

# $ that a search for good options looks between: requests, as the decision level can make them, and cash
ASKED, HELD = (1e6, 160e6), (100e3, MAX_REQUEST)

policy_class = lambda cls: jax.tree_util.register_dataclass(dataclass(frozen=True)(cls))


def option(
    default: Any,
    unit: str,
    low: float,
    high: float,
    about: str,
    choices: dict[str, int] | None = None,
    not_below: str | None = None,
    search: tuple[float, float] | None = None,
) -> Any:
    """A policy's option: default, unit, allowed range, meaning, names of its values, an option it may not be below.

    search: where a search for a good value looks, if not in the whole range.
    """
    metadata = {"unit": unit, "low": low, "high": high, "about": about, "choices": choices, "not_below": not_below}
    return dataclasses.field(default=default, metadata=metadata | {"search": search or (low, high)})


def amount_option(default: float) -> Any:
    """The amount of each request."""
    return option(default, "$", 1.0, MAX_REQUEST, "amount of each request", search=ASKED)


def instrument_option(default: str) -> Any:
    """The instrument of each request."""
    return option(default, "name", EQUITY, DEBT, "instrument of each request", INSTRUMENTS)


def no_tools() -> jax.Array:
    """No calls: int32[4]."""
    return jnp.zeros(len(TOOLS), dtype=jnp.int32)


def no_assumptions() -> Assumptions:
    """Placeholder for a month without a projection."""
    money, months = jnp.zeros((), dtype=jnp.result_type(float)), jnp.int32(1)
    return Assumptions(money, money, money, money, money, money, money, money, months, months)


def calls(**counts: jax.Array | int) -> jax.Array:
    """int32[4] calls by tool name."""
    return jnp.stack([jnp.asarray(counts.get(name, 0), dtype=jnp.int32) for name in TOOLS])


def none_open(observation: Observation) -> jax.Array:
    """bool: no request is open."""
    free = jnp.bool_(True)
    for place in observation.open_requests:
        free = free & (place.instrument == NO_REQUEST)
    return free


def request_if(wanted: jax.Array, instrument: Any, amount: jax.Array) -> Action:
    """A request where `wanted` (bool), else pass."""
    chosen = jnp.where(wanted, jnp.asarray(instrument, dtype=jnp.int32), NO_REQUEST)
    return Action(jnp.zeros_like(wanted), chosen, amount)


class Heuristic:
    """No memory and no tools unless a subclass says otherwise."""

    def init(self, key: jax.Array) -> Any:
        return ()

    def choose_tools(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, jax.Array, Assumptions]:
        return carry, no_tools(), no_assumptions()


@policy_class
class NeverRaise(Heuristic):
    """Passes every month."""

    def act(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, Action]:
        return carry, request_if(jnp.bool_(False), NO_REQUEST, jnp.zeros((), dtype=jnp.result_type(float)))


@policy_class
class OneShotEquity(Heuristic):
    """One equity request, in one month."""

    amount: Any = amount_option(20e6)
    month: Any = option(0, "month", 0, 10_000, "month of the request", search=(0, 131))

    def act(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, Action]:
        return carry, request_if(observation.month == self.month, EQUITY, self.amount)


@policy_class
class GreedyEquity(Heuristic):
    """Asks for equity whenever no request is open."""

    amount: Any = amount_option(20e6)

    def act(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, Action]:
        return carry, request_if(none_open(observation), EQUITY, self.amount)


@policy_class
class GreedyDebt(Heuristic):
    """Asks for debt whenever no request is open."""

    amount: Any = amount_option(20e6)

    def act(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, Action]:
        return carry, request_if(none_open(observation), DEBT, self.amount)


@policy_class
class EquityDebtEquity(Heuristic):
    """Whenever none is open asks in turn for equity, debt and equity again."""

    amount: Any = amount_option(20e6)

    def init(self, key: jax.Array) -> Any:
        return jnp.int32(0)  # requests wished for so far

    def act(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, Action]:
        wanted = none_open(observation)
        instrument = jnp.where(carry % 3 == 1, DEBT, EQUITY)
        return carry + wanted.astype(jnp.int32), request_if(wanted, instrument, self.amount)


@policy_class
class CashThreshold(Heuristic):
    """While none is open verifies the cash each month, and asks once it is below a threshold."""

    threshold: Any = option(8e6, "$", 0.0, MAX_REQUEST, "asks below this verified cash", search=HELD)
    amount: Any = amount_option(12.6e6)
    instrument: Any = instrument_option("equity")

    def choose_tools(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, jax.Array, Assumptions]:
        return carry, calls(verify_cash_position=none_open(observation)), no_assumptions()

    def act(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, Action]:
        cash = observation.readings["cash"]
        wanted = none_open(observation) & (cash.age == 0) & (cash.value < self.threshold)
        return carry, request_if(wanted, self.instrument, self.amount)


@policy_class
class Random(Heuristic):
    """Each month one of pass, closing, equity, debt at random; amounts log-uniform; tools called at random."""

    min_amount: Any = option(1e6, "$", 1.0, MAX_REQUEST, "smallest request", search=ASKED)
    max_amount: Any = option(40e6, "$", 1.0, MAX_REQUEST, "largest request", not_below="min_amount", search=ASKED)
    call_rate: Any = option(0.5, "share", 0.0, 1.0, "probability of a call of each tool each month")

    def choose_tools(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, jax.Array, Assumptions]:
        drawn = jax.random.bernoulli(key, self.call_rate, (len(TOOLS),))
        return carry, drawn.astype(jnp.int32), no_assumptions()

    def act(self, carry: Any, observation: Observation, key: jax.Array) -> tuple[Any, Action]:
        key_kind, key_amount = jax.random.split(key)
        kind = jax.random.randint(key_kind, (), 0, 4, dtype=jnp.int32)  # pass, equity, debt, closing
        low, high = jnp.log(self.min_amount), jnp.log(self.max_amount)
        amount = jnp.exp(jax.random.uniform(key_amount, (), low.dtype, low, high))
        return carry, Action(kind == 3, jnp.where(kind == 3, NO_REQUEST, kind), amount)
