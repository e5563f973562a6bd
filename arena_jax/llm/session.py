"""`ArenaSession`: one episode for an agent or a person, over the same jitted functions as batch play.

A call is checked, its new state and answer are computed, its journal line is written and synced, and only then the
state is taken over and the answer returned. So a crash loses nothing that was answered, and what can't be written
has not happened.
"""

from __future__ import annotations

import contextlib
import platform
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from arena_jax.arena import Arena
from arena_jax.draws import MAX_SEED, POLICY_STREAM
from arena_jax.errors import ArenaError, check_count, unknown
from arena_jax.llm import answers
from arena_jax.llm.calls import apply, check_open, stamp
from arena_jax.llm.dates import date_label
from arena_jax.llm.episode import Episode, World, begin, plain_record, record_of
from arena_jax.llm.journal import (
    AGENT_STOPPED,
    FORMAT,
    INFRA_ERROR,
    MAX_TOKENS,
    Journal,
    Line,
    difference,
    dollars_apart,
    kept_arguments,
    plain,
    read_journal,
    record_difference,
)
from arena_jax.llm.paging import compact
from arena_jax.llm.prompt import PROMPT_VERSION, sha256, system_prompt
from arena_jax.llm.tool_schemas import checked_arguments, formatted, make_tools
from arena_jax.scenario import digest
from arena_jax.structs import Observation, Record
from arena_jax.version import __version__

_PINNED = ("parameters_sha256", "trajectory_sha256", "prompt_sha256", "tools_sha256")  # what a resumed episode keeps
OnLine = Callable[[Line, Episode], None]


