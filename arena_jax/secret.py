"""Held-out worlds: a secret gives the key of the worlds, and a commitment to it proves later which they were.

The secret is read from a file that nobody else can read, or from an environment variable; nothing here writes or
prints it. Key and commitment are SHA-256 of the secret under different prefixes, so that neither tells the other.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import jax
import numpy as np

from arena_jax.errors import ArenaError
from arena_jax.files import read_private

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
        where, secret = f"secret file {path}", read_private(Path(path), "secret file", SHORTEST, LONGEST)
    secret = secret.strip()
    if not SHORTEST <= len(secret) <= LONGEST:
        raise ArenaError(f"{where} holds {len(secret)} bytes, {SHORTEST} to {LONGEST} are needed; {_ADVICE}")
    return secret


def commitment(secret: bytes) -> str:
    """What may be published: SHA-256 that fixes the secret without telling it."""
    return hashlib.sha256(b"arena_jax held-out worlds: commitment\0" + secret).hexdigest()


def secret_key(secret: bytes) -> jax.Array:
    """The threefry key of the secret's worlds."""
    words = np.frombuffer(hashlib.sha256(b"arena_jax held-out worlds: key\0" + secret).digest()[:8], dtype=">u4")
    return jax.random.wrap_key_data(jax.device_put(words.astype(np.uint32)), impl="threefry2x32")
