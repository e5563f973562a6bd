"""The (λ, m) surface against play, grids of environments against environments made one by one, Sobol indices."""

import json
import shutil

import jax
import numpy as np
import pytest
from scipy import stats
from test_cli import arena

import arena_jax
from arena_jax.analysis import grid_files, sensitivity
from arena_jax.analysis.metrics import episode_metrics
from arena_jax.analysis.sensitivity import (
    grid,
    grid_cells,
    parse_ranges,
    plan,
    play_environments,
    play_own,
)
from arena_jax.analysis.sensitivity_view import rankings, surface_json, surface_tables
from arena_jax.analysis.sobol import saltelli, sobol_indices
from arena_jax.analysis.surface import crossing, elasticities, ranking, score_terms, scores, surface
from arena_jax.errors import ArenaError

KEY = jax.random.key(4)
EPISODES = 300
POLICY = "cash-threshold:threshold=20e6,amount=20e6"
GREEDY = "greedy-debt"
POLICIES = (POLICY, "cash-threshold:threshold=8e6", "greedy-equity:amount=9e6", "one-shot-equity")


def played(policy, episodes=EPISODES, **parameters):
    return arena_jax.rollout(arena_jax.make(**parameters), arena_jax.make_policy(policy), KEY, episodes)


@pytest.fixture(scope="module")
def terms():
    return {policy: score_terms(played(policy)) for policy in POLICIES}


def test_the_surface_is_what_play_gives_at_ten_random_points(terms):
    """To float32 precision: three products and sums of the score's size."""
    rng = np.random.default_rng(0)
    points = zip(rng.uniform(0, 2e5, 10), rng.uniform(0, 20, 10), strict=True)
    for tool_cost, multiple in points:
        simulated = np.asarray(played(POLICY, tool_cost=tool_cost, revenue_multiple=multiple).score, np.float64)
        found = scores(terms[POLICY], tool_cost, multiple)
        np.testing.assert_allclose(found, simulated, atol=4 * np.finfo(np.float32).eps * np.abs(simulated).max())
        mean = surface(terms[POLICY], np.array([tool_cost]), np.array([multiple]))
        assert mean.shape == (1, 1) and mean[0, 0] == pytest.approx(found.mean(), rel=1e-12)
    assert (scores(terms["one-shot-equity"], 5e3, 5.0) == 0.0).all(), "bankrupt episodes score nothing"


def test_the_ranking_is_that_of_the_means_at_every_point(terms):
    tool_costs, multiples = np.linspace(0, 3e5, 4), np.linspace(0, 10, 3)
    ranked = ranking(terms, tool_costs, multiples)
    assert ranked.means.shape == (4, 4, 3) and ranked.order.shape == (4, 3, 4) and ranked.clear.shape == (4, 3, 3)
    base = [scores(one, 5e3, 5.0).mean() for one in terms.values()]
    for i, j in np.ndindex(4, 3):
        values = np.stack([scores(one, tool_costs[i], multiples[j]) for one in terms.values()])
        means = values.mean(axis=1)
        np.testing.assert_allclose(ranked.means[:, i, j], means, rtol=1e-9)
        order = list(ranked.order[i, j])
        assert order == sorted(range(4), key=lambda k, means=means: -means[k])
        assert ranked.tau[i, j] == pytest.approx(stats.kendalltau(means, base).statistic)
        for place in range(3):
            lead = values[order[place]] - values[order[place + 1]]
            is_clear = bool(lead.any()) and stats.ttest_1samp(lead, 0).confidence_interval().low > 0
            assert ranked.clear[i, j, place] == is_clear
    assert len({tuple(order) for order in ranked.order.reshape(-1, 4)}) > 1, "the ranking changes on this grid"


def test_a_lead_within_its_error_is_not_clear():
    rng = np.random.default_rng(0)
    one = rng.normal(1e7, 1e6, (400, 3))
    ahead = one + rng.normal(0, 1e5, (400, 3))
    for shift, is_clear in ((5e3, False), (2e5, True)):
        lead = ahead - (ahead - one).mean(axis=0) + [shift, shift, 0]
        ranked = ranking({"one": one, "ahead": lead}, np.array([0.0]), np.array([1.0]))
        assert list(ranked.order[0, 0]) == [1, 0] and ranked.clear[0, 0, 0] == is_clear


