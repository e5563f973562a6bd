"""`arena-jax fidelity`: the published figures as data, the rules that judge them, and the whole table."""

import dataclasses
import json
import sys

import jax
import numpy as np
import pytest

import arena_jax
from arena_jax import cli
from arena_jax.analysis.fidelity import Finding, arms_of, fidelity, published_findings
from arena_jax.analysis.fidelity_view import fidelity_cells, fidelity_json, fidelity_table
from arena_jax.analysis.metrics import METRICS
from arena_jax.analysis.published import published_results
from arena_jax.errors import ArenaError

RULES = ("near", "within", "at least", "report")
MONTHS = Finding("months", "replication", "months", "near", policy="never-raise", published=33, runs=50, tolerance=5)


def judged(**changes):
    return fidelity([dataclasses.replace(MONTHS, **changes)], episodes=200)[0]


def test_the_published_findings_are_well_formed():
    sources, findings = published_findings()
    assert len({f.claim for f in findings}) == len(findings)
    assert {f.source for f in findings} == set(sources)
    for f in findings:
        assert f.metric in METRICS and f.rule in RULES, f.claim
        assert f.statistic in ("mean", "median", "sd", "rate"), f.claim
        assert bool(f.policy) != bool(f.across), f.claim
        assert not (f.is_difference and f.statistic != "mean"), f.claim
        assert (f.published is None) == (f.rule in ("at least", "report")), f.claim
        assert f.published is not None or f.published_text, f.claim
        assert (f.runs > 0) == (f.rule == "near"), f.claim
        assert bool(f.difference) == (not np.isnan(f.expected)), f.claim
        for arm in f.arms:
            arena_jax.make(**dict(arm.environment))
            arena_jax.make_policy(arm.policy)


def test_figures_of_table_1_are_those_of_the_table():
    overall = published_results()["Overall"]
    cash = [f for f in published_findings()[1] if f.source == "table1" and f.policy.startswith("cash-threshold")]
    assert len(cash) == 6
    for f in cash:
        expected = overall.sds["months"] if f.statistic == "sd" else overall.means[f.metric]
        assert f.published == pytest.approx(expected), f.claim


def test_the_tolerances_are_the_stated_ones():
    """5 points of survival, 5 months, 0.5 rounds, $10M raised, $12M of score, beside two standard errors."""
    stated = {"full_survival": 0.05, "crisis_2": 0.05, "months": 5, "approvals": 0.5, "raised": 10e6, "score": 12e6}
    for f in published_findings()[1]:
        if f.rule == "near":
            assert f.tolerance == stated[f.metric], f.claim


def test_near_adds_two_combined_standard_errors_to_the_tolerance():
    record = arena_jax.rollout(arena_jax.make(), arena_jax.make_policy(MONTHS.policy), jax.random.key(0), episodes=200)
    sd = np.std(np.asarray(record.months_survived, dtype=np.float64), ddof=1)
    found = judged()
    assert found.measured == pytest.approx(record.months_survived.mean())
    assert found.allowance == pytest.approx(5 + 2 * np.sqrt(sd**2 / 50 + sd**2 / 200), rel=0.01)
    edge = found.measured + found.allowance
    assert judged(published=edge - 0.01).verdict == "pass"
    assert judged(published=edge + 0.01).verdict == "fail"
    known = {"published": edge + 0.01, "difference": "a reason"}
    assert judged(expected=found.measured + 4.9, **known).verdict == "known"
    assert judged(expected=found.measured + 5.1, **known).verdict == "fail"


def test_within_allows_the_tolerance_alone():
    sd = judged(statistic="sd", rule="within", published=0.0, tolerance=2.0)
    assert sd.verdict == "pass" and sd.low <= sd.measured <= sd.high
    assert judged(statistic="sd", rule="within", published=sd.measured + 0.2, tolerance=0.1).verdict == "fail"


def test_at_least_wants_the_whole_interval_above():
    found = judged(rule="at least", published=None, published_text="longer", least=33.0)
    assert found.verdict == "pass" and found.allowance is None
    middle = (found.low + found.measured) / 2
    assert judged(rule="at least", published=None, published_text="longer", least=middle).verdict == "fail"


