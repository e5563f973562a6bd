"""Every bad input raises `ArenaError`: one line that names what is wrong and what is allowed, and nothing compiled."""

import csv
import dataclasses
import importlib
import math
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arena_jax
from arena_jax import Action, ArenaError, ToolCall
from arena_jax.batch_play import rollout
from arena_jax.data import data_path
from arena_jax.draws import key_words
from arena_jax.params import FIELDS, STATIC, parse_overrides
from arena_jax.policies import POLICIES
from arena_jax.scenario import COLUMNS
from arena_jax.structs import TOOLS
from arena_jax.tools import assume, call_tool

KEY = jax.random.key(0)
COMPILED = []
NUMBERS = [name for name in FIELDS if name not in STATIC]
COUNTS = [name for name in NUMBERS if isinstance(FIELDS[name].default, int)]


def note_compilation(event, *_, **__):
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(note_compilation)


@pytest.fixture(scope="module", autouse=True)
def keys_are_compiled():
    """Taking a key apart is compiled once, by whatever comes first."""
    key_words(KEY)
    jax.vmap(key_words)(jax.random.split(KEY, 2))


@pytest.fixture(scope="module")
def state(env):
    return env.reset(KEY)[0]


def refused(act, *words, is_eager=False):
    """`act()` raises an `ArenaError` whose one line holds all `words`, and compiles nothing.

    is_eager: JAX runs the act operation by operation, each a little program of its own.
    """
    before = len(COMPILED)
    with pytest.raises(ArenaError) as caught:
        act()
    assert is_eager or len(COMPILED) == before, "compiled before it was refused"
    message = str(caught.value)
    assert message.strip() == message and len(message.splitlines()) == 1, message
    for word in words:
        assert word in message, message


def test_the_counter_counts():
    before = len(COMPILED)
    jax.jit(lambda x: x * 3 + 1)(jnp.float32(2))
    assert len(COMPILED) > before


FRESH = """
import jax
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
)
import arena_jax
acts = {
    "make": lambda: arena_jax.make(exclusive=1),
    "number": lambda: arena_jax.make(flash_error=-1),
    "scenario": lambda: arena_jax.make(scenario="none.csv"),
    "policy": lambda: arena_jax.make_policy("greedy-equity:amount=-1"),
    "action": lambda: arena_jax.request_funding("debt", -1),
}
for name, act in acts.items():
    try:
        act()
    except arena_jax.ArenaError:
        print(name, len(compiled))
"""


def test_nothing_is_compiled_in_a_fresh_process():
    run = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["make 0", "number 0", "scenario 0", "policy 0", "action 0"]


# make


@pytest.mark.parametrize("name", ["EnterpriseArena", "EnterpriseArena-v2", "enterprisearena-v1"])
def test_unknown_environment_offers_the_nearest(name):
    refused(
        lambda: arena_jax.make(name),
        "environment",
        repr(name),
        "did you mean EnterpriseArena-v1 or EnterpriseArenaRL-v1",
    )


def test_unknown_environment_lists_what_is_known():
    refused(
        lambda: arena_jax.make("CartPole"),
        "environment",
        "'CartPole'",
        "known: EnterpriseArena-Disciplined-v1, EnterpriseArena-v1, EnterpriseArenaRL-v1",
    )


@pytest.mark.parametrize("name", [None, 5])
def test_environment_must_be_a_name(name):
    refused(lambda: arena_jax.make(name), "environment", str(name), "EnterpriseArena-v1")


@pytest.mark.parametrize(("name", "near"), [("nosie", "noise"), ("delay", "delay_min"), ("Noise", "noise")])
def test_unknown_parameter_offers_the_nearest(name, near):
    refused(lambda: arena_jax.make(**{name: 1}), "parameter", repr(name), "did you mean", near)


BAD_NUMBERS = {
    "none": None,
    "text": "one",
    "number in text": "1",
    "bool": True,
    "NumPy bool": np.bool_(True),
    "list": [1.0],
    "array": np.ones(3),
    "JAX array": jnp.ones(1),
    "complex": 1j,
    "huge": 10**400,
    "object": {},
}


@pytest.mark.parametrize("value", [-1e12, 1e12, math.nan, math.inf, -math.inf])
def test_every_number_has_a_range(value):
    for name in NUMBERS:
        field = FIELDS[name].metadata
        allowed = f"[{field['low']:g}, {field['high']:g}] ({field['unit']})"
        refused(partial(arena_jax.make, **{name: value}), f"parameter {name} must", allowed, f"got {value:g}")


