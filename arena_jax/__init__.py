"""arena_jax: a JAX-accelerated, vectorised simulator of EnterpriseArena, the CFO benchmark.

The public names are those of `arena_jax.api`. They come when first asked for, because what imports JAX takes seconds,
and what needs none (the handshake of the MCP server) must not wait for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from arena_jax.version import __version__ as __version__

if TYPE_CHECKING:
    from arena_jax.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name == "__all__" or not name.startswith("_"):
        api = importlib.import_module("arena_jax.api")
        # a public name, or a module that came with them
        found = getattr(api, name, globals().get(name))
        if found is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *importlib.import_module("arena_jax.api").__all__})
