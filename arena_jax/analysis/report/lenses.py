"""Figures of what would change the results: the score's λ and m, and the rules of the world (ablations)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from arena_jax.analysis.report.charts import provenance
from arena_jax.analysis.report.figures import (
    BLUE,
    ORANGE,
    Axis,
    DataTable,
    Dots,
    Figure,
    Mark,
    Panel,
    Points,
    Rule,
    Style,
    Tiles,
    style,
)
from arena_jax.analysis.sources import Sources, plain_params
from arena_jax.analysis.surface import DEFAULT_MULTIPLE, DEFAULT_TOOL_COST, ranking, score_terms, surface
from arena_jax.analysis.table import figure, interval, money
from arena_jax.errors import ArenaError
from arena_jax.params import make_params, parse_overrides

POINTS = 21  # of each axis of the map
TOOL_COSTS = np.linspace(0.0, 10 * DEFAULT_TOOL_COST, POINTS)
MULTIPLES = np.linspace(0.0, 2 * DEFAULT_MULTIPLE, POINTS)
_HERE = Style("the paper's λ and m", "#000000", shape="dot")
_OPEN = Style("lead not told from zero (95%, paired)", "#ffffff", shape="hollow")
_SINGLE = Style("one condition relaxed", BLUE, shape="dot")
_PAIR = Style("two relaxed", ORANGE, shape="hollow")


def ranking_map(sources: Sources) -> Figure:
    """Whose mean score is the highest at each λ and m: neither changes what a fixed policy does."""
    title = "Who leads, by λ and m"
    about = (
        "The policy with the highest mean score at each price of a tool call (λ) and revenue multiple (m), from the "
        "same records. A player who would have played otherwise under another λ is shown as it played."
    )
    if len(sources.sources) < 2:
        only = "A ranking needs the records of two policies or players."
        return Figure("ranking", title, about, provenance(sources), missing=only)
    terms = {source.label: score_terms(source.record) for source in sources.sources}
    labels = list(terms)
    is_paired = len({(source.n, source.seeds) for source in sources.sources}) == 1
    if is_paired:
        found = ranking(terms, TOOL_COSTS, MULTIPLES)
        means, unclear = found.means, ~found.clear[:, :, 0]
    else:
        means = np.stack([surface(one, TOOL_COSTS, MULTIPLES) for one in terms.values()])
        unclear = np.zeros(means.shape[1:], dtype=bool)
        about += " Whether a lead is more than luck is not tested: the sources do not share their episodes."
    first = means.argmax(axis=0)
    leaders = sorted(set(first.ravel().tolist()))
    styles = [style(i, labels[i]) for i in leaders]
    leading = [Style(one.label, one.color, shape="area") for one in styles]
    index = np.searchsorted(leaders, first)
    notes = [
        [
            f"λ {money(cost)}, m {multiple:g}: {labels[first[i, j]]}, mean {money(means[first[i, j], i, j])}"
            for i, cost in enumerate(TOOL_COSTS)
        ]
        for j, multiple in enumerate(MULTIPLES)
    ]
    marks: list[Mark] = [Tiles(leading, TOOL_COSTS, MULTIPLES, index.T, notes)]
    rows, columns = np.nonzero(unclear)
    if len(rows):
        marks.append(Dots(_OPEN, TOOL_COSTS[rows], MULTIPLES[columns], "x"))
    here = f"λ {money(DEFAULT_TOOL_COST)}, m {DEFAULT_MULTIPLE:g}"
    marks.append(Dots(_HERE, np.array([DEFAULT_TOOL_COST]), np.array([DEFAULT_MULTIPLE]), "diamond", [here]))
    half = (TOOL_COSTS[1] / 2, MULTIPLES[1] / 2)
    x = Axis("λ, price of a tool call", "$", -half[0], float(TOOL_COSTS[-1]) + half[0])
    y = Axis("m, revenue multiple", "", -half[1], float(MULTIPLES[-1]) + half[1])
    key = "; ".join(f"{i + 1} {label}" for i, label in enumerate(labels))
    cells = [
        [money(cost), *[f"{first[i, j] + 1}{'?' if unclear[i, j] else ''}" for j in range(POINTS)]]
        for i, cost in enumerate(TOOL_COSTS)
    ]
    shares = ", ".join(f"{labels[i]} in {figure('share', float(np.mean(first == i)))}" for i in leaders)
    return Figure(
        key="ranking",
        title=title,
        about=about,
        source=provenance(sources),
        summary=f"Leaders, by share of the map: {shares}.",
        panels=[Panel("", x, y, marks)],
        legend=[*leading, _HERE, *([_OPEN] if len(rows) else [])],
        table=DataTable((f"λ, and the leader by m ({key}; ? not told apart)", *[f"{m:g}" for m in MULTIPLES]), cells),
    )


def read_ablation(path: Path, sources: Sources) -> dict[str, Any]:
    """What `arena-jax ablate --json` printed; raises `ArenaError` if it is that of other rules or another version."""
    try:
        found = json.loads(path.read_bytes())
        for policy in found["results"]:
            for effect in policy["effects"]:
                _ = [effect["differences"][name][key] for name in _CHANGES for key in ("mean", "low", "high")]
                _ = effect["switches"], effect["published"], policy["policy"]
        about = {name: found[name] for name in ("arena_jax", "seed", "episodes", "env_set")}
    except OSError as error:
        raise ArenaError(f"can't read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ArenaError(f"{path} is not what arena-jax ablate --json prints") from None
    if about["arena_jax"] != sources.ground.version:
        raise ArenaError(f"{path} is of arena_jax {about['arena_jax']}, the records of {sources.ground.version}")
    if plain_params(make_params(**parse_overrides(about["env_set"]))) != sources.ground.parameters:
        raise ArenaError(
            f"{path} is of other parameters ({', '.join(about['env_set']) or 'the defaults'}) than the records"
        )
    return dict(found)


_CHANGES = {"full_survival": ("change of survival", "share"), "score": ("change of score", "$")}


def ablation_bars(found: dict[str, Any]) -> Figure:
    """What relaxing each condition of RQ2 changes, alone and in pairs: survival and score, paired."""
    panels, rows, largest = [], [], []
    for result in found["results"]:
        effects = result["effects"]
        names = [" + ".join(effect["switches"]) for effect in effects]
        for metric, (heading, unit) in _CHANGES.items():
            marks: list[Mark] = [Rule(0.0, "no change")]
            for group, count in ((_SINGLE, 1), (_PAIR, 2)):
                places = [i for i, effect in enumerate(effects) if len(effect["switches"]) == count]
                if places:
                    changes = [effects[i]["differences"][metric] for i in places]
                    mean, low, high = (
                        np.array([_number(change[key]) for change in changes]) for key in ("mean", "low", "high")
                    )
                    told = [f"{names[i]}: {_change(unit, effects[i]['differences'][metric])}" for i in places]
                    marks.append(Points(group, places, mean, low, high, told))
            panels.append(Panel(f"{result['policy']}\n{heading}", Axis(heading, unit), Axis("", rows=names), marks))
        for name, effect in zip(names, effects, strict=True):
            changes = [_change(unit, effect["differences"][metric]) for metric, (_, unit) in _CHANGES.items()]
            rows.append([f"{result['policy']}: {name}", *changes, effect["published"]])
        strongest = max(effects, key=lambda effect: abs(_number(effect["differences"]["full_survival"]["mean"])))
        largest.append(f"{' + '.join(strongest['switches'])} for {result['policy']}")
    changed = "".join(f", {pair}" for pair in found["env_set"])
    return Figure(
        key="ablation",
        title="Relaxed conditions (RQ2)",
        about="What changes when a condition of the world is relaxed, against the world as it is, over the same "
        "episodes; 95% intervals.",
        source=f"n {found['episodes']:,} each, seed {found['seed']}. arena_jax {found['arena_jax']}{changed}.",
        summary=f"The largest change of survival: {'; '.join(largest)}.",
        panels=panels,
        legend=(_SINGLE, _PAIR),
        table=DataTable(("Relaxed", *[heading for heading, _ in _CHANGES.values()], "Paper"), rows),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _change(unit: str, change: dict[str, Any]) -> str:
    mean, low, high = (_number(change[key]) for key in ("mean", "low", "high"))
    return f"{figure(unit, mean, True)} ({interval(unit, low, high, True)})"
