"""Policies by name (`greedy-equity:amount=20e6`) or by path (`my_pkg.policies:make:k=v`)."""

from arena_jax.policies.heuristics import Heuristic
from arena_jax.policies.registry import POLICIES, TRAINED, make_policies, make_policy, source_digest

__all__ = ["POLICIES", "TRAINED", "Heuristic", "make_policies", "make_policy", "source_digest"]
