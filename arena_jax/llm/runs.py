"""Run directories of agents and people: the worlds to be played, a journal each, and their records.

DIR/run.json                      what is played: parameters, trajectory, number of episodes, where worlds come from;
                                  what agents are told (0600: it may name the seed of generated worlds)
DIR/seeds.json                    their seeds, readable by the owner alone (0600)
DIR/world.toml, world.csv         the run's own world, if it has one (0600: it holds the future)
DIR/worlds/world-000.toml, .csv   that of the first episode, if every episode has its own (0600)
DIR/episode-000/journal.jsonl     the journal of the first episode
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from arena_jax.arena import Arena, make
from arena_jax.draws import MAX_SEED
from arena_jax.errors import ArenaError, check_count, is_number
from arena_jax.files import HALF, own_file, read_json, write_atomic
from arena_jax.llm.episode import plain_record
from arena_jax.llm.journal import AGENT_STOPPED, JournalInUse, Line, plain, read_journal
from arena_jax.llm.prompt import system_prompt
from arena_jax.llm.run_file import FORMAT, MAX_EPISODES, ONE_WORLD, OWN_WORLDS, RUN, read_run
from arena_jax.llm.session import ArenaSession, OnLine, confirm
from arena_jax.llm.tool_schemas import formatted, make_tools
from arena_jax.params import parse_overrides
from arena_jax.scenario import digest
from arena_jax.structs import Record
from arena_jax.version import __version__
from arena_jax.world_file import World, read_world, table_of, write_world
from arena_jax.worlds import Worlds, parse_worlds

SEEDS = "seeds.json"
SECRET_MODE = 0o600
MAX_PRICE = 1e9  # $ per million tokens
NOT_BEGUN, IN_PROGRESS, DAMAGED = "not begun", "in progress", "damaged"
SCORED = ("survived", "bankrupt", AGENT_STOPPED)  # outcomes of a player; a failure of what runs it is none
# what episodes that are scored together must have in common, beside their world
COMPARED = ("arena_jax", "parameters_sha256", "prompt_sha256", "tools_sha256")


def parse_seeds(text: str) -> list[int]:
    """`"0-4"`, `"3,7,10-12"`, or `"random:5"` for five that nobody knows, as a list without repeats."""
    chosen = re.fullmatch(r"random:([1-9][0-9]{0,3})", text)
    if chosen:
        check_count("episodes", int(chosen[1]), 1, MAX_EPISODES)
        found: dict[int, None] = {}
        while len(found) < int(chosen[1]):
            found[secrets.randbelow(MAX_SEED + 1)] = None
        return list(found)
    seeds: list[int] = []
    for part in text.split(","):
        bounds = re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", part)
        if not bounds:
            raise ArenaError(f"seeds must be such as 0-4, 3,7 or random:5, got {text[:60]!r}")
        low, high = int(bounds[1]), int(bounds[2] or bounds[1])
        if not low <= high <= MAX_SEED or high - low >= MAX_EPISODES:
            raise ArenaError(f"seeds must rise, stay below 2^32 and be {MAX_EPISODES} at most, got {part!r}")
        seeds += range(low, high + 1)
    if len(set(seeds)) < len(seeds):
        raise ArenaError(f"each seed must be named once, got {text[:60]!r}")
    check_count("episodes", len(seeds), 1, MAX_EPISODES)
    return seeds


def new_run(
    directory: Path,
    seeds: Sequence[int],
    env_set: Sequence[str] = (),
    scenario: Path | None = None,
    scenarios: str | None = None,
    disclose_horizon: bool = False,
    seeds_drawn: bool = False,
) -> None:
    """Create a run directory; raises `ArenaError` before anything is written if what it is to hold is not sound.

    seeds_drawn: they were drawn at random for this run, not chosen, as tables tell.
    scenario: a world file that all episodes play. scenarios: worlds (`arena_jax.worlds.FORMS`), one for each episode.
    """
    if scenario is not None and scenarios is not None:
        raise ArenaError("give --scenario, one world for all episodes, or --scenarios, one for each; not both")
    env = make(scenario=scenario, **parse_overrides(list(env_set)))
    worlds = None if scenarios is None else parse_worlds(scenarios)
    if worlds is not None and worlds.count < len(seeds):
        raise ArenaError(f"{len(seeds)} episodes need as many worlds, {scenarios} has {worlds.count}")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ArenaError(f"{directory} is not an empty folder; choose another one")
    own = [World(worlds.scenario(episode, env.scenario.horizon), {}) for episode in range(len(seeds))] if worlds else []
    trajectories = [digest(world.scenario) for world in own] or [digest(env.scenario)] * len(seeds)
    run = {
        "format": FORMAT,
        "arena_jax": __version__,
        "episodes": len(seeds),
        "env_set": list(env_set),
        "world": OWN_WORLDS if worlds else None if scenario is None else ONE_WORLD,
        "scenarios": worlds.about if worlds else None,
        "disclose_horizon": disclose_horizon,
        "seeds_drawn": seeds_drawn,
        "parameters_sha256": digest(env.params),
        "trajectories_sha256": trajectories,
        **_told(env, disclose_horizon),
    }
    with _made_whole(directory) as half:
        write_atomic(half / SEEDS, (json.dumps(list(seeds)) + "\n").encode(), SECRET_MODE)
        if scenario is not None:
            write_world(half / ONE_WORLD, read_world(scenario), SECRET_MODE)
        for episode, world in enumerate(own):
            write_world(half / OWN_WORLDS.format(episode), world, SECRET_MODE)
        write_atomic(half / RUN, (json.dumps(run, indent=2) + "\n").encode(), SECRET_MODE)


def _told(env: Arena, disclose_horizon: bool) -> dict[str, Any]:
    """What agents are told before they begin, for what can't wait for JAX to say it."""
    horizon = env.scenario.horizon if disclose_horizon else None
    return {"system_prompt": system_prompt(env.params, horizon), "tools": formatted(make_tools(env.params), "mcp")}


