"""Proximal policy optimisation, a whole update in one program: play, estimate advantages, fit.

A world has lanes: `reset(keys) -> states, observations, masks` and `step(states, actions, keys) -> states,
observations, masks, rewards, ended, came_to`, with auto-reset (`baselines.worlds.World`). A lane's episode goes on
from one update to the next. Of an observation the actor gets the first `observation_size` entries, the critic all
`entries` (Pinto et al. 2018), in training alone: its estimates are sharper, at some bias for policies with memory,
which it does not see (Baisero and Amato 2022).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from arena_jax.policies import categorical
from arena_jax.policies.network import (
    Normaliser,
    Sizes,
    act,
    new_actor,
    new_normaliser,
    start_memory,
)
from baselines.config import Config
from baselines.critic import judge, new_critic
from baselines.losses import advantages, divergence, normalised, policy_loss, value_loss


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    """All that a run goes on from."""

    weights: Any  # {"actor", "critic"}
    optimiser: Any
    normaliser: Normaliser
    states: Any  # of n lanes, leaves [n, ...] as the world has them
    observations: Any  # float32[n, entries]
    masks: Any  # bool[n, actions]
    memory: Any  # of the actor: float32[n, units], () if it has none
    key: Any  # typed key
    updates: Any  # int32[]: done so far


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Played:
    """A stretch of steps, leaves [steps, lanes, ...]."""

    observations: Any
    masks: Any
    actions: Any
    log_probs: Any
    values: Any
    rewards: Any
    ended: Any


def sizes_of(config: Config, world: Any) -> Sizes:
    """The networks' sizes."""
    return Sizes(config.kind, config.hidden, world.observation_size, world.num_actions)


def optimiser_of(config: Config) -> optax.GradientTransformation:
    """Adam with clipped gradients and a learning rate that falls to 0 over the run."""
    steps = config.updates * config.epochs * config.minibatches
    rate = optax.linear_schedule(config.learning_rate, 0.0, steps)
    return optax.chain(optax.clip_by_global_norm(config.max_gradient), optax.adam(rate, eps=1e-5))


def start(config: Config, world: Any, key: jax.Array) -> Learner:
    """A learner before its first update. Pure; to be compiled by `Program`, for the world's class says what is done."""
    key_actor, key_critic, key_world, key = jax.random.split(key, 4)
    sizes = sizes_of(config, world)
    weights = {
        "actor": new_actor(sizes, key_actor),
        "critic": new_critic(config.critic_hidden, world.entries, key_critic),
    }
    states, observations, masks = world.reset(jax.random.split(key_world, config.lanes))
    memory = start_memory(sizes, (config.lanes,))
    optimiser = optimiser_of(config).init(weights)
    # the openings alone hardly differ, and would say that nothing ever does
    normaliser = new_normaliser(world.entries)
    return Learner(weights, optimiser, normaliser, states, observations, masks, memory, key, jnp.int32(0))


def update(config: Config, world: Any, learner: Learner) -> tuple[Learner, dict[str, jax.Array]]:
    """One update, and its figures float32[]. Pure, as `start` is."""
    sizes = sizes_of(config, world)
    key_play, key_fit, key = jax.random.split(learner.key, 3)
    after, played, came_to = _play(config, sizes, world, dataclasses.replace(learner, key=key_play))
    last_values = judge(config.critic_hidden, learner.weights["critic"], _seen(after))
    gains = advantages(played.rewards, played.values, played.ended, last_values, config.gamma, config.trace)
    progress = learner.updates.astype(jnp.float32) / config.updates
    entropy_weight = config.entropy * jnp.maximum(1.0 - progress / config.explores, 0.0)
    weights, optimiser, fitted = _fit(config, sizes, learner, played, gains, entropy_weight, key_fit)
    figures = fitted | came_to | {"value_explained": _explained(played.values + gains, played.values)}
    return (
        dataclasses.replace(
            after,
            weights=weights,
            optimiser=optimiser,
            normaliser=learner.normaliser.updated(played.observations),
            key=key,
            updates=learner.updates + 1,
        ),
        figures,
    )


def _seen(learner: Learner) -> jax.Array:
    return learner.normaliser(learner.observations)


def _explained(targets: jax.Array, values: jax.Array) -> jax.Array:
    """The share of the targets' variance that values explain, float[]."""
    return 1.0 - jnp.var(targets - values) / (jnp.var(targets) + 1e-8)