@pytest.mark.parametrize("name", ["initial_cash", "noise", "tool_budget"])
@pytest.mark.parametrize("kind", BAD_NUMBERS)
def test_what_is_not_a_number(kind, name):
    refused(lambda: arena_jax.make(**{name: BAD_NUMBERS[kind]}), f"parameter {name} must be")


@pytest.mark.parametrize(
    ("name", "value", "allowed", "got"),
    [
        ("noise", -0.5, "[0, 5] (factor)", "-0.5"),
        ("initial_cash", math.nan, "[0, 1e+09] ($)", "nan"),
        ("tool_budget", 1001, "[0, 1000] (calls a month)", "1001"),
        ("max_pending", 7, "from 1 to 6", "7"),
        ("max_pending", 2.0, "whole number from 1 to 6", "2.0"),
        ("max_pending", True, "whole number from 1 to 6", "True"),
        ("max_pending", "2", "whole number from 1 to 6", "'2'"),
        ("exclusive", 1, "true or false", "1"),
        ("exclusive", "false", "true or false", "'false'"),
        ("exclusive", None, "true or false", "None"),
    ],
)
def test_a_bad_value_is_told_what_is_allowed(name, value, allowed, got):
    refused(lambda: arena_jax.make(**{name: value}), name, allowed, f"got {got}")


@pytest.mark.parametrize("name", COUNTS)
def test_counts_must_be_whole(name):
    refused(lambda: arena_jax.make(**{name: 2.5}), name, "whole number", "got 2.5")


@pytest.mark.parametrize(
    ("low", "high", "values"), [("fraction_min", "fraction_max", (0.9, 0.8)), ("delay_min", "delay_max", (4, 3))]
)
def test_contradictory_pairs(low, high, values):
    contradictory = dict(zip((low, high), values, strict=True))
    refused(lambda: arena_jax.make(**contradictory), "contradictory", f"{low} is above {high}")


def test_a_value_may_contradict_a_default():
    refused(lambda: arena_jax.make(delay_min=7), "delay_min is above delay_max")
    refused(lambda: arena_jax.make(fraction_max=0.5), "fraction_min is above fraction_max")


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (["noise"], ("NAME=VALUE", "'noise'")),
        (["=1"], ("NAME=VALUE", "'=1'")),
        (["nois=1"], ("parameter", "'nois'", "did you mean noise?")),
        (["noise=loud"], ("noise", "number", "'loud'")),
        (["noise="], ("noise", "number", "''")),
        (["exclusive=maybe"], ("exclusive", "true or false", "'maybe'")),
    ],
)
def test_overrides_in_text(pairs, words):
    refused(lambda: parse_overrides(pairs), *words)


@pytest.mark.parametrize(("text", "word"), [("noise=nan", "nan"), ("noise=-1", "-1"), ("tool_budget=2.5", "2.5")])
def test_overrides_in_text_are_checked_when_they_are_used(text, word):
    refused(lambda: arena_jax.make(**parse_overrides([text])), text.partition("=")[0], word)


# sweep


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ("at least one parameter", "noise")),
        ({"nois": [1.0]}, ("parameter", "'nois'", "did you mean noise?")),
        ({"max_pending": [1, 2]}, ("max_pending", "static")),
        ({"exclusive": [True, False]}, ("exclusive", "static")),
        ({"noise": [0.0, 1.0], "tool_cost": [0.0, 1.0, 2.0]}, ("length", "noise", "2", "tool_cost", "3")),
        ({"noise": 1.0}, ("noise", "one-dimensional")),
        ({"noise": [[0.0, 1.0]]}, ("noise", "one-dimensional")),
        ({"noise": []}, ("noise", "empty")),
        ({"noise": [[0.0], [0.0, 1.0]]}, ("noise", "number")),
        ({"noise": [0.0, -1.0]}, ("noise", "[0, 5]", "-1")),
        ({"noise": [0.0, math.nan]}, ("noise", "[0, 5]", "nan")),
        ({"noise": [0.0, math.inf]}, ("noise", "[0, 5]", "inf")),
        ({"noise": ["loud", "soft"]}, ("noise", "number")),
        ({"noise": ["0", "1"]}, ("noise", "number")),
        ({"noise": [False, True]}, ("noise", "number")),
        ({"tool_budget": [1.5, 2.0]}, ("tool_budget", "whole number")),
        ({"tool_budget": np.linspace(0, 100, 300)}, ("tool_budget", "whole number")),
        ({"noise": np.full(300, "x")}, ("noise", "number")),
        ({"delay_min": [1, 7]}, ("contradictory", "delay_min", "delay_max")),
        ({"fraction_min": [0.2, 0.9], "fraction_max": [0.3, 0.8]}, ("contradictory", "fraction_min", "fraction_max")),
    ],
)
def test_bad_sweeps(env, values, words):
    refused(lambda: arena_jax.sweep(env, **values), *words)