def test_leads_of_unlike_episodes_are_tested_as_independent_ones():
    rng = np.random.default_rng(2)
    one, other = rng.normal(1e7, 1e6, (400, 3)), rng.normal(1.02e7, 2e6, (90, 3))
    for shift in np.linspace(-1e6, 1e6, 21):
        ranked = ranking({"one": one, "other": other + shift}, np.array([0.0]), np.array([1.0]), is_paired=False)
        found = stats.ttest_ind(scores(one, 0.0, 1.0), scores(other + shift, 0.0, 1.0), equal_var=False)
        width = (found.confidence_interval().high - found.confidence_interval().low) / 2
        mean = scores(one, 0.0, 1.0).mean() - scores(other + shift, 0.0, 1.0).mean()
        wider = width * stats.t.ppf(0.975, 89) / stats.t.ppf(0.975, found.df)
        assert ranked.clear[0, 0, 0] == (abs(mean) > wider)
    lone = ranking({"one": one, "other": other[:1]}, np.array([0.0]), np.array([1.0]), is_paired=False)
    assert not lone.clear.any()


def test_two_policies_change_places_where_said():
    spread = np.random.default_rng(0).normal(0, 1, (500, 3)) * [1e5, 1e5, 10]
    spread -= spread.mean(axis=0)
    many_calls, much_cash = np.array([9e6, 10e6, 3e3]) + spread, np.tile([8e6, 12e6, 0.0], (500, 1))
    found = crossing(many_calls, much_cash)
    assert [place.outcome for place in found] == ["at", "at"]
    assert [place.value for place in found] == pytest.approx([1e3, 17.0])
    for at in ((found[0].value, 5.0), (5e3, found[1].value)):
        assert scores(many_calls, *at).mean() == pytest.approx(scores(much_cash, *at).mean(), rel=1e-12)
    # the interval is where the lead is not told from zero
    for end, outwards in ((found[0].low, 0.999), (found[0].high, 1.001)):
        for tool_cost, is_told in ((end * outwards, True), (end / outwards, False)):
            lead = scores(many_calls, tool_cost, 5.0) - scores(much_cash, tool_cost, 5.0)
            assert (stats.ttest_1samp(lead, 0).pvalue < 0.05) == is_told
    worse = many_calls * [0.5, 0.5, 1]
    assert [place.outcome for place in crossing(worse, much_cash)] == ["nowhere", "nowhere"]
    assert [place.outcome for place in crossing(worse, worse)] == ["equal", "equal"]


def test_a_crossing_within_the_noise_is_not_named():
    rng = np.random.default_rng(1)
    one = rng.normal(1e7, 1e6, (400, 3))
    found = crossing(one, one + rng.normal(0, 1e5, (400, 3)))
    assert [place.outcome for place in found] == ["unclear", "unclear"] and np.isnan(found[0].value)
    terms = {"a": one, "b": one + rng.normal(0, 1e5, (400, 3)), "c": one}
    shown = json.loads(json.dumps(surface_json(terms, ranking(terms, np.zeros(1), np.ones(1))), allow_nan=False))
    cells = [list(column.cells) for column in surface_tables(shown, "t")[1].columns]
    assert cells[1] == cells[2] == ["unclear", "equal", "unclear"]


def test_elasticities_are_the_percent_of_one_percent(terms):
    found = elasticities(terms[POLICY])
    base = scores(terms[POLICY], 5e3, 5.0).mean()
    more = scores(terms[POLICY], 5e3 * 1.01, 5.0).mean()
    assert found["tool_cost"].value == pytest.approx((more / base - 1) * 100)
    more = scores(terms[POLICY], 5e3, 5.0 * 1.01).mean()
    assert found["revenue_multiple"].value == pytest.approx((more / base - 1) * 100)
    assert all(one.low < one.value < one.high for one in found.values())
    assert np.isnan(elasticities(terms["one-shot-equity"])["tool_cost"].value)
    single = np.concatenate([terms[POLICY][:1], np.zeros((99, 3))])
    lone = elasticities(single)["revenue_multiple"]
    assert lone.value == pytest.approx(5 * single[0, 0] / scores(single, 5e3, 5.0)[0]) and np.isnan(lone.low)


