"""Any policy through a session: what an agent's adapter does, with a policy in the agent's place.

The policy's keys are those that batch play gives it in the same episode of the session's seed, so the same seed gives
the same decisions and the same world; its observation is what the session's tools have shown.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from arena_jax.checks import check_monthly
from arena_jax.draws import POLICY_STREAM
from arena_jax.errors import ArenaError, is_number
from arena_jax.llm.runs import open_episode, run_seed
from arena_jax.llm.session import ArenaSession
from arena_jax.policies import make_policy
from arena_jax.structs import INSTRUMENT_NAMES, MONTH_TAKEN, NO_REQUEST, TOOLS, Action, Assumptions, Observation


def play_scripted(directory: Path, episode: int, policy: str, patience: float = 0.0) -> None:
    """Play an episode of a run with the policy of a spec; patience: see `open_episode`."""
    with open_episode(directory, episode, agent="scripted", model=policy, patience=patience) as session:
        play_policy(session, make_policy(policy), run_seed(directory, episode))


def play_policy(session: ArenaSession, policy: Any, seed: int, index: int = 0) -> None:
    """Play a session to its end, from its start or from where it was interrupted.

    seed, index: the session's own, for the policy's luck. A request that the session refuses (an amount that is not
    allowed) becomes a pass. Raises `ArenaError` if the session has calls that this policy does not decide on.
    """
    check_monthly(type(policy).__name__, policy)
    if session.calls_made == 0:
        _Player(session, policy, seed, index).play()
        return
    # a policy remembers: it decides again from the start, in memory, and what the journal lacks is called
    player = _Player(ArenaSession(session.world, seed, index=index), policy, seed, index)
    player.play()
    decided = player.session.made
    for i, (name, arguments) in enumerate(session.made):
        if i >= len(decided) or not _is_same_call(decided[i], (name, arguments)):
            now = decided[i][0] if i < len(decided) else "nothing"
            raise ArenaError(f"another policy has played here: call {i + 1} is {name!r}, this one decides {now!r}")
    for name, arguments in player.called[session.calls_made :]:
        session.call(name, arguments)


def _is_same_call(one: tuple[str, Any], other: tuple[str, Any]) -> bool:
    """Whether two calls are alike but for rounding between platforms."""
    if one[0] != other[0] or (one[1] is None) != (other[1] is None):
        return False
    pairs = [(value, other[1].get(name)) for name, value in (one[1] or {}).items()]
    return all(a == b or (is_number(a) and is_number(b) and math.isclose(a, b, rel_tol=1e-5)) for a, b in pairs)


class _Player:
    """A policy in front of a session, and what it has called."""

    def __init__(self, session: ArenaSession, policy: Any, seed: int, index: int) -> None:
        self.called: list[tuple[str, dict[str, Any]]] = []
        self.session, self._policy = session, policy
        self._key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), POLICY_STREAM), index)
        self._lost_request = False  # to last month's closing

    def play(self) -> None:
        """Months until the end."""
        choose, act = jax.jit(self._policy.choose_tools), jax.jit(self._policy.act)
        memory = self._policy.init(jax.random.fold_in(self._key, 2 * self.session.world.scenario.horizon))
        while not self.session.is_over:
            month = self._month()
            memory, calls, assumptions = choose(memory, self._seen(), jax.random.fold_in(self._key, 2 * month))
            self._use_tools(calls.tolist(), assumptions)
            memory, action = act(memory, self._seen(), jax.random.fold_in(self._key, 2 * month + 1))
            self._lost_request = self._act(action)

    def _month(self) -> int:
        return int(self.session.observation.month)

    def _seen(self) -> Observation:
        """The observation; a session can't tell of a request that a closing kept from being made."""
        seen = self.session.observation
        return dataclasses.replace(seen, turned_away=jnp.int32(MONTH_TAKEN)) if self._lost_request else seen

    def _call(self, name: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        self.called.append((name, arguments or {}))
        return self.session.call(name, arguments or {})

    def _use_tools(self, counts: list[int], assumptions: Assumptions) -> None:
        for tool, count in zip(TOOLS, counts, strict=True):
            arguments = {}
            if tool == "conduct_cashflow_projection":
                arguments = {name: value.item() for name, value in vars(assumptions).items()}
            for _ in range(min(count, int(self.session.observation.calls_left))):
                self._call(tool, arguments)

    def _act(self, action: Action) -> bool:
        """End the month; whether a closing took it from a request."""
        month, instrument = self._month(), int(action.instrument)
        if action.close_books:
            self._call("book_closing")
            if self.session.is_over or self._month() > month:
                return instrument != NO_REQUEST
        if instrument in INSTRUMENT_NAMES:
            request = {"instrument": INSTRUMENT_NAMES[instrument], "amount": action.amount.item()}
            if "error" not in self._call("fund_raising_request", request):
                return False
        self._call("pass")
        return False
