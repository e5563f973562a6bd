"""Batch play: a policy over many episodes, one common month at a time (design section 5.5).

What makes it fast: every leaf is a scalar per episode, so a batch is a set of [batch] arrays
and the compiler vectorises across episodes; the month is common to the batch, so the market is computed once a month
and the revenue window is written as one contiguous row; next month's draws are computed in this month's body and
carried by the scan, two to a word, so that they cross a loop boundary and are not computed again by each of their
consumers; and a batch is left once all its episodes have ended. benchmarks/README.md has the figures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from arena_jax.arena import Arena
from arena_jax.checks import check_policy, checked_action, checked_assumptions, checked_decision, takes_decisions
from arena_jax.decisions.play import play_decisions, world_for
from arena_jax.draws import POLICY_STREAM, episode_keys, key_words, packed_draws, unpacked_draws
from arena_jax.errors import ArenaError, brief, check_count, shown
from arena_jax.month import advance, opening_state, opening_value
from arena_jax.operations import market_at
from arena_jax.programs import Program, classes
from arena_jax.pruning import pruned
from arena_jax.score import make_record
from arena_jax.structs import BANKRUPT, RUNNING, TOOLS, Observation, Record, State
from arena_jax.tools import ALL_INDICATORS, FINANCIAL_PACKAGE, Arguments, call_tools, observe, signals_at
from arena_jax.trajectory import RECORDERS, check_fields

DEFAULT_BATCH = 16_384
# on a CPU with wide vectors LLVM otherwise uses half of them; without effect elsewhere
COMPILER_OPTIONS = {"xla_cpu_prefer_vector_width": 512}
_LANES = 64
_SPREAD = ("gpu", "tpu")  # platforms whose local devices share a batch; those of a CPU share its cores already
_BLOCK = 12  # months played between two looks at whether any episode goes on
_TRIED: set[Any] = set()  # kinds of environment and policy that have been traced once and found sound


def _observation_axes(observation: Observation) -> Observation:
    """`in_axes` for a batch of observations that share one month."""
    return dataclasses.replace(jax.tree.map(lambda _: 0, observation), month=None)


def _broadcast_state(state: State, batch: int) -> State:
    """The opening state for every episode: [] to [batch], the revenue window to [12, batch], the month common."""
    spread = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (batch,)), dataclasses.replace(state, revenue=state.books.cash)
    )
    revenue = jnp.broadcast_to(state.revenue[:, None], (state.revenue.shape[0], batch))
    return dataclasses.replace(spread, month=state.month, revenue=revenue)


Months = dict[str, Any]  # field -> [episodes, T]; "alive" marks the months played


def _play(
    env: Arena,
    policy: Any,
    run_key: jax.Array,
    episodes: jax.Array,
    policy_static: Any = None,
    fields: tuple[str, ...] = (),
    leaves_early: bool = False,
) -> tuple[Record, Months]:
    """Play the episodes with the indices uint32[n] to their ends: record with leaves [n], fields [n, T]."""
    chooses = policy if policy_static is None else policy_static
    if takes_decisions(chooses):
        return play_decisions(world_for(chooses, env), chooses, run_key, episodes), {}
    months = partial(_months, fields, leaves_early)
    if policy_static is not None:
        return pruned(lambda *args: months(args[0], policy_static, *args[1:]))(env, run_key, episodes)
    return pruned(months)(env, policy, run_key, episodes)


# for use inside `jax.vmap` and `jax.jit`: in a sweep of environments the random numbers stay common to all of them
play = Program(_play, ("policy_static", "fields"))
# what `rollout` runs: a program of its own, with options that only those take
play_batch = Program(partial(_play, leaves_early=True), ("policy_static", "fields"), compiler_options=COMPILER_OPTIONS)


def _months(
    fields: tuple[str, ...], leaves_early: bool, env: Arena, policy: Any, run_key: jax.Array, episodes: jax.Array
) -> tuple[Record, Months]:
    params, scenario, horizon = env.params, env.scenario, env.scenario.horizon
    words = key_words(episode_keys(run_key, episodes))
    policy_keys = episode_keys(jax.random.fold_in(run_key, POLICY_STREAM), episodes)
    months_axis = jnp.arange(horizon, dtype=jnp.int32)
    markets = market_at(params, scenario, months_axis)
    # constants of the company, not of the month
    markets = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (horizon,)), markets)
    listing_value = opening_value(params, scenario)
    start = opening_state(params, market_at(params, scenario, jnp.int32(0)))
    state = _broadcast_state(start, episodes.shape[0])
    survived = state.tally.cash_peak_month  # int32 zeros [n]

    def decide(choose: Any, carry: Any, observation: Observation, salt: int) -> Any:
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(policy_keys, 2 * observation.month + salt)
        return jax.vmap(choose, in_axes=(0, _observation_axes(observation), 0))(carry, observation, keys)

    def one_month(carry: Any, row: Any) -> tuple[Any, Months]:
        market, signals = row
        state, survived, memory, draws = carry
        memory, calls, assumptions = decide(policy.choose_tools, memory, observe(params, state), 0)
        assumptions = checked_assumptions(assumptions, state.status.shape, state.books.cash.dtype)
        arguments = Arguments(jnp.int32(FINANCIAL_PACKAGE), jnp.int32(ALL_INDICATORS), assumptions)
        state = call_tools(params, signals, state, tuple(calls[:, i] for i in range(len(TOOLS))), arguments)
        observation = observe(params, state)
        memory, action = decide(policy.act, memory, observation, 1)
        action = checked_action(action, state.status.shape, state.books.cash.dtype)
        months = {name: RECORDERS[name](state, observation, action) for name in fields}
        if fields:
            months["alive"] = state.status == RUNNING
        after = advance(params, horizon, listing_value, market, state, action, unpacked_draws(draws))
        survived = jnp.where(after.status == BANKRUPT, survived, state.month + 1)
        following = state.month + 1
        draws = packed_draws(words, following, after.tally.requests)
        return (dataclasses.replace(after, month=following), survived, memory, draws), months

    def one_block(carry: Any, rows: Any) -> tuple[Any, Months]:
        # a batch whose episodes have all ended is not played on
        live = lambda carry: jax.lax.scan(one_month, carry, rows)
        shapes = jax.eval_shape(live, carry)[1] if fields else {}
        ended = lambda carry: (carry, jax.tree.map(lambda field: jnp.zeros(field.shape, field.dtype), shapes))
        return jax.lax.cond(jnp.any(carry[0].status == RUNNING), live, ended, carry)

    # months take the keys 0 .. 2 T - 1 of a policy's key
    memory = jax.vmap(policy.init)(jax.vmap(jax.random.fold_in, in_axes=(0, None))(policy_keys, 2 * horizon))
    draws = packed_draws(words, jnp.int32(0), state.tally.requests)
    rows = (markets, signals_at(scenario, months_axis))
    carry = (state, survived, memory, draws)
    if leaves_early:
        block = next(size for size in range(_BLOCK, 0, -1) if horizon % size == 0)
        rows = jax.tree.map(lambda leaf: leaf.reshape(horizon // block, block, *leaf.shape[1:]), rows)
        (state, survived, _, _), months = jax.lax.scan(one_block, carry, rows)
        months = jax.tree.map(lambda leaf: leaf.reshape(horizon, -1), months)
    else:
        (state, survived, _, _), months = jax.lax.scan(one_month, carry, rows)
    record = make_record(params, scenario, dataclasses.replace(state, month=survived))
    return record, jax.tree.map(jnp.transpose, months)


@overload
def rollout(
    env: Arena,
    policy: Any,
    key: jax.Array,
    episodes: int,
    *,
    batch: int = ...,
    first: int = ...,
    pad_to: int = ...,
    on_progress: Callable[[int], None] = ...,
) -> Record: ...


@overload
def rollout(
    env: Arena,
    policy: Any,
    key: jax.Array,
    episodes: int,
    *,
    batch: int = ...,
    first: int = ...,
    pad_to: int = ...,
    record: Sequence[str],
    on_progress: Callable[[int], None] = ...,
) -> tuple[Record, Months]: ...


def rollout(
    env: Arena,
    policy: Any,
    key: jax.Array,
    episodes: int,
    *,
    batch: int = DEFAULT_BATCH,
    first: int = 0,
    pad_to: int = 0,
    record: Sequence[str] = (),
    on_progress: Callable[[int], None] = lambda episodes_done: None,
) -> Record | tuple[Record, Months]:
    """The record of episodes first .. first + episodes - 1 as NumPy arrays [episodes].

    policy: a pytree of options (one compilation for all their values), or any hashable object with a policy's
        methods, which is compiled in: don't change it afterwards. One with `decide` plays the same months at decision
        level (`arena_jax.decisions.play`).
    key: the run key; an episode's key is fold_in(key, index), so its outcome depends on neither batch nor order.
    batch: episodes played at once, over all local devices of an accelerator; more use more memory.
    pad_to: lanes, up to `batch`, that fewer episodes are played in, so that calls of unlike size share a compilation.
    record: fields (`arena_jax.trajectory.RECORDERS`) to return beside the record, a dict of arrays [episodes, T] with
        the mask "alive": what follows an episode's end is not meant to be read.
    on_progress: called with the size of each batch played.
    Raises `ArenaError` for numbers out of range and unknown fields.
    """
    fields = check_fields(record)
    if not isinstance(env, Arena):
        raise ArenaError(f"env must be an Arena made by arena_jax.make, got {type(env).__name__}")
    key_words(key, ())
    check_policy("policy", policy)
    if any(np.ndim(value) for value in vars(env.params).values()):
        raise ArenaError("env is a sweep; play it with jax.vmap over arena_jax.batch_play.play (README: parameters)")
    check_recordable(policy, fields)
    _try_policy(env, policy, key)
    for name, value, low in (
        ("episodes", episodes, 1),
        ("batch", batch, 1),
        ("first", first, 0),
        ("pad_to", pad_to, 0),
    ):
        check_count(name, value, low, POLICY_STREAM)
    if first + episodes > POLICY_STREAM:
        raise ArenaError(f"episode indices must stay below {POLICY_STREAM}, got {first + episodes - 1}")
    sharding = batch_sharding((env, key, policy))
    # whole vectors of the processor only: a remainder loop might round differently
    lanes = _LANES * (sharding.num_devices if sharding else 1)
    size = -(-min(batch, max(episodes, pad_to)) // lanes) * lanes
    dynamic, static = (None, policy) if is_opaque(policy) else (policy, None)
    parts = []
    for start in range(first, first + episodes, size):
        wanted = min(size, first + episodes - start)
        indices = jax.device_put((start + np.arange(size, dtype=np.uint64)).astype(np.uint32), sharding)
        played = play_batch(env, dynamic, key, indices, policy_static=static, fields=fields)
        parts.append(jax.tree.map(lambda leaf: np.asarray(leaf)[:wanted], played))  # noqa: B023
        on_progress(wanted)
    outcome, months = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return (outcome, months) if fields else outcome


def batch_sharding(arguments: Any) -> NamedSharding | None:
    """How a batch of episodes is spread: over all local devices of an accelerator, unless told where by JAX's means."""
    devices = jax.local_devices()
    is_placed = any(getattr(leaf, "committed", False) for leaf in jax.tree.leaves(arguments))
    if is_placed or jax.config.values["jax_default_device"] is not None or devices[0].platform not in _SPREAD:
        return None
    return NamedSharding(Mesh(np.array(devices), ("episodes",)), PartitionSpec("episodes"))