def test_policies_of_unlike_episodes_are_not_ranked(terms):
    fewer = terms[POLICY][:10]
    with pytest.raises(ArenaError, match="the same episodes, got a: 300, b: 10"):
        ranking({"a": terms[POLICY], "b": fewer}, np.zeros(1), np.zeros(1))


def test_one_policy_has_a_surface_and_no_ranking(terms):
    alone = {POLICY: terms[POLICY]}
    ranked = ranking(alone, np.array([0.0, 1.0]), np.array([5.0]))
    assert ranked.clear.shape == (2, 1, 0) and np.isnan(ranked.tau).all()
    found = json.loads(json.dumps(surface_json(alone, ranked), allow_nan=False))
    assert len(surface_tables(found, "t")) == 1


@pytest.mark.slow
def test_a_grid_is_every_environment_made_by_itself():
    """Chunked, filled up, over a static parameter; every environment on the same draws."""
    values = grid(parse_ranges(["noise=0:2:2", "exclusive=0:1:2", "delay_max=2:6:2"]))
    assert [len(column) for column in values.values()] == [8] * 3 and list(values["delay_max"][:2]) == [2.0, 6.0]
    # 3 of the 4 environments of a static value at a time
    chunks = list(play_environments(GREEDY, values, episodes=40, seed=4, batch=120))
    assert [list(where) for where, _ in chunks] == [[0, 1, 4], [5], [2, 3, 6], [7]]
    seen = {}
    for where, metrics in chunks:
        seen |= {int(index): {name: found[row] for name, found in metrics.items()} for row, index in enumerate(where)}
    for index in (2, 3, 6, 7):
        assert values["exclusive"][index] == 1
        expected = episode_metrics(
            played(GREEDY, 40, noise=values["noise"][index], delay_max=values["delay_max"][index])
        )
        np.testing.assert_array_equal(seen[index]["months"], expected["months"])
        np.testing.assert_allclose(seen[index]["score"], expected["score"], rtol=1e-4)
        # a policy that never closes its books does the same where closings are no action
        np.testing.assert_array_equal(seen[index - 2]["months"], expected["months"])
    assert len({tuple(found["months"]) for found in seen.values()}) == 4


def test_policies_of_one_kind_share_their_compilations():
    """And environments of one kind: only the static values of a grid are compiled for themselves."""
    values = grid(parse_ranges(["noise=0:2:2", "exclusive=0:1:2"]))
    sensitivity._play_sweep.compiled.clear_cache()
    months = []
    for policy in ("greedy-equity:amount=3e6", "greedy-equity:amount=9e6"):
        chunks = play_environments(policy, values, episodes=8)
        months.append([list(metrics["months"].ravel()) for _, metrics in chunks])
    assert sensitivity._play_sweep.compiled._cache_size() == 2 and months[0] != months[1]


def test_cells_change_against_the_own_values():
    """Episodes in blocks, as one environment's are more than a batch."""
    values = grid(parse_ranges(["delay_max=1:6:2"]))
    settings = {"episodes": 60, "seed": 4, "overrides": {"noise": 0.5}}
    chunks = play_environments(GREEDY, values, **settings, batch=40)
    short, own = grid_cells(values, play_own(GREEDY, **settings), chunks)
    assert (short.parameters, own.parameters) == ({"delay_max": 1.0}, {"delay_max": 6.0})
    assert own.differences["months"].mean == 0.0 and own.differences["full_survival"].low < 0.0
    change = short.metrics["months"].mean - own.metrics["months"].mean
    assert change > 0.0 and short.differences["months"].mean == pytest.approx(change)
    means = [cell.metrics["score"].mean for cell in (short, own)]
    assert rankings({"a": [short], "b": [own]})[0]["order"] == ([0, 1] if means[0] > means[1] else [1, 0])


def test_a_large_grid_says_its_size_and_how_it_is_cut(env):
    found = plan(env, 3_000, 2_000)
    assert found.calls > 1 and found.together * 2_000 <= found.batch
    assert str(found).startswith("3,000 environments x 2,000 episodes, ")
    assert str(found).endswith(" GB at once; played in 94 calls")
    small = plan(env, 30, 2_000)
    assert small.calls == 1 and "calls" not in str(small) and found.bytes_in_all == 100 * small.bytes_in_all
    assert small.bytes_in_all > 30 * 2_000 * 4 * 27, "a record alone is 27 numbers"


