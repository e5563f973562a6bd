"""The environment: `make`, `reset`, `use_tool`, `step`. Glue only; the rules live in the modules it calls."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.checks import checked_action, checked_call
from arena_jax.draws import Draws, key_words, month_draws, request_draws
from arena_jax.errors import ArenaError, unknown
from arena_jax.month import advance, close_books, opening_state, opening_value
from arena_jax.operations import market_at
from arena_jax.params import FIELDS, Params, checked_values, make_params, with_leaves
from arena_jax.scenario import Scenario, default_scenario
from arena_jax.score import objective
from arena_jax.specs import action_spec, observation_spec
from arena_jax.structs import BANKRUPT, RUNNING, TOOLS, Action, Observation, State, Timestep, ToolCall
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
from arena_jax.world_file import read_world

DISCIPLINED = "EnterpriseArena-Disciplined-v1"
ENVIRONMENTS = ("EnterpriseArena-v1", DISCIPLINED)


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

    EnterpriseArena-Disciplined-v1 is the same world in which capital is not free: the larger a request against the
    company's value the less likely it is approved, shares are issued at that value, and the reward is the value kept
    for the initial shares (`arena_jax.score.value_kept`).
    """

    params: Params
    scenario: Scenario

    def reset(self, key: jax.Array) -> tuple[State, Timestep]:
        """The first month of an episode. `key`: the episode's threefry key (the start itself is not random)."""
        key_words(key, ())
        state = opening_state(self.params, market_at(self.params, self.scenario, jnp.int32(0)))
        return state, self._timestep(state, jnp.zeros_like(state.books.cash))

    def use_tool(self, state: State, call: ToolCall, key: jax.Array) -> tuple[State, Timestep]:
        """Call a tool; the month stays open. Over budget the call is turned away and costs nothing."""
        shape = state.status.shape
        key_words(key, shape)
        call = checked_call(call, shape, state.books.cash.dtype)
        calls = tuple((call.tool == index).astype(jnp.int32) for index in range(len(TOOLS)))
        arguments = Arguments(
            document=jnp.where(call.tool == REVIEW, call.argument, FINANCIAL_PACKAGE),
            indicators=jnp.where(call.tool == ANALYZE, call.argument, ALL_INDICATORS),
            assumptions=call.assumptions,
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
        shape = state.status.shape
        words = key_words(key, shape)
        action = checked_action(action, shape, state.books.cash.dtype)
        draws = Draws(month_draws(words, state.month), request_draws(words, state.tally.requests))
        market = market_at(self.params, self.scenario, state.month)
        value = opening_value(self.params, self.scenario)
        after = advance(self.params, self.scenario.horizon, value, market, state, action, draws)
        month = jnp.where(after.status == BANKRUPT, state.month, state.month + 1)
        after = dataclasses.replace(after, month=month)
        running = state.status == RUNNING
        after = jax.tree.map(lambda new, old: jnp.where(running, new, old), after, state)
        just_ended = running & (after.status != RUNNING)
        reward = jnp.where(just_ended, objective(self.params, value, after), 0.0)
        return after, self._timestep(after, reward)

    @property
    def name(self) -> str:
        """The environment's registered name."""
        return DISCIPLINED if self.params.disciplined else ENVIRONMENTS[0]

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

    scenario: a trajectory CSV, a world's TOML (its parameters give way to `overrides`), a `Scenario`, or None for the
        default trajectory.
    """
    if name not in ENVIRONMENTS:
        raise unknown("environment", name, ENVIRONMENTS)
    if name == DISCIPLINED:
        overrides = {"disciplined": True} | overrides
    if scenario is None:
        scenario = default_scenario()
    elif not isinstance(scenario, Scenario):
        scenario, parameters = read_world(scenario)
        overrides = parameters | overrides
    return Arena(make_params(**overrides), scenario)


def sweep(env: Any, **values: Any) -> tuple[Any, Any]:
    """A batch of environments for `jax.vmap`, and its `in_axes`; the trajectory is shared, not copied.

    env: an `Arena`, or any other environment that holds `params`, such as `ArenaRL`; both results are of its kind.
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
    for name, array in arrays.items():
        if array.ndim != 1 or array.size == 0:
            raise ArenaError(f"sweep values of {name} must be one-dimensional and not empty, got shape {array.shape}")
    earlier = {name: value for name, value in vars(env.params).items() if np.ndim(value) == 1}
    sizes = {name: len(array) for name, array in (earlier | arrays).items()}
    if len(set(sizes.values())) > 1:
        raise ArenaError(f"sweep values differ in length: {', '.join(f'{n} {size}' for n, size in sizes.items())}")
    params = with_leaves(env.params, arrays)
    axes = jax.tree.map(lambda _: None, env)
    # those of an earlier sweep stay swept
    swept = {name: 0 for name, value in vars(params).items() if np.ndim(value) == 1}
    axes = dataclasses.replace(axes, params=dataclasses.replace(axes.params, **swept))
    return dataclasses.replace(env, params=params), axes
