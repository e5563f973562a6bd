"""PPO: losses against NumPy, a small environment that can be solved, resuming, settings and files."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import one_line

from arena_jax.policies import TRAINED, categorical
from arena_jax.policies.network import KINDS, act, new_normaliser
from arena_jax.policies.weights import write_arrays
from arena_jax.programs import Program
from baselines.checkpoint import read_checkpoint, write_checkpoint
from baselines.config import Config, make_config, read_config
from baselines.critic import judge
from baselines.curves import read_csv, write_csv, write_png
from baselines.losses import advantages, divergence, normalised, policy_loss, value_loss
from baselines.ppo import _play, sizes_of, start, update
from benchmarks.harness import Spent

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


# Losses


def test_advantages_are_the_sums_of_discounted_errors_up_to_the_episodes_end():
    steps, lanes, gamma, trace = 7, 3, 0.9, 0.8
    rewards, values, last = floats(steps, lanes), floats(steps, lanes), floats(lanes)
    ended = RNG.random((steps, lanes)) < 0.3
    assert ended[:-1].any() and not ended.all()
    expected = np.zeros((steps, lanes))
    following = np.concatenate([values[1:], last[None]])
    errors = rewards + gamma * following * ~ended - values
    for t in range(steps):
        for lane in range(lanes):
            weight = 1.0
            for later in range(t, steps):
                expected[t, lane] += weight * errors[later, lane]
                weight *= gamma * trace * (not ended[later, lane])
    found = advantages(*map(jnp.asarray, (rewards, values, ended, last)), gamma, trace)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_losses_are_those_of_the_papers():
    new, old, gain, value, target = (floats(4, 5) for _ in range(5))
    ratio = np.exp(new.astype(np.float64) - old)
    surrogate = np.minimum(ratio * gain, np.clip(ratio, 0.8, 1.2) * gain)
    np.testing.assert_allclose(policy_loss(*map(jnp.asarray, (new, old, gain)), 0.2), -surrogate.mean(), rtol=1e-5)
    np.testing.assert_allclose(value_loss(*map(jnp.asarray, (value, target))), 0.5 * ((value - target) ** 2).mean(),
                               rtol=1e-5)  # fmt: skip
    np.testing.assert_allclose(divergence(*map(jnp.asarray, (new, old))), (ratio - 1 - np.log(ratio)).mean(), rtol=1e-4)
    unit = np.asarray(normalised(jnp.asarray(gain)))
    np.testing.assert_allclose([unit.mean(), unit.std()], [0, 1], atol=1e-5)


def test_the_categorical_takes_no_account_of_masked_actions():
    logits, mask = floats(6, 5), RNG.random((6, 5)) < 0.6
    mask[:, 2] = True
    mask[0] = [False, False, True, False, False]
    logits[:, 0] = 50.0  # a masked action of great weight
    mask[:, 0] = False
    weights = np.where(mask, np.exp(logits.astype(np.float64)), 0.0)
    p = weights / weights.sum(axis=1, keepdims=True)
    shown, allowed = jnp.asarray(logits), jnp.asarray(mask)
    surprise = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)
    np.testing.assert_allclose(categorical.entropy(shown, allowed), surprise, rtol=1e-4, atol=1e-6)
    actions = p.argmax(axis=1)
    found = categorical.log_prob(shown, allowed, jnp.asarray(actions, dtype=jnp.int32))
    np.testing.assert_allclose(found, np.log(p[np.arange(6), actions]), rtol=1e-4, atol=1e-6)
    drawn = jax.vmap(lambda key: categorical.sample(key, shown, allowed))(jax.random.split(jax.random.key(0), 20_000))
    shares = np.stack([(np.asarray(drawn) == action).mean(axis=0) for action in range(5)], axis=1)
    np.testing.assert_allclose(shares, p, atol=0.02)
    slope = jax.grad(lambda logits: categorical.entropy(logits, allowed).sum())(shown)
    assert np.isfinite(slope).all()


def test_the_normaliser_is_that_of_all_observations_so_far():
    rows = 3.0 + 2.0 * floats(4, 10, 3)
    normaliser = new_normaliser(3)
    for part in rows:
        normaliser = normaliser.updated(jnp.asarray(part))
    flat = rows.reshape(-1, 3)
    np.testing.assert_allclose(normaliser.mean, flat.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(normaliser.variance, flat.var(axis=0), rtol=1e-4)
    np.testing.assert_allclose(normaliser(jnp.asarray(flat)).std(axis=0), 1.0, rtol=1e-3)
    assert float(jnp.abs(normaliser(jnp.asarray(flat) + 1e6)).max()) == 10.0


def test_a_normaliser_of_nothing_leaves_what_it_sees_and_then_counts_each_row_once():
    world, config = Cue(jnp.bool_(True)), Config(**SMALL)
    learner = Program(partial(start, config))(world, jax.random.key(0))
    np.testing.assert_array_equal(learner.normaliser(learner.observations), learner.observations)
    after, _ = Program(partial(update, config))(world, learner)
    assert float(after.normaliser.count) == config.lanes * config.steps


# An update


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Noise:
    """Observations, masks, rewards and ends are all drawn; action 2 is always allowed."""

    ends: Any  # float32[]: the chance that a step is an episode's last

    observation_size, entries, num_actions = 5, 7, 4

    def _seen(self, key):
        key_seen, key_mask = jax.random.split(key)
        mask = jax.random.bernoulli(key_mask, 0.5, (self.num_actions,)).at[2].set(True)
        return jax.random.normal(key_seen, (self.entries,), dtype=jnp.float32), mask

    def reset(self, keys):
        return (), *jax.vmap(self._seen)(keys)

    def step(self, states, actions, keys):
        keys, keys_reward, keys_end = jnp.moveaxis(jax.vmap(partial(jax.random.split, num=3))(keys), 1, 0)
        rewards = jax.vmap(partial(jax.random.normal, dtype=jnp.float32))(keys_reward)
        ended = jax.vmap(lambda key: jax.random.bernoulli(key, self.ends))(keys_end)
        return (), *jax.vmap(self._seen)(keys), rewards, ended, {}


def amid_noise(**settings):
    """A configuration, its world, its update, and a learner of wild weights after the first one."""
    config = Config(lanes=12, steps=9, updates=20, minibatches=3, hidden=(8,), critic_hidden=(8,), **settings)
    world, step = Noise(jnp.float32(0.2)), Program(partial(update, config))
    learner = Program(partial(start, config))(world, jax.random.key(3))
    rng = np.random.default_rng(1)  # of its own: the same learner whatever ran before
    draw = lambda leaf: jnp.asarray(rng.normal(size=leaf.shape).astype(np.float32))
    wild = jax.tree.map(draw, learner.weights["actor"])
    learner, _ = step(world, replace(learner, weights=learner.weights | {"actor": wild}))
    return config, world, step, learner


@pytest.mark.parametrize("kind", KINDS)
def test_the_fit_starts_from_the_probabilities_and_values_of_play(kind):
    """With a learning rate of 0 all figures of a fit are those of what was played."""
    config, world, step, learner = amid_noise(kind=kind, learning_rate=0.0, gamma=0.9)
    sizes = sizes_of(config, world)
    played_by = replace(learner, key=jax.random.split(learner.key, 3)[0])
    after, played, _ = Program(partial(_play, config, sizes))(world, played_by)
    _, figures = step(world, learner)

    assert played.ended[:-1].any(axis=0).all() and not played.masks.all(), "episodes end amid the stretch"
    seen = learner.normaliser(played.observations)[:, :, : sizes.observation]
    one, memory, logits = jax.jit(partial(act, sizes)), learner.memory, []
    for t in range(config.steps):
        memory, found = one(learner.weights["actor"], memory, seen[t])
        memory = jax.tree.map(lambda leaf: jnp.asarray(np.where(played.ended[t][:, None], 0, leaf)), memory)  # noqa: B023
        logits.append(found)
    logits = jnp.stack(logits)
    expected = categorical.log_prob(logits, played.masks, played.actions)
    np.testing.assert_allclose(played.log_probs, expected, rtol=1e-4, atol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), after.memory, memory)

    last = judge(config.critic_hidden, learner.weights["critic"], learner.normaliser(after.observations))
    gains = advantages(played.rewards, played.values, played.ended, last, config.gamma, config.trace)
    assert float(figures["divergence"]) < 1e-6
    np.testing.assert_allclose(figures["entropy"], categorical.entropy(logits, played.masks).mean(), rtol=1e-4)
    np.testing.assert_allclose(figures["value_loss"], 0.5 * np.mean(np.square(gains)), rtol=1e-4)


def test_the_bonus_raises_the_entropy():
    entropies = {}
    for bonus in (0.0, 10.0):
        _, world, step, learner = amid_noise(entropy=bonus, learning_rate=1e-2)
        for _ in range(5):
            learner, figures = step(world, learner)
        entropies[bonus] = float(figures["entropy"])
    assert entropies[10.0] > entropies[0.0] + 0.1


# A small environment


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cue:
    """Six steps. The first observation shows one of two cues; the last action must answer it, the others be 2.

    What was shown is seen again at the end if `reminds`, so only then can a policy without memory do better than
    half. Action 3 pays most and is always masked.
    """

    reminds: Any  # bool[]

    observation_size, entries, num_actions = 3, 4, 4
    length = 6

    def _seen(self, cue, step):
        is_shown = (step == 0) | (self.reminds & (step == self.length - 1))
        sign = jnp.where(is_shown, 2 * cue - 1, 0)
        # the cue is always there for the critic
        seen = [sign, step == 0, step == self.length - 1, cue]
        return jnp.stack([entry.astype(jnp.float32) for entry in seen], axis=-1)

    def _mask(self, step):
        return jnp.broadcast_to(jnp.array([True, True, True, False]), (*step.shape, 4))

    def reset(self, keys):
        cue = jax.vmap(lambda key: jax.random.bernoulli(key).astype(jnp.int32))(keys)
        step = jnp.zeros_like(cue)
        return (cue, step), self._seen(cue, step), self._mask(step)

    def step(self, states, actions, keys):
        cue, step = states
        ended = step == self.length - 1
        reward = jnp.where(ended, actions == cue, actions == 2).astype(jnp.float32)
        reward = jnp.where(actions == 3, 9.0, reward)
        fresh = self.reset(keys)[0]
        cue, step = (jnp.where(ended, new, old) for new, old in zip(fresh, (cue, step + 1), strict=True))
        return (cue, step), self._seen(cue, step), self._mask(step), reward, ended, {"last": reward}


SMALL = {"lanes": 64, "steps": 12, "updates": 60, "minibatches": 4, "hidden": (16,), "critic_hidden": (16,),
         "learning_rate": 1e-2, "reward_scale": 1.0, "gamma": 0.99}  # fmt: skip


def learned(kind, reminds):
    """The share of right answers over the last updates, after training from nothing."""
    config, world = Config(kind=kind, **SMALL), Cue(jnp.bool_(reminds))
    learner, last = Program(partial(start, config))(world, jax.random.key(1)), []
    step = Program(partial(update, config))
    for _ in range(config.updates):
        learner, figures = step(world, learner)
        last.append(float(figures["last"]))
    return float(np.mean(last[-5:]))


def test_a_small_environment_is_solved():
    assert learned("feed-forward", True) > 0.97


def test_only_a_network_with_memory_solves_what_needs_memory():
    assert learned("gru", False) > 0.97
    assert learned("feed-forward", False) < 0.7


# Runs


GRU = Config(kind="gru", **SMALL)
two_updates = Program(jax.vmap(lambda world, one: update(GRU, world, update(GRU, world, one)[0])[0], (None, 0)))


def begin(config=GRU, seeds=(1, 2)):
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    return Program(jax.vmap(partial(start, config), (None, 0)))(Cue(jnp.bool_(True)), keys)


def test_a_resumed_run_is_the_straight_one_bit_for_bit(tmp_path):
    path, header = tmp_path / "checkpoint.msgpack", {"config": {"updates": 60}}
    world = Cue(jnp.bool_(True))
    halfway = two_updates(world, begin())
    write_checkpoint(path, header, halfway, Spent(1.5, 2.5))
    resumed, spent = read_checkpoint(path, header, begin)
    assert spent == Spent(1.5, 2.5)
    expected, found = two_updates(world, halfway), two_updates(world, resumed)
    assert list(expected.updates) == [4, 4]
    assert not np.array_equal(*expected.weights["actor"]["Dense_0"]["kernel"]), "two seeds, one learner"
    for (where, one), other in zip(jax.tree.leaves_with_path(expected), jax.tree.leaves(found), strict=True):
        one, other = (jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
                      for x in (one, other))  # fmt: skip
        np.testing.assert_array_equal(one, other, err_msg=jax.tree_util.keystr(where))


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path, header = tmp_path / "checkpoint.msgpack", {"config": {"updates": 60}, "seeds": [1, 2]}
    write_checkpoint(path, header, begin(), Spent(0.0, 0.0))
    one_line(lambda: read_checkpoint(path, header | {"seeds": [1, 3]}, begin), "another run", "seeds")
    wider = partial(begin, Config(kind="gru", **SMALL | {"hidden": (17,)}))
    one_line(lambda: read_checkpoint(path, header, wider), "checkpoint.msgpack", "float32[2, 16")
    one_line(lambda: read_checkpoint(path, header, partial(begin, Config(**SMALL))), "has an unknown")
    path.write_bytes(path.read_bytes()[:-50])
    one_line(lambda: read_checkpoint(path, header, begin), "checkpoint.msgpack", "damaged")
    write_arrays(path, header, {})
    one_line(lambda: read_checkpoint(path, header, begin), "no checkpoint")
    one_line(lambda: read_checkpoint(tmp_path / "none", header, begin), "can't read", "none")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epoch": 3}, ("epoch", "did you mean epochs")),
        ({"epochs": 3.0}, ("epochs must be int",)),
        ({"epochs": 0}, ("epochs must be from 1",)),
        ({"gamma": "1"}, ("gamma must be a number",)),
        ({"gamma": 1.5}, ("gamma must be from 0 to 1",)),
        ({"lanes": 10, "minibatches": 4}, ("multiple of minibatches",)),
        ({"kind": "lstm"}, ("feed-forward, gru",)),
        ({"hidden": []}, ("hidden",)),
        ({"critic_hidden": [2.5]}, ("critic_hidden must be a list",)),
        ({"tool_cost": [0, 8e4]}, ("both tool_cost and revenue_multiple",)),
        ({"tool_cost": [0], "revenue_multiple": [2, 10]}, ("tool_cost must be a lowest",)),
        ({"tool_cost": [0, 8e4], "revenue_multiple": [10, 2]}, ("revenue_multiple must be a lowest",)),
        ({"scenarios": "generated:10", "default_share": 1}, ("default_share must be from 0 to 0.9",)),
        ({"default_share": 0.3}, ("default_share needs scenarios",)),
        ({"blind_share": 0.3}, ("blind_share needs tool_cost",)),
        ({"disciplined": 1}, ("disciplined must be bool",)),
    ],
)
def test_bad_settings_are_one_line(settings, words):
    one_line(lambda: make_config(settings), *words)


def test_bad_configurations_are_one_line(tmp_path):
    one_line(lambda: read_config("pppo"), "unknown configuration", "did you mean ppo")
    one_line(lambda: read_config(str(tmp_path / "none.toml")), "can't read", "none.toml")
    (tmp_path / "odd.toml").write_text("epochs = ")
    one_line(lambda: read_config(str(tmp_path / "odd.toml")), "no TOML", "odd.toml")


def test_every_trained_policy_has_its_configuration():
    for name in TRAINED:
        assert isinstance(read_config(name), Config)


def test_curves_come_back_as_they_were_written(tmp_path):
    rows = [{"update": 1.0 * i, "seed": 3.0, "decisions": 64.0 * i, "objective": float(x)}
            for i, x in enumerate((np.nan, -2.5e6, 0.125), start=1)]  # fmt: skip
    write_csv(tmp_path / "curves.csv", rows)
    np.testing.assert_equal(read_csv(tmp_path / "curves.csv", 2, (3,)), rows[:2])
    write_png(tmp_path / "curves.png", rows, "a run")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    one_line(lambda: read_csv(tmp_path / "curves.csv", 4, (3,)), "don't hold updates 1 to 4")
    one_line(lambda: read_csv(tmp_path / "curves.csv", 2, (3, 4)), "don't hold updates 1 to 2")
    for text in ("update\nsoon\n", "", "abc"):
        (tmp_path / "curves.csv").write_text(text)
        one_line(lambda: read_csv(tmp_path / "curves.csv", 2, (3,)), "curves.csv")
