"""What the agent knows: the tools, the notebook in which their answers stay, and the observation (design 2.4, 5.2).

`QUANTITIES` is the single table of what a tool can show: the notebook, the observation, its specification and the
documentation all follow it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from arena_jax.params import Params
from arena_jax.structs import RUNNING, TOOLS, Observation, OpenRequest, Reading, Seen, State

VERIFY_CASH_POSITION = TOOLS.index("verify_cash_position")


@dataclass(frozen=True)
class Quantity:
    """One quantity that a tool shows: unit, typical size (for normalisation), the tool, and how it is read."""

    unit: str
    scale: float
    tool: int
    read: Callable[[State], jax.Array]
    about: str


QUANTITIES: dict[str, Quantity] = {
    "cash": Quantity("$", 1e7, VERIFY_CASH_POSITION, lambda state: state.cash, "current cash balance"),
}


def empty_notebook(like: jax.Array) -> dict[str, Seen]:
    """Nothing seen yet; `like` float[...] gives the shape."""
    never = jnp.full_like(like, -1, dtype=jnp.int32)
    return {name: Seen(jnp.zeros_like(like), never) for name in QUANTITIES}


def call_tools(params: Params, state: State, calls: tuple[jax.Array, ...]) -> State:
    """Answer `calls` (int32[...] per tool) in the order of `TOOLS` until the month's budget is spent.

    Calls over budget are turned away and cost nothing; so do calls of an ended episode.
    """
    left = params.tool_budget - state.tally.calls_this_month
    left = jnp.where(state.status == RUNNING, left, 0)
    answered = []
    for count in calls:
        answered.append(jnp.clip(count, 0, left))
        left = left - answered[-1]
    tally = dataclasses.replace(
        state.tally,
        calls_this_month=state.tally.calls_this_month + sum(answered[1:], start=answered[0]),
        tool_calls=tuple(old + new for old, new in zip(state.tally.tool_calls, answered, strict=True)),
    )
    notebook = {}
    for name, quantity in QUANTITIES.items():
        shown = answered[quantity.tool] > 0
        before = state.notebook[name]
        notebook[name] = Seen(
            jnp.where(shown, quantity.read(state), before.value), jnp.where(shown, state.month, before.month)
        )
    return dataclasses.replace(state, tally=tally, notebook=notebook)


def observe(params: Params, state: State) -> Observation:
    """The free facts of the month and the notebook; nothing else of `state` shows."""
    readings = {
        name: Reading(seen.value, jnp.where(seen.month < 0, -1, state.month - seen.month))
        for name, seen in state.notebook.items()
    }
    return Observation(
        month=state.month,
        calls_left=params.tool_budget - state.tally.calls_this_month,
        open_requests=tuple(
            OpenRequest(place.instrument, place.requested, place.month_asked) for place in state.pending
        ),
        notices=state.notices,
        turned_away=state.turned_away,
        readings=readings,
    )
