"""EnterpriseArenaRL-v1 for learners that speak gymnax, in both of its step forms, with auto-reset.

    env, params = make()            # step gives observation, state, reward, done, info: rejax, purejaxrl
    env, params = make(values=6)    # observation, state, reward, terminated, truncated, info: gymnax 1.0

`params` is the `ArenaRL` itself: a pytree whose leaves are the world's parameters and trajectories. `info` holds the
`action_mask` that goes with the observation, `discount`, and the paper's `score` in $, 0 before an episode's end.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from arena_jax.decisions.env import ArenaRL, DecisionState
from arena_jax.decisions.layout import LIMIT, NAME
from arena_jax.decisions.make import make_rl
from arena_jax.errors import ArenaError, shown
from arena_jax.score import score

try:
    from gymnax.environments import spaces
    from gymnax.environments.environment import Environment
except ImportError as error:
    raise ArenaError(f"this interface needs gymnax ({error}): pip install 'arena_jax[rl]'") from error


class GymnaxArena(Environment):  # type: ignore[misc, unused-ignore]  # untyped without the extra
    """The six-value form. An ended episode is followed by another, which begins with the next step's key."""

    def __init__(self, env: ArenaRL) -> None:
        super().__init__()
        self._env = env

    @property
    def name(self) -> str:
        """The environment's registered name."""
        return NAME

    @property
    def default_params(self) -> ArenaRL:
        """The environment that it was made of."""
        return self._env

    @property
    def num_actions(self) -> int:
        """22."""
        return self._env.num_actions

    def action_space(self, params: ArenaRL | None = None) -> Any:
        """Discrete(22)."""
        return spaces.Discrete(self.num_actions)

    def observation_space(self, params: ArenaRL | None = None) -> Any:
        """Box(n), float32."""
        return spaces.Box(-LIMIT, LIMIT, (len(self._env.layout),), jnp.float32)

    @partial(jax.jit, static_argnames=("self",))
    def reset(self, key: jax.Array, params: ArenaRL | None = None) -> tuple[jax.Array, DecisionState]:
        """Observation and state of a new episode."""
        state, timestep = (params or self._env).reset(key)
        return timestep.observation, state

    @partial(jax.jit, static_argnames=("self",))
    def step(self, key: jax.Array, state: DecisionState, action: Any, params: ArenaRL | None = None) -> Any:
        """One decision: observation, state, reward, terminated, truncated, info."""
        env = params or self._env
        state, timestep, ended = env.step_on(state, action, key)
        info = {
            "action_mask": timestep.action_mask,
            "discount": 1.0 - timestep.terminated.astype(jnp.float32),
            "score": jnp.where(timestep.terminated, score(env.params, state.hidden), 0.0),
            "terminated": timestep.terminated,
            "truncated": timestep.truncated,
            "final_observation": ended.observation,
        }
        return timestep.observation, state, timestep.reward, timestep.terminated, timestep.truncated, info


class FiveValueArena(GymnaxArena):
    """The form that rejax and purejaxrl unpack: observation, state, reward, done, info."""

    @partial(jax.jit, static_argnames=("self",))
    def step(self, key: jax.Array, state: DecisionState, action: Any, params: ArenaRL | None = None) -> Any:
        """One decision: observation, state, reward, done, info."""
        observation, state, reward, terminated, _, info = super().step(key, state, action, params)
        return observation, state, reward, terminated, info


def make(values: int = 5, **options: Any) -> tuple[GymnaxArena, ArenaRL]:
    """Environment and params as `gymnax.make` returns them. values: 5 or 6, of a step; options: those of `make_rl`."""
    forms = {5: FiveValueArena, 6: GymnaxArena}
    if values not in forms:
        raise ArenaError(f"values of a step must be 5 or 6, got {shown(values)}")
    env = forms[values](make_rl(**options))
    return env, env.default_params
