"""Two policies over the same worlds, and RQ2's conditions relaxed on the same draws."""

import functools
import json
import warnings
import weakref

import jax
import numpy as np
import pytest
from scipy import stats
from test_cli import arena

import arena_jax
from arena_jax.analysis import ablation
from arena_jax.analysis.ablation import Switch, ablate, combinations, rq2_switches
from arena_jax.analysis.compare import contrast, contrasts, paired, play_units
from arena_jax.analysis.contrast_view import ablation_rows, ablations_json, comparison_json, comparison_rows
from arena_jax.analysis.metrics import METRICS, Moments, episode_metrics, estimate
from arena_jax.analysis.power import Runs, runs_needed
from arena_jax.errors import ArenaError

A, B = "cash-threshold:threshold=8e6,amount=12.6e6", "cash-threshold:threshold=10e6,amount=12.6e6"
PAIRS = 2_000


@pytest.fixture(scope="module")
def pools(env):
    return [episode_metrics(arena_jax.rollout(env, arena_jax.make_policy(p), jax.random.key(0), PAIRS)) for p in (A, B)]


@pytest.fixture(scope="module")
def compared():
    capture = {}

    def run(monkeypatch, capsys, *options):
        if options not in capture:
            capture[options] = arena(monkeypatch, capsys, "compare", A, B, *options)
        return capture[options]

    return run


def test_pairing_narrows_the_interval_of_survival(compared, monkeypatch, capsys, pools):
    """On 2,000 pairs to 0.8 of its width at the most: requests keep their luck whenever they are made."""
    code, out, err = compared(monkeypatch, capsys, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["a"], found["b"], found["episodes"], found["pairs"]) == (A, B, PAIRS, "episodes")
    survival = found["metrics"]["full_survival"]
    difference, unpaired = survival["difference"], survival["unpaired"]
    ratio = (difference["high"] - difference["low"]) / (unpaired["high"] - unpaired["low"])
    assert ratio <= 0.8 and survival["width_ratio"] == pytest.approx(ratio)

    one, other = (pool["full_survival"] for pool in pools)
    assert difference["mean"] == pytest.approx((other - one).mean())
    variances = [values.var(ddof=1) for values in (other - one, one, other)]
    assert survival["variance_saved"] == pytest.approx(1 - variances[0] / (variances[1] + variances[2]))
    wins = [int(((other - one) == sign).sum()) for sign in (1, -1)]
    assert difference["p"] == stats.binomtest(wins[0], sum(wins)).pvalue  # McNemar's exact test
    assert (survival["b_higher"], survival["a_higher"]) == (wins[0] / PAIRS, wins[1] / PAIRS)
    expected = stats.ttest_rel(other, one).confidence_interval()
    assert (difference["low"], difference["high"]) == pytest.approx((expected.low, expected.high))
    apart = stats.ttest_ind(other, one, equal_var=False).confidence_interval()
    assert (unpaired["low"], unpaired["high"]) == pytest.approx((apart.low, apart.high), rel=1e-12)
    months = found["metrics"]["months"]
    test = stats.ttest_rel(pools[1]["months"], pools[0]["months"])
    assert months["difference"]["p"] == pytest.approx(test.pvalue)


@functools.cache
def fisher(n, a, b):
    return stats.fisher_exact([[a, n - a], [b, n - b]]).pvalue


@pytest.mark.parametrize("metric", ["full_survival", "months", "score"])
def test_the_runs_named_tell_the_two_apart_four_times_in_five(pools, metric):
    """Drawn anew from the pairs played: 80% of comparisons of so many runs find p < 5%, of a tenth fewer they don't."""
    one, other = (pool[metric] for pool in pools)
    is_binary = METRICS[metric].is_share
    found = runs_needed(one, other, is_binary=is_binary)
    assert found.paired < found.unpaired < 100
    rng = np.random.default_rng(5)

    def power(n, is_paired):
        rows = rng.integers(0, PAIRS, (2, 4_000, n))
        a, b = one[rows[0]], other[rows[0 if is_paired else 1]]
        if is_paired and is_binary:
            up, down = (a < b).sum(axis=1), (a > b).sum(axis=1)
            pairs = zip(up, down, strict=True)
            return np.mean([k + j > 0 and stats.binomtest(k, k + j).pvalue < 0.05 for k, j in pairs])
        if is_binary:
            counts = zip(a.sum(axis=1).astype(int), b.sum(axis=1).astype(int), strict=True)
            return np.mean([fisher(n, *pair) < 0.05 for pair in counts])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # samples that are all alike
            test = stats.ttest_rel(a, b, axis=1) if is_paired else stats.ttest_ind(a, b, axis=1, equal_var=False)
        return (test.pvalue < 0.05).mean()

    for n, is_paired in ((found.paired, True), (found.unpaired, False)):
        assert 0.76 <= power(n, is_paired) <= 0.85, (n, is_paired)
        assert power(int(0.85 * n), is_paired) < 0.8, (n, is_paired)


