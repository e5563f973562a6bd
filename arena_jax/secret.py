"""Held-out worlds: a secret gives the key of the worlds, and a commitment to it proves later which they were.

The secret is read from a file that nobody else can read, or from an environment variable; nothing here writes or
prints it. Key and commitment are SHA-256 of the secret under different prefixes, so that neither tells the other.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import jax
import numpy as np

from arena_jax import files

VARIABLE = "ARENA_JAX_SECRET"


def read_secret(path: str | Path | None = None) -> bytes:
    """The secret in the file `path`, which only its owner may read, or in the environment variable ARENA_JAX_SECRET.

    White space around it does not count. Raises `ArenaError`, which never quotes it.
    """
    otherwise = f"environment variable {VARIABLE} is not set; set it to a secret, or name a file: secret:PATH"
    return files.read_secret(None if path is None else Path(path), VARIABLE, "secret file", otherwise)


def commitment(secret: bytes) -> str:
    """What may be published: SHA-256 that fixes the secret without telling it."""
    return hashlib.sha256(b"arena_jax held-out worlds: commitment\0" + secret).hexdigest()


def secret_key(secret: bytes) -> jax.Array:
    """The threefry key of the secret's worlds."""
    words = np.frombuffer(hashlib.sha256(b"arena_jax held-out worlds: key\0" + secret).digest()[:8], dtype=">u4")
    return jax.random.wrap_key_data(jax.device_put(words.astype(np.uint32)), impl="threefry2x32")
