"""Figures of what would change the results: the score's λ and m, and the rules of the world (ablations)."""

from __future__ import annotations

import string

import numpy as np

from arena_jax.analysis.report.ablation_file import AblationFile, Change
from arena_jax.analysis.report.charts import provenance
from arena_jax.analysis.report.figures import (
    BLUE,
    GREY,
    ORANGE,
    PALETTE,
    Axis,
    DataTable,
    Dots,
    Figure,
    Mark,
    Panel,
    Points,
    Rule,
    Signs,
    Style,
    Tiles,
)
from arena_jax.analysis.sources import Sources
from arena_jax.analysis.surface import DEFAULT_MULTIPLE, DEFAULT_TOOL_COST, ranking, score_terms, written_order
from arena_jax.analysis.table import figure, interval, money

POINTS = 21  # of each axis of the map
TOOL_COSTS = np.linspace(0.0, 10 * DEFAULT_TOOL_COST, POINTS)
MULTIPLES = np.linspace(0.0, 2 * DEFAULT_MULTIPLE, POINTS)
_HERE = Style("the paper's λ and m", "#000000", shape="diamond")
_SINGLE = Style("one condition relaxed", BLUE, shape="dot")
_PAIR = Style("two relaxed", ORANGE, shape="hollow")


def ranking_map(sources: Sources) -> Figure:
    """The order of mean scores at each λ and m: neither changes what a fixed policy does."""
    title = "Ranking by λ and m"
    about = (
        "The order of mean scores, best first, at each price of a tool call (λ) and revenue multiple (m), from the "
        "same records. A player who would have played otherwise under another λ is ranked as it played."
    )
    if len(sources.sources) < 2:
        only = "A ranking needs the records of two policies or players."
        return Figure("ranking", title, about, provenance(sources), missing=only)
    terms = {source.label: score_terms(source.record) for source in sources.sources}
    is_paired = len({source.draws for source in sources.sources}) == 1
    found = ranking(terms, TOOL_COSTS, MULTIPLES, is_paired)
    order, clear = found.order, found.clear
    about += f" =: a lead that is not told from zero (95%, {'' if is_paired else 'un'}paired)."
    names = [str(place + 1) for place in range(len(terms))]
    written = np.array(
        [
            [written_order(names, *cell, (" > ", " = ")) for cell in zip(*row, strict=True)]
            for row in zip(order, clear, strict=True)
        ]
    )
    orders, areas = np.unique(written, return_counts=True)
    orders = orders[np.argsort(-areas, kind="stable")]
    index = np.argmax(written[:, :, None] == orders, axis=-1)
    shown = orders[: len(PALETTE) - 1]
    letters = string.ascii_lowercase
    styles = [Style(f"{letters[i]}: {text}", PALETTE[i], shape="area") for i, text in enumerate(shown)]
    if len(orders) > len(shown):
        styles.append(Style(f"{letters[len(shown)]}: other orders", GREY, shape="area"))
        index = np.minimum(index, len(shown))
    key = "; ".join(f"{i + 1} {label}" for i, label in enumerate(terms))
    notes = [
        [f"λ {money(cost)}, m {multiple:g}: {written[i, j]}" for i, cost in enumerate(TOOL_COSTS)]
        for j, multiple in enumerate(MULTIPLES)
    ]
    marks: list[Mark] = [Tiles(styles, TOOL_COSTS, MULTIPLES, index.T, notes), _signs(index, letters)]
    here = f"λ {money(DEFAULT_TOOL_COST)}, m {DEFAULT_MULTIPLE:g}, the paper's"
    marks.append(Dots(_HERE, np.array([DEFAULT_TOOL_COST]), np.array([DEFAULT_MULTIPLE]), [here]))
    half = (TOOL_COSTS[1] / 2, MULTIPLES[1] / 2)
    x = Axis("λ, price of a tool call", "$", -half[0], float(TOOL_COSTS[-1]) + half[0])
    y = Axis("m, revenue multiple", "", -half[1], float(MULTIPLES[-1]) + half[1])
    cells = [[money(cost), *row] for cost, row in zip(TOOL_COSTS, written.tolist(), strict=True)]
    many = f"{len(orders)} different orders; the most frequent one is"
    return Figure(
        key="ranking",
        title=title,
        about=f"{about} {key}.",
        source=provenance(sources),
        summary=f"{many if len(orders) > 1 else 'Everywhere the order is'} {orders[0]}, where {key}.",
        panels=[Panel("", x, y, marks)],
        legend=[*styles, _HERE],
        table=DataTable(("λ; by m", *[f"{m:g}" for m in MULTIPLES]), cells),
    )


