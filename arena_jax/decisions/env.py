"""EnterpriseArenaRL-v1: the arena one decision at a time, for reinforcement learning.

The rules are those of `arena_jax.arena`; here are the actions, the flat observation and the episode's world.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.arena import Arena
from arena_jax.checks import checked_decision
from arena_jax.decisions.layout import (
    ACTIONS,
    AMOUNT_OF,
    CLOSE,
    FIRST_REQUEST,
    GROUPS,
    INSTRUMENT_OF,
    LIMIT,
    MARKET,
    NAME,
    Entry,
    layout_digest,
    observation_table,
)
from arena_jax.decisions.sparse import where_wanted
from arena_jax.draws import Draws, key_words, month_draws, request_draws, world_draw
from arena_jax.month import advance, opening_state, opening_value
from arena_jax.operations import market_at
from arena_jax.params import Params
from arena_jax.projection import assumptions_from, project
from arena_jax.scenario import COLUMNS, Scenario
from arena_jax.score import make_record, objective
from arena_jax.structs import (
    BANKRUPT,
    DEBT,
    EQUITY,
    NO_REQUEST,
    NOT_TURNED_AWAY,
    RUNNING,
    TOOLS,
    Action,
    Reading,
    Record,
    State,
)
from arena_jax.tools import ANALYZE, CHANGES, INDICATORS, PROJECT, PROJECTED, REVIEW, VERIFY, statement_lines

REWARD_UNIT = 1e8  # $ that a reward of 1 stands for
_NEVER = -1
# a trajectory's columns, those that a tool shows first
TABLE = (*INDICATORS, *[name for name in COLUMNS if name not in INDICATORS])
_KEPT = tuple(name for group, names in GROUPS.items() if group != "market" for name in names)


class Months(NamedTuple):
    """The month that each group of quantities was last shown as of (int32[], -1: never), in the order of `GROUPS`."""

    cash: Any
    closed: Any
    flash: Any
    projected: Any
    market: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DecisionState:
    """One episode between two decisions. `hidden` is the arena's own; the rest is for the agent to see."""

    hidden: State  # its notebook is left empty: `shown` and `months` stand for it
    world: Any  # int32[]: which of the environment's trajectories
    opening_value: Any  # float[] $: V at the start, to which the listed price is indexed
    shown: Any  # dict quantity -> float[], as last shown; the market's are read off the trajectory
    months: Months


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DecisionTimestep:
    """What `reset` and `step` show.

    observation float32[n] (`ArenaRL.layout`); action_mask bool[22]; reward float32[], in `REWARD_UNIT` dollars;
    terminated bool[]; truncated bool[], always False: the horizon is part of the task.
    """

    observation: Any
    action_mask: Any
    reward: Any
    terminated: Any
    truncated: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)  # compared by identity, so that `jax.jit(env.step)` can hash it
