"""Policies that were trained: networks that take one decision at a time, from weights that ship or from a file."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.decisions.layout import ACTIONS, LIMIT, NAME, layout_digest, observation_table
from arena_jax.errors import ArenaError
from arena_jax.policies import categorical
from arena_jax.policies.network import Normaliser, Sizes, act, new_actor, new_normaliser, start_memory
from arena_jax.policies.weights import fill, read_arrays, write_arrays

WHAT = "weights file"
LARGEST = 2**30  # bytes of one: more than the largest network takes
_MAX_WEIGHT = 1e6  # either way; far above any that training finds, and no sum of them overflows


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["actor", "normaliser"],
    meta_fields=["sizes", "layout_digest", "shows_terms"],
)
@dataclass(frozen=True)
class Trained:
    """A decision drawn from a network's distribution, as in training.

    The most probable one would be another policy: where nothing depends on the decision, it may call a tool for ever.
    Weights are leaves, so that all policies of one size share a compilation.
    """

    actor: Any
    normaliser: Normaliser
    sizes: Sizes
    layout_digest: str
    shows_terms: bool

    def init(self, key: jax.Array) -> Any:
        return start_memory(self.sizes)

    def decide(
        self, carry: Any, observation: jax.Array, action_mask: jax.Array, key: jax.Array
    ) -> tuple[Any, jax.Array]:
        carry, logits = act(self.sizes, self.actor, carry, self.normaliser(observation))
        return carry, categorical.sample(key, logits, action_mask)


def save_policy(path: Path, policy: Trained, about: dict[str, Any]) -> None:
    """Write a policy's weights; about: how they came about (variant, configuration, seed, versions), plain data."""
    header = {
        "kind": "policy",
        "environment": NAME,
        "sizes": dataclasses.asdict(policy.sizes),
        "layout_digest": policy.layout_digest,
        "shows_terms": policy.shows_terms,
    }
    write_arrays(path, header | about, (policy.actor, policy.normaliser))


def load_policy(path: Path) -> Trained:
    """A policy from its weights; raises `ArenaError` for what is damaged, foreign, or of another observation."""
    header, arrays = read_arrays(path, WHAT, LARGEST)
    sizes, shows_terms = _sizes(path, header), header.get("shows_terms")
    if header.get("kind") != "policy" or header.get("environment") != NAME or not isinstance(shows_terms, bool):
        raise ArenaError(f"{WHAT} {path} is not of a policy for {NAME}")
    # a policy knows how many requests may be open from its observation alone
    digests = {layout_digest(pending, shows_terms): pending for pending in range(1, 7)}
    digest: Any = header.get("layout_digest")
    pending = digests.get(digest) if isinstance(digest, str) else None
    if pending is None:
        raise ArenaError(f"{WHAT} {path} was trained on another version of the observation table or of the actions")
    if (sizes.observation, sizes.actions) != (len(observation_table(pending, shows_terms)), len(ACTIONS)):
        raise ArenaError(f"{WHAT} {path} is damaged: its sizes are not those of its observation table")
    template = jax.eval_shape(lambda: (new_actor(sizes, jax.random.key(0)), new_normaliser(sizes.observation)))
    actor, normaliser = fill(path, WHAT, template, arrays)
    _check_numbers(path, actor, normaliser)
    return jax.tree.map(jnp.asarray, Trained(actor, normaliser, sizes, digest, shows_terms))


def _sizes(path: Path, header: dict[str, Any]) -> Sizes:
    found = header.get("sizes")
    try:
        return Sizes(found["kind"], tuple(found["hidden"]), found["observation"], found["actions"])  # type: ignore[index]
    except (TypeError, KeyError):
        raise ArenaError(f"{WHAT} {path} is damaged: no sizes of a network") from None
    except ArenaError as error:
        raise ArenaError(f"{WHAT} {path} is damaged: {error}") from None


def _check_numbers(path: Path, actor: Any, normaliser: Normaliser) -> None:
    """Refuse numbers that no training leaves and that would make a policy choose among what is not a number."""
    if any(np.abs(leaf).max() > _MAX_WEIGHT for leaf in jax.tree.leaves(actor)):
        raise ArenaError(f"{WHAT} {path} is damaged: weights beyond {_MAX_WEIGHT:g}")
    mean, variance, count = normaliser.mean, normaliser.variance, normaliser.count
    if np.abs(mean).max() > LIMIT or variance.min() < 0.0 or variance.max() > LIMIT**2 or count < 0.0:
        raise ArenaError(f"{WHAT} {path} is damaged: its means and variances are not of observations")
