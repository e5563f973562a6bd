"""The public names of `arena_jax`."""

from arena_jax.arena import Arena, sweep
from arena_jax.batch_play import rollout
from arena_jax.envs import ArenaRL, make
from arena_jax.errors import ArenaError
from arena_jax.evaluation import evaluate
from arena_jax.generator import sample_scenario
from arena_jax.params import Params
from arena_jax.policies import make_policy
from arena_jax.scenario import Scenario
from arena_jax.structs import (
    Action,
    Observation,
    Record,
    State,
    Timestep,
    ToolCall,
    close_books,
    pass_month,
    request_funding,
)
from arena_jax.tools import assume, call_tool
from arena_jax.version import __version__

__all__ = [
    "Action",
    "Arena",
    "ArenaError",
    "ArenaRL",
    "Observation",
    "Params",
    "Record",
    "Scenario",
    "State",
    "Timestep",
    "ToolCall",
    "__version__",
    "assume",
    "call_tool",
    "close_books",
    "evaluate",
    "make",
    "make_policy",
    "pass_month",
    "request_funding",
    "rollout",
    "sample_scenario",
    "sweep",
]