class ArenaSession:
    """One episode of `env`, played call by call.

        >>> import arena_jax
        >>> from arena_jax.llm import ArenaSession
        >>> session = ArenaSession(arena_jax.make(), seed=0)
        >>> session.call("verify_cash_position", {})["cash"]
        15000000
        >>> session.call("pass", {})["now"]["date"]
        'Feb 2xx0'

    seed: whole number in [0, 2^32); the world is that of episode 0 of `rollout(env, policy, jax.random.key(seed), 1)`.
    index: number of another episode of that rollout.
    journal: file of the episode. If it is there, the episode is replayed and goes on where it stopped; None keeps none.
    agent, model: who plays, for the journal's header; a journal keeps those it was begun with.
    disclose_horizon: tell the agent the number of months (the paper's agents are not told).
    Raises `ArenaError` if the journal is of another world, does not replay, or can't be written.

    Thread-safe: calls are answered one at a time, in the order in which they take the lock.
    """

    def __init__(
        self,
        env: Arena,
        seed: int,
        *,
        journal: str | Path | None = None,
        agent: str = "",
        model: str = "",
        disclose_horizon: bool = False,
        index: int = 0,
    ) -> None:
        check_count("seed", seed, 0, MAX_SEED)
        check_count("episode", index, 0, POLICY_STREAM - 1)
        self._world = World.make(env, seed, index)
        self._tools = make_tools(env.params)
        self._lock = threading.Lock()
        self._episode = begin(self._world)
        self._made: list[tuple[str, dict[str, Any] | None]] = []
        self.nudges = 0  # how often the player was told to go on
        self._ended_as: str | None = None
        self._is_end_noted = False
        self._is_torn = False  # between the journal and the state
        self.system_prompt = system_prompt(env.params, env.scenario.horizon if disclose_horizon else None)
        self._header = self._make_header(agent, model)
        self._journal = None if journal is None else Journal(Path(journal))
        if self._journal is not None:
            try:
                self._resume(self._journal)
            except BaseException:
                self._journal.close()
                raise

    # what an adapter needs

    def tools(self, format: str = "plain") -> list[dict[str, Any]]:
        """Name, description and JSON schema of every call, as "openai", "mcp" or "plain" lists them."""
        return formatted(self._tools, format)

    def call(self, name: Any, arguments: Any = None) -> dict[str, Any]:
        """The answer of a call, plain data of under 2 kB.

        A call that does not fit is answered {"error": ...} with what is allowed, and costs no month and no money.
        Raises `ArenaError` only if the journal can't be written; then the call has not happened.
        """
        with self._lock:
            self._check_whole()
            before = self._episode
            try:
                checked, after, answer = self._answered(name, arguments)
            except ArenaError as error:
                refused = {"type": "refused", "n": self.calls_made + 1, "month": before.month, "tool": plain(name)}
                refused |= {**kept_arguments(name, arguments), "error": str(error)}
                answer = {"error": str(error)} | stamp(before)
                with self._written([refused]):
                    self._made.append((plain(name), None))
                return answer
            line = {"type": "call", "n": self.calls_made + 1, "month": before.month, "tool": name}
            line |= {"arguments": checked, "answer": answer}
            with self._written([line, *self._end_lines(after)]):
                self._episode = after
                self._made.append((name, checked))
            return answer

    def facts(self) -> dict[str, Any]:
        """What the open month began with, free: date, open requests, notices, calls left; at the end the score."""
        facts = answers.facts(self._world, self._episode)
        if self._ended_as is None:
            return facts
        score = {"score": 0, "unit": "$"} if self._ended_as == AGENT_STOPPED else {}
        return {"date": facts["date"], "month": facts["month"], "status": self._ended_as} | score

    @property
    def status(self) -> str:
        """running, survived, bankrupt, agent_stopped or infra_error."""
        return self._ended_as or self._episode.status

    @property
    def is_over(self) -> bool:
        """Whether no further call is possible."""
        return self.status != "running"

    @property
    def calls_made(self) -> int:
        """Calls answered so far, refused ones included."""
        return len(self._made)

    @property
    def made(self) -> list[tuple[str, dict[str, Any] | None]]:
        """Those calls by name, with their checked arguments; None for the arguments of a refused one."""
        return list(self._made)

    @property
    def observation(self) -> Observation:
        """What the tools have shown, in the form that policies take. It holds the month."""
        return self._episode.observation

    @property
    def world(self) -> Arena:
        """The environment that is played, trajectory and all: not for agents."""
        return self._world.env

    def record(self) -> Record:
        """The record of the episode so far, as NumPy scalars (design section 2.6): not for agents while it runs."""
        return record_of(self._world, self._episode)

    def stop(self, status: str, reason: str = "") -> None:
        """Note that the player stopped ("agent_stopped", final) or that what runs it failed ("infra_error")."""
        if status not in (AGENT_STOPPED, INFRA_ERROR):
            raise unknown("status", status, (AGENT_STOPPED, INFRA_ERROR))
        with self._lock:
            self._check_whole()
            self._check_not_ended()
            check_open(self._episode)
            with self._written([self._end_line(self._episode, status) | {"reason": plain(reason)}]):
                self._ended_as = status

    def add_usage(self, **tokens: int) -> None:
        """Note tokens that a client counted since the last note, by the names it gives them, such as input_tokens=…."""
        for name, count in tokens.items():
            check_count(plain(name), count, 0, MAX_TOKENS)
        with self._lock:
            self._check_whole()
            with self._written([{"type": "usage", "tokens": {plain(name): int(n) for name, n in tokens.items()}}]):
                pass

    def add_nudge(self) -> None:
        """Note that the player stopped before the end and was told to go on."""
        with self._lock:
            self._check_whole()
            with self._written([{"type": "nudge"}]):
                self.nudges += 1

    def close(self) -> None:
        """Release the journal once the call in progress is answered; it can be opened again."""
        with self._lock:
            if self._journal is not None:
                self._journal.close()

    def __enter__(self) -> ArenaSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # one call

    def _answered(self, name: Any, arguments: Any) -> tuple[dict[str, Any], Episode, dict[str, Any]]:
        """The checked arguments of a call, the episode after it, its answer; raises `ArenaError` if it is refused."""
        self._check_not_ended()
        checked = checked_arguments(self._tools, name, arguments)
        return checked, *apply(self._world, self._episode, name, self._tools[name], checked)

    @contextlib.contextmanager
    def _written(self, lines: list[Line]) -> Iterator[None]:
        """Journal `lines`; what they say is taken over in the body. Interrupted in between, the session is torn."""
        self._is_torn = self._journal is not None
        try:
            if self._journal is not None:
                self._journal.append(lines)
        except ArenaError:  # nothing has happened
            self._is_torn = False
            raise
        yield
        self._is_torn = False

    def _check_whole(self) -> None:
        if self._is_torn:
            raise ArenaError("a call was interrupted while it was journaled; open the journal again to go on")

    def _check_not_ended(self) -> None:
        if self._ended_as is not None:
            raise ArenaError(_over(self._ended_as))

    # the journal

    def _make_header(self, agent: str, model: str) -> Line:
        params, scenario = self._world.env.params, self._world.env.scenario
        return {
            "type": "header",
            "format": FORMAT,
            "arena_jax": __version__,
            "jax": jax.__version__,
            "platform": f"{platform.system()} {platform.machine()}",
            "parameters_sha256": digest(params),
            "trajectory_sha256": digest(scenario),
            "prompt_version": PROMPT_VERSION,
            "prompt_sha256": sha256(self.system_prompt),
            "tools_sha256": sha256(compact(self.tools("plain"))),
            "agent": plain(agent),
            "model": plain(model),
        }

    def _end_lines(self, episode: Episode) -> list[Line]:
        return [] if episode.status == "running" else [self._end_line(episode, episode.status)]

    def _end_line(self, episode: Episode, status: str) -> Line:
        if status == INFRA_ERROR:  # it goes on, and what is hidden stays so
            return {"type": "end", "status": status}
        record = plain_record(record_of(self._world, episode))
        if status == AGENT_STOPPED:
            record["score"] = 0.0  # only a company that reaches the end is valued
        return {"type": "end", "status": status, "record": record}

    def _resume(self, journal: Journal) -> None:
        """Replay what is in the journal, or begin it."""
        if not journal.lines:
            journal.append([self._header])
            return
        self.replay(journal.path, journal.lines)
        if self._ended_as == INFRA_ERROR:
            self._ended_as = None  # whatever failed, the episode goes on
        if not self._is_end_noted:  # cut between the last call and the end
            journal.append(self._end_lines(self._episode))

    def replay(self, path: Path, lines: list[Line], on_line: OnLine = lambda line, episode: None) -> None:
        """Take a fresh session through a journal's lines; raises `ArenaError` naming the first that does not fit.

        on_line: called after every line but the header with the snapshot that it leads to, hidden state and all.
        """
        found = lines[0] if lines else {}
        for name in _PINNED:
            if found.get(name) != self._header[name]:
                raise ArenaError(f"journal {path} is of another world: {name} differs")
        for name in ("agent", "model"):
            if self._header[name] not in ("", found.get(name)):
                was = plain(found.get(name))
                raise ArenaError(f"journal {path} is of {name} {was!r}, not {self._header[name]!r}")
        for number, line in enumerate(lines[1:], start=2):
            where = f"journal {path}, line {number}"
            if line["type"] == "end":
                self._replay_end(where, line)
            elif line["type"] in ("call", "refused"):
                self._replay_call(where, line)
            elif line["type"] == "nudge":
                self.nudges += 1
            on_line(line, self._episode)

    def _replay_end(self, where: str, line: Line) -> None:
        status, known = line["status"], self._episode.status
        if self._is_end_noted:
            raise ArenaError(f"{where}: the episode has ended before")
        if known != ("running" if status in (AGENT_STOPPED, INFRA_ERROR) else status):
            raise ArenaError(f"{where}: it ends as {status}, the replay is {known}")
        if status != INFRA_ERROR:
            dollars = dollars_apart(self._episode.archive.largest_assets)
            found = record_difference(line["record"], self._end_line(self._episode, status)["record"], dollars)
            if found:
                raise ArenaError(f"{where}: the record of the end is different now: {found}")
            self._is_end_noted = True
        self._ended_as = status if status in (AGENT_STOPPED, INFRA_ERROR) else None

    def _replay_call(self, where: str, line: Line) -> None:
        if (line["n"], line["month"]) != (self.calls_made + 1, self._episode.month):
            raise ArenaError(f"{where}: call {line['n']} of month {line['month']} is out of order")
        was_over = line["type"] == "refused" and line["error"] == _over(INFRA_ERROR)
        if self._ended_as == INFRA_ERROR and not was_over:
            self._ended_as = None
        if line["type"] == "refused":
            if "arguments" in line:
                self._replay_refusal(where, line)
            self._made.append((line["tool"], None))
            return
        where = f"{where}: {plain(line['tool'])} in {date_label(self._episode.month)}"
        try:
            checked, self._episode, answer = self._answered(line["tool"], line["arguments"])
            found = difference(line["answer"], answer, dollars_apart(self._episode.archive.largest_assets))
        except ArenaError as error:
            raise ArenaError(f"{where} can't be replayed: {error}") from None
        if found:
            raise ArenaError(f"{where} is answered differently now: {found}")
        self._made.append((line["tool"], checked))

    def _replay_refusal(self, where: str, line: Line) -> None:
        where = f"{where}: {plain(line['tool'])} in {date_label(self._episode.month)}"
        try:
            self._answered(line["tool"], line["arguments"])
        except ArenaError as error:
            if str(error) != line["error"]:
                raise ArenaError(f"{where} is refused differently now: {error}") from None
        else:
            raise ArenaError(f"{where} is answered now, and was refused")


def _over(status: str) -> str:
    return f"it is over: {status}; no further call is possible"


def confirm(
    env: Arena,
    seed: int,
    path: Path,
    *,
    disclose_horizon: bool = False,
    index: int = 0,
    on_line: OnLine = lambda line, episode: None,
) -> None:
    """Replay a journal and write nothing; raises `ArenaError` where it is not what the world gives.

    on_line: see `ArenaSession.replay`.
    """
    session = ArenaSession(env, seed, disclose_horizon=disclose_horizon, index=index)
    session.replay(path, read_journal(path), on_line)
