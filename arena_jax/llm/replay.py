"""One episode after the fact, month by month: what the agent knew beside what was true. For researchers, not agents.

A journal is replayed, and so confirmed; a policy's episode is played into a journal first. What is true is what every
tool would show in that month with the books closed, and what no tool shows: the market's stress, the chances of a
request, how open requests will end.
"""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.arena import Arena
from arena_jax.errors import ArenaError
from arena_jax.funding import approval_probability
from arena_jax.llm.archive import Archive, Settlement, settlements
from arena_jax.llm.dates import date_label
from arena_jax.llm.documents import STATEMENTS, statement
from arena_jax.llm.episode import Episode, World, begin, plain_record
from arena_jax.llm.journal import Line, read_journal
from arena_jax.llm.runs import SCORED, confirm_episode, played_episodes, run_environment, run_seed
from arena_jax.llm.scripted import play_policy
from arena_jax.llm.session import ArenaSession, confirm
from arena_jax.llm.statements import on_host
from arena_jax.operations import market_at
from arena_jax.policies import make_policy
from arena_jax.regimes import REGIMES, regimes
from arena_jax.structs import BANKRUPT, DEBT, EQUITY, INSTRUMENTS, State
from arena_jax.tools import (
    ALL_INDICATORS,
    CHANGES,
    FINANCIAL_PACKAGE,
    PROJECTED,
    QUANTITIES,
    Arguments,
    assume,
    call_tools,
    signals_at,
)

SHOWN = tuple(name for name in QUANTITIES if not name.endswith(tuple(f"_change_{months}" for months in CHANGES)))
_NAMES = {number: name for name, number in INSTRUMENTS.items()}


@dataclass(frozen=True)
class Known:
    """A quantity as a decision was taken: as last shown, months ago (None: never), and as it was."""

    quantity: str
    unit: str
    known: float | None
    age: int | None
    true: float | None  # None: the episode ended before a projected month


@dataclass(frozen=True)
class Open:
    """An open request, with what only the world knows: $ to be received (0: refused) and months to settlement."""

    instrument: str
    requested: int
    month_asked: int
    will_receive: int
    months_left: int


@dataclass(frozen=True)
class Call:
    """A call within the month: what was asked and what was shown, or why it was refused."""

    tool: str
    arguments: dict[str, Any] | None
    answer: dict[str, Any]


@dataclass(frozen=True)
class Month:
    """One month played. stress and chances are hidden from agents; statements are the exact ones of the month."""

    month: int
    date: str
    regime: str
    stress: float
    chance_equity: float
    chance_debt: float
    opening_cash: float
    knowledge: tuple[Known, ...]
    calls: tuple[Call, ...]
    decided: str  # the action and its arguments, in words
    result: str  # what the agent was told of it
    settled: tuple[Settlement, ...]
    open_requests: tuple[Open, ...]  # once what was due has settled
    closing_cash: float
    statements: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Replay:
    """An episode: who played what, its months, how it ended, and its record."""

    player: str
    episode: str
    env: Arena
    months: tuple[Month, ...]
    status: str
    record: dict[str, Any]


def replay_journal(directory: Path, episode: int) -> Replay:
    """An ended episode of a run of agents; raises `ArenaError` where the journal is not what the world gives."""
    env = run_environment(directory, episode)
    played = played_episodes(directory)[episode]
    if played.status not in SCORED:
        why = f": {played.reason}" if played.reason else ""
        raise ArenaError(
            f"episode {episode} of {directory} is {played.status}{why}; what is hidden is shown once it has ended"
        )
    seed = run_seed(directory, episode)
    reader = _Reader(World.make(env, seed))
    confirm_episode(directory, episode, reader.take)
    assert played.record is not None
    about = f"{directory}, episode {episode}, seed {seed}"
    return reader.replay(played.player, about, played.status, plain_record(played.record))


def replay_policy(env: Arena, policy: str, seed: int, index: int) -> Replay:
    """Episode `index` of `evaluate` with a policy and a seed, played as agents play (money agrees to 1e-5)."""
    made = make_policy(policy)
    with tempfile.TemporaryDirectory(prefix="arena-jax-replay-") as folder:
        path = Path(folder) / "journal.jsonl"
        with ArenaSession(env, seed, index=index, journal=path, agent="scripted", model=policy) as session:
            play_policy(session, made, seed, index)
        reader = _Reader(World.make(env, seed, index))
        confirm(env, seed, path, index=index, on_line=reader.take)
        end = read_journal(path)[-1]
    return reader.replay(policy, f"seed {seed}, episode {index}", end["status"], end["record"])


