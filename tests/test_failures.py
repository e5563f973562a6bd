"""Run directories of both kinds as records, what is refused, failure patterns, and survival by Kaplan and Meier."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from test_cli import arena

import arena_jax
from arena_jax.analysis.failures import _ratio, failures
from arena_jax.analysis.failures_view import failures_json, notes
from arena_jax.analysis.fan import fan
from arena_jax.analysis.sources import Ground, Source, Sources, read_sources
from arena_jax.analysis.survival import survival
from arena_jax.llm.runs import journal_path, new_run, open_episode, run_seed
from arena_jax.structs import Record


def test_simulated_records_come_as_they_were_played(env, simulated_run):
    never, late = read_sources([simulated_run]).sources
    policy = arena_jax.make_policy("late-raiser")
    record, _ = arena_jax.rollout(env, policy, jax.random.key(3), 200, record=["cash"])
    for name, values in vars(record).items():
        np.testing.assert_array_equal(getattr(late.record, name), values)
    assert (never.label, never.n, never.seeds, never.seed_text) == ("never-raise", 200, (3,), "seed 3")
    assert never.bankrupt.all()
    assert not late.stopped.any()


def test_cash_by_month_is_that_of_the_companies_alive(env, simulated_run):
    never = read_sources([simulated_run]).sources[0]
    policy = arena_jax.make_policy("never-raise")
    months = arena_jax.rollout(env, policy, jax.random.key(3), 200, record=["cash"])[1]
    for month in (0, 20, 33):
        alive = months["alive"][:, month]
        assert never.cash.alive[month] == alive.sum()
        expected = np.percentile(months["cash"][alive, month].astype(np.float64), (5, 25, 50, 75, 95))
        np.testing.assert_allclose(never.cash.percentiles[month], expected)


def test_journals_come_with_their_players_seeds_and_replayed_cash(agents_run):
    (found,) = read_sources([agents_run]).sources
    assert (found.label, found.n, found.seeds, found.seed_text) == ("someone", 2, (7, 8), "seeds 7, 8")
    assert found.stopped.tolist() == [False, True]
    assert found.bankrupt.tolist() == [True, False]
    assert found.cash.alive[:3].tolist() == [2, 2, 1]
    assert len(found.cash.alive) == found.record.months_played[0]
    assert (found.cash.percentiles[0] == 15e6).all()


def with_parameters(run, tmp_path, **changed):
    """A copy of a run directory with other parameters in its manifest."""
    parameters = json.loads((run / "manifest.json").read_text())["parameters"]
    return copied(run, tmp_path, {"parameters": parameters | changed})


def test_ground_names_what_is_not_the_default(tmp_path, simulated_run):
    ground = read_sources([with_parameters(simulated_run, tmp_path, noise=0.5, delay_max=1)]).ground
    assert set(ground.changed) == {"noise=0.5", "delay_max=1"}
    assert read_sources([simulated_run]).ground.changed == ()
    assert (ground.world, ground.crisis_months) == ("default trajectory", (30, 55, 110))


def test_simulated_and_journals_go_together(simulated_run, agents_run):
    found = read_sources([simulated_run, agents_run])
    assert [source.label for source in found.sources] == ["never-raise", "late-raiser", "someone"]
    assert len(found.records.survived) == 402


def copied(run, tmp_path, change=None):
    """A copy of a run directory, its manifest or run.json changed."""
    shutil.copytree(run, tmp_path / "copy")
    (about,) = [path for path in (tmp_path / "copy").iterdir() if path.name in ("manifest.json", "run.json")]
    about.write_text(json.dumps(json.loads(about.read_text()) | (change or {})))
    return tmp_path / "copy"


def test_unfinished_runs_are_refused(simulated_run, tmp_path):
    run = copied(simulated_run, tmp_path)
    (run / "01-late-raiser" / "part-000000.parquet").unlink()
    with pytest.raises(arena_jax.ArenaError, match=r"is not finished: .*01-late-raiser.part-000000.parquet"):
        read_sources([run])


def test_lost_months_are_refused(simulated_run, tmp_path):
    run = copied(simulated_run, tmp_path)
    (run / "00-never-raise" / "months-000000.parquet").write_bytes(b"not parquet")
    with pytest.raises(arena_jax.ArenaError, match=r"months-000000.parquet is not a readable part file"):
        read_sources([run])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shard": "1/2"}, "is shard 1/2 of a run; put the shards together"),
        ({"environment": "Other-v1"}, "is a run of Other-v1, not of EnterpriseArena-v1"),
        ({"parameters": {"noise": 1}}, "has other parameters than this version"),
    ],
)
def test_foreign_runs_are_refused(simulated_run, tmp_path, change, message):
    with pytest.raises(arena_jax.ArenaError, match=message):
        read_sources([copied(simulated_run, tmp_path, change)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arena_jax": "0.0.1"}, "version: 0.0.1, not"),
        ({"trajectory_sha256": "0" * 64}, "trajectory: 0000"),
        ({"scenarios": {"kind": "generated"}}, "scenarios:"),
    ],
)
def test_mixed_runs_are_refused_and_the_difference_named(simulated_run, tmp_path, change, message):
    with pytest.raises(arena_jax.ArenaError, match=message):
        read_sources([simulated_run, copied(simulated_run, tmp_path, change)])


def test_other_parameters_are_named(simulated_run, tmp_path):
    other = with_parameters(simulated_run, tmp_path, tool_cost=1.0)
    with pytest.raises(arena_jax.ArenaError, match=r"parameters.tool_cost: 1.0, not 5000.0"):
        read_sources([simulated_run, other])


def test_the_same_episodes_twice_are_refused(simulated_run, tmp_path):
    with pytest.raises(arena_jax.ArenaError, match="named twice"):
        read_sources([simulated_run, simulated_run])
    with pytest.raises(arena_jax.ArenaError, match=r"never-raise, seed 3 is in two"):
        read_sources([simulated_run, copied(simulated_run, tmp_path)])


def test_a_copied_run_of_agents_is_refused(agents_run, tmp_path):
    with pytest.raises(arena_jax.ArenaError, match=r"episode 0 of .*run and episode 0 of .*copy are of one player"):
        read_sources([agents_run, copied(agents_run, tmp_path)])


def test_sources_share_their_episodes_only_where_all_seeds_agree(simulated_run):
    """Seven seeds are told as five and two more; the two count."""
    never, late = read_sources([simulated_run]).sources
    assert never.draws == late.draws
    one, other = (dataclasses.replace(never, seeds=(*range(5), *rest), by_episode=True) for rest in ((5, 6), (7, 8)))
    assert one.seed_text == other.seed_text == "seeds 0, 1, 2, 3, 4 and 2 more"
    assert one.draws != other.draws
    assert dataclasses.replace(never, by_episode=True).draws != never.draws


def test_one_policy_on_two_seeds_is_told_apart(simulated_run, tmp_path):
    other = copied(simulated_run, tmp_path, {"seed": 4})
    labels = [source.label for source in read_sources([simulated_run, other]).sources]
    assert labels == [f"{policy}, seed {seed}" for seed in (3, 4) for policy in ("never-raise", "late-raiser")]


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(arena_jax.ArenaError, match=r"neither manifest\.json"):
        read_sources([tmp_path])
    with pytest.raises(arena_jax.ArenaError, match="at least one"):
        read_sources([])


def test_episodes_in_progress_are_refused_or_left_out(agents_run, tmp_path):
    new_run(tmp_path / "run", [5, 6])
    with open_episode(tmp_path / "run", 0, agent="someone") as session:
        session.call("pass")
    with pytest.raises(arena_jax.ArenaError, match=r"episode 0 of .* is in progress; .*--skip-unfinished"):
        read_sources([agents_run, tmp_path / "run"])
    found = read_sources([agents_run, tmp_path / "run"], skip_unfinished=True)
    assert found.left_out == {"in progress": 1, "not begun": 1}
    assert found.sources[0].n == 2
    with pytest.raises(arena_jax.ArenaError, match="no episode has ended"):
        read_sources([tmp_path / "run"], skip_unfinished=True)


def test_an_edited_journal_is_refused(agents_run, tmp_path):
    run = copied(agents_run, tmp_path)
    path = journal_path(run, 0)
    path.write_text(path.read_text().replace('"debt","amount":1000000', '"debt","amount":2000000', 1))
    with pytest.raises(arena_jax.ArenaError, match=r"journal .* answered differently now"):
        read_sources([run])


def test_journals_of_another_prompt_are_refused(agents_run, tmp_path):
    run = copied(agents_run, tmp_path)
    path = journal_path(run, 1)
    lines = path.read_text().split("\n")
    lines[0] = json.dumps(json.loads(lines[0]) | {"prompt_sha256": "0" * 64})
    path.write_text("\n".join(lines))
    with pytest.raises(arena_jax.ArenaError, match="another prompt"):
        read_sources([run])


def test_seeds_of_unfinished_episodes_stay_hidden(agents_run, tmp_path):
    run = copied(agents_run, tmp_path)
    assert run_seed(run, 1) == 8
    path = journal_path(run, 1)
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if '"type":"end"' not in line))
    assert read_sources([run], skip_unfinished=True).sources[0].seeds == (7,)


# survival


def test_kaplan_meier_by_hand():
    """Deaths at 3, 3, 7, 7 and 9 of eight; censored at 5 and twice at 10."""
    found = survival(np.array([3, 3, 5, 7, 7, 9, 10, 10]), np.array([1, 1, 0, 1, 1, 1, 0, 0], dtype=bool))
    at_3 = 1 - 2 / 8
    at_7 = at_3 * (1 - 2 / 5)
    at_9 = at_7 * (1 - 1 / 3)
    expected = [1, 1, 1, at_3, at_3, at_3, at_3, at_7, at_7, at_9, at_9]
    np.testing.assert_allclose(found.share, expected)
    assert (found.n, found.deaths, found.median) == (8, 5, 7)
    # exponential Greenwood at month 3: theta = 1.96 sqrt(sum d / (n (n - d))) / log S
    theta = 1.959964 * np.sqrt(2 / (8 * 6)) / np.log(at_3)
    np.testing.assert_allclose(
        [found.low[3], found.high[3]], [at_3 ** np.exp(-theta), at_3 ** np.exp(theta)], rtol=1e-5
    )


def test_survival_where_nobody_dies_and_where_all_do():
    alive = survival(np.array([132] * 5), np.zeros(5, dtype=bool))
    assert alive.share.tolist() == [1.0] * 133
    assert (alive.low[0], alive.high[0]) == (pytest.approx(0.478, abs=1e-3), 1.0)  # exact interval of 5 of 5
    assert alive.median is None
    assert alive.at(140) is None
    dead = survival(np.array([34, 34, 35]), np.ones(3, dtype=bool))
    assert dead.share[[33, 34, 35]].tolist() == pytest.approx([1, 1 / 3, 0])
    assert dead.at(100)[0] == 0.0
    at_once = survival(np.array([34, 34, 34]), np.ones(3, dtype=bool))
    assert at_once.at(34) == (0.0, 0.0, pytest.approx(0.7076, abs=1e-4))  # exact interval of 0 of 3


def test_survival_knows_no_more_than_those_still_observed_tell():
    """95 players stop in month 5; five companies live on, so month 90 is known from five."""
    months = np.array([5] * 95 + [100] * 5)
    alive = survival(months, np.zeros(100, dtype=bool))
    assert alive.at(5) == (1.0, pytest.approx(0.9638, abs=1e-4), 1.0)
    assert alive.at(90) == (1.0, pytest.approx(0.4782, abs=1e-4), 1.0)
    dead = survival(months, months == 100)
    assert dead.at(99)[1] == pytest.approx(0.4782, abs=1e-4)
    assert dead.at(100) == (0.0, 0.0, pytest.approx(0.5218, abs=1e-4))
    # the last of five dies a month after the others: a month before, 1 of 5 bounds what is left
    late = survival(np.array([5] * 95 + [99] * 4 + [100]), np.array([False] * 95 + [True] * 5))
    assert late.at(100)[2] == late.at(99)[2] < 0.6


def test_survival_at_a_crisis_is_the_share_that_passes_it(simulated_run):
    late = read_sources([simulated_run]).sources[1]
    found = survival(late.record.months_played, late.bankrupt)
    for number, month in enumerate((30, 55, 110), start=1):
        assert found.share[month] == pytest.approx(np.mean(late.record.crises_passed >= number))


# failures


def records(**columns):
    """Records of as many episodes as the columns have; what is not given is 0."""
    n = len(next(iter(columns.values())))
    zeros = {field.name: np.zeros(n) for field in dataclasses.fields(Record)}
    return Record(**(zeros | {name: np.array(values) for name, values in columns.items()}))


def sources(record, stopped=None):
    n = len(record.survived)
    stopped = np.zeros(n, dtype=bool) if stopped is None else np.array(stopped)
    return Sources(Ground("0", {}, None, {"kind": "made"}), (Source("made", record, stopped, (0,), "none"),), {})


def test_failure_patterns_of_hand_made_records():
    """Two survivors, two bankrupt companies, and one whose player stopped."""
    record = records(
        survived=[True, True, False, False, False],
        months_survived=[132, 132, 40, 50, 9],
        months_played=[132, 132, 41, 51, 9],
        requests=[4, 2, 3, 0, 1],
        approvals=[1, 1, 1, 0, 0],
        requested_equity=[80e6, 0, 20e6, 0, 1e6],
        requested_debt=[0, 20e6, 10e6, 0, 0],
        received_equity=[16e6, 0, 9e6, 0, 0],
        received_debt=[0, 12e6, 0, 0, 0],
        first_request_month=[3, 20, 30, -1, 2],
        cash_peak_month=[5, 20, 20, 20, 1],
        verify_cash_position=[132, 132, 41, 0, 9],
        review_financial_records=[396, 0, 0, 0, 0],
        analyze_market_conditions=[0, 132, 0, 51, 0],
    )
    (found,) = failures(sources(record, stopped=[False] * 4 + [True]))
    assert (found.n, found.stopped, found.sizes) == (5, 1, {"survivors": 2, "bankrupt": 2})
    survivors, bankrupt = found.groups["survivors"], found.groups["bankrupt"]
    expected = {
        "asked": (1.0, 0.5),
        "first_request": (11.5, 30.0),
        "before_peak": (1.0, 0.0),
        "after_peak": ((3 - 5 + 20 - 20) / 2, 10.0),
        "requests": (3.0, 1.5),
        "request_size": (100e6 / 6, 10e6),
        "received_size": (14e6, 9e6),
        "approval_rate": (2 / 6, 1 / 3),
        "tools_per_month": ((528 / 132 + 264 / 132) / 2, (41 / 41 + 51 / 51) / 2),
        "external_share": (528 / 792, 51 / 92),
    }
    for name, (one, other) in expected.items():
        assert survivors[name].mean == pytest.approx(one), name
        assert bankrupt[name].mean == pytest.approx(other), name
    assert survivors["asked"].low < 1.0 == survivors["asked"].high
    assert survivors["external_share"].low >= 0.0
    assert found.survival.deaths == 2


def test_groups_without_members_have_no_figures():
    (found,) = failures(sources(records(survived=[True], months_played=[132], first_request_month=[-1])))
    assert np.isnan(found.groups["bankrupt"]["asked"].mean)
    assert np.isnan(found.groups["survivors"]["request_size"].mean)
    assert found.groups["survivors"]["asked"].mean == 0.0


def test_the_interval_of_a_ratio_covers_it():
    """Requests of unlike number and size: the true ratio of sums is E[number * size] / E[number]."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        number = rng.integers(1, 6, 100)
        size = number * rng.uniform(8e6, 12e6, 100)
        found = _ratio("request_size", number * size, number.astype(np.float64))
        covered += found.low <= 1e7 * (55 / 5) / (15 / 5) <= found.high
    assert 0.93 <= covered / 1000 <= 0.97


