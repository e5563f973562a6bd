"""Compiled programs that tell the classes of their arguments apart.

To JAX (0.10) two registered dataclasses with as many fields have equal structures, whatever their classes: `jax.jit`
takes one policy's program for another's once their hashes meet, about once in a thousand pairs, other ones in each
process. The classes are therefore part of what a program is compiled for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax


class Program:
    """`jax.jit` of a function of pytrees whose classes decide what is computed.

    static: names of arguments that are compiled in, given by keyword; options: further ones of `jax.jit`.
    """

    def __init__(self, function: Callable[..., Any], static: tuple[str, ...] = (), **options: Any) -> None:
        def call(for_classes: tuple[type, ...], *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        self.compiled: Any = jax.jit(call, static_argnums=0, static_argnames=static, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, compiled once for equal shapes, static arguments and classes."""
        return self.compiled(classes((args, kwargs)), *args, **kwargs)


def classes(tree: Any) -> tuple[type, ...]:
    """The classes of a pytree's nodes, from the root: what tells its structure from an equal one."""
    return tuple(_classes(jax.tree.structure(tree)))


def _classes(structure: Any) -> Iterator[type]:
    """The classes of a structure's nodes, from the root."""
    node = structure.node_data()
    if node is not None:
        yield node[0]
        for child in structure.children():
            yield from _classes(child)
