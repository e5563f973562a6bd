"""The journal of an episode: a header, then one JSON line per call, on disk before the call is answered.

A line counts once its newline is on disk. Opening drops a half-written last line, so a journal may be cut anywhere.
Nothing in it tells the seed, a calendar date, or what the agent was not shown.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from arena_jax.errors import ArenaError, printable
from arena_jax.files import LARGEST, read_whole
from arena_jax.llm.paging import compact
from arena_jax.structs import Record

try:
    import fcntl
except ImportError:  # no advisory locks on this platform
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
# how an episode can end: the world ends it, its player stops, or what runs it fails (which is no bankruptcy)
AGENT_STOPPED, INFRA_ERROR = "agent_stopped", "infra_error"
ENDS = ("survived", "bankrupt", AGENT_STOPPED, INFRA_ERROR)
Line = dict[str, Any]
# the kinds of lines and what each must hold
_HOLDS: dict[str, dict[str, type]] = {
    "header": {},
    "call": {"n": int, "month": int, "tool": str, "arguments": dict, "answer": dict},
    "refused": {"n": int, "month": int, "tool": str, "error": str},
    "usage": {"tokens": dict},
    "nudge": {},
    "end": {"status": str},
}
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
# a replay on another platform may differ by 1e-5 of total assets (design section 5.3), in borrowers by one
_RELATIVE, _DOLLARS, _BORROWERS, _RATE = 1e-5, 5.0, 1, 5e-3
_RATIOS, _RATIO = ("ownership_kept", "value_per_share"), 1e-4  # fields of a record that are no amounts
_COUNTS = ("users", "active borrowers", "new borrowers")
_EXACT = ("month", "closed_month", "tool_calls_left", "notes", "page", "pages", "amount", "requested")
_HUGE = 1e18  # above any figure of a record
_LARGEST = 1e100  # and of an answer
_DEPTH = 12  # of a line: more than any has
_LONGEST = 2_000  # bytes of a refused call's arguments that are kept
MAX_TOKENS = 2**53
_AMOUNT = 10_000.0  # numbers in a text from this size on are what the books say; smaller ones are terms and dates


class JournalInUse(ArenaError):
    """Another process plays the episode."""


class Journal:
    """A file open for appending by one process. `lines` holds what was in it when it was opened.

    Raises `ArenaError` if it can't be opened, locked or read; `JournalInUse` while another process has it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = open(path, "r+b", buffering=0, opener=_made)  # noqa: SIM115
        except OSError as error:
            raise ArenaError(f"can't open journal {path}: {error.strerror}") from None
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise JournalInUse(f"journal {path} is in use by another process") from None
        except OSError as error:  # a file system without locks
            self._file.close()
            raise ArenaError(f"can't lock journal {path}: {error.strerror}") from None
        try:
            if os.fstat(self._file.fileno()).st_size > LARGEST:
                raise ArenaError(f"can't open journal {path}: it is larger than {LARGEST:,} bytes")
            data = self._file.read()
            self.lines, self._size = _parsed(path, data)
            self._held = len(data)  # bytes, with those of a half-written line
        except ArenaError:
            self._file.close()
            raise

    def append(self, lines: Sequence[Line]) -> None:
        """Write lines and sync them; raises `ArenaError` and leaves the journal as it was if that fails."""
        if self._file.closed:
            raise ArenaError(f"journal {self.path} is closed")
        data = "".join(f"{compact(line)}\n" for line in lines).encode()
        if self._size + len(data) > LARGEST:
            raise ArenaError(f"journal {self.path} is full: {LARGEST:,} bytes at most; nothing has happened")
        if os.fstat(self._file.fileno()).st_size != self._held:
            raise ArenaError(f"journal {self.path} was changed by another process; nothing has happened")
        try:
            self._file.truncate(self._size)
            self._file.seek(self._size)
            written = 0
            while written < len(data):
                written += self._file.write(data[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next line takes its place
                self._file.truncate(self._size)
            self._held = os.fstat(self._file.fileno()).st_size
            raise ArenaError(f"can't write journal {self.path}: {error.strerror}; nothing has happened") from None
        self._size = self._held = self._size + len(data)

    def close(self) -> None:
        """Release the file."""
        self._file.close()


def _made(path: str, flags: int) -> int:
    """Open a file, made if there is none, by whichever process comes first; a link is not followed."""
    return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)


def read_journal(path: Path) -> list[Line]:
    """The lines of a journal, header first; raises `ArenaError` if it is none."""
    return _parsed(path, read_whole(path, "journal"))[0]


def _parsed(path: Path, data: bytes) -> tuple[list[Line], int]:
    """Whole lines and their size in bytes."""
    size = data.rfind(b"\n") + 1
    lines: list[Line] = []
    for number, text in enumerate(data[:size].split(b"\n")[:-1], start=1):
        try:
            line = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            line = None
        if not _is_sound(line) or (lines and line["type"] == "header"):
            raise ArenaError(f"{path}: line {number} is damaged")
        lines.append(line)
    if lines and (lines[0]["type"] != "header" or lines[0].get("format") != FORMAT):
        raise ArenaError(f"{path} is not a journal of format {FORMAT}")
    return lines, size


def _is_sound(line: Any) -> bool:
    if not isinstance(line, dict) or not isinstance(line.get("type"), str) or line["type"] not in _HOLDS:
        return False
    if not _is_bounded(line):
        return False
    for name, kind in _HOLDS[line["type"]].items():
        if not isinstance(line.get(name), kind) or isinstance(line[name], bool):
            return False
    if line["type"] == "usage":
        return all(
            isinstance(count, int) and _is_number(count) and 0 <= count <= MAX_TOKENS
            for count in line["tokens"].values()
        )
    if line["type"] == "end":  # a failure goes on, so it tells nothing of the hidden record
        return line["status"] in ENDS and (line["status"] == INFRA_ERROR or _is_record(line.get("record")))
    return True


def _is_bounded(value: Any, depth: int = _DEPTH) -> bool:
    """Whether plain data is no deeper and its numbers no larger than what a replay can go through."""
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_is_bounded(item, depth - 1) for item in items)
    return not isinstance(value, int | float) or abs(value) <= _LARGEST


