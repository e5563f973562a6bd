"""How fast arena_jax plays, against complete twins of the same model and against its own bound.

    python -m benchmarks.throughput --quick                  # a look, under a minute
    python -m benchmarks.throughput                          # every batch, policy and core count: about 15 minutes
    python -m benchmarks.throughput --batch 4096 --cores 2 --policy greedy-equity:amount=20e6

Every figure of one core count comes from one process in which all engines take turns, with fresh seeds each time.
"""

from __future__ import annotations

import importlib
import io
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import typer
from rich.table import Table

import arena_jax
from arena_jax.cli.output import progress, table_console
from arena_jax.errors import ArenaError, check_count
from arena_jax.files import write_atomic
from arena_jax.scenario import HORIZON
from benchmarks import pinned
from benchmarks.harness import available_cores, in_child, main, result_path, summary, surroundings, write_json
from benchmarks.peers.world import POLICIES, World, make_world, peer_policy

BATCHES = (64, 256, 1024, 4096, 16_384, 65_536)
PEERS = {"numba": "numba_parallel", "numpy": "numpy_batch", "python": "python_loop"}
PYTHON_EPISODES = 64  # of one call at most: its rate does not depend on the batch
PLAYED_AT_ONCE = 12  # months between two looks of batch play at whether any episode goes on
MIN_SECONDS = 0.05  # of one sample: short calls are repeated within it


@dataclass
class Case:
    """Something to time: `call(seed)` plays `episodes` and returns the months that they lived."""

    episodes: int
    call: Callable[[int], int]
    played_share: float = 1.0  # of the horizon: a batch is left once its last episode has ended
    compile_seconds: float = 0.0
    calls: int = 1  # of one sample


def load_peers() -> dict[str, ModuleType]:
    """The peers that can be imported; a notice for those that can't."""
    found = {}
    for name, module in PEERS.items():
        try:
            found[name] = importlib.import_module(f"benchmarks.peers.{module}")
        except ModuleNotFoundError as error:
            print(f"{name} left out: {error.name} is missing; pip install 'arena_jax[bench]'", file=sys.stderr)
    return found


