"""What a training run is: one table of settings, read from a TOML file."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena_jax.errors import ArenaError, brief, is_number, shown, unknown
from arena_jax.files import read_whole
from arena_jax.policies.network import KINDS, MAX_WIDTH

FOLDER = Path(__file__).parent / "configs"
_WIDTHS = ("hidden", "critic_hidden")


@dataclass(frozen=True)
class Config:
    """Settings of a run; all have defaults, a file names those that differ."""

    # the world
    disciplined: bool = False
    scenarios: str = ""  # generated worlds to train on beside the default one; none: the default one alone
    default_share: float = 0.5  # of the episodes, on the default trajectory, where there are others; at most 0.9
    tool_cost: tuple[float, ...] = ()  # lambda and m: between these two values over the lanes, seen by the policy
    revenue_multiple: tuple[float, ...] = ()
    blind_share: float = 0.0  # of those lanes, without any tool calls
    # the network
    kind: str = KINDS[0]
    hidden: tuple[int, ...] = (64, 64)  # of the actor
    critic_hidden: tuple[int, ...] = (64, 64)
    # how long
    lanes: int = 512  # episodes side by side
    steps: int = 64  # decisions of each between updates
    updates: int = 100
    # PPO
    epochs: int = 4
    minibatches: int = 8
    learning_rate: float = 1e-3  # falls to 0 in a line
    gamma: float = 1.0
    trace: float = 0.95  # lambda of the advantages
    clip: float = 0.2
    entropy: float = 0.003  # weight of the bonus; falls to 0 in a line ...
    explores: float = 0.7  # ... over this share of the run, so that the rest settles on what was found
    value: float = 0.5  # weight of the critic's loss
    max_gradient: float = 0.5  # norm
    reward_scale: float = 10.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check(field.name, getattr(self, field.name), field.default)
        if self.kind not in KINDS:
            raise ArenaError(f"kind must be one of {', '.join(KINDS)}, got {shown(self.kind)}")
        for name in ("lanes", "steps", "updates", "epochs", "minibatches"):
            _within(name, getattr(self, name), 1, 10**6)
        for name in _WIDTHS:
            widths = getattr(self, name)
            if not widths or not all(1 <= width <= MAX_WIDTH for width in widths):
                raise ArenaError(f"{name} must be widths from 1 to {MAX_WIDTH}, got {list(widths)}")
        if self.lanes % self.minibatches:
            raise ArenaError(f"lanes must be a multiple of minibatches, got {self.lanes} and {self.minibatches}")
        _within("default_share", self.default_share, 0.0, 0.9)
        for name in ("blind_share", "gamma", "trace"):
            _within(name, getattr(self, name), 0.0, 1.0)
        _within("explores", self.explores, 1e-6, 1.0)
        for name in ("learning_rate", "clip", "entropy", "value", "max_gradient", "reward_scale"):
            _within(name, getattr(self, name), 0.0, 1e6)
        for name in ("tool_cost", "revenue_multiple"):
            limits = getattr(self, name)
            if len(limits) not in (0, 2) or list(limits) != sorted(limits) or not all(map(math.isfinite, limits)):
                raise ArenaError(f"{name} must be a lowest and a highest value, got {list(limits)}")
        if bool(self.tool_cost) != bool(self.revenue_multiple):
            raise ArenaError("give both tool_cost and revenue_multiple, or neither")
        # these settings would do nothing
        if self.default_share != Config.default_share and not self.scenarios:
            raise ArenaError("default_share needs scenarios: without them all episodes are on the default trajectory")
        if self.blind_share and not self.tool_cost:
            raise ArenaError("blind_share needs tool_cost and revenue_multiple: it is of the lanes that differ in them")

    @property
    def shows_terms(self) -> bool:
        """Whether lambda and m differ between lanes, and are in the observation."""
        return bool(self.tool_cost)

    @property
    def decisions(self) -> int:
        """Of one seed's whole run."""
        return self.lanes * self.steps * self.updates


def read_config(name: str) -> Config:
    """A configuration that ships, by name, or one of your own, by the path of a TOML file."""
    known = {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}
    path = known.get(name, Path(name))
    if path.suffix != ".toml":
        raise unknown("configuration", name, known)
    text = read_whole(path, "configuration")
    try:
        values = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise ArenaError(f"configuration {path} is no TOML file: {brief(error)}") from None
    return make_config(values)


def make_config(values: dict[str, Any]) -> Config:
    """A configuration of settings by name, lists as tuples; raises `ArenaError` for a bad one."""
    fields = [field.name for field in dataclasses.fields(Config)]
    for key in values:
        if key not in fields:
            raise unknown("setting", key, fields)
    settings: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    return Config(**settings)


def _check(name: str, value: Any, default: Any) -> None:
    """Refuse a value of another type than the default's; a whole number may stand for a float."""
    if isinstance(default, tuple):
        kind, fits = "a list of numbers", isinstance(value, tuple) and all(is_number(one) for one in value)
        fits = fits and (name not in _WIDTHS or all(isinstance(one, int) for one in value))
    elif isinstance(default, float):
        kind, fits = "a number", is_number(value)
    else:
        kind, fits = type(default).__name__, type(value) is type(default)
    if not fits:
        raise ArenaError(f"{name} must be {kind}, got {shown(value)}")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ArenaError(f"{name} must be from {low:g} to {high:g}, got {value:g}")
