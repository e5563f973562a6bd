"""Programs are never mixed up, though JAX takes policies of different classes for equal in structure."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import arena_jax
import arena_jax.batch_play
import arena_jax.envs.play
from arena_jax.analysis import sensitivity
from arena_jax.policies.heuristics import policy_class
from arena_jax.programs import Program

CLASSES = 150  # so many that hashes meet: of 300, `jax.jit` alone gave 36 to 63 another's program


def numbered(number):
    @policy_class
    class Numbered:
        amount: Any

        def number(self):
            return jnp.int32(number)

    return Numbered(jnp.float32(0))


def wrong(program, policies):
    """How many policies are given what another's program computes."""
    return sum(int(program(policy)) != number for number, policy in enumerate(policies))


def test_a_program_is_for_the_classes_it_was_compiled_for():
    policies = [numbered(number) for number in range(CLASSES)]
    assert wrong(Program(lambda policy: policy.number()), policies) == 0
    assert wrong(Program(lambda policies: policies[1]["one"].number()), [(0.0, {"one": p}) for p in policies]) == 0


def test_a_program_is_compiled_once_for_equal_classes():
    traces = []

    def double(policy, scale, name):
        traces.append(name)
        return policy.amount * scale

    program, policy = Program(double, ("name",)), numbered(0)
    for amount in (1.0, 2.0):
        np.testing.assert_array_equal(program(type(policy)(jnp.float32(amount)), jnp.float32(3), name="a"), 3 * amount)
    program(numbered(1), jnp.float32(3), name="a")
    program(policy, jnp.float32(3), name="b")
    assert traces == ["a", "a", "b"]


@pytest.mark.parametrize(
    "program",
    [
        arena_jax.batch_play.play,
        arena_jax.batch_play.play_batch,
        arena_jax.envs.play.play,
        sensitivity._play_sweep,
    ],
)
def test_whatever_plays_policies_is_such_a_program(program):
    assert isinstance(program, Program)