def test_pairing_what_is_independent_saves_no_runs():
    """Both tests of shares are exact: 14% against 37%, each outcome with each as often as chance has it."""
    one, other = (np.array(side, float) for side in ([0] * 86 + [1] * 14, [0] * 63 + [1] * 37))
    found = runs_needed(np.repeat(one, 100), np.tile(other, 100), is_binary=True)
    assert found.paired == pytest.approx(found.unpaired, rel=0.1)
    rng = np.random.default_rng(6)
    power = np.mean(
        [fisher(found.unpaired, *pair) < 0.05 for pair in rng.binomial(found.unpaired, (0.14, 0.37), (4_000, 2))]
    )
    assert power == pytest.approx(0.8, abs=0.03)


def test_no_runs_are_named_where_no_difference_was_found():
    rng = np.random.default_rng(0)
    noise, more = rng.normal(0, 1, (2, 400))
    sides = [dict.fromkeys(METRICS, values) for values in (noise, noise + more * 0.5 + 0.01)]
    estimates = [
        {name: estimate(METRICS["months"], Moments.of(values)) for name, values in side.items()} for side in sides
    ]
    found = {name: contrast(*(side[name] for side in sides)) for name in METRICS}
    assert found["months"].low < 0.0 < found["months"].high
    metrics = comparison_json(estimates, found, {name: Runs(5_000, 9_000) for name in METRICS})
    rows = comparison_rows(metrics, "episodes")
    assert {row["Runs, paired"] + row["unpaired"] for row in rows} == {"––"}
    metrics["months"] |= {"difference": {"mean": 0.2, "low": 0.1, "high": 0.3, "p": 0.01}, "variance_saved": -0.001}
    months = comparison_rows(metrics, "worlds")[1]
    assert (months["Worlds, paired"], months["unpaired"], months["Variance saved"]) == ("5,000", "9,000", "0%")


def test_runs_of_clear_and_of_no_differences():
    zeros, ones = np.zeros(50), np.ones(50)
    assert runs_needed(zeros, ones, is_binary=True) == Runs(6, 4)  # the least that the exact tests can tell
    assert stats.binomtest(6, 6).pvalue < 0.05 < stats.binomtest(5, 5).pvalue
    assert fisher(4, 4, 0) < 0.05 < fisher(3, 3, 0)
    assert runs_needed(zeros, zeros, is_binary=True) == Runs(None, None)
    rng = np.random.default_rng(0)
    wide, narrow = rng.normal(0, 1, 500), rng.normal(0, 1, 500)
    assert runs_needed(wide, wide + 1e-5 * narrow + 1e-9).unpaired is None  # more than ten million
    assert runs_needed(wide, wide + 3 + 0.01 * narrow).paired == 2
    assert runs_needed(wide[:1], wide[1:2]) == Runs(None, None)


def test_many_runs_are_counted_as_the_normal_theory_has_it():
    """For a difference of a tenth of its SD: (1.96 + 0.84)^2 / 0.1^2 = 785 pairs."""
    values = np.random.default_rng(1).normal(0, 1, 4_000)
    difference = (values - values.mean()) / values.std(ddof=1) + 0.1
    assert runs_needed(np.zeros(4_000), difference).paired == pytest.approx(787, abs=2)


def test_equal_shares_still_have_an_interval():
    zeros, ones = np.zeros(100), np.ones(100)
    same, opposite = paired(zeros, zeros, True), paired(zeros, ones, True)
    assert same.low == -same.high < 0.0
    assert opposite.high == 1.0 and 0.9 < opposite.low < 1.0
    assert paired(ones, zeros, True).high == -opposite.low
    assert contrast(zeros, zeros, is_share=True).p == 1.0


def test_columns_alike_but_for_rounding_are_compared_quietly():
    one = np.tile([0.1, np.nextafter(0.1, 1)], 50)
    found = contrast(one, one + 1.0)
    assert found.mean == pytest.approx(1.0) and found.unpaired_low == pytest.approx(1.0)


def test_over_several_worlds_the_worlds_are_the_pairs(env):
    results, units = play_units(env, ["never-raise", "greedy-equity"], episodes=4, scenarios="generated:5")
    one, other = units["never-raise"], units["greedy-equity"]
    assert one["months"].shape == (5,)
    assert one["months"].mean() == pytest.approx(results["never-raise"]["months"].mean)
    found = contrasts(one, other)
    assert found["months"].n == 5
    expected = stats.ttest_rel(other["months"], one["months"])
    assert found["months"].p == pytest.approx(expected.pvalue)
    assert -1.0 <= found["crisis_2"].low <= found["crisis_2"].high <= 1.0