def test_report_gives_no_verdict():
    rate = judged(rule="report", published=None, published_text="37%", metric="approvals", statistic="rate",
                  policy="greedy-equity")  # fmt: skip
    record = arena_jax.rollout(arena_jax.make(), arena_jax.make_policy("greedy-equity"), jax.random.key(0), 200)
    assert rate.verdict == "" and rate.measured == pytest.approx(record.approvals.sum() / record.requests.sum())
    assert rate.low < rate.measured < rate.high


def test_a_difference_is_taken_on_the_same_draws():
    """The same arm on both sides differs by exactly nothing."""
    found = judged(against={"policy": "never-raise"}, rule="within", published=0.0, tolerance=0.0)
    assert (found.measured, found.low, found.high, found.verdict) == (0.0, 0.0, 0.0, "pass")


def test_policies_are_parted_by_when_they_first_ask():
    across = ("cash-threshold:threshold=20e6", "cash-threshold:threshold=8e6")
    rows = [judged(policy="", across=order, rule="at least", published=None, metric="full_survival", least=0.3)
            for order in (across, across[::-1])]  # fmt: skip
    assert rows[0].measured == rows[1].measured > 0.3
    alone = judged(policy="", across=across[:1], rule="at least", published=None)
    assert np.isnan(alone.measured) and alone.verdict == "fail"


def test_an_undefined_figure_is_a_dash_and_null():
    found = judged(rule="report", published=None, published_text="37%", metric="approvals", statistic="rate")
    assert np.isnan(found.measured) and fidelity_cells(found)["Measured"] == "–"
    assert fidelity_json([found], {"replication": "a study"})[0]["low"] is None


def test_another_calibration_fails():
    found = fidelity([MONTHS], episodes=200, overrides={"initial_cash": 60e6})[0]
    assert found.verdict == "fail"
    assert fidelity_cells(found)["Verdict"] == "FAIL"


def test_an_arm_is_played_once():
    played = []
    fidelity([MONTHS, dataclasses.replace(MONTHS, claim="again")], episodes=200, on_progress=played.append)
    assert played == [1]
    assert len(arms_of([MONTHS, MONTHS])) == 1


def test_the_table_names_every_source_and_reason(capsys):
    from rich.console import Console

    verdicts = [judged(published=50, difference="a reason", expected=33)]
    Console(width=180).print(fidelity_table(verdicts, {"replication": "a study"}, "title"))
    shown = capsys.readouterr().out
    assert "Source: a study" in shown and "known difference [1]" in shown and "[1] a reason" in shown
    row = json.loads(json.dumps(fidelity_json(verdicts, {"replication": "a study"}), allow_nan=False))[0]
    assert row["published"] == 50 and row["verdict"] == "known" and row["arms"][0]["policy"] == "never-raise"


@pytest.mark.parametrize(("override", "code"), [("initial_cash=15e6", 0), ("initial_cash=60e6", 1)])
def test_the_exit_code_tells(monkeypatch, capsys, override, code):
    monkeypatch.setattr("arena_jax.cli.fidelity.published_findings", lambda: ({"replication": "a study"}, [MONTHS]))
    command = ["arena-jax", "fidelity", "--episodes", "200", "--env-set", override]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert (stop.value.code or 0) == code
    out = capsys.readouterr().out
    assert ("FAIL" in out) == (code == 1) and f"{code} fail" in out
    monkeypatch.setattr(sys, "argv", [*command, "--json"])
    with pytest.raises(SystemExit):
        cli.main()
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == code and found["env_set"] == [override]


@pytest.mark.parametrize("episodes", [0, 99, 1.5, "1000", 10**9])
def test_bad_counts_are_refused(episodes):
    with pytest.raises(ArenaError, match="episodes must be a whole number"):
        fidelity([MONTHS], episodes=episodes)


@pytest.mark.slow
def test_every_published_finding_comes_out():
    """The whole table, as the command judges it; a third of its episodes."""
    sources, findings = published_findings()
    verdicts = fidelity(findings, episodes=6_000, seed=1)
    assert [v.finding.claim for v in verdicts if v.verdict == "fail"] == []
    assert len(verdicts) == len(findings) and set(sources) == {v.finding.source for v in verdicts}
