"""Files that are written whole or not at all, and those that only their owner may read."""

from __future__ import annotations

import os
import stat
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


def read_private(path: Path, what: str, shortest: int, longest: int) -> bytes:
    """A file that only its owner may read; raises `ArenaError`, which calls it `what` and never quotes it.

    shortest, longest: bytes of what it may hold; what is longer is cut to two more.
    """
    try:
        # without waiting for whoever might write into a pipe
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ArenaError(f"{what} {path} is not a regular file")
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                found = stat.S_IMODE(mode)
                raise ArenaError(f"{what} {path} has mode {found:04o}, others may use it; run: chmod 600 {path}")
            return file.read(longest + 2)
    except (OSError, ValueError) as error:
        if isinstance(error, ArenaError):
            raise
        # what is no file may be the secret itself, given by mistake
        named = path if path.parent.is_dir() and len(path.name) < shortest else "as given"
        raise ArenaError(f"can't read {what} {named}: {getattr(error, 'strerror', error)}") from None
