"""The random stream: the words, their distribution, their independence, and the keys that open it."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.random import threefry_2x32
from scipy import stats
from scipy.special import ndtri

import arena_jax
from arena_jax import ArenaError
from arena_jax.batch_play import rollout
from arena_jax.draws import (
    Flash,
    Indicators,
    Key,
    episode_keys,
    key_words,
    month_draws,
    normal,
    packed_draws,
    request_draws,
    threefry2x32,
    uniform,
    unpacked_draws,
)
from arena_jax.tools import call_tool

WORD = st.integers(0, 2**32 - 1)
CELLS = 2**23  # a uniform takes one of this many values
MONTHS, EPISODES = 132, 1000
SIGNIFICANT = 1e-4  # a fixed-seed test fails below this p-value
# the draws of a month compile faster unfused
QUICK = {"xla_disable_hlo_passes": "fusion", "xla_backend_optimization_level": 0}
quick = functools.partial(jax.jit, compiler_options=QUICK if jax.default_backend() == "cpu" else None)
NORMALS = (*Indicators._fields, *Flash._fields)
UNIFORMS = ("outcome", "fraction", "delay")


def bits(values):
    return jnp.asarray(values, dtype=jnp.uint32)


def reference(key, index, block):
    """JAX's own threefry: the two words of counter (index, block)."""
    return np.asarray(threefry_2x32(bits(key), bits([index, block])))


def run_keys(seed, episodes=EPISODES):
    """The keys of the first episodes of a run."""
    return episode_keys(jax.random.key(seed), jnp.arange(episodes, dtype=jnp.uint32))


@quick
def draw(keys, months):
    """float[16, episodes, months]: the named normals, then the uniforms, for keys [episodes, months]."""
    key, months = key_words(keys), jnp.broadcast_to(months, keys.shape)
    month = month_draws(key, months)
    return jnp.stack([*month.indicators, *month.flash, *request_draws(key, months)])


@pytest.fixture(scope="module")
def drawn():
    """Month t and request t of every episode, each episode with one key throughout."""
    keys = jnp.broadcast_to(run_keys(0)[:, None], (EPISODES, MONTHS))
    return np.asarray(draw(keys, jnp.arange(MONTHS, dtype=jnp.int32)), dtype=np.float64)


def as_scores(drawn):
    """All named draws as standard normals."""
    return np.concatenate([drawn[: len(NORMALS)], ndtri(drawn[len(NORMALS) :])])


@pytest.fixture(scope="module")
def scores(drawn):
    return as_scores(drawn)


@pytest.fixture(scope="module")
def every_uniform():
    """All values of `uniform`, in order."""
    return uniform(jnp.arange(CELLS, dtype=jnp.uint32) << jnp.uint32(9))


# The words


def test_threefry_is_bit_equal_to_jax():
    random = np.random.default_rng(0)
    k0, k1, x0, x1 = random.integers(0, 2**32, (4, 4096), dtype=np.uint64).astype(np.uint32)
    ours = quick(threefry2x32)(Key(bits(k0), bits(k1)), bits(x0), bits(x1))
    theirs = jax.vmap(threefry_2x32)(bits(np.stack([k0, k1], 1)), bits(np.stack([x0, x1], 1)))
    np.testing.assert_array_equal(np.stack(ours, 1), theirs)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(WORD, WORD, WORD, WORD)
def test_threefry_is_bit_equal_to_jax_at_the_edges(k0, k1, x0, x1):
    ours = quick(threefry2x32)(Key(bits(k0), bits(k1)), bits(x0), bits(x1))
    np.testing.assert_array_equal(ours, reference((k0, k1), x0, x1))


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_known_answers(key, counter, expected):
    """The vectors of the Random123 distribution."""
    found = quick(threefry2x32)(Key(*map(bits, key)), *map(bits, counter))
    assert tuple(map(int, found)) == expected


def as_batch_play(keys, month, requests_made):
    drawn = unpacked_draws(packed_draws(keys, month, requests_made))
    return drawn.month, drawn.request


def as_a_step(keys, month, requests_made):
    return month_draws(keys, month), request_draws(keys, requests_made)


