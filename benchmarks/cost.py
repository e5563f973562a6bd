"""What 10^8 episodes of never-raise cost, projected from a tenth of them, and whether cost grows in proportion.

    python -m benchmarks.cost --quick     # up to 300,000 episodes: a minute
    python -m benchmarks.cost             # up to 10 million: a few minutes on a quiet machine, and 0.5 GB of disk

Every size is an `arena_jax.evaluate(out=...)` in a process of its own, compiled and warmed up before the clock
starts; sizes take turns, and a figure is the median. Exit code 1 if an episode's seconds of a processor, which other
programs on the machine hardly touch, differ between sizes by more than `MOST_APART`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

import arena_jax
from arena_jax.batch_play import DEFAULT_BATCH
from arena_jax.cli.output import progress, table_console
from arena_jax.errors import check_count
from benchmarks.harness import clocks, in_child, main, peak_memory, result_path, surroundings, write_json

POLICY = "never-raise"
EPISODES, QUICK = (10**6, 3 * 10**6, 10**7), (10**5, 3 * 10**5)
TARGET = 10**8
REPEATS = 5
MOST_APART = 0.1


def cost(episodes: int) -> dict[str, float]:
    """Seconds and processor seconds of an evaluation into a run directory. Runs in a process of its own."""
    env = arena_jax.make()
    with tempfile.TemporaryDirectory(prefix="arena-jax-cost-") as folder:
        arena_jax.evaluate(env, [POLICY], episodes=DEFAULT_BATCH, out=f"{folder}/warm-up")  # writing starts up too
        run = Path(folder, "run")
        start = clocks()
        arena_jax.evaluate(env, [POLICY], episodes=episodes, out=run)
        spent = clocks(less=start)
        disk = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    return spent._asdict() | {"disk": disk, "peak_memory": peak_memory()}


def summed_up(samples: dict[int, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians by size, how far the cost of an episode differs between sizes, and what the target would cost."""
    sizes: list[dict[str, Any]] = [
        {"episodes": size, "samples": found}
        | {name: statistics.median(sample[name] for sample in found) for name in found[0]}
        for size, found in samples.items()
    ]
    apart = {}
    for name in ("seconds", "processor_seconds"):
        each = [row[name] / row["episodes"] for row in sizes]
        apart[name] = max(each) / min(each) - 1
    largest = sizes[-1]
    projected = {
        name: largest[name] * TARGET / largest["episodes"] for name in ("seconds", "processor_seconds", "disk")
    }
    return {"policy": POLICY, "sizes": sizes, "apart": apart, "target": TARGET, "projected": projected}


def summary(result: dict[str, Any]) -> str:
    """What came out, in a sentence."""
    smallest, *_, largest = result["sizes"]
    projected, apart = result["projected"], result["apart"]
    return (
        f"{result['target']:,} episodes of {result['policy']} take {projected['seconds']:,.0f} s and "
        f"{projected['disk'] / 1e9:.1f} GB of disk, projected from {largest['episodes']:,} in "
        f"{largest['seconds']:.1f} s; from {smallest['episodes']:,} episodes on the seconds of one differ by "
        f"{apart['seconds']:.1%}, those of a processor by {apart['processor_seconds']:.1%}."
    )


def measure(
    episodes: Annotated[list[int] | None, typer.Option(help="Episodes of an evaluation; repeatable.")] = None,
    repeats: Annotated[int, typer.Option(help="Samples of each size.")] = REPEATS,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: a minute.")] = False,
    out: Annotated[Path | None, typer.Option(help="JSON file of the results.")] = None,
) -> None:
    """Measure the cost of evaluations of growing size and project that of 10^8 episodes."""
    sizes = sorted(episodes or (QUICK if quick else EPISODES))
    check_count("repeats", repeats, 1, 100)
    for size in sizes:
        check_count("episodes", size, DEFAULT_BATCH, TARGET)
    samples: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    with progress(repeats * sum(sizes), "episodes") as advance:
        for _ in range(repeats):
            for size in sizes:
                samples[size].append(in_child(cost, size))
                advance(size)
    result = surroundings() | summed_up(samples)
    path = out or result_path("cost")
    write_json(path, result)
    table = Table("episodes", "seconds", "processor seconds", "a million", "peak memory MB", "disk MB", title=POLICY)
    for row in result["sizes"]:
        table.add_row(
            f"{row['episodes']:,}",
            f"{row['seconds']:.2f}",
            f"{row['processor_seconds']:.2f}",
            f"{row['seconds'] / row['episodes'] * 1e6:.2f}",
            f"{row['peak_memory'] / 1e6:.0f}",
            f"{row['disk'] / 1e6:.1f}",
        )
    table_console().print(table)
    print(summary(result))
    print(f"written to {path}")
    if result["apart"]["processor_seconds"] > MOST_APART:
        sys.exit(1)


if __name__ == "__main__":
    main(measure)
