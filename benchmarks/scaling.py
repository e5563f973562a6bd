"""How time and memory grow with the number of episodes, and what more devices bring.

    python -m benchmarks.scaling --quick          # up to 10,000 episodes: under a minute
    python -m benchmarks.scaling                  # up to 10 million episodes: about ten minutes and half a GB of disk

Every size runs in a process of its own, because a peak of memory belongs to a process. On a CPU two host devices stand
for two accelerators; on a machine with several GPUs the same code spreads the episodes over them. Exit code 1 if
records differ between devices or batches.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rich.table import Table

import arena_jax
from arena_jax.batch_play import DEFAULT_BATCH, play_batch
from arena_jax.cli.output import progress, table_console
from arena_jax.errors import check_count
from arena_jax.parts import MAX_EPISODES
from arena_jax.scenario import HORIZON
from arena_jax.structs import Record
from benchmarks.harness import in_child, main, peak_memory, result_path, summary, surroundings, write_json

EPISODES = tuple(10**power for power in range(2, 8))
BATCHES = (64, 256, 1024, 4096, 16_384, 65_536)
SHARDED_EPISODES = 65_536
REPEATS = 7
SEED = 0
HOST_DEVICES = 2  # that a CPU is split into
MEMORY_BETWEEN = (10**5, 10**7)  # episodes whose peaks are compared
MOST_MEMORY = 100e6  # bytes that the peak may rise between them


def digest(record: Record) -> str:
    """SHA-256 of every bit of a record."""
    sha = hashlib.sha256()
    for name, values in vars(record).items():
        sha.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return sha.hexdigest()


def evaluation(spec: str, episodes: int) -> dict[str, Any]:
    """Cost of `arena_jax.evaluate` into a run directory: seconds, peak memory, disk. Runs in a process of its own."""
    env = arena_jax.make()
    start = time.perf_counter()
    arena_jax.evaluate(env, [spec], episodes=min(episodes, DEFAULT_BATCH))
    warm = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="arena-jax-scaling-") as folder:
        arena_jax.evaluate(env, [spec], episodes=episodes, out=folder)
        end = time.perf_counter()
        disk = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    return {
        "episodes": episodes,
        "compile_seconds": warm - start,  # the first batch, played once before the clock of the run starts
        "seconds": end - warm,
        "nominal_rate": episodes * HORIZON / (end - warm),
        "peak_memory": peak_memory(),
        "disk": disk,
    }


def batches_alike(spec: str, batches: list[int], episodes: int) -> dict[int, str]:
    """Digest of the same episodes played in batches of each size. Runs in a process of its own."""
    env, policy, key = arena_jax.make(), arena_jax.make_policy(spec), jax.random.key(SEED)
    return {batch: digest(arena_jax.rollout(env, policy, key, episodes, batch=batch)) for batch in batches}


def available_devices() -> tuple[str, int]:
    """Backend and number of devices. Runs in a process of its own, which frees an accelerator's memory again."""
    return jax.default_backend(), len(jax.devices())


def sharded(spec: str, devices: int, episodes: int, repeats: int) -> dict[str, Any]:
    """Episodes spread over the first devices: seconds of a run, and digest. Runs in a process of its own."""
    env, policy, key = arena_jax.make(), arena_jax.make_policy(spec), jax.random.key(SEED)
    mesh = Mesh(np.array(jax.devices()[:devices]), ("episodes",))
    indices = jnp.arange(episodes, dtype=jnp.uint32)
    indices = jax.device_put(indices, NamedSharding(mesh, PartitionSpec("episodes")))
    seconds = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        record, _ = jax.block_until_ready(play_batch(env, policy, key, indices))
        seconds.append(time.perf_counter() - start)
    return {
        "devices": devices,
        "kind": jax.devices()[0].device_kind,
        "episodes": episodes,
        "devices_of_result": len(record.score.sharding.device_set),
        "compile_seconds": max(seconds[0] - min(seconds[1:]), 0.0),
        "seconds": summary(seconds[1:]),
        "nominal_rate": summary([episodes * HORIZON / s for s in seconds[1:]]),
        "digest": digest(jax.tree.map(np.asarray, record)),
    }


