"""Answers stay under 2 kB: what is longer is cut into pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from arena_jax.errors import ArenaError

PAGE_BYTES = 2_000  # of a whole answer
ENVELOPE = 550  # the most that stands around a page's items: title, unit, date, calls left


def compact(value: Any) -> str:
    """JSON without spaces, as it goes to the agent and into the journal; refuses NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def json_bytes(value: Any) -> int:
    """Size of `value` as compact JSON."""
    return len(compact(value).encode())


def page_of(items: Sequence[Any], page: int, envelope: int = ENVELOPE) -> tuple[list[Any], dict[str, int]]:
    """The items of a page (from 1), and which page of how many this is: {} where one holds all.

    envelope: bytes of what stands around the items.
    """
    pages: list[list[Any]] = [[]]
    left = PAGE_BYTES - envelope
    for item in items:
        size = json_bytes(item) + 1
        if size > left and pages[-1]:
            pages.append([])
            left = PAGE_BYTES - envelope
        pages[-1].append(item)
        left -= size
    if page > len(pages):
        raise ArenaError(f"page must be a whole number from 1 to {len(pages)}, got {page}")
    return pages[page - 1], {} if len(pages) == 1 else {"page": page, "pages": len(pages)}
