"""A batch is spread over the local devices of an accelerator; how many they are changes no bit."""

import os
import subprocess
import sys

PROGRAM = """
import jax
import numpy as np

import arena_jax
from arena_jax import batch_play
from arena_jax.analysis import sensitivity
from arena_jax.analysis.sensitivity import play_environments

used = []
play_batch = batch_play.play_batch

def watched(*args, **options):
    found = play_batch(*args, **options)
    used.append(len(found[0].score.sharding.device_set))
    return found

def played(env, key):
    # neither the episodes nor the batch are whole vectors on each device
    record, months = arena_jax.rollout(
        env, arena_jax.make_policy("cash-threshold"), key, 700, batch=300, first=5, record=["cash"]
    )
    return [*vars(record).values(), *months.values()]

batch_play.play_batch = watched
def swept():
    # two environments; the episodes are no multiple of the devices
    values = {"noise": np.array([0.5, 2.0])}
    chunks = play_environments("greedy-equity", values, episodes=250, batch=600)
    return [found for _, metrics in chunks for found in metrics.values()]

def trained(key):
    return [*vars(arena_jax.rollout(arena_jax.make(), arena_jax.make_policy("ppo"), key, 70)).values()]

env, key = arena_jax.make(), jax.random.key(3)
alone = played(env, key)
grid = [*swept(), *trained(key)]
batch_play._SPREAD = ("cpu",)  # four devices stand for as many accelerators
spread = played(env, key)
play_sweep, shards = sensitivity._play_sweep, []

def watched_sweep(envs, policy, key, indices, **options):
    shards.append(len(indices.sharding.device_set))
    return play_sweep(envs, policy, key, indices, **options)

sensitivity._play_sweep = watched_sweep
several = [*swept(), *trained(key)]
assert shards == [4]
for mine, theirs in zip([*alone, *grid], [*spread, *several], strict=True):
    np.testing.assert_array_equal(mine, theirs)
# who says where to play has it so
placed = jax.device_put(key, jax.devices()[1])
assert batch_play.batch_sharding((env, key)) and not batch_play.batch_sharding((env, placed))
with jax.default_device(jax.devices()[2]):
    assert not batch_play.batch_sharding((env, key))
print(used)
"""


def test_four_devices_play_the_episodes_of_one(tmp_path):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # 700 episodes in batches of 320 lanes on one device, and of 512 on four; a trained policy's in one
    assert done.stdout.split("\n")[0] == str([1] * 3 + [1] + [4] * 2 + [4])
