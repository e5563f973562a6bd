"""What a call answers: plain data of what the agent may know (design sections 2.4 and 5.2), with units."""

from __future__ import annotations

from typing import Any

from arena_jax.llm.archive import settlements
from arena_jax.llm.dates import date_label
from arena_jax.llm.documents import read_document
from arena_jax.llm.episode import Episode, World, projected_cash
from arena_jax.llm.paging import json_bytes, page_of
from arena_jax.scenario import COLUMNS
from arena_jax.score import score
from arena_jax.structs import BAD_REQUEST, INSTRUMENT_NAMES, MONTH_TAKEN, PIPELINE_FULL, Assumptions

_NOTES_ENVELOPE = 120  # bytes around a page of notes, beside the month's facts
_BLOCK = 120  # months of one indicator in one piece
_MARKET_ENVELOPE = 220  # bytes around a page of history, so that one holds a year of all indicators
_TURNED_AWAY = {
    PIPELINE_FULL: "turned away: the most requests allowed are open already",
    BAD_REQUEST: "turned away: amount or instrument not allowed",
    MONTH_TAKEN: "turned away: a closing took the month",
}


def facts(world: World, episode: Episode) -> dict[str, Any]:
    """What a month opens with, free: date, open requests, notices, calls left; at the end the score."""
    seen = episode.observation
    found: dict[str, Any] = {"date": date_label(episode.month), "month": episode.month, "status": episode.status}
    if episode.status != "running":
        return found | {"score": round(float(score(world.env.params, episode.state))), "unit": "$"}
    return found | {
        "tool_calls_left": episode.calls_left,
        "open_requests": [
            {
                "instrument": INSTRUMENT_NAMES[int(place.instrument)],
                "amount": round(float(place.requested)),
                "asked": date_label(int(place.month_asked)),
            }
            for place in seen.open_requests
            if int(place.instrument) in INSTRUMENT_NAMES
        ],
        "notices": [_notice(notice) for notice in settlements(seen)],
        "unit": "$; rates in % a year",
    }


def _notice(settled: Any) -> dict[str, Any]:
    found = {
        "instrument": settled.instrument,
        "asked": date_label(settled.month_asked),
        "requested": settled.requested,
        "outcome": "approved" if settled.received else "refused",
        "received": settled.received,
    }
    return found | ({"rate": settled.rate} if settled.received and settled.instrument == "debt" else {})


def month_end(world: World, before: Episode, after: Episode, what: str) -> dict[str, Any]:
    """The end of a month: what was done, and how the next month opens."""
    turned_away = _TURNED_AWAY.get(int(after.observation.turned_away))
    result = turned_away if turned_away and after.status == "running" else what
    return {"month_ended": date_label(before.month), "result": result, "now": facts(world, after)}


def cash(episode: Episode) -> dict[str, Any]:
    """verify_cash_position."""
    return {"cash": round(float(episode.state.books.cash)), "unit": "$"}


def records(world: World, episode: Episode, document: str, month: int | None, page: int) -> dict[str, Any]:
    """review_financial_records."""
    return read_document(world.env.params, episode.archive, document, month, page)


def market(world: World, episode: Episode, indicators: list[str], months: int, page: int) -> dict[str, Any]:
    """analyze_market_conditions: oldest value first."""
    now = episode.month
    first = max(0, now - months + 1)
    pieces: list[tuple[str, list[Any]]] = []
    for name in indicators:
        for start in range(first, now + 1, _BLOCK):
            stop = min(start + _BLOCK, now + 1)
            label = f"{name}, {COLUMNS[name].unit}"
            if now + 1 - first > _BLOCK:
                label += f", {date_label(start)} to {date_label(stop - 1)}"
            pieces.append((label, [_shown(value) for value in world.history[name][start:stop]]))
    shown, pages = page_of(pieces, page, _MARKET_ENVELOPE)
    span = {"from": date_label(first), "to": date_label(now)}
    return {**span, "order": "monthly, oldest first", "history": dict(shown), **pages}


def _shown(value: Any) -> float:
    """An indicator as it is published: two decimals, one from 100 on."""
    return round(float(value), 2 if abs(value) < 100 else 1)


def indicators_on(answer: dict[str, Any]) -> list[str]:
    """The indicators that a page of market history shows."""
    return list(dict.fromkeys(label.split(",")[0] for label in answer["history"]))


def projection(world: World, episode: Episode, assumptions: Assumptions, horizon: int) -> dict[str, Any]:
    """conduct_cashflow_projection."""
    path = [round(value) for value in projected_cash(world, episode, assumptions)[:horizon]]
    lowest = min(range(horizon), key=path.__getitem__)
    closed = episode.archive.closed_through
    return {
        "from_balances_of": date_label(closed),
        "first": date_label(episode.month + 1),
        "cash_at_opening_of_month": path,
        "lowest": {"date": date_label(episode.month + 1 + lowest), "cash": path[lowest]},
        "unit": "$",
    }


def notes(world: World, episode: Episode, page: int) -> dict[str, Any]:
    """recall_notes: newest first, with the month's free facts."""
    items = [{"date": date, "note": text} for date, text in reversed(episode.notes)]
    now = facts(world, episode)
    shown, pages = page_of(items, page, _NOTES_ENVELOPE + json_bytes(now))
    return {"notes": shown, "now": now, **pages}
