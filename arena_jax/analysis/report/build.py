"""A report of run directories: which figures it has, and the page around them."""

from __future__ import annotations

from pathlib import Path

from arena_jax.analysis.failures import failures
from arena_jax.analysis.failures_view import CAPTION, failures_heading, failures_rows, notes
from arena_jax.analysis.report.ablation_file import read_ablation
from arena_jax.analysis.report.charts import (
    cash_fans,
    first_requests,
    provenance,
    results,
    scores,
    survival_curves,
)
from arena_jax.analysis.report.figures import DataTable, Figure
from arena_jax.analysis.report.lenses import ablation_bars, ranking_map
from arena_jax.analysis.report.page import data_table, figure_section, page, section
from arena_jax.analysis.sources import Sources
from arena_jax.arena import ENVIRONMENTS


def report_figures(sources: Sources, ablation: Path | None = None) -> list[Figure]:
    """The figures of a report; ablation: a file that `arena-jax ablate --json` printed."""
    drawn = [results, survival_curves, scores, cash_fans, first_requests, ranking_map]
    figures = [make(sources) for make in drawn]
    if ablation is not None:
        figures.append(ablation_bars(read_ablation(ablation, sources)))
    return figures


def report_page(sources: Sources, figures: list[Figure]) -> bytes:
    """The page: what was played, the figures with their data, and the failure patterns."""
    ground = sources.ground
    facts = [
        ("Environment", f"{ENVIRONMENTS[0]}, arena_jax {ground.version}"),
        ("World", ground.world),
        ("Parameters", ", ".join(ground.changed) or "the defaults"),
        ("Episodes", "\n".join(f"{s.label}: n {s.n:,}, {s.seed_text}" for s in sources.sources)),
    ]
    if sources.left_out:
        facts.append(("Left out", ", ".join(f"{n} {status}" for status, n in sorted(sources.left_out.items()))))
    sections = [figure_section(figure, opens_table=figure.key == "table-1") for figure in figures]
    links = [(figure.key, figure.title) for figure in figures]
    sections.append(_failures_section(sources))
    return page(f"{ENVIRONMENTS[0]}: report", facts, sections, [*links, ("failures", "How companies fail")])


def _failures_section(sources: Sources) -> str:
    body, every = "", failures(sources)
    last = max(len(found.survival.share) for found in every) - 1
    for found in every:
        rows = failures_rows(found)
        table = DataTable([name or "Figure" for name in rows[0]], [list(row.values()) for row in rows])
        body += data_table(
            table,
            failures_heading(found),
            is_open=not body,
            note=notes(found, [*sources.ground.crisis_months, last]),
        )
    return section(
        "failures", "How companies fail (RQ3)", body, f"{CAPTION} {sources.caveat}".rstrip(), provenance(sources)
    )
