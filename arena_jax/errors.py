"""The one exception that a user's mistake raises, and the hint that goes with an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import numpy as np


class ArenaError(ValueError):
    """Bad input: one line that says what is wrong and what is allowed."""


def printable(text: str, keep: str = "") -> str:
    """Text from anywhere for a terminal or a file: control characters but those of `keep` are replaced."""
    return "".join(c if c.isprintable() or c in keep else "\ufffd" for c in text)


def shown(value: Any) -> str:
    """A value in one short line."""
    if hasattr(value, "dtype") and getattr(value, "shape", ()) != ():
        return _cut(f"an array {value.dtype}{list(value.shape)}", 80)
    try:
        text = repr(value)
    except Exception:  # nested too deep, or a user's class
        text = f"a {type(value).__name__}"
    return _cut(text, 80)


def brief(error: BaseException) -> str:
    """An exception in one line: its type and the first line of its message."""
    first = (str(error).strip().splitlines() or [""])[0]
    return _cut(f"{type(error).__name__}: {first}", 400)


def _cut(text: str, most: int) -> str:
    """At most so many characters, on one line."""
    line = printable(text.replace("\n", " "))
    return line if len(line) <= most else f"{line[: most - 3]}..."


def is_number(value: Any) -> bool:
    """Whether a value is one real number: a Python or NumPy number or a scalar array, no bool and no text."""
    if isinstance(value, bool | np.bool_ | str | bytes):
        return False
    try:
        return np.shape(value) == () and np.asarray(value).dtype.kind in "iuf"
    except (TypeError, ValueError, OverflowError):
        return False


def unknown(kind: str, name: Any, known: Iterable[str]) -> ArenaError:
    """An error for a name that is not among `known`, offering the nearest ones."""
    known = sorted(known)
    near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known) or 'none'}"
    return ArenaError(f"unknown {kind} {name!r}; {hint}")


def check_count(name: str, value: Any, low: int, high: int) -> None:
    """Refuse anything but a whole number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise ArenaError(f"{name} must be a whole number from {low} to {high}, got {shown(value)}")
