"""Published against measured, for people (rich) and for machines (JSON)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from arena_jax.analysis.fidelity import Verdict
from arena_jax.analysis.table import figure, interval, or_null, plain_table


def fidelity_cells(verdict: Verdict) -> dict[str, str]:
    """One row of the fidelity table as text, by heading."""
    finding = verdict.finding
    shown = lambda value: figure(finding.unit, value, finding.is_difference)
    allowed = f"> {shown(finding.least).lstrip('+')}" if finding.rule == "at least" else ""
    if verdict.allowance is not None:
        allowed = f"± {shown(verdict.allowance).lstrip('+')}"
    return {
        "Finding": finding.claim,
        "Published": finding.published_text or shown(finding.published or 0.0),
        "Measured": shown(verdict.measured),
        "95% interval": interval(finding.unit, verdict.low, verdict.high, finding.is_difference),
        "Allowed": allowed,
        "Verdict": {"fail": "FAIL", "known": "known difference", "": "reported"}.get(verdict.verdict, verdict.verdict),
    }


def fidelity_table(verdicts: Sequence[Verdict], sources: Mapping[str, str], title: str) -> Table:
    """Published against measured, a section per source; sources and reasons of known differences below."""
    table = plain_table(title)
    for heading in fidelity_cells(verdicts[0]):
        table.add_column(heading, justify="left" if heading in ("Finding", "Verdict") else "right", overflow="fold")
    notes: list[str] = []
    for key, about in sources.items():
        listed = [verdict for verdict in verdicts if verdict.finding.source == key]
        for verdict in listed:
            cells = fidelity_cells(verdict)
            if verdict.finding.difference:
                notes.append(f"[{len(notes) + 1}] {verdict.finding.difference}")
                cells["Verdict"] += f" [{len(notes)}]"
            table.add_row(*map(escape, cells.values()))
        if listed:
            table.add_row(f"[dim]Source: {escape(about)}[/dim]", end_section=True)
    table.caption = escape("\n".join(notes))
    return table


def fidelity_json(verdicts: Sequence[Verdict], sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """The same rows as plain data: money in $, shares in [0, 1]."""
    return [
        {
            "finding": v.finding.claim,
            "source": sources[v.finding.source],
            "arms": [{"policy": arm.policy, "environment": dict(arm.environment)} for arm in v.finding.arms],
            "metric": v.finding.metric,
            "statistic": v.finding.statistic,
            "is_difference": v.finding.is_difference,
            "published": v.finding.published,
            "published_text": v.finding.published_text,
            "measured": or_null(v.measured),
            "low": or_null(v.low),
            "high": or_null(v.high),
            "rule": v.finding.rule,
            "allowance": v.allowance,
            "least": v.finding.least if v.finding.rule == "at least" else None,
            "verdict": v.verdict,
            "known_difference": v.finding.difference,
        }
        for v in verdicts
    ]
