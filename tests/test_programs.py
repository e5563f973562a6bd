"""Programs are never mixed up, though JAX takes policies of different classes for equal in structure."""

import importlib
import inspect
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arena_jax.batch_play import _kind
from arena_jax.policies.heuristics import policy_class
from arena_jax.programs import Program

ROOT = Path(__file__).parents[1]
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


def test_no_policy_skips_its_trial_for_another_classes(env):
    one, other = numbered(0), numbered(1)
    assert _kind(env, one) != _kind(env, other)
    assert _kind(env, one) == _kind(env, type(one)(jnp.float32(2)))


def modules_that_compile():
    """Names of the modules in which `jax.jit` or a `Program` is."""
    for package in ("arena_jax", "baselines", "benchmarks"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if any(word in path.read_text(encoding="utf-8") for word in ("jax.jit", "Program(")):
                yield ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("name", list(modules_that_compile()))
def test_whatever_takes_policies_is_such_a_program(name):
    if name.startswith("benchmarks.peers."):
        pytest.importorskip("numba")
    for compiled in vars(importlib.import_module(name)).values():
        if isinstance(compiled, jax.stages.Wrapped):
            assert not {"policy", "policies"} & inspect.signature(compiled).parameters.keys()
