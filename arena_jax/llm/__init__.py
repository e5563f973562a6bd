"""One episode for a language model or a person: session, documents, journal, runs, terminal play."""

from arena_jax.llm.session import ArenaSession

__all__ = ["ArenaSession"]
