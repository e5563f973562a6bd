"""A board of submitted runs: the paper's Table 1 by player beside the published rows, as Markdown or as a page."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from arena_jax.analysis.metrics import METRICS, Estimate, Metric
from arena_jax.analysis.published import published_results
from arena_jax.analysis.table import TABLE_1, cell, interval


def board_rows(results: Mapping[str, Mapping[str, Estimate]], seeds: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Table 1 of submitted runs: headings, a row for each player, and all published rows.

    seeds: by player, how its runs came by them.
    """
    metrics = [(name, METRICS[name]) for name in TABLE_1]
    rows = [["Player", "n", "Seeds", *(metric.heading for _, metric in metrics)]]
    for player, estimates in results.items():
        found = [(metric, estimates[name]) for name, metric in metrics]
        cells = [_plain_cell(metric, e.mean, e.sd, e.low, e.high) for metric, e in found]
        rows.append([player, f"{estimates['months'].n:,}", " and ".join(sorted(seeds[player])), *cells])
    for agent, row in published_results().items():
        cells = [_plain_cell(metric, row.means[name], row.sds.get(name, math.nan)) for name, metric in metrics]
        rows.append([f"{agent} (published)", f"{row.runs}", "not told", *cells])
    return rows


def _plain_cell(metric: Metric, mean: float, sd: float, low: float = math.nan, high: float = math.nan) -> str:
    between = "" if math.isnan(low) else f" ({interval(metric.unit, low, high)})"
    return cell(metric, mean, sd) + between


BOARD_NOTES = (
    "Mean ± SD over episodes, and the 95% interval of the share or mean in brackets.",
    "Who played, and whether its seeds were drawn, is what a run says of itself; every journal was replayed, and its "
    "record confirmed.",
    "Published rows: the paper's Table 1, played in its authors' simulator and not replayed here.",
)


def board_markdown(rows: Sequence[Sequence[str]], title: str, about: Mapping[str, str]) -> str:
    """A board as Markdown; `about` is what holds for all of its runs."""
    plain = lambda text: re.sub(r"([\\`*\[\]<>|~])", r"\\\1", text)
    headings, *others = [f"| {' | '.join(map(plain, row))} |" for row in rows]
    facts = [f"- {name}: {plain(fact)}" for name, fact in about.items()]
    rule = "|".join(["", " --- ", *[" ---: "] * (len(rows[0]) - 1), ""])
    return "\n".join([f"# {title}", "", *facts, "", headings, rule, *others, "", *BOARD_NOTES, ""])


def board_html(rows: Sequence[Sequence[str]], title: str, about: Mapping[str, str]) -> str:
    """The same as a page of its own."""
    line = lambda row, tag: "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"
    facts = "".join(f"<li>{name}: {html.escape(fact)}</li>" for name, fact in about.items())
    return "\n".join(
        [
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>',
            "<style>body{font-family:sans-serif}td,th{padding:.3em .6em;text-align:right}",
            "td:first-child,th:first-child{text-align:left}tr:nth-child(even){background:#f4f4f4}</style>",
            f"<h1>{title}</h1><ul>{facts}</ul>",
            f"<table><thead>{line(rows[0], 'th')}</thead><tbody>",
            *[line(row, "td") for row in rows[1:]],
            f"</tbody></table><p>{html.escape(' '.join(BOARD_NOTES))}</p></html>",
            "",
        ]
    )
