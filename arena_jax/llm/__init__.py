"""One episode for a language model or a person: session, documents, journal, runs, terminal play."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arena_jax.llm.session import ArenaSession as ArenaSession

__all__ = ["ArenaSession"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # only now, because it imports JAX
        from arena_jax.llm.session import ArenaSession

        return ArenaSession
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
