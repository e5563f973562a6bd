"""Trained policies: the weights that ship, and one line for files that are damaged, foreign or of another version."""

import dataclasses
import json
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.serialization import msgpack_restore, msgpack_serialize
from refusals import one_line

import arena_jax
from arena_jax.cli import main
from arena_jax.decisions.layout import ACTIONS, layout_digest, observation_table
from arena_jax.errors import ArenaError
from arena_jax.policies import TRAINED, make_policy, source_digest
from arena_jax.policies.network import Sizes, new_actor, new_normaliser
from arena_jax.policies.registry import trained_in
from arena_jax.policies.trained import LARGEST, Trained, load_policy, save_policy

KEY = jax.random.key(11)
WEIGHTS = {name: Path(arena_jax.__file__).parent / "policies" / "weights" / f"{name}.msgpack" for name in TRAINED}


def a_policy(kind="feed-forward", shows_terms=False, pending=1):
    sizes = Sizes(kind, (8, 8), len(observation_table(pending, shows_terms)), len(ACTIONS))
    normaliser = new_normaliser(sizes.observation).updated(jax.random.normal(KEY, (64, sizes.observation)))
    return Trained(new_actor(sizes, KEY), normaliser, sizes, layout_digest(pending, shows_terms), shows_terms)


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "mine.msgpack"
    save_policy(path, a_policy(), {"seed": 3})
    return path


@pytest.mark.parametrize("kind", ["feed-forward", "gru"])
def test_weights_come_back_as_they_were_written(tmp_path, kind):
    policy = a_policy(kind, shows_terms=True, pending=2)
    save_policy(tmp_path / "mine.msgpack", policy, {"seed": 3})
    again = make_policy(f"ppo:weights={tmp_path / 'mine.msgpack'}")
    assert jax.tree.structure(again) == jax.tree.structure(policy)
    jax.tree.map(np.testing.assert_array_equal, again, policy)
    assert make_policy("ppo", weights=tmp_path / "mine.msgpack").sizes == policy.sizes


def test_a_masked_decision_is_never_taken():
    policy = a_policy()
    mask = jnp.arange(len(ACTIONS)) == 5
    seen = jnp.full(policy.sizes.observation, 1e3, dtype=jnp.float32)
    decide = jax.vmap(lambda key: policy.decide(policy.init(key), seen, mask, key)[1])
    assert (decide(jax.random.split(KEY, 50)) == 5).all()


def test_a_gru_remembers_and_a_feed_forward_network_does_not():
    for kind, remembers in (("feed-forward", False), ("gru", True)):
        policy = a_policy(kind)
        start = policy.init(KEY)
        seen = jnp.ones(policy.sizes.observation, dtype=jnp.float32)
        after, _ = policy.decide(start, seen, jnp.ones(len(ACTIONS), dtype=bool), KEY)
        assert bool(jax.tree.leaves(after) and (after != start).any()) == remembers


def changed(path, **changes):
    """The file with some of its header, or its arrays, changed by a function."""
    found = msgpack_restore(path.read_bytes())
    if change := changes.pop("arrays", None):
        change(found["arrays"])
    found["header"] = json.dumps(json.loads(found["header"]) | changes)
    path.write_bytes(msgpack_serialize(found))
    return path


def first_kernel(change):
    name = "[0]['Dense_0']['kernel']"
    return lambda arrays: arrays.__setitem__(name, change(np.array(arrays[name])))


def holding(number):
    """A change of an array: one of its numbers."""

    def change(array):
        array.flat[0] = number
        return array

    return change


def only(name):
    """A change of the arrays: to one, of this name."""
    return lambda arrays: (arrays.clear(), arrays.update({name: np.ones(2)}))


def rewritten(**parts):
    """A file of these parts: of the format and with an empty header and no arrays unless they say otherwise."""
    whole = {"format": 1, "header": "{}", "arrays": {}} | parts
    return lambda path: path.write_bytes(msgpack_serialize(whole))


def a_pipe(path):
    path.unlink()
    os.mkfifo(path)


def a_device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def too_large(path):
    with path.open("r+b") as file:
        file.truncate(LARGEST + 1)


def of_normaliser(name, number):
    where = f"[1].{name}"
    return lambda path: changed(
        path, arrays=lambda arrays: arrays.__setitem__(where, holding(number)(np.array(arrays[where])))
    )