def cases(peers: dict[str, ModuleType], world: World, spec: str, batch: int) -> dict[str, Case]:
    """arena_jax, the two parts of its bound, the peers, and each peer's draws alone ("numpy draws")."""
    env, policy, peer_form = arena_jax.make(), arena_jax.make_policy(spec), peer_policy(spec)
    months, indices = len(world.months), jnp.arange(batch, dtype=jnp.uint32)
    draws = jax.jit(pinned.month_draws)(jax.random.key(0), indices, jnp.uint32(0), jnp.zeros_like(indices))
    rules = jax.jit(lambda draws: pinned.rules_alone(world, peer_form, draws), compiler_options=pinned.COMPILER_OPTIONS)

    def whole(seed: int) -> int:
        return int(arena_jax.rollout(env, policy, jax.random.key(seed), batch, batch=batch).months_played.sum())

    def stream(seed: int) -> int:
        jax.block_until_ready(pinned.stream_alone(jax.random.key(seed), indices, months))
        return batch * months

    def rule(seed: int) -> int:
        jax.block_until_ready(rules(draws))
        return batch * months

    def played(peer: ModuleType, episodes: int) -> Callable[[int], int]:
        return lambda seed: int(peer.play(world, peer_form, episodes, seed).months_played.sum())

    def drawn(peer: ModuleType, episodes: int) -> Callable[[int], int]:
        return lambda seed: months * len(peer.draw(world, episodes, seed))

    longest = int(arena_jax.rollout(env, policy, jax.random.key(0), batch, batch=batch).months_played.max())
    played_share = -(-longest // PLAYED_AT_ONCE) * PLAYED_AT_ONCE / months
    found = {"arena_jax": Case(batch, whole, played_share), "stream": Case(batch, stream), "rules": Case(batch, rule)}
    for name, peer in peers.items():
        episodes = min(batch, PYTHON_EPISODES) if name == "python" else batch
        found[name] = Case(episodes, played(peer, episodes))
        found[f"{name} draws"] = Case(episodes, drawn(peer, episodes))
    return found


def measure(specs: list[str], batches: list[int], repeats: int) -> list[dict[str, Any]]:
    """A row per policy, batch and case: seconds of a call, rates, compilation. Runs in a process of its own."""
    peers, world = load_peers(), make_world(arena_jax.make())
    seeds, rows = itertools.count(1), []
    with progress(len(specs) * len(batches) * repeats, "rounds") as advance:
        for spec, batch in itertools.product(specs, batches):
            under_test = cases(peers, world, spec, batch)
            for case in under_test.values():
                _warm_up(case, seeds)
            samples: dict[str, list[tuple[float, float]]] = {name: [] for name in under_test}
            order, shuffle = list(under_test), random.Random(batch).shuffle
            for _ in range(repeats):
                shuffle(order)  # nobody always follows the same one
                for name in order:
                    samples[name].append(_sample(under_test[name], seeds))
                advance(1)
            for name, case in under_test.items():
                seconds, live = zip(*samples[name], strict=True)
                nominal = case.episodes * len(world.months)
                rows.append(
                    {
                        "policy": spec,
                        "batch": batch,
                        "engine": name,
                        "episodes": case.episodes,
                        "samples": repeats,
                        "calls": case.calls,
                        "compile_seconds": case.compile_seconds,
                        "seconds": summary(seconds),
                        "live_rate": summary([months / s for months, s in zip(live, seconds, strict=True)]),
                        "nominal_rate": summary([nominal / s for s in seconds]),
                        "played_share": case.played_share,
                        "live_share": sum(live) / (nominal * len(live)),
                    }
                )
    return rows


def _warm_up(case: Case, seeds: Iterator[int]) -> None:
    """Compile, and see how many calls make a sample."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        case.call(next(seeds))
        seconds.append(time.perf_counter() - start)
    once = min(seconds[1:])
    case.compile_seconds = max(seconds[0] - once, 0.0)
    case.calls = max(1, round(MIN_SECONDS / once))


def _sample(case: Case, seeds: Iterator[int]) -> tuple[float, float]:
    """Seconds and live months of one call, averaged over the calls of a sample."""
    start = time.perf_counter()
    live = sum(case.call(next(seeds)) for _ in range(case.calls))
    return (time.perf_counter() - start) / case.calls, live / case.calls


def compare(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per cores, policy and batch: arena_jax against each peer, against the bound, and everybody's share of draws.

    Peers are compared by live months a second; the bound, 1 / (1 / stream + 1 / rules), by the months that are played.
    """
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        groups.setdefault((row["cores"], row["policy"], row["batch"]), {})[row["engine"]] = row
    found = []
    for (cores, spec, batch), cell in groups.items():
        live = {name: row["live_rate"]["median"] for name, row in cell.items()}
        nominal = {name: row["nominal_rate"]["median"] for name, row in cell.items()}
        bound = 1 / (1 / nominal["stream"] + 1 / nominal["rules"])
        played = nominal["arena_jax"] * cell["arena_jax"]["played_share"]
        peers = [name for name in PEERS if name in cell]
        shares = {name: live[name] / live[f"{name} draws"] for name in peers}
        found.append(
            {
                "cores": cores,
                "policy": spec,
                "batch": batch,
                "ratio": {name: live["arena_jax"] / live[name] for name in peers},
                "bound": bound,
                "bound_share": played / bound,
                "random_share": {"arena_jax": played / nominal["stream"]} | shares,
            }
        )
    return found


def tables(rows: list[dict[str, Any]], comparison: list[dict[str, Any]]) -> list[Table]:
    """For people: rates with their quartiles, and the comparison."""
    rates = Table("cores", "policy", "batch", "engine", "live M/s", "quartiles", "nominal M/s", "compile s")
    rates.title = "million episode-months a second"
    for row in rows:
        live = {name: rate / 1e6 for name, rate in row["live_rate"].items()}
        rates.add_row(
            str(row["cores"]),
            row["policy"],
            str(row["batch"]),
            row["engine"],
            f"{live['median']:.3g}",
            f"{live['q1']:.3g}-{live['q3']:.3g}",
            f"{row['nominal_rate']['median'] / 1e6:.3g}",
            f"{row['compile_seconds']:.1f}",
        )
    peers = list(comparison[0]["ratio"])
    ratios = Table("cores", "policy", "batch", *[f"x {name}" for name in peers], "of the bound", "time in draws")
    ratios.title = "arena_jax against its peers and its bound"
    for cell in comparison:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in cell["random_share"].items())
        ratios.add_row(
            str(cell["cores"]),
            cell["policy"],
            str(cell["batch"]),
            *[f"{cell['ratio'][name]:.3g}" for name in peers],
            f"{cell['bound_share']:.0%}",
            shares,
        )
    return [rates, ratios]