@contextmanager
def _made_whole(directory: Path) -> Iterator[Path]:
    """A folder to fill beside `directory`, which takes its place at the end, or is removed if something fails."""
    directory = directory.resolve()
    half = directory.with_name(f"{HALF}{directory.name}-{secrets.token_hex(4)}")
    try:
        half.mkdir(parents=True)
        yield half
        half.replace(directory)
    except OSError as error:
        raise ArenaError(f"can't write {directory}: {error.strerror}") from None
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _own_world(directory: Path, name: str) -> Path:
    """The TOML of a world in a run directory, whose table is there too."""
    path = own_file(directory, name)
    table = own_file(directory, str(Path(name).with_suffix(".csv")))
    if table_of(path) != table.name:
        raise ArenaError(f"{path} must name {table.name} as its trajectory")
    return path


def run_environment(directory: Path, episode: int) -> Arena:
    """The environment that an episode of a run is played in."""
    run = read_run(directory)
    scenario = _own_world(directory, run["world"].format(episode)) if run["world"] else None
    env = make(scenario=scenario, **parse_overrides(run["env_set"]))
    check_count("episode", episode, 0, run["episodes"] - 1)
    found = {"parameters": digest(env.params), "trajectory": digest(env.scenario)}
    made = {"parameters": run["parameters_sha256"], "trajectory": run["trajectories_sha256"][episode]}
    told = _told(env, run["disclose_horizon"])
    found, made = found | told, made | {name: run[name] for name in told}
    for name in made:
        if made[name] != found[name]:
            label = name.replace("_", " ")
            raise ArenaError(f"{directory} was made with other {label} than this version of arena_jax has")
    return env


def check_worlds(directory: Path, worlds: Worlds) -> None:
    """Raise `ArenaError` unless the episodes of a run are played in `worlds`, in order."""
    for episode in range(read_run(directory)["episodes"]):
        scenario = run_environment(directory, episode).scenario
        if digest(scenario) != digest(worlds.scenario(episode, scenario.horizon)):
            raise ArenaError(f"{directory}: episode {episode} is not played in world {episode} of those it names")


def run_seeds(directory: Path) -> list[int]:
    """The seeds of a run's episodes: for what plays the world, never for an agent."""
    path = own_file(directory, SEEDS)
    seeds = read_json(path)
    if not isinstance(seeds, list) or len(seeds) != read_run(directory)["episodes"]:
        raise ArenaError(f"{path} must be a list of one seed for each episode")
    for seed in seeds:
        check_count("seed", seed, 0, MAX_SEED)
    if len(set(seeds)) < len(seeds):
        raise ArenaError(f"{path} has a seed twice")
    return seeds


def run_seed(directory: Path, episode: int) -> int:
    """The seed of an episode."""
    check_count("episode", episode, 0, read_run(directory)["episodes"] - 1)
    return run_seeds(directory)[episode]


def journal_path(directory: Path, episode: int) -> Path:
    """The journal of an episode (from 0)."""
    return own_file(directory, f"episode-{episode:03d}/journal.jsonl")