def ishigami(values):
    """The textbook function, with known indices (Ishigami and Homma 1990)."""
    x1, x2, x3 = values
    return np.sin(x1) + 7 * np.sin(x2) ** 2 + 0.1 * x3**4 * np.sin(x1)


def test_sobol_indices_are_those_of_a_textbook_function(monkeypatch):
    ranges = parse_ranges(["equity_logit=-3.14159265:3.14159265", "debt_logit=-3.14159265:3.14159265",
                           "stress_floor=-2:0"], with_count=False)  # fmt: skip
    values = saltelli(ranges, 1024)
    assert len(values["equity_logit"]) == 1024 * 5
    angles = [values["equity_logit"], values["debt_logit"], (values["stress_floor"] + 1) * np.pi]
    outcome = ishigami(angles)[:, None]
    halves = [(rows, dict.fromkeys(sensitivity.SHOWN, outcome[rows])) for rows in np.split(np.arange(5120), 2)]
    found = sobol_indices(halves, values, 1024)["score"]
    expected = {"equity_logit": (0.314, 0.558), "debt_logit": (0.442, 0.442), "stress_floor": (0.0, 0.244)}
    for name, (first, total) in expected.items():
        assert (found[name].first, found[name].total) == pytest.approx((first, total), abs=0.03)
        assert found[name].first_low < first < found[name].first_high
        assert found[name].total_low < total < found[name].total_high
    still = [(np.arange(5120), {name: np.ones((5120, 2)) for name in sensitivity.SHOWN})]
    assert np.isnan(sobol_indices(still, values, 1024)["months"]["equity_logit"].total)


def test_samples_lie_in_their_ranges_and_counts_are_whole():
    values = saltelli(parse_ranges(["delay_max=1:6", "noise=0.5:2"], with_count=False), 64)
    assert set(values["delay_max"]) == {1, 2, 3, 4, 5, 6}
    assert 0.5 <= values["noise"].min() < 0.6 and 1.9 < values["noise"].max() <= 2.0
    again = saltelli(parse_ranges(["delay_max=1:6", "noise=0.5:2"], with_count=False), 64, seed=1)
    assert (again["noise"] != values["noise"]).any()


