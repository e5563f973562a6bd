"""The calls that an agent may make: one table gives the schemas, the checks of arguments and the menus of play.

Seven calls are the paper's (sections 3.3 and 3.4): four tools and three actions. Two more are the agent's notes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arena_jax.errors import ArenaError, is_number, shown, unknown
from arena_jax.llm.documents import DOCUMENTS
from arena_jax.llm.paging import json_bytes
from arena_jax.params import Params
from arena_jax.projection import RANGES
from arena_jax.structs import INSTRUMENTS, MAX_PROJECTION
from arena_jax.tools import INDICATORS

INFORMATION, ACTION, MEMORY = "information", "action", "memory"
MEMORY_CALLS = 20  # a month
NOTE_BYTES = 1_000  # of a note as JSON
REQUIRED = object()  # in place of a default
MANY = 9_999  # above any month or page: a bound that tells no horizon
HISTORY = 13  # months of market history unless asked: the last of them is the same month a year earlier


@dataclass(frozen=True)
class Argument:
    """One argument: its JSON type, meaning, limits or choices, default, and a value to begin with."""

    kind: str  # integer, number, text, choice, choices
    about: str
    default: Any = REQUIRED
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    example: Any = None

    def schema(self) -> dict[str, Any]:
        """JSON schema."""
        found: dict[str, Any] = {"description": self.about}
        if self.kind == "choices":
            found |= {"type": "array", "items": {"type": "string", "enum": list(self.choices)}, "minItems": 1}
        elif self.kind == "choice":
            found |= {"type": "string", "enum": list(self.choices)}
        elif self.kind == "text":
            found |= {"type": "string", "minLength": 1}
        else:
            found |= {"type": self.kind, "minimum": self.low, "maximum": self.high}
        if self.default is not REQUIRED and self.default is not None:
            found["default"] = list(self.default) if self.kind == "choices" else self.default
        return found

    def checked(self, name: str, value: Any) -> Any:
        """The value as plain data, or an `ArenaError` that says what is allowed."""
        return _CHECKS[self.kind](self, name, value)


def _number(argument: Argument, name: str, value: Any) -> Any:
    is_whole = argument.kind == "integer"
    kind = "a whole number" if is_whole else "a number"
    good = is_number(value) and argument.low <= value <= argument.high and (not is_whole or value == int(value))
    if not good:
        raise ArenaError(
            f"{name} must be {kind} from {argument.low:,.12g} to {argument.high:,.12g}, got {_seen(value)}"
        )
    return int(value) if is_whole else float(value)


def _choice(argument: Argument, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ArenaError(f"{name} must be one of {', '.join(argument.choices)}; got {_seen(value)}")
    if value not in argument.choices:
        raise unknown(name, value[:60], argument.choices)
    return value


def _choices(argument: Argument, name: str, value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not value:
        raise ArenaError(f'{name} must be a list of names such as ["{argument.choices[0]}"], got {_seen(value)}')
    named = {_choice(argument, name, item) for item in value}
    return [choice for choice in argument.choices if choice in named]


def _text(argument: Argument, name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ArenaError(f"{name} must be a text that is not empty, got {_seen(value)}")
    text = value.encode("utf-8", "replace").decode("utf-8")  # lone surrogates fit in no file
    if json_bytes(text) > NOTE_BYTES:
        raise ArenaError(f"{name} must be at most {NOTE_BYTES} bytes as JSON, got {json_bytes(text)}; shorten it")
    return text


_CHECKS: dict[str, Callable[[Argument, str, Any], Any]] = {
    "integer": _number,
    "number": _number,
    "choice": _choice,
    "choices": _choices,
    "text": _text,
}


def _seen(value: Any) -> str:
    """A value from anywhere in one short line."""
    try:
        return shown(value)
    except Exception:  # a repr that fails: too deep, too many digits, hostile
        return f"a {type(value).__name__} that can't be shown"


@dataclass(frozen=True)
class Tool:
    """One call: what it does and its arguments."""

    kind: str
    about: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)

    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        return {
            "type": "object",
            "properties": {name: argument.schema() for name, argument in self.arguments.items()},
            "required": [name for name, argument in self.arguments.items() if argument.default is REQUIRED],
            "additionalProperties": False,
        }


def spoken_range(low: float, high: float, unit: str) -> str:
    """1 to 6 months, 70 to 100%; or 1 month where both ends are the same."""
    numbers = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    if unit == "%":
        return f"{numbers}%"
    return f"{numbers} {unit.removesuffix('s') if high == 1 else unit}"


def make_tools(params: Params) -> dict[str, Tool]:
    """The calls by name, worded for the parameters of the world."""
    page = Argument("integer", "page of a long answer; each page is a call", 1, 1, MANY)
    relaxed = "" if params.exclusive else " In this company a closing leaves the month open for one more action."
    ends = "Ends the month."
    delay = spoken_range(int(params.delay_min), int(params.delay_max), "months")
    share = spoken_range(round(100 * float(params.fraction_min), 2), round(100 * float(params.fraction_max), 2), "%")
    at_once = "one request" if params.max_pending == 1 else f"{params.max_pending} requests"

    def assumption(name: str, about: str, example: float | None = None) -> Argument:
        return Argument("number", about, REQUIRED, *RANGES[name], example=example)

    return {
        "verify_cash_position": Tool(INFORMATION, "Current cash, one number in $."),
        "review_financial_records": Tool(
            INFORMATION,
            'Read one document of the company file; "list" shows what there is. Statements exist up to the last closed '
            "month; past it only flash figures of the operating reports"
            + (
                ", whose error grows with the months since."
                if float(params.noise) * float(params.flash_error) > 0
                else "."
            ),
            {
                "document": Argument("choice", "name of the document", "financial_package", choices=DOCUMENTS),
                "month": Argument(
                    "integer", "month of a monthly document (0 is Jan 2xx0); the latest if left out", None, -1, MANY
                ),
                "page": page,
            },
        ),
        "analyze_market_conditions": Tool(
            INFORMATION,
            "History of market and industry indicators up to this month; no forecast.",
            {
                "indicators": Argument("choices", "indicators to show", INDICATORS, choices=INDICATORS),
                "months": Argument("integer", "months of history, this one included", HISTORY, 1, MANY),
                "page": page,
            },
        ),
        "conduct_cashflow_projection": Tool(
            INFORMATION,
            "Project the cash month by month from your own assumptions. It starts from the balances of the last closed "
            "month and adds what is known since (proceeds, debt service): stale books or poor assumptions give a poor "
            "forecast.",
            {
                "user_growth": assumption("user_growth", "new borrowers, % of active ones a month", 0.5),
                "lending_rate": assumption("lending_rate", "lending rate, % a year", 7.0),
                "repayment_rate": assumption("repayment_rate", "share of loans repaid a month, such as 0.028", 0.028),
                "charge_off_rate": assumption("charge_off_rate", "share of loans lost a month, such as 0.002", 0.002),
                # the contracts tell the costs, so nothing else does
                "servicing_cost": assumption("servicing_cost", "$ a borrower and month"),
                "fixed_cost": assumption("fixed_cost", "$ a month"),
                "acquisition_cost": assumption("acquisition_cost", "$ a new borrower"),
                "funding": Argument("number", "$ of proceeds that you expect", 0.0, *RANGES["funding"]),
                "funding_month": Argument("integer", "months from now until they arrive", 0, *RANGES["funding_month"]),
                "horizon": Argument("integer", "months ahead", 12, 1, MAX_PROJECTION),
            },
        ),
        "book_closing": Tool(
            ACTION,
            "Close the books through the end of last month: exact statements become readable. "
            + (ends if params.exclusive else "Leaves the month open."),
        ),
        "fund_raising_request": Tool(
            ACTION,
            f"Ask investors (equity) or lenders (debt) for capital. The outcome is known when it settles, after "
            f"{delay}; an approved request brings {share} of its amount. At most {at_once} may be open: a further one "
            f"is turned away. {ends}",
            {
                "instrument": Argument("choice", "equity or debt", choices=tuple(INSTRUMENTS), example="equity"),
                "amount": Argument("number", "$ asked for", REQUIRED, 1, float(params.max_request), example=20e6),
            },
        ),
        "pass": Tool(ACTION, f"Take no action. {ends}{relaxed}"),
        "save_note": Tool(
            MEMORY,
            f"Save a note for later months, at most {NOTE_BYTES} bytes. Free; {MEMORY_CALLS} note calls a month.",
            {"text": Argument("text", "the note")},
        ),
        "recall_notes": Tool(
            MEMORY,
            "Read your notes, newest first, with the date, open requests and calls left. Free.",
            {"page": Argument("integer", "page of the notes", 1, 1, MANY)},
        ),
    }


def checked_arguments(tools: Mapping[str, Tool], name: Any, arguments: Any) -> dict[str, Any]:
    """The arguments of a call, checked and with defaults; raises `ArenaError` for anything that does not fit.

    arguments: a mapping, JSON text of one (as OpenAI-compatible clients hand it over), or None for no arguments.
    """
    if not isinstance(name, str) or name not in tools:
        raise unknown("tool", name[:60] if isinstance(name, str) else _seen(name), tools)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            raise ArenaError(f"arguments of {name} are not JSON") from None
    given = {} if arguments is None else arguments
    if not isinstance(given, Mapping):
        raise ArenaError(f"arguments of {name} must be an object, got {_seen(given)}")
    expected = tools[name].arguments
    for key in given:
        if not isinstance(key, str) or key not in expected:
            label = key[:60] if isinstance(key, str) else _seen(key)
            if not expected:
                raise ArenaError(f"{name} takes no arguments, got {label!r}")
            raise unknown(f"argument of {name}", label, expected)
    found: dict[str, Any] = {}
    for key, argument in expected.items():
        value = given.get(key)
        if value is None:  # clients with strict schemas send null for what is left out
            if argument.default is REQUIRED:
                raise ArenaError(f"{name} needs {key}: {argument.about}")
            found[key] = list(argument.default) if argument.kind == "choices" else argument.default
        else:
            found[key] = argument.checked(key, value)
    if found.get("funding", 0) > 0 and found["funding_month"] < 1:
        raise ArenaError("funding needs a funding_month of at least 1 in which it arrives")
    return found


def formatted(tools: Mapping[str, Tool], style: str) -> list[dict[str, Any]]:
    """Name, description and JSON schema of every call as "openai", "mcp" or "plain" lists them."""
    if style not in _STYLES:
        raise unknown("format", style, _STYLES)
    return [_STYLES[style](name, tool) for name, tool in tools.items()]


def _openai(name: str, tool: Tool) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": tool.about, "parameters": tool.schema()}}


def _mcp(name: str, tool: Tool) -> dict[str, Any]:
    hints = {
        "readOnlyHint": tool.kind == INFORMATION,
        "destructiveHint": False,
        "idempotentHint": False,
        "openWorldHint": False,
    }
    return {"name": name, "description": tool.about, "inputSchema": tool.schema(), "annotations": hints}


def _plain(name: str, tool: Tool) -> dict[str, Any]:
    return {"name": name, "description": tool.about, "parameters": tool.schema()}


_STYLES: dict[str, Callable[[str, Tool], dict[str, Any]]] = {"openai": _openai, "mcp": _mcp, "plain": _plain}
