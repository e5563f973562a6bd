"""Training on the world itself: rewards, runs that stop and go on, and in make verify a policy trained from nothing."""

import dataclasses
import importlib
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import one_line

import arena_jax
from arena_jax.decisions.env import REWARD_UNIT
from arena_jax.policies.registry import weights_header
from arena_jax.policies.trained import load_policy
from arena_jax.score import objective
from baselines import run as training
from baselines.checkpoint import write_checkpoint
from baselines.config import Config
from baselines.curves import read_csv
from baselines.held_out import SEED
from baselines.run import open_run, train
from baselines.worlds import World, make_world, potential, with_hidden
from benchmarks.harness import Spent

ROOT = Path(__file__).parents[1]
TINY = "updates = 3\nlanes = 16\nsteps = 8\nminibatches = 2\nepochs = 1\nhidden = [8]\ncritic_hidden = [8]\n"


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def test_a_run_is_refused_before_anything_is_made(tiny, tmp_path, monkeypatch):
    out = tmp_path / "run"
    one_line(lambda: open_run("nothing", out, 0, 1, False), "unknown configuration", "ppo")
    one_line(lambda: open_run(str(tiny), out, 0, 1, True), "can't read checkpoint")
    (tmp_path / "odd.toml").write_text('scenarios = "generated:0"')
    one_line(lambda: open_run(str(tmp_path / "odd.toml"), out, 0, 1, False), "generated worlds")
    for seed, seeds, word in ((SEED - 1, 2, "held-out"), (2**32 - 1, 2, "4294967296"), (-1, 1, "seed must be")):
        one_line(lambda: open_run(str(tiny), out, seed, seeds, False), word)  # noqa: B023
    (tmp_path / "odd.toml").write_text(f'scenarios = "generated:10,seed={SEED}"')
    one_line(lambda: open_run(str(tmp_path / "odd.toml"), out, 0, 1, False), "held-out")
    assert not out.exists()
    one_line(lambda: open_run(str(tiny), tiny / "run", 0, 1, False), "can't write to", "tiny.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    one_line(lambda: open_run(str(tmp_path / "pipe.toml"), out, 0, 1, False), "not a regular file")
    (tmp_path / "odd.toml").write_text("a = " + "[" * 10**5)
    one_line(lambda: open_run(str(tmp_path / "odd.toml"), out, 0, 1, False), "is no TOML file")
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


@pytest.mark.parametrize(("count", "share", "copies"), [(30, 0.0, 0), (30, 0.9, 270), (1, 0.5, 1)])
def test_the_default_world_is_among_others_as_often_as_wanted(count, share, copies):
    env = make_world(Config(scenarios=f"generated:{count},seed=1", default_share=share)).env
    is_default = (env.trajectories == arena_jax.make("EnterpriseArenaRL-v1").trajectories).all(axis=(1, 2))
    assert (int(is_default.sum()), env.trajectories.shape[0]) == (copies, copies + count)


def test_a_share_of_less_than_one_world_is_refused():
    one_line(lambda: make_world(Config(scenarios="generated:3,seed=1", default_share=0.1)), "default_share 0.1", "more")


def test_the_critic_sees_the_world_that_is_played():
    lanes = 16
    world = make_world(Config(scenarios="generated:20,seed=1", lanes=lanes))
    states, seen, _ = world.reset(jax.random.split(jax.random.key(0), lanes))

    def of_state(states, seen):
        policy_sees = seen[:, : world.observation_size]
        return jax.vmap(lambda state, seen: with_hidden(world.env, state, seen))(states, policy_sees)

    @jax.jit
    def play(states, key):
        def one(states, key):
            passes = jnp.full(lanes, 5, dtype=jnp.int32)
            states, seen, masks, _, ended, _ = world.step(states, passes, jax.random.split(key, lanes))
            return states, (states.world, states.hidden.month, seen, of_state(states, seen), masks, ended)

        return jax.lax.scan(one, states, jax.random.split(key, 60))[1]

    np.testing.assert_array_equal(seen, of_state(states, seen))
    numbers, months, seen, expected, masks, ended = map(np.asarray, play(states, jax.random.key(1)))
    np.testing.assert_allclose(seen, expected, rtol=1e-6)
    assert ended.sum() > lanes and (months[ended] == 0).all() and masks[ended].all()
    new_world = numbers[1:] != numbers[:-1]
    assert new_world[ended[1:]].any() and not new_world[~ended[1:]].any()


def test_a_step_pays_the_change_of_the_discounted_potential_and_counts_months_played():
    world = World(arena_jax.make("EnterpriseArenaRL-v1", initial_cash=1.0, fixed_cost=1e7), 0.9)
    states, _, _ = world.reset(jax.random.key(0)[None])
    phi = lambda states: jax.vmap(lambda state: potential(world.env, state))(states)
    step = jax.jit(world.step)
    after, _, _, reward, ended, _ = step(states, jnp.int32([0]), jax.random.key(1)[None])
    assert not ended
    np.testing.assert_allclose(reward, 0.9 * phi(after) - phi(states), rtol=1e-5)
    _, _, _, reward, ended, came_to = step(after, jnp.int32([5]), jax.random.key(2)[None])
    assert ended, "bankrupt in the first month"
    np.testing.assert_allclose(reward, -phi(after), rtol=1e-5)
    assert (float(came_to["calls"][0]), float(came_to["objective"][0])) == (1.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("disciplined", "gamma"), [(False, 1.0), (True, 1.0), (True, 0.98)])
def test_rewards_of_an_episode_sum_to_the_objective_less_the_potential_at_its_start(disciplined, gamma):
    lanes, steps = 64, 400
    world = make_world(Config(disciplined=disciplined, lanes=lanes, gamma=gamma))

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
            keys = jax.random.split(key_step, lanes)
            stepped, _ = jax.vmap(world.env.step)(states, actions, keys)
            value = jax.vmap(lambda s: objective(world.env.params, s.opening_value, s.hidden))(stepped)
            states, seen, masks, rewards, ended, came_to = world.step(states, actions, keys)
            return (states, masks), (rewards, ended, came_to["objective"], value, seen)

        return first, jax.lax.scan(one, (states, masks), jax.random.split(key, steps))[1]

    first, (rewards, ended, objectives, values, seen) = jax.tree.map(np.asarray, play(world, jax.random.key(2)))
    assert seen.shape[-1] == world.entries and np.isfinite(seen).all()
    np.testing.assert_array_equal(objectives, values)
    assert ended.sum() > lanes
    for lane in range(lanes):
        ends = np.flatnonzero(ended[:, lane])
        for start, end in zip(np.append(-1, ends[:-1]), ends, strict=True):
            discounts = gamma ** np.arange(end - start)
            total = (discounts * rewards[start + 1 : end + 1, lane]).sum()
            expected = discounts[-1] * objectives[end, lane] / REWARD_UNIT - first[lane]
            assert total == pytest.approx(expected, abs=2e-3)


def test_a_run_that_diverges_stops_in_a_line_and_leaves_what_was_written(tiny, tmp_path, monkeypatch):
    out = tmp_path / "run"
    one = open_run(str(tiny), out, 3, 2, False)

    def update(config, world, learner):
        """Finite once; then the weights are not, while the losses still are."""
        weights = jax.tree.map(lambda leaf: jnp.where(learner.updates == 1, jnp.nan, leaf), learner.weights)
        figures = dict.fromkeys(("objective", "survived", "calls", "episodes", "entropy", "value_loss"), jnp.float32(1))
        return dataclasses.replace(learner, weights=weights, updates=learner.updates + 1), figures

    monkeypatch.setattr(training, "update", update)
    one_line(lambda: train(one, 1), "update 2", "seed 3", "not finite")
    assert [row["update"] for row in read_csv(out / "curves.csv", 1, (3, 4))] == [1, 1]
    assert open_run(str(tiny), out, 3, 2, True).updates == 1
    assert not list(out.glob("policy-*"))


def test_a_run_that_is_interrupted_before_its_first_update_has_nothing_to_go_on_from(
    tiny, tmp_path, monkeypatch, capsys
):
    def update(config, world, learner):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "update", update)
    out = tmp_path / "run"
    assert not train(open_run(str(tiny), out, 3, 1, False), 1)
    assert "after update 0; nothing is written" in capsys.readouterr().err
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    ("updates", "seconds", "said"),
    [
        (4, 1.0, "4 updates of 3"),
        (-5, 1.0, "-5 updates of 3"),
        (2, math.nan, "no checkpoint"),
        (2, -1.0, "no checkpoint"),
    ],
)
def test_a_checkpoint_that_can_not_be_is_refused(tiny, tmp_path, updates, seconds, said):
    one = open_run(str(tiny), tmp_path / "run", 3, 1, False)
    learners = dataclasses.replace(one.learners, updates=jnp.int32([updates]))
    header = training._header(one.config, one.seeds)
    write_checkpoint(tmp_path / "run" / "checkpoint.msgpack", header, learners, Spent(seconds, 1.0))
    one_line(lambda: open_run(str(tiny), tmp_path / "run", 3, 1, True), said)


