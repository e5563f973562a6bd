"""Run directories: a manifest and one Parquet file per part of the episodes (design section 5.5).

    DIR/manifest.json                     what was run: versions, parameters, trajectory, seed, policies
    DIR/00-greedy-equity/part-000000.parquet   the records of episodes 0 .. PART - 1 of the first policy

Parts have a fixed size whatever the batch or shard, so an interrupted run resumes at the first missing part and
shards merge by being put side by side. Every file is written under a temporary name and renamed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from arena_jax.errors import ArenaError
from arena_jax.structs import Record

PART = 16_384  # episodes
MANIFEST = "manifest.json"
FORMAT = 1
# manifest fields that two runs may differ in and still be one: which machine wrote them, and which share
_FREE = ("device", "shard")


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; raises `ArenaError` if the folder can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    except OSError as error:
        raise ArenaError(f"can't write to {path.parent}: {error.strerror}") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise ArenaError(f"can't write {path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def part_starts(episodes: int, shard: tuple[int, int] = (1, 1)) -> list[int]:
    """First episodes of the parts that shard i of n plays: every n-th part."""
    index, count = shard
    return list(range(0, episodes, PART))[index - 1 :: count]


def policy_folder(number: int, spec: str) -> str:
    """Folder of a run's policy: its place in the run and a readable part of its spec."""
    return f"{number:02d}-{re.sub(r'[^A-Za-z0-9.=+-]+', '_', spec)[:60]}"


def part_path(folder: Path, start: int) -> Path:
    """File of the part that begins with episode `start`."""
    return folder / f"part-{start // PART:06d}.parquet"


def write_part(folder: Path, start: int, record: Record) -> None:
    """Write the records of episodes start .. start + n - 1, leaves [n]."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {field.name: np.asarray(getattr(record, field.name)) for field in dataclasses.fields(Record)}
    count = len(columns["survived"])
    table = pa.table({"episode": np.arange(start, start + count, dtype=np.uint32), **columns})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_atomic(part_path(folder, start), sink.getvalue().to_pybytes())


def read_part(folder: Path, start: int, episodes: int) -> Record | None:
    """The records of a finished part of `episodes` episodes, or None if it is not there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = part_path(folder, start)
    if not path.is_file():
        return None
    names = [field.name for field in dataclasses.fields(Record)]
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid):
        raise ArenaError(f"{path} is not a readable part file; delete it and run again") from None
    if table.column_names != ["episode", *names] or len(table) != episodes or table["episode"][0].as_py() != start:
        raise ArenaError(f"{path} does not hold episodes {start} to {start + episodes - 1}; delete it and run again")
    return Record(**{name: table[name].to_numpy() for name in names})


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a run directory; raises `ArenaError` if it is none."""
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ArenaError(f"{directory} is not a run directory: it has no {MANIFEST}") from None
    except (OSError, ValueError):
        raise ArenaError(f"{path} is not readable JSON") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ArenaError(f"{path} is not a manifest of format {FORMAT}")
    return manifest


def differences(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    """How two manifests differ where they must not, as `field: this, not that`."""
    for name in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(name), other.get(name)
        if name in _FREE or mine == theirs:
            continue
        if isinstance(mine, dict) and isinstance(theirs, dict):
            for key in sorted(mine.keys() | theirs.keys()):
                if mine.get(key) != theirs.get(key):
                    yield f"{name}.{key}: {mine.get(key)}, not {theirs.get(key)}"
        else:
            yield f"{name}: {mine}, not {theirs}"


def open_run(directory: Path, manifest: dict[str, Any]) -> None:
    """Create the run directory, or make sure that the one there is of the same run."""
    if (directory / MANIFEST).exists():
        found = next(differences(read_manifest(directory), manifest), None)
        if found:
            raise ArenaError(f"{directory} holds another run ({found}); choose another folder")
        return
    if directory.is_dir() and any(directory.iterdir()):
        raise ArenaError(f"{directory} is not empty and not a run directory; choose another folder")
    write_atomic(directory / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
