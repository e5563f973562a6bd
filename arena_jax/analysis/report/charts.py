"""The figures of a report that come from records: results, survival, scores, cash, first requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from arena_jax.analysis.failures import GROUPS, lifetimes, months_after_peak
from arena_jax.analysis.fan import LEVELS, Fan
from arena_jax.analysis.metrics import METRICS, Estimate, Tallies
from arena_jax.analysis.published import published_results
from arena_jax.analysis.report.figures import (
    BLUE,
    GREY,
    ORANGE,
    Axis,
    Bars,
    DataTable,
    Figure,
    Line,
    Mark,
    Panel,
    Points,
    Rule,
    Span,
    Style,
    style,
)
from arena_jax.analysis.sources import Source, Sources
from arena_jax.analysis.spread import WorldTallies
from arena_jax.analysis.table import BESIDE, TABLE_1, figure, interval, money
from arena_jax.scenario import Scenario

BINS = 40  # bars of a distribution of scores, at most
# columns of Table 1 that are drawn
_HEADINGS = {"full_survival": "Full survival", "months": "Months survived", "score": "Score"}
PUBLISHED = Style("published (paper, Table 1)", GREY, shape="hollow")
MEASURED = Style("these records, with the 95% interval", BLUE, shape="dot")
GROUP_STYLES = (Style("survivors", BLUE, shape="area"), Style("bankrupt", ORANGE, shape="hatched"))


def provenance(sources: Sources, members: Sequence[Source] | None = None) -> str:
    """n, seed, version and world of what a figure shows, in one line."""
    members = sources.sources if members is None else members
    same = len({source.draws for source in members}) == 1
    each = [f"n {source.n:,}{_in_worlds(source)}, {source.seed_text}" for source in members]
    counts = each[0] + (" each" if len(members) > 1 else "")
    if not same:
        counts = "; ".join(f"{source.label}: {text}" for source, text in zip(members, each, strict=True))
    return f"{counts}. {sources.ground.title}."


def _in_worlds(source: Source) -> str:
    return f" in {source.n // source.world_episodes:,} worlds" if source.world_episodes else ""


def crisis_spans(scenario: Scenario | None) -> list[Mark]:
    """The crises as shading: the months around each crisis month in which growth surges; none in unknown worlds."""
    if scenario is None:
        return []
    growth = np.asarray(scenario.user_growth, dtype=np.float64)
    surges = growth > np.median(growth)
    spans: list[Mark] = []
    for number, month in enumerate(np.asarray(scenario.crisis_months).tolist(), start=1):
        start = end = month
        while start > 0 and surges[start - 1]:
            start -= 1
        while end + 1 < len(surges) and surges[end + 1]:
            end += 1
        spans.append(Span(start, end + 1, f"crisis {number}"))
    return spans


def _shaded(sources: Sources) -> str:
    if sources.ground.scenario is not None:
        return " Shaded: the surges of growth that make the three crises."
    return " The crises are not shaded: they differ between these worlds, or the run does not hold its world."


def results(sources: Sources) -> Figure:
    """Table 1: survival, months and score beside the published rows; the whole table as its data."""
    estimates = {source.label: _estimates(source) for source in sources.sources}
    rows = [published_results()[agent] for agent in BESIDE]
    labels = [*estimates, *[row.agent for row in rows]]
    panels = []
    for name in _HEADINGS:
        metric = METRICS[name]
        mine = [found[name] for found in estimates.values()]
        theirs = np.array([row.means[name] for row in rows])
        nothing = np.full(len(rows), math.nan)
        unit = {"months": "month"}.get(metric.unit, metric.unit)
        means, lows, highs = (np.array([getattr(e, key) for e in mine]) for key in ("mean", "low", "high"))
        least = float(np.nanmin([0.0, *means, *lows]))  # scores can be below 0
        axis = Axis("", unit, least, 1.0 if metric.unit == "share" else math.nan)
        notes = [f"{label}: {_told(metric.unit, e)}" for label, e in zip(estimates, mine, strict=True)]
        beside = [f"{row.agent}: {figure(metric.unit, row.means[name])}" for row in rows]
        marks = [
            Points(MEASURED, range(len(mine)), means, lows, highs, notes),
            Points(PUBLISHED, range(len(mine), len(labels)), theirs, nothing, nothing, beside),
        ]
        panels.append(Panel(_HEADINGS[name], axis, Axis("", rows=labels), marks))
    best = max(estimates, key=lambda label: estimates[label]["score"].mean)
    told = (
        " were told the horizon, the paper's were not"
        if sources.ground.disclosed
        else ", as in the paper, are not told the horizon"
    )
    return Figure(
        key="table-1",
        title="Table 1: survival, months and score",
        about="Shares and means of episodes with their 95% intervals, beside rows of the paper's Table 1 (hollow). "
        f"Scripted and trained policies see the month; agents{told}.",
        source=provenance(sources),
        summary=f"The highest mean score is {money(estimates[best]['score'].mean)}, of {best}, which survives in "
        f"{figure('share', estimates[best]['full_survival'].mean)} of its episodes.",
        panels=panels,
        legend=(MEASURED, PUBLISHED),
        table=DataTable(
            ("Agent", "n", *[METRICS[name].heading for name in TABLE_1]),
            [
                *[
                    [label, f"{found['months'].n:,}", *[_cell(name, found[name]) for name in TABLE_1]]
                    for label, found in estimates.items()
                ],
                *[
                    [f"{row.agent} (published)", str(row.runs)]
                    + [_with_sd(name, row.means[name], row.sds.get(name, math.nan)) for name in TABLE_1]
                    for row in rows
                ],
            ],
        ),
    )


def _estimates(source: Source) -> dict[str, Estimate]:
    """The columns of Table 1; over several worlds their intervals are over worlds, as those of evaluate are."""
    if source.world_episodes:
        by_world = WorldTallies(source.world_episodes)
        by_world.add(source.record)
        return {
            name: Estimate(source.n, found.mean, math.hypot(found.sd_across, found.sd_within), found.low, found.high)
            for name, found in by_world.estimates().items()
        }
    tallies = Tallies()
    tallies.add(source.record)
    return tallies.estimates()


def _told(unit: str, found: Estimate) -> str:
    return figure(unit, found.mean) + ("" if math.isnan(found.low) else f" ({interval(unit, found.low, found.high)})")


def _with_sd(name: str, mean: float, sd: float) -> str:
    metric = METRICS[name]
    spread = f" ± {figure(metric.unit, sd)}" if metric.shows_sd and not math.isnan(sd) else ""
    return figure(metric.unit, mean) + spread


def _cell(name: str, found: Estimate) -> str:
    between = interval(METRICS[name].unit, found.low, found.high)
    return _with_sd(name, found.mean, found.sd) + ("" if between == "–" else f" ({between})")


def survival_curves(sources: Sources) -> Figure:
    """The survival function of every source, with its band and the crises."""
    found = {source.label: lifetimes(source) for source in sources.sources}
    styles = [style(i, label) for i, label in enumerate(found)]
    last = max(len(one.share) for one in found.values()) - 1
    lines = [
        Line(
            styles[i],
            np.arange(len(one.share)),
            one.share,
            one.low,
            one.high,
            is_step=True,
            notes=[
                f"{label}, month {month}: {figure('share', one.share[month])} "
                f"({interval('share', one.low[month], one.high[month])})"
                for month in range(len(one.share))
            ],
        )
        for i, (label, one) in enumerate(found.items())
    ]
    x, y = Axis("months survived", "month", 0, last), Axis("companies alive", "share", 0.0, 1.02)
    rows = [
        [str(month)]
        + [
            "" if (at := one.at(month)) is None else f"{figure('share', at[0])} ({interval('share', at[1], at[2])})"
            for one in found.values()
        ]
        for month in range(last + 1)
    ]
    ends = ", ".join(f"{figure('share', one.share[-1])} of {label}" for label, one in found.items())
    return Figure(
        key="survival",
        title="Survival",
        about="Share of companies alive after so many months (Kaplan-Meier; episodes whose player stopped are "
        "censored), with 95% bands." + f"{_shaded(sources)} {sources.caveat}".rstrip(),
        source=provenance(sources),
        summary=f"Alive at the end: {ends}.",
        panels=[Panel("", x, y, [*crisis_spans(sources.ground.scenario), *lines])],
        legend=styles,
        table=DataTable(("Months survived", *found), rows),
    )


def scores(sources: Sources) -> Figure:
    """How the scores of survivors are distributed, a panel per source on one scale."""
    living = {s.label: np.asarray(s.record.score, np.float64)[np.asarray(s.record.survived)] for s in sources.sources}
    pooled = np.concatenate(list(living.values()))
    about = "Scores of companies that reach the end, as a share of all episodes; the others score 0 and are told apart."
    if not len(pooled):
        return Figure(
            "scores", "Scores", about, provenance(sources), missing="No company reaches the end: all score 0."
        )
    low, high = float(pooled.min()), float(pooled.max())
    edges = np.linspace(low, high, BINS + 1) if high > low else np.array([low - 0.5e6, low + 0.5e6])
    centers, width = (edges[1:] + edges[:-1]) / 2, float(edges[1] - edges[0])
    panels, table = [], [[f"{money(a)} to {money(b)}"] for a, b in pairwise(edges)]
    zero = ["score 0"]
    shares = [np.histogram(living[source.label], edges)[0] / source.n for source in sources.sources]
    for source, share in zip(sources.sources, shares, strict=True):
        none = 1 - len(living[source.label]) / source.n
        zero.append(figure("share", none))
        if none == 1:
            continue
        notes = [f"{row[0]}: {figure('share', value)}" for row, value in zip(table, share, strict=True)]
        title = f"{source.label}\n{figure('share', none)} score 0"
        x = Axis("score", "$", float(edges[0]) - width, float(edges[-1]) + width)
        marks = [Bars(Style(source.label), centers, share, width, notes)]
        panels.append(Panel(title, x, Axis("episodes", "share", 0.0), marks))
    rows = [row + [figure("share", share[i]) for share in shares] for i, row in enumerate(table)]
    middle = ", ".join(f"{money(float(np.median(x)))} for {label}" for label, x in living.items() if len(x))
    dead = [label for label, x in living.items() if not len(x)]
    return Figure(
        key="scores",
        title="Scores",
        about=about + (f" No survivors: {', '.join(dead)}." if dead else ""),
        source=provenance(sources),
        summary=f"Median score of survivors: {middle}.",
        panels=panels,
        table=DataTable(("Score", *living), [zero, *rows]),
    )


def cash_fans(sources: Sources) -> Figure:
    """Opening cash month by month, a panel per source; sources without months are told how to get them."""
    fans = {source.label: source.cash for source in sources.sources if isinstance(source.cash, Fan)}
    lacking = [f"{source.label}: {source.cash}." for source in sources.sources if isinstance(source.cash, str)]
    about = "Opening cash of the companies alive in each month, each panel on a scale of its own." + _shaded(sources)
    title = "Cash by month"
    if not fans:
        return Figure("cash", title, about, provenance(sources), missing=" ".join(dict.fromkeys(lacking)))
    panels, columns = [], []
    for label, found in fans.items():
        month = np.arange(len(found.percentiles))
        p5, p25, p50, p75, p95 = found.percentiles.T
        notes = [
            f"month {m}: median {money(p50[m])}, half {money(p25[m])} to {money(p75[m])}, {found.alive[m]:,} alive"
            for m in month
        ]
        marks: list[Mark] = [
            *crisis_spans(sources.ground.scenario),
            Line(Style("", BLUE), month, p50, p5, p95),
            Line(Style("", BLUE), month, p50, p25, p75, notes=notes),
        ]
        x, y = Axis("month", "month", 0, float(month[-1])), Axis("cash", "$", min(0.0, float(p5.min())))
        heading = f"{label}\nn {found.n:,}, alive in month {month[-1]}: {found.alive[-1]:,}"
        panels.append(Panel(heading, x, y, marks))
        columns.append(
            [f"{money(p50[m])} ({money(p5[m])} to {money(p95[m])}), {found.alive[m]:,} alive" for m in month]
        )
    longest = max(map(len, columns))
    rows = [[str(m), *[column[m] if m < len(column) else "" for column in columns]] for m in range(longest)]
    lowest = ", ".join(f"{money(float(found.percentiles[:, 2].min()))} for {label}" for label, found in fans.items())
    members = [source for source in sources.sources if source.label in fans]
    return Figure(
        key="cash",
        title=title,
        about=f"{about} Line: median; bands: {LEVELS[1]}th to {LEVELS[3]}th and {LEVELS[0]}th to {LEVELS[4]}th "
        "percentile." + (f" Not shown: {' '.join(lacking)}" if lacking else ""),
        source=provenance(sources, members),
        summary=f"Lowest median: {lowest}.",
        panels=panels,
        table=DataTable(("Month", *[f"{label}: median (5th to 95th)" for label in fans]), rows),
    )


def first_requests(sources: Sources) -> Figure:
    """When money is first asked for, against the cash peak: survivors and bankrupt companies."""
    asked = {}
    for source in sources.sources:
        late = months_after_peak(source.record)
        if not np.isnan(late).all():
            asked[source.label] = (source, late)
    about = (
        "Months from the cash peak (highest opening cash before any proceeds) to the first request, as a share of each "
        "group's companies that asked. Left of the line: before the peak, where the paper finds the survivors (RQ3)."
    )
    title = "Timing of the first request"
    if not asked:
        return Figure("requests", title, about, provenance(sources), missing="No company ever asks for money.")
    panels, columns = [], {}
    for label, (source, late) in asked.items():
        marks: list[Mark] = [Rule(0.0, "cash peak")]
        members = (np.asarray(source.record.survived), source.bankrupt)
        sizes = []
        for place, group, one, mask in zip((-0.2, 0.2), GROUPS, GROUP_STYLES, members, strict=True):
            mine = late[mask & ~np.isnan(late)].astype(int)
            sizes.append(len(mine))
            values, counts = np.unique(mine, return_counts=True)
            share = counts / max(len(mine), 1)
            told = [f"{_after(v)}: {figure('share', s)} of {group}" for v, s in zip(values, share, strict=True)]
            marks.append(Bars(one, values + place, share, 0.4, told))
            columns[label, group] = dict(zip(values.tolist(), share, strict=True))
        never = figure("share", float(np.isnan(late).mean()))
        heading = f"{label}\nasked: {sizes[0]:,} survivors, {sizes[1]:,} bankrupt; never: {never}"
        x = Axis(
            "months from the cash peak", "", min(float(np.nanmin(late)), 0) - 1.5, max(float(np.nanmax(late)), 0) + 1.5
        )
        panels.append(Panel(heading, x, Axis("companies", "share", 0.0), marks))
    months = sorted({month for column in columns.values() for month in column})
    early = ", ".join(
        f"{figure('share', float(np.mean(late[~np.isnan(late)] <= 0)))} of {label}"
        for label, (_, late) in asked.items()
    )
    return Figure(
        key="requests",
        title=title,
        about=about,
        source=provenance(sources, [source for source, _ in asked.values()]),
        summary=f"Asked no later than the peak: {early}.",
        panels=panels,
        legend=GROUP_STYLES,
        table=DataTable(
            ("First request", *[f"{label}, {group}" for label, group in columns]),
            [[_after(m), *[figure("share", column.get(m, 0.0)) for column in columns.values()]] for m in months],
        ),
    )


def _after(months: int) -> str:
    if months == 0:
        return "in the month of the peak"
    return f"{abs(months)} month{'s' if abs(months) > 1 else ''} {'after' if months > 0 else 'before'} the peak"
