"""Other values of the parameters: grids of environments, by vmapped play on common draws.

Every environment plays the same episodes, so what differs between two of them is the parameters' doing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.analysis.compare import paired
from arena_jax.analysis.metrics import (
    METRICS,
    Estimate,
    Moments,
    episode_metrics,
    estimate,
)
from arena_jax.analysis.surface import score_terms
from arena_jax.arena import Arena, make, sweep
from arena_jax.batch_play import COMPILER_OPTIONS, DEFAULT_BATCH, batch_sharding, is_opaque, play, rollout
from arena_jax.errors import ArenaError, check_count
from arena_jax.evaluation import evaluate
from arena_jax.params import FIELDS, STATIC, Params, checked_values
from arena_jax.policies import make_policies, make_policy
from arena_jax.programs import Program
from arena_jax.scenario import Scenario
from arena_jax.structs import Record

SHOWN = ("full_survival", "months", "score")
BATCH = 65_536  # episodes of one call, over all its environments
MAX_ENVIRONMENTS = 100_000
MAX_EPISODES = 10**7

Values = dict[str, np.ndarray]  # parameter -> float64[environments]
# indices of environments int64[c], and of the shown metrics float64[c, episodes]
Chunk = tuple[np.ndarray, dict[str, np.ndarray]]


@dataclass(frozen=True)
class Range:
    """Values of one parameter from `low` to `high`; `count` of them on a grid."""

    name: str
    low: float
    high: float
    count: int = 0


@dataclass(frozen=True)
class Plan:
    """How environments x episodes are played: episodes at once, and bytes that all of them would take at once."""

    environments: int
    episodes: int
    batch: int
    bytes_in_all: int

    @property
    def calls(self) -> int:
        """Calls of the compiled program, at the most; static parameters may add some."""
        return -(-self.environments // self.together) * -(-self.episodes // self.batch)

    @property
    def together(self) -> int:
        """Environments of one call."""
        return max(1, self.batch // self.episodes)

    def __str__(self) -> str:
        size = f"{self.bytes_in_all / 1e9:.1f} GB" if self.bytes_in_all >= 1e9 else f"{self.bytes_in_all / 1e6:.0f} MB"
        played = f"{self.environments:,} environments x {self.episodes:,} episodes, {size}"
        return played if self.calls == 1 else f"{played} at once; played in {self.calls:,} calls"


@dataclass(frozen=True)
class Cell:
    """One environment of a grid: its parameters, and per shown metric the estimate and the paired change."""

    parameters: dict[str, float]
    metrics: dict[str, Estimate]
    differences: dict[str, Estimate]


def parse_ranges(texts: Sequence[str], *, with_count: bool = True) -> list[Range]:
    """`noise=0:2:5` as a range of 5 values, or without a count `noise=0:2`; raises `ArenaError`."""
    found = [_parse_range(text, with_count) for text in texts]
    names = [one.name for one in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ArenaError(f"parameter {twice} is given twice")
    return found


def _parse_range(text: str, with_count: bool) -> Range:
    name, _, span = text.partition("=")
    form = "NAME=LO:HI:N such as noise=0:2:5" if with_count else "NAME=LO:HI such as noise=0:2"
    parts = span.split(":")
    if len(parts) != 2 + with_count:
        raise ArenaError(f"expected {form}, got {text!r}")
    try:
        low, high, count = float(parts[0]), float(parts[1]), int(parts[2]) if with_count else 0
    except ValueError:
        raise ArenaError(f"expected {form}, got {text!r}") from None
    _check_ends(name, low, high)
    if low > high:
        raise ArenaError(f"range {text!r} is reversed: LO must be below HI")
    if low == high or (with_count and count < 2):
        raise ArenaError(f"range {text!r} is empty: LO must be below HI{', and N at least 2' if with_count else ''}")
    if count > MAX_ENVIRONMENTS:
        raise ArenaError(f"range {text!r} has too many values: at most {MAX_ENVIRONMENTS:,}")
    return Range(name, low, high, count)


def _check_ends(name: str, low: float, high: float) -> None:
    if name not in STATIC:
        checked_values(name, [low, high])
        return
    least, most = FIELDS[name].metadata["low"], FIELDS[name].metadata["high"]
    for end in (low, high):
        if not (least <= end <= most and float(end).is_integer()):
            raise ArenaError(f"parameter {name} must be a whole number from {least:g} to {most:g}, got {end:g}")


def grid(ranges: Sequence[Range]) -> Values:
    """Every combination of the ranges' values, the last range the fastest."""
    total = math.prod(one.count for one in ranges)
    if total > MAX_ENVIRONMENTS:
        raise ArenaError(f"the grid has {total:,} environments, at most {MAX_ENVIRONMENTS:,}")
    axes = [np.linspace(one.low, one.high, one.count) for one in ranges]
    for one, values in zip(ranges, axes, strict=True):
        if is_whole(one.name) and (values != np.round(values)).any():
            bad = values[values != np.round(values)][0]
            raise ArenaError(
                f"parameter {one.name} takes whole numbers, and {one.low:g} to {one.high:g} in {one.count} values "
                f"gives {bad:g}"
            )
    mesh = np.meshgrid(*axes, indexing="ij")
    return {one.name: values.ravel() for one, values in zip(ranges, mesh, strict=True)}


