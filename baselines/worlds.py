"""The worlds that policies are trained in: many lanes of EnterpriseArenaRL-v1, and what a step is rewarded with.

The environment pays at the end of an episode alone. Training adds gamma * potential after a step - potential before
it, where the potential is what the objective would be if the episode ended now: the discounted sum over an episode is
the same but for the potential at the start, which no policy changes, so that the best policies stay the best ones (Ng,
Harada and Russell 1999). The potential and the critic read the hidden state, the critic the trajectory's months ahead
too; the policy never does.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import arena_jax
from arena_jax.decisions.env import REWARD_UNIT, TABLE, ArenaRL, DecisionState
from arena_jax.errors import ArenaError
from arena_jax.ledger import revenue_ttm
from arena_jax.params import FIELDS
from arena_jax.scenario import COLUMNS
from arena_jax.score import objective
from arena_jax.structs import RUNNING, TOOLS
from arena_jax.worlds import parse_worlds
from baselines.config import Config
from baselines.held_out import check_seed

# what the critic knows of the trajectory, and how many months ahead
_MARKET = ("user_growth", "treasury_2y", "credit_spread", "delinquency", "volatility", "lending_tightness")
_AHEAD = (0, 6, 18, 36)
_HIDDEN = 8 + len(_MARKET) * len(_AHEAD)  # beside three for each request that may be open


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class World:
    """Lanes of episodes, one after another. Parameters of `env` may have one value a lane; gamma discounts."""

    env: ArenaRL
    gamma: float = dataclasses.field(metadata={"static": True})

    @property
    def observation_size(self) -> int:
        """Entries that the policy sees."""
        return len(self.env.layout)

    @property
    def entries(self) -> int:
        """Entries with those for the critic alone."""
        return self.observation_size + _HIDDEN + 3 * self.env.params.max_pending

    @property
    def num_actions(self) -> int:
        """22."""
        return self.env.num_actions

    def reset(self, keys: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        """From a key a lane: states, observations float32[n, entries], masks bool[n, actions]."""

        def one(env: ArenaRL, key: jax.Array) -> Any:
            state, timestep = env.reset(key)
            return state, with_hidden(env, state, timestep.observation), timestep.action_mask

        return self._over_lanes(one)(keys)

    def step(
        self, states: Any, actions: jax.Array, keys: jax.Array
    ) -> tuple[Any, jax.Array, jax.Array, jax.Array, jax.Array, dict[str, jax.Array]]:
        """States, observations, masks, rewards, ended bool[n], and what ended episodes came to; with auto-reset.

        At an episode's end, states, observations and masks are those of the next one's start.
        """

        def one(env: ArenaRL, state: DecisionState, action: jax.Array, key: jax.Array) -> Any:
            after, shown = env.step(state, action, key)
            reward = shown.reward + self.gamma * potential(env, after) - potential(env, state)
            record = env.record(after)
            calls = sum(getattr(record, tool) for tool in TOOLS)
            came_to = {
                "objective": objective(env.params, after.opening_value, after.hidden),
                "survived": record.survived.astype(jnp.float32),
                "calls": calls.astype(jnp.float32) / record.months_played.astype(jnp.float32),
                "requests": record.requests.astype(jnp.float32),
            }
            # at once, for the critic is to see the world that is played next, not another
            state, next_shown = jax.tree.map(partial(jnp.where, shown.terminated), env.reset(key), (after, shown))
            observation = with_hidden(env, state, next_shown.observation)
            return state, observation, next_shown.action_mask, reward, shown.terminated, came_to

        return self._over_lanes(one)(states, actions, keys)

    def _over_lanes(self, function: Any) -> Any:
        axes = jax.tree.map(lambda leaf: 0 if leaf.ndim else None, self.env.params)
        one = lambda params, *args: function(dataclasses.replace(self.env, params=params), *args)
        return lambda *args: jax.vmap(one, in_axes=(axes, *[0] * len(args)))(self.env.params, *args)


def potential(env: ArenaRL, state: DecisionState) -> jax.Array:
    """The objective if the episode ended now, in units of the reward; 0 once it has."""
    now = objective(env.params, state.opening_value, state.hidden) / REWARD_UNIT
    return jnp.where(state.hidden.status == RUNNING, now, 0.0).astype(jnp.float32)


def with_hidden(env: ArenaRL, state: DecisionState, observation: jax.Array) -> jax.Array:
    """What the policy sees, and behind it what the critic knows beside: float32[entries]."""
    arena, books = state.hidden, state.hidden.books
    scaled = [
        potential(env, state),
        books.cash / 10e6,
        jnp.log1p(jnp.maximum(books.cash, 0.0) / 1e6),
        books.loans_gross / 100e6,
        books.debt_principal / 10e6,
        revenue_ttm(arena.revenue) / 10e6,
        jnp.log(books.shares / env.params.initial_shares),
        arena.equity_rounds / 5,
    ]
    for request in arena.pending:
        scaled += [request.granted / 10e6, request.granted > 0.0, request.months_left / 6]
    months = jnp.minimum(arena.month + jnp.array(_AHEAD, dtype=jnp.int32), env.horizon - 1)
    market = env.trajectories[state.world, months][:, jnp.array([TABLE.index(name) for name in _MARKET])]
    scales = jnp.array([[COLUMNS[name].scale for name in _MARKET]], dtype=market.dtype)
    hidden = jnp.stack([jnp.asarray(value, dtype=jnp.float32) for value in scaled])
    return jnp.concatenate([observation, hidden, (market / scales).ravel()]).astype(jnp.float32)


def make_world(config: Config) -> World:
    """The lanes of a configuration; raises `ArenaError` for settings that the environment refuses."""
    options = {"disciplined": config.disciplined, "shows_terms": config.shows_terms}
    env = arena_jax.make("EnterpriseArenaRL-v1", **options)
    if config.scenarios:
        generated = arena_jax.make("EnterpriseArenaRL-v1", scenarios=config.scenarios, **options)
        check_seed(parse_worlds(config.scenarios).about["seed"])
        env = _mixed(env, generated, config)
    if config.shows_terms:
        env, _ = arena_jax.sweep(env, **_terms(config))
    return World(env, config.gamma)


def _mixed(default: ArenaRL, generated: ArenaRL, config: Config) -> ArenaRL:
    """The default trajectory as often among generated ones as its share says."""
    share, count = config.default_share, generated.trajectories.shape[0]
    copies = round(count * share / (1.0 - share))
    if share > 0.0 and copies == 0:
        raise ArenaError(f"default_share {share:g} beside {count} generated worlds is less than one; give more of them")
    join = lambda one, other: jnp.concatenate([jnp.repeat(one, copies, axis=0), other])
    return dataclasses.replace(
        generated,
        trajectories=join(default.trajectories, generated.trajectories),
        crisis_months=join(default.crisis_months, generated.crisis_months),
    )


def _terms(config: Config) -> dict[str, np.ndarray]:
    """lambda, m and the tool budget of each lane, spread evenly (Halton); lambda denser where calls are cheap.

    Cheap calls are where an answer to lambda is worth most: evenly spread, a sixteenth of the lanes would know them.
    """
    cost, multiple, share = stats.qmc.Halton(3, scramble=False).random(config.lanes).T
    between = lambda ends, place: ends[0] + (ends[1] - ends[0]) * place
    return {
        "tool_cost": between(config.tool_cost, cost**2),
        "revenue_multiple": between(config.revenue_multiple, multiple),
        "tool_budget": np.where(share < config.blind_share, 0, FIELDS["tool_budget"].default),
    }
