"""What the driver needs to know of a client: how it is configured and started, and what its output says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SERVER = "arena"  # the MCP server's name in every configuration
STARTUP_SECONDS, CALL_SECONDS = 60, 600  # that a client waits for the server: the first call may compile


@dataclass(frozen=True)
class Setup:
    """What a client is configured with.

    folder: the client's own, outside the run directory, with home/ and work/ (empty). server: command of the MCP
    server. cache: where the server keeps what it compiles. variables: those of the user's environment that it gets.
    """

    folder: Path
    server: Sequence[str]
    cache: str
    prompt: str
    model: str
    tools: Sequence[str]
    variables: Mapping[str, str]

    @property
    def home(self) -> Path:
        """The client's home folder: what it remembers, and no settings of the user's."""
        return self.folder / "home"

    @property
    def work(self) -> Path:
        """Its working folder, empty."""
        return self.folder / "work"

    @property
    def server_environment(self) -> dict[str, str]:
        """What the MCP server needs beyond the client's own environment."""
        return {"XDG_CACHE_HOME": self.cache}


@dataclass
class Turn:
    """What one start of a client came to, as far as its output says.

    conversation: what resumes it. calls: of the arena's tools, answered or not. tokens: by kind, each counted once.
    is_counted: those are all that it took. failure: why it is not the agent that stopped.
    """

    conversation: str = ""
    calls: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    is_counted: bool = False
    failure: str = ""


@dataclass(frozen=True)
class Client:
    """One client. Its functions are pure; the driver writes, starts and kills.

    read: may raise what an output of another shape than known brings about.
    agent: its name in journals, as the published results have it. program: its executable. passed: beginnings of the
    names of environment variables that it gets from the user: keys, and where its models are.
    counts_conversation: its token counts are those of the whole conversation, not of one start.
    """

    agent: str
    program: str
    passed: tuple[str, ...]
    files: Callable[[Setup], dict[Path, str]]
    environment: Callable[[Setup], dict[str, str]]
    arguments: Callable[[Setup, str, str], list[str]]  # message, conversation to resume or ""
    read: Callable[[str], Turn]
    counts_conversation: bool = False


def events(output: str) -> list[dict[str, Any]]:
    """The JSON objects of an output with one a line; other lines are passed over."""
    found = []
    for line in output.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            found.append(event)
    return found


def is_answer(text: str) -> bool:
    """Whether the text of a failed call is the arena's own refusal: that one has been answered."""
    return text.lstrip().startswith('{"error":')


def counts(usage: Any, names: Mapping[str, str]) -> dict[str, int]:
    """The token counts of a client's usage, by our names for them."""
    given = usage if isinstance(usage, dict) else {}
    found = {ours: given.get(theirs) for theirs, ours in names.items()}
    return {name: count for name, count in found.items() if isinstance(count, int) and count > 0}
