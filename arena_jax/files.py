"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from arena_jax.errors import ArenaError

HALF = ".half-"  # prefix of a file that is being written


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file whole or not at all, with its permissions; raises `ArenaError` if the folder can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{HALF}{path.name}-", dir=path.parent)
    except OSError as error:
        raise ArenaError(f"can't write to {path.parent}: {error.strerror}") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        raise ArenaError(f"can't write {path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
