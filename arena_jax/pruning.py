"""Leaves out of a compiled loop whatever no result depends on.

XLA keeps a loop-carried value alive once it is computed from a live one, even if nothing reads it: the notebook
entries that a policy never looks at, the books as last closed. JAX's own dead-code elimination knows scans and drops
them, which makes batch play of a policy without tools about three times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr


def pruned(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of pytrees of arrays, traced once and evaluated without dead code; use inside `jax.jit`."""

    def call(*args: Any) -> Any:
        traced, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        live, _ = dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars), instantiate=True)
        results = jaxpr_as_fun(ClosedJaxpr(live, traced.consts))(*jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return call
