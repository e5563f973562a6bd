"""The numbers of the world that can be set: default, unit, allowed range, provenance, meaning.

`Params` is the single source: the validation, the table that `arena-jax list parameters` prints and the
range tests all read the metadata of its fields. Numbers are pytree leaves, so a `vmap` over a batch of
`Params` is a parameter sweep; `max_pending`, `exclusive` and `disciplined` fix shapes and branches and are static.
Parameters of a variant name its flag; while that is off they mean nothing, and `scenario.digest` leaves them out.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.errors import ArenaError, shown, unknown

MAX_REQUEST = 1e9  # $, the largest amount that any setting allows

PAPER = "paper"  # stated in arXiv 2603.23638
CALIBRATED = "calibrated here"  # not published; chosen so that the published results come out
CONVENTION = "convention"  # accounting standard, tax law or market practice
OURS = "ours"  # a rule of this simulator where the paper is silent


def _parameter(
    default: float | int | bool,
    unit: str,
    low: float,
    high: float,
    source: str,
    about: str,
    *,
    static: bool = False,
    variant: str | None = None,
) -> Any:
    metadata = {"unit": unit, "low": low, "high": high, "source": source, "about": about, "static": static}
    return dataclasses.field(default=default, metadata=metadata | {"variant": variant})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Params:
    """Parameters of the world (design sections 2.1-2.5). Leaves are scalars; build with `make_params`."""

    # the company at the start
    initial_cash: Any = _parameter(15e6, "$", 0, 1e9, PAPER + " §4.1", "cash at the start")
    initial_users: Any = _parameter(5_000.0, "borrowers", 1, 1e6, PAPER + " §4.1", "active borrowers at the start")
    initial_loans: Any = _parameter(50e6, "$", 1e4, 1e10, PAPER + " §4.1", "gross loans at the start")
    initial_shares: Any = _parameter(10.5e6, "shares", 1e3, 1e10, PAPER + " §4.1", "shares outstanding at the start")
    initial_price: Any = _parameter(10.0, "$/share", 0.01, 1e4, PAPER + " §4.1", "listed price at the start")
    initial_paid_in_capital: Any = _parameter(70e6, "$", 0, 1e10, CALIBRATED, "paid-in capital at the start")
    # operations: base values of the indicators
    loan_size: Any = _parameter(10_000.0, "$", 100, 1e5, PAPER + " §4.1", "size of a new loan")
    lending_margin: Any = _parameter(3.8, "% a year", 0, 30, CALIBRATED, "lending rate above 2-year yield and spread")
    repayment_rate: Any = _parameter(1 / 36, "per month", 0, 0.2, CALIBRATED, "share of loans repaid (36-month loan)")
    repayment_stress: Any = _parameter(0.0010, "per month", 0, 0.02, CALIBRATED, "repayment lost per unit of stress")
    charge_off_rate: Any = _parameter(0.0024, "per month", 0, 0.05, CALIBRATED, "share of loans charged off")
    charge_off_stress: Any = _parameter(0.25, "per unit", 0, 2, CALIBRATED, "relative rise of charge-offs with stress")
    delinquency_norm: Any = _parameter(
        2.3,
        "%",
        0.1,
        20,
        "data: rounded mean of the trajectory",
        "delinquency at which charge-offs are at their base rate",
    )
    stress_floor: Any = _parameter(-0.5, "index", -2, 0, CALIBRATED, "lowest stress that moves charge-offs")
    stress_cap: Any = _parameter(3.0, "index", 0, 10, CALIBRATED, "highest stress that moves charge-offs")
    servicing_cost: Any = _parameter(18.0, "$ a month", 0, 1_000, CALIBRATED, "servicing cost per borrower")
    fixed_cost: Any = _parameter(88_000.0, "$ a month", 0, 1e7, CALIBRATED, "fixed cost")
    acquisition_cost: Any = _parameter(390.0, "$", 0, 1e4, CALIBRATED, "acquisition cost per new borrower")
    interest_lag: Any = _parameter(0.15, "share", 0, 1, CALIBRATED, "interest collected one month late")
    cost_lag: Any = _parameter(0.40, "share", 0, 1, CALIBRATED, "operating cost paid one month late")
    # operations: monthly noise of the indicators
    sigma_user_growth: Any = _parameter(0.10, "% a month", 0, 2, CALIBRATED, "noise of user growth")
    sigma_loan_size: Any = _parameter(200.0, "$", 0, 5_000, CALIBRATED, "noise of the loan size")
    sigma_lending_rate: Any = _parameter(0.10, "% a year", 0, 5, CALIBRATED, "noise of the lending rate")
    sigma_repayment_rate: Any = _parameter(0.0006, "per month", 0, 0.05, CALIBRATED, "noise of repayments")
    sigma_charge_off_rate: Any = _parameter(0.0002, "per month", 0, 0.02, CALIBRATED, "noise of charge-offs")
    sigma_servicing_cost: Any = _parameter(1.0, "$ a month", 0, 100, CALIBRATED, "noise of the servicing cost")
    sigma_fixed_cost: Any = _parameter(8_000.0, "$ a month", 0, 1e6, CALIBRATED, "noise of the fixed cost")
    sigma_acquisition_cost: Any = _parameter(30.0, "$", 0, 1_000, CALIBRATED, "noise of the acquisition cost")
    sigma_interest_lag: Any = _parameter(0.02, "share", 0, 0.5, CALIBRATED, "noise of the late interest share")
    sigma_cost_lag: Any = _parameter(0.04, "share", 0, 0.5, CALIBRATED, "noise of the late cost share")
    noise: Any = _parameter(1.0, "factor", 0, 5, PAPER + " RQ2", "scale of every sigma and of the flash error")
    # the books
    renewal_rate: Any = _parameter(0.784, "share", 0, 1, CALIBRATED, "repaid principal that is lent again")
    recovery_rate: Any = _parameter(0.1, "share", 0, 1, CONVENTION, "recoveries per charge-off")
    allowance_months: Any = _parameter(
        18.0, "months", 0, 36, CONVENTION + ": ASC 326, mean life of a 36-month balance", "expected-loss horizon"
    )
    tax_rate: Any = _parameter(0.21, "share", 0, 0.6, CONVENTION + ": IRC §11", "tax on positive taxable income")
    loss_limit: Any = _parameter(0.8, "share", 0, 1, CONVENTION + ": IRC §172", "income that old losses may offset")
    debt_term: Any = _parameter(30.0, "months", 2, 360, CALIBRATED, "1/term of the debt is repaid each month")
    # market stress
    volatility_center: Any = _parameter(18.0, "index points", 0, 100, "data", "volatility of zero stress")
    volatility_scale: Any = _parameter(6.0, "index points", 0.5, 100, "data", "volatility per unit of stress")
    tightness_scale: Any = _parameter(25.0, "net %", 1, 500, "data", "lending tightness per unit of stress")
    # funding
    equity_logit: Any = _parameter(1.0, "logit", -10, 10, CALIBRATED, "equity approval at zero stress")
    equity_stress: Any = _parameter(1.0, "logit per unit", 0, 10, CALIBRATED, "equity approval lost per unit of stress")
    debt_logit: Any = _parameter(1.5, "logit", -10, 10, CALIBRATED, "debt approval at zero stress")
    debt_stress: Any = _parameter(1.1, "logit per unit", 0, 10, CALIBRATED, "debt approval lost per unit of stress")
    equity_round_factor: Any = _parameter(0.778, "factor", 0.01, 1, CALIBRATED, "equity approval kept per past round")
    leverage_limit: Any = _parameter(0.776, "share of assets", 0.01, 10, CALIBRATED, "leverage at which debt ends")
    fraction_min: Any = _parameter(0.7, "share", 0.01, 1, PAPER + " §3.4", "least share of the request that arrives")
    fraction_max: Any = _parameter(1.0, "share", 0.01, 1, PAPER + " §3.4", "largest share of the request that arrives")
    delay_min: Any = _parameter(1, "months", 1, 36, PAPER + " §3.4", "shortest settlement delay")
    delay_max: Any = _parameter(6, "months", 1, 36, PAPER + " §3.4", "longest settlement delay")
    max_request: Any = _parameter(MAX_REQUEST, "$", 1, MAX_REQUEST, OURS, "largest amount of one request")
    debt_margin: Any = _parameter(2.0, "% a year", 0, 30, CALIBRATED, "debt rate above 2-year yield and spread")
    listing_multiple: Any = _parameter(5.0, "x revenue", 0, 100, CALIBRATED, "revenue multiple in the listed price")
    price_floor: Any = _parameter(0.01, "$/share", 0.01, 10, CONVENTION + ": par value", "lowest issue price")
    # score and tools
    revenue_multiple: Any = _parameter(5.0, "x revenue", 0, 100, PAPER + " §3.6", "m of the score")
    tool_cost: Any = _parameter(5_000.0, "$ a call", 0, 1e6, PAPER + " §3.6", "lambda of the score")
    tool_budget: Any = _parameter(20, "calls a month", 0, 1_000, PAPER + " §3.3", "answered tool calls a month")
    flash_error: Any = _parameter(0.02, "per sqrt month", 0, 0.2, OURS, "relative error of flash figures")
    # shapes and branches
    max_pending: int = _parameter(1, "requests", 1, 6, OURS, "requests that may be open at once", static=True)
    exclusive: bool = _parameter(True, "flag", 0, 1, PAPER + " RQ2", "one action a month", static=True)
    # the disciplined variant
    disciplined: bool = _parameter(
        False, "flag", 0, 1, OURS, "capital is not free: EnterpriseArena-Disciplined-v1", static=True,
        variant="disciplined",
    )  # fmt: skip
    size_aversion: Any = _parameter(
        0.5, "per V", 0, 100, OURS, "kappa, with disciplined: log approval lost per company value asked for",
        variant="disciplined",
    )  # fmt: skip


FIELDS: dict[str, Any] = {field.name: field for field in dataclasses.fields(Params)}
STATIC = tuple(name for name, field in FIELDS.items() if field.metadata["static"])
CONTRADICTIONS = (("fraction_min", "fraction_max"), ("delay_min", "delay_max"), ("stress_floor", "stress_cap"))


def _is_whole(field: dataclasses.Field[Any]) -> bool:
    return isinstance(field.default, int) and not isinstance(field.default, bool)


def _checked_static(name: str, value: Any) -> Any:
    """A static parameter as a Python value, or an error."""
    field = FIELDS[name]
    if isinstance(field.default, bool):
        if not isinstance(value, bool | np.bool_):
            raise ArenaError(f"parameter {name} must be true or false, got {value!r}")
        return bool(value)
    low, high = field.metadata["low"], field.metadata["high"]
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise ArenaError(f"parameter {name} must be a whole number from {low} to {high}, got {value!r}")
    return int(value)


def checked_values(name: str, values: Any) -> np.ndarray:
    """`values` (one number or an array of them) of the numeric parameter `name`, or an `ArenaError`."""
    if name not in FIELDS:
        raise unknown("parameter", name, FIELDS)
    field = FIELDS[name]
    if name in STATIC:
        raise ArenaError(f"parameter {name} is static: it can't be swept, set it when the environment is made")
    try:
        array = np.asarray(values)
    except ValueError:  # ragged
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":  # no text, no bool, nothing too large for a machine number
        raise ArenaError(f"parameter {name} must be a number, got {shown(values)}")
    array = array.astype(np.float64)
    low, high, unit = field.metadata["low"], field.metadata["high"], field.metadata["unit"]
    bad = array[~(np.isfinite(array) & (array >= low) & (array <= high))]
    if bad.size:
        raise ArenaError(f"parameter {name} must lie in [{low:g}, {high:g}] ({unit}), got {bad.flat[0]:g}")
    if _is_whole(field) and (array != np.round(array)).any():
        raise ArenaError(f"parameter {name} must be a whole number ({unit}), got {shown(values)}")
    return array


def _leaf(name: str, values: np.ndarray) -> jax.Array:
    """Checked values as an array of the parameter's dtype: int32 for counts, else the default float."""
    return jax.device_put(np.asarray(values, dtype=np.int32 if _is_whole(FIELDS[name]) else jnp.result_type(float)))


