"""The environment: `make`, `reset`, `use_tool`, `step`. Glue only; the rules live in the modules it calls."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from arena_jax.draws import Draws, key_words, month_draws, request_draws
from arena_jax.errors import ArenaError, unknown
from arena_jax.month import advance, close_books, opening_state, opening_value
from arena_jax.operations import market_at
from arena_jax.params import FIELDS, Params, checked_values, make_params, with_leaves
from arena_jax.scenario import Scenario, default_scenario, load_scenario
from arena_jax.score import score
from arena_jax.specs import action_spec, observation_spec
from arena_jax.structs import BANKRUPT, RUNNING, TOOLS, Action, Assumptions, Observation, State, Timestep, ToolCall
from arena_jax.tools import (
    ALL_INDICATORS,
    ANALYZE,
    FINANCIAL_PACKAGE,
    REVIEW,
    Arguments,
    call_tools,
    observe,
    signals_at,
)

ENVIRONMENTS = ("EnterpriseArena-v1",)


def _check_leaf(name: str, value: Any, kind: Any, dtype: Any, shape: tuple[int, ...]) -> jax.Array:
    """A leaf of an Action or ToolCall, or an error; Python numbers are accepted and typed."""
    kinds = {jnp.bool_: "bool", jnp.integer: "integer", jnp.floating: "float"}
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError):
        raise ArenaError(f"{name} must be a {kinds[kind]} scalar, got {type(value).__name__}") from None
    is_number = kind is jnp.floating and isinstance(value, int) and not isinstance(value, bool)
    if array.shape != shape or not (jnp.issubdtype(array.dtype, kind) or is_number):
        raise ArenaError(f"{name} must be {kinds[kind]}{list(shape)}, got {array.dtype}{list(array.shape)}")
    return array.astype(dtype)


def _check_assumptions(assumptions: Assumptions, dtype: Any, shape: tuple[int, ...]) -> Assumptions:
    checked: dict[str, Any] = {}
    for name, value in vars(assumptions).items():
        is_months = name in ("funding_month", "horizon")
        kind, leaf_dtype = (jnp.integer, jnp.int32) if is_months else (jnp.floating, dtype)
        checked[name] = _check_leaf(f"Assumptions.{name}", value, kind, leaf_dtype, shape)
    return Assumptions(**checked)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)  # compared by identity, so that `jax.jit(env.step)` can hash it
class Arena:
    """EnterpriseArena-v1: a FinTech lender's CFO for 132 months under partial observability.

    Pure, jit- and vmap-able. Numbers are pytree leaves, so that `vmap` over environments is a parameter sweep.

        >>> import jax, arena_jax
        >>> env = arena_jax.make("EnterpriseArena-v1")
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> action = arena_jax.request_funding("equity", 20e6)
        >>> state, timestep = env.step(state, action, jax.random.key(0))
        >>> int(timestep.observation.month), bool(timestep.terminated)
        (1, False)

    State: `arena_jax.structs.State`, hidden from the agent. Observation: `arena_jax.structs.Observation`.
    Action: `arena_jax.structs.Action` (close_books, instrument, amount); see `action_spec` for bounds and units.
    Reward: the score (paper section 3.6) in the step that ends the episode, else 0. Terminated at bankruptcy
    and after the last month; never truncated. Stepping an ended episode changes nothing and gives reward 0.
    """

    params: Params
    scenario: Scenario

    def reset(self, key: jax.Array) -> tuple[State, Timestep]:
        """The first month of an episode. `key`: the episode's threefry key (the start itself is not random)."""
        key_words(key)
        state = opening_state(self.params, market_at(self.params, self.scenario, jnp.int32(0)))
        return state, self._timestep(state, jnp.zeros_like(state.books.cash))

    def use_tool(self, state: State, call: ToolCall, key: jax.Array) -> tuple[State, Timestep]:
        """Call a tool; the month stays open. Over budget the call is turned away and costs nothing."""
        key_words(key)
        shape = state.status.shape
        tool = _check_leaf("ToolCall.tool", call.tool, jnp.integer, jnp.int32, shape)
        argument = _check_leaf("ToolCall.argument", call.argument, jnp.integer, jnp.int32, shape)
        calls = tuple((tool == index).astype(jnp.int32) for index in range(len(TOOLS)))
        arguments = Arguments(
            document=jnp.where(tool == REVIEW, argument, FINANCIAL_PACKAGE),
            indicators=jnp.where(tool == ANALYZE, argument, ALL_INDICATORS),
            assumptions=_check_assumptions(call.assumptions, state.books.cash.dtype, shape),
        )
        state = call_tools(self.params, signals_at(self.scenario, state.month), state, calls, arguments)
        return state, self._timestep(state, jnp.zeros_like(state.books.cash))

    def close_books(self, state: State) -> tuple[State, Timestep]:
        """Close the books and leave the month open; counts as an action. Only with `exclusive=False` (paper, RQ2)."""
        if self.params.exclusive:
            raise ArenaError("close_books leaves the month open, which needs exclusive=False; use step with a closing")
        running = state.status == RUNNING
        tally = dataclasses.replace(state.tally, actions=state.tally.actions + running.astype(jnp.int32))
        state = close_books(dataclasses.replace(state, tally=tally), running)
        return state, self._timestep(state, jnp.zeros_like(state.books.cash))

    def step(self, state: State, action: Action, key: jax.Array) -> tuple[State, Timestep]:
        """Act and end the month. A fresh key each step or one key throughout are both correct: the counter moves."""
        words, shape = key_words(key), state.status.shape
        action = Action(
            _check_leaf("Action.close_books", action.close_books, jnp.bool_, jnp.bool_, shape),
            _check_leaf("Action.instrument", action.instrument, jnp.integer, jnp.int32, shape),
            _check_leaf("Action.amount", action.amount, jnp.floating, state.books.cash.dtype, shape),
        )
        draws = Draws(month_draws(words, state.month), request_draws(words, state.tally.requests))
        market = market_at(self.params, self.scenario, state.month)
        value = opening_value(self.params, self.scenario)
        after = advance(self.params, self.scenario.horizon, value, market, state, action, draws)
        month = jnp.where(after.status == BANKRUPT, state.month, state.month + 1)
        after = dataclasses.replace(after, month=month)
        running = state.status == RUNNING
        after = jax.tree.map(lambda new, old: jnp.where(running, new, old), after, state)
        just_ended = running & (after.status != RUNNING)
        reward = jnp.where(just_ended, score(self.params, after), 0.0)
        return after, self._timestep(after, reward)

    @property
    def action_spec(self) -> Action:
        """An `Action` whose leaves are `arena_jax.specs.Spec`: dtype, shape, bounds, unit, name."""
        return action_spec(self.params)

    @property
    def observation_spec(self) -> Observation:
        """An `Observation` whose leaves are `arena_jax.specs.Spec`."""
        return observation_spec(self.params, self.scenario.horizon)

    def _timestep(self, state: State, reward: jax.Array) -> Timestep:
        terminated = state.status != RUNNING
        return Timestep(observe(self.params, state), reward, terminated, jnp.zeros_like(terminated))