def _is_record(record: Any) -> bool:
    fields = {field.name for field in dataclasses.fields(Record)}
    return isinstance(record, dict) and record.keys() == fields and all(_is_finite(value) for value in record.values())


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < _HUGE


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def kept_arguments(tool: Any, arguments: Any) -> Line:
    """The arguments of a refused call for its line, {} where JSON would not give them back as they are."""
    try:
        text = compact(arguments)
        is_small = len(text.encode()) <= _LONGEST and _is_bounded(arguments, _DEPTH - 1)
        is_kept = is_small and json.loads(text) == arguments and isinstance(tool, str) and tool == plain(tool)
    except (ValueError, TypeError, RecursionError):
        is_kept = False
    return {"arguments": arguments} if is_kept else {}


def plain(name: Any) -> str:
    """A name or reason from anywhere as a short text that any file and terminal takes."""
    text = name[:200] if isinstance(name, str) else type(name).__name__
    return printable(text)


def dollars_apart(total_assets: float) -> float:
    """How far amounts in $ may be apart between platforms, for a company with assets of that size."""
    return max(_RELATIVE * total_assets, _DOLLARS)


def difference(recorded: Any, replayed: Any, dollars: float) -> str | None:
    """Where two answers differ by more than rounding between platforms, None if nowhere.

    dollars: how far amounts may be apart (`dollars_apart`). What happened, dates, what was asked for and calls left
    must be equal.
    """
    one, other = list(_leaves(recorded)), list(_leaves(replayed))
    if [where for where, *_ in one] != [where for where, *_ in other]:
        return "answer has other fields"
    # a projection grows with what was assumed, beyond any assets
    projected = [abs(value) for _, name, value in one if name == "cash_at_opening_of_month" and _is_number(value)]
    dollars = max([dollars, *[_RELATIVE * value for value in projected]])
    for (where, name, before), (_, _, now) in zip(one, other, strict=True):
        if not _agree(name, before, now, dollars):
            return f"{where}: {_short(now)}, not {_short(before)}"
    return None


def record_difference(recorded: dict[str, Any], replayed: dict[str, Any], dollars: float) -> str | None:
    """Where two records as plain data differ by more than rounding: counts by anything, amounts by over `dollars`."""
    for name, now in replayed.items():
        before = recorded[name]
        apart = dollars if name not in _RATIOS else 0.0
        allowed = max(apart, _RATIO * abs(now)) if isinstance(now, float) else 0
        if abs(before - now) > allowed:
            return f"{name}: {_short(now)}, not {_short(before)}"
    return None


def _leaves(value: Any, where: str = "answer", name: str = "") -> Iterator[tuple[str, str, Any]]:
    """Where each plain value stands, the field or table column that it belongs to, and the value."""
    if isinstance(value, dict) and value:
        columns = value.get("columns")
        for key, item in value.items():
            if key == "lines" and isinstance(columns, list) and isinstance(item, list):
                for i, row in enumerate(item):
                    cells = row if isinstance(row, list) else [row]
                    for j, cell in enumerate(cells):
                        column = str(columns[j]) if j < len(columns) else ""
                        yield from _leaves(cell, f"{where}.{key}[{i}][{j}]", column)
            else:
                yield from _leaves(item, f"{where}.{key}", key)
    elif isinstance(value, list) and value:
        for i, item in enumerate(value):
            yield from _leaves(item, f"{where}[{i}]", name)
    else:
        yield where, name, value


def _agree(name: str, one: Any, other: Any, dollars: float) -> bool:
    if name == "text" and isinstance(one, str) and isinstance(other, str):
        numbers = [[float(n.replace(",", "")) for n in _NUMBER.findall(text)] for text in (one, other)]
        same_words = _NUMBER.sub("#", one) == _NUMBER.sub("#", other) and len(numbers[0]) == len(numbers[1])
        return same_words and all(
            a == b or (min(a, b) >= _AMOUNT and abs(a - b) <= dollars) for a, b in zip(*numbers, strict=True)
        )
    if name in _EXACT or not (_is_number(one) and _is_number(other)):
        return bool(one == other)
    if isinstance(one, float) or isinstance(other, float):
        return abs(one - other) <= _RATE
    return abs(one - other) <= (_BORROWERS if name in _COUNTS else dollars)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
