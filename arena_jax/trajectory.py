"""Fields of an episode that batch play can record month by month, for plots, imitation and offline learning."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from arena_jax.errors import ArenaError, unknown
from arena_jax.structs import NO_REQUEST, Action, Books, Flows, Observation, State
from arena_jax.tools import QUANTITIES

Recorder = Callable[[State, Observation, Action], jax.Array]


def _of_books(name: str) -> Recorder:
    return lambda state, seen, action: getattr(state.books, name)


def _of_flows(name: str) -> Recorder:
    return lambda state, seen, action: getattr(state.books.flows, name)


def _of_reading(name: str, part: str) -> Recorder:
    return lambda state, seen, action: getattr(seen.readings[name], part)


def _open_requests(state: State, seen: Observation, action: Action) -> jax.Array:
    is_open = [(place.instrument != NO_REQUEST).astype(jnp.int32) for place in state.pending]
    return sum(is_open[1:], start=is_open[0])


# field -> its value in a month: the true state as the month opens, what was decided, what had been seen
RECORDERS: dict[str, Recorder] = {
    **{name: _of_books(name) for name in Books._fields if name != "flows"},
    **{f"last_{field.name}": _of_flows(field.name) for field in dataclasses.fields(Flows)},
    "equity_rounds": lambda state, seen, action: state.equity_rounds,
    "open_requests": _open_requests,
    "calls": lambda state, seen, action: state.tally.calls_this_month,
    "close_books": lambda state, seen, action: action.close_books,
    "instrument": lambda state, seen, action: action.instrument,
    "amount": lambda state, seen, action: action.amount,
    **{f"seen_{name}": _of_reading(name, "value") for name in QUANTITIES},
    **{f"age_{name}": _of_reading(name, "age") for name in QUANTITIES},
}


def check_fields(fields: Sequence[str]) -> tuple[str, ...]:
    """The fields to record, each known and named once."""
    if isinstance(fields, str):
        raise ArenaError(f"fields to record must be a list of names, got {fields!r}")
    for name in fields:
        if name not in RECORDERS:
            raise unknown("field to record", name, RECORDERS)
    if len(set(fields)) < len(fields):
        twice = next(name for name in fields if fields.count(name) > 1)
        raise ArenaError(f"field to record {twice} is named twice")
    return tuple(fields)
