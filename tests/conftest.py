"""Strict JAX settings for every test; warnings are errors (pyproject.toml). Run with JAX_ENABLE_X64=1 for float64."""

import jax
import pytest

import arena_jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session")
def env():
    return arena_jax.make("EnterpriseArena-v1")
