"""arena_jax: a JAX-accelerated, vectorised simulator of EnterpriseArena, the CFO benchmark.

The public names are those of `arena_jax.api`. They come when first asked for, because what imports JAX takes seconds,
and what needs none (the handshake of the MCP server) must not wait for it.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from arena_jax.version import __version__ as __version__

if TYPE_CHECKING:
    from arena_jax.api import *  # noqa: F403


class _Package(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        api = importlib.import_module("arena_jax.api")
        if name != "__all__" and name not in api.__all__:
            if name in vars(self):  # a module that came with them
                return vars(self)[name]
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(api, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # importing a module names it in its package, where `rollout` and `evaluate` are functions
        if not (isinstance(value, ModuleType) and name in ("evaluate", "rollout")):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *importlib.import_module("arena_jax.api").__all__})


sys.modules[__name__].__class__ = _Package
