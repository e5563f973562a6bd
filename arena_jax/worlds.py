"""Sets of worlds that an evaluation plays over: `generated:1000`, or held out under a secret (`secret:PATH`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from arena_jax.errors import ArenaError, shown
from arena_jax.generator import VERSION, model_digest, sample_scenario
from arena_jax.scenario import Scenario
from arena_jax.secret import commitment, read_secret, secret_key

MAX_WORLDS = 1_000_000
FORMS = "generated:N[,seed=S], secret[:PATH][,worlds=N]"
_GENERATED = re.compile(r"generated:([0-9]{1,10})(?:,seed=([0-9]{1,10}))?")
_SECRET = re.compile(r"secret(?::(.+?))?(?:,worlds=([0-9]{1,10}))?")


@dataclass(frozen=True, eq=False)
class Worlds:
    """World i is `sample_scenario(fold_in(key, i))`; `about` tells which they are, and is all that a result holds."""

    count: int
    key: jax.Array
    about: dict[str, Any]
    held_out: bool

    def scenario(self, index: int, horizon: int) -> Scenario:
        """The trajectory of world `index`, below `count`."""
        return sample_scenario(jax.random.fold_in(self.key, index), horizon=horizon)

    def scenarios(self, horizon: int) -> Scenario:
        """All trajectories at once, leaves [count, T]."""
        sample = lambda number: sample_scenario(jax.random.fold_in(self.key, number), horizon=horizon)
        numbers = jnp.arange(self.count, dtype=jnp.uint32)
        return jax.jit(lambda numbers: jax.lax.map(sample, numbers, batch_size=256))(numbers)


def generator() -> dict[str, Any]:
    """What, beside a key, makes a world what it is."""
    return {"generator": VERSION, "generator_sha256": model_digest()}


def parse_worlds(spec: str) -> Worlds:
    """`generated:N[,seed=S]` or `secret[:PATH][,worlds=N]` (the environment variable without a path, one world)."""
    text = spec if isinstance(spec, str) else ""
    if found := _GENERATED.fullmatch(text):
        seed = _number("seed", found[2] or "0", 0, 2**32 - 1)
        about = {"kind": "generated", "seed": seed, **generator()}
        return Worlds(_number("generated worlds", found[1], 1, MAX_WORLDS), jax.random.key(seed), about, False)
    if found := _SECRET.fullmatch(text):
        secret = read_secret(found[1])
        about = {"kind": "held out", "commitment_sha256": commitment(secret), **generator()}
        return Worlds(_number("worlds", found[2] or "1", 1, MAX_WORLDS), secret_key(secret), about, True)
    raise ArenaError(f"scenarios must be one of {FORMS}; got {shown(spec)}")


def _number(name: str, text: str, low: int, high: int) -> int:
    if not low <= int(text) <= high:
        raise ArenaError(f"{name} must be a whole number from {low} to {high}, got {text}")
    return int(text)
