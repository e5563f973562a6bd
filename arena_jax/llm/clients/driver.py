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

from arena_jax.errors import ArenaError
from arena_jax.files import write_atomic
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
SILENCE = 1800.0  # seconds without a word or a call after which a client hangs
POLL = 0.2
_MODE = 0o700
# what any program needs to run and to reach its models; nothing else of the user's environment is passed on
_NEEDED = {"PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
_NEEDED |= {"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "SYSTEMROOT"}


def state_folder(directory: Path, episode: int, client: Client) -> Path:
    """Where a client keeps what it needs for an episode of a run (XDG base directories)."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    base = named if named.is_absolute() else Path.home() / ".local" / "state"
    run = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:12]
    return base / "arena_jax" / f"{run}-{episode:03d}-{client.program}"


def make_setup(directory: Path, episode: int, client: Client, model: str = "", no_cache: bool = False) -> Setup:
    """How a client is configured for an episode of a run.

    no_cache: have the server compile afresh.
    """
    run = read_run(directory)
    served = [sys.executable, "-m", "arena_jax.cli", "agent", "mcp", str(directory.resolve())]
    served += ["--episode", str(episode), "--agent", client.agent, *(["--model", model] if model else [])]
    served += ["--no-cache"] if no_cache else []
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
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
        status, calls = session.status, session.calls_made
    message = START if calls == 0 else TAKE_OVER
    if calls and driver.conversation:
        message = GO_ON
    while status == "running":
        turn = driver.turn(message)
        with driver.opened() as session:
            made, calls = session.calls_made - calls, session.calls_made
            driver.note(session, turn)
            if session.is_over:
                return session.status
            if not turn.failure and turn.calls and not made:
                turn.failure = f"none of its {turn.calls} calls reached the arena"
            if turn.failure:
                if not made:
                    driver.forget()  # the conversation may be what fails
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
        self._outputs = self._journal.parent / client.program
        self._memory = self._outputs / "conversation.json"
        self.conversation, self._counted = self._remembered()

    def opened(self) -> ArenaSession:
        """The episode's session, once no server holds it."""
        names = {"agent": self._client.agent, "model": self._setup.model}
        return open_episode(self._directory, self._episode, **names, patience=SERVER_GRACE)

    def turn(self, message: str) -> Turn:
        """Start the client once and wait for its end."""
        setup = self._setup
        shutil.rmtree(setup.work, ignore_errors=True)
        for folder in (setup.folder, setup.home, setup.work, self._outputs):
            folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
        for path, text in self._client.files(setup).items():
            write_atomic(path, text.encode(), 0o600)
        environment = {**setup.variables, **self._client.environment(setup)}
        command = [self._program, *self._client.arguments(setup, message, self.conversation)]
        stem = f"turn-{len(list(self._outputs.glob('turn-*.out'))):03d}"
        out, err = self._outputs / f"{stem}.out", self._outputs / f"{stem}.err"
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=setup.work,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                hung = self._watched(process, (out, err, self._journal))
            finally:
                turn = self._client.read(out.read_text(encoding="utf-8", errors="replace"))
                if turn.conversation not in ("", self.conversation):
                    self.conversation, self._counted = turn.conversation, {}
                self._remember()
        if hung or process.returncode:
            said = err.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            reason = hung or f"exit code {process.returncode}"
            turn.failure = ": ".join(part for part in (reason, turn.failure, said[-1] if said else "") if part)
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

    def note(self, session: ArenaSession, turn: Turn) -> None:
        """Note the tokens of a start."""
        before = self._counted if self._client.counts_conversation else {}
        added = {name: max(0, count - before.get(name, 0)) for name, count in turn.tokens.items()}
        if any(added.values()):
            session.add_usage(**added)
        self._counted = turn.tokens or self._counted
        self._remember()

    def _remember(self) -> None:
        told = {"conversation": self.conversation, "tokens": self._counted}
        write_atomic(self._memory, (json.dumps(told) + "\n").encode(), 0o600)

    def forget(self) -> None:
        """Begin a new conversation the next time."""
        self._memory.unlink(missing_ok=True)

    def _remembered(self) -> tuple[str, dict[str, int]]:
        try:
            told = json.loads(self._memory.read_bytes())
            return (str(told["conversation"]), dict(told["tokens"])) if self._setup.home.is_dir() else ("", {})
        except (OSError, ValueError, KeyError, TypeError):
            return "", {}


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
def ended_by_signals() -> Iterator[None]:
    """Have SIGTERM interrupt as Ctrl-C does, so that no client is left behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
