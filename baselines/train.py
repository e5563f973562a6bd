"""Train a policy with PPO, from nothing or from where a run was stopped.

    python -m baselines.train --config ppo
    python -m baselines.train --config ppo --resume
    python -m baselines.train --config mine.toml --seeds 3 --out runs/mine

The run directory holds checkpoint.msgpack, the learning curves (curves.csv, curves.png) and at the end each seed's
weights, policy-SEED.msgpack: arena-jax evaluate --policy ppo:weights=runs/ppo/policy-0.msgpack plays them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arena_jax.errors import ArenaError, check_count
from benchmarks.harness import main


def command(
    config: Annotated[str, typer.Option(help="A configuration of baselines/configs by name, or a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="Run directory; runs/CONFIG if left out.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first learner.")] = 0,
    seeds: Annotated[int, typer.Option(help="Learners side by side, each with a seed of its own.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in the run directory.")] = False,
    checkpoint_every: Annotated[int, typer.Option(help="Updates between two checkpoints.")] = 20,
) -> None:
    """Train; Ctrl-C writes a checkpoint and stops."""
    check_count("seeds", seeds, 1, 64)
    check_count("checkpoint-every", checkpoint_every, 1, 10**6)
    try:
        from baselines.run import open_run, train
    except ModuleNotFoundError as missing:
        raise ArenaError(f"training needs {missing.name}: pip install -e '.[rl,report]'") from None

    run = open_run(config, out or Path("runs") / Path(config).stem, seed, seeds, resume)
    is_done = train(run, checkpoint_every)
    if not is_done:
        raise typer.Exit(130)


if __name__ == "__main__":
    main(command)
