"""Strict JAX settings for every test; warnings are errors (pyproject.toml). Run with JAX_ENABLE_X64=1 for float64."""

import os
import tempfile

import jax
import pytest

import arena_jax
from arena_jax.evaluation import evaluate
from arena_jax.llm.runs import new_run, open_episode

# what the command line compiles is cached for the session, not in the user's folder
_CACHE = tempfile.TemporaryDirectory(prefix="arena-jax-tests-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session")
def env():
    return arena_jax.make("EnterpriseArena-v1")


@pytest.fixture(scope="session")
def simulated_run(env, tmp_path_factory):
    """A run directory of two policies over 200 episodes, with cash by month."""
    out = tmp_path_factory.mktemp("simulated") / "run"
    evaluate(env, ["never-raise", "late-raiser"], episodes=200, seed=3, record=["cash"], out=out)
    return out


@pytest.fixture(scope="session")
def agents_run(tmp_path_factory):
    """A run directory of agents whose two episodes have ended: bankrupt, and stopped in month 1."""
    out = tmp_path_factory.mktemp("agents") / "run"
    new_run(out, [7, 8])
    with open_episode(out, 0, agent="someone") as session:
        session.call("verify_cash_position")
        session.call("fund_raising_request", {"instrument": "debt", "amount": 1e6})
        session.call("review_financial_records", {"document": "list"})
        while not session.is_over:
            session.call("pass")
    with open_episode(out, 1, agent="someone") as session:
        session.call("pass")
        session.stop("agent_stopped", "enough")
    return out