# Trajectory files


@pytest.fixture(scope="module")
def table():
    with open(data_path("macro_trajectory.csv"), newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def write(folder, rows):
    path = folder / "trajectory.csv"
    path.write_text("\n".join(",".join(row) for row in rows) + "\n", encoding="utf-8")
    return path


def edited(table, month, column, text):
    rows = [list(row) for row in table]
    rows[month + 1][rows[0].index(column)] = text
    return rows


def test_a_good_file_is_taken(table, tmp_path, env):
    other = arena_jax.make(scenario=write(tmp_path, edited(table, 5, "treasury_2y", "7.25"))).scenario
    assert float(other.treasury_2y[5]) == 7.25
    np.testing.assert_array_equal(other.volatility, env.scenario.volatility)


def test_a_missing_file(tmp_path):
    path = tmp_path / "none.csv"
    refused(lambda: arena_jax.make(scenario=path), str(path), "No such file")
    refused(lambda: arena_jax.make(scenario=str(tmp_path)), str(tmp_path), "directory")


@pytest.mark.parametrize("scenario", [3, "a\0b"])
def test_what_is_not_a_path(scenario):
    refused(lambda: arena_jax.make(scenario=scenario), "trajectory")


@pytest.mark.parametrize("content", [bytes(range(256)), "month,policy_rate\n".encode("utf-16"), b"x" * 200_000])
def test_a_file_that_is_not_csv(tmp_path, content):
    path = tmp_path / "trajectory.csv"
    path.write_bytes(content)
    refused(lambda: arena_jax.make(scenario=path), str(path))


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"month": 0}\n', b"# a comment\nmonth\n"])
def test_a_file_without_the_header(tmp_path, content):
    path = tmp_path / "trajectory.csv"
    path.write_bytes(content)
    refused(lambda: arena_jax.make(scenario=path), str(path), "column month is missing", *COLUMNS)


@pytest.mark.parametrize("column", ["month", *COLUMNS])
def test_a_missing_column(table, tmp_path, column):
    place = table[0].index(column)
    path = write(tmp_path, [row[:place] + row[place + 1 :] for row in table])
    refused(lambda: arena_jax.make(scenario=path), str(path), f"column {column} is missing", *COLUMNS)


def test_a_column_given_twice(table, tmp_path):
    path = write(tmp_path, [[*row, "treasury_2y" if row is table[0] else "9.9"] for row in table])
    refused(lambda: arena_jax.make(scenario=path), str(path), "treasury_2y")


def test_too_few_months(table, tmp_path):
    path = write(tmp_path, table[:-1])
    refused(lambda: arena_jax.make(scenario=path), str(path), "131 months", "132")
    path = write(tmp_path, table[:1])
    refused(lambda: arena_jax.make(scenario=path), str(path), "0 months", "132")


def test_a_row_that_is_too_short(table, tmp_path):
    rows = [list(row) for row in table]
    rows[8] = rows[8][:-3]  # leaves out industry_user_growth, sector_margin and the label
    path = write(tmp_path, rows)
    refused(lambda: arena_jax.make(scenario=path), str(path), "month 7", "column industry_user_growth", "missing")


def test_a_row_that_is_too_long(table, tmp_path):
    rows = [list(row) for row in table]
    rows[8] = [*rows[8], "1.0"]
    path = write(tmp_path, rows)
    refused(lambda: arena_jax.make(scenario=path), str(path), "month 7")