def test_a_comparison_for_people(compared, monkeypatch, capsys):
    code, out, _ = compared(monkeypatch, capsys)
    assert code == 0 and "\x1b" not in out
    for text in (f"A: {A}", f"B: {B}", "Runs, paired", "Full surv.", "<0.0001"):
        assert text in out


def test_unlike_pairs_and_too_many_episodes_are_refused(env):
    with pytest.raises(ArenaError, match="as many on both sides, got 2 and 3"):
        contrast(np.zeros(2), np.zeros(3))
    with pytest.raises(ArenaError, match="episodes over all worlds must be"):
        play_units(env, [A], episodes=10**5, scenarios="generated:11")


def test_removing_the_delay_is_the_dominant_switch(monkeypatch, capsys):
    code, out, err = arena(monkeypatch, capsys, "ablate", "--policy", A, "--episodes", "1000", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["source"] == rq2_switches()[0]
    (result,) = found["results"]
    singles = [effect for effect in result["effects"] if len(effect["switches"]) == 1]
    assert {effect["switches"][0] for effect in singles} == {
        "no delay", "no noise", "tool budget 25", "tool budget 5", "not exclusive",
    }  # fmt: skip
    assert len(result["effects"]) == 5 + 6 and all(effect["published"] for effect in singles)
    first, second = singles[:2]
    assert first["switches"] == ["no delay"] and first["environment"] == {"delay_min": 1, "delay_max": 1}
    for metric in ("full_survival", "months", "score"):
        assert first["differences"][metric]["low"] > 10 * abs(second["differences"][metric]["high"])
    assert first["differences"].keys() == METRICS.keys()
    gain = first["metrics"]["full_survival"]["mean"] - result["default"]["full_survival"]["mean"]
    assert gain == pytest.approx(first["differences"]["full_survival"]["mean"])


def test_an_ablation_keeps_the_episodes_of_no_pair(monkeypatch):
    """Only those of the default and of single switches are read again."""
    kept, alive = [], []

    def played(env, policies, **options):
        alive.append(sum(one() is not None for one in kept))
        results, units = play_units(env, policies, **options)
        kept.append(weakref.ref(units[policies[0]]["months"]))
        return results, units

    monkeypatch.setattr(ablation, "play_units", played)
    switches = [Switch(name, {name: value}, "") for name, value in (("noise", 0), ("tool_cost", 1), ("tool_budget", 5))]
    ablate("never-raise", switches, episodes=64)
    assert len(alive) == 7 and alive[-1] == 1 + 3 + 1  # the last pair is let go when the next has been played


def test_pairs_and_their_interaction(env):
    delay, noise = Switch("d", {"delay_min": 1, "delay_max": 1}, "up"), Switch("n", {"noise": 0}, "least")
    third = Switch("b", {"tool_budget": 5}, "down", in_pairs=False)
    assert [[s.name for s in c] for c in combinations([delay, third, noise])] == [["d"], ["b"], ["n"], ["d", "n"]]
    found = ablate(A, [delay, noise], episodes=200, seed=3, overrides={"initial_cash": 16e6})
    assert [effect.switches for effect in found.effects] == [("d",), ("n",), ("d", "n")]
    one, other, both = found.effects
    assert both.environment == {"delay_min": 1, "delay_max": 1, "noise": 0} and both.published == ""
    beyond = [effect.differences["months"].mean for effect in (both, one, other)]
    assert both.interaction["months"].mean == pytest.approx(beyond[0] - beyond[1] - beyond[2])
    env = arena_jax.make(initial_cash=16e6)
    record = arena_jax.rollout(env, arena_jax.make_policy(A), jax.random.key(3), 200)
    assert found.default["months"].mean == pytest.approx(record.months_survived.mean())
    (result,) = json.loads(json.dumps(ablations_json({A: found}), allow_nan=False))
    rows = ablation_rows(result)
    assert [row[""] for row in rows] == ["default", "d", "n", "d + n"] and rows[1]["Paper"] == "up"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", A], "Missing argument"),
        (["compare", A, A], "only once"),
        (["ablate", "--policy", A, "--episodes", "1000001"], "whole number from 1 to 1000000, got 1000001"),
        (["compare", A, "greedy-equty"], "did you mean greedy-equity"),
        (["compare", A, B, "--episodes", "0"], "episodes must be"),
        (["compare", A, B, "--scenarios", "generated"], "scenarios must be"),
        (["ablate", "--policy", A, "--env-set", "noise=0"], "parameter noise is what the switch 'no noise' sets"),
        (["ablate", "--policy", "nobody"], "unknown policy"),
        (["ablate", "--policy", A, "--policy", A], "only once"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, arguments, message):
    code, out, err = arena(monkeypatch, capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1) and message in err