def is_whole(name: str) -> bool:
    """Whether a parameter takes whole numbers only."""
    return isinstance(FIELDS[name].default, int)


def plan(env: Arena, environments: int, episodes: int, batch: int = BATCH) -> Plan:
    """The size of a play, from what a lane of it carries: the state and the record."""
    check_count("episodes", episodes, 1, MAX_EPISODES)
    check_count("batch", batch, 1, 2**31)
    key, policy = jax.random.key(0), make_policy("never-raise")
    held = jax.eval_shape(lambda: (env.reset(key)[0], play(env, policy, key, jnp.zeros(1, jnp.uint32))[0]))
    lane = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(held))
    return Plan(environments, episodes, batch, environments * episodes * lane)


def play_environments(
    policy: str,
    values: Values,
    *,
    episodes: int,
    seed: int = 0,
    scenario: Scenario | Any = None,
    overrides: Mapping[str, Any] | None = None,
    batch: int = BATCH,
    only: int | None = None,
    on_progress: Callable[[int], None] = lambda episodes_done: None,
) -> Iterator[Chunk]:
    """Play a policy in every environment, chunk by chunk.

    values: per parameter one value an environment; of static ones each value is compiled for itself.
    only: number of the one chunk to play (`chunk_environments`); chunks are the same whoever plays them.
    Raises `ArenaError` for values out of range or contradictory before anything is compiled.
    """
    check_count("episodes", episodes, 1, MAX_EPISODES)
    check_count("batch", batch, 1, 2**31)
    check_count("seed", seed, 0, 2**32 - 1)
    made, key = make_policy(policy), jax.random.key(seed)
    groups = []
    for static, where in _groups(values):
        env = make(scenario=scenario, **(dict(overrides or {}) | static))
        numbers = {name: column[where] for name, column in values.items() if name not in STATIC}
        # one parameter at least is swept, if by its own value
        numbers = numbers or {"noise": np.full(len(where), float(env.params.noise))}
        sweep(env, **numbers)
        groups.append((env, where, numbers))
    return _chunks(made, key, groups, episodes, batch, only, on_progress)


