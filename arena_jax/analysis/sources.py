"""One reader for run directories of both kinds: `evaluate --out` (Parquet) and `agent` (journals).

Records come with what they are: whose, how many, of which seeds, rules and worlds. What is unfinished, damaged, or not
of the same game as the rest is refused, with the difference named; a journal is replayed before it counts.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import jax
import numpy as np

from arena_jax.analysis.fan import Fan, fan
from arena_jax.arena import ENVIRONMENTS
from arena_jax.errors import ArenaError
from arena_jax.folders import policy_folder
from arena_jax.llm.episode import Episode
from arena_jax.llm.journal import AGENT_STOPPED, Line
from arena_jax.llm.run_file import RUN, read_run
from arena_jax.llm.runs import (
    COMPARED,
    DAMAGED,
    SCORED,
    Played,
    confirm_episode,
    played_episodes,
    run_environment,
    run_seed,
    stacked,
)
from arena_jax.params import FIELDS, Params, make_params
from arena_jax.parts import (
    MANIFEST,
    Split,
    differences,
    manifest_split,
    read_manifest,
    read_months,
    read_part,
)
from arena_jax.scenario import Scenario, default_scenario, digest
from arena_jax.structs import Record

FAN_EPISODES = 131_072  # of a policy, at most, that a fan of cash is drawn from
_SEEDS_SHOWN = 5
HELD_OUT = "months of held-out worlds are not shown: they would tell the trajectory"
UNRECORDED = "the run holds no months: play it with arena-jax evaluate ... --out DIR --record cash"


@dataclass(frozen=True)
class Source:
    """The episodes of one policy or player. record: leaves [n]. stopped: bool[n], its player stopped before the end.

    seeds: the one of a simulated run, or of journals one of each episode (`by_episode`). cash: quantiles by month, or
    in words why there are none. world_episodes: episodes of each of several worlds, world after world; 0 where no two
    episodes share a world that others do not have.
    """

    label: str
    record: Record
    stopped: np.ndarray
    seeds: tuple[int, ...]
    cash: Fan | str
    world_episodes: int = 0
    by_episode: bool = False

    @property
    def n(self) -> int:
        """Number of episodes."""
        return len(self.stopped)

    @property
    def draws(self) -> tuple[int, tuple[int, ...], int, bool]:
        """What two sources on common ground share that played the same episodes in the same order."""
        return self.n, self.seeds, self.world_episodes, self.by_episode

    @property
    def seed_text(self) -> str:
        """The seeds in words, five at most."""
        shown = ", ".join(map(str, self.seeds[:_SEEDS_SHOWN]))
        more = len(self.seeds) - _SEEDS_SHOWN
        return f"seed{'s' if len(self.seeds) > 1 else ''} {shown}" + (f" and {more} more" if more > 0 else "")

    @property
    def bankrupt(self) -> np.ndarray:
        """bool[n]."""
        return ~(np.asarray(self.record.survived, dtype=bool) | self.stopped)


@dataclass(frozen=True)
class Ground:
    """What all records that are shown together must share: version, rules, worlds, and whether the horizon was told."""

    version: str
    parameters: dict[str, Any]
    trajectory: str | None  # its hash; None over several worlds
    scenarios: dict[str, Any] | None
    disclosed: bool = False

    @property
    def changed(self) -> tuple[str, ...]:
        """Parameters that differ from the defaults, as NAME=VALUE."""
        defaults = plain_params(make_params())
        return tuple(
            f"{name}={value:.7g}" for name, value in self.parameters.items() if np.float32(value) != defaults[name]
        )

    @property
    def title(self) -> str:
        """What was played, in one line."""
        return ", ".join([ENVIRONMENTS[0], f"arena_jax {self.version}", self.world, *self.changed])

    @property
    def world(self) -> str:
        """The world or worlds in words."""
        if self.scenarios is not None:
            return f"{self.scenarios['kind']} worlds"
        return "default trajectory" if self.scenario is not None else f"own trajectory {str(self.trajectory)[:12]}"

    @property
    def scenario(self) -> Scenario | None:
        """The trajectory, where it is the default one."""
        default = default_scenario()
        return default if self.trajectory == digest(default) else None

    @property
    def crisis_months(self) -> tuple[int, ...]:
        """Months that Table 1's crises are passed in, where they are known."""
        return () if self.scenario is None else tuple(np.asarray(self.scenario.crisis_months).tolist())


