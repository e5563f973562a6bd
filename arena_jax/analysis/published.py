"""Published results that simulated ones are set beside: Table 1 of the paper (data/published_results.csv)."""

from __future__ import annotations

import csv
from dataclasses import dataclass

from arena_jax.data import data_path

# runs behind each kind of row: five per agent; the overall rows pool them (paper, Table 1)
RUNS_PER_AGENT = 5
OVERALL_RUNS = {"Overall (ReAct)": 115, "Overall (Other Agents)": 15, "Overall": 130}


@dataclass(frozen=True)
class Published:
    """One row of the paper's Table 1: `means` and `sds` by metric name, in shares, months, $ and counts."""

    agent: str
    runs: int
    means: dict[str, float]
    sds: dict[str, float]


def published_results() -> dict[str, Published]:
    """The rows by agent, in the paper's order."""
    with open(data_path("published_results.csv"), newline="", encoding="utf-8") as file:
        return {row["agent"]: _published(row) for row in csv.DictReader(file)}


def _published(row: dict[str, str]) -> Published:
    value = {name: float(text) for name, text in row.items() if name not in ("agent", "group")}
    means = {
        "full_survival": value["full_survival_pct"] / 100,
        "months": value["months_mean"],
        "score": value["score_musd_mean"] * 1e6,
        "crisis_1": value["crisis1_pct"] / 100,
        "crisis_2": value["crisis2_pct"] / 100,
        "crisis_3": value["crisis3_pct"] / 100,
        "tools_per_month": value["tools_per_month"],
        "actions": value["actions"],
        "raised": value["raised_musd_mean"] * 1e6,
    }
    sds = {
        "months": value["months_sd"],
        "score": value["score_musd_sd"] * 1e6,
        "raised": value["raised_musd_sd"] * 1e6,
    }
    return Published(row["agent"], OVERALL_RUNS.get(row["agent"], RUNS_PER_AGENT), means, sds)