def _check_consistent(values: dict[str, Any]) -> None:
    for low, high in CONTRADICTIONS:
        if np.any(np.asarray(values[low]) > np.asarray(values[high])):
            raise ArenaError(f"contradictory parameters: {low} is above {high}")


def make_params(**overrides: Any) -> Params:
    """`Params` with validated overrides; raises `ArenaError` before anything is compiled.

    Numbers become scalars of the default float dtype (float32, or float64 under `JAX_ENABLE_X64=1`) or int32.
    """
    for name in overrides:
        if name not in FIELDS:
            raise unknown("parameter", name, FIELDS)
    built: dict[str, Any] = {}
    for name, field in FIELDS.items():
        value = overrides.get(name, field.default)
        if name in STATIC:
            built[name] = _checked_static(name, value)
            continue
        array = checked_values(name, value)
        if array.shape != ():
            raise ArenaError(f"parameter {name} must be one number; use sweep() for a batch of them")
        built[name] = array
    _check_consistent(built)
    leaves: dict[str, Any] = {name: value if name in STATIC else _leaf(name, value) for name, value in built.items()}
    return Params(**leaves)


def with_leaves(params: Params, values: dict[str, np.ndarray]) -> Params:
    """`params` with the leaves in `values` (checked values of any shape) in place of its own."""
    _check_consistent({name: values.get(name, getattr(params, name)) for name in FIELDS})
    leaves: dict[str, Any] = {name: _leaf(name, array) for name, array in values.items()}
    return dataclasses.replace(params, **leaves)


def parse_overrides(pairs: list[str]) -> dict[str, Any]:
    """`["noise=0", "exclusive=false"]` as keyword arguments for `make_params`."""
    overrides: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ArenaError(f"expected NAME=VALUE, got {pair!r}")
        if name not in FIELDS:
            raise unknown("parameter", name, FIELDS)
        if name in overrides:
            raise ArenaError(f"parameter {name} is given twice")
        overrides[name] = _parse(name, text)
    return overrides


def _parse(name: str, text: str) -> Any:
    default = FIELDS[name].default
    if isinstance(default, bool):
        flags = {"true": True, "1": True, "false": False, "0": False}
        if text.lower() not in flags:
            raise ArenaError(f"parameter {name} must be true or false, got {text!r}")
        return flags[text.lower()]
    try:
        number = float(text)
    except ValueError:
        raise ArenaError(f"parameter {name} must be a number, got {text!r}") from None
    return int(number) if _is_whole(FIELDS[name]) and math.isfinite(number) and number.is_integer() else number