def test_ratios_of_all_or_none_are_as_sure_as_their_episodes():
    """Three companies, every request approved and all of one size: three episodes tell little of a share, no spread."""
    made = records(
        survived=[True] * 3, months_played=[132] * 3, requests=[1, 2, 1], approvals=[1, 2, 1],
        requested_equity=[8e6, 16e6, 8e6], verify_cash_position=[132] * 3,
    )  # fmt: skip
    (found,) = failures(sources(made))
    survivors = found.groups["survivors"]
    rate, outside = survivors["approval_rate"], survivors["external_share"]
    assert (rate.mean, rate.low, rate.high) == (1.0, pytest.approx(0.2924, abs=1e-4), 1.0)
    assert (outside.mean, outside.low, outside.high) == (0.0, 0.0, pytest.approx(0.7076, abs=1e-4))
    assert survivors["request_size"].mean == 8e6
    assert np.isnan([survivors["request_size"].low, survivors["tools_per_month"].high]).all()


def test_what_played_the_same_seeds_is_pooled_without_intervals():
    made = sources(records(survived=[True, False], months_played=[132, 40], verify_cash_position=[9, 9]))
    (one,) = made.sources
    pooled = lambda seed: failures(
        dataclasses.replace(made, sources=(one, dataclasses.replace(one, label="other", seeds=(seed,))))
    )[0]
    same, apart = pooled(0), pooled(1)
    assert same.is_pooled and not apart.is_pooled
    for found, has_none in ((same, True), (apart, False)):
        assert np.isnan(found.groups["survivors"]["asked"].low) == has_none
        assert np.isnan(found.survival.low).all() == has_none
        assert ("No intervals" in notes(found, [30])) == has_none
    assert notes(same, [30]).startswith("Alive after month 30: 100.0%; ")
    assert failures_json([same])[0]["survival"]["low"][0] is None