@dataclass(frozen=True)
class Sources:
    """Sources on common ground, and how many episodes were left out by status."""

    ground: Ground
    sources: tuple[Source, ...]
    left_out: dict[str, int]

    @property
    def caveat(self) -> str:
        """What to know of intervals over episodes; nothing where each episode is a draw of its own."""
        if not any(source.world_episodes for source in self.sources):
            return ""
        return "Intervals are over episodes, of which many share a world: for other worlds they are too narrow."

    @property
    def share_seeds(self) -> bool:
        """Whether two sources played the same seeds, so that their episodes are not independent."""
        return any(
            one.by_episode == other.by_episode and set(one.seeds) & set(other.seeds)
            for one, other in combinations(self.sources, 2)
        )

    @property
    def records(self) -> Record:
        """The records of all sources as one, leaves [n]."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *[source.record for source in self.sources])


def read_sources(
    directories: Sequence[Path],
    *,
    skip_unfinished: bool = False,
    on_progress: Callable[[int], None] = lambda episodes_done: None,
) -> Sources:
    """The records in run directories of either kind, a source per policy or player.

    skip_unfinished: leave out episodes of agents that have not ended, and count them, instead of refusing them.
    on_progress: called with the number of episodes just read (`count_episodes` in all).
    Raises `ArenaError` for what is no run, is not whole, or was played by other rules or in other worlds than the rest.
    """
    if not directories:
        raise ArenaError("give at least one run directory")
    if len({directory.resolve() for directory in directories}) < len(directories):
        raise ArenaError("a run directory is named twice; its episodes would count twice")
    grounds = [_ground(directory) for directory in directories]
    for directory, ground in zip(directories[1:], grounds[1:], strict=True):
        _check_alike(directories[0], grounds[0], directory, ground)
    found: list[Source] = []
    journals: list[tuple[Path, Played]] = []
    for directory in directories:
        if _is_journals(directory):
            journals += [(directory, played) for played in played_episodes(directory)]
        else:
            found += _simulated(directory, read_manifest(directory), on_progress)
    left_out = Counter(played.status for _, played in journals if played.status not in SCORED)
    _check_whole(journals, skip_unfinished)
    found += _of_journals([pair for pair in journals if pair[1].status in SCORED], on_progress)
    if not found:
        raise ArenaError("no episode has ended yet: arena-jax agent list shows where they stand")
    return Sources(grounds[0], tuple(_told_apart(found)), dict(left_out))


def count_episodes(directories: Sequence[Path]) -> int:
    """Episodes in run directories of either kind, for a progress bar."""
    total = 0
    for directory in directories:
        if _is_journals(directory):
            total += read_run(directory)["episodes"]
        else:
            manifest = read_manifest(directory)
            total += manifest_split(manifest).total * len(manifest["policies"])
    return total


def _is_journals(directory: Path) -> bool:
    if not (directory / RUN).exists() and not (directory / MANIFEST).exists():
        raise ArenaError(
            f"{directory} is not a run directory: it has neither {MANIFEST} (arena-jax evaluate --out) nor {RUN} "
            "(arena-jax agent new)"
        )
    return (directory / RUN).exists()


def plain_params(params: Params) -> dict[str, Any]:
    """Parameters by name as plain numbers, as a manifest holds them."""
    return {name: np.asarray(value).tolist() for name, value in vars(params).items()}


def _ground(directory: Path) -> Ground:
    if _is_journals(directory):
        run = read_run(directory)
        env = run_environment(directory, 0)
        return Ground(
            version=run["arena_jax"],
            parameters=plain_params(env.params),
            trajectory=None if run["scenarios"] else run["trajectories_sha256"][0],
            scenarios=run["scenarios"],
            disclosed=run["disclose_horizon"],
        )
    manifest = read_manifest(directory)
    if manifest.get("environment") not in ENVIRONMENTS:
        raise ArenaError(f"{directory} is a run of {manifest.get('environment')}, not of {' or '.join(ENVIRONMENTS)}")
    parameters = manifest.get("parameters")
    if not isinstance(parameters, dict) or parameters.keys() != FIELDS.keys():
        raise ArenaError(f"{directory} has other parameters than this version of arena_jax")
    scenarios = manifest["scenarios"]
    return Ground(
        version=manifest.get("arena_jax", "unknown"),
        parameters=parameters,
        trajectory=manifest.get("trajectory_sha256"),
        scenarios=None if scenarios is None else {key: scenarios[key] for key in scenarios if key != "horizon"},
    )


def _check_alike(first: Path, ground: Ground, directory: Path, other: Ground) -> None:
    # policies are told the horizon in any case, so only between runs of agents does that differ
    free = () if _is_journals(first) and _is_journals(directory) else ("disclosed",)
    found = next(differences(dataclasses.asdict(other), dataclasses.asdict(ground), free), None)
    if found:
        raise ArenaError(f"{directory} was not played as {first} was ({found}); show them apart")


def _simulated(directory: Path, manifest: dict[str, Any], on_progress: Callable[[int], None]) -> list[Source]:
    split = manifest_split(manifest)
    if manifest["shard"] != "1/1":
        raise ArenaError(f"{directory} is shard {manifest['shard']} of a run; put the shards together: arena-jax merge")
    seeds = (manifest["seed"],)
    found = []
    for number, spec in enumerate(manifest["policies"]):
        folder = directory / policy_folder(number, spec)
        parts = []
        for start in split.starts():
            part = read_part(folder, split, start, with_months=bool(manifest["record"]))
            if part is None:
                name = split.path(folder, "part", start)
                raise ArenaError(
                    f"{directory} is not finished: {name} or its months are missing; give the same evaluate again"
                )
            parts.append(part)
            on_progress(split.size(start))
        record = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        cash = _recorded_cash(folder, split, manifest, np.asarray(record.months_played))
        in_each = split.episodes if split.worlds > 1 else 0
        found.append(Source(spec, record, np.zeros(split.total, dtype=bool), seeds, cash, in_each))
    return found


def _recorded_cash(folder: Path, split: Split, manifest: dict[str, Any], played: np.ndarray) -> Fan | str:
    if "cash" not in manifest["record"]:
        held_out = (manifest["scenarios"] or {}).get("kind") == "held out"
        return HELD_OUT if held_out else UNRECORDED
    starts = [start for start in split.starts() if start < FAN_EPISODES]
    recorded = manifest["record"]
    return fan(
        [
            read_months(folder, split, start, recorded, "cash", played[start : start + split.size(start)])
            for start in starts
        ]
    )


def _check_whole(journals: list[tuple[Path, Played]], skip_unfinished: bool) -> None:
    """Refuse what has not ended, and journals of unlike prompts, tools or versions."""
    for directory, played in journals:
        if played.status not in SCORED and not skip_unfinished:
            why = f": {played.reason}" if played.status == DAMAGED else ""
            raise ArenaError(
                f"episode {played.episode} of {directory} is {played.status}{why}; let it end, or leave such "
                "episodes out with --skip-unfinished"
            )
    ended = [(directory, played) for directory, played in journals if played.status in SCORED]
    for directory, played in ended:
        for name in COMPARED:
            if played.played_as[name] != ended[0][1].played_as[name]:
                raise ArenaError(
                    f"episode {played.episode} of {directory} was played with another {name.removesuffix('_sha256')} "
                    f"than episode {ended[0][1].episode} of {ended[0][0]}; show them apart"
                )


def _of_journals(ended: list[tuple[Path, Played]], on_progress: Callable[[int], None]) -> list[Source]:
    players: dict[str, list[tuple[Path, Played]]] = {}
    places: dict[tuple[str, int], str] = {}
    for directory, played in ended:
        players.setdefault(played.player, []).append((directory, played))
        key, place = (played.player, run_seed(directory, played.episode)), f"episode {played.episode} of {directory}"
        if key in places:
            raise ArenaError(f"{places[key]} and {place} are of one player and seed; they would count twice")
        places[key] = place
    found = []
    for label, mine in players.items():
        paths = []
        for directory, played in mine:
            paths.append(_replayed_cash(directory, played.episode))
            on_progress(1)
        seeds = tuple(run_seed(directory, played.episode) for directory, played in mine)
        held_out = any((read_run(directory)["scenarios"] or {}).get("kind") == "held out" for directory, _ in mine)
        found.append(
            Source(
                label=label,
                record=stacked(played.record for _, played in mine if played.record is not None),
                stopped=np.array([played.status == AGENT_STOPPED for _, played in mine]),
                seeds=seeds,
                cash=HELD_OUT if held_out else fan(paths),
                by_episode=True,
            )
        )
    return found


def _replayed_cash(directory: Path, episode: int) -> np.ndarray:
    """Opening cash of each month played, float64[1, months], from a replay that confirms the journal."""
    cash: dict[int, float] = {}

    def note(line: Line, after: Episode) -> None:
        cash.setdefault(after.month, float(after.state.books.cash))

    cash[0] = float(np.asarray(run_environment(directory, episode).params.initial_cash))
    confirm_episode(directory, episode, note)
    return np.array([[cash[month] for month in sorted(cash)]])


def _told_apart(sources: list[Source]) -> list[Source]:
    """Labels made unique by the seeds; the same policy on the same seeds is the same episodes twice."""
    counts = Counter(source.label for source in sources)
    named = [
        dataclasses.replace(source, label=f"{source.label}, {source.seed_text}") if counts[source.label] > 1 else source
        for source in sources
    ]
    for label, count in Counter(source.label for source in named).items():
        if count > 1:
            raise ArenaError(f"{label} is in two of the run directories; its episodes would count twice")
    return named