class ArenaRL:
    """EnterpriseArenaRL-v1: EnterpriseArena with one decision a step. Pure, jit- and vmap-able, no auto-reset.

        >>> import jax, arena_jax
        >>> env = arena_jax.make("EnterpriseArenaRL-v1")
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> state, timestep = env.step(state, jax.numpy.int32(0), jax.random.key(0))  # verify the cash
        >>> timestep.observation.shape, int(timestep.action_mask.sum()), bool(timestep.terminated)
        ((90,), 22, False)

    Actions int32[], names in `ACTIONS`: 0-3 a tool call (the month stays open, the budget moves), 4 book_closing,
    5 pass, 6-13 equity and 14-21 debt at the eight `AMOUNTS`; 4 to 21 end the month. `action_mask` is False for tool
    calls over budget, and for requests that the world would turn away: while the pipeline is full, or above
    `max_request`. A masked request uses up the month, as in the world itself; a masked tool call, and any number that
    is no action, lets the month pass: so every episode ends, whatever an agent does.

    Tools take no argument here: the financial package, all indicators, and a projection over 12 months whose
    assumptions come from the statements and the industry's growth as last shown (`projection.assumptions_from`).

    Observation float32[n]: `layout` names every entry with unit and scale. Reward: the score at the end, in units of
    $100M, else 0; with `disciplined=True` the value kept. Stepping an ended episode changes nothing and gives reward 0.

    Each episode is played on one of the trajectories that the environment holds; its key decides which. Numbers are
    leaves, so `vmap` over environments sweeps parameters, and jitted functions should take the environment as an
    argument, or the trajectories become constants of the program.
    """

    params: Params
    trajectories: Any  # float[worlds, T + 1, columns], the last month twice: a month and the next are one slice
    crisis_months: Any  # int32[worlds, n]
    shows_terms: bool = dataclasses.field(default=False, metadata={"static": True})

    @property
    def name(self) -> str:
        """The environment's registered name."""
        return NAME

    @property
    def num_actions(self) -> int:
        """22."""
        return len(ACTIONS)

    @property
    def horizon(self) -> int:
        """Months T of an episode."""
        return int(self.trajectories.shape[-2]) - 1

    @property
    def max_steps_in_episode(self) -> jax.Array:
        """Decisions that an episode can hold, int32[]: the whole budget of calls each month, and the month's action."""
        return self.horizon * (self.params.tool_budget + 1)

    @property
    def layout(self) -> tuple[Entry, ...]:
        """The entries of the observation, in order."""
        return observation_table(self.params.max_pending, self.shows_terms)

    @property
    def layout_digest(self) -> str:
        """SHA-256 of observation and actions; trained weights carry that of the environment they were trained on."""
        return layout_digest(self.params.max_pending, self.shows_terms)

    def scenario(self, world: jax.Array) -> Scenario:
        """The trajectory with the number int32[]."""
        table = self.trajectories[world][:-1]
        return Scenario(**{name: table[:, i] for i, name in enumerate(TABLE)}, crisis_months=self.crisis_months[world])

    def arena(self, world: int = 0) -> Arena:
        """The same world with its months as steps."""
        return Arena(self.params, self.scenario(jnp.int32(world)))

    def record(self, state: DecisionState) -> Record:
        """The record of the episode so far; of an ended episode, its outcome."""
        return make_record(self.params, self.scenario(state.world), state.hidden)

    def reset(self, key: jax.Array) -> tuple[DecisionState, DecisionTimestep]:
        """The first month of an episode. `key`: the episode's threefry key, which chooses its world."""
        words = key_words(key, ())
        worlds = self.trajectories.shape[0]
        chosen = jnp.floor(world_draw(words) * worlds).astype(jnp.int32) if worlds > 1 else jnp.int32(0)
        world = jnp.minimum(chosen, worlds - 1)
        rows = self._rows(world, jnp.int32(0))
        hidden = opening_state(self.params, market_at(self.params, rows, jnp.int32(0)))
        never = jnp.full_like(hidden.month, _NEVER)
        state = DecisionState(
            hidden=dataclasses.replace(hidden, notebook={}),
            world=world,
            opening_value=opening_value(self.params, rows),
            shown={name: jnp.zeros_like(hidden.books.cash) for name in _KEPT},
            months=Months(*[never] * len(Months._fields)),
        )
        return state, self._timestep(state, jnp.float32(0.0))

    def step(self, state: DecisionState, action: jax.Array, key: jax.Array) -> tuple[DecisionState, DecisionTimestep]:
        """Take one decision. A fresh key each step or one key throughout are both correct: the counter moves."""
        words = key_words(key, ())
        action = checked_decision(action)
        hidden = state.hidden
        running = hidden.status == RUNNING
        is_call = (action >= 0) & (action < len(TOOLS)) & (self._calls_left(hidden) > 0) & running
        state = self._look(state, action, is_call)

        draws = Draws(month_draws(words, hidden.month), request_draws(words, hidden.tally.requests))
        market = market_at(self.params, self._rows(state.world, hidden.month), jnp.int32(0))
        after = advance(
            self.params, self.horizon, state.opening_value, market, state.hidden, self._month_action(action), draws
        )
        after = dataclasses.replace(after, month=jnp.where(after.status == BANKRUPT, hidden.month, hidden.month + 1))
        ends_month = running & ~is_call
        after = jax.tree.map(lambda new, old: jnp.where(ends_month, new, old), after, state.hidden)
        just_ended = running & (after.status != RUNNING)
        reward = jnp.where(just_ended, objective(self.params, state.opening_value, after) / REWARD_UNIT, 0.0)
        state = dataclasses.replace(state, hidden=after)
        return state, self._timestep(state, reward.astype(jnp.float32))

    def step_on(
        self, state: DecisionState, action: jax.Array, key: jax.Array
    ) -> tuple[DecisionState, DecisionTimestep, DecisionTimestep]:
        """`step` with auto-reset: an ended episode is followed by another, and the state is of the one last stepped.

        Returns the state, what is shown (reward and `terminated` of this step, but at an episode's end observation and
        mask of the next one's start), and the step's own timestep. The next episode begins, with the key of the next
        call, when that comes: no tool has been called in it yet, so all starts look alike.
        """
        fresh, begun = self.reset(key)
        has_ended = state.hidden.status != RUNNING
        state = jax.tree.map(lambda new, old: jnp.where(has_ended, new, old), fresh, state)
        state, ended = self.step(state, action, key)
        choose = lambda new, old: jnp.where(ended.terminated, new, old)
        shown = dataclasses.replace(
            ended,
            observation=choose(begun.observation, ended.observation),
            action_mask=choose(begun.action_mask, ended.action_mask),
        )
        return state, shown, ended

    def _rows(self, world: jax.Array, month: jax.Array) -> Scenario:
        """A month int32[] and the next as a trajectory of two months: the same rules read it."""
        rows = jax.lax.dynamic_slice(self.trajectories, (world, month, jnp.int32(0)), (1, 2, len(TABLE)))[0]
        return Scenario(**{name: rows[:, i] for i, name in enumerate(TABLE)}, crisis_months=self.crisis_months[world])

    def _calls_left(self, hidden: State) -> jax.Array:
        return self.params.tool_budget - hidden.tally.calls_this_month

    def _month_action(self, action: jax.Array) -> Action:
        """What the month is used for; a pass for tool calls and for numbers that are no action."""
        place = action - FIRST_REQUEST
        is_request = (place >= 0) & (place < len(INSTRUMENT_OF))
        place = jnp.clip(place, 0, len(INSTRUMENT_OF) - 1)
        amounts = jnp.asarray(AMOUNT_OF, dtype=self.trajectories.dtype)
        instruments = jnp.asarray(INSTRUMENT_OF, dtype=jnp.int32)
        return Action(
            close_books=action == CLOSE,
            instrument=jnp.where(is_request, instruments[place], NO_REQUEST),
            amount=jnp.where(is_request, amounts[place], 0.0),
        )

    def _look(self, state: DecisionState, action: jax.Array, is_call: jax.Array) -> DecisionState:
        """Answer a tool call: count it, and keep what it shows."""
        hidden, month = state.hidden, state.hidden.month
        asked = [is_call & (action == tool) for tool in range(len(TOOLS))]
        tally = dataclasses.replace(
            hidden.tally,
            calls_this_month=hidden.tally.calls_this_month + is_call.astype(jnp.int32),
            tool_calls=tuple(
                count + one.astype(jnp.int32) for count, one in zip(hidden.tally.tool_calls, asked, strict=True)
            ),
        )
        # flash figures exist only past the last closing
        is_flash = asked[REVIEW] & (hidden.books_closed_through < month - 1)
        as_of = {
            "cash": (asked[VERIFY], month),
            "closed": (asked[REVIEW], hidden.books_closed_through + 1),
            "flash": (is_flash, month),
            "projected": (asked[PROJECT], month),
            "market": (asked[ANALYZE], month),
        }
        values = {"cash": hidden.books.cash} | statement_lines(self.params, hidden)
        values |= {f"flash_{name}": value for name, value in hidden.flash._asdict().items()}
        values |= self._projected(state, asked[PROJECT])
        shown = {
            name: jnp.where(as_of[group][0], values[name], state.shown[name])
            for group, names in GROUPS.items()
            if group != "market"
            for name in names
        }
        months = Months(*[jnp.where(*as_of[group], before) for group, before in state.months._asdict().items()])
        return dataclasses.replace(state, hidden=dataclasses.replace(hidden, tally=tally), shown=shown, months=months)

    def _projected(self, state: DecisionState, wanted: jax.Array) -> dict[str, jax.Array]:
        """Projected cash by quantity, on assumptions from what has been shown."""
        growth = self._market(state)[MARKET.index("industry_user_growth")]
        values = state.shown | {"industry_user_growth": growth}
        readings = {name: Reading(value, jnp.int32(0)) for name, value in values.items()}
        horizon = max(PROJECTED)

        def cash_ahead(params: Params, hidden: State, readings: dict[str, Reading]) -> jax.Array:
            return project(params, hidden, assumptions_from(readings, horizon), horizon)

        path = where_wanted(cash_ahead, wanted, self.params, state.hidden, readings)
        lowest = path[0]
        for row in range(1, horizon):
            lowest = jnp.minimum(lowest, path[row])
        ahead = {f"projected_cash_{months}": path[months - 1] for months in PROJECTED}
        return ahead | {"projected_cash_min": lowest}

    def _market(self, state: DecisionState) -> jax.Array:
        """The market as last shown, float[45] in the order of `MARKET`; zeros if never."""
        month = state.months.market
        now = jnp.clip(month, 0, self.horizon - 1)
        table = self.trajectories[:, :, : len(INDICATORS)]
        level = table[state.world, now]
        changes = [level - table[state.world, jnp.maximum(now - months, 0)] for months in CHANGES]
        return jnp.where(month < 0, 0.0, jnp.concatenate([level, *changes]))

    def _timestep(self, state: DecisionState, reward: jax.Array) -> DecisionTimestep:
        terminated = state.hidden.status != RUNNING
        return DecisionTimestep(
            self._observation(state), self._mask(state.hidden), reward, terminated, jnp.zeros_like(terminated)
        )

    def _mask(self, hidden: State) -> jax.Array:
        """bool[22]; of an ended episode all but pass are masked."""
        running = hidden.status == RUNNING
        is_free = hidden.pending[0].instrument == NO_REQUEST
        for place in hidden.pending[1:]:
            is_free = is_free | (place.instrument == NO_REQUEST)
        calls = jnp.broadcast_to(running & (self._calls_left(hidden) > 0), (len(TOOLS),))
        requests = jnp.asarray(AMOUNT_OF, dtype=self.trajectories.dtype) <= self.params.max_request
        return jnp.concatenate([calls, running[None], jnp.ones_like(running)[None], requests & running & is_free])

    def _observation(self, state: DecisionState) -> jax.Array:
        hidden = state.hidden
        month = hidden.month
        facts = [month, self._calls_left(hidden), hidden.turned_away != NOT_TURNED_AWAY]
        for request, notice in zip(hidden.pending, hidden.notices, strict=True):
            is_open = request.instrument != NO_REQUEST
            age = jnp.where(is_open, month - request.month_asked, 0)
            facts += [request.instrument == EQUITY, request.instrument == DEBT, request.requested, age]
            facts += [notice.instrument == EQUITY, notice.instrument == DEBT]
            facts += [notice.requested, notice.received, notice.rate]
        scales = {entry.name: entry.scale for entry in self.layout}
        # an age of -1 stays -1 after scaling
        ages = [
            jnp.where(as_of < 0, _NEVER * scales[f"{group}.age"], (month - as_of).astype(jnp.float32))
            for group, as_of in state.months._asdict().items()
        ]
        dtype = hidden.books.cash.dtype
        scalars = [value.astype(dtype) for value in (*facts, *ages, *state.shown.values())]
        parts = [jnp.stack(jax.lax.optimization_barrier(scalars)), self._market(state)]
        if self.shows_terms:
            parts.append(jnp.stack([self.params.tool_cost, self.params.revenue_multiple]))
        scaled = jnp.concatenate(parts) / np.array(list(scales.values()), dtype=dtype)
        return jnp.clip(scaled, -LIMIT, LIMIT).astype(jnp.float32)