def test_fans_join_parts_of_unlike_length():
    short, long = np.array([[1.0, np.nan]]), np.array([[3.0, 5.0, 7.0]])
    found = fan([short, long])
    assert found.alive.tolist() == [2, 1, 1]
    assert found.percentiles[:, 2].tolist() == [2.0, 5.0, 7.0]


def test_failures_on_the_command_line(monkeypatch, capsys, simulated_run, agents_run):
    code, out, err = arena(monkeypatch, capsys, "failures", str(simulated_run), str(agents_run))
    assert (code, err) == (0, "")
    for text in ("all together, n 402", "someone, n 2, seeds 7, 8", "$19.5M", "month 55: ", "1 whose player stopped"):
        assert text in out
    found = json.loads(arena(monkeypatch, capsys, "failures", str(simulated_run), "--json")[1])
    assert [row["label"] for row in found["results"]] == ["all together", "never-raise", "late-raiser"]
    never = found["results"][1]
    assert never["bankrupt"]["figures"]["request_size"]["mean"] is None
    assert never["survival"]["median"] == 34
    assert found["published"]["external_share"] == {"survivors": 0.67, "bankrupt": 0.38}
    code, out, err = arena(monkeypatch, capsys, "failures", "nowhere")
    assert (code, out, err.count("\n")) == (2, "", 1)
