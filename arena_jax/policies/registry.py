"""From a text such as `cash-threshold:threshold=8e6,amount=12.6e6` to a policy, in Python and on the command line."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from arena_jax.arena import ENVIRONMENTS
from arena_jax.checks import check_policy
from arena_jax.errors import ArenaError, brief, is_number, shown, unknown
from arena_jax.files import read_whole
from arena_jax.policies import heuristics, informed

POLICIES: dict[str, type] = {
    "never-raise": heuristics.NeverRaise,
    "one-shot-equity": heuristics.OneShotEquity,
    "greedy-equity": heuristics.GreedyEquity,
    "greedy-debt": heuristics.GreedyDebt,
    "equity-debt-equity": heuristics.EquityDebtEquity,
    "cash-threshold": heuristics.CashThreshold,
    "runway": informed.Runway,
    "market-timer": informed.MarketTimer,
    "late-raiser": informed.LateRaiser,
    "prudent-cfo": informed.PrudentCFO,
    "information-hungry": informed.InformationHungry,
    "random": heuristics.Random,
}
# weights/NAME.msgpack
TRAINED: dict[str, str] = {
    "ppo": "A feed-forward network trained by PPO on the paper's score.",
    "gru": "The same with a recurrent network (GRU).",
    "ppo-disciplined": "As ppo, for the disciplined variant, in the default world and generated ones.",
    "gru-disciplined": "As gru, for the disciplined variant, in the default world and generated ones.",
    "ppo-terms": "As ppo-disciplined; it sees lambda and m and was trained over both.",
}
_WEIGHTS = Path(__file__).parent / "weights"


def make_policy(spec: str, **options: Any) -> Any:
    """The policy that `spec` names; raises `ArenaError` for an unknown name, path, option or value.

    spec: `NAME[:option=value,...]` of a registered policy, or `package.module:factory[:option=value,...]`.
    options: more options by name; a registered policy's are validated, a factory gets them as they are.
    """
    if not isinstance(spec, str):
        raise ArenaError(f"policy must be a text such as 'greedy-equity:amount=20e6', got {shown(spec)}")
    head, _, rest = spec.partition(":")
    if head in POLICIES:
        return _registered(head, _merged(spec, _parse_options(spec, rest), options))
    if head in TRAINED:
        return _trained(_weights_file(head, _merged(spec, _parse_options(spec, rest), options)))
    factory, _, rest = rest.partition(":")
    if not factory or "=" in factory:
        raise unknown("policy", head, (*POLICIES, *TRAINED))
    return _from_path(spec, head, factory, _merged(spec, _parse_options(spec, rest), options))


def make_policies(specs: Sequence[str]) -> dict[str, Any]:
    """Each policy by its spec, as `make_policy` makes it; raises `ArenaError` for none and for one given twice."""
    made = {spec: make_policy(spec) for spec in specs}
    if not specs or len(made) < len(specs):
        raise ArenaError("give at least one policy, and each only once")
    return made


def _merged(spec: str, parsed: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    twice = sorted(parsed.keys() & options.keys())
    if twice:
        raise ArenaError(f"policy {spec!r}: option {twice[0]} is given twice")
    return parsed | options


def source_digest(spec: str) -> str | None:
    """SHA-256 of the weights or of the module behind a policy; None for a heuristic, whose source is the package's."""
    head, _, rest = spec.partition(":")
    if head in POLICIES:
        return None
    if head in TRAINED:
        from arena_jax.policies.trained import LARGEST, WHAT

        data = read_whole(_weights_file(head, _parse_options(spec, rest)), WHAT, LARGEST)
    else:
        file = getattr(importlib.import_module(head), "__file__", None)
        if file is None:
            return None
        data = Path(file).read_bytes()
    return hashlib.sha256(data).hexdigest()


def weights_header(spec: str) -> dict[str, Any]:
    """How a trained policy came about, from its weights: variant, configuration, seed, what the training took."""
    make_policy(spec)  # refuses what is unknown or unsound
    head, _, rest = spec.partition(":")
    if head not in TRAINED:
        raise ArenaError(f"{spec} is no trained policy; these are: {', '.join(TRAINED)}")
    from arena_jax.policies.trained import LARGEST, WHAT
    from arena_jax.policies.weights import read_arrays

    return read_arrays(_weights_file(head, _parse_options(spec, rest)), WHAT, LARGEST)[0]