@pytest.mark.parametrize(
    ("column", "text", "words"),
    [
        ("treasury_2y", "", ("missing",)),
        ("treasury_2y", " ", ("missing",)),
        ("treasury_2y", "low", ("'low' is not a number",)),
        ("treasury_2y", "1;2", ("'1;2' is not a number",)),
        ("treasury_2y", "nan", ("nan", "[0, 50]", "% a year")),
        ("treasury_2y", "inf", ("inf", "[0, 50]", "% a year")),
        ("treasury_2y", "-0.1", ("-0.1", "[0, 50]", "% a year")),
        ("volatility", "151", ("151", "[0, 150]", "index points")),
        ("lending_tightness", "-101", ("-101", "[-100, 100]", "net %")),
        ("user_growth", "1e9", ("1e9", "[0, 20]", "% a month")),
    ],
)
def test_a_bad_cell_is_located(table, tmp_path, column, text, words):
    path = write(tmp_path, edited(table, 41, column, text))
    refused(lambda: arena_jax.make(scenario=path), str(path), f"column {column}", "month 41", *words)


@pytest.mark.parametrize(("month", "text"), [(0, "1"), (41, "42"), (41, "41.0"), (41, ""), (131, "x")])
def test_wrong_month_numbers(table, tmp_path, month, text):
    path = write(tmp_path, edited(table, month, "month", text))
    words = ("column month", f"row {month}", f"expected {month}", repr(text))
    refused(lambda: arena_jax.make(scenario=path), str(path), *words)


def test_swapped_and_repeated_months(table, tmp_path):
    swapped = write(tmp_path, [*table[:5], table[6], table[5], *table[7:]])
    refused(lambda: arena_jax.make(scenario=swapped), "column month", "row 4", "expected 4", "'5'")
    repeated = write(tmp_path, [*table[:5], *table[4:]])
    refused(lambda: arena_jax.make(scenario=repeated), "column month", "row 4", "expected 4", "'3'")


# Actions


@pytest.mark.parametrize(
    ("instrument", "words"),
    [
        ("equty", ("'equty'", "did you mean equity?")),
        ("EQUITY", ("'EQUITY'", "debt, equity")),
        ("", ("''", "debt, equity")),
        (1, ("1", "debt, equity")),
        (None, ("None", "debt, equity")),
    ],
)
def test_request_of_an_unknown_instrument(instrument, words):
    refused(lambda: arena_jax.request_funding(instrument, 1e6), "instrument", *words)


@pytest.mark.parametrize(
    "amount",
    [0, -1.0, math.nan, math.inf, -math.inf, 1e10, 10**400, "1e6", None, True, [1e6], np.ones(2), 1j],
    ids=lambda amount: repr(amount)[:12],
)
def test_request_of_a_bad_amount(amount):
    refused(lambda: arena_jax.request_funding("debt", amount), "amount", "(0, 1e+09]", "$")


def test_the_message_tells_an_amount_from_the_limit():
    refused(lambda: arena_jax.request_funding("debt", 1_000_000_001), "amount", "1000000001")


@pytest.mark.parametrize("close", ["no", 2])
def test_request_with_a_bad_closing(close):
    refused(lambda: arena_jax.request_funding("debt", 1e6, close_books=close), "close_books")


def test_closing_that_leaves_the_month_open_needs_the_flag(env, state):
    refused(lambda: env.close_books(state), "close_books", "exclusive=False")


BAD_LEAVES = [
    ("close_books", jnp.int32(1), "bool", "int32"),
    ("close_books", jnp.zeros(()), "bool", "float"),
    ("close_books", jnp.zeros(2, dtype=bool), "bool", "bool[2]"),
    ("instrument", jnp.bool_(True), "integer", "bool"),
    ("instrument", jnp.ones(()), "integer", "float"),
    ("instrument", jnp.ones(1, dtype=jnp.int32), "integer", "int32[1]"),
    ("amount", jnp.bool_(True), "float", "bool"),
    ("amount", jnp.int32(5), "float", "int32"),
    ("amount", jnp.zeros((), dtype=complex), "float", "complex"),
    ("amount", jnp.zeros((2, 2)), "float", "[2, 2]"),
]


@pytest.mark.parametrize("mode", ["eager", "jit", "vmap", "jit of vmap"])
@pytest.mark.parametrize(("leaf", "value", "wanted", "got"), BAD_LEAVES)
def test_a_bad_leaf_of_an_action(env, state, mode, leaf, value, wanted, got):
    action = dataclasses.replace(arena_jax.pass_month(), **{leaf: value})
    step, arguments = env.step, (state, action, KEY)
    if "vmap" in mode:
        step, arguments = jax.vmap(step), jax.tree.map(lambda x: jnp.stack([x, x]), arguments)
    if "jit" in mode:
        step = jax.jit(step)
    refused(lambda: step(*arguments), f"Action.{leaf}", wanted, got, is_eager="jit" not in mode)