@pytest.mark.parametrize("way", [as_a_step, as_batch_play])
@pytest.mark.parametrize("month", [0, 7, 131])
def test_draws_of_a_batch_are_those_of_its_members(way, month):
    """Packed, as in batch play, and looped, as in a single step: the same words in the same order."""
    keys, requests = key_words(run_keys(3, 5)), jnp.asarray([0, 131, 7, 7, 60], dtype=jnp.int32)
    normals, batch = quick(way)(keys, jnp.int32(month), requests)
    normals, batch = jax.tree.leaves(normals), np.stack(batch, 1)
    for episode in range(5):
        key = (int(keys.k0[episode]), int(keys.k1[episode]))
        stream = np.concatenate([reference(key, int(requests[episode]), block) for block in (16, 17)])[:3]
        np.testing.assert_array_equal(batch[episode], uniform(bits(stream)))
        stream = np.concatenate([reference(key, month, block) for block in range(7)])[:13]
        expected = ndtri(np.asarray(uniform(bits(stream)), dtype=np.float64))
        np.testing.assert_allclose(np.stack(normals, 1)[episode], expected, atol=2e-6)


@pytest.mark.parametrize("month", [0, 1, 131])
def test_a_month_takes_blocks_0_to_6(month):
    key = (7, 11)
    stream = np.concatenate([reference(key, month, block) for block in range(7)])  # the fourteenth word is unused
    drawn = quick(month_draws)(Key(*map(bits, key)), jnp.int32(month))
    found = {**drawn.indicators._asdict(), **drawn.flash._asdict()}
    assert list(found) == [
        *("user_growth", "loan_size", "lending_rate", "repayment_rate", "charge_off_rate"),
        *("servicing_cost", "fixed_cost", "acquisition_cost", "interest_lag", "cost_lag"),
        *("users", "originations", "collections"),
    ]
    expected = ndtri(np.asarray(uniform(bits(stream[:13])), dtype=np.float64))
    np.testing.assert_allclose(np.asarray(list(found.values())), expected, atol=2e-6)


@pytest.mark.parametrize("requests_made", [0, 1, 40])
def test_a_request_takes_blocks_16_and_17(requests_made):
    key = (7, 11)
    stream = np.concatenate([reference(key, requests_made, block) for block in (16, 17)])
    drawn = quick(request_draws)(Key(*map(bits, key)), jnp.int32(requests_made))
    assert drawn._fields == UNIFORMS
    np.testing.assert_array_equal(jnp.stack(drawn), uniform(bits(stream[:3])))


# The map to uniforms and normals, over every value


def test_uniforms_stay_inside_the_unit_interval_and_rise(every_uniform):
    assert every_uniform.dtype == jnp.result_type(float)
    values = np.asarray(every_uniform, dtype=np.float64)
    np.testing.assert_array_equal(values, (np.arange(CELLS) + 0.5) / CELLS)
    assert values[0] > 0.0 and values[-1] < 1.0 and (np.diff(values) > 0).all()


def test_a_uniform_ignores_the_low_nine_bits():
    assert float(uniform(bits(0x1FF))) == float(uniform(bits(0))) == 2.0**-24
    assert float(uniform(bits(2**32 - 1))) == 1.0 - 2.0**-24


def test_normals_invert_the_distribution_function(every_uniform):
    found = np.asarray(jax.jit(normal)(every_uniform))
    assert found.dtype == every_uniform.dtype
    assert np.isfinite(found).all()
    error = np.abs(found - ndtri((np.arange(CELLS) + 0.5) / CELLS))
    assert error.max() < 2e-6


def test_normals_are_odd_about_the_median(every_uniform):
    found = np.asarray(jax.jit(normal)(every_uniform))
    np.testing.assert_array_equal(found, -found[::-1])


# The distribution of each named draw


def normal_pvalues(x):
    """Tests of float[n] against the standard normal: whole distribution, moments, tails."""
    two_sided = lambda below, above: min(1.0, 2 * min(below, above))
    squares = np.sum(x**2)
    p = {
        "distribution": stats.kstest(x, "norm").pvalue,
        "mean": 2 * stats.norm.sf(abs(x.mean()) * np.sqrt(x.size)),
        "variance": two_sided(stats.chi2.cdf(squares, x.size), stats.chi2.sf(squares, x.size)),
        "skewness": stats.skewtest(x).pvalue,
        "kurtosis": stats.kurtosistest(x).pvalue,
    }
    for limit in (2.0, 3.0, 4.0):
        for side, tail in (("above", x > limit), ("below", x < -limit)):
            p[f"{side} {limit}"] = stats.binomtest(int(tail.sum()), x.size, stats.norm.sf(limit)).pvalue
    return p


