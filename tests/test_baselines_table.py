"""The table of baselines: who plays, what is compared with what, and the results that ship."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from readme_tables import found

import arena_jax
from arena_jax.arena import ENVIRONMENTS
from arena_jax.errors import ArenaError
from arena_jax.policies import TRAINED as SHIPPED
from arena_jax.policies import make_policy, source_digest
from arena_jax.policies.registry import weights_header
from arena_jax.policies.trained import save_policy
from baselines.config import read_config
from baselines.held_out import SEED, places
from baselines.tune import FAMILIES, TUNED
from benchmarks import baselines_table
from benchmarks.baselines_table import PLACES, cost, entrants, pair_rows, play_variant, result_rows

TRAINED, BEST, BETTER, WORST = (f"greedy-equity:amount={amount}" for amount in ("30e6", "20e6", "40e6", "1e6"))
EPISODES = 40


@pytest.fixture(scope="module")
def variant():
    kinds = {WORST: "heuristic", BETTER: "heuristic", BEST: "tuned", TRAINED: "trained"}
    players = {spec: {"kind": kind, "cost": None} for spec, kind in kinds.items()}
    return play_variant(arena_jax.make("EnterpriseArena-Disciplined-v1"), players, EPISODES)


def test_policies_play_the_held_out_episodes(variant):
    assert (variant["environment"], variant["objective"]) == (ENVIRONMENTS[1], "value_kept")
    env = arena_jax.make("EnterpriseArena-Disciplined-v1")
    for place, settings in places(EPISODES).items():
        expected = arena_jax.evaluate(env, [BEST], **settings)[BEST]["value_kept"]
        row = next(row for row in variant["policies"] if row["policy"] == BEST)
        assert row[place]["value_kept"] == {name: getattr(expected, name) for name in ("mean", "low", "high")}


def test_trained_policies_are_compared_with_tuned_ones_pair_by_pair(variant):
    (pair,) = variant["pairs"]
    assert (pair["policy"], pair["other"]) == (TRAINED, BEST)
    means = {row["policy"]: row for row in variant["policies"]}
    for place in places(EPISODES):
        one, other = means[BEST][place]["value_kept"], means[TRAINED][place]["value_kept"]
        assert pair[place]["mean"] == pytest.approx(other["mean"] - one["mean"], abs=1.0)
        half = lambda found: found["high"] - found["mean"]
        assert 0.0 < half(pair[place]) < np.hypot(half(one), half(other))  # luck that is common cancels


def test_rows_are_in_order_and_tell_cost(variant):
    rows = result_rows(variant)
    assert [row["Policy"] for row in rows] == [f"`{spec}`" for spec in (TRAINED, BEST, BETTER, WORST)]
    assert rows[3]["Survival, default"] == "0.0%" and rows[0]["Cost (processor s)"] == "–"
    assert rows[1]["Value kept, generated (95%)"].count("$") == 3
    (row,) = pair_rows(variant)
    assert list(row) == ["Less", f"{TRAINED}, default", f"{TRAINED}, generated"]
    assert row["Less"] == f"`{BEST}`" and row[f"{TRAINED}, default"].count("$") == 3
    assert cost({"policies": 960, "processor_seconds": 41.3}) == "960 policies, 41 s"


def tuned_row(environment, spec):
    numbers = {"training": 0.0, "evaluations": 5, "seconds": 0.5, "processor_seconds": 1.0}
    held_out = {"mean": 0.0, "low": -1.0, "high": 1.0}
    return {"environment": environment, "policy": spec.partition(":")[0], "spec": spec, "held_out": held_out} | numbers


def test_entrants_are_the_tuned_ones_of_their_variant(tmp_path):
    path = tmp_path / "tuned.json"
    specs = [f"greedy-debt:amount={amount}" for amount in (1e6, 2e6)]
    rows = [tuned_row(*both) for both in zip(ENVIRONMENTS, specs, strict=True)]
    path.write_text(json.dumps({"settings": {}, "tuned": rows}))
    mine, took = tmp_path / "mine.msgpack", {"decisions": 9, "processor_seconds": 2.0}
    spec = f"ppo:weights={mine}"
    save_policy(mine, make_policy("ppo"), {"variant": ENVIRONMENTS[0], "training": took | {"backend": "cpu"}})
    players = entrants(ENVIRONMENTS[1], path, [spec])
    assert [spec for spec, about in players.items() if about["kind"] == "tuned"] == [rows[1]["spec"]]
    assert players[rows[1]["spec"]]["cost"] == {"policies": 5, "processor_seconds": 1.0}
    assert spec not in players and players["never-raise"]["kind"] == "heuristic"
    trained = {"kind": "trained", "cost": took, "source": source_digest(spec)}
    assert entrants(ENVIRONMENTS[0], path, [spec])[spec] == trained
    with pytest.raises(ArenaError, match="unknown policy 'nobody'"):
        entrants(ENVIRONMENTS[1], path, ["nobody"])
    with pytest.raises(ArenaError, match="no trained policy"):
        entrants(ENVIRONMENTS[1], path, ["never-raise"])
    with pytest.raises(ArenaError, match="can't read weights file"):
        entrants(ENVIRONMENTS[1], path, ["ppo:weights=none.msgpack"])
    for about in ({}, {"variant": ENVIRONMENTS[1], "training": took | {"decisions": "many"}}):
        save_policy(mine, make_policy("ppo"), about)
        with pytest.raises(ArenaError, match="don't tell their variant and cost"):
            entrants(ENVIRONMENTS[1], path, [spec])
    half = {"settings": {}, "tuned": [{name: rows[0][name] for name in ("environment", "spec")}]}
    for spoilt in ({}, {"settings": {}, "tuned": [1]}, half):
        path.write_text(json.dumps(spoilt))
        with pytest.raises(ArenaError, match="not a file of tuned policies"):
            entrants(ENVIRONMENTS[1], path, [])
    with pytest.raises(ArenaError, match=r"can't read .* python -m baselines.tune"):
        entrants(ENVIRONMENTS[1], tmp_path / "none.json", [])


def test_the_program_plays_both_variants(monkeypatch, tmp_path, capsys):
    tuned, out = tmp_path / "tuned.json", tmp_path / "baselines.json"
    monkeypatch.setattr(baselines_table, "POLICIES", {WORST: None})
    monkeypatch.setattr(baselines_table, "TRAINED", {})
    rows = [tuned_row(name, BEST) for name in ENVIRONMENTS]
    tuned.write_text(json.dumps({"settings": {}, "tuned": rows}))
    baselines_table.command(episodes=EPISODES, tuned=tuned, out=out)
    written = json.loads(out.read_text())
    assert (written["episodes"], written["seed"]) == (EPISODES, SEED)
    variants = [(one["environment"], one["objective"], len(one["policies"])) for one in written["variants"]]
    assert variants == [(ENVIRONMENTS[0], "score", 2), (ENVIRONMENTS[1], "value_kept", 2)]
    shown = capsys.readouterr().out
    assert BEST in shown and "5 policies, 1 s" in shown and str(out) in shown
    with pytest.raises(ArenaError, match="multiple of 10"):
        baselines_table.command(episodes=33, tuned=tuned, out=out)


def test_shipped_results_belong_together():
    """Those of tuning are of this version and all families, and those of the table are of these policies."""
    tuned, table = json.loads(TUNED.read_bytes()), found("baselines")
    assert tuned["settings"]["arena_jax"] == arena_jax.__version__
    assert (table["seed"], table["episodes"]) == (SEED, tuned["settings"]["held_out_episodes"])
    pairs = [(row["environment"], row["policy"]) for row in tuned["tuned"]]
    assert sorted(pairs) == sorted(itertools.product(ENVIRONMENTS, FAMILIES))
    variants = {variant["environment"]: variant for variant in table["variants"]}
    for row in tuned["tuned"]:
        variant = variants[row["environment"]]
        played = next(one for one in variant["policies"] if one["policy"] == row["spec"])
        mean = sum(played[place][variant["objective"]]["mean"] for place in PLACES) / 2
        assert mean == pytest.approx(row["held_out"]["mean"], rel=1e-5)
    trained = {one["policy"]: one for variant in variants.values() for one in variant["policies"] if "source" in one}
    assert {name: one["source"] for name, one in trained.items()} == {name: source_digest(name) for name in SHIPPED}
    assert found("terms")["source"] == source_digest(found("terms")["policy"])


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_weights_are_of_their_configuration(name):
    header = weights_header(name)
    settings = dataclasses.asdict(read_config(name))
    assert header["config"] == {key: list(v) if isinstance(v, tuple) else v for key, v in settings.items()}
    assert header["variant"] == ENVIRONMENTS[settings["disciplined"]]
    assert header["training"]["processor_seconds"] < 20 * 60  # of two cores


def test_trained_policies_beat_every_tuned_one_where_capital_is_not_free():
    """By more than the paired 95% interval, on the default world and on generated ones."""
    pairs = found("baselines")["variants"][1]["pairs"]
    for name in ("ppo-disciplined", "gru-disciplined"):
        ours = [pair for pair in pairs if pair["policy"] == name]
        assert len(ours) == len(FAMILIES)
        assert all(pair[place]["low"] > 0.0 for pair in ours for place in PLACES)


def test_trained_policies_of_the_papers_score_survive_and_earn():
    """Survival of 95% and more, and no less than asking for equity of the largest amount."""
    paper = found("baselines")["variants"][0]
    rows = {row["policy"]: row for row in paper["policies"]}
    largest = [pair for pair in paper["pairs"] if pair["other"] == "greedy-equity:amount=160e6"]
    assert {pair["policy"] for pair in largest} == {"ppo", "gru"}
    for pair in largest:
        for place in PLACES:
            assert rows[pair["policy"]][place]["full_survival"]["low"] >= 0.95 and pair[place]["high"] > 0.0


def test_the_papers_score_says_to_ask_for_the_largest_amounts():
    rows = [row for row in json.loads(TUNED.read_bytes())["tuned"] if row["environment"] == ENVIRONMENTS[0]]
    best = max(rows, key=lambda row: row["held_out"]["mean"])
    greedy = next(row for row in rows if row["policy"] == "greedy-equity")
    assert float(greedy["spec"].partition("=")[2]) > 155e6
    assert greedy["held_out"]["mean"] == pytest.approx(best["held_out"]["mean"], rel=0.01)
