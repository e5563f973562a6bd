"""The loop that has a client play an episode: configure, start, nudge, note what it cost, say how it ended.

The client's own folder (home, configuration, empty working folder) lies in the user's state folder, apart from the run
and its seeds; what it printed is kept beside the journal. What fails here is never the agent's end: the episode stays
open, and the same command goes on with it, in the same conversation where the client still has it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from arena_jax.errors import ArenaError
from arena_jax.files import own_file, read_json, read_whole, user_folder, write_atomic
from arena_jax.llm.clients.client import Client, Setup, Turn
from arena_jax.llm.journal import AGENT_STOPPED, INFRA_ERROR, plain
from arena_jax.llm.run_file import read_run
from arena_jax.llm.runs import journal_path, open_episode
from arena_jax.llm.session import ArenaSession

START = "You take office today. Go on month after month until you are told that it is over."
GO_ON = "It is not over yet. Go on month after month until you are told that it is over."
TAKE_OVER = (
    "You have been in office for some time and your conversation was cut. recall_notes shows where you stand and what "
    "you noted. Go on month after month until you are told that it is over."
)
SERVER_GRACE = 20.0  # seconds that the server has to end after its client
CLIENT_GRACE = 10.0  # seconds that a client has to end when asked to
UNCOUNTED = "uncounted"  # the kind of tokens whose count nobody tells; it has no price
SILENCE = 1800.0  # seconds without a word or a call after which a client hangs
POLL = 0.2
_MODE = 0o700
# ends a client and all that it has started once who started it is gone, which closes the pipe without a word
_WATCH = "import os, signal, sys\nif not sys.stdin.buffer.read(1): os.killpg(int(sys.argv[1]), signal.SIGKILL)"
# what any program needs to run and to reach its models; nothing else of the user's environment is passed on
_NEEDED = {"PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
_NEEDED |= {"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "SYSTEMROOT"}


def state_folder(directory: Path, episode: int, client: Client) -> Path:
    """Where a client keeps what it needs for an episode of a run (XDG base directories)."""
    run = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:12]
    return user_folder("XDG_STATE_HOME", ".local/state") / "arena_jax" / f"{run}-{episode:03d}-{client.program}"


def make_setup(directory: Path, episode: int, client: Client, model: str = "", no_cache: bool = False) -> Setup:
    """How a client is configured for an episode of a run.

    no_cache: have the server compile afresh.
    """
    run = read_run(directory)
    served = [sys.executable, "-m", "arena_jax.cli", "agent", "mcp", str(directory.resolve())]
    served += ["--episode", str(episode), "--agent", client.agent, *(["--model", model] if model else [])]
    served += ["--no-cache"] if no_cache else []
    cache = str(user_folder("XDG_CACHE_HOME", ".cache"))
    passed = ("LC_", *client.passed)
    variables = {n: value for n, value in os.environ.items() if n.upper() in _NEEDED or n.startswith(passed)}
    tools = [tool["name"] for tool in run["tools"]]
    return Setup(state_folder(directory, episode, client), served, cache, run["system_prompt"], model, tools, variables)


def play_episode(
    directory: Path, episode: int, client: Client, setup: Setup, nudges: int, on_month: Callable[[int], None]
) -> str:
    """Have a client play an episode to its end, from its start or from where it was left; its status.

    nudges: how often an agent that stops early is told to go on, in the whole episode. on_month: is told of months
    that have passed. Raises `ArenaError` if the client or the server fails; then the episode is an infra_error.
    """
    driver = _Driver(directory, episode, client, setup, on_month)
    with driver.opened() as session:
        driver.catch_up(session)
        status, message = session.status, TAKE_OVER if session.calls_made else START
    if driver.conversation:
        message = GO_ON
    while status == "running":
        turn = driver.turn(message)
        with driver.opened() as session:
            made = driver.made(session)
            if not turn.failure and turn.calls and not made:
                turn.failure = f"none of its {turn.calls} calls reached the arena"
            if turn.failure and not made:
                driver.conversation = ""  # it may be what fails
            driver.note(session, turn)
            if session.is_over:
                return session.status
            if turn.failure:
                session.stop(INFRA_ERROR, turn.failure)
                raise ArenaError(f"{client.program} failed in episode {episode}: {plain(turn.failure)}")
            if session.nudges >= nudges:
                session.stop(AGENT_STOPPED, f"stopped again after {session.nudges} nudges")
            else:
                session.add_nudge()
            status = session.status
        message = GO_ON if driver.conversation else TAKE_OVER
    return status


class _Driver:
    """A client, configured for an episode."""

    def __init__(
        self, directory: Path, episode: int, client: Client, setup: Setup, on_month: Callable[[int], None]
    ) -> None:
        program = shutil.which(client.program)
        if program is None:
            raise ArenaError(f"{client.program} is not on the path; README, LLM agents, says where it comes from")
        self._program, self._client, self._on_month = program, client, on_month
        self._directory, self._episode, self._setup = directory, episode, setup
        self._journal = journal_path(directory, episode)
        self._outputs = own_file(self._journal.parent, client.program)
        self._file = own_file(self._outputs, "conversation.json")
        told = self._remembered()
        self.conversation: str = told["conversation"]
        self._counted: dict[str, int] = told["tokens"]  # of the conversation
        self._starts, self._calls = told["starts"], told["calls"]  # that have been noted
        self._is_owed: bool = told["owed"]  # whether the conversation has still to tell tokens

    def opened(self) -> ArenaSession:
        """The episode's session, once no server holds it."""
        names = {"agent": self._client.agent, "model": self._setup.model}
        return open_episode(self._directory, self._episode, **names, patience=SERVER_GRACE)

    def turn(self, message: str) -> Turn:
        """Start the client once and wait for its end."""
        setup = self._setup
        shutil.rmtree(setup.work, ignore_errors=True)
        if not self.conversation:
            shutil.rmtree(setup.home, ignore_errors=True)  # it may remember another one, of a run that was here before
            self._counted = {}
        for folder in (setup.folder, setup.home, setup.work, self._outputs):
            folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
        for path, text in self._client.files(setup).items():
            write_atomic(path, text.encode(), 0o600)
        environment = {**setup.variables, **self._client.environment(setup)}
        command = [self._program, *self._client.arguments(setup, message, self.conversation)]
        number = len(list(self._outputs.glob("turn-*.out")))
        out, err = self._output(number, "out"), self._output(number, "err")
        with open(out, "xb") as stdout, open(err, "xb") as stderr:  # made here: no link is followed
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=setup.work,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            with _outlived_by_none(process):
                hung = self._watched(process, (out, err, self._journal))
        turn = self._heard(number)
        if hung or process.returncode:
            said = read_whole(err).decode(errors="replace").strip().splitlines()
            reason = hung or f"exit code {process.returncode}"
            turn.failure = ": ".join(part for part in (reason, turn.failure, said[-1] if said else "") if part)
        return turn

    def _output(self, number: int, kind: str) -> Path:
        """What the client printed at a start, on its standard output ("out") or error ("err")."""
        return own_file(self._outputs, f"turn-{number:03d}.{kind}")

    def _heard(self, number: int) -> Turn:
        """What the output of a start says; its conversation is the one to go on with."""
        path = self._output(number, "out")
        try:
            turn = self._client.read(read_whole(path).decode(errors="replace"))
            if not isinstance(turn.conversation, str):
                raise TypeError
        except (AttributeError, TypeError, KeyError, ValueError, RecursionError):  # it has another shape than known
            turn = Turn(failure="its output can't be read")
        if turn.conversation not in ("", self.conversation):
            self.conversation, self._counted = turn.conversation, {}
        return turn

    def _watched(self, process: subprocess.Popen[bytes], files: tuple[Path, ...]) -> str:
        """Wait for the client, telling of months; what is wrong if it hangs. Interrupted, it takes the client along."""
        sizes, since = [_size(path) for path in files], time.monotonic()
        seen = _size(self._journal)
        try:
            while process.poll() is None:
                time.sleep(POLL)
                seen = self._tell_months(seen)
                now = [_size(path) for path in files]
                if now != sizes:
                    sizes, since = now, time.monotonic()
                elif time.monotonic() - since > SILENCE:
                    return f"nothing happened for {SILENCE / 60:.0f} minutes"
            self._tell_months(seen)
            return ""
        finally:
            _end(process)

    def _tell_months(self, seen: int) -> int:
        size = _size(self._journal)
        if size > seen:
            with open(self._journal, "rb") as file:
                file.seek(seen)
                added = file.read(size - seen)
            whole = added.rfind(b"\n") + 1
            self._on_month(added[:whole].count(b'"answer":{"month_ended"'))
            return seen + whole
        return seen

    def catch_up(self, session: ArenaSession) -> None:
        """Take over what a start came to that was interrupted; whether its conversation can be gone on with."""
        left = [self._heard(n) for n in range(self._starts, len(list(self._outputs.glob("turn-*.out"))))]
        if not left:
            self._calls = session.calls_made
        if session.calls_made == 0 or not self._setup.home.is_dir():
            self.conversation = ""  # it may not have been told anything, or has forgotten it
        for turn in left or [Turn()]:
            self.note(session, turn)

    def made(self, session: ArenaSession) -> int:
        """The calls that have been answered since the last note."""
        return session.calls_made - self._calls

    def note(self, session: ArenaSession, turn: Turn) -> None:
        """Note the tokens of a start, and that there are others if it made calls and did not tell them all."""
        is_told_later = self._client.counts_conversation
        before = self._counted if is_told_later else {}
        added = {name: max(0, count - before.get(name, 0)) for name, count in turn.tokens.items()}
        if turn.is_counted:
            self._is_owed = self._is_owed and not is_told_later
        elif self.made(session):
            self._is_owed = True
        if self._is_owed and not (is_told_later and self.conversation and not session.is_over):
            self._is_owed, added[UNCOUNTED] = False, 0
        if UNCOUNTED in added or any(added.values()):
            session.add_usage(**added)
        self._counted, self._calls = turn.tokens or self._counted, session.calls_made
        self._starts = len(list(self._outputs.glob("turn-*.out")))
        told: dict[str, Any] = {"conversation": self.conversation, "tokens": self._counted}
        told |= {"starts": self._starts, "calls": self._calls, "owed": self._is_owed}
        write_atomic(self._file, (json.dumps(told) + "\n").encode(), 0o600)

    def _remembered(self) -> dict[str, Any]:
        blank: dict[str, Any] = {"conversation": "", "tokens": {}, "starts": 0, "calls": 0, "owed": False}
        try:
            told = read_json(self._file)
        except ArenaError:
            return blank
        is_sound = isinstance(told, dict) and all(type(told.get(name)) is type(value) for name, value in blank.items())
        return told if is_sound else blank


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a client and all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(CLIENT_GRACE)
            return


@contextlib.contextmanager
def _outlived_by_none(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Have a client end with this process even if that is killed: it would play on, and spend."""
    command = [sys.executable, "-I", "-S", "-c", _WATCH, str(process.pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as watcher:
        try:
            yield
        finally:
            watcher.communicate(b".")


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Have SIGTERM and a closed terminal interrupt as Ctrl-C does, so that no client is left behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] != signal.SIG_IGN:  # as under nohup
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, before[number])
