"""Files of arrays with a header, as msgpack: weights of trained policies, and checkpoints. Nothing in them is executed.

A file is {"format", "header" (JSON text), "arrays" {path in the tree: array}}. It may come from anywhere, so what is
read is held against a template: paths, shapes, dtypes, finite numbers. Needs flax.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.serialization import msgpack_restore, msgpack_serialize

from arena_jax.errors import ArenaError, brief, shown
from arena_jax.files import read_whole, write_atomic

FORMAT = 1


def write_arrays(path: Path, header: dict[str, Any], tree: Any) -> None:
    """Write a pytree of arrays with its header, whole or not at all."""
    arrays = {jax.tree_util.keystr(where): np.asarray(leaf) for where, leaf in jax.tree.leaves_with_path(tree)}
    write_atomic(path, msgpack_serialize({"format": FORMAT, "header": json.dumps(header), "arrays": arrays}))


def read_arrays(path: Path, what: str, most: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header, and arrays by name, of a file of at most `most` bytes.

    Raises `ArenaError`, which calls the file `what`, for one that is not such a file.
    """
    data = read_whole(path, what, most)
    try:
        found = msgpack_restore(data)
    except Exception as error:  # whatever damaged bytes make of the reader
        raise ArenaError(f"{what} {path} is damaged or something else ({brief(error)})") from None
    if not isinstance(found, dict) or not {"format", "header", "arrays"} <= found.keys():
        raise ArenaError(f"{what} {path} is something else: no format, header and arrays")
    if type(found["format"]) is not int or found["format"] != FORMAT:
        raise ArenaError(f"{what} {path} has format {shown(found['format'])}; this version reads {FORMAT}")
    header, arrays = None, found["arrays"]
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        header = json.loads(found["header"])
    if not isinstance(header, dict) or not isinstance(arrays, dict) or not all(isinstance(n, str) for n in arrays):
        raise ArenaError(f"{what} {path} is damaged: header or arrays can't be read")
    return header, arrays


def fill(path: Path, what: str, template: Any, arrays: dict[str, Any]) -> Any:
    """The arrays in the shape of `template`, a pytree of arrays or of shapes; raises `ArenaError` where one differs."""
    expected = {jax.tree_util.keystr(where): leaf for where, leaf in jax.tree.leaves_with_path(template)}
    if odd := sorted(expected.keys() ^ arrays.keys()):
        state = "lacks" if odd[0] in expected else "has an unknown"
        raise ArenaError(f"{what} {path} {state} {shown(odd[0])}: another network or version")
    for name, leaf in expected.items():
        array = arrays[name]
        if not isinstance(array, np.ndarray) or (array.shape, array.dtype) != (leaf.shape, leaf.dtype):
            raise ArenaError(f"{what} {path}: {name} is {shown(array)}, not {leaf.dtype}{list(leaf.shape)}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ArenaError(f"{what} {path}: {name} holds numbers that are not finite")
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in expected])
