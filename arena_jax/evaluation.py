"""Policies over many episodes, streamed: play a part, write it, merge its sums, forget it (design section 5.5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from arena_jax.analysis.metrics import Tallies
from arena_jax.analysis.spread import WorldTallies
from arena_jax.arena import Arena
from arena_jax.batch_play import DEFAULT_BATCH, Months, check_recordable, rollout
from arena_jax.draws import MAX_SEED
from arena_jax.errors import ArenaError, check_count
from arena_jax.folders import clear_left, policy_folder
from arena_jax.parts import (
    FORMAT,
    MANIFEST,
    Split,
    check_run,
    open_run,
    parse_shard,
    read_part,
    what_plays,
    write_part,
)
from arena_jax.policies import make_policies
from arena_jax.scenario import HORIZON, MAX_HORIZON, digest
from arena_jax.structs import Record
from arena_jax.trajectory import check_fields
from arena_jax.worlds import Worlds, parse_worlds


def evaluate(
    env: Arena,
    policies: Sequence[str],
    *,
    episodes: int,
    scenarios: str | None = None,
    seed: int = 0,
    batch: int = DEFAULT_BATCH,
    out: str | Path | None = None,
    shard: tuple[int, int] = (1, 1),
    record: Sequence[str] = (),
    on_part: Callable[[str, Record], None] = lambda spec, part: None,
    on_progress: Callable[[int], None] = lambda episodes_done: None,
) -> dict[str, dict[str, Any]]:
    """Play every policy over the same episodes; per policy and metric an `Estimate`, over several worlds a `Spread`.

    policies: specs as `make_policy` takes them. seed: whole number in [0, 2^32); the run key is `jax.random.key(seed)`.
    episodes: of each policy in each world. scenarios: worlds in place of `env.scenario` (`arena_jax.worlds.FORMS`),
    with its horizon; episode e of world w has the run's episode number w * episodes + e, so no luck is shared.
    out: a run directory; finished parts in it are read, not played again. shard: (i, n) plays every n-th part only.
    record: fields to write month by month beside the records (`arena_jax.trajectory.RECORDERS`); needs `out`.
    on_part: called with a policy's spec and the records of each of its parts, in order.
    on_progress: called with the number of episodes just finished. Raises `ArenaError` before anything is compiled.
    """
    job = Job(env, tuple(policies), episodes, scenarios, seed, batch, check_fields(record))
    job.check_played(out, shard)
    if out is not None:
        open_run(Path(out), job.manifest(shard))
    return job.estimates(out, shard, on_part, on_progress)


@dataclass(frozen=True)
class Job:
    """What `evaluate` plays; checked when it is made, and small enough to be sent to another process.

    The fields are `evaluate`'s arguments of these names; `fields` are those that `record` names.
    """

    env: Arena
    policies: tuple[str, ...]
    episodes: int
    scenarios: str | None = None
    seed: int = 0
    batch: int = DEFAULT_BATCH
    fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for policy in make_policies(self.policies).values():
            check_recordable(policy, self.fields)
        check_count("seed", self.seed, 0, MAX_SEED)
        check_count("batch", self.batch, 1, MAX_SEED)
        worlds = self.worlds
        if self.fields and worlds and worlds.held_out:
            raise ArenaError("the months of held-out worlds are not recorded: they would show the trajectory")
        if worlds:
            check_count("horizon of generated worlds", self.env.scenario.horizon, HORIZON, MAX_HORIZON)
        self.split  # noqa: B018 - checks the number of episodes

    @property
    def worlds(self) -> Worlds | None:
        """The worlds that take the place of the environment's own."""
        return None if self.scenarios is None else parse_worlds(self.scenarios)

    @property
    def split(self) -> Split:
        """How the episodes are cut into parts."""
        worlds = self.worlds
        return Split(self.episodes, worlds.count if worlds else 1)

    def check_played(self, out: str | Path | None, shard: tuple[int, int]) -> None:
        """Raise `ArenaError` unless the shard has parts to play, and a place for the fields that are recorded."""
        if self.fields and out is None:
            raise ArenaError("recording fields needs a run directory to write them to (out)")
        parse_shard(f"{shard[0]}/{shard[1]}")
        if not self.split.starts(shard):
            count = len(self.split.starts())
            raise ArenaError(f"shard {shard[0]}/{shard[1]} is empty: the episodes make {count} parts")

    def manifest(self, shard: tuple[int, int] = (1, 1)) -> dict[str, Any]:
        """What makes a run what it is: runs with equal manifests (device and shard aside) hold the same episodes."""
        env, split, worlds = self.env, self.split, self.worlds
        return {
            "format": FORMAT,
            **what_plays(env, self.policies),
            "device": jax.devices()[0].device_kind,
            "seed": int(self.seed),
            "episodes": split.episodes,
            "worlds": split.worlds,
            "part": split.part,
            "shard": f"{shard[0]}/{shard[1]}",
            "record": list(self.fields),
            "parameters": {name: np.asarray(value).tolist() for name, value in vars(env.params).items()},
            "trajectory_sha256": None if worlds else digest(env.scenario),
            "scenarios": worlds.about | {"horizon": env.scenario.horizon} if worlds else None,
        }

    def parts(
        self,
        out: str | Path | None,
        shard: tuple[int, int],
        on_progress: Callable[[int], None] = lambda count: None,
        is_played: bool = False,
    ) -> Iterator[tuple[str, Record]]:
        """Spec and records of every part of a shard, in order: read from `out` if finished, else played and written.

        is_played: others have played them all; raises `ArenaError` for one that is not to be seen here.
        """
        split, worlds, key = self.split, self.worlds, jax.random.key(self.seed)
        pad_to = min(split.part, split.episodes)  # one program for all parts and worlds
        for number, (spec, policy) in enumerate(make_policies(self.policies).items()):
            folder = None if out is None else Path(out) / policy_folder(number, spec)
            for start in split.starts(shard):
                outcome = None if folder is None else read_part(folder, split, start, with_months=bool(self.fields))
                if outcome is None and is_played:
                    raise ArenaError(f"{folder} lacks episodes from {start:,} on: this machine doesn't see what others "
                                     "played there; run the same command again where it does")  # fmt: skip
                if outcome is None:
                    play = partial(
                        rollout, policy=policy, key=key, batch=self.batch, pad_to=pad_to, record=self.fields,
                        on_progress=on_progress,
                    )  # fmt: skip
                    outcome, months = _play_part(play, self.env, worlds, split, start)
                    if folder is not None:
                        write_part(folder, split, start, outcome, months)
                else:
                    on_progress(split.size(start))
                yield spec, outcome

    def estimates(
        self,
        out: str | Path | None = None,
        shard: tuple[int, int] = (1, 1),
        on_part: Callable[[str, Record], None] = lambda spec, part: None,
        on_progress: Callable[[int], None] = lambda count: None,
        is_played: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """What `evaluate` returns, from the parts of a shard (`parts`)."""
        is_one = self.split.worlds == 1
        tallies = {spec: Tallies() if is_one else WorldTallies(self.episodes) for spec in self.policies}
        for spec, outcome in self.parts(out, shard, on_progress, is_played):
            tallies[spec].add(outcome)
            on_part(spec, outcome)
        if out is not None:
            clear_left(Path(out), self.policies)
        return {spec: found.estimates() for spec, found in tallies.items()}


def play_shard(job: Job, out: Path, shard: tuple[int, int]) -> int:
    """Play what is missing of a shard, in a run directory that another process has opened; the shard's episodes.

    Raises `ArenaError` if the run is not to be seen here, or if this machine would play other episodes.
    """
    if not (out / MANIFEST).exists():
        raise ArenaError(f"{out} is not there: all workers must see it, on a file system that they share")
    check_run(out, job.manifest())
    return sum(len(outcome.survived) for _, outcome in job.parts(out, shard))


def _play_part(
    play: Callable[..., Any], env: Arena, worlds: Worlds | None, split: Split, start: int
) -> tuple[Record, Months | None]:
    """A part's records and, where recorded, its months; world by world."""
    stop = start + split.size(start)
    played = []
    for first in range(start, stop, split.part if split.worlds == 1 else split.episodes):
        if worlds:
            scenario = worlds.scenario(first // split.episodes, env.scenario.horizon)
            env = dataclasses.replace(env, scenario=scenario)
        found = play(env, episodes=min(split.episodes, stop - first), first=first)
        played.append(found if isinstance(found, tuple) else (found, None))
    outcome, months = jax.tree.map(lambda *leaves: np.concatenate(leaves), *played)
    return outcome, months