def device_counts(backend: str, available: int) -> list[int]:
    """One device and twice as many again, up to all there are; a CPU is split."""
    most = HOST_DEVICES if backend == "cpu" else available
    return [2**power for power in range(most.bit_length()) if 2**power <= most]


def tables(growth: list[dict[str, Any]], spread: list[dict[str, Any]]) -> list[Table]:
    """For people."""
    cost = Table("episodes", "seconds", "M months/s", "peak memory MB", "disk MB", title="arena_jax.evaluate(out=...)")
    for row in growth:
        cost.add_row(
            f"{row['episodes']:,}",
            f"{row['seconds']:.2f}",
            f"{row['nominal_rate'] / 1e6:.2f}",
            f"{row['peak_memory'] / 1e6:.0f}",
            f"{row['disk'] / 1e6:.1f}",
        )
    devices = Table("devices", "kind", "episodes", "seconds", "M months/s", title="episodes spread over devices")
    for row in spread:
        rate = row["nominal_rate"]["median"] / 1e6
        cells = (row["devices"], row["kind"], f"{row['episodes']:,}", f"{row['seconds']['median']:.3f}", f"{rate:.2f}")
        devices.add_row(*map(str, cells))
    return [cost, devices]


def scaling(
    policy: Annotated[str, typer.Option(help="Policy spec.")] = "greedy-equity:amount=20e6",
    episodes: Annotated[list[int] | None, typer.Option(help="Episodes of an evaluation; repeatable.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: under a minute.")] = False,
    out: Annotated[Path | None, typer.Option(help="JSON file of the results.")] = None,
) -> None:
    """Measure cost and memory against episodes, one device against several, and whether records stay the same."""
    sizes = sorted(episodes or ([100, 10_000] if quick else EPISODES))
    for size in sizes:
        check_count("episodes", size, 1, MAX_EPISODES)
    batches = [batch for batch in BATCHES if not quick or batch <= 1024]
    alike_episodes, repeats = (batches[-1], 2) if quick else (SHARDED_EPISODES, REPEATS)
    backend, available = in_child(available_devices)
    flags = os.environ.get("XLA_FLAGS", "")
    counts = device_counts(backend, available)
    with progress(len(sizes) + len(counts) + 1, "runs") as advance:

        def child(*call: Any, **settings: Any) -> Any:
            result = in_child(*call, **settings)
            advance(1)
            return result

        growth = [child(evaluation, policy, size) for size in sizes]
        spread = []
        for count in counts:
            environ = {}
            if backend == "cpu":
                environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={count}"
            spread.append(child(sharded, policy, count, alike_episodes, repeats, environ=environ))
        by_batch = child(batches_alike, policy, batches, alike_episodes)
    is_same = len({*by_batch.values(), *(row["digest"] for row in spread)}) == 1
    peaks = {row["episodes"]: row["peak_memory"] for row in growth}
    result = surroundings() | {
        "policy": policy,
        "growth": growth,
        "devices_spread": spread,
        "batches": by_batch,
        "identical": is_same,
    }
    path = out or result_path("scaling")
    write_json(path, result)
    console = table_console()
    console.print(*tables(growth, spread), sep="\n")
    (low, high), too_much = MEMORY_BETWEEN, False
    if low in peaks and high in peaks:
        growth_of_memory = peaks[high] - peaks[low]
        too_much = growth_of_memory > MOST_MEMORY
        print(f"resident memory of {high:,} episodes above that of {low:,}: {growth_of_memory / 1e6:.0f} MB")
    verdict = "bit-identical" if is_same else "DIFFERENT"
    print(f"records for batches {', '.join(map(str, batches))} and for {counts} devices: {verdict}")
    print(f"written to {path}")
    if not is_same or too_much:
        sys.exit(1)


if __name__ == "__main__":
    main(scaling)
