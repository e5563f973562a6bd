"""A replayed episode for a terminal and as plain data: what the agent knew beside what was true."""

from __future__ import annotations

import dataclasses
from typing import Any

from arena_jax.analysis.table import figure, money
from arena_jax.errors import printable
from arena_jax.llm.archive import Settlement
from arena_jax.llm.dates import date_label
from arena_jax.llm.paging import compact
from arena_jax.llm.replay import Known, Month, Open, Replay

WARNING = (
    "What was true was hidden from the agent: this is for researchers after the fact, and tells the world to whoever "
    "plays it again."
)
# what a month's lines in the terminal tell, of all that is known
BRIEF = {
    "cash": "cash",
    "closed_cash": "cash in the statements",
    "closed_users": "borrowers",
    "closed_loans_gross": "loans",
    "closed_debt": "debt",
    "projected_cash_6": "cash six months on",
}
_LONGEST = 240  # characters of a call or its answer in a terminal
# lines of the statements that a terminal shows
_LINES = {
    "income_statement": ("Interest income", "Provision for credit losses", "Operating expenses", "Net income"),
    "balance_sheet": ("Cash", "Loans, net", "Total assets", "Total liabilities", "Total equity"),
    "cash_flow_statement": ("Net cash from operations", "Net cash from investing", "Net cash from financing"),
}


def amount(unit: str, value: float | None) -> str:
    """A quantity as people write it: $34.7M, 5,562, 2.99."""
    if value is None:
        return "–"
    if unit.startswith("$"):
        return money(value)
    return f"{value:,.0f}" if unit in ("borrowers", "shares") else f"{value:.2f}"


def shown_when(known: Known) -> str:
    """When a quantity was last shown."""
    if known.age is None:
        return "never shown"
    return "this month" if known.age == 0 else f"{known.age} month{'s' if known.age > 1 else ''} ago"


def settlement_text(settled: Settlement) -> str:
    """How a request ended, as its notice says."""
    asked = f"{settled.instrument} of {money(settled.requested)} asked in {date_label(settled.month_asked)}"
    outcome = f"{money(settled.received)} received" if settled.received else "refused"
    rate = f" at {settled.rate:.2f}% a year" if settled.received and settled.instrument == "debt" else ""
    return f"{asked}: {outcome}{rate}"


def open_text(place: Open) -> str:
    """An open request, and how it will end, which only the world knows."""
    ends = f"{money(place.will_receive)} will arrive" if place.will_receive else "will be refused"
    when = f"in {place.months_left} month{'s' if place.months_left > 1 else ''}"
    return (
        f"{place.instrument} of {money(place.requested)} asked in {date_label(place.month_asked)}; true: {ends} {when}"
    )


def hidden_text(month: Month) -> str:
    """What no tool shows of a month."""
    chances = (figure("share", month.chance_equity), figure("share", month.chance_debt))
    return f"market stress {month.stress:.2f} ({month.regime}); a request now: equity {chances[0]}, debt {chances[1]}"


def statement_text(month: Month) -> str:
    """The main lines of a month's exact statements."""
    told = []
    for name, wanted in _LINES.items():
        lines = {row[0]: row[1] for row in month.statements[name]["lines"]}
        told.append(", ".join(f"{label.lower()} {money(lines[label])}" for label in wanted))
    shares = month.statements["equity_statement"]["lines"][-1][1]
    return "; ".join([*told, f"shares {shares:,}"])


def month_lines(month: Month) -> list[tuple[str, str]]:
    """A month in a few lines, each with its name."""
    brief = [known for known in month.knowledge if known.quantity in BRIEF]
    knew = [f"{BRIEF[k.quantity]} {amount(k.unit, k.known)} ({shown_when(k)})" for k in brief if k.age is not None]
    unknown = [BRIEF[k.quantity] for k in brief if k.age is None]
    true = [f"{BRIEF[k.quantity]} {amount(k.unit, k.true)}" for k in brief if k.true is not None]
    lines = [
        ("knew", ", ".join(knew + ([f"never shown: {', '.join(unknown)}"] if unknown else []))),
        ("true", f"{', '.join(true)}; {hidden_text(month)}"),
    ]
    for call in month.calls:
        lines.append(("asked", _cut(f"{call.tool} {compact(call.arguments) if call.arguments else ''}")))
        lines.append(("shown", _cut(compact(call.answer))))
    lines.append(("decided", f"{month.decided}: {month.result}"))
    lines += [("settled", settlement_text(settled)) for settled in month.settled]
    lines += [("open", open_text(place)) for place in month.open_requests]
    lines.append(("books", f"{statement_text(month)}; cash {money(month.opening_cash)} to {money(month.closing_cash)}"))
    return lines


def _cut(text: str) -> str:
    plain = printable(text)
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 1]}…"


def replay_json(replay: Replay) -> dict[str, Any]:
    """Everything as plain data; money in $, shares in [0, 1]."""
    return {
        "player": replay.player,
        "episode": replay.episode,
        "status": replay.status,
        "about": WARNING,
        "record": replay.record,
        "months": [dataclasses.asdict(month) for month in replay.months],
    }
