"""Files of arrays with a header, as msgpack: weights of trained policies, and checkpoints. Nothing in them is executed.

A file is {"format", "header" (JSON text), "arrays" {path in the tree: array}}. What is read is held against a template:
paths, shapes, dtypes, finite numbers. Needs flax.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.serialization import msgpack_restore, msgpack_serialize

from arena_jax.errors import ArenaError, brief
from arena_jax.files import write_atomic

FORMAT = 1


def write_arrays(path: Path, header: dict[str, Any], tree: Any) -> None:
    """Write a pytree of arrays with its header, whole or not at all."""
    arrays = {jax.tree_util.keystr(where): np.asarray(leaf) for where, leaf in jax.tree.leaves_with_path(tree)}
    write_atomic(path, msgpack_serialize({"format": FORMAT, "header": json.dumps(header), "arrays": arrays}))


def read_arrays(path: Path, what: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays; raises `ArenaError`, which calls the file `what`, for one that is not such a file."""
    try:
        found = msgpack_restore(path.read_bytes())
    except OSError as error:
        raise ArenaError(f"can't read {what} {path}: {error.strerror}") from None
    except Exception as error:  # whatever damaged bytes make of the reader
        raise ArenaError(f"{what} {path} is damaged or something else ({brief(error)})") from None
    if not isinstance(found, dict) or not {"format", "header", "arrays"} <= found.keys():
        raise ArenaError(f"{what} {path} is something else: no format, header and arrays")
    if found["format"] != FORMAT:
        raise ArenaError(f"{what} {path} has format {found['format']!r}; this version reads {FORMAT}")
    header, arrays = None, found["arrays"]
    with contextlib.suppress(TypeError, ValueError):
        header = json.loads(found["header"])
    if not isinstance(header, dict) or not isinstance(arrays, dict):
        raise ArenaError(f"{what} {path} is damaged: header or arrays can't be read")
    return header, arrays


def fill(path: Path, what: str, template: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The arrays in the shape of `template`, a pytree of arrays or of shapes; raises `ArenaError` where one differs."""
    expected = {jax.tree_util.keystr(where): leaf for where, leaf in jax.tree.leaves_with_path(template)}
    if odd := sorted(expected.keys() ^ arrays.keys()):
        state = "lacks" if odd[0] in expected else "has an unknown"
        raise ArenaError(f"{what} {path} {state} {odd[0]}: another network or version")
    for name, leaf in expected.items():
        array = arrays[name]
        if not isinstance(array, np.ndarray) or (array.shape, array.dtype) != (leaf.shape, leaf.dtype):
            found = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise ArenaError(f"{what} {path}: {name} is {found}, not {leaf.dtype}{list(leaf.shape)}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ArenaError(f"{what} {path}: {name} holds numbers that are not finite")
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in expected])
