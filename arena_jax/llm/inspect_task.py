"""`inspect eval arena_jax/enterprise_arena`: ReAct by Inspect AI, with any model that Inspect knows.

The loop is ours, for Inspect's own knows no months: each month begins with a conversation of its own, and the session
alone judges a call and its arguments, so that a journal holds them as every other agent's. Model calls, limits,
approval and transcript are Inspect's. A run directory keeps seeds and journals; Inspect's log holds neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import jax
from rich.markup import escape

from arena_jax.analysis.metrics import episode_metrics
from arena_jax.analysis.table import TABLE_1
from arena_jax.arena import ENVIRONMENTS, make
from arena_jax.errors import ArenaError
from arena_jax.llm.journal import AGENT_STOPPED, INFRA_ERROR
from arena_jax.llm.paging import compact
from arena_jax.llm.runs import (
    RUN,
    new_run,
    open_episode,
    parse_seeds,
    plain_episode,
    played_episode,
    read_run,
    run_seeds,
    stacked,
)
from arena_jax.llm.session import ArenaSession
from arena_jax.params import parse_overrides
from arena_jax.scenario import digest

try:
    from anyio.to_thread import run_sync
    from inspect_ai import Task, task
    from inspect_ai._util.error import PrerequisiteError  # what Inspect tells in one line
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import (
        ChatMessage,
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageUser,
        ModelOutput,
        execute_tools,
        get_model,
    )
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver
    from inspect_ai.tool import ToolCall, ToolDef, ToolInfo, ToolParams
except ImportError:
    raise ArenaError("this task needs Inspect: pip install 'arena_jax[inspect]'") from None

PATIENCE = 10  # replies in a row without an answered call, after which an agent has stopped
INPUT = "Lead the company month by month until you are told that it is over."
NUDGE = "You made no call. Go on with one of the calls; an action ends the month."
_TOKENS = ("input_tokens", "output_tokens", "input_tokens_cache_write", "input_tokens_cache_read")  # none twice
_WHOLE = 10**6  # months of history that are more than any episode has


@task
def enterprise_arena(
    seeds: str | int | Sequence[Any] | None = None,
    env_set: str | Sequence[str] | None = None,
    scenario: str | None = None,
    directory: str | None = None,
    history: str = "month",
) -> Task:
    """EnterpriseArena: serve as CFO for 132 months, an episode a sample.

    seeds: 0-4, or 3,7, or random:5 for seeds that nobody knows (the default). Those that you name are in Inspect's log
      as you gave them, as all its arguments are; random ones are in the run directory alone, in a file of mode 0600.
    env_set: parameter overrides NAME=VALUE. scenario: world of one's own (CSV or TOML) for all episodes.
    directory: the run directory that keeps the journals, for one model; runs/react-MODEL if left out. One that is
      there goes on, so that a killed evaluation is continued by the same command; `arena-jax agent new` makes
      others, held-out worlds for instance.
    history: what a month's conversation begins with. "month": system prompt, notes and the month's facts (as the
      paper's agent); "last:3": the last three months besides; "full": everything, no notes.
    """
    jax.config.update("jax_platforms", "cpu")  # one episode at a time needs no accelerator, which a model may fill
    try:
        _months_kept(history)
        where = Path(directory or f"runs/{_slug(f'{_agent(history)}-{get_model()}')}").resolve()
        _prepare(where, ",".join(_listed(seeds)), _listed(env_set), scenario)
        episodes = read_run(where)["episodes"]
    except ArenaError as error:
        raise PrerequisiteError(escape(f"error: {error}")) from None
    samples = [Sample(INPUT, id=f"episode-{i:03d}", metadata={"episode": i}) for i in range(episodes)]
    return Task(
        MemoryDataset(samples, name=ENVIRONMENTS[0]),
        solver=monthly_react(str(where), history),
        scorer=table_1(str(where)),
    )


def _listed(value: Any) -> list[str]:
    """What Inspect makes of a,b on the command line, as texts."""
    return [] if value is None else [str(item) for item in (value if isinstance(value, list | tuple) else [value])]


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


def _prepare(directory: Path, seeds: str, env_set: list[str], scenario: str | None) -> None:
    """Make the run directory, or raise `ArenaError` unless the one that is there was made alike."""
    world = None if scenario is None else Path(scenario)
    if not (directory / RUN).exists():
        seeds = seeds or "random:5"
        new_run(directory, parse_seeds(seeds), env_set, world, seeds_drawn=seeds.startswith("random"))
        return
    run = read_run(directory)
    if env_set or world is not None:
        env = make(scenario=world, **parse_overrides(env_set))
        made = {run["parameters_sha256"], *run["trajectories_sha256"]}
        if made != {digest(env.params), digest(env.scenario)}:
            raise ArenaError(f"{directory} holds a run in another world; name another directory")
    if seeds:
        count, named = len(parse_seeds(seeds)), not seeds.startswith("random")
        if count != run["episodes"] or (named and parse_seeds(seeds) != run_seeds(directory)):
            raise ArenaError(f"{directory} holds a run of other seeds; name another directory")


def _months_kept(history: str) -> int:
    """How many months before the open one stay in the conversation."""
    found = re.fullmatch(r"last:([1-9][0-9]{0,2})", str(history))
    if history not in ("month", "full") and not found:
        raise ArenaError(f"history must be month, full or last:K such as last:3, got {str(history)[:60]!r}")
    return int(found[1]) if found else {"month": 0, "full": _WHOLE}[history]


def _agent(history: str) -> str:
    """The agent's name in journals and tables."""
    return "react" if history == "month" else f"react:{history}"


@solver
def monthly_react(directory: str, history: str = "month") -> Solver:
    """Play a sample's episode from where its journal ends; arguments as of `enterprise_arena`."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if state.epoch > 1:
            raise ArenaError("an episode is played once: instead of epochs give more seeds")
        episode, model = state.metadata["episode"], str(state.model)
        session = await run_sync(partial(open_episode, Path(directory), episode, agent=_agent(history), model=model))
        with session:
            try:
                await _play(session, state, _months_kept(history))
            except Exception as error:  # the provider, a limit, a disk: never the agent's end
                with suppress(ArenaError):  # its kind alone: messages of providers may hold an address with a key
                    await run_sync(session.stop, INFRA_ERROR, type(error).__name__)
                raise
        return state

    return solve


async def _play(session: ArenaSession, state: TaskState, kept: int) -> None:
    """Months until the end, or until the agent makes no more calls."""
    model, tools = get_model(), [ToolInfo.model_validate(tool) for tool in session.tools("plain")]
    system = ChatMessageSystem(content=session.system_prompt)
    months = [[await _opening(session, is_cut=session.calls_made > 0)]]
    idle = 0
    while not session.is_over:
        state.messages = [system, *chain.from_iterable(months)]
        state.output = output = await model.generate(state.messages, tools)
        await _note_tokens(session, output)
        if output.stop_reason == "model_length":
            if len(state.messages) == 2:
                raise RuntimeError("the model's context is too short for one month")
            months = [[await _opening(session, is_cut=True)]]
            continue
        turn, answers = await _turn(session, [*state.messages, output.message])
        months[-1] += turn
        state.messages = [*state.messages, *turn]
        idle = 0 if any("error" not in answer for answer in answers) else idle + 1
        if idle == PATIENCE:
            await run_sync(session.stop, AGENT_STOPPED, f"{PATIENCE} replies in a row without a call that was answered")
        elif any("month_ended" in answer for answer in answers) and not session.is_over:
            months = [*months, [await _opening(session, is_cut=len(months) > kept)]][-(kept + 1) :]
            if "month_ended" not in answers[-1]:  # the turn went on into the new month
                months[-1] += turn


async def _opening(session: ArenaSession, is_cut: bool) -> ChatMessage:
    """The first message of a month: its facts, and the agent's notes where the conversation was cut before it."""
    shown = await run_sync(session.call, "recall_notes", {}) if is_cut else {}
    if "now" not in shown:
        shown = {"now": session.facts()}
    return ChatMessageUser(content=f"{shown['now']['date']} begins.\n{compact(shown)}")


async def _turn(session: ArenaSession, messages: list[ChatMessage]) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
    """Make the calls of the last message in order: that message and what is said back, and the session's answers."""
    message = messages[-1]
    assert isinstance(message, ChatMessageAssistant)
    said: list[ChatMessage] = [message]
    answers: list[dict[str, Any]] = []

    async def make(call: ToolCall) -> None:
        async def execute(**kwargs: Any) -> str:  # under this name Inspect hands arguments over as they are
            answers.append(await run_sync(session.call, call.function, call.parse_error or kwargs))
            return compact(answers[-1])

        tool = ToolDef(execute, call.function, call.function, ToolParams(additionalProperties=True))
        alone = message.model_copy(update={"tool_calls": [replace(call, parse_error=None)]})
        said.extend((await execute_tools([*messages[:-1], alone], [tool])).messages)

    for call in message.tool_calls or []:
        await make(call)
    if not message.tool_calls:
        await run_sync(session.add_nudge)
        said.append(ChatMessageUser(content=NUDGE))
    return said, answers


async def _note_tokens(session: ArenaSession, output: ModelOutput) -> None:
    counts = {name: getattr(output.usage, name, None) for name in _TOKENS}
    counted = {name: count for name, count in counts.items() if count}
    if counted:
        await run_sync(partial(session.add_usage, **counted))


@scorer(metrics={name: [mean(), stderr()] for name in TABLE_1})
def table_1(directory: str) -> Scorer:
    """The columns of the paper's Table 1 from the journal's end; its record is the metadata. Failures have no score."""

    async def score(state: TaskState, target: Target) -> Score:
        played = await run_sync(played_episode, Path(directory), state.metadata["episode"])
        about = plain_episode(played)
        if played.record is None:
            return Score.unscored(reason=played.status, explanation=played.reason, metadata=about)
        columns = episode_metrics(stacked([played.record]))
        return Score(
            value={name: float(columns[name][0]) for name in TABLE_1},
            answer=played.status,
            explanation=played.reason,
            metadata=about,
        )

    return score
