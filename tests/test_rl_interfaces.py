"""The decision level as gymnax, rejax, purejaxrl and Gymnasium use it."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import arena_jax
from arena_jax.decisions.layout import ACTIONS, FIRST_REQUEST, PASS
from arena_jax.envs import gymnasium_env, gymnax_env

ROOT = Path(__file__).parents[1]
ID = "arena_jax.envs.gymnasium_env:EnterpriseArenaRL-v1"
FLOAT = jnp.result_type(float)


# gymnax: five values


def learn(key, env, params, envs, steps, updates, rate):
    """REINFORCE with linear logits, in the shape of the loops of rejax and purejaxrl; mean scores by update."""
    size, actions = env.observation_space(params).shape[0], env.action_space(params).n
    weights = {"slope": jnp.zeros((size, actions)), "bias": jnp.zeros(actions)}
    logits = lambda weights, seen: seen @ weights["slope"] + weights["bias"][None]

    def one_step(carry, key):
        weights, seen, state = carry
        key_action, key_step = jax.random.split(key)
        action = jax.random.categorical(key_action, logits(weights, seen))
        after, state, reward, done, info = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
            jax.random.split(key_step, envs), state, action, params
        )
        return (weights, after, state), (seen, action, reward, done, info["score"])

    def loss(weights, seen, action, gain):
        log_probs = jax.nn.log_softmax(jax.vmap(logits, in_axes=(None, 0))(weights, seen))
        chosen = jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]
        return jnp.mean(0.01 * jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1) - chosen * gain)

    def update(carry, now):
        key, rate = now
        carry, (seen, action, reward, done, score) = jax.lax.scan(one_step, carry, jax.random.split(key, steps))
        back = lambda later, now: (jnp.where(now[1], now[0], 0.99 * later),) * 2
        value = jax.lax.scan(back, jnp.zeros(envs), (reward, done), reverse=True)[1]
        table = jnp.append(seen, jnp.ones((steps, envs, 1)), axis=-1).reshape(steps * envs, -1)
        gain = value - (table @ jnp.linalg.lstsq(table, value.ravel())[0]).reshape(steps, envs)  # a linear baseline
        gain = gain / (gain.std() + 1e-6)
        slopes = jax.grad(loss)(carry[0], seen, action, gain)
        weights = jax.tree.map(lambda weight, slope: weight - rate * slope, carry[0], slopes)
        return (weights, *carry[1:]), jnp.sum(score) / jnp.sum(done, dtype=score.dtype)

    key_start, key = jax.random.split(key)
    seen, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key_start, envs), params)
    rates = jnp.linspace(rate, 0.0, updates)
    return jax.lax.scan(update, (weights, seen, state), (jax.random.split(key, updates), rates))[1]


@pytest.mark.skipif(jnp.float64 == FLOAT, reason="a learner of float32")
def test_a_five_value_loop_learns():
    env, params = gymnax_env.make(tool_budget=2)
    run = jax.jit(learn, static_argnames=("env", "envs", "steps", "updates"))
    play = lambda rate: np.asarray(run(jax.random.key(0), env, params, envs=128, steps=160, updates=60, rate=rate))
    untrained, learned = play(0.0), play(0.7)
    assert learned[-5:].mean() > 1.5 * untrained.mean(), f"mean score by update: {np.round(learned / 1e6)}"


# gymnax: both forms


@functools.cache
def stepped(values, steps=80, envs=16):
    """Passing months through the end of episodes: what each step returned, leaves [steps, envs]."""
    env, params = gymnax_env.make(values, tool_budget=2)

    @jax.jit
    def run(params, key):
        def one(carry, key):
            seen, state = carry
            action = jnp.where(seen[:, 0] < 0.01, 0, PASS)  # a tool call or two in month 0
            seen, state, *rest = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
                jax.random.split(key, envs), state, action, params
            )
            return (seen, state), (seen, state.hidden.month, *rest)

        start = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, envs), params)
        return jax.lax.scan(one, start, jax.random.split(key, steps))[1]

    return jax.tree.map(np.asarray, run(params, jax.random.key(1)))


@pytest.mark.slow
def test_gymnax_restarts_an_ended_episode():
    seen, month, reward, done, info = stepped(5)
    assert (done.sum(axis=0) == 2).all(), "never raised: two episodes of about 33 months in 80 steps"
    begun, ended = seen[done], info["final_observation"][done]
    assert (begun[:, :2] == np.float32([0, 2 / 20])).all() and (ended[:, 0] > 30 / 132).all()
    np.testing.assert_array_equal(seen[~done], info["final_observation"][~done])
    assert info["action_mask"][done].all() and (info["discount"] == ~done).all()
    assert (reward == 0).all() and (info["score"] == 0).all()  # all bankrupt
    after = np.roll(done, 1, axis=0)
    after[0] = False
    np.testing.assert_array_equal(month[after], 0)  # the call of month 0 leaves it open


@pytest.mark.slow
def test_both_step_forms_hold_the_same():
    (*first, done, info), (*second, terminated, truncated, other) = stepped(5), stepped(6)
    jax.tree.map(np.testing.assert_array_equal, (first, done, info), (second, terminated, other))
    assert not truncated.any()


def test_gymnax_forms_and_spaces():
    env, params = gymnax_env.make(6, disciplined=True)
    assert env.action_space(params).n == env.num_actions == len(ACTIONS) == 22
    assert env.observation_space(params).shape == (len(params.layout),)
    assert env.default_params is params and int(params.max_steps_in_episode) == 132 * 21
    with pytest.raises(arena_jax.ArenaError, match="values of a step must be 5 or 6, got 4"):
        gymnax_env.make(4)


# Gymnasium


def test_gymnasium_checks_the_environment():
    env = gymnasium.make(ID, tool_budget=1)
    check_env(env.unwrapped, skip_render_check=True)
    seen, info = env.reset(seed=5)
    assert seen.dtype == np.float32 and seen.shape == env.observation_space.shape
    months, terminated = -1, False
    while not terminated:
        seen, reward, terminated, truncated, info = env.step(PASS)
        assert type(reward) is float and type(terminated) is bool and truncated is False
        months += 1
    assert info["record"]["months_survived"] == months > 30 and info["record"]["survived"] is False
    assert info["action_mask"].tolist() == [i == PASS for i in range(22)]


@functools.cache
def vector(num_envs=8):
    return gymnasium.make_vec(ID, num_envs=num_envs, vectorization_mode="vector_entry_point", tool_budget=1)


def played(envs, seed):
    envs.reset(seed=seed)
    return [envs.step(np.full(envs.num_envs, PASS)) for _ in range(75)]


def test_gymnasium_vector_resets_in_the_same_step():
    envs = vector()
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    seen, info = envs.reset(seed=1)
    assert seen in envs.observation_space and info["action_mask"].shape == (8, 22)
    months = np.zeros(8, dtype=int)
    cash = []
    for seen, reward, terminated, truncated, info in played(envs, 1):
        assert all(type(part) is np.ndarray for part in (seen, reward, terminated, truncated, info["action_mask"]))
        np.testing.assert_array_equal(info.get("_final_obs", np.zeros(8, dtype=bool)), terminated)
        for index in np.flatnonzero(terminated):
            last, record = info["final_obs"][index], info["final_info"]["record"]
            cash.append(record["cash"][index])
            assert record["months_survived"][index] == round(132 * float(last[0])) == months[index]
            assert seen[index][0] == 0 and info["final_info"]["action_mask"][index].sum() == 1
        months = np.where(terminated, 0, months + 1)
    assert len(cash) == 16 == len(set(cash)), "no two episodes are alike"
    assert info["action_mask"][:, 0].all()


def test_gymnasium_vector_is_seeded():
    first, again, other = (played(vector(), seed) for seed in (1, 1, 2))
    ends = [np.argmax(np.array([step[2] for step in steps]), axis=0) for steps in (first, again, other)]
    np.testing.assert_array_equal(ends[0], ends[1])
    assert (ends[0] != ends[2]).any() and len(set(ends[0])) > 1


@pytest.mark.parametrize("number", [2**32 + FIRST_REQUEST, -(2**32) + FIRST_REQUEST, np.uint64(2**63), -1, 22])
def test_what_is_no_action_lets_the_month_pass_in_gymnasium(number):
    one, envs = gymnasium.make(ID, tool_budget=1).unwrapped, vector()
    for env, action in ((one, number), (envs, np.full(8, number))):
        (first, _), taken = env.reset(seed=1), env.step(action)[0]
        (again, _), passed = env.reset(seed=1), env.step(np.full_like(action, PASS))[0]
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(taken, passed)


def test_gymnasium_says_what_is_wrong():
    envs = vector()
    envs.reset(seed=1)
    with pytest.raises(arena_jax.ArenaError, match="actions must be 8 integers"):
        envs.step(np.zeros(7, dtype=int))
    one = gymnasium_env.GymnasiumArena(tool_budget=1)
    one.reset(seed=1)
    with pytest.raises(arena_jax.ArenaError, match=r"action must be one integer, got float64\[\]"):
        one.step(1.0)
    with pytest.raises(arena_jax.ArenaError, match="num_envs must be a whole number from 1"):
        gymnasium_env.GymnasiumArenaVector(0)
    with pytest.raises(arena_jax.ArenaError, match="call reset before step"):
        gymnasium_env.GymnasiumArena().step(0)


# Packaging


def test_a_missing_extra_is_one_line_and_costs_the_rest_nothing():
    code = (
        "import sys; sys.modules['gymnax'] = sys.modules['gymnasium'] = None\n"
        "import arena_jax\n"
        "for name in ('gymnax_env', 'gymnasium_env'):\n"
        "    try: __import__(f'arena_jax.envs.{name}')\n"
        "    except arena_jax.ArenaError as error: print(error)\n"
        "print(sorted(m for m in sys.modules if m in ('flax', 'optax', 'gymnax.environments')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *lines, loaded = done.stdout.strip().split("\n")
    assert len(lines) == 2 and all("pip install 'arena_jax[rl]'" in line for line in lines)
    assert loaded == "[]"


def test_only_the_public_face_needs_the_interfaces():
    package = ROOT / "arena_jax"
    needing = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if path.parent.name != "envs"
        and re.search(r"^\s*(from|import) arena_jax\.envs\b", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    assert needing == {"api.py"}


REJAX = """
import jax, numpy as np, rejax
from arena_jax.envs import gymnax_env
env, params = gymnax_env.make(tool_budget=2)
ppo = rejax.PPO.create(
    env=env, env_params=params, num_envs=64, num_steps=128, num_epochs=4, num_minibatches=8,
    learning_rate=1e-3, total_timesteps=400_000, eval_freq=200_000,
)
_, (lengths, returns) = jax.jit(ppo.train)(jax.random.key(0))
print(*np.asarray(returns).mean(axis=1))
"""


@pytest.mark.slow
def test_rejax_unmodified_learns(tmp_path):
    """rejax as it is published, in an environment of its own; needs a registry."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    run = lambda *command: subprocess.run(
        [str(part) for part in command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert run(sys.executable, "-m", "venv", "venv").returncode == 0
    python = tmp_path / "venv" / "bin" / "python"
    installed = run(python, "-m", "pip", "install", "--quiet", "rejax", "six", ROOT)
    assert installed.returncode == 0, installed.stderr
    done = run(python, "-c", REJAX)
    assert done.returncode == 0, done.stderr
    before, *_, after = map(float, done.stdout.split())
    assert after > 1.5 * before, done.stdout