@pytest.mark.parametrize("name", NORMALS)
def test_each_normal_is_standard_normal(drawn, name):
    p = normal_pvalues(drawn[NORMALS.index(name)].ravel())
    assert min(p.values()) > SIGNIFICANT, p


@pytest.mark.parametrize("name", UNIFORMS)
def test_each_uniform_is_uniform(drawn, name):
    x = drawn[len(NORMALS) + UNIFORMS.index(name)].ravel()
    p = {
        "distribution": stats.kstest(x, "uniform").pvalue,
        "high bits": stats.chisquare(np.bincount(np.floor(x * 256).astype(int), minlength=256)).pvalue,
        "low bits": stats.chisquare(np.bincount(np.floor(x * CELLS).astype(int) % 256, minlength=256)).pvalue,
        "six delays": stats.chisquare(np.bincount(np.floor(6 * x).astype(int), minlength=6)).pvalue,
        "near zero": stats.binomtest(int((x < 1e-3).sum()), x.size, 1e-3).pvalue,
        "near one": stats.binomtest(int((x > 1 - 1e-3).sum()), x.size, 1e-3).pvalue,
    }
    assert min(p.values()) > SIGNIFICANT, p


# Independence: under it, n r^2 of each correlation r of n pairs is chi-square with one degree of freedom


def independence(x, y, pairs=...):
    """p-value that float[k, ...] x and y are uncorrelated in all k * k pairs of rows, in value and in size.

    pairs: bool[k, k], which pairs count (all).
    """
    found = []
    for a, b in ((x, y), (np.abs(x), np.abs(y))):
        a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
        a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
        r = np.einsum("kn,ln->kl", a, b) / np.sqrt(np.outer((a * a).sum(1), (b * b).sum(1)))
        found.append(stats.chi2.sf(np.sum(r[pairs] ** 2) * a.shape[1], r[pairs].size))
    return min(found)


@pytest.mark.parametrize("lag", [1, 2, 3, 12])
def test_months_are_independent(scores, lag):
    assert independence(scores[:, :, :-lag], scores[:, :, lag:]) > SIGNIFICANT


@pytest.mark.parametrize("lag", [1, 2, 64])
def test_episodes_are_independent(scores, lag):
    assert independence(scores[:, :-lag], scores[:, lag:]) > SIGNIFICANT


def test_named_draws_are_independent(scores):
    pairs = np.triu(np.ones((len(scores), len(scores)), dtype=bool), 1)
    assert pairs.sum() == 120
    assert independence(scores, scores, pairs) > SIGNIFICANT


def test_runs_are_independent(scores):
    keys = jnp.broadcast_to(run_keys(1)[:, None], (EPISODES, MONTHS))
    other = as_scores(np.asarray(draw(keys, jnp.arange(MONTHS, dtype=jnp.int32)), dtype=np.float64))
    assert independence(scores, other) > SIGNIFICANT


def test_a_correlation_of_two_percent_would_be_found(scores):
    before = scores[:, :, :-1]
    assert independence(scores[:, :, 1:] + 0.02 * before, before) < SIGNIFICANT


def test_totals_of_an_episode_vary_like_those_of_independent_months(scores):
    """Serial correlation at any lag would widen or narrow the sum of an episode's months."""
    for name, total in zip((*NORMALS, *UNIFORMS), scores.sum(2) / np.sqrt(MONTHS), strict=True):
        assert stats.kstest(total, "norm").pvalue > SIGNIFICANT, name


# Which key, and when


def test_a_fresh_key_each_step_draws_from_the_same_law():
    """Keys of the months of an episode split from one another, as a training loop does it."""

    def chain(key, _):
        key, fresh = jax.random.split(key)
        return key, fresh

    _, keys = jax.vmap(lambda key: jax.lax.scan(chain, key, length=MONTHS))(run_keys(6))
    fresh = np.asarray(draw(keys, jnp.arange(MONTHS, dtype=jnp.int32)), dtype=np.float64)
    fresh = as_scores(fresh)
    for name, x in zip((*NORMALS, *UNIFORMS), fresh, strict=True):
        p = normal_pvalues(x.ravel())
        assert min(p.values()) > SIGNIFICANT, (name, p)
    assert independence(fresh[:, :, :-1], fresh[:, :, 1:]) > SIGNIFICANT
    assert independence(fresh[:, :-1], fresh[:, 1:]) > SIGNIFICANT