@pytest.mark.parametrize("value", ["x", None, [True, 1.5, "x"]])
@pytest.mark.parametrize("leaf", ["close_books", "instrument", "amount"])
def test_a_leaf_of_an_action_that_is_no_array(env, state, leaf, value):
    action = dataclasses.replace(arena_jax.pass_month(), **{leaf: value})
    refused(lambda: env.step(state, action, KEY), f"Action.{leaf}", is_eager=True)


@pytest.mark.parametrize("action", [(False, 0, 0.0), None])
def test_what_is_not_an_action(env, state, action):
    refused(lambda: env.step(state, action, KEY), "Action", type(action).__name__)


def test_an_instrument_beyond_the_dtype(env, state):
    """It must not wrap around to another one."""
    action = dataclasses.replace(arena_jax.request_funding("debt", 1e6), instrument=2**32 + 1)
    refused(lambda: env.step(state, action, KEY), "Action.instrument", is_eager=True)


def test_a_whole_amount_is_taken_like_a_float_whatever_its_size(env, state):
    step = lambda amount: jax.eval_shape(lambda key: env.step(state, Action(False, 2, amount), key), KEY)
    assert step(5_000_000_000) == step(5e9)


# Tool calls


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: call_tool("verify_cash"), ("tool", "'verify_cash'", "verify_cash_position")),
        (lambda: call_tool("search"), ("tool", "'search'", *TOOLS)),
        (lambda: call_tool(None), ("tool", "None", *TOOLS)),
        (lambda: call_tool(TOOLS[1], document="lst"), ("document", "'lst'", "list")),
        (lambda: call_tool(TOOLS[1], document=1), ("document", "1", "list")),
        (lambda: call_tool(TOOLS[2], indicators=["volatilty"]), ("indicator", "'volatilty'", "volatility")),
        (
            lambda: call_tool(TOOLS[2], indicators=["user_growth"]),
            ("indicator", "'user_growth'", "industry_user_growth"),
        ),
        (lambda: assume(growth=1.0), ("assumption", "'growth'", "user_growth")),
        (lambda: assume(user_growth="fast"), ("user_growth", "number", "'fast'")),
        (lambda: assume(user_growth="1"), ("user_growth", "number", "'1'")),
        (lambda: assume(user_growth=True), ("user_growth", "number", "True")),
        (lambda: assume(user_growth=[1.0, 2.0]), ("user_growth", "number")),
        (lambda: assume(horizon=1.5), ("horizon", "whole number", "1.5")),
    ],
)
def test_a_bad_call_by_name(act, words):
    refused(act, *words)


def good_call(**leaves):
    return dataclasses.replace(call_tool("verify_cash_position"), **leaves)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("leaves", "words"),
    [
        ({"tool": jnp.zeros(())}, ("ToolCall.tool", "integer", "float")),
        ({"tool": jnp.bool_(True)}, ("ToolCall.tool", "integer", "bool")),
        ({"tool": jnp.zeros(2, dtype=jnp.int32)}, ("ToolCall.tool", "integer", "int32[2]")),
        ({"argument": jnp.zeros(())}, ("ToolCall.argument", "integer", "float")),
        ({"argument": jnp.zeros(1, dtype=jnp.int32)}, ("ToolCall.argument", "integer", "int32[1]")),
        ({"assumptions": dataclasses.replace(assume(), horizon=jnp.ones(()))}, ("Assumptions.horizon", "integer")),
        ({"assumptions": dataclasses.replace(assume(), funding=jnp.int32(1))}, ("Assumptions.funding", "float")),
        ({"assumptions": dataclasses.replace(assume(), funding=jnp.ones(2))}, ("Assumptions.funding", "float", "[2]")),
        ({"assumptions": None}, ("Assumptions", "NoneType")),
    ],
)
def test_a_bad_leaf_of_a_tool_call(env, state, leaves, words, compiled):
    use_tool = jax.jit(env.use_tool) if compiled else env.use_tool
    refused(lambda: use_tool(state, good_call(**leaves), KEY), *words, is_eager=not compiled)


