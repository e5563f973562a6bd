"""Training on the world itself: rewards, runs that stop and go on, and in make verify a policy trained from nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arena_jax
from arena_jax.envs.rl import REWARD_UNIT
from arena_jax.errors import ArenaError
from arena_jax.policies.trained import load_policy
from arena_jax.score import objective
from baselines.config import Config
from baselines.curves import read_csv
from baselines.run import open_run
from baselines.worlds import make_world, potential

ROOT = Path(__file__).parents[1]
TINY = "updates = 3\nlanes = 16\nsteps = 8\nminibatches = 2\nepochs = 1\nhidden = [8]\ncritic_hidden = [8]\n"


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def one_line(call, *words):
    with pytest.raises(ArenaError) as refused:
        call()
    assert "\n" not in str(refused.value)
    assert all(word in str(refused.value) for word in words), refused.value


def test_a_run_is_refused_before_anything_is_made(tiny, tmp_path, monkeypatch):
    out = tmp_path / "run"
    one_line(lambda: open_run("nothing", out, 0, 1, False), "unknown configuration", "ppo")
    one_line(lambda: open_run(str(tiny), out, 0, 1, True), "can't read checkpoint")
    (tmp_path / "odd.toml").write_text('scenarios = "generated:0"')
    one_line(lambda: open_run(str(tmp_path / "odd.toml"), out, 0, 1, False), "generated worlds")
    assert not out.exists()
    out.mkdir()
    (out / "checkpoint.msgpack").write_bytes(b"")
    one_line(lambda: open_run(str(tiny), out, 0, 1, False), "--resume", "another --out")
    one_line(lambda: open_run(str(tiny), out, 0, 1, True), "damaged")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    one_line(lambda: open_run(str(tiny), tmp_path / "new", 0, 1, False), "matplotlib", "arena_jax[report]")


def test_lanes_hold_the_worlds_and_terms_of_their_configuration():
    config = Config(disciplined=True, scenarios="generated:30,seed=1", default_share=0.25, lanes=256,
                    tool_cost=(0.0, 8e4), revenue_multiple=(2.0, 10.0), blind_share=0.25)  # fmt: skip
    env = make_world(config).env
    is_default = (env.trajectories == arena_jax.make("EnterpriseArenaRL-v1").trajectories).all(axis=(1, 2))
    assert (int(is_default.sum()), env.trajectories.shape[0]) == (10, 40)
    for name, (low, high) in {"tool_cost": (0, 8e4), "revenue_multiple": (2, 10)}.items():
        values = np.asarray(getattr(env.params, name))
        assert low <= values.min() < low + 0.05 * (high - low) and high - 0.05 * (high - low) < values.max() <= high
    blind = np.asarray(env.params.tool_budget) == 0
    assert blind.mean() == pytest.approx(0.25, abs=0.02)
    assert abs(np.corrcoef(blind, env.params.tool_cost)[0, 1]) < 0.1
    assert env.params.disciplined and env.shows_terms


@pytest.mark.slow
@pytest.mark.parametrize("disciplined", [False, True])
def test_rewards_of_an_episode_sum_to_the_objective_less_the_potential_at_its_start(disciplined):
    lanes, steps = 64, 400
    world = make_world(Config(disciplined=disciplined, lanes=lanes))

    @jax.jit
    def play(world, key):
        states, _, masks = world.reset(jax.random.split(key, lanes))
        first = jax.vmap(lambda state: potential(world.env, state))(states)

        def one(carry, key):
            states, masks = carry
            key_action, key_step = jax.random.split(key)
            # passes and requests: months go by
            logits = jnp.where(masks, jnp.zeros(22, dtype=jnp.float32).at[:5].set(-3.0), -jnp.inf)
            actions = jax.random.categorical(key_action, logits).astype(jnp.int32)
            states, seen, masks, rewards, ended, came_to = world.step(
                states, actions, jax.random.split(key_step, lanes)
            )
            value = jax.vmap(lambda s: objective(world.env.params, s.opening_value, s.arena))(states)
            return (states, masks), (rewards, ended, came_to["objective"], value, seen)

        return first, jax.lax.scan(one, (states, masks), jax.random.split(key, steps))[1]

    first, (rewards, ended, objectives, values, seen) = jax.tree.map(np.asarray, play(world, jax.random.key(2)))
    assert seen.shape[-1] == world.entries and np.isfinite(seen).all()
    np.testing.assert_array_equal(objectives, values)
    assert ended.sum() > lanes
    for lane in range(lanes):
        ends = np.flatnonzero(ended[:, lane])
        for start, end in zip(np.append(-1, ends[:-1]), ends, strict=True):
            total = rewards[start + 1 : end + 1, lane].astype(np.float64).sum()
            assert total == pytest.approx(objectives[end, lane] / REWARD_UNIT - first[lane], abs=2e-3)


def run(config, out, *options, **others):
    command = [sys.executable, "-m", "baselines.train", "--config", str(config), "--out", str(out), *options]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **others)


@pytest.mark.slow
def test_a_run_that_is_interrupted_goes_on_to_the_same_weights(tiny, tmp_path):
    tiny.write_text(TINY.replace("updates = 3", "updates = 30"))
    straight = run(tiny, tmp_path / "straight", "--seeds", "2")
    assert straight.communicate()[1].count("wrote") == 2 and straight.returncode == 0
    # a shell's background job ignores Ctrl-C, and so would its children
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    stopped = run(tiny, tmp_path / "stopped", "--seeds", "2", preexec_fn=heed)
    line = stopped.stderr.readline()
    assert line.startswith("update 1/30"), line
    stopped.send_signal(signal.SIGINT)
    rest = stopped.communicate()[1]
    assert stopped.returncode == 130 and "--resume goes on" in rest and "Traceback" not in rest
    assert (tmp_path / "stopped" / "checkpoint.msgpack").exists()
    resumed = run(tiny, tmp_path / "stopped", "--seeds", "2", "--resume")
    assert "update 1/30" not in resumed.communicate()[1] and resumed.returncode == 0
    one, other = (read_csv(tmp_path / name / "curves.csv", 30) for name in ("straight", "stopped"))
    for rows in (one, other):
        for row in rows:
            row.pop("seconds")
    np.testing.assert_equal(one, other)
    for seed in (0, 1):
        pair = [load_policy(tmp_path / name / f"policy-{seed}.msgpack") for name in ("straight", "stopped")]
        jax.tree.map(np.testing.assert_array_equal, *pair)


@pytest.mark.slow
def test_bad_input_of_the_program_is_one_line(tmp_path):
    for options, word in ((("--config", "pp", "--out", "x"), "configuration"), (("--seed", "-1"), "seed")):
        command = [sys.executable, "-m", "baselines.train", "--config", "ppo", "--out", str(tmp_path / "x"), *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and word in done.stderr, done.stderr


@pytest.mark.slow
def test_a_policy_trained_from_nothing_is_as_good_as_the_one_that_ships(tmp_path):
    training = run("ppo", tmp_path / "run")
    assert training.wait() == 0
    env, key = arena_jax.make(), jax.random.key(77)
    mine = load_policy(tmp_path / "run" / "policy-0.msgpack")
    specs = {"mine": mine, "ppo": arena_jax.make_policy("ppo"),
             "greedy": arena_jax.make_policy("greedy-equity:amount=160e6")}  # fmt: skip
    records = {name: arena_jax.rollout(env, policy, key, 2048) for name, policy in specs.items()}
    assert records["mine"].survived.mean() >= 0.95
    error = lambda name: 1.96 * records[name].score.std() / 2048**0.5
    assert records["mine"].score.mean() >= records["greedy"].score.mean() - error("greedy")
    apart = abs(records["mine"].score.mean() - records["ppo"].score.mean())
    assert apart <= np.hypot(error("mine"), error("ppo"))
