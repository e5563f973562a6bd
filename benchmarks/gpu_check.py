"""One GPU, under five minutes: does it play the CPU's episodes, how fast, in how much memory, traced how often?

    python -m benchmarks.gpu_check

Without a GPU it runs in a reduced form in which the CPU stands for both sides, and says so: what it then shows is that
the check works. Exit code 1 if a check fails.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from rich.table import Table

import arena_jax
from arena_jax.batch_play import play_batch
from arena_jax.cli.output import table_console
from arena_jax.errors import check_count
from arena_jax.scenario import HORIZON
from arena_jax.structs import Record
from benchmarks.harness import main, result_path, summary, surroundings, write_json

# one without requests, one of each instrument, and two that look before they act
POLICIES = (
    "never-raise",
    "greedy-equity:amount=20e6",
    "greedy-debt:amount=20e6",
    "cash-threshold:threshold=8e6,amount=12.6e6",
    "prudent-cfo",
)
RATE_POLICIES = ("greedy-equity:amount=20e6", "greedy-equity:amount=12.6e6")  # one program: options are data
EPISODES = (4096, 16_384, 65_536, 262_144, 2**20)
COMPARED = 16_384
REDUCED_EPISODES, REDUCED_COMPARED = (256, 512), 512  # without a GPU
REPEATS = 5
MONEY_TOLERANCE = 1e-5  # of the episode's scale, see `agreement`
MOST_TIES = 0.005  # share of episodes in which a comparison may fall the other way by rounding


def played(device: jax.Device, spec: str, episodes: int) -> Record:
    """Episodes 0 .. n - 1 of run 0 on a device."""
    with jax.default_device(device):
        env, policy = arena_jax.make(), arena_jax.make_policy(spec)
        return arena_jax.rollout(env, policy, jax.random.key(0), episodes, batch=episodes)


def agreement(mine: Record, reference: Record) -> dict[str, Any]:
    """Share of episodes with another discrete outcome; and of the others, the largest difference in money.

    A difference is taken as a share of the larger of the value itself and the episode's own scale, m * revenue + cash
    + debt at its end, which is of the size of its total assets.
    """
    fields = {name: (np.asarray(value), np.asarray(vars(reference)[name])) for name, value in vars(mine).items()}
    is_discrete = {name: theirs.dtype.kind in "bi" for name, (_, theirs) in fields.items()}
    same = np.ones(len(mine.survived), dtype=bool)
    for name, (ours, theirs) in fields.items():
        if is_discrete[name]:
            same &= ours == theirs
    assets = 5.0 * reference.revenue_ttm + abs(reference.cash) + reference.debt
    worst, where = 0.0, None
    for name, (ours, theirs) in fields.items():
        if is_discrete[name] or not same.any():
            continue
        is_money = name not in ("shares", "ownership_kept", "value_per_share")
        scale = np.maximum(abs(theirs), assets if is_money else 1e-6)
        error = float((abs(ours.astype(np.float64) - theirs) / scale)[same].max())
        if error > worst:
            worst, where = error, name
    return {"episodes": len(same), "ties": float(1 - same.mean()), "largest_difference": worst, "in": where}


def rate(device: jax.Device, episodes: int) -> dict[str, Any]:
    """Rate and compilation of one batch, several keys and amounts; the number of programs that they needed."""
    programs = play_batch.compiled._cache_size
    with jax.default_device(device):
        env, policies = arena_jax.make(), [arena_jax.make_policy(spec) for spec in RATE_POLICIES]
        indices, seconds, before = jnp.arange(episodes, dtype=jnp.uint32), [], programs()
        for seed in range(1 + REPEATS):
            start = time.perf_counter()
            jax.block_until_ready(play_batch(env, policies[seed % 2], jax.random.key(seed), indices))
            seconds.append(time.perf_counter() - start)
    memory = device.memory_stats() or {}
    return {
        "episodes": episodes,
        "compile_seconds": max(seconds[0] - min(seconds[1:]), 0.0),
        "seconds": summary(seconds[1:]),
        "nominal_rate": summary([episodes * HORIZON / s for s in seconds[1:]]),
        "programs": programs() - before,
        "peak_memory": memory.get("peak_bytes_in_use"),
    }


def tables(agreements: dict[str, dict[str, Any]], rates: list[dict[str, Any]]) -> list[Table]:
    """For people."""
    compared = Table("policy", "episodes", "ties", "largest difference", "in", title="against the CPU")
    for spec, row in agreements.items():
        compared.add_row(
            spec, str(row["episodes"]), f"{row['ties']:.2%}", f"{row['largest_difference']:.1e}", row["in"]
        )
    speed = Table(
        "episodes", "M months/s", "quartiles", "compile s", "programs", "peak memory MB", title=RATE_POLICIES[0]
    )
    for row in rates:
        months = {name: value / 1e6 for name, value in row["nominal_rate"].items()}
        speed.add_row(
            f"{row['episodes']:,}",
            f"{months['median']:.3g}",
            f"{months['q1']:.3g}-{months['q3']:.3g}",
            f"{row['compile_seconds']:.1f}",
            str(row["programs"]),
            "-" if row["peak_memory"] is None else f"{row['peak_memory'] / 1e6:.0f}",
        )
    return [compared, speed]


def gpu_check(
    policy: Annotated[list[str] | None, typer.Option(help="Policy to compare on both sides; repeatable.")] = None,
    episodes: Annotated[list[int] | None, typer.Option(help="Episodes of a timed batch; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file of the results.")] = None,
) -> None:
    """Compare the first device with the CPU and time it."""
    device, host = jax.devices()[0], jax.devices("cpu")[0]
    is_reduced = device == host
    sizes = episodes or (REDUCED_EPISODES if is_reduced else EPISODES)
    for size in sizes:
        check_count("episodes", size, 1, 2**26)
    compared, start = REDUCED_COMPARED if is_reduced else COMPARED, time.perf_counter()
    # first, so that the peaks of memory grow with the sizes
    rates = [rate(device, size) for size in sorted(set(sizes))]
    agreements = {
        spec: agreement(played(device, spec, compared), played(host, spec, compared)) for spec in policy or POLICIES
    }
    checks = {
        "discrete outcomes agree but for ties": all(row["ties"] <= MOST_TIES for row in agreements.values()),
        "money agrees": all(row["largest_difference"] <= MONEY_TOLERANCE for row in agreements.values()),
        "one program a batch size": all(row["programs"] == 1 for row in rates),
    }
    about = {"reduced": is_reduced, "wall_seconds": time.perf_counter() - start, "checks": checks}
    path = out or result_path("gpu_check")
    write_json(path, surroundings() | about | {"agreement": agreements, "rates": rates})
    table_console().print(*tables(agreements, rates), sep="\n")
    if is_reduced:
        print("no GPU found: the CPU was compared with itself, in a reduced form")
    for check, is_met in checks.items():
        print(f"{'ok' if is_met else 'FAILED'}: {check}")
    print(f"written to {path}")
    if not all(checks.values()):
        sys.exit(1)


if __name__ == "__main__":
    main(gpu_check)