def make(name: str = ENVIRONMENTS[0], *, scenario: str | Path | Scenario | None = None, **overrides: Any) -> Arena:
    """An environment by name, with parameters overridden by name; raises `ArenaError` on any bad value.

    scenario: a trajectory CSV, a `Scenario`, or None for the default trajectory.
    """
    if name not in ENVIRONMENTS:
        raise unknown("environment", name, ENVIRONMENTS)
    params = make_params(**overrides)
    if scenario is None:
        return Arena(params, default_scenario())
    return Arena(params, scenario if isinstance(scenario, Scenario) else load_scenario(scenario))


def sweep(env: Arena, **values: Any) -> tuple[Arena, Arena]:
    """A batch of environments for `jax.vmap`, and its `in_axes`; the trajectory is shared, not copied.

    values: per parameter an array of n numbers, all of one length.

        >>> import jax, arena_jax
        >>> envs, axes = arena_jax.sweep(arena_jax.make(), tool_cost=[0.0, 5e3, 8e4])
        >>> start = lambda env: env.reset(jax.random.key(0))[0].books.cash
        >>> jax.vmap(start, in_axes=(axes,))(envs).shape
        (3,)
    """
    if not values:
        raise ArenaError(f"sweep needs at least one parameter; known: {', '.join(FIELDS)}")
    arrays = {name: checked_values(name, value) for name, value in values.items()}
    if any(array.ndim != 1 or array.size == 0 for array in arrays.values()):
        raise ArenaError("sweep values must be one-dimensional and not empty")
    if len({array.size for array in arrays.values()}) > 1:
        raise ArenaError(f"sweep values differ in length: { ({n: a.size for n, a in arrays.items()}) }")
    params = with_leaves(env.params, arrays)
    axes = jax.tree.map(lambda _: None, env)
    axes = dataclasses.replace(axes, params=dataclasses.replace(axes.params, **dict.fromkeys(arrays, 0)))
    return dataclasses.replace(env, params=params), axes
