"""A costly function computed only for the episodes that want it, under `vmap` too.

`jax.lax.cond` under `vmap` runs for the whole batch. Here a batch gathers those that want an answer, a block at a
time, so that a call which one episode in twenty makes costs about a twentieth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

_SHARE = 16  # of a batch that a block holds


def where_wanted(function: Callable[..., jax.Array], wanted: jax.Array, *args: Any) -> jax.Array:
    """`function(*args)`, one array, where `wanted` (bool[]), else zeros; args are pytrees of arrays.

    Must be given everything that it depends on as an argument: values closed over can't be gathered.
    """
    zeros = lambda args: jnp.zeros_like(jax.eval_shape(function, *args))

    @jax.custom_batching.custom_vmap
    def answer(wanted: jax.Array, args: Any) -> jax.Array:
        return jax.lax.cond(wanted, lambda: function(*args), lambda: zeros(args))

    @answer.def_vmap
    def of_batch(size: int, batched: tuple[bool, Any], wanted: jax.Array, args: Any) -> tuple[jax.Array, bool]:
        wanted = jnp.broadcast_to(wanted, (size,))
        block = -(-size // _SHARE)
        # who wants an answer, in order, then the index past the end
        asking = jnp.nonzero(wanted, size=block * _SHARE, fill_value=size)[0].astype(jnp.int32)
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched[1])

        def one_block(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            done, answers = carry
            rows = jax.lax.dynamic_slice(asking, (done,), (block,))
            take = lambda leaf, is_batched: leaf.at[rows].get(mode="clip") if is_batched else leaf
            found = jax.vmap(function, in_axes=axes, axis_size=block)(*jax.tree.map(take, args, batched[1]))
            return done + block, answers.at[rows].set(found, mode="drop")

        shape = jax.eval_shape(jax.vmap(function, in_axes=axes, axis_size=size), *args)
        count = jnp.sum(wanted, dtype=jnp.int32)
        start = (jnp.int32(0), jnp.zeros(shape.shape, shape.dtype))
        return jax.lax.while_loop(lambda carry: carry[0] < count, one_block, start)[1], True

    return answer(wanted, args)
