"""One episode on the host: the world's own jitted functions, one immutable snapshot per call.

A call makes a new `Episode` and leaves the old one as it was, so that nothing has happened until it is committed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.arena import Arena
from arena_jax.errors import ArenaError
from arena_jax.llm.archive import Archive, settlements
from arena_jax.llm.statements import on_host
from arena_jax.projection import project
from arena_jax.score import make_record
from arena_jax.structs import BANKRUPT, COMPLETED, RUNNING, Action, Assumptions, Observation, Record, State, ToolCall
from arena_jax.tools import INDICATORS

# the environment is an argument, so that every session of one kind shares a compilation
_reset = jax.jit(lambda env, key: env.reset(key))
_use_tool = jax.jit(lambda env, state, call, key: env.use_tool(state, call, key))
_close_books = jax.jit(lambda env, state: env.close_books(state))
_step = jax.jit(lambda env, state, action, key: env.step(state, action, key))
_project = jax.jit(lambda env, state, assumptions: project(env.params, state, assumptions))
_record = jax.jit(lambda env, state: make_record(env.params, env.scenario, state))

STATUS_NAMES = {RUNNING: "running", BANKRUPT: "bankrupt", COMPLETED: "survived"}


def episode_key(seed: int, index: int = 0) -> jax.Array:
    """The key of an episode: that of episode `index` of `rollout` with the run key `jax.random.key(seed)`."""
    return jax.random.fold_in(jax.random.key(seed), index)


@dataclass(frozen=True)
class World:
    """What an episode is played in; `history` holds the columns that a tool may show, up to any month."""

    env: Arena
    key: jax.Array
    history: dict[str, np.ndarray]

    @classmethod
    def make(cls, env: Arena, seed: int, index: int = 0) -> World:
        """On the CPU and in float32, so that one journal replays anywhere."""
        if not isinstance(env, Arena) or any(np.ndim(value) for value in vars(env.params).values()):
            raise ArenaError("env must be one Arena made by arena_jax.make, and no sweep")
        if env.params.disciplined:
            raise ArenaError("agents and people play by the paper's rules: their documents tell of no disciplined ones")
        if jnp.result_type(float) == jnp.float64:
            raise ArenaError("agents and people play in float32: unset JAX_ENABLE_X64")
        env = jax.device_put(env, jax.local_devices(backend="cpu")[0])
        history = {name: np.asarray(getattr(env.scenario, name)) for name in INDICATORS}
        return cls(env, episode_key(seed, index), history)


@dataclass(frozen=True)
class Episode:
    """A snapshot. `state` is hidden; the agent sees `observation`, its notes, and answers made from the archive."""

    state: State
    observation: Observation
    archive: Archive
    notes: tuple[tuple[str, str], ...] = ()  # date and text
    memory_calls: int = 0  # this month
    has_closed: bool = False  # this month, where a closing leaves it open

    @property
    def month(self) -> int:
        """The month that is open, or in which the episode ended."""
        return int(self.observation.month)

    @property
    def status(self) -> str:
        """running, bankrupt or survived."""
        return STATUS_NAMES[int(self.state.status)]

    @property
    def calls_left(self) -> int:
        """Tool calls left this month."""
        return int(self.observation.calls_left)


def begin(world: World) -> Episode:
    """The first month."""
    state, timestep = _reset(world.env, world.key)
    return Episode(state, timestep.observation, Archive.of_opening(on_host(state.books)))


def use_tool(world: World, episode: Episode, call: ToolCall) -> Episode:
    """A tool call answered: counted, and in the notebook."""
    state, timestep = _use_tool(world.env, episode.state, call, world.key)
    return replace(episode, state=state, observation=timestep.observation)


def close_books(world: World, episode: Episode) -> Episode:
    """A closing that leaves the month open, where the world allows it."""
    state, timestep = _close_books(world.env, episode.state)
    archive = episode.archive.closed(int(state.books_closed_through))
    return replace(episode, state=state, observation=timestep.observation, archive=archive, has_closed=True)


def end_month(world: World, episode: Episode, action: Action) -> Episode:
    """Act, and let the month pass; an episode that ends keeps the archive that it had."""
    state, timestep = _step(world.env, episode.state, action, world.key)
    seen, archive = timestep.observation, episode.archive
    if int(state.status) != BANKRUPT:
        archive = archive.after_month(on_host(state.books), on_host(state.flash), settlements(seen))
        archive = archive.closed(int(state.books_closed_through))
    return replace(episode, state=state, observation=seen, archive=archive, memory_calls=0, has_closed=False)


def projected_cash(world: World, episode: Episode, assumptions: Assumptions) -> list[float]:
    """Cash $ as each of the next months opens, up to the longest projection."""
    return np.asarray(_project(world.env, episode.state, assumptions)).tolist()


def record_of(world: World, episode: Episode) -> Record:
    """The record of the episode so far, as NumPy scalars."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[()], _record(world.env, episode.state))


def plain_record(record: Record) -> dict[str, Any]:
    """A record as plain data."""
    return {name: value.item() for name, value in vars(record).items()}
