"""Checkpoints of a training run: all that its learners go on from, so that a resumed run is the straight one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from arena_jax.errors import ArenaError
from arena_jax.policies.weights import fill, read_arrays, write_arrays
from baselines.ppo import Learner
from benchmarks.harness import Spent

KIND = "checkpoint"
LARGEST = 2**34  # bytes


def write_checkpoint(path: Path, header: dict[str, Any], learners: Learner, spent: Spent) -> None:
    """Write learners; header: what a run must agree in to go on from them, plain data; spent: so far."""
    write_arrays(path, header | {"kind": KIND} | spent._asdict(), _with_raw_keys(learners))


def read_checkpoint(path: Path, header: dict[str, Any], begin: Callable[[], Learner]) -> tuple[Learner, Spent]:
    """Learners and what they took so far; raises `ArenaError` for what is damaged or of another run than `header` says.

    begin: what the run's learners begin as, for their shapes.
    """
    found, arrays = read_arrays(path, KIND, LARGEST)
    spent: list[Any] = [found.get(name) for name in Spent._fields]
    if found.get("kind") != KIND or not all(
        isinstance(seconds, float) and 0.0 <= seconds < math.inf for seconds in spent
    ):
        raise ArenaError(f"{path} is no checkpoint of a training run")
    if odd := [name for name in header if found.get(name) != header[name]]:
        raise ArenaError(f"{path} was written by another run: its {odd[0]} differs; resume with what it was begun with")
    raw = fill(path, KIND, jax.eval_shape(lambda: _with_raw_keys(begin())), arrays)
    learners = jax.tree.map(jnp.asarray, raw)
    return dataclasses.replace(learners, key=jax.random.wrap_key_data(learners.key)), Spent(*spent)


def _with_raw_keys(learners: Learner) -> Learner:
    """With the keys' words in their place."""
    return dataclasses.replace(learners, key=jax.random.key_data(learners.key))
