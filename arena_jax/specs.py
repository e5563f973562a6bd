"""Specifications of observation and action: one `Spec` per leaf, in the same tree structure (design section 5.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from arena_jax.params import Params
from arena_jax.structs import DEBT, MONTH_TAKEN, NO_REQUEST, Action, Notice, Observation, OpenRequest, Reading
from arena_jax.tools import QUANTITIES

FLAG = (0, 1)


@dataclass(frozen=True)
class Spec:
    """One leaf: name, dtype, shape of a single episode, closed bounds, unit."""

    name: str
    dtype: Any
    low: float
    high: float
    unit: str
    shape: tuple[int, ...] = ()


def _count(name: str, low: float, high: float, unit: str) -> Spec:
    return Spec(name, jnp.dtype(jnp.int32), low, high, unit)


def _number(name: str, low: float, high: float, unit: str) -> Spec:
    return Spec(name, jnp.result_type(float), low, high, unit)


def action_spec(params: Params) -> Action:
    """An `Action` of specs. Amounts outside the bounds are turned away and use up the month."""
    return Action(
        close_books=Spec("close_books", jnp.dtype(jnp.bool_), *FLAG, "flag"),
        instrument=_count("instrument", NO_REQUEST, DEBT, "0 none, 1 equity, 2 debt"),
        amount=_number("amount", 0.0, float(params.max_request), "$"),
    )


def observation_spec(params: Params, horizon: int) -> Observation:
    """An `Observation` of specs; a quantity's value is 0 and its age -1 until a tool has shown it."""
    money = float(params.max_request)
    requests, notices = [], []
    for place in range(params.max_pending):
        requests.append(
            OpenRequest(
                _count(f"open_requests[{place}].instrument", NO_REQUEST, DEBT, "0 none, 1 equity, 2 debt"),
                _number(f"open_requests[{place}].requested", 0.0, money, "$"),
                _count(f"open_requests[{place}].month_asked", 0, horizon, "month"),
            )
        )
        notices.append(
            Notice(
                _count(f"notices[{place}].instrument", NO_REQUEST, DEBT, "0 none, 1 equity, 2 debt"),
                _number(f"notices[{place}].requested", 0.0, money, "$"),
                _number(f"notices[{place}].received", 0.0, money, "$"),
                _number(f"notices[{place}].rate", 0.0, math.inf, "% a year"),
                _count(f"notices[{place}].month_asked", 0, horizon, "month"),
            )
        )
    return Observation(
        month=_count("month", 0, horizon, "month"),
        calls_left=_count("calls_left", 0, int(params.tool_budget), "calls"),
        open_requests=tuple(requests),
        notices=tuple(notices),
        turned_away=_count("turned_away", 0, MONTH_TAKEN, "reason, 0 none"),
        readings={
            name: Reading(
                _number(f"{name}.value", -math.inf, math.inf, quantity.unit),
                _count(f"{name}.age", -1, horizon, "months, -1 never shown"),
            )
            for name, quantity in QUANTITIES.items()
        },
    )