def test_training_says_which_package_it_lacks(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("baselines.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optax", None)
    program = importlib.import_module("baselines.train")
    one_line(lambda: program.command(config="ppo", out=tmp_path / "run"), "training needs optax: pip install")


def test_weights_tell_what_they_took_and_no_path(tiny, tmp_path, monkeypatch, capsys):
    tiny.write_text(TINY + "disciplined = true\n")
    monkeypatch.setattr(training, "update", lambda config, world, learner: pytest.fail("nothing is left to do"))
    one = open_run(str(tiny), tmp_path / "run", 3, 1, False)
    one.learners = dataclasses.replace(one.learners, updates=jnp.int32([3]))
    one.spent = Spent(5.0, 9.0)
    assert train(one, 1)
    spec = f"ppo:weights={tmp_path / 'run' / 'policy-3.msgpack'}"
    assert f"arena-jax evaluate --env-set disciplined=true --policy {spec}" in capsys.readouterr().err
    header = weights_header(spec)
    assert header["name"] == "tiny" and str(tmp_path) not in str(header)
    assert (header["training"]["seconds"], header["training"]["processor_seconds"]) == (5.0, 9.0)


def run(config, out, *options, **others):
    command = [sys.executable, "-m", "baselines.train", "--config", str(config), "--out", str(out), *options]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **others)


