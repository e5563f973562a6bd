"""One episode at a terminal: the calls of the session as menus, its answers as tables and charts.

It knows what an agent knows: everything shown is an answer of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from arena_jax.analysis.published import published_results
from arena_jax.analysis.table import money, plain_table
from arena_jax.arena import Arena, make
from arena_jax.errors import ArenaError, printable
from arena_jax.llm.charts import cash_chart, sparkline
from arena_jax.llm.documents import MONTHLY
from arena_jax.llm.session import ArenaSession
from arena_jax.llm.tool_schemas import REQUIRED, Argument, Tool, make_tools
from arena_jax.scenario import digest

CHOICES = {
    "1": ("verify cash", "verify_cash_position"),
    "2": ("records", "review_financial_records"),
    "3": ("market", "analyze_market_conditions"),
    "4": ("projection", "conduct_cashflow_projection"),
    "5": ("close books", "book_closing"),
    "6": ("raise funds", "fund_raising_request"),
    "7": ("pass", "pass"),
    "8": ("save note", "save_note"),
    "9": ("notes", "recall_notes"),
    "c": ("chart", None),
    "h": ("help", None),
    "q": ("quit", None),
}
BACK = object()  # to the menu, in place of a value
_TOTALS = ("Total", "Net ", "Income before tax", "Loans, net", "Cash at the end", "Closing")
_SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9}
_SPARK = 13  # values in a small chart

Verified = list[tuple[int, float]]  # month and cash


class Player:
    """A person at a console. `verified` is the cash that was verified in an earlier sitting."""

    def __init__(self, session: ArenaSession, console: Console, verified: Verified) -> None:
        self._session, self._console, self._verified = session, console, verified
        self._tools = make_tools(session.world.params)
        self._last: dict[tuple[str, str], Any] = {}  # what was entered for an argument before

    def play(self) -> bool:
        """Months until the end, or until the player quits; whether the episode is over."""
        if self._session.calls_made == 0:
            self._help()
        while not self._session.is_over:
            self._show_facts(self._session.facts())
            if not self._month():
                return False
        self._show_end()
        return True

    def _month(self) -> bool:
        """Calls until the month has ended; False if the player quits."""
        while True:
            self._show_menu()
            choice = self._ask("Choice").lower()
            if choice == "q":
                return False
            if choice == "c":
                self._show_chart()
            elif choice == "h":
                self._help()
            elif choice in CHOICES:
                name = CHOICES[choice][1] or ""
                arguments = self._ask_arguments(name, self._tools[name])
                if arguments is not None and "month_ended" in self._call(name, arguments):
                    return True
            else:
                self._say(f"{choice[:20]!r} is not on the menu" if choice else "enter what the menu shows", "yellow")

    def _call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        month = self._session.facts()["month"]
        answer = self._session.call(name, arguments)
        if "error" in answer:
            self._say(answer["error"], "yellow")
            return answer
        if name == "verify_cash_position":
            self._verified.append((month, answer["cash"]))
        self._show(answer)
        if answer.get("pages", 1) > answer.get("page", 1) and self._ask("Next page, one more call? y/n [n]") == "y":
            return self._call(name, arguments | {"page": answer["page"] + 1})
        return answer

    # asking

    def _ask(self, question: str) -> str:
        return self._console.input(Text(f"{question}: ")).strip()

    def _ask_arguments(self, name: str, tool: Tool) -> dict[str, Any] | None:
        """What is entered for each argument; None if the player goes back to the menu."""
        found: dict[str, Any] = {}
        for key, argument in tool.arguments.items():
            is_asked = key != "month" or name != "review_financial_records" or found["document"] in MONTHLY
            if key != "page" and is_asked:
                first = argument.example if argument.default is REQUIRED else argument.default
                value = self._ask_argument(key, argument, self._last.get((name, key), first))
                if value is BACK:
                    return None
                if value is not None:
                    found[key] = value
                    if argument.default is not None:  # the latest stays the latest
                        self._last[name, key] = value
        return found

    def _ask_argument(self, key: str, argument: Argument, default: Any) -> Any:
        if argument.choices:
            entries = [Text(f"{i} {choice}", "dim") for i, choice in enumerate(argument.choices, start=1)]
            self._console.print(Columns(entries, padding=(0, 2)))
        shown = _default(argument, default)
        while True:
            text = self._ask(f"  {key} ({argument.about})" + (f" [{shown}]" if shown else ""))
            if text.lower() == "b":
                return BACK
            if not text and (shown or argument.default is not REQUIRED):
                return default
            try:
                if not text:
                    raise ArenaError(f"{key} has no default, enter a value")
                return argument.checked(key, _entered(argument, text))
            except ArenaError as error:  # at the menu a mistyped amount would be an action
                self._say(f"{error}; b goes back to the menu", "yellow")

    # showing

    def _say(self, text: str, style: str = "") -> None:
        """Print text as it is: no markup, no control characters."""
        self._console.print(Text(printable(text, keep="\n"), style=style))

    def _help(self) -> None:
        self._say(self._session.system_prompt)
        self._say(
            "Enter takes what stands in brackets, b goes back to the menu. Amounts may be written 20M or 350k. "
            "Quit keeps the game.",
            "dim",
        )

    def _show_menu(self) -> None:
        entries = [f"{key} {label}" for key, (label, _) in CHOICES.items()]
        for row in (entries[:4], entries[4:7], entries[7:]):
            self._say("  ".join(f"{entry:<14}" for entry in row).rstrip(), "bold")

    def _show_facts(self, facts: dict[str, Any]) -> None:
        self._console.rule(Text(f"{facts['date']} · {facts['tool_calls_left']} tool calls left"))
        for request in facts["open_requests"]:
            self._say(f"Open: {request['instrument']} of {money(request['amount'])}, asked in {request['asked']}")
        for notice in facts["notices"]:
            text = f"{notice['instrument']} of {money(notice['requested'])} asked in {notice['asked']}"
            outcome = f"approved, {money(notice['received'])} received" if notice["received"] else "refused"
            rate = f" at {notice['rate']:.2f}% a year" if "rate" in notice else ""
            self._say(f"Notice: {text}: {outcome}{rate}", "cyan")

    def _has_chart(self) -> bool:
        return len({month for month, _ in self._verified}) > 1

    def _show_chart(self) -> None:
        if self._has_chart():
            self._say(cash_chart(self._verified, self._console.width))
        else:
            self._say("the chart begins when cash has been verified in two months", "dim")

    def _show(self, answer: dict[str, Any]) -> None:
        for key, show in _SHOWN.items():
            if key in answer:
                show(self, answer)
                return

    def _show_result(self, answer: dict[str, Any]) -> None:
        self._say(answer["result"], "green")
        if "month_ended" not in answer:
            self._show_facts(answer["now"])

    def _show_cash(self, answer: dict[str, Any]) -> None:
        self._say(f"Cash: ${answer['cash']:,}", "green")
        if self._has_chart():
            self._show_chart()

    def _show_text(self, answer: dict[str, Any]) -> None:
        self._say(answer["text"])

    def _show_history(self, answer: dict[str, Any]) -> None:
        table = _table(["indicator", "now", "3 months", "12 months", f"to {answer['to']}"], left=(0, 4))
        for label, values in answer["history"].items():
            changes = [f"{values[-1] - values[-1 - n]:+.2f}" if len(values) > n else "" for n in (3, 12)]
            table.add_row(Text(label), f"{values[-1]:.2f}", *changes, sparkline(values[-_SPARK:]))
        self._console.print(table)

    def _show_projection(self, answer: dict[str, Any]) -> None:
        path, lowest = answer["cash_at_opening_of_month"], answer["lowest"]
        start = self._session.facts()["month"] + 1
        self._say(f"Projected cash, from the balances of {answer['from_balances_of']}:")
        self._say(cash_chart([(start + i, cash) for i, cash in enumerate(path)], self._console.width))
        self._say(f"lowest {money(lowest['cash'])} in {lowest['date']}, last {money(path[-1])}")

    def _show_notes(self, answer: dict[str, Any]) -> None:
        for note in answer["notes"]:
            self._say(f"{note['date']}: {note['note']}")
        if not answer["notes"]:
            self._say("no notes yet", "dim")

    def _show_saved(self, answer: dict[str, Any]) -> None:
        self._say("saved", "green")

    def _show_lines(self, answer: dict[str, Any]) -> None:
        lines = answer["lines"]
        rows = [list(pair) for pair in lines.items()] if isinstance(lines, dict) else lines
        heads = answer.get("columns", ["", ""])
        rows = rows + [[f"flash, {key}", value] for key, value in answer.get("flash", {}).items()]
        table = _table(heads, left=(0, 1) if isinstance(lines, list) and heads == ["", ""] else (0,))
        for label, *cells in rows:
            bold = "bold" if str(label).startswith(_TOTALS) else ""
            table.add_row(Text(str(label), bold), *[Text(_shown(cell), bold) for cell in cells])
        self._console.print(table)
        for key, words in (("unit", "in "), ("note", "")):
            if key in answer:
                self._say(f"{words}{answer[key]}", "dim")

    def _show_end(self) -> None:
        score = float(self._session.facts()["score"])
        self._console.rule(Text("The end"))
        survived = self._session.status == "survived"
        self._say(
            "You served your whole time." if survived else "The company is bankrupt.", "green" if survived else "red"
        )
        self._say(f"Score: {money(score)}", "bold")
        self._show_chart()
        place, rows = standing(score)
        self._say(f"Place {place} among you and the {len(rows)} published players, by mean score:")
        table = _table(["", "player", "score"], left=(1,))
        listed = sorted([*rows, ("You", score)], key=lambda row: -row[1])
        for i, (name, value) in enumerate(listed, start=1):
            if i <= 3 or abs(i - place) <= 1:
                table.add_row(str(i), Text(name, "bold" if name == "You" else ""), money(value))
        self._console.print(table)
        self._say("Published: paper, Table 1, means of five runs.", "dim")
        if not _is_published_world(self._session.world):
            self._say("They played by other rules or in another world than you, so the places don't compare.", "yellow")


# the field that tells what an answer is -> how it is shown
_SHOWN: dict[str, Callable[[Player, dict[str, Any]], None]] = {
    "result": Player._show_result,
    "cash": Player._show_cash,
    "text": Player._show_text,
    "history": Player._show_history,
    "cash_at_opening_of_month": Player._show_projection,
    "lines": Player._show_lines,
    "saved": Player._show_saved,
    "notes": Player._show_notes,
}


def _is_published_world(env: Arena) -> bool:
    """Whether a world has the paper's rules and trajectory, as far as this package has them."""
    default = make()
    return (digest(env.params), digest(env.scenario)) == (digest(default.params), digest(default.scenario))


