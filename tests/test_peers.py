"""The benchmark's peers are complete: the same record as arena_jax within sampling error, and books that close."""

import functools
import importlib

import jax
import numpy as np
import pytest

import arena_jax
from arena_jax.structs import TOOLS
from benchmarks.peers.world import POLICIES, Outcome, make_world, peer_policy

EPISODES = {"python_loop": 400, "numpy_batch": 20_000, "numba_parallel": 20_000}
REFERENCE = 8192  # episodes of arena_jax
FAST = ("never-raise", "cash-threshold:threshold=8e6,amount=12.6e6")  # the others in make verify
STANDARD_ERRORS = 4.5

specs = [pytest.param(spec, marks=() if spec in FAST else pytest.mark.slow) for spec in POLICIES]
peers = [
    "python_loop",
    "numpy_batch",
    pytest.param("numba_parallel", marks=pytest.mark.slow),  # installed in make verify alone
]


def load(peer):
    if peer == "numba_parallel":
        pytest.importorskip("numba", reason="numba is not installed: pip install 'arena_jax[bench]'")
    return importlib.import_module(f"benchmarks.peers.{peer}")


@functools.cache
def reference(spec, **overrides):
    """arena_jax's record in the peers' terms."""
    env = arena_jax.make(**overrides)
    record = vars(arena_jax.rollout(env, arena_jax.make_policy(spec), jax.random.key(0), REFERENCE))
    sums = {
        "tool_calls": sum(record[tool] for tool in TOOLS),
        "requested": record["requested_equity"] + record["requested_debt"],
        "received": record["received_equity"] + record["received_debt"],
        "balance_gap": np.zeros(REFERENCE),
    }
    return Outcome(**{name: sums[name] if name in sums else record[name] for name in Outcome._fields})


def standard_error(sample):
    return sample.std() / len(sample) ** 0.5


@pytest.mark.parametrize("spec", specs)
@pytest.mark.parametrize("peer", peers)
def test_the_same_record_within_sampling_error(peer, spec, env):
    played = load(peer).play(make_world(env), peer_policy(spec), EPISODES[peer], 1)
    expected = reference(spec)
    for name in Outcome._fields:
        mine, theirs = (np.asarray(getattr(outcome, name), dtype=float) for outcome in (played, expected))
        assert mine.shape == (EPISODES[peer],)
        scale = max(abs(theirs).max(), 1e-3)
        for power in (1, 2):  # mean, and spread about it
            mine_moment, theirs_moment = (((x - theirs.mean()) / scale) ** power for x in (mine, theirs))
            error = np.hypot(standard_error(mine_moment), standard_error(theirs_moment))
            difference = abs(mine_moment.mean() - theirs_moment.mean())
            assert difference < STANDARD_ERRORS * error + 1e-5, f"{name}, moment {power}"


@pytest.mark.parametrize("peer", peers)
def test_without_noise_nothing_is_left_to_luck(peer):
    world = make_world(arena_jax.make(noise=0))
    played = load(peer).play(world, peer_policy("never-raise"), 64, 0)
    expected = reference("never-raise", noise=0)
    for name in Outcome._fields:
        mine, theirs = getattr(played, name), getattr(expected, name)[:64]
        atol = 1e-5 * 15e6 if name in ("cash", "cash_trough") else 1e-5  # of the opening cash
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=atol, err_msg=name)


@pytest.mark.parametrize("spec", specs)
@pytest.mark.parametrize("peer", peers)
def test_the_balance_sheet_closes_and_seeds_matter(peer, spec, env):
    module, world, policy = load(peer), make_world(env), peer_policy(spec)
    first, again, other = (module.play(world, policy, 100, seed) for seed in (1, 1, 2))
    assert abs(first.balance_gap).max() < 1e-5
    np.testing.assert_array_equal(first.cash, again.cash)
    assert (first.cash != other.cash).any()
    assert len(np.unique(first.cash)) > 90


@pytest.mark.parametrize("peer", peers)
def test_the_draws_are_as_many_independent_normals(peer, env):
    world = make_world(env)
    drawn = load(peer).draw(world, 1000, 3)
    assert drawn.shape == (1000,)
    count = len(world.months) * (1 if peer == "numpy_batch" else 10)
    assert abs(drawn.mean()) < STANDARD_ERRORS * (count / 1000) ** 0.5
    assert drawn.var() == pytest.approx(count, rel=0.2)


def test_what_the_peers_are_not_written_for_is_refused():
    with pytest.raises(
        arena_jax.ArenaError, match="unknown policy of the peers 'greedy-equity'; did you mean greedy-equity:"
    ):
        peer_policy("greedy-equity")
    with pytest.raises(arena_jax.ArenaError, match="max_pending=1"):
        make_world(arena_jax.make(max_pending=2))
