"""EnterpriseArenaRL-v1 for Gymnasium: one environment, and a vector of them stepped together.

    gymnasium.make("arena_jax.envs.gymnasium_env:EnterpriseArenaRL-v1")
    gymnasium.make_vec("arena_jax.envs.gymnasium_env:EnterpriseArenaRL-v1", num_envs=1024,
                       vectorization_mode="vector_entry_point")

Keyword arguments are those of `arena_jax.decisions.make.make_rl`. All that comes out is NumPy or plain Python.
`info["action_mask"]` (bool, 22) goes with the observation; `info["record"]` is the record of an ended episode.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.decisions.env import ArenaRL
from arena_jax.decisions.layout import ACTIONS, LIMIT, NAME, PASS
from arena_jax.decisions.make import make_rl
from arena_jax.errors import ArenaError, check_count

try:
    import gymnasium
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as error:
    raise ArenaError(f"this interface needs Gymnasium ({error}): pip install 'arena_jax[rl]'") from error

MAX_ENVS = 1_000_000

# the environment is an argument, so that all instances of one kind share a compilation
_reset = jax.jit(ArenaRL.reset)
_step = jax.jit(ArenaRL.step)
_record = jax.jit(ArenaRL.record)
_reset_all = jax.jit(lambda env, keys: jax.vmap(env.reset)(keys))
_record_all = jax.jit(lambda env, states: jax.vmap(env.record)(states))


@jax.jit
def _step_all(env: ArenaRL, states: Any, actions: jax.Array, run_key: jax.Array, count: jax.Array) -> Any:
    keys = jax.random.split(jax.random.fold_in(run_key, count), actions.shape[0])
    return jax.vmap(env.step_on)(states, actions, keys)


def _key(generator: np.random.Generator) -> jax.Array:
    return jax.random.wrap_key_data(jnp.asarray(generator.integers(0, 2**32, 2, dtype=np.uint32)))


def _spaces(env: ArenaRL) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Discrete]:
    box = gymnasium.spaces.Box(-LIMIT, LIMIT, (len(env.layout),), np.float32)
    return box, gymnasium.spaces.Discrete(env.num_actions)


def _decisions(actions: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Actions as int32, before they could wrap into other ones: a number that is no action lets the month pass."""
    chosen = np.asarray(actions)
    if chosen.shape != shape or chosen.dtype.kind not in "iu":
        wanted = f"actions must be {shape[0]} integers" if shape else "action must be one integer"
        raise ArenaError(f"{wanted}, got {chosen.dtype}{list(chosen.shape)}")
    return np.where((chosen >= 0) & (chosen < len(ACTIONS)), chosen, PASS).astype(np.int32)


class GymnasiumArena(gymnasium.Env):  # type: ignore[misc, unused-ignore]  # untyped without the extra
    """One episode at a time."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  as Gymnasium declares it

    def __init__(self, render_mode: None = None, **options: Any) -> None:
        self.render_mode = render_mode
        self.rl = make_rl(**options)
        self.observation_space, self.action_space = _spaces(self.rl)
        self._state: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """A new episode; its key comes from `np_random`."""
        super().reset(seed=seed)
        self._key = _key(self.np_random)
        self._state, timestep = _reset(self.rl, self._key)
        return np.asarray(timestep.observation), {"action_mask": np.asarray(timestep.action_mask)}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One decision."""
        if self._state is None:
            raise ArenaError("call reset before step")
        self._state, timestep = _step(self.rl, self._state, _decisions(action, ()), self._key)
        info: dict[str, Any] = {"action_mask": np.asarray(timestep.action_mask)}
        if timestep.terminated:
            info["record"] = {name: leaf.item() for name, leaf in vars(_record(self.rl, self._state)).items()}
        observation, reward = np.asarray(timestep.observation), float(timestep.reward)
        return observation, reward, bool(timestep.terminated), False, info


class GymnasiumArenaVector(VectorEnv):  # type: ignore[misc, unused-ignore]  # untyped without the extra
    """Many episodes stepped together; an ended one is followed by another in the same step (SAME_STEP).

    In a step in which episodes end, `info["final_obs"]` holds their last observations and `info["final_info"]` their
    last masks and records; `_final_obs` and `_final_info` mark which.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int = 1, render_mode: None = None, **options: Any) -> None:
        check_count("num_envs", num_envs, 1, MAX_ENVS)
        self.num_envs, self.render_mode = int(num_envs), render_mode
        self.rl = make_rl(**options)
        self.single_observation_space, self.single_action_space = _spaces(self.rl)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._states: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """New episodes everywhere; their keys come from `np_random`."""
        super().reset(seed=seed)
        self._run_key, self._count = _key(self.np_random), 0
        first = jax.random.split(jax.random.fold_in(self._run_key, 0), self.num_envs)
        self._states, timestep = _reset_all(self.rl, first)
        return np.asarray(timestep.observation), self._masks(timestep)

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One decision in each."""
        if self._states is None:
            raise ArenaError("call reset before step")
        chosen = _decisions(actions, (self.num_envs,))
        self._count += 1
        self._states, timestep, last = _step_all(self.rl, self._states, chosen, self._run_key, self._count)
        ended = np.asarray(timestep.terminated)
        info = self._masks(timestep)
        if ended.any():
            info |= self._final(ended, last)
        rewards, truncated = np.asarray(timestep.reward), np.asarray(timestep.truncated)
        return np.asarray(timestep.observation), rewards, ended, truncated, info

    def _masks(self, timestep: Any) -> dict[str, Any]:
        return _marked({"action_mask": np.asarray(timestep.action_mask)}, np.ones(self.num_envs, dtype=np.bool_))

    def _final(self, ended: np.ndarray, last: Any) -> dict[str, Any]:
        observations, all_last = np.full(self.num_envs, None, dtype=object), np.asarray(last.observation)
        for index in np.flatnonzero(ended):
            observations[index] = all_last[index]
        record = {name: np.asarray(leaf) for name, leaf in vars(_record_all(self.rl, self._states)).items()}
        final = {"action_mask": np.asarray(last.action_mask), "record": _marked(record, ended)}
        return _marked({"final_obs": observations, "final_info": _marked(final, ended)}, ended)


def _marked(values: dict[str, Any], which: np.ndarray) -> dict[str, Any]:
    """`values`, and for each a mask of the environments that it is of, as Gymnasium has it."""
    return values | {f"_{name}": which.copy() for name in values}


gymnasium.register(
    NAME,
    entry_point=f"{__name__}:GymnasiumArena",
    vector_entry_point=f"{__name__}:GymnasiumArenaVector",
)
