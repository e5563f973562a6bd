"""Checks of what callers hand in, before anything is compiled: actions, tool calls, assumptions, policies."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.errors import ArenaError, shown
from arena_jax.structs import COUNTED_ASSUMPTIONS, Action, Assumptions, ToolCall

METHODS = ("init", "choose_tools", "act")  # of a policy that chooses month by month
DECISION_METHODS = ("init", "decide")  # of one that takes a decision at a time (EnterpriseArenaRL-v1)
_KINDS = {jnp.bool_: "a bool", jnp.integer: "an integer", jnp.floating: "a float"}


def _wraps(value: Any) -> bool:
    """Whether whole numbers would be other ones as int32."""
    if isinstance(value, np.integer | np.ndarray):
        is_whole = value.dtype.kind in "iu"
    else:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and bool(np.any((value < -(2**31)) | (value >= 2**31)))


def _leaf(name: str, value: Any, kind: Any, dtype: Any, shape: tuple[int, ...]) -> jax.Array:
    """`value` as an array of the dtype and shape; Python numbers are typed, anything else must fit."""
    expected = f"{name} must be {_KINDS[kind]} of shape {list(shape)}"
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if kind is jnp.integer and _wraps(value):
        raise ArenaError(f"{name} must be a 32-bit integer, got {shown(value)}")
    try:
        array = jnp.asarray(float(value) if is_int and kind is jnp.floating else value)
    except (TypeError, ValueError, OverflowError):
        raise ArenaError(f"{expected}, got {shown(value)}") from None
    if array.shape != shape or not jnp.issubdtype(array.dtype, kind):
        raise ArenaError(f"{expected}, got {array.dtype}{list(array.shape)}")
    return array.astype(dtype)


def checked_action(action: Any, shape: tuple[int, ...], dtype: Any) -> Action:
    """An `Action` with leaves of `shape` and a `dtype` amount; raises `ArenaError` naming the leaf at fault."""
    if not isinstance(action, Action):
        raise ArenaError(
            f"action must be an Action, such as request_funding('equity', 1e6), got {type(action).__name__}"
        )
    return Action(
        _leaf("Action.close_books", action.close_books, jnp.bool_, jnp.bool_, shape),
        _leaf("Action.instrument", action.instrument, jnp.integer, jnp.int32, shape),
        _leaf("Action.amount", action.amount, jnp.floating, dtype, shape),
    )


def checked_assumptions(assumptions: Any, shape: tuple[int, ...], dtype: Any) -> Assumptions:
    """`Assumptions` with leaves of `shape`; raises `ArenaError` naming the leaf at fault."""
    if not isinstance(assumptions, Assumptions):
        raise ArenaError(
            f"assumptions must be Assumptions, such as assume(horizon=6), got {type(assumptions).__name__}"
        )
    checked: dict[str, Any] = {}
    for name, value in vars(assumptions).items():
        kind, leaf_dtype = (jnp.integer, jnp.int32) if name in COUNTED_ASSUMPTIONS else (jnp.floating, dtype)
        checked[name] = _leaf(f"Assumptions.{name}", value, kind, leaf_dtype, shape)
    return Assumptions(**checked)


def checked_call(call: Any, shape: tuple[int, ...], dtype: Any) -> ToolCall:
    """A `ToolCall` with leaves of `shape`; raises `ArenaError` naming the leaf at fault."""
    if not isinstance(call, ToolCall):
        raise ArenaError(
            f"call must be a ToolCall, such as call_tool('verify_cash_position'), got {type(call).__name__}"
        )
    return ToolCall(
        _leaf("ToolCall.tool", call.tool, jnp.integer, jnp.int32, shape),
        _leaf("ToolCall.argument", call.argument, jnp.integer, jnp.int32, shape),
        checked_assumptions(call.assumptions, shape, dtype),
    )


def checked_decision(action: Any) -> jax.Array:
    """One decision as int32[]; raises `ArenaError` unless it is one integer."""
    return _leaf("action", action, jnp.integer, jnp.int32, ())


def takes_decisions(policy: Any) -> bool:
    """Whether a policy takes one decision at a time, rather than a month's calls and action."""
    return callable(getattr(policy, DECISION_METHODS[-1], None))


def check_monthly(name: str, policy: Any) -> None:
    """Refuse a policy that takes one decision at a time, where only months are played; `name` is its name."""
    if takes_decisions(policy):
        raise ArenaError(f"{name} takes one decision at a time; here only policies that choose month by month play")


def check_policy(name: str, policy: Any) -> None:
    """Refuse what is not an object with a policy's methods; `name` is what the message calls it."""
    methods = DECISION_METHODS if takes_decisions(policy) else METHODS
    missing = [method for method in methods if not callable(getattr(policy, method, None))]
    if isinstance(policy, type) or missing:
        lacks = f"{type(policy).__name__} has no method {missing[0]}" if missing else f"got the class {policy.__name__}"
        either = f"{', '.join(METHODS)} (or {', '.join(DECISION_METHODS)})"
        raise ArenaError(f"{name} must be an object with the methods {either}; {lacks}")
    try:
        hash(policy)
    except TypeError:
        if jax.tree_util.all_leaves([policy]):
            text = f"{name} must be hashable, or a pytree: make {type(policy).__name__} a frozen dataclass"
            raise ArenaError(text) from None
