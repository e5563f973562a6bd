"""The flat observation and the actions of EnterpriseArenaRL-v1: one table each, which weights are bound to by a digest.

An observation is float32[n], each entry its value / scale, at most `LIMIT` either way. Quantities that no tool has
shown are 0, and the age of their group is -1; the quantities of a group are always shown together and so share an age.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from arena_jax.structs import DEBT, EQUITY, TOOLS
from arena_jax.tools import ANALYZE, CHANGES, INDICATORS, PROJECT, QUANTITIES, REVIEW, VERIFY

NAME = "EnterpriseArenaRL-v1"
VERSION = 1  # of both tables
LIMIT = 1000.0

AMOUNTS = (1e6, 2.5e6, 5e6, 10e6, 20e6, 40e6, 80e6, 160e6)  # $ that a request may ask for
CLOSE, PASS = len(TOOLS), len(TOOLS) + 1
FIRST_REQUEST = PASS + 1
ACTIONS: tuple[str, ...] = (
    *TOOLS,
    "book_closing",
    "pass",
    *[f"{instrument} ${amount / 1e6:g}M" for instrument in ("equity", "debt") for amount in AMOUNTS],
)
# action - FIRST_REQUEST -> instrument and amount
INSTRUMENT_OF = (EQUITY,) * len(AMOUNTS) + (DEBT,) * len(AMOUNTS)
AMOUNT_OF = AMOUNTS * 2

# quantities by the call that shows them; flash figures exist only past the last closing, so they age by themselves
MARKET = (*INDICATORS, *[f"{name}_change_{months}" for months in CHANGES for name in INDICATORS])
GROUPS: dict[str, tuple[str, ...]] = {
    "cash": tuple(name for name, quantity in QUANTITIES.items() if quantity.tool == VERIFY),
    "closed": tuple(n for n, q in QUANTITIES.items() if q.tool == REVIEW and n.startswith("closed_")),
    "flash": tuple(n for n, q in QUANTITIES.items() if q.tool == REVIEW and n.startswith("flash_")),
    "projected": tuple(name for name, quantity in QUANTITIES.items() if quantity.tool == PROJECT),
    "market": MARKET,
}
assert sorted(MARKET) == sorted(name for name, quantity in QUANTITIES.items() if quantity.tool == ANALYZE)


@dataclass(frozen=True)
class Entry:
    """One entry of the observation: name, unit of the value, scale that it is divided by, meaning."""

    name: str
    unit: str
    scale: float
    about: str


def _facts(max_pending: int) -> list[Entry]:
    """What is free to know each month."""
    facts = [
        Entry("month", "months", 132.0, "months since the start"),
        Entry("calls_left", "calls", 20.0, "tool calls left this month"),
        Entry("turned_away", "flag", 1.0, "last month's request was turned away"),
    ]
    for place in range(max_pending):
        request, notice = f"open_requests[{place}]", f"notices[{place}]"
        facts += [
            Entry(f"{request}.is_equity", "flag", 1.0, "an equity request is open"),
            Entry(f"{request}.is_debt", "flag", 1.0, "a debt request is open"),
            Entry(f"{request}.requested", "$", 1e8, "amount asked for"),
            Entry(f"{request}.age", "months", 6.0, "months since it was asked"),
            Entry(f"{notice}.is_equity", "flag", 1.0, "an equity request settled as this month opened"),
            Entry(f"{notice}.is_debt", "flag", 1.0, "a debt request settled as this month opened"),
            Entry(f"{notice}.requested", "$", 1e8, "amount that had been asked for"),
            Entry(f"{notice}.received", "$", 1e8, "amount received, 0 if refused"),
            Entry(f"{notice}.rate", "% a year", 10.0, "rate of the debt received"),
        ]
    return facts


def observation_table(max_pending: int, shows_terms: bool) -> tuple[Entry, ...]:
    """The entries of an observation in order: facts, ages, quantities, and where wanted the terms of the score."""
    ages = [Entry(f"{name}.age", "months", 12.0, f"age of the {name} figures, -1 never shown") for name in GROUPS]
    shown = [
        Entry(name, QUANTITIES[name].unit, QUANTITIES[name].scale, QUANTITIES[name].about)
        for names in GROUPS.values()
        for name in names
    ]
    terms = [
        Entry("tool_cost", "$ a call", 80e3, "lambda of the score"),
        Entry("revenue_multiple", "x revenue", 10.0, "m of the score"),
    ]
    return (*_facts(max_pending), *ages, *shown, *(terms if shows_terms else ()))


def layout_digest(max_pending: int, shows_terms: bool) -> str:
    """SHA-256 of version, observation and actions: weights trained on another layout have another digest."""
    entries = [f"{entry.name}:{entry.unit}:{entry.scale:g}" for entry in observation_table(max_pending, shows_terms)]
    text = "\n".join([f"layout {VERSION}, limit {LIMIT:g}", *entries, "actions", *ACTIONS])
    return hashlib.sha256(text.encode()).hexdigest()