# metric -> heading, unit, and unit of the axis
_CHANGES = {
    "full_survival": ("change of survival, points", "share", "points"),
    "score": ("change of score", "$", "$"),
}


def _signs(index: np.ndarray, letters: str) -> Signs:
    """The letter of each connected area, where it is the widest: the second sign beside its colour."""
    from scipy import ndimage

    found = []
    for number in np.unique(index):
        areas, count = ndimage.label(index == number, structure=np.ones((3, 3)))
        for area in range(1, count + 1):
            depth = ndimage.distance_transform_cdt(np.pad(areas == area, 1))[1:-1, 1:-1]
            found.append((*np.unravel_index(np.argmax(depth), depth.shape), letters[number]))
    rows, columns, texts = zip(*found, strict=True)
    return Signs(TOOL_COSTS[list(rows)], MULTIPLES[list(columns)], texts)


def ablation_bars(found: AblationFile) -> Figure:
    """What relaxing each condition of RQ2 changes, alone and in pairs: survival and score, paired."""
    panels, rows, largest = [], [], []
    for policy, effects in found.results.items():
        names = [" + ".join(effect.switches) for effect in effects]
        for metric, (heading, unit, written) in _CHANGES.items():
            marks: list[Mark] = [Rule(0.0, "no change")]
            for group, count in ((_SINGLE, 1), (_PAIR, 2)):
                places = [i for i, effect in enumerate(effects) if len(effect.switches) == count]
                if places:
                    changes = [effects[i].changes[metric] for i in places]
                    mean, low, high = (np.array([getattr(c, key) for c in changes]) for key in ("mean", "low", "high"))
                    told = [f"{names[i]}: {_told(unit, effects[i].changes[metric])}" for i in places]
                    marks.append(Points(group, places, mean, low, high, told, has_bars=True))
            panels.append(Panel(f"{policy}\n{heading}", Axis(heading, written), Axis("", rows=names), marks))
        for name, effect in zip(names, effects, strict=True):
            cells = [_told(unit, effect.changes[metric]) for metric, (_, unit, _) in _CHANGES.items()]
            rows.append([f"{policy}: {name}", *cells, effect.published])
        strongest = max(effects, key=lambda effect: abs(effect.changes["full_survival"].mean))
        largest.append(f"{' + '.join(strongest.switches)} for {policy}")
    changed = "".join(f", {pair}" for pair in found.env_set)
    worlds = f" in each of {found.scenarios['worlds']:,} worlds" if found.scenarios else ""
    return Figure(
        key="ablation",
        title="Relaxed conditions (RQ2)",
        about="What changes when a condition of the world is relaxed, against the world as it is, over the same "
        "episodes; 95% intervals.",
        source=f"n {found.episodes:,} each{worlds}, seed {found.seed}. arena_jax {found.version}{changed}.",
        summary=f"The largest change of survival: {'; '.join(largest)}.",
        panels=panels,
        legend=(_SINGLE, _PAIR),
        across=len(_CHANGES),
        table=DataTable(("Relaxed", *[heading for heading, *_ in _CHANGES.values()], "Paper"), rows),
    )


def _told(unit: str, change: Change) -> str:
    return f"{figure(unit, change.mean, True)} ({interval(unit, change.low, change.high, True)})"