def check_recordable(policy: Any, fields: Sequence[str]) -> None:
    """Refuse to record the months of a policy that takes one decision at a time."""
    if fields and takes_decisions(policy):
        raise ArenaError(
            f"fields are recorded month by month, and {type(policy).__name__} takes one decision at a time"
        )


def _kind(env: Arena, policy: Any) -> Any:
    """What a policy that was tried once need not be tried again in: equal for other values of its options alone."""
    return jax.tree.structure((env, policy)), classes((env, policy)), policy if is_opaque(policy) else None


def _try_policy(env: Arena, policy: Any, key: jax.Array) -> None:
    """Trace a policy for one episode and compile nothing: faults of a user's policy become one line."""
    kind = _kind(env, policy)
    if kind in _TRIED:
        return

    def decision() -> tuple[Any, Any]:
        _, timestep = world_for(policy, env).reset(key)
        memory = stage("init", lambda: policy.init(key))
        after, action = stage("decide", lambda: policy.decide(memory, timestep.observation, timestep.action_mask, key))
        checked_decision(action)
        return memory, after

    def month() -> tuple[Any, Any]:
        state, timestep = env.reset(key)
        seen = timestep.observation
        memory = stage("init", lambda: policy.init(key))
        chosen, calls, assumptions = stage("choose_tools", lambda: policy.choose_tools(memory, seen, key))
        if not isinstance(calls, jax.Array) or calls.shape != (len(TOOLS),) or calls.dtype != jnp.int32:
            raise ArenaError(f"choose_tools must return int32[{len(TOOLS)}] calls, got {shown(calls)}")
        checked_assumptions(assumptions, (), state.books.cash.dtype)
        after, action = stage("act", lambda: policy.act(chosen, seen, key))
        checked_action(action, (), state.books.cash.dtype)
        return memory, after

    def stage(method: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (Exception, SystemExit) as error:  # whatever the user's code does
            raise ArenaError(f"{type(policy).__name__}.{method} failed with {brief(error)}") from error

    try:
        before, after = jax.eval_shape(decision if takes_decisions(policy) else month)
    except (TypeError, ValueError) as error:
        if isinstance(error, ArenaError):
            raise
        expected = (
            "decide returns (carry, action), carries are arrays"
            if takes_decisions(policy)
            else "choose_tools returns (carry, int32[4], Assumptions), act returns (carry, Action), carries are arrays"
        )
        raise ArenaError(f"{type(policy).__name__}: {expected}; {brief(error)}") from error
    if jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), before) != jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), after
    ):
        raise ArenaError(f"{type(policy).__name__}: the carry must keep its structure, shapes and dtypes")
    _TRIED.add(kind)


def is_opaque(policy: Any) -> bool:
    """Whether a policy is a plain object, to be compiled in, rather than a pytree of options."""
    return jax.tree_util.all_leaves([policy])
