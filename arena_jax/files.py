"""Files: written whole or not at all, in folders that may have come from anywhere, or for their owner alone to read."""

from __future__ import annotations

import json
import os
import platform
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from arena_jax.errors import ArenaError

HALF = ".half-"  # prefix of a file that is being written
LARGEST = 2**28  # bytes of a file that is read as one piece: many times what a journal of all months has
_LONGEST_WRITE = 86_400  # seconds after which a half of another machine, which can't be asked, is given up
# bytes of a secret: 16 random bytes in hex, 128 bits; a shorter one could be guessed
SHORTEST_SECRET, LONGEST_SECRET = 32, 4096
_ADVICE = "python -c 'import secrets; print(secrets.token_hex(32))' prints a good one"


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file whole or not at all, with its permissions; raises `ArenaError` if the folder can't be written."""
    with _half(path, data, mode) as half:
        half.replace(path)


def write_new(path: Path, data: bytes) -> None:
    """Write a file whole unless there is one; of several processes that write it at once, one does.

    Raises `ArenaError` if the folder can't be written.
    """
    with _half(path, data, 0o644) as half:
        try:
            os.link(half, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            if not path.exists():
                half.replace(path)


@contextmanager
def _half(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    """A file with the data of `path`, on disk beside it, that is to take its place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        prefix = f"{HALF}{path.name}-{_machine()}-{os.getpid()}-"
        handle, name = tempfile.mkstemp(prefix=prefix, dir=path.parent)
    except OSError as error:
        raise ArenaError(f"can't write to {path.parent}: {error.strerror}") from None
    half = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        half.chmod(mode)
        yield half
    except OSError as error:
        raise ArenaError(f"can't write {path}: {error.strerror}") from None
    finally:
        half.unlink(missing_ok=True)


def clear_halves(folder: Path, name: str = "") -> None:
    """Remove the halves in a folder, of files whose names begin with `name`, that nobody is writing any more."""
    for half in folder.glob(f"{HALF}{name}*"):
        if not _is_written(half):
            half.unlink(missing_ok=True)


def _is_written(half: Path) -> bool:
    """Whether a living process of this machine is writing it, or another machine began to less than a day ago."""
    found = re.search(r"-(\w+)-([0-9]+)-\w+$", half.name)
    if found is None:
        return False
    try:
        if found[1] != _machine() or os.name != "posix":
            return time.time() - half.lstat().st_mtime < _LONGEST_WRITE
        os.kill(int(found[2]), 0)
    except PermissionError:  # somebody else's
        return True
    except (OSError, OverflowError):
        return False
    return True


def _machine() -> str:
    """This machine's name, as it stands in the names of halves."""
    return re.sub(r"\W", "_", platform.node()) or "_"


def check_folder(path: Path) -> None:
    """Make a folder, if it is not there yet; raises `ArenaError` if files can't be written into it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(prefix=HALF, dir=path).close()
    except OSError as error:
        raise ArenaError(f"can't write to {path}: {error.strerror}") from None


def own_file(directory: Path, name: str) -> Path:
    """The path of a file in a run directory, which may have come from anywhere: no link, pipe or device on the way.

    Raises `ArenaError` if there is one, or if the name leads out of the directory.
    """
    path, parts = directory, Path(name).parts
    if Path(name).is_absolute() or ".." in parts:
        raise ArenaError(f"{name} is outside of {directory}; a run directory holds its own files")
    for part in parts:
        path = path / part
        if path.is_symlink() or (path.exists() and not (path.is_dir() or path.is_file())):
            raise ArenaError(f"{path} is a link or a device; a run directory holds its own files")
    return path


def read_whole(path: Path, what: str = "file", most: int | None = None) -> bytes:
    """What a regular file of at most `most` bytes (`LARGEST`) holds; raises `ArenaError`, calling the file `what`."""
    most = LARGEST if most is None else most
    try:
        with _opened(path) as file:
            if _regular(file, what, path).st_size > most:
                raise ArenaError(f"can't read {what} {path}: it is larger than {most:,} bytes")
            return file.read()
    except (OSError, ValueError) as error:
        if isinstance(error, ArenaError):
            raise
        raise ArenaError(f"can't read {what} {path}: {getattr(error, 'strerror', error)}") from None


def _opened(path: Path) -> BinaryIO:
    """A file to read, opened without waiting for whoever might write into a pipe."""
    return open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb")


def _regular(file: BinaryIO, what: str, path: Path) -> os.stat_result:
    """What is known of an open file; refuses pipes and devices."""
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        raise ArenaError(f"{what} {path} is not a regular file")
    return found


def check_own(directory: Path) -> None:
    """Raise `ArenaError` unless all that lies in a run directory is files and folders of its own."""
    for folder, folders, names in os.walk(directory):
        for name in (*folders, *names):
            own_file(Path(folder), name)


def read_json(path: Path) -> Any:
    """What a JSON file holds; raises `ArenaError` if it is none, too large or too deep."""
    data = read_whole(path)
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ArenaError(f"can't read {path}: not JSON") from None


def read_secret(path: Path | None, variable: str, what: str, otherwise: str) -> bytes:
    """What a file that only its owner may read holds, or else an environment variable; white space does not count.

    Raises `ArenaError`, which calls the file `what`, says `otherwise` if neither is given, and never quotes a secret.
    """
    if path is None:
        where, secret = f"environment variable {variable}", os.environb.get(variable.encode())
        if secret is None:
            raise ArenaError(otherwise)
    else:
        where, secret = f"{what} {path}", _read_private(path, what)
    secret = secret.strip()
    if not SHORTEST_SECRET <= len(secret) <= LONGEST_SECRET:
        needed = f"{SHORTEST_SECRET} to {LONGEST_SECRET} are needed"
        raise ArenaError(f"{where} holds {len(secret)} bytes, {needed}; {_ADVICE}")
    return secret


def _read_private(path: Path, what: str) -> bytes:
    """A file that only its owner may read; what is too long is cut to two bytes more than may be."""
    try:
        with _opened(path) as file:
            mode = _regular(file, what, path).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                found = stat.S_IMODE(mode)
                raise ArenaError(f"{what} {path} has mode {found:04o}, others may use it; run: chmod 600 {path}")
            return file.read(LONGEST_SECRET + 2)
    except (OSError, ValueError) as error:
        if isinstance(error, ArenaError):
            raise
        # what is no file may be the secret itself, given by mistake
        named = path if path.parent.is_dir() and len(path.name) < SHORTEST_SECRET else "as given"
        raise ArenaError(f"can't read {what} {named}: {getattr(error, 'strerror', error)}") from None


def user_folder(variable: str, otherwise: str) -> Path:
    """A base folder of the user's: what an XDG variable names, if that is absolute, else one in the home folder."""
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path.home() / otherwise
