"""Held-out worlds: a secret gives the key of the worlds, and a commitment to it proves later which they were.

The secret is read from a file that nobody else can read, or from an environment variable; nothing here writes or
prints it. Key and commitment are SHA-256 of the secret under different prefixes, so that neither tells the other.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import jax
import numpy as np

from arena_jax.errors import ArenaError

VARIABLE = "ARENA_JAX_SECRET"
SHORTEST = 32  # bytes: 16 random bytes in hex, 128 bits; a shorter secret could be guessed from its commitment
LONGEST = 4096
_ADVICE = "python -c 'import secrets; print(secrets.token_hex(32))' prints a good one"


def read_secret(path: str | Path | None = None) -> bytes:
    """The secret in the file `path`, which only its owner may read, or in the environment variable ARENA_JAX_SECRET.

    White space around it does not count. Raises `ArenaError`, which never quotes it.
    """
    if path is None:
        where, secret = f"environment variable {VARIABLE}", os.environb.get(VARIABLE.encode())
        if secret is None:
            raise ArenaError(f"{where} is not set; set it to a secret, or name a file: secret:PATH")
    else:
        where, secret = f"secret file {path}", _read_private(Path(path))
    secret = secret.strip()
    if not SHORTEST <= len(secret) <= LONGEST:
        raise ArenaError(f"{where} holds {len(secret)} bytes, {SHORTEST} to {LONGEST} are needed; {_ADVICE}")
    return secret


def _read_private(path: Path) -> bytes:
    try:
        # without waiting for whoever might write into a pipe
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ArenaError(f"secret file {path} is not a regular file")
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                found = stat.S_IMODE(mode)
                raise ArenaError(f"secret file {path} has mode {found:04o}, others may use it; run: chmod 600 {path}")
            return file.read(LONGEST + 2)
    except (OSError, ValueError) as error:
        if isinstance(error, ArenaError):
            raise
        # what is no file may be the secret itself, given by mistake
        named = path if path.parent.is_dir() and len(path.name) < SHORTEST else "as given"
        raise ArenaError(f"can't read secret file {named}: {getattr(error, 'strerror', error)}") from None


def commitment(secret: bytes) -> str:
    """What may be published: SHA-256 that fixes the secret without telling it."""
    return hashlib.sha256(b"arena_jax held-out worlds: commitment\0" + secret).hexdigest()


def secret_key(secret: bytes) -> jax.Array:
    """The threefry key of the secret's worlds."""
    words = np.frombuffer(hashlib.sha256(b"arena_jax held-out worlds: key\0" + secret).digest()[:8], dtype=">u4")
    return jax.random.wrap_key_data(jax.device_put(words.astype(np.uint32)), impl="threefry2x32")