def play_own(
    policy: str,
    *,
    episodes: int,
    seed: int = 0,
    scenario: Scenario | Any = None,
    overrides: Mapping[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    """The shown metrics float64[episodes] of the same episodes in the environment as it is."""
    env = make(scenario=scenario, **(overrides or {}))
    found = episode_metrics(rollout(env, make_policy(policy), jax.random.key(seed), episodes))
    return {name: found[name] for name in SHOWN}


def chunk_environments(values: Values, episodes: int, batch: int = BATCH) -> list[np.ndarray]:
    """The environments of each chunk that `play_environments` makes of them, int64[c]."""
    return [
        where[start : start + _starts(where, episodes, batch).step]
        for _, where in _groups(values)
        for start in _starts(where, episodes, batch)
    ]


def _starts(where: np.ndarray, episodes: int, batch: int) -> range:
    """Where the chunks of a group of environments begin."""
    return range(0, len(where), min(len(where), max(1, batch // episodes)))


def _play_all(envs: Arena, policy: Any, key: jax.Array, indices: jax.Array, policy_static: Any = None) -> Record:
    """A sweep of c environments over n episodes: record with leaves [c, n]."""

    def one(params: Params) -> Record:
        env = dataclasses.replace(envs, params=params)
        return play(env, policy, key, indices, policy_static=policy_static)[0]

    axes = jax.tree.map(lambda leaf: 0 if leaf.ndim else None, envs.params)
    return jax.vmap(one, in_axes=(axes,))(envs.params)


_play_sweep = Program(_play_all, ("policy_static",), compiler_options=COMPILER_OPTIONS)


def _chunks(
    policy: Any,
    key: jax.Array,
    groups: Sequence[Any],
    episodes: int,
    batch: int,
    only: int | None,
    on_progress: Callable[[int], None],
) -> Iterator[Chunk]:
    dynamic, static = (None, policy) if is_opaque(policy) else (policy, None)
    sharding = batch_sharding((key, policy))
    devices = sharding.num_devices if sharding else 1
    lanes = -(-min(batch, episodes) // devices) * devices
    chunks = [(group, start) for group in groups for start in _starts(group[1], episodes, batch)]
    for (env, where, numbers), start in chunks if only is None else [chunks[only]]:
        together = _starts(where, episodes, batch).step
        chosen = where[start : start + together]
        # the last chunk is filled up, so that all share one program
        filled = np.resize(np.arange(start, start + len(chosen)), together)
        envs = sweep(env, **{name: column[filled] for name, column in numbers.items()})[0]
        blocks = []
        for first in range(0, episodes, lanes):
            indices = jax.device_put(np.arange(first, first + lanes, dtype=np.uint32), sharding)
            record = jax.tree.map(np.asarray, _play_sweep(envs, dynamic, key, indices, policy_static=static))
            blocks.append(episode_metrics(record))
            on_progress(len(chosen) * min(lanes, episodes - first))
        yield (
            chosen,
            {
                name: np.concatenate([block[name] for block in blocks], axis=1)[: len(chosen), :episodes]
                for name in SHOWN
            },
        )


def _groups(values: Values) -> list[tuple[dict[str, Any], np.ndarray]]:
    """The environments by the values of the static parameters, as Python values: (values, indices)."""
    count = len(next(iter(values.values())))
    names = [name for name in values if name in STATIC]
    if not names:
        return [({}, np.arange(count))]
    rows, group = np.unique(np.stack([values[name] for name in names], axis=1), axis=0, return_inverse=True)
    typed = [{name: _static(name, value) for name, value in zip(names, row, strict=True)} for row in rows]
    return [(static, np.flatnonzero(group == number)) for number, static in enumerate(typed)]


def _static(name: str, value: float) -> bool | int:
    return bool(value) if isinstance(FIELDS[name].default, bool) else int(value)


def play_terms(
    env: Arena,
    policies: Sequence[str],
    *,
    episodes: int,
    seed: int = 0,
    batch: int = DEFAULT_BATCH,
    on_progress: Callable[[int], None] = lambda episodes_done: None,
) -> dict[str, np.ndarray]:
    """One play of each policy, and its `score_terms` float64[episodes, 3]: all that the (λ, m) surface needs."""
    check_count("episodes", episodes, 1, MAX_EPISODES)
    for spec, policy in make_policies(policies).items():
        if getattr(policy, "shows_terms", False):
            raise ArenaError(f"{spec} answers to lambda and m, so one play does not hold its scores over both; "
                             "evaluate it with --env-set tool_cost=... revenue_multiple=...")  # fmt: skip
    parts: dict[str, list[np.ndarray]] = {spec: [] for spec in policies}
    evaluate(
        env, policies, episodes=episodes, seed=seed, batch=batch, on_progress=on_progress,
        on_part=lambda spec, record: parts[spec].append(score_terms(record)),
    )  # fmt: skip
    return {spec: np.concatenate(found) for spec, found in parts.items()}


def grid_cells(values: Values, own: Mapping[str, np.ndarray], played: Iterable[Chunk]) -> list[Cell]:
    """Every environment of `values` in order: its shown metrics, and their change against the environment as it is.

    own: by `play_own`; played: by `play_environments`; both of the same policy, episodes and seed.
    """
    cells: dict[int, Cell] = {}
    for where, metrics in played:
        for row, index in enumerate(where):
            found = {name: metrics[name][row] for name in SHOWN}
            cells[int(index)] = Cell(
                {name: float(column[index]) for name, column in values.items()},
                {name: estimate(METRICS[name], Moments.of(one)) for name, one in found.items()},
                {name: paired(own[name], one, METRICS[name].is_share) for name, one in found.items()},
            )
    return [cells[index] for index in range(len(cells))]
