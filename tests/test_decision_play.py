"""Policies that take one decision at a time play the same episodes wherever policies play, or are refused in a line."""

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arena_jax
from arena_jax.analysis.compare import play_units
from arena_jax.analysis.sensitivity import grid_cells, play_environments, play_own, play_terms
from arena_jax.cli.agent import scripted_command
from arena_jax.decisions.layout import ACTIONS, PASS
from arena_jax.evaluation import evaluate
from arena_jax.llm.replay import replay_policy
from arena_jax.llm.runs import NOT_BEGUN, new_run, played_episodes
from arena_jax.policies.heuristics import policy_class

KEY = jax.random.key(0)
EPISODES = 128
MONTHLY = "greedy-equity:amount=20e6"
SPEC = f"{__name__}:Ask"


@policy_class
class Ask:
    """Asks for $20M of equity whenever it may."""

    action: Any = ACTIONS.index("equity $20M")

    def init(self, key):
        return ()

    def decide(self, carry, observation, action_mask, key):
        return carry, jnp.where(action_mask[self.action], jnp.int32(self.action), PASS)


class Sees:
    """A policy for the observation with lambda and m, or for another table."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    init, decide = Ask.init, lambda self, carry, observation, action_mask, key: (carry, jnp.int32(PASS))


def with_terms():
    return Sees(shows_terms=True)


@pytest.fixture(scope="module")
def disciplined():
    return arena_jax.make("EnterpriseArena-Disciplined-v1")


def same(one, other):
    for name, value in vars(one).items():
        np.testing.assert_allclose(value, vars(other)[name], rtol=1e-4, err_msg=name)


def test_it_plays_the_episodes_of_the_same_policy_by_months(disciplined):
    monthly = arena_jax.rollout(disciplined, arena_jax.make_policy(MONTHLY), KEY, EPISODES)
    record = arena_jax.rollout(disciplined, arena_jax.make_policy(SPEC), KEY, EPISODES)
    same(record, monthly)
    later = arena_jax.rollout(disciplined, Ask(), KEY, 40, first=70, batch=64, pad_to=EPISODES)
    same(later, jax.tree.map(lambda leaf: leaf[70:110], record))


@pytest.mark.slow
def test_programs_that_take_policies_take_it(disciplined, tmp_path):
    small = {"episodes": 64, "scenarios": "generated:2", "seed": 1}
    found = evaluate(disciplined, [SPEC, MONTHLY], out=tmp_path / "run", **small)
    again = evaluate(disciplined, [SPEC, MONTHLY], out=tmp_path / "run", **small)
    assert found == again
    for metric, spread in found[SPEC].items():
        assert spread.mean == pytest.approx(found[MONTHLY][metric].mean, rel=1e-4, nan_ok=True), metric
    _, units = play_units(disciplined, [SPEC, MONTHLY], episodes=64)
    np.testing.assert_allclose(units[SPEC]["score"], units[MONTHLY]["score"], rtol=1e-4)
    values = {"noise": np.array([0.0, 2.0])}
    cells = [
        grid_cells(values, play_own(spec, episodes=64), play_environments(spec, values, episodes=64))
        for spec in (SPEC, MONTHLY)
    ]
    for one, other in zip(*cells, strict=True):
        assert one.metrics["score"].mean == pytest.approx(other.metrics["score"].mean, rel=1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda env, out: arena_jax.rollout(env, Ask(), KEY, 1, record=["cash"]), "recorded month by month, and Ask"),
        (lambda env, out: evaluate(env, [SPEC], episodes=1, record=["cash"], out=out), "and Ask takes one decision"),
        (lambda env, out: replay_policy(env, SPEC, 0, 0), "Ask takes one decision at a time; here only"),
        (lambda env, out: play_terms(env, [f"{__name__}:with_terms"], episodes=1), "answers to lambda and m"),
        (lambda env, out: arena_jax.rollout(env, Sees(layout_digest="0"), KEY, 1), "another observation"),
        (lambda env, out: arena_jax.rollout(env, Sees(decide=lambda *_: ((), 1.5)), KEY, 1), "action must be"),
        (lambda env, out: arena_jax.rollout(env, Sees(decide=lambda *_: (1, 2)), KEY, 1), "carry must keep"),
        (lambda env, out: arena_jax.rollout(env, Sees(decide=lambda *_: 3), KEY, 1), "decide returns (carry, action)"),
        (lambda env, out: arena_jax.rollout(env, Sees(decide=lambda *_: 1 / 0), KEY, 1), "decide failed with ZeroDiv"),
        (lambda env, out: arena_jax.rollout(env, Sees(init=None), KEY, 1), "init, decide); Sees has no method init"),
    ],
)  # fmt: skip
def test_what_it_can_not_do_is_one_line(env, tmp_path, call, words):
    with pytest.raises(arena_jax.ArenaError, match=re.escape(words)) as refused:
        call(env, tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_refused_policy_begins_no_episode(tmp_path):
    new_run(tmp_path / "run", [1])
    with pytest.raises(arena_jax.ArenaError, match="one decision at a time"):
        scripted_command(tmp_path / "run", SPEC)
    assert played_episodes(tmp_path / "run")[0].status == NOT_BEGUN


def test_terms_are_in_the_observation_of_a_policy_that_wants_them(env):
    seen = []

    def decide(carry, observation, action_mask, key):
        seen.append(observation.shape)
        return carry, jnp.int32(PASS)

    for shows_terms in (False, True):
        arena_jax.rollout(dataclasses.replace(env), Sees(shows_terms=shows_terms, decide=decide), KEY, 1)
    assert {shape[0] for shape in seen} == {90, 92}