@pytest.mark.parametrize("call", [None, "verify_cash_position"])
def test_what_is_not_a_tool_call(env, state, call):
    refused(lambda: env.use_tool(state, call, KEY), "ToolCall", type(call).__name__)


def test_a_tool_beyond_the_dtype(env, state):
    refused(lambda: env.use_tool(state, ToolCall(2**32 + 1, 0, assume()), KEY), "ToolCall.tool")


# rollout


@pytest.fixture
def no_play(monkeypatch):
    """Batch play must not even begin."""

    def play(*_, **__):
        raise AssertionError("play was called")

    monkeypatch.setattr(importlib.import_module("arena_jax.batch_play"), "play_batch", play)


BAD_COUNTS = [-1, 2.0, True, "5", None, math.nan, np.float32(2), np.array([2]), 2**33]


@pytest.mark.parametrize("value", [0, *BAD_COUNTS], ids=repr)
@pytest.mark.parametrize("name", ["episodes", "batch"])
def test_bad_counts_of_a_rollout(env, no_play, name, value):
    arguments = {"episodes": 2, name: value}
    refused(
        lambda: rollout(env, arena_jax.make_policy("never-raise"), KEY, **arguments), name, "whole number", "from 1"
    )


@pytest.mark.parametrize("value", BAD_COUNTS, ids=repr)
def test_bad_first_episode_of_a_rollout(env, no_play, value):
    policy = arena_jax.make_policy("never-raise")
    refused(lambda: rollout(env, policy, KEY, 2, first=value), "first", "whole number", "from 0")


@pytest.mark.parametrize(("first", "episodes"), [(2**32 - 2, 2), (2**32 - 1, 1), (1, 2**32 - 1)])
def test_episodes_beyond_the_last_index(env, no_play, first, episodes):
    policy = arena_jax.make_policy("never-raise")
    refused(lambda: rollout(env, policy, KEY, episodes, first=first), "4294967295", str(first + episodes - 1))


@pytest.mark.parametrize("key", [0, None, "0", np.zeros(2, np.uint32), jnp.zeros(2), jax.random.key(0, impl="rbg")])
def test_bad_key_of_a_rollout(env, no_play, key):
    refused(lambda: rollout(env, arena_jax.make_policy("never-raise"), key, 2), "key", "threefry")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (["cas"], ("'cas'", "did you mean cash")),
        ("cash", ("list of names", "'cash'")),
        (["cash", "cash"], ("twice", "cash")),
    ],
)
def test_bad_fields_of_a_rollout(env, no_play, fields, words):
    policy = arena_jax.make_policy("never-raise")
    refused(lambda: rollout(env, policy, KEY, 2, record=fields), "field", *words)


@pytest.mark.parametrize("policy", [None, object(), POLICIES["never-raise"]], ids=["none", "object", "class"])
def test_what_is_not_a_policy(env, no_play, policy):
    refused(lambda: rollout(env, policy, KEY, 2), "policy", "init")


def test_what_is_not_an_environment(no_play):
    refused(lambda: rollout("EnterpriseArena-v1", arena_jax.make_policy("never-raise"), KEY, 2), "env", "str")


class Acts:
    """A policy that returns a given action."""

    def __init__(self, action):
        self.action = action

    def init(self, key):
        return ()

    def choose_tools(self, carry, observation, key):
        return arena_jax.make_policy("never-raise").choose_tools(carry, observation, key)

    def act(self, carry, observation, key):
        return carry, self.action


@pytest.mark.parametrize(("leaf", "value"), [("instrument", jnp.ones(())), ("amount", jnp.ones(1))])
def test_a_bad_action_of_a_policy(env, leaf, value):
    action = dataclasses.replace(arena_jax.pass_month(), **{leaf: value})
    refused(lambda: rollout(env, Acts(action), KEY, 2), f"Action.{leaf}", is_eager=True)