SIZES = {"kind": "feed-forward", "hidden": [8, 8], "observation": 90, "actions": 22}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), ("damaged",)),
        (lambda path: path.write_bytes(b""), ("damaged",)),
        (lambda path: path.write_bytes(b"\x00" * 100), ("something else",)),
        (lambda path: path.write_bytes(msgpack_serialize({"params": {}})), ("something else",)),
        (rewritten(format=2), ("format 2",)),
        (rewritten(format=np.ones(2)), ("format an array float64[2]",)),
        (rewritten(format="x\n" * 10_000), ("format 'x",)),
        (rewritten(header="{"), ("header",)),
        (rewritten(header="[" * 100_000), ("header",)),
        (rewritten(header=7), ("header",)),
        (a_pipe, ("not a regular file",)),
        (a_device, ("not a regular file",)),
        (too_large, ("larger than",)),
        (lambda path: path.unlink(), ("can't read", "No such file")),
        (lambda path: changed(path, environment="CartPole-v1"), ("EnterpriseArenaRL-v1",)),
        (lambda path: changed(path, layout_digest="0" * 64), ("another version of the observation table",)),
        (lambda path: changed(path, layout_digest=[]), ("another version of the observation table",)),
        (lambda path: changed(path, shows_terms=True), ("another version of the observation table",)),
        (lambda path: changed(path, sizes=None), ("no sizes",)),
        (lambda path: changed(path, sizes=SIZES | {"kind": "lstm"}), ("lstm",)),
        (lambda path: changed(path, sizes=SIZES | {"hidden": [10**9]}), ("1000000000",)),
        (lambda path: changed(path, sizes=SIZES | {"hidden": [8] * 10**6}), ("1 to 8 hidden layers",)),
        (lambda path: changed(path, sizes=SIZES | {"hidden": []}), ("1 to 8 hidden layers",)),
        (lambda path: changed(path, sizes=SIZES | {"hidden": [True]}), ("units of a layer",)),
        (lambda path: changed(path, sizes=SIZES | {"observation": 91}), ("sizes",)),
        (lambda path: changed(path, sizes=SIZES | {"hidden": [8, 9]}), ("float32[8]", "float32[9]")),
        (lambda path: changed(path, sizes=SIZES | {"kind": "gru"}), ("another network",)),
        (lambda path: changed(path, arrays=first_kernel(lambda a: a.astype(np.float64))), ("float64",)),
        (lambda path: changed(path, arrays=first_kernel(holding(np.inf))), ("finite",)),
        (lambda path: changed(path, arrays=first_kernel(holding(3e38))), ("weights beyond 1e+06",)),
        (of_normaliser("mean", 3e38), ("not of observations",)),
        (of_normaliser("variance", -1.0), ("not of observations",)),
        (of_normaliser("count", -1.0), ("not of observations",)),
        (lambda path: changed(path, arrays=lambda arrays: arrays.update({"x\n" * 10_000: np.ones(2)})), ("unknown",)),
        (lambda path: changed(path, arrays=only(7)), ("arrays can't be read",)),
        (lambda path: changed(path, arrays=lambda arrays: arrays.clear()), ("lacks",)),
    ],
)
def test_a_bad_weights_file_is_one_line(weights, spoil, words):
    spoil(weights)
    with pytest.raises(ArenaError) as refused:
        load_policy(weights)
    text = str(refused.value)
    assert "\n" not in text and len(text) < len(str(weights)) + 300
    assert all(word in text for word in (str(weights), *words)), text


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("ppo:weight=mine.msgpack", ("option of ppo", "did you mean weights")),
        ("ppo:weights=7", ("must be the path",)),
        ("ppo:weights=none.msgpack", ("can't read", "none.msgpack")),
        ("ppoo", ("unknown policy", "did you mean ppo")),
    ],
)
def test_a_bad_spec_is_one_line(spec, words):
    one_line(lambda: make_policy(spec), *words)


def test_without_flax_it_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "arena_jax.policies.trained", None)
    with pytest.raises(ArenaError, match=r"needs flax.*pip install"):
        make_policy("ppo")


def test_runs_name_the_weights_that_they_played(weights):
    digest = source_digest(f"ppo:weights={weights}")
    assert len(digest) == 64 and digest != source_digest("ppo")
    save_policy(weights, dataclasses.replace(a_policy(), actor=new_actor(a_policy().sizes, jax.random.key(1))), {})
    assert source_digest(f"ppo:weights={weights}") != digest


def test_weights_tell_what_they_were_trained_in(weights):
    assert {name: trained_in(name) for name in ("ppo", "ppo-terms", "never-raise")} == {
        "ppo": "EnterpriseArena-v1",
        "ppo-terms": "EnterpriseArena-Disciplined-v1",
        "never-raise": None,
    }
    for variant in ({}, {"variant": "CartPole-v1"}, {"variant": [7]}):
        changed(weights, **variant)
        assert trained_in(f"ppo:weights={weights}") is None


@pytest.mark.parametrize(
    "verb",
    [
        ["evaluate", "--policy", "never-raise", "--policy"],
        ["compare", "never-raise"],
        ["sensitivity", "--policy"],
        ["ablate", "--policy"],
    ],
)
def test_a_policy_trained_for_another_variant_is_told_of(monkeypatch, capsys, verb):
    def told(policy, *options):
        # nothing is played: the number of episodes is refused after the note
        monkeypatch.setattr(sys, "argv", ["arena-jax", *verb, policy, "--episodes", "0", *options])
        with pytest.raises(SystemExit):
            main()
        *notes, _ = capsys.readouterr().err.splitlines()
        return notes

    assert told("ppo") == told("ppo-disciplined", "--env-set", "disciplined=true") == []
    note = "note: ppo-disciplined was trained in EnterpriseArena-Disciplined-v1, and plays EnterpriseArena-v1"
    assert told("ppo-disciplined") == [note]


def test_weights_of_another_observation_are_not_played(weights):
    with pytest.raises(ArenaError, match="another observation"):
        arena_jax.rollout(arena_jax.make(max_pending=2), load_policy(weights), KEY, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["feed-forward", "gru"])
def test_a_network_plays_the_same_episodes_in_any_batch(env, kind):
    policy = a_policy(kind)
    whole = arena_jax.rollout(env, policy, KEY, 320)
    parts = arena_jax.rollout(env, policy, KEY, 320, batch=64)
    jax.tree.map(np.testing.assert_array_equal, whole, parts)


@pytest.mark.parametrize("name", TRAINED)
def test_what_ships_says_where_it_comes_from(name):
    policy = make_policy(name)
    header = json.loads(msgpack_restore(WEIGHTS[name].read_bytes())["header"])
    assert header["name"] == name
    assert policy.sizes.kind == header["config"]["kind"]
    assert (header["variant"] == "EnterpriseArena-v1") == (name in ("ppo", "gru"))
    assert WEIGHTS[name].stat().st_size < 200_000
