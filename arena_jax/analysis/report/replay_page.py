"""A replayed episode as a page: cash and the market over time, then month by month."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import numpy as np

from arena_jax.analysis.report.charts import crisis_spans
from arena_jax.analysis.report.figures import (
    PALETTE,
    Axis,
    DataTable,
    Dots,
    Figure,
    Line,
    Mark,
    Panel,
    Points,
    Style,
)
from arena_jax.analysis.report.page import data_table, figure_section, page, section
from arena_jax.analysis.table import figure, money
from arena_jax.arena import ENVIRONMENTS
from arena_jax.llm.paging import compact
from arena_jax.llm.replay import Month, Replay
from arena_jax.llm.replay_view import WARNING, amount, hidden_text, open_text, settlement_text, shown_when
from arena_jax.tools import QUANTITIES
from arena_jax.version import __version__

_TRUE = Style("true cash as the month opens", PALETTE[0])
_SHOWN = Style("cash that the agent verified", PALETTE[6], shape="hollow")
# lanes of their own, since a request and the answer to another can fall together
_ASKED = Style("request made", PALETTE[5], shape="dot")
_RECEIVED = Style("money arrives", PALETTE[2], shape="dot")
_REFUSED = Style("refusal becomes known", PALETTE[1], shape="dot")
_EQUITY, _DEBT = Style("chance of equity", PALETTE[0]), Style("chance of debt", PALETTE[3], dash="dash")


def replay_figures(replay: Replay) -> list[Figure]:
    """Cash, true and verified, with the requests; and what no tool shows: the chances of a request."""
    months = replay.months
    month = np.array([m.month for m in months])
    cash = np.array([m.opening_cash for m in months])
    axis = Axis("month", "month", float(month[0]), float(month[-1] + 1))
    source = f"n 1: {replay.player}, {replay.episode}. {ENVIRONMENTS[0]}, arena_jax {__version__}. {WARNING}"
    spans = crisis_spans(replay.env.scenario)
    verified = [_verified(m) for m in months]
    ends = np.append(month, month[-1] + 1), np.append(cash, months[-1].closing_cash)
    notes = [f"{m.date}, month {m.month}: true cash {money(m.opening_cash)}; {m.decided}" for m in months]
    marks: list[Mark] = [*spans, Line(_TRUE, *ends, notes=[*notes, f"the end: {money(months[-1].closing_cash)}"])]
    told = lambda m: "; ".join(settlement_text(settled) for settled in m.settled)
    seen = [(m, shown) for m, shown in zip(months, verified, strict=True) if shown is not None]
    dots = [
        Dots(
            _SHOWN,
            np.array([m.month for m, _ in seen], dtype=float),
            np.array([m.opening_cash for m, _ in seen]),
            [f"{m.date}: verified {money(shown)}" for m, shown in seen],
        )
    ]
    lanes = [
        _lane(0, _ASKED, [m for m in months if _asks(m)], lambda m: m.decided),
        _lane(1, _RECEIVED, [m for m in months if any(s.received for s in m.settled)], told, at_end=True),
        _lane(2, _REFUSED, [m for m in months if any(not s.received for s in m.settled)], told, at_end=True),
    ]
    names = [one.style.label for one in lanes]
    rows = [
        [m.date, str(m.month), money(m.opening_cash), "" if shown is None else money(shown), m.decided, told(m)]
        for m, shown in zip(months, verified, strict=True)
    ]
    chances = [np.array([getattr(m, name) for m in months]) for name in ("chance_equity", "chance_debt")]
    lines: list[Mark] = [
        Line(
            one,
            month,
            chance,
            notes=[f"{m.date}: {one.label} {figure('share', c)}" for m, c in zip(months, chance, strict=True)],
        )
        for one, chance in zip((_EQUITY, _DEBT), chances, strict=True)
    ]
    return [
        Figure(
            key="cash",
            title="Cash, true and known",
            about="What the company had as each month opened, and what the agent saw of it. Shaded: the surges of "
            "growth that make the crises.",
            source=source,
            summary=f"Cash goes from {money(cash[0])} to {money(months[-1].closing_cash)}; the end: {replay.status}.",
            panels=[Panel("", axis, Axis("cash", "$"), [*marks, *(dots if seen else [])])],
            legend=(_TRUE, _SHOWN) if seen else (_TRUE,),
            table=DataTable(("Date", "Month", "True cash", "Verified", "Decided", "Settled at its end"), rows),
        ),
        Figure(
            key="requests",
            title="Requests and answers",
            about="When money was asked for, and when it came or was refused. A request stands at its month, an answer "
            "at the end of the month that it settles in.",
            source=source,
            summary=", ".join(f"{name}: {len(lane.x)}" for name, lane in zip(names, lanes, strict=True)) + ".",
            panels=[Panel("", axis, Axis("", rows=names), [*spans, *lanes])],
            missing="" if len(lanes[0].x) else "Nothing was asked for.",
            table=DataTable(
                ("Date", "Month", "Asked", "Settled at its end"),
                [
                    [m.date, str(m.month), m.decided if _asks(m) else "", told(m)]
                    for m in months
                    if _asks(m) or m.settled
                ],
            ),
        ),
        Figure(
            key="chances",
            title="Chance that a request is approved",
            about="Hidden from the agent: what a request made in each month would have been approved with.",
            source=source,
            summary=f"Equity from {figure('share', chances[0].min())} to {figure('share', chances[0].max())}.",
            panels=[Panel("", axis, Axis("chance", "share", 0.0, 1.0), [*spans, *lines])],
            legend=(_EQUITY, _DEBT),
            table=DataTable(
                ("Date", "Market", "Stress", "Equity", "Debt"),
                [
                    [
                        m.date,
                        m.regime,
                        f"{m.stress:.2f}",
                        figure("share", m.chance_equity),
                        figure("share", m.chance_debt),
                    ]
                    for m in months
                ],
            ),
        ),
    ]


def _verified(month: Month) -> float | None:
    shown = [
        call.answer["cash"] for call in month.calls if call.tool == "verify_cash_position" and "cash" in call.answer
    ]
    return float(shown[-1]) if shown else None


def _asks(month: Month) -> bool:
    return month.decided.startswith("ask")


def _lane(row: int, look: Style, chosen: list[Month], told: Callable[[Month], str], at_end: bool = False) -> Points:
    """Marks in a row of their own, at the opening or at the end of the chosen months."""
    x = np.array([m.month + at_end for m in chosen], dtype=float)
    nothing = np.full(len(chosen), np.nan)
    return Points(look, [row] * len(chosen), x, nothing, nothing, [f"{m.date}: {told(m)}" for m in chosen])


def replay_page(replay: Replay) -> bytes:
    """The page of an episode."""
    record = replay.record
    facts = [
        ("Player", replay.player),
        ("Episode", replay.episode),
        ("Environment", f"{ENVIRONMENTS[0]}, arena_jax {__version__}"),
        ("End", f"{replay.status} after {record['months_survived']} months, score {money(record['score'])}"),
    ]
    sections = [f'<p class="warning">{escape(WARNING)}</p>', *[figure_section(one) for one in replay_figures(replay)]]
    body = "".join(_month(month) for month in replay.months)
    about = (
        "Each month opens with what the agent knew beside what was true, then what it asked and was shown, what it "
        "decided, what settled, and the month's exact statements, whether it ever saw them or not. "
        "True is what a tool would have shown in that month with the books closed; of a projection, the cash that came."
    )
    sections.append(section("months", "Month by month", body, about, f"{replay.player}, {replay.episode}"))
    links = [("cash", "Cash"), ("requests", "Requests"), ("chances", "Chances"), ("months", "Month by month")]
    return page(f"{ENVIRONMENTS[0]}: one episode of {replay.player}", facts, sections, links)


def _month(month: Month) -> str:
    happened = "; ".join([month.decided, *[settlement_text(settled) for settled in month.settled]])
    knew = DataTable(
        ("Quantity", "Knew", "Last shown", "True"),
        [
            [QUANTITIES[k.quantity].about, amount(k.unit, k.known), shown_when(k), amount(k.unit, k.true)]
            for k in month.knowledge
        ],
    )
    parts = [
        f"<p><b>Hidden:</b> {escape(hidden_text(month))}.</p>",
        data_table(knew, "What the agent knew, and what was true", is_open=False),
        *[_call(call.tool, compact(call.arguments or {}), compact(call.answer)) for call in month.calls],
        f"<p><b>Decided:</b> {escape(month.decided)}. <b>Result:</b> {escape(month.result)}.</p>",
        *[f"<p><b>Settled:</b> {escape(settlement_text(settled))}.</p>" for settled in month.settled],
        *[f"<p><b>Open:</b> {escape(open_text(place))}.</p>" for place in month.open_requests],
        *[_statement(name, table) for name, table in month.statements.items()],
    ]
    head = f"{month.date}, month {month.month}: {money(month.opening_cash)} → {money(month.closing_cash)}; {happened}"
    return f"<details><summary>{escape(head)}</summary>{''.join(parts)}</details>"


def _call(tool: str, arguments: str, answer: str) -> str:
    asked = f"<b>Asked:</b> {escape(tool)} <code>{escape(arguments)}</code>"
    return f"<p>{asked}<br><b>Shown:</b> <code>{escape(answer)}</code></p>"


def _statement(name: str, table: dict[str, object]) -> str:
    columns, lines = table["columns"], table["lines"]
    assert isinstance(columns, list) and isinstance(lines, list)
    rows = [
        [str(label), *[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells]]
        for label, *cells in lines
    ]
    return data_table(DataTable([*columns], rows), f"{name.replace('_', ' ').capitalize()}, {table['unit']}")
