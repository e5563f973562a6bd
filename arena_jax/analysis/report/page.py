"""One page that needs nothing but itself: figures with their data beside them, and whatever else a report says."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from arena_jax.analysis.report.figures import DataTable, Figure
from arena_jax.analysis.report.web import plot, plotly_js, swatch

# nothing may be fetched, whatever a label of a foreign run says
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)
_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; color: #1a1a1a; background: #fff;
  max-width: 82rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
p { max-width: 72rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.25rem; margin: 0 0 .25rem; }
a { color: #0b5394; }
nav ul { padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 1rem 0; }
dt { font-weight: 600; } dd { margin: 0; white-space: pre-line; }
section { border-top: 1px solid #ccc; padding: 1.25rem 0; }
figure { margin: .5rem 0; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
.panel { min-width: 0; } .panel h3 { font-size: .95rem; margin: 0; white-space: pre-line; line-height: 1.3; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; margin: .5rem 0; list-style: none;
  font-size: .9rem; }
.legend svg { vertical-align: -2px; margin-right: .4rem; }
.source, .note { color: #595959; font-size: .85rem; margin: .25rem 0; }
.warning { border-left: .3rem solid #D55E00; padding: .25rem .75rem; background: #fdf1ea; }
.missing { border: 1px dashed #888; padding: .75rem; }
.table { overflow-x: auto; max-height: 44rem; overflow-y: auto; }
table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .25rem; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top;
  overflow-wrap: normal; }
th:first-child { text-align: left; min-width: 6rem; max-width: 16rem; overflow-wrap: anywhere; }
thead th { position: sticky; top: 0; background: #f3f3f3; }
tbody th { font-weight: 400; }
details { margin: .5rem 0; } summary { cursor: pointer; color: #0b5394; }
@media (max-width: 40rem) { body { padding: .6rem; font-size: 15px; } dl { grid-template-columns: 1fr; }
  dd { margin-bottom: .4rem; } th:first-child { max-width: 8rem; } }
@page { size: landscape; margin: 12mm; }
@media print { body { max-width: none; font-size: 11pt; } nav, details:not([open]) { display: none; }
  .panel, tr { break-inside: avoid; } .table { max-height: none; overflow: visible; }
  table { font-size: 6.5pt; } th, td { padding: .1rem .25rem; } th:first-child { min-width: 5rem; } }
"""
_WRAPPED = 32  # characters from which a cell of a table wraps
_DRAW = """
for (const place of document.querySelectorAll('[data-plot]')) {
  const drawn = JSON.parse(document.getElementById(place.dataset.plot).textContent);
  Plotly.newPlot(place, drawn.data, drawn.layout, {responsive: true, displayModeBar: false});
}
addEventListener('beforeprint', () => {
  for (const table of document.querySelectorAll('details.data:not([open])')) {
    table.dataset.folded = '';
    table.open = true;
  }
  for (const place of document.querySelectorAll('[data-plot]')) Plotly.Plots.resize(place);
});
addEventListener('afterprint', () => {
  for (const table of document.querySelectorAll('details[data-folded]')) {
    delete table.dataset.folded;
    table.open = false;
  }
});
"""


def page(
    title: str, facts: Sequence[tuple[str, str]], sections: Sequence[str], links: Sequence[tuple[str, str]]
) -> bytes:
    """A whole page. facts: what was played, by name. sections: HTML. links: id of a section and its name."""
    contents = "".join(f'<li><a href="#{escape(key)}">{escape(name)}</a></li>' for key, name in links)
    told = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{_STYLE}</style></head>
<body><header><h1>{escape(title)}</h1><dl>{told}</dl></header>
<nav aria-label="Figures"><ul>{contents}</ul></nav>
<main>{"".join(sections)}</main>
<script>{plotly_js()}</script><script>{_DRAW}</script></body></html>
""".encode()


def figure_section(figure: Figure, opens_table: bool = False) -> str:
    """A figure with its legend, what it shows, where it is from, and its data."""
    key = escape(figure.key)
    if figure.missing:
        body = f'<p class="missing">{escape(figure.missing)}</p>'
    else:
        panels = "".join(
            _panel(f"{key}-{i}", panel.title, plot(panel, len(figure.panels) == 1), f"{figure.title}. {figure.summary}")
            for i, panel in enumerate(figure.panels)
        )
        body = f'{_legend(figure)}<div class="panels">{panels}</div>'
    table = data_table(figure.table, f"Data: {figure.title}", opens_table)
    return section(figure.key, figure.title, body, figure.about, figure.source, table)


def section(key: str, title: str, body: str, about: str, source: str, after: str = "") -> str:
    """A section of a page: its name, HTML, what it shows and where it is from in words, and more HTML."""
    key = escape(key)
    caption = f'<p>{escape(about)}</p><p class="source">{escape(source)}</p>'
    return f"""<section id="{key}" aria-labelledby="{key}-name"><h2 id="{key}-name">{escape(title)}</h2>
<figure>{body}<figcaption>{caption}</figcaption></figure>{after}</section>
"""


def _legend(figure: Figure) -> str:
    if not figure.legend:
        return ""
    return f'<ul class="legend">{"".join(f"<li>{swatch(s)}{escape(s.label)}</li>" for s in figure.legend)}</ul>'


def _panel(key: str, title: str, drawn: str, alternative: str) -> str:
    name = f"{title}. {alternative}".replace("\n", ", ").removeprefix(". ")
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    return (
        f'<div class="panel">{heading}<div role="img" aria-label="{escape(name)}" data-plot="{key}-data"></div>'
        f'<script type="application/json" id="{key}-data">{_in_script(drawn)}</script></div>'
    )


def _in_script(json: str) -> str:
    """JSON that can't end the element it stands in."""
    return json.replace("<", "\\u003c")


def data_table(table: DataTable, name: str, is_open: bool = False, note: str = "") -> str:
    """A table that can be folded away, with a note beneath; nothing where it has no rows."""
    if not table.rows:
        return ""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.headings)
    rows = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{_cell(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in table.rows
    )
    cells = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return (
        f'<details class="data"{" open" if is_open else ""}><summary>{escape(name)}</summary>'
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(name)}">{cells}</div>'
        f"{f'<p class=note>{escape(note)}</p>' if note else ''}</details>"
    )


def _cell(text: str) -> str:
    """A figure in one line, and its interval in the next; only words wrap."""
    lines = text.replace(" (", "\n(").split("\n")
    return "<br>".join(escape(line.replace(" ", "\u00a0") if len(line) < _WRAPPED else line) for line in lines)