# Policies by name


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("greedy-equty", ("policy", "'greedy-equty'", "did you mean greedy-equity")),
        ("greedy-equty:amount=5e6", ("policy", "'greedy-equty'", "did you mean greedy-equity")),
        ("GREEDY-EQUITY", ("policy", "'GREEDY-EQUITY'", *POLICIES)),
        ("", ("policy", "''", *POLICIES)),
        (":", ("policy", "''", *POLICIES)),
        (":make", ("policy", "':make'")),
        ("greedy-equity:amont=5", ("option of greedy-equity", "'amont'", "did you mean amount?")),
        ("never-raise:amount=5", ("option of never-raise", "'amount'", "known: none")),
        ("greedy-equity:amount", ("expected option=value", "'amount'")),
        ("greedy-equity:amount=", ("expected option=value", "'amount='")),
        ("greedy-equity:=5", ("expected option=value", "'=5'")),
        ("greedy-equity:amount=5,6", ("expected option=value", "'6'")),
        ("greedy-equity:amount=5,amount=6", ("option amount", "twice")),
        ("greedy-equity:amount=much", ("greedy-equity", "amount", "number ($)", "'much'")),
        ("greedy-equity:amount=5:x=3", ("greedy-equity", "amount", "number ($)", "'5:x=3'")),
        ("greedy-equity:amount=nan", ("greedy-equity", "amount", "[1, 1e+09] ($)", "nan")),
        ("greedy-equity:amount=inf", ("greedy-equity", "amount", "[1, 1e+09] ($)", "inf")),
        ("greedy-equity:amount=-1", ("greedy-equity", "amount", "[1, 1e+09] ($)", "-1")),
        ("greedy-equity:amount=2e9", ("greedy-equity", "amount", "[1, 1e+09] ($)", "2e+09")),
        ("one-shot-equity:month=1.5", ("one-shot-equity", "month", "whole number", "1.5")),
        ("cash-threshold:instrument=stock", ("cash-threshold", "instrument", "equity, debt", "'stock'")),
        ("cash-threshold:instrument=1", ("cash-threshold", "instrument", "equity, debt", "1")),
        ("random:call_rate=2", ("random", "call_rate", "[0, 1]", "2")),
        ("random:min_amount=4e7,max_amount=1e6", ("random", "min_amount", "max_amount")),
    ],
)
def test_a_bad_policy_by_name(spec, words):
    refused(lambda: arena_jax.make_policy(spec), *words)


@pytest.mark.parametrize("spec", [None, 5])
def test_a_policy_must_be_a_text(spec):
    refused(lambda: arena_jax.make_policy(spec), "policy", str(spec))


@pytest.mark.parametrize(
    "value", [None, True, np.bool_(True), "5e6", [5e6], np.ones(2)], ids=lambda value: repr(value)[:12]
)
def test_a_bad_option_in_python(value):
    refused(lambda: arena_jax.make_policy("greedy-equity", amount=value), "greedy-equity", "amount", "number")


@pytest.mark.parametrize("value", [None, 1, "stock"])
def test_a_bad_choice_in_python(value):
    make = lambda: arena_jax.make_policy("cash-threshold", instrument=value)
    refused(make, "cash-threshold", "instrument", "equity, debt", repr(value))


# Policies by path: this module holds the factories


def needs_no_options():
    return arena_jax.make_policy("never-raise")


def refuses(horizon=1.0):
    raise ValueError("horizon must be below 1")


class HalfAPolicy:
    def init(self, key):
        return ()

    choose_tools = "no method"


not_callable = 3


def test_a_policy_by_path():
    assert isinstance(arena_jax.make_policy(f"{__name__}:needs_no_options"), POLICIES["never-raise"])


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_module_at_all:make", ("no_such_module_at_all", "import", "never-raise")),
        ("no.such.module:make", ("no.such.module", "import")),
        ("..relative:make", ("..relative",)),
        ("json:no_such_function", ("json", "no_such_function")),
        (f"{__name__}:not_callable", (__name__, "not_callable")),
        (f"{__name__}:needs_no_options:amount=5", ("needs_no_options", "amount")),
        (f"{__name__}:refuses:horizon=2", ("refuses", "horizon must be below 1")),
        (f"{__name__}:HalfAPolicy", ("HalfAPolicy", "choose_tools", "init, choose_tools, act")),
        ("json:JSONDecoder", ("JSONDecoder", "init", "init, choose_tools, act")),
        (f"{__name__}:refuses:horizon", ("expected option=value", "'horizon'")),
        (f"{__name__}:refuses:horizon=", ("expected option=value", "'horizon='")),
        (f"{__name__}:refuses:=2", ("expected option=value", "'=2'")),
        (f"{__name__}:refuses:horizon=1,horizon=2", ("horizon", "twice")),
    ],
)
def test_a_bad_policy_by_path(path, words):
    refused(lambda: arena_jax.make_policy(path), "policy", repr(path), *words)