@pytest.mark.slow
@pytest.mark.filterwarnings(r"ignore:os.fork\(\) was called:RuntimeWarning")  # what is forked becomes another program
def test_a_run_that_is_interrupted_goes_on_to_the_same_weights(tiny, tmp_path):
    tiny.write_text(TINY.replace("updates = 3", "updates = 30"))
    straight = run(tiny, tmp_path / "straight", "--seeds", "2")
    assert straight.communicate()[1].count("wrote") == 2 and straight.returncode == 0
    # a shell's background job ignores Ctrl-C, and so would its children
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    stopped = run(tiny, tmp_path / "stopped", "--seeds", "2", preexec_fn=heed)
    assert stopped.stderr.readline().startswith("compiling")
    line = stopped.stderr.readline()
    assert line.startswith("update 1/30"), line
    stopped.send_signal(signal.SIGINT)
    rest = stopped.communicate()[1]
    assert stopped.returncode == 130 and "--resume goes on" in rest and "Traceback" not in rest
    assert (tmp_path / "stopped" / "checkpoint.msgpack").exists()
    resumed = run(tiny, tmp_path / "stopped", "--seeds", "2", "--resume")
    assert "update 1/30" not in resumed.communicate()[1] and resumed.returncode == 0
    one, other = (read_csv(tmp_path / name / "curves.csv", 30, (0, 1)) for name in ("straight", "stopped"))
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
    try:
        told = training.communicate(timeout=20 * 60)[1]  # as promised
    finally:
        training.kill()
    assert training.returncode == 0, told
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