def test_every_request_of_an_episode_has_other_luck(drawn):
    for name, luck in zip(UNIFORMS, drawn[len(NORMALS) :], strict=True):
        assert all(len(np.unique(row)) == MONTHS for row in luck[:100]), name


# Keys


def test_typed_and_legacy_keys_are_the_same_key(env):
    typed, legacy = jax.random.key(17), jax.random.PRNGKey(17)
    assert legacy.dtype == jnp.uint32
    chex.assert_trees_all_equal(key_words(typed), key_words(legacy), Key(bits(0), bits(17)))
    episodes = jnp.arange(5, dtype=jnp.uint32)
    chex.assert_trees_all_equal(key_words(episode_keys(typed, episodes)), key_words(episode_keys(legacy, episodes)))
    chex.assert_trees_all_equal(env.reset(typed), env.reset(legacy))


def test_a_batch_of_keys_gives_a_batch_of_words():
    keys = jax.random.split(jax.random.key(0), 4)
    chex.assert_trees_all_equal(key_words(keys), key_words(jax.random.key_data(keys)))
    assert key_words(keys).k0.shape == (4,)


BAD_KEYS = {
    "rbg": lambda: jax.random.key(0, impl="rbg"),
    "unsafe rbg": lambda: jax.random.key(0, impl="unsafe_rbg"),
    "legacy rbg": lambda: jax.random.key_data(jax.random.key(0, impl="rbg")),
    "int": lambda: 0,
    "none": lambda: None,
    "text": lambda: "0",
    "NumPy array": lambda: np.zeros(2, np.uint32),
    "float array": lambda: jnp.zeros(2),
    "int array": lambda: jnp.zeros(2, dtype=jnp.int32),
    "scalar word": lambda: jnp.uint32(0),
    "three words": lambda: jnp.zeros(3, dtype=jnp.uint32),
    "one word": lambda: jnp.zeros(1, dtype=jnp.uint32),
    "no words": lambda: jnp.zeros((2, 0), dtype=jnp.uint32),
}
USES = {
    "reset": lambda env, state, key: env.reset(key),
    "use_tool": lambda env, state, key: env.use_tool(state, call_tool("verify_cash_position"), key),
    "step": lambda env, state, key: env.step(state, arena_jax.pass_month(), key),
    "rollout": lambda env, state, key: rollout(env, arena_jax.make_policy("never-raise"), key, 1),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", BAD_KEYS)
def test_other_keys_are_refused(env, kind, use):
    state, key = env.reset(jax.random.key(0))[0], BAD_KEYS[kind]()
    with pytest.raises(ArenaError, match=r"^key must be .*threefry.*, got [^\n]+$"):
        USES[use](env, state, key)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("legacy", [False, True])
def test_a_batch_of_keys_for_one_episode_is_refused(env, legacy, use):
    """One episode has one key; a batch of episodes goes through vmap, a run through its run key."""
    state, keys = env.reset(jax.random.key(0))[0], jax.random.split(jax.random.key(0), 3)
    with pytest.raises(ArenaError, match=r"^key .*\[3[^\n]*$"):
        USES[use](env, state, jax.random.key_data(keys) if legacy else keys)


def test_keys_of_policies_are_never_keys_of_episodes():
    """A run's policies branch off at the last index, which is no episode; a decision folds in 2 * month + 0 or 1."""
    run = jax.random.key(0)
    episodes = run_keys(0, 20_000)
    policies = episode_keys(jax.random.fold_in(run, 2**32 - 1), jnp.arange(200, dtype=jnp.uint32))
    decisions = jax.vmap(episode_keys, in_axes=(0, None))(policies, jnp.arange(2 * MONTHS, dtype=jnp.uint32))
    every = [np.asarray(jax.random.key_data(keys)).reshape(-1, 2) for keys in (run, episodes, policies, decisions)]
    assert len({tuple(words) for words in np.concatenate(every).tolist()}) == sum(map(len, every))


def test_the_policies_branch_of_a_run_is_not_an_episode(env):
    """The last index is kept back for the policies' keys, and refused as an episode."""
    with pytest.raises(ArenaError, match="4294967295"):
        rollout(env, arena_jax.make_policy("never-raise"), jax.random.key(0), 1, first=2**32 - 1)