class _Reader:
    """Takes the lines of a replayed journal with their snapshots, and makes months of them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._now = begin(world)
        self._calls: list[Call] = []
        self._months: list[Month] = []
        self._truths: dict[int, dict[str, float]] = {}
        horizon = world.env.scenario.horizon
        self._regimes = regimes(np.asarray(_stress(world.env, jnp.arange(horizon, dtype=jnp.int32))))

    def take(self, line: Line, after: Episode) -> None:
        """A line of the journal, and the snapshot that it leads to."""
        if line["type"] == "refused":
            self._calls.append(Call(line["tool"], None, {"error": line["error"]}))
        elif line["type"] == "call" and "month_ended" in line["answer"]:
            self._months.append(self._month(line, self._now, after))
            self._calls = []
        elif line["type"] == "call":
            self._calls.append(Call(line["tool"], line["arguments"], line["answer"]))
        self._now = after

    def replay(self, player: str, episode: str, status: str, record: dict[str, Any]) -> Replay:
        """The whole; what was projected is set beside what came, which only now is known."""
        cash = {month.month + 1: month.closing_cash for month in self._months}
        months = tuple(
            dataclasses.replace(m, knowledge=tuple(_with_outcome(known, m.month, cash) for known in m.knowledge))
            for m in self._months
        )
        return Replay(player, episode, self._world.env, months, status, record)

    def _month(self, line: Line, before: Episode, after: Episode) -> Month:
        env, month = self._world.env, before.month
        truth, stress, equity, debt = jax.device_get(_truth(env, before.state))
        archive = after.archive
        if int(after.state.status) == BANKRUPT:  # agents get no statements of the month that ends it
            archive = archive.after_month(
                on_host(after.state.books), on_host(after.state.flash), settlements(after.observation)
            )
        return Month(
            month=month,
            date=date_label(month),
            regime=REGIMES[self._regimes[month]],
            stress=float(stress),
            chance_equity=float(equity),
            chance_debt=float(debt),
            opening_cash=float(before.state.books.cash),
            knowledge=_knowledge(before, truth),
            open_requests=_open_requests(after),
            calls=tuple(self._calls),
            decided=_decided(line),
            result=line["answer"]["result"],
            settled=settlements(after.observation),
            closing_cash=float(after.state.books.cash),
            statements=exact_statements(env, archive, month),
        )


def exact_statements(env: Arena, archive: Archive, month: int) -> dict[str, dict[str, Any]]:
    """The four statements of a month on file, whether the agent has closed it or not."""
    whole = archive.closed(archive.last_month)
    return {name: statement(env.params, whole, name, month) for name in STATEMENTS}


@jax.jit
def _stress(env: Arena, months: jax.Array) -> jax.Array:
    return market_at(env.params, env.scenario, months).stress


@jax.jit
def _truth(env: Arena, state: State) -> tuple[dict[str, jax.Array], jax.Array, jax.Array, jax.Array]:
    """What every tool would show with the books closed; the stress, and the chances of a request made now."""
    stress = _stress(env, state.month)
    any_amount = jnp.zeros_like(state.books.cash)  # of no account by the paper's rules
    chances = [approval_probability(env.params, state, stress, jnp.int32(kind), any_amount) for kind in (EQUITY, DEBT)]
    free = dataclasses.replace(env.params, tool_budget=jnp.full_like(env.params.tool_budget, len(QUANTITIES)))
    tally = dataclasses.replace(state.tally, calls_this_month=jnp.zeros_like(state.tally.calls_this_month))
    closed = dataclasses.replace(state, closed=state.books, books_closed_through=state.month - 1, tally=tally)
    calls = (jnp.int32(1), jnp.int32(1), jnp.int32(1), jnp.int32(0))
    arguments = Arguments(jnp.int32(FINANCIAL_PACKAGE), jnp.int32(ALL_INDICATORS), assume())
    shown = call_tools(free, signals_at(env.scenario, state.month), closed, calls, arguments).notebook
    truth = {name: shown[name].value for name in SHOWN if not name.startswith(("flash_", "projected_"))}
    flows = state.books.flows
    collections = flows.repayments + flows.recoveries + flows.interest_collected
    truth |= {"flash_users": state.books.users, "flash_originations": flows.originations}
    return truth | {"flash_collections": collections}, stress, chances[0], chances[1]


def _knowledge(episode: Episode, truth: dict[str, Any]) -> tuple[Known, ...]:
    found = []
    for name in SHOWN:
        value, age = (np.asarray(part).item() for part in episode.observation.readings[name])
        is_known = age >= 0
        true = float(truth[name]) if name in truth else None
        found.append(Known(name, QUANTITIES[name].unit, value if is_known else None, age if is_known else None, true))
    return tuple(found)


def _with_outcome(known: Known, month: int, cash: dict[int, float]) -> Known:
    """A projection beside the cash of the month that it was made for."""
    for ahead in PROJECTED:
        if known.quantity == f"projected_cash_{ahead}" and known.age is not None:
            return dataclasses.replace(known, true=cash.get(month - known.age + ahead))
    return known


def _open_requests(after: Episode) -> tuple[Open, ...]:
    return tuple(
        Open(
            _NAMES[int(place.instrument)],
            round(float(place.requested)),
            int(place.month_asked),
            round(float(place.granted)),
            int(place.months_left),
        )
        for place in after.state.pending
        if int(place.instrument) in _NAMES
    )


def _decided(line: Line) -> str:
    arguments = line["arguments"]
    if line["tool"] == "fund_raising_request":
        return f"ask for {arguments['instrument']} of ${arguments['amount']:,.0f}"
    return {"book_closing": "close the books", "pass": "pass"}[line["tool"]]
