"""The journal of an episode: a header, then one JSON line per call, on disk before the call is answered.

A line counts once its newline is on disk. Opening drops a half-written last line, so a journal may be cut anywhere.
Nothing in it tells the seed, a calendar date, or what the agent was not shown.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from arena_jax.errors import ArenaError
from arena_jax.llm.paging import compact

try:
    import fcntl
except ImportError:  # no advisory locks on this platform
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
Line = dict[str, Any]
# the kinds of lines and what each must hold
_HOLDS: dict[str, dict[str, type]] = {
    "header": {},
    "call": {"n": int, "month": int, "tool": str, "arguments": dict, "answer": dict},
    "refused": {"n": int, "month": int, "tool": str, "error": str},
    "usage": {"tokens": dict},
    "end": {"status": str, "record": dict},
}
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
# a replay on another platform may differ by 1e-5 of total assets (design section 5.3): relative, and in $ or units
_RELATIVE, _ABSOLUTE = 1e-4, 5e-3
_WHOLE_DOLLARS = 500.0
_SCALE = 10_000.0  # numbers from this size on are amounts of money, good to `_WHOLE_DOLLARS`


class Journal:
    """A file open for appending by one process. `lines` holds what was in it when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = open(path, "r+b" if path.exists() else "x+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise ArenaError(f"can't open journal {path}: {error.strerror}") from None
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ArenaError(f"journal {path} is in use by another process") from None
        try:
            self.lines, self._size = _parsed(path, self._file.read())
        except ArenaError:
            self._file.close()
            raise

    def append(self, lines: Sequence[Line]) -> None:
        """Write lines and sync them; raises `ArenaError` and leaves the journal as it was if that fails."""
        if self._file.closed:
            raise ArenaError(f"journal {self.path} is closed")
        data = "".join(f"{compact(line)}\n" for line in lines).encode()
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
            raise ArenaError(f"can't write journal {self.path}: {error.strerror}; nothing has happened") from None
        self._size += len(data)

    def close(self) -> None:
        """Release the file."""
        self._file.close()


def read_journal(path: Path) -> list[Line]:
    """The lines of a journal, header first; raises `ArenaError` if it is none."""
    try:
        return _parsed(path, path.read_bytes())[0]
    except OSError as error:
        raise ArenaError(f"can't read journal {path}: {error.strerror}") from None


def _parsed(path: Path, data: bytes) -> tuple[list[Line], int]:
    """Whole lines and their size in bytes."""
    size = data.rfind(b"\n") + 1
    lines = []
    for number, text in enumerate(data[:size].split(b"\n")[:-1], start=1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not _is_sound(line):
            raise ArenaError(f"{path}: line {number} is damaged")
        lines.append(line)
    if lines and (lines[0]["type"] != "header" or lines[0].get("format") != FORMAT):
        raise ArenaError(f"{path} is not a journal of format {FORMAT}")
    return lines, size


def _is_sound(line: Any) -> bool:
    if not isinstance(line, dict) or not isinstance(line.get("type"), str) or line["type"] not in _HOLDS:
        return False
    if not all(isinstance(line.get(name), kind) for name, kind in _HOLDS[line["type"]].items()):
        return False
    return all(isinstance(count, int) for count in line.get("tokens", {}).values())


def difference(recorded: Any, replayed: Any, where: str = "answer") -> str | None:
    """Where two answers differ by more than rounding between platforms, None if nowhere."""
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        if recorded.keys() != replayed.keys():
            return f"{where} has other fields"
        pairs = [(f"{where}.{key}", recorded[key], replayed[key]) for key in recorded]
    elif isinstance(recorded, list) and isinstance(replayed, list):
        if len(recorded) != len(replayed):
            return f"{where} has {len(replayed)} items, not {len(recorded)}"
        pairs = [(f"{where}[{i}]", *pair) for i, pair in enumerate(zip(recorded, replayed, strict=True))]
    elif isinstance(recorded, str) and isinstance(replayed, str):
        one, other = _NUMBER.findall(recorded), _NUMBER.findall(replayed)
        same_words = _NUMBER.sub("#", recorded) == _NUMBER.sub("#", replayed)
        if same_words and all(
            _close(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in zip(one, other, strict=True)
        ):
            return None
        return f"{where}: {replayed[:60]!r}, not {recorded[:60]!r}"
    else:
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (recorded, replayed))
        if recorded == replayed or (numbers and _close(recorded, replayed)):
            return None
        return f"{where}: {replayed!r}, not {recorded!r}"
    return next((found for found in (difference(a, b, name) for name, a, b in pairs) if found), None)


def _close(one: float, other: float) -> bool:
    size = max(abs(one), abs(other))
    return abs(one - other) <= max(_RELATIVE * size, _WHOLE_DOLLARS if size >= _SCALE else _ABSOLUTE)
