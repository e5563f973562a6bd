"""The picture of the README: `python -m benchmarks.report_figures --out benchmarks/results`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import arena_jax
from arena_jax.analysis.report.charts import survival_curves
from arena_jax.analysis.report.png import png
from arena_jax.analysis.sources import read_sources
from arena_jax.evaluation import evaluate
from arena_jax.files import write_atomic

POLICIES = (
    "never-raise",
    "greedy-debt:amount=20e6",
    "cash-threshold:threshold=8e6,amount=12.6e6",
    "late-raiser",
    "greedy-equity:amount=20e6",
)
EPISODES = 10_000


def main() -> None:
    """Play the policies and draw their survival."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the PNG")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        evaluate(arena_jax.make(), POLICIES, episodes=EPISODES, out=Path(folder) / "run")
        sources = read_sources([Path(folder) / "run"])
    figure = survival_curves(sources)
    write_atomic(out / f"{figure.key}.png", png(figure))


if __name__ == "__main__":
    main()