def open_episode(
    directory: Path, episode: int, *, agent: str = "", model: str = "", patience: float = 0.0
) -> ArenaSession:
    """Begin an episode of a run, or go on with it where its journal ends.

    patience: seconds to wait for a journal that another process is about to release.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return _open(directory, episode, agent, model)
        except JournalInUse:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)


def _open(directory: Path, episode: int, agent: str, model: str) -> ArenaSession:
    return ArenaSession(
        run_environment(directory, episode),
        run_seed(directory, episode),
        journal=journal_path(directory, episode),
        agent=agent,
        model=model,
        disclose_horizon=read_run(directory)["disclose_horizon"],
    )


def confirm_episode(directory: Path, episode: int, on_line: OnLine = lambda line, episode: None) -> None:
    """Replay the journal of an episode; raises `ArenaError` where it is not what the world gives.

    on_line: see `ArenaSession.replay`.
    """
    confirm(
        run_environment(directory, episode),
        run_seed(directory, episode),
        journal_path(directory, episode),
        disclose_horizon=read_run(directory)["disclose_horizon"],
        on_line=on_line,
    )


@dataclass(frozen=True)
class Played:
    """What the journal of an episode says; `record` is there once it has ended."""

    episode: int
    status: str
    agent: str = ""
    model: str = ""
    months_played: int = 0
    calls: int = 0
    refused: int = 0
    tokens: dict[str, int] | None = None
    record: Record | None = None
    reason: str = ""
    nudges: int = 0  # how often the player stopped too early and was told to go on
    played_as: dict[str, str] = field(default_factory=dict)  # versions and hashes of what was played

    @property
    def player(self) -> str:
        """Who played, as a table names it."""
        return " + ".join(part for part in (self.agent, self.model) if part) or "unnamed"


def played_episodes(directory: Path) -> list[Played]:
    """Every episode of a run in order, from the journals alone; one that can't be read is damaged."""
    return [played_episode(directory, episode) for episode in range(read_run(directory)["episodes"])]


def played_episode(directory: Path, episode: int) -> Played:
    """What the journal of an episode says."""
    try:
        path = journal_path(directory, episode)
        lines = read_journal(path) if path.exists() else []
    except ArenaError as error:
        return Played(episode, DAMAGED, reason=plain(str(error)))
    return _played(episode, lines) if lines else Played(episode, NOT_BEGUN)


def _played(episode: int, lines: list[Line]) -> Played:
    calls = [line for line in lines if line["type"] == "call"]
    last: Line = next((line for line in reversed(lines) if line["type"] in ("call", "end")), {"type": "header"})
    tokens: dict[str, int] = {}
    for line in lines:
        for name, count in line["tokens"].items() if line["type"] == "usage" else ():
            tokens[plain(name)] = tokens.get(plain(name), 0) + count
    is_final = last["type"] == "end" and last["status"] in SCORED
    return Played(
        episode,
        last["status"] if last["type"] == "end" else IN_PROGRESS,
        plain(lines[0].get("agent", "")),
        plain(lines[0].get("model", "")),
        sum("month_ended" in line["answer"] for line in calls),
        len(calls),
        sum(line["type"] == "refused" for line in lines),
        tokens or None,
        Record(**{name: np.asarray(value)[()] for name, value in last["record"].items()}) if is_final else None,
        plain(last.get("reason", "")),
        sum(line["type"] == "nudge" for line in lines),
        {name: plain(lines[0].get(name)) for name in COMPARED},
    )


def plain_episode(played: Played) -> dict[str, Any]:
    """What a journal says as plain data."""
    return vars(played) | {"record": None if played.record is None else plain_record(played.record)}


def stacked(records: Iterable[Record]) -> Record:
    """Records of n episodes as one with leaves [n], as batch play returns it."""
    rows = list(records)
    return Record(**{name: np.array([getattr(row, name) for row in rows]) for name in vars(rows[0])})


def read_prices(path: Path) -> dict[str, dict[str, float]]:
    """A price file: model -> kind of token -> $ per million, as JSON."""
    prices = read_json(path)
    sound = isinstance(prices, dict) and all(
        isinstance(kinds, dict) and all(is_number(price) and 0 <= price < MAX_PRICE for price in kinds.values())
        for kinds in prices.values()
    )
    if not sound:
        raise ArenaError(f'{path} must hold $ per million tokens such as {{"model": {{"input_tokens": 1.25}}}}')
    return prices


def cost(played: Played, prices: dict[str, dict[str, float]]) -> float | None:
    """What an episode's tokens cost in $; None where a price or the counts are missing."""
    price = prices.get(played.model)
    if price is None or played.tokens is None or not played.tokens.keys() <= price.keys():
        return None
    return sum(count * price[kind] for kind, count in played.tokens.items()) / 1e6