def test_the_command_prints_surface_grid_and_indices(monkeypatch, capsys):
    command = ["sensitivity", "--policy", "greedy-equity", "--policy", "greedy-equity:amount=1e3", "--episodes", "64"]
    code, out, err = arena(monkeypatch, capsys, *command)
    assert (code, err) == (0, "") and "\x1b" not in out
    assert "Kendall's tau" in out and "greedy-equity:amount=1e3" in out and "change places" in out
    given = ["--param", "revenue_multiple=1:3:2"]
    found = json.loads(arena(monkeypatch, capsys, *command, *given, "--json")[1])
    assert (found["revenue_multiple"], found["tool_cost"]) == ([1, 3], [5000])
    assert np.shape(found["means"]) == (2, 1, 2) and found["episodes"] == 64
    dear = [*command, "--env-set", "tool_cost=20000"]
    found = json.loads(arena(monkeypatch, capsys, *dear, *given, "--json")[1])
    assert (found["revenue_multiple"], found["tool_cost"]) == ([1, 3], [20_000])
    found = json.loads(arena(monkeypatch, capsys, *dear, "--json")[1])
    assert (len(found["revenue_multiple"]), found["tool_cost"]) == (11, [20_000])

    given = ["--param", "equity_logit=0:2:2", "--batch", "64"]
    out = arena(monkeypatch, capsys, *command, *given)[1]
    assert "2 environments x 64 episodes" in out and "played in 2 calls" in out and "Ranking" in out
    assert f"Change: from equity_logit = {float(arena_jax.make().params.equity_logit):g}," in " ".join(out.split())
    found = json.loads(arena(monkeypatch, capsys, *command, *given, "--json")[1])
    assert found["size"]["calls"] == 2 and len(found["results"]) == 2
    low, high = (cell["metrics"]["score"]["mean"] for cell in found["results"][0]["cells"])
    assert low < high

    given = ["--param", "equity_logit=0:2", "--param", "loan_size=9000:11000", "--sobol", "16"]
    found = json.loads(arena(monkeypatch, capsys, *command, *given, "--json")[1])
    assert found["results"][0]["indices"]["score"].keys() == {"equity_logit", "loan_size"}
    assert found["results"][1]["indices"]["score"]["loan_size"]["total"] is None, "it never survives"
    assert "interactions (total)" in arena(monkeypatch, capsys, *command, *given)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--param noise=2:0:3", "range 'noise=2:0:3' is reversed"),
        ("--param noise=1:1:3", "is empty: LO must be below HI, and N at least 2"),
        ("--param noise=0:1:1", "is empty: LO must be below HI, and N at least 2"),
        ("--param noise=0:1:0", "is empty"),
        ("--param noise", "expected NAME=LO:HI:N such as noise=0:2:5, got 'noise'"),
        ("--param noise=0:2", "expected NAME=LO:HI:N"),
        ("--param noise=a:b:c", "expected NAME=LO:HI:N"),
        ("--param nois=0:2:3", "did you mean noise"),
        ("--param noise=0:9:3", "parameter noise must lie in [0, 5] (factor), got 9"),
        ("--param noise=nan:2:3", "must lie in [0, 5] (factor), got nan"),
        ("--param exclusive=0:2:2", "exclusive must be a whole number from 0 to 1, got 2"),
        ("--param tool_budget=5:25:4", "takes whole numbers, and 5 to 25 in 4 values gives 11.6667"),
        ("--param delay_min=1:8:8", "contradictory parameters: delay_min is above delay_max"),
        ("--param noise=0:1:2 --param noise=0:2:2", "parameter noise is given twice"),
        ("--param noise=0:1:2 --env-set noise=1", "both set (--env-set) and varied (--param)"),
        ("--param noise=0:1:400 --param flash_error=0:0.1:400", "the grid has 160,000 environments, at most 100,000"),
        ("--param tool_cost=0:1:400 --param revenue_multiple=0:1:400", "the grid has 160,000 environments"),
        ("--param noise=0:1:999999", "too many values: at most 100,000"),
        ("--param noise=0:1:2 --batch 0", "batch must be"),
        ("--param noise=0:1:2 --episodes 0", "episodes must be"),
        ("--param noise=0:1:2 --seed -1", "seed must be"),
        ("--episodes 0", "episodes must be"),
        ("--policy never-raise", "only once"),
        ("--sobol 64", "give at least two ranges"),
        ("--sobol 64 --param noise=0:2:3 --param flash_error=0:0.1:2", "expected NAME=LO:HI such as noise=0:2"),
        ("--sobol 48 --param noise=0:2 --param flash_error=0:0.1", "must be a power of 2 from 16 on, got 48"),
        ("--sobol 65536 --param noise=0:2 --param flash_error=0:0.1", "make 262,144 environments"),
        ("--sobol 64 --param noise=0:2 --param max_pending=1:3", "max_pending is static"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, arguments, message):
    command = ["sensitivity", "--policy", "never-raise", *arguments.split()]
    code, out, err = arena(monkeypatch, capsys, *command)
    assert (code, out, err.count("\n")) == (2, "", 1) and message in err


def test_more_policies_than_letters_are_refused(monkeypatch, capsys):
    policies = [text for i in range(27) for text in ("--policy", f"greedy-equity:amount={i + 1}e6")]
    code, _, err = arena(monkeypatch, capsys, "sensitivity", *policies)
    assert code == 2 and "at most 26 policies are ranked, got 27" in err


GRID = ["sensitivity", "--policy", GREEDY, "--param", "noise=0:2:4", "--episodes", "40", "--batch", "80", "--json"]


