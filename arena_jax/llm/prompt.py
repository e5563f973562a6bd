"""The one system prompt of every agent, in the paper's terms: role, survival first, budget, one action a month.

The horizon is not disclosed unless the run says so. The wording follows the parameters of the world, and its version
is raised with every change of the template.
"""

from __future__ import annotations

import hashlib

from arena_jax.data import data_path
from arena_jax.llm.tool_schemas import MEMORY_CALLS, spoken_range
from arena_jax.params import Params

PROMPT_VERSION = 2


def system_prompt(params: Params, horizon: int | None = None) -> str:
    """The prompt for a world; `horizon` in months is told if given."""
    share = spoken_range(round(100 * float(params.fraction_min), 2), round(100 * float(params.fraction_max), 2), "%")
    open_requests = "one request" if params.max_pending == 1 else f"{params.max_pending} requests"
    if params.exclusive:
        actions = "Each month ends with exactly one action: book_closing, fund_raising_request or pass."
    else:
        actions = (
            "Each month ends with one action: fund_raising_request or pass. book_closing may come before it and leaves "
            "the month open."
        )
    return (
        data_path("documents/system_prompt.txt")
        .read_text(encoding="utf-8")
        .format(
            budget=int(params.tool_budget),
            tool_cost=f", less ${float(params.tool_cost):,.0f} for each tool call you ever made"
            if params.tool_cost > 0
            else "",
            multiple=f"{float(params.revenue_multiple):g}",
            actions=actions,
            delay=spoken_range(int(params.delay_min), int(params.delay_max), "months"),
            share=share,
            open_requests=open_requests,
            memory_calls=MEMORY_CALLS,
            horizon="" if horizon is None else f" You serve for {horizon} months.",
        )
        .strip()
    )


def sha256(text: str) -> str:
    """SHA-256 of a text, as the journal names prompt and tool schemas."""
    return hashlib.sha256(text.encode()).hexdigest()