def _play(config: Config, sizes: Sizes, world: Any, learner: Learner) -> tuple[Learner, Played, dict[str, jax.Array]]:
    """`steps` decisions in each lane."""

    def one(learner: Learner, key: jax.Array) -> tuple[Learner, tuple[Played, Any]]:
        key_action, key_step = jax.random.split(key)
        seen = _seen(learner)
        memory, logits = act(sizes, learner.weights["actor"], learner.memory, seen[:, : sizes.observation])
        values = judge(config.critic_hidden, learner.weights["critic"], seen)
        actions = categorical.sample(key_action, logits, learner.masks)
        keys = jax.random.split(key_step, config.lanes)
        states, observations, masks, rewards, ended, came_to = world.step(learner.states, actions, keys)
        log_probs = categorical.log_prob(logits, learner.masks, actions)
        rewards = rewards * config.reward_scale
        row = Played(learner.observations, learner.masks, actions, log_probs, values, rewards, ended)
        memory = _forgotten(memory, ended)
        after = dataclasses.replace(learner, states=states, observations=observations, masks=masks, memory=memory)
        return after, (row, jax.tree.map(lambda value: jnp.sum(jnp.where(ended, value, 0.0)), came_to))

    after, (played, sums) = jax.lax.scan(one, learner, jax.random.split(learner.key, config.steps))
    episodes = played.ended.sum(dtype=jnp.int32).astype(jnp.float32)
    means = {name: total.sum() / episodes for name, total in sums.items()}  # no episode ended: not a number
    return after, played, means | {"episodes": episodes, "entropy_of_play": -played.log_probs.mean()}


def _forgotten(memory: Any, ended: jax.Array) -> Any:
    """The memory with that of ended episodes as at the start."""
    return jax.tree.map(lambda leaf: jnp.where(ended[:, None], 0.0, leaf), memory)


def _over_time(sizes: Sizes, weights: Any, memory: Any, seen: jax.Array, ended: jax.Array) -> jax.Array:
    """An actor's logits over steps float[T, n, entries], from the memory at their start."""
    if sizes.kind != "gru":
        return act(sizes, weights, (), seen)[1]

    def one(memory: Any, row: Any) -> tuple[Any, jax.Array]:
        seen, ended = row
        memory, logits = act(sizes, weights, memory, seen)
        return _forgotten(memory, ended), logits

    return jax.lax.scan(one, memory, (seen, ended))[1]


def _fit(
    config: Config,
    sizes: Sizes,
    learner: Learner,
    played: Played,
    gains: jax.Array,
    entropy_weight: jax.Array,
    key: jax.Array,
) -> tuple[Any, Any, dict[str, jax.Array]]:
    """Epochs over minibatches of lanes, each with all its steps: weights, optimiser, mean figures."""
    optimiser = optimiser_of(config)
    targets = played.values + gains
    seen = learner.normaliser(played.observations)

    def loss(weights: Any, lanes: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        take = lambda leaf: leaf[:, lanes]
        memory = jax.tree.map(lambda leaf: leaf[lanes], learner.memory)
        for_actor = take(seen[:, :, : sizes.observation])
        logits = _over_time(sizes, weights["actor"], memory, for_actor, take(played.ended))
        values = judge(config.critic_hidden, weights["critic"], take(seen))
        masks, old = take(played.masks), take(played.log_probs)
        log_probs = categorical.log_prob(logits, masks, take(played.actions))
        entropy = categorical.entropy(logits, masks).mean()
        of_policy = policy_loss(log_probs, old, normalised(take(gains)), config.clip)
        of_value = value_loss(values, take(targets))
        figures = {
            "policy_loss": of_policy,
            "value_loss": of_value,
            "entropy": entropy,
            "divergence": divergence(log_probs, old),
        }
        return of_policy + config.value * of_value - entropy_weight * entropy, figures

    def one(carry: Any, lanes: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        weights, state = carry
        gradient, figures = jax.grad(loss, has_aux=True)(weights, lanes)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes its counts with floats
            changes, state = optimiser.update(gradient, state, weights)
        return (optax.apply_updates(weights, changes), state), figures

    orders = [jax.random.permutation(one, config.lanes) for one in jax.random.split(key, config.epochs)]
    lanes = jnp.stack(orders).reshape(config.epochs * config.minibatches, -1)
    (weights, state), figures = jax.lax.scan(one, (learner.weights, learner.optimiser), lanes)
    return weights, state, jax.tree.map(jnp.mean, figures)
