"""Environments by name, and the interfaces of the decision level to gymnax and Gymnasium."""

from __future__ import annotations

from typing import Any, Literal, overload

from arena_jax.arena import ENVIRONMENTS, Arena
from arena_jax.arena import make as make_arena
from arena_jax.decisions.env import ArenaRL
from arena_jax.decisions.layout import NAME
from arena_jax.decisions.make import make_rl
from arena_jax.errors import unknown

__all__ = ["NAMES", "ArenaRL", "make"]

NAMES = (*ENVIRONMENTS, NAME)


@overload
def make(name: Literal["EnterpriseArenaRL-v1"], **options: Any) -> ArenaRL: ...
@overload
def make(name: str = ..., **options: Any) -> Arena: ...
def make(name: str = NAMES[0], **options: Any) -> Any:
    """An environment by name, with parameters overridden by name; raises `ArenaError` on any bad value.

    "EnterpriseArena-v1" and "EnterpriseArena-Disciplined-v1" are an `Arena`, whose steps are months (options:
    `arena_jax.arena.make`); "EnterpriseArenaRL-v1" is an `ArenaRL`, whose steps are single decisions (options:
    `arena_jax.decisions.make.make_rl`).
    """
    if name not in NAMES:
        raise unknown("environment", name, NAMES)
    return make_rl(**options) if name == NAME else make_arena(name, **options)