def test_a_grid_that_was_interrupted_goes_on(monkeypatch, capsys, tmp_path):
    code, plain, _ = arena(monkeypatch, capsys, *GRID)
    assert code == 0
    kept = [*GRID, "--out", str(tmp_path / "g")]
    played, real = [], grid_files._played

    def play_two(spec, settings, number):
        if len(played) == 2:
            raise KeyboardInterrupt
        played.append(number)
        return real(spec, settings, number)

    monkeypatch.setattr(grid_files, "_played", play_two)
    assert arena(monkeypatch, capsys, *kept)[0] == 130
    monkeypatch.setattr(grid_files, "_played", lambda *arguments: played.append(arguments[2]) or real(*arguments))
    assert arena(monkeypatch, capsys, *kept)[:2] == (0, plain)
    assert played == [0, 1, 2]
    assert arena(monkeypatch, capsys, *kept)[:2] == (0, plain)
    assert len(played) == 3, "what is finished is read, the environment as it is included"


def test_what_others_played_of_a_grid_is_not_played_again(played_grid, tmp_path):
    settings = grid_settings()
    assert grid_files.keep_chunk(played_grid, [GREEDY], settings, 0, 2) == 80
    folder = shutil.copytree(played_grid, tmp_path / "g")
    chunk(folder, 2).unlink()
    with pytest.raises(ArenaError, match="doesn't see what others played there"):
        grid_files.kept_chunk(folder, [GREEDY], settings, 0, 2, is_played=True)
    with pytest.raises(ArenaError, match="is not there: all workers must see it"):
        grid_files.keep_chunk(tmp_path / "nowhere", [GREEDY], settings, 0, 2)


@pytest.mark.parametrize(
    "bad", ["--seed -1", "--param delay_min=1:8:8", "--sobol 16 --seed -1", "--batch 0", "--episodes 0"]
)
def test_bad_values_leave_no_folder(monkeypatch, capsys, tmp_path, bad):
    command = ["sensitivity", "--policy", "never-raise", "--out", str(tmp_path / "g")]
    if "--sobol" in bad:
        command += ["--param", "noise=0:2", "--param", "flash_error=0:0.1"]
    elif "--param" not in bad:
        command += ["--param", "noise=0:2:2"]
    code, out, err = arena(monkeypatch, capsys, *command, *bad.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "g").exists()


def test_what_a_kill_left_of_a_grid_is_cleared(monkeypatch, capsys, tmp_path, played_grid):
    """While its manifest was written, or a chunk."""
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".half-grid.json-a1_b2").write_text("{")
    assert arena(monkeypatch, capsys, *GRID, "--out", str(tmp_path / "new"))[0] == 0
    old = shutil.copytree(played_grid, tmp_path / "old")
    (chunk(old, 1).parent / ".half-chunk-000001.parquet-a1_b2").write_bytes(b"half")
    assert arena(monkeypatch, capsys, *GRID, "--out", str(old))[0] == 0
    assert not [*tmp_path.rglob(".half-*")]


def grid_settings():
    values = grid(parse_ranges(["noise=0:2:4"]))
    return {"values": values, "episodes": 40, "seed": 0, "scenario": None, "overrides": {}, "batch": 80}


@pytest.fixture(scope="module")
def played_grid(tmp_path_factory):
    """The folder that the command leaves."""
    folder, settings = tmp_path_factory.mktemp("grid") / "g", grid_settings()
    grid_files.open_grid(folder, grid_files.grid_manifest([GREEDY], settings))
    for number in (0, 1, 2):
        grid_files.kept_chunk(folder, [GREEDY], settings, 0, number)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: None, "holds another grid (seed: 0, not 1)"),
        (lambda folder: (folder / "grid.json").write_text("[]"), "holds another grid"),
        (lambda folder: (folder / "grid.json").unlink(), "is not empty and holds no grid"),
        (lambda folder: shutil.copy(chunk(folder, 1), chunk(folder, 2)), "holds other environments"),
        (lambda folder: chunk(folder, 1).write_text("no parquet"), "is not a readable part file"),
        (lambda folder: (chunk(folder, 1).unlink(), chunk(folder, 1).symlink_to("/dev/zero")), "is a link"),
    ],
)
def test_another_or_damaged_grid_is_refused(monkeypatch, capsys, tmp_path, played_grid, change, message):
    folder = shutil.copytree(played_grid, tmp_path / "g")
    change(folder)
    code, _, err = arena(monkeypatch, capsys, *GRID, "--out", str(folder), "--seed", str(int("seed" in message)))
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


def chunk(folder, number):
    return next(folder.glob("0*")) / f"chunk-{number:06d}.parquet"
