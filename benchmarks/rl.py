"""How many decisions a second EnterpriseArenaRL-v1 takes, as a learner steps it: vmapped, in a scan, with auto-reset.

    python -m benchmarks.rl --quick
    python -m benchmarks.rl --batch 4096 --scenarios generated:1000

Decisions are drawn at random from those that the mask allows; drawing them is part of the time, and of "policy" alone.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import typer
from rich.table import Table

import arena_jax
from arena_jax.cli.output import progress, table_console
from arena_jax.errors import check_count
from benchmarks.harness import in_child, main, result_path, summary, surroundings, write_json

BATCHES = (1024, 4096)
STEPS = 256  # of one call


def choose(mask: jax.Array, key: jax.Array) -> jax.Array:
    """One of the allowed actions of each row bool[n, actions], all alike: int32[n]."""
    allowed = jnp.cumsum(mask, axis=1, dtype=jnp.int32)
    place = jnp.floor(jax.random.uniform(key, mask.shape[:1]) * allowed[:, -1].astype(jnp.float32))
    return jnp.argmax(allowed > place.astype(jnp.int32)[:, None], axis=1).astype(jnp.int32)


@jax.jit
def play_on(env: Any, state: Any, mask: jax.Array, key: jax.Array) -> tuple[Any, jax.Array, jax.Array, jax.Array]:
    """STEPS decisions of each episode: state, mask, decisions that ended a month, and a sum over all observations."""

    def one(carry: Any, key: jax.Array) -> Any:
        state, mask = carry
        key_action, key_step = jax.random.split(key)
        action, keys = choose(mask, key_action), jax.random.split(key_step, mask.shape[0])
        state, timestep, _ = jax.vmap(env.step_on)(state, action, keys)
        seen = timestep.observation.sum() + timestep.reward.sum()
        return (state, timestep.action_mask), (jnp.sum(action >= 4, dtype=jnp.int32), seen)

    (state, mask), (months, seen) = jax.lax.scan(one, (state, mask), jax.random.split(key, STEPS))
    return state, mask, months.sum(dtype=jnp.int32), seen.sum()


@jax.jit
def policy_alone(mask: jax.Array, key: jax.Array) -> jax.Array:
    """The same random numbers and choices without an environment."""

    def one(mask: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        key_action, key_step = jax.random.split(key)
        action, keys = choose(mask, key_action), jax.random.split(key_step, mask.shape[0])
        return mask ^ (jax.random.key_data(keys)[:, :1] == action.astype(jnp.uint32)[:, None]), None

    return jax.lax.scan(one, mask, jax.random.split(key, STEPS))[0]


def measure(batches: list[int], repeats: int, scenarios: str | None) -> list[dict[str, Any]]:
    """A row per batch: decisions and months a second, the policy's share of the time, compilation."""
    env, rows = arena_jax.make("EnterpriseArenaRL-v1", scenarios=scenarios), []
    with progress(len(batches) * (repeats + 1), "calls") as advance:
        for batch in batches:
            state, timestep = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), batch))
            mask, seconds, alone, months = timestep.action_mask, [], [], 0
            for call in range(repeats + 1):
                key = jax.random.key(call)
                start = time.perf_counter()
                state, mask, ended, _ = jax.block_until_ready(play_on(env, state, mask, key))
                seconds.append(time.perf_counter() - start)
                start = time.perf_counter()
                jax.block_until_ready(policy_alone(mask, key))
                alone.append(time.perf_counter() - start)
                months += int(ended) if call else 0
                advance(1)
            decisions = batch * STEPS
            rows.append(
                {
                    "batch": batch,
                    "scenarios": scenarios,
                    "samples": repeats,
                    "compile_seconds": max(seconds[0] - min(seconds[1:]), 0.0),
                    "decision_rate": summary([decisions / s for s in seconds[1:]]),
                    "months_per_decision": months / (decisions * repeats),
                    "policy_share": summary([a / s for a, s in zip(alone[1:], seconds[1:], strict=True)]),
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """For people."""
    found = Table("batch", "decisions M/s", "quartiles", "months M/s", "policy's share", "compile s")
    found.title = "EnterpriseArenaRL-v1, random decisions, auto-reset"
    for row in rows:
        rate = {name: value / 1e6 for name, value in row["decision_rate"].items()}
        found.add_row(
            f"{row['batch']:,}",
            f"{rate['median']:.3g}",
            f"{rate['q1']:.3g}-{rate['q3']:.3g}",
            f"{rate['median'] * row['months_per_decision']:.3g}",
            f"{row['policy_share']['median']:.0%}",
            f"{row['compile_seconds']:.1f}",
        )
    return found


def command(
    batch: Annotated[list[int] | None, typer.Option(help="Episodes stepped at once; repeatable.")] = None,
    repeats: Annotated[int, typer.Option(help=f"Samples of {STEPS} decisions an episode.")] = 7,
    scenarios: Annotated[str | None, typer.Option(help="Trajectories, such as generated:1000.")] = None,
    cores: Annotated[int | None, typer.Option(help="Cores to use (Linux).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One batch, three samples.")] = False,
    out: Annotated[Path | None, typer.Option(help="Results as JSON.")] = None,
) -> None:
    """Decisions a second at decision level."""
    batches = list(batch or (BATCHES[:1] if quick else BATCHES))
    for size in batches:
        check_count("batch", size, 1, 2**24)
    check_count("repeats", repeats, 1, 1000)
    rows = in_child(partial(measure, batches, 3 if quick else repeats, scenarios), cores=cores)
    path = out or result_path("rl")
    write_json(path, surroundings() | {"cores_used": cores, "steps": STEPS, "rows": rows})
    table_console().print(table(rows), f"written to {path}", sep="\n")


if __name__ == "__main__":
    main(command)