def standing(score: float) -> tuple[int, list[tuple[str, float]]]:
    """One's place by score among the published players, from 1, and their mean scores in $."""
    rows = [(row.agent, row.means["score"]) for row in published_results().values() if "Overall" not in row.agent]
    return 1 + sum(value > score for _, value in rows), rows


def _table(heads: Sequence[str], left: tuple[int, ...]) -> Table:
    table = plain_table()
    for i, head in enumerate(heads):
        table.add_column(head, justify="left" if i in left else "right", overflow="fold")
    return table


def _shown(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, int):
        return f"({-cell:,})" if cell < 0 else f"{cell:,}"
    return str(cell)


def _default(argument: Argument, value: Any) -> str:
    if argument.kind == "choices":
        return "all" if list(value) == list(argument.choices) else " ".join(value)
    if value is None:
        return "" if argument.default is REQUIRED else "latest"
    return f"{value:,g}" if isinstance(value, int | float) and value < 1e4 else _rounded(value)


def _rounded(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def _entered(argument: Argument, text: str) -> Any:
    """What was typed, as the value of an argument; whether it is allowed is checked elsewhere."""
    if argument.kind == "choices":
        return [_chosen(argument, part) for part in text.replace(",", " ").split()]
    if argument.kind == "choice":
        return _chosen(argument, text)
    return text if argument.kind == "text" else _amount(text)


def _chosen(argument: Argument, text: str) -> str:
    """A choice by number or name; what is neither stays as it is."""
    if text.isascii() and text.isdigit() and 1 <= int(text) <= len(argument.choices):
        return argument.choices[int(text) - 1]
    return text


def _amount(text: str) -> Any:
    """A number as people write it: 20M, 350k, 1,500; other text stays as it is."""
    plain = text.replace(",", "").replace("$", "").lower()
    factor = _SUFFIXES.get(plain[-1:], 1)
    try:
        number = float(plain[:-1] if factor > 1 else plain) * factor
    except ValueError:
        return text
    return int(number) if number.is_integer() else number