def trained_in(spec: str) -> str | None:
    """Name of the environment that a policy was trained in, if it was and its weights say so; raises `ArenaError`."""
    if spec.partition(":")[0] not in TRAINED:
        return None
    variant = weights_header(spec).get("variant")
    return variant if variant in ENVIRONMENTS else None


def _parse_options(spec: str, text: str) -> dict[str, Any]:
    """`a=1,b=equity` as {"a": 1.0, "b": "equity"}."""
    found: dict[str, Any] = {}
    for pair in text.split(",") if text else ():
        name, equals, value = pair.partition("=")
        if not equals or not name or not value:
            raise ArenaError(f"policy {spec!r}: expected option=value, got {pair!r}")
        if name in found:
            raise ArenaError(f"policy {spec!r}: option {name} is given twice")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = value
    return found


def _registered(name: str, options: dict[str, Any]) -> Any:
    cls = POLICIES[name]
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for option in options:
        if option not in fields:
            raise unknown(f"option of {name}", option, fields)
    values = {key: options.get(key, field.default) for key, field in fields.items()}
    leaves = {key: _option_leaf(f"{name}: option {key}", fields[key], value) for key, value in values.items()}
    for key, field in fields.items():
        lower = field.metadata["not_below"]
        if lower is not None and float(leaves[key]) < float(leaves[lower]):
            raise ArenaError(f"{name}: contradictory options: {lower} is above {key}")
    return cls(**leaves)


def _weights_file(name: str, options: dict[str, Any]) -> Path:
    """The weights of a trained policy: those that ship, or with the option `weights` a file."""
    for option in options:
        if option != "weights":
            raise unknown(f"option of {name}", option, ["weights"])
    given = options.get("weights", _WEIGHTS / f"{name}.msgpack")
    if not isinstance(given, str | Path):
        raise ArenaError(f"{name}: option weights must be the path of a file, got {shown(given)}")
    return Path(given)


def _trained(path: Path) -> Any:
    try:
        from arena_jax.policies.trained import load_policy  # flax takes a second to import
    except ImportError as error:
        raise ArenaError(f"a trained policy needs flax ({error}): pip install 'flax>=0.10'") from None
    return load_policy(path)


def _option_leaf(where: str, field: dataclasses.Field[Any], value: Any) -> Any:
    """An option as an array leaf (int32 for whole-number options and named choices, else the default float)."""
    unit, low, high, choices = (field.metadata[key] for key in ("unit", "low", "high", "choices"))
    if choices is not None:
        if not isinstance(value, str) or value not in choices:
            raise ArenaError(f"{where} must be one of {', '.join(choices)}, got {value!r}")
        return jnp.asarray(choices[value], dtype=jnp.int32)
    if not is_number(value):
        raise ArenaError(f"{where} must be a number ({unit}), got {shown(value)}")
    is_whole = isinstance(field.default, int)
    number = float(value)
    if not math.isfinite(number) or not low <= number <= high or (is_whole and not number.is_integer()):
        kind = "a whole number" if is_whole else "a number"
        raise ArenaError(f"{where} must be {kind} in [{low:g}, {high:g}] ({unit}), got {number:g}")
    return jnp.asarray(number, dtype=jnp.int32 if is_whole else jnp.result_type(float))


def _from_path(spec: str, module_name: str, factory_name: str, options: dict[str, Any]) -> Any:
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever the user's module does
        names = ", ".join((*POLICIES, *TRAINED))
        raise ArenaError(
            f"policy {spec!r}: can't import {module_name} ({brief(error)}); named policies: {names}"
        ) from error
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise ArenaError(f"policy {spec!r}: {module_name} has no callable {factory_name}")
    try:
        policy = factory(**options)
    except ArenaError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's factory does
        raise ArenaError(f"policy {spec!r}: {factory_name} does not take these options ({brief(error)})") from error
    check_policy(f"policy {spec!r}", policy)
    return policy
