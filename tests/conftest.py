"""Strict JAX settings for every test; warnings are errors (pyproject.toml). Run with JAX_ENABLE_X64=1 for float64."""

import os
import tempfile

import jax
import pytest

import arena_jax

# what the command line compiles is cached for the session, not in the user's folder
_CACHE = tempfile.TemporaryDirectory(prefix="arena-jax-tests-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session")
def env():
    return arena_jax.make("EnterpriseArena-v1")
