"""One training run: the loop of updates, its checkpoints and curves, and the weights that it ends with."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.analysis.table import money
from arena_jax.errors import ArenaError
from arena_jax.files import check_folder
from arena_jax.policies.trained import Trained, save_policy
from arena_jax.programs import Program
from arena_jax.version import __version__
from baselines.checkpoint import read_checkpoint, write_checkpoint
from baselines.config import Config, read_config
from baselines.curves import Row, check_drawing, read_csv, write_csv, write_png
from baselines.held_out import check_seed
from baselines.ppo import Learner, sizes_of, start, update
from baselines.worlds import World, make_world
from benchmarks.harness import NOTHING_SPENT, Spent, clocks

CHECKPOINT, CURVES, DRAWING = "checkpoint.msgpack", "curves.csv", "curves.png"


@dataclass
class Run:
    """A run between two updates."""

    name: str
    out: Path
    config: Config
    seeds: tuple[int, ...]
    world: World
    learners: Learner  # leaves [seeds, ...]
    rows: list[Row] = field(default_factory=list)
    spent: Spent = NOTHING_SPENT  # so far, compilation included

    @property
    def updates(self) -> int:
        """Done so far."""
        return int(self.learners.updates[0])


def open_run(config: str, out: Path, seed: int, seeds: int, resume: bool) -> Run:
    """A run from its start or from its checkpoint; raises `ArenaError` before anything is trained."""
    settings, numbers = read_config(config), tuple(range(seed, seed + seeds))
    for number in numbers:
        check_seed(number)
    check_drawing()
    name, path = Path(config).stem, out / CHECKPOINT
    if path.exists() and not resume:
        raise ArenaError(f"{out} holds a run already: go on with --resume, or give another --out")
    world = make_world(settings)
    begin = partial(_begin, settings, world, numbers)
    if not resume:
        check_folder(out)
        return Run(name, out, settings, numbers, world, begin())
    learners, spent = read_checkpoint(path, _header(settings, numbers), begin)
    run = Run(name, out, settings, numbers, world, learners, spent=spent)
    if not (np.asarray(learners.updates) == run.updates).all() or not 0 < run.updates <= settings.updates:
        raise ArenaError(f"{path} is damaged: it tells of {run.updates} updates of {settings.updates}")
    run.rows = read_csv(out / CURVES, run.updates, numbers)
    check_folder(out)
    return run


def _begin(config: Config, world: World, seeds: tuple[int, ...]) -> Learner:
    """A learner a seed, side by side."""
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    learners: Learner = Program(jax.vmap(partial(start, config), in_axes=(None, 0)))(world, keys)
    return learners


def train(run: Run, checkpoint_every: int) -> bool:
    """Update until the end, or until Ctrl-C, after which a checkpoint of what is done is left; whether all is done.

    Raises `ArenaError` as soon as a learner is no longer of finite numbers; what was written before stays.
    """
    step = Program(jax.vmap(partial(update, run.config), in_axes=(None, 0)))
    began = clocks(less=run.spent)
    written = run.updates
    print("compiling, which is silent for a minute or so", file=sys.stderr)
    try:
        while run.updates < run.config.updates:
            learners, figures = jax.block_until_ready(step(run.world, run.learners))
            _check_finite(run, learners)
            spent = clocks(less=began)
            rows = _rows(run, figures, spent.seconds)
            # all or none: an interruption must not come between them
            run.learners, run.rows, run.spent = learners, run.rows + rows, spent
            print(_line(run, rows), file=sys.stderr)
            if run.updates % checkpoint_every == 0 or run.updates == run.config.updates:
                _write(run)
                written = run.updates
    except KeyboardInterrupt:
        if run.updates > written:
            _write(run)
        hint = "--resume goes on" if run.updates else "nothing is written yet, begin again without --resume"
        print(f"interrupted after update {run.updates}; {hint}", file=sys.stderr)
        return False
    for number, seed in enumerate(run.seeds):
        learner = jax.tree.map(lambda leaf: leaf[number], run.learners)  # noqa: B023
        path = run.out / f"policy-{seed}.msgpack"
        save_policy(path, policy_of(run.config, run.world, learner), _about(run, seed))
        variant = " --env-set disciplined=true" if run.config.disciplined else ""
        print(f"wrote {path}; arena-jax evaluate{variant} --policy ppo:weights={path}", file=sys.stderr)
    return True


def _check_finite(run: Run, learners: Learner) -> None:
    """Refuse to go on with learners whose weights are not finite: no loss is, from then on."""
    for number, seed in enumerate(run.seeds):
        if not all(np.isfinite(leaf[number]).all() for leaf in jax.tree.leaves(learners.weights)):
            raise ArenaError(
                f"training diverged in update {run.updates + 1}, seed {seed}: weights are not finite; "
                "lower learning_rate, clip or reward_scale"
            )


def policy_of(config: Config, world: World, learner: Learner) -> Trained:
    """What a learner has learned, for batch play."""
    sizes = sizes_of(config, world)
    normaliser = learner.normaliser.first(sizes.observation)
    return Trained(learner.weights["actor"], normaliser, sizes, world.env.layout_digest, config.shows_terms)


def _header(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    """What a run and its checkpoint must agree in, as JSON has it."""
    settings = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(config).items()}
    return {"config": settings, "seeds": list(seeds), "arena_jax": __version__, "jax": jax.__version__}


def _about(run: Run, seed: int) -> dict[str, Any]:
    """How weights came about."""
    header = _header(run.config, run.seeds)
    spent = {name: round(seconds, 1) for name, seconds in run.spent._asdict().items()}
    training = {"decisions": run.config.decisions, **spent, "backend": jax.default_backend()}
    return {name: header[name] for name in ("config", "arena_jax", "jax")} | {
        "name": run.name, "variant": run.world.env.arena().name, "seed": seed, "training": training,
    }  # fmt: skip


def _write(run: Run) -> None:
    """Curves first: those of a checkpoint are always there."""
    write_csv(run.out / CURVES, run.rows)
    write_png(run.out / DRAWING, run.rows, f"{run.name}: {run.config.decisions / 1e6:.3g}M decisions a seed")
    write_checkpoint(run.out / CHECKPOINT, _header(run.config, run.seeds), run.learners, run.spent)


def _rows(run: Run, figures: dict[str, jax.Array], seconds: float) -> list[Row]:
    done = run.updates + 1
    decisions = done * run.config.lanes * run.config.steps
    found = {name: np.asarray(value, dtype=np.float64) for name, value in sorted(figures.items())}
    return [
        {"update": done, "seed": seed, "decisions": decisions, "seconds": seconds}
        | {name: float(value[number]) for name, value in found.items()}
        for number, seed in enumerate(run.seeds)
    ]


def _line(run: Run, rows: list[Row]) -> str:
    """Progress in one line, means over the seeds."""
    mean = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    ended = f"objective {money(mean['objective'])}, survived {mean['survived']:.0%}, {mean['calls']:.1f} calls a month"
    decisions = f"{mean['decisions'] / 1e6:.2f}M decisions"
    return (
        f"update {run.updates}/{run.config.updates}, {decisions}, {run.spent.seconds:.0f} s: "
        f"{ended if mean['episodes'] else 'no episode ended'}, entropy {mean['entropy']:.2f}"
    )