def plot(path: Path, rows: list[dict[str, Any]], comparison: list[dict[str, Any]], title: str) -> None:
    """A panel per core count and policy: live rate against batch, quartiles shaded, the bound dashed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cores, specs = (list(dict.fromkeys(row[name] for row in rows)) for name in ("cores", "policy"))
    size = (4.2 * len(specs), 3.6 * len(cores))
    figure, axes = plt.subplots(len(cores), len(specs), figsize=size, squeeze=False, sharex=True, sharey=True)
    for (i, count), (j, spec) in itertools.product(enumerate(cores), enumerate(specs)):
        axis, here = axes[i][j], lambda row, c=count, s=spec: row["cores"] == c and row["policy"] == s
        for name in ("arena_jax", *PEERS):
            line = [row for row in rows if here(row) and row["engine"] == name]
            if line:
                rate = {key: [row["live_rate"][key] for row in line] for key in ("median", "q1", "q3")}
                axis.plot([row["batch"] for row in line], rate["median"], marker="o", markersize=3, label=name)
                axis.fill_between([row["batch"] for row in line], rate["q1"], rate["q3"], alpha=0.25)
        cells = [cell for cell in comparison if here(cell)]
        ours = [row for row in rows if here(row) and row["engine"] == "arena_jax"]
        lived = {row["batch"]: row["live_share"] / row["played_share"] for row in ours}
        bound = [cell["bound"] * lived[cell["batch"]] for cell in cells]
        axis.plot([cell["batch"] for cell in cells], bound, "k--", linewidth=1, label="bound of arena_jax")
        axis.set(xscale="log", yscale="log", title=f"{spec.partition(':')[0]}, {count} core{'s' * (count > 1)}")
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("episodes in a batch")
    for line in axes:
        line[0].set_ylabel("live episode-months a second")
    axes[0][0].legend(fontsize=7)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format="png")
    plt.close(figure)
    write_atomic(path, picture.getvalue())


def throughput(
    policy: Annotated[list[str] | None, typer.Option(help=f"One of {'; '.join(POLICIES)}; repeatable.")] = None,
    batch: Annotated[list[int] | None, typer.Option(help="Episodes in a batch; repeatable.")] = None,
    cores: Annotated[list[int] | None, typer.Option(help="Cores, each count in its own process; repeatable.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Samples of each figure.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One policy, one batch, all cores, three samples.")] = False,
    out: Annotated[Path | None, typer.Option(help="JSON file of the results; the plot goes beside it.")] = None,
) -> None:
    """Time arena_jax, its peers and the parts of its bound; write JSON and a plot, print tables."""
    counts = cores or ([available_cores()] if quick else sorted({1, min(2, available_cores())}))
    batches = batch or ([4096] if quick else list(BATCHES))
    specs = policy or (list(POLICIES)[1:2] if quick else list(POLICIES)[:3])
    repeats = (3 if quick else 9) if repeats is None else repeats
    for name, values, high in (
        ("cores", counts, available_cores()),
        ("batch", batches, 2**22),
        ("repeats", [repeats], 1000),
    ):
        for value in values:
            check_count(name, value, 1, high)
    for spec in specs:
        peer_policy(spec)
    path = out or result_path("throughput")
    if path.suffix != ".json":
        raise ArenaError(f"--out must name a .json file, got {path}")
    rows = [{"cores": n} | row for n in counts for row in in_child(measure, specs, batches, repeats, cores=n)]
    comparison, about = compare(rows), surroundings()
    write_json(path, about | {"months": HORIZON, "rates": rows, "comparison": comparison})
    console = table_console()
    console.print(*tables(rows, comparison), f"written to {path}", sep="\n")
    title = f"{about['processor']}, {about['dtype']}, jax {about['versions']['jax']}, commit {about['commit']}"
    try:
        plot(path.with_suffix(".png"), rows, comparison, title)
    except ModuleNotFoundError:
        print("matplotlib is not installed (pip install 'arena_jax[bench]'): no plot", file=sys.stderr)


if __name__ == "__main__":
    main(throughput)
