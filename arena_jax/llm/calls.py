"""What each call does: from a snapshot of the episode and checked arguments to the next snapshot and the answer.

Pure: nothing has happened until the session takes the new snapshot over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from arena_jax.errors import ArenaError
from arena_jax.llm import answers
from arena_jax.llm.dates import date_label
from arena_jax.llm.episode import Episode, World, close_books, end_month, use_tool
from arena_jax.llm.tool_schemas import INFORMATION, MEMORY, MEMORY_CALLS, Tool
from arena_jax.structs import Action, pass_month, request_funding
from arena_jax.structs import close_books as closing
from arena_jax.tools import assume, call_tool

Answer = dict[str, Any]


def check_open(episode: Episode) -> None:
    """Refuse calls after the end."""
    if episode.status != "running":
        ended = "the company is bankrupt" if episode.status == "bankrupt" else "your time as CFO is served"
        raise ArenaError(f"it is over: {ended}; no further call is possible")


def apply(
    world: World, episode: Episode, name: str, tool: Tool, arguments: Mapping[str, Any]
) -> tuple[Episode, Answer]:
    """The episode after a call with checked arguments, and its answer; raises `ArenaError` if it is refused."""
    check_open(episode)
    if tool.kind == INFORMATION and episode.calls_left <= 0:
        raise ArenaError(f"no tool calls are left in {date_label(episode.month)}; act to end the month")
    if tool.kind == MEMORY and episode.memory_calls >= MEMORY_CALLS:
        raise ArenaError(f"no note calls are left in {date_label(episode.month)}: {MEMORY_CALLS} a month")
    after, answer = _CALLS[name](world, episode, **arguments)
    return after, answer | stamp(after) if tool.kind in (INFORMATION, MEMORY) else answer


def stamp(episode: Episode) -> Answer:
    """Where one stands, in every answer that does not end a month."""
    return {"date": date_label(episode.month), "tool_calls_left": episode.calls_left}


def _verify(world: World, episode: Episode) -> tuple[Episode, Answer]:
    return use_tool(world, episode, call_tool("verify_cash_position")), answers.cash(episode)


def _review(world: World, episode: Episode, document: str, month: int | None, page: int) -> tuple[Episode, Answer]:
    answer = answers.records(world, episode, document, month, page)
    shows_figures = document == "financial_package"  # the one document that policies' notebooks keep
    call = call_tool("review_financial_records", document=document if shows_figures else "list")
    return use_tool(world, episode, call), answer


def _analyze(world: World, episode: Episode, indicators: list[str], months: int, page: int) -> tuple[Episode, Answer]:
    answer = answers.market(world, episode, indicators, months, page)
    seen = answers.indicators_on(answer)
    return use_tool(world, episode, call_tool("analyze_market_conditions", indicators=seen)), answer


def _project(world: World, episode: Episode, **assumptions: Any) -> tuple[Episode, Answer]:
    assumed = assume(**assumptions)
    call = call_tool("conduct_cashflow_projection", assumptions=assumed)
    return use_tool(world, episode, call), answers.projection(world, episode, assumed, assumptions["horizon"])


def _end(world: World, episode: Episode, action: Action, what: str) -> tuple[Episode, Answer]:
    after = end_month(world, episode, action)
    return after, answers.month_end(world, episode, after, what)


def _close(world: World, episode: Episode) -> tuple[Episode, Answer]:
    through = date_label(episode.month - 1)
    if episode.has_closed:
        raise ArenaError(f"the books are closed through {through} already")
    what = f"books closed through {through}"
    if world.env.params.exclusive:
        return _end(world, episode, closing(), what)
    after = close_books(world, episode)
    return after, {"result": what, "now": answers.facts(world, after)}


def _raise(world: World, episode: Episode, instrument: str, amount: float) -> tuple[Episode, Answer]:
    return _end(world, episode, request_funding(instrument, amount), f"{instrument} request of ${amount:,.0f} entered")


def _pass(world: World, episode: Episode) -> tuple[Episode, Answer]:
    return _end(world, episode, pass_month(), "no action")


def _save(world: World, episode: Episode, text: str) -> tuple[Episode, Answer]:
    notes = (*episode.notes, (date_label(episode.month), text))
    return replace(episode, notes=notes, memory_calls=episode.memory_calls + 1), {"saved": True, "notes": len(notes)}


def _recall(world: World, episode: Episode, page: int) -> tuple[Episode, Answer]:
    answer = answers.notes(world, episode, page)
    return replace(episode, memory_calls=episode.memory_calls + 1), answer


_CALLS: Mapping[str, Callable[..., tuple[Episode, Answer]]] = {
    "verify_cash_position": _verify,
    "review_financial_records": _review,
    "analyze_market_conditions": _analyze,
    "conduct_cashflow_projection": _project,
    "book_closing": _close,
    "fund_raising_request": _raise,
    "pass": _pass,
    "save_note": _save,
    "recall_notes": _recall,
}
