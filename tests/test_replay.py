"""One episode after the fact: what the agent knew beside what was true, from journals and from policies."""

import json
import re

import jax
import numpy as np
import pytest
from test_cli import arena

import arena_jax
from arena_jax.analysis.report.replay_page import replay_figures, replay_page
from arena_jax.batch_play import rollout
from arena_jax.llm.replay import replay_journal, replay_policy
from arena_jax.llm.replay_view import WARNING, month_lines, replay_json
from arena_jax.llm.runs import new_run, open_episode
from arena_jax.llm.session import ArenaSession

POLICY, SEED, EPISODE = "cash-threshold:threshold=8e6,amount=12.6e6", 3, 14
ASSUMED = {
    "user_growth": 0.5, "lending_rate": 8.0, "repayment_rate": 0.03, "charge_off_rate": 0.002, "servicing_cost": 18,
    "fixed_cost": 88e3, "acquisition_cost": 390, "horizon": 6,
}  # fmt: skip
FIELDS = ["cash", "users", "loans_gross", "debt_principal", "instrument", "seen_cash", "age_cash"]


@pytest.fixture(scope="module")
def replayed(env):
    return replay_policy(env, POLICY, SEED, EPISODE)


@pytest.fixture(scope="module")
def played(env):
    """The same episode in batch play: its record and months."""
    policy = arena_jax.make_policy(POLICY)
    record, months = rollout(env, policy, jax.random.key(SEED), 1, first=EPISODE, record=FIELDS)
    return record, {name: values[0][months["alive"][0]] for name, values in months.items()}


def known(month, quantity):
    return next(found for found in month.knowledge if found.quantity == quantity)


def test_a_policys_episode_is_that_of_evaluate(replayed, played):
    record, months = played
    assert len(replayed.months) == record.months_played[0]
    for name, value in replayed.record.items():
        np.testing.assert_allclose(value, getattr(record, name)[0], rtol=1e-5, atol=2e3, err_msg=name)
    for month in replayed.months:
        assert month.opening_cash == pytest.approx(months["cash"][month.month], rel=1e-5, abs=2e3)
        asked = months["instrument"][month.month] > 0
        assert month.decided.startswith("ask for equity of $12,600,000") == asked


def test_a_random_policy_has_the_luck_of_its_episode(env, replayed):
    other = replay_policy(env, "random", SEED, EPISODE + 1)
    assert other.months[5].opening_cash != replayed.months[5].opening_cash
    policy = arena_jax.make_policy("random")
    record = rollout(env, policy, jax.random.key(SEED), 1, first=EPISODE + 1)
    for name in ("requests", "actions", "months_played", "review_financial_records", "analyze_market_conditions"):
        assert other.record[name] == getattr(record, name)[0], name


def test_what_was_known_stands_beside_what_was_true(replayed, played):
    _, months = played
    for month in replayed.months:
        cash = known(month, "cash")
        assert cash.true == pytest.approx(month.opening_cash)
        age = months["age_cash"][month.month]
        assert cash.age == (None if age < 0 else age)
        if age >= 0:
            assert cash.known == pytest.approx(months["seen_cash"][month.month], rel=1e-5, abs=2e3)
        assert known(month, "closed_users").true == pytest.approx(months["users"][month.month], rel=1e-4)
        assert known(month, "closed_loans_gross").true == pytest.approx(months["loans_gross"][month.month], rel=1e-4)
        assert known(month, "closed_debt").true == pytest.approx(months["debt_principal"][month.month], abs=1.0)
        assert known(month, "closed_users").known is None


def test_what_no_tool_shows_is_the_worlds(env, replayed):
    """An open request ends as it was said to, when it was said to."""
    promises = 0
    for month, later in zip(replayed.months, replayed.months[1:], strict=False):
        for place in month.open_requests:
            if place.months_left == 1:
                (settled,) = later.settled
                assert (settled.received, settled.month_asked) == (place.will_receive, place.month_asked)
                promises += 1
    assert promises >= 2
    first = replayed.months[0]
    assert first.chance_equity == pytest.approx(1 / (1 + np.exp(-(1.0 - first.stress))), rel=1e-5)
    assert first.regime == "expansion"


def test_statements_are_exact_and_tie(replayed):
    for month in replayed.months:
        balance = {row[0]: row[1] for row in month.statements["balance_sheet"]["lines"]}
        assert balance["Cash"] == round(month.closing_cash)
        assert balance["Total assets"] == balance["Total liabilities and equity"]
        flow = {row[0]: row[1] for row in month.statements["cash_flow_statement"]["lines"]}
        assert flow["Cash at the beginning"] == round(month.opening_cash)
        assert flow["Equity issued"] == sum(settled.received for settled in month.settled)


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """A run whose first episode is closed, read, projected, asked for and then left; the second is in progress."""
    out = tmp_path_factory.mktemp("replayed") / "run"
    new_run(out, [7, 8])
    with open_episode(out, 0, agent="someone") as session:
        session.call("verify_cash_position")
        session.call("nonsense")
        session.call("book_closing")
        session.call("review_financial_records", {"document": "financial_package"})
        session.call("conduct_cashflow_projection", ASSUMED)
        session.call("fund_raising_request", {"instrument": "debt", "amount": 1e6})
        for _ in range(8):
            session.call("pass")
        session.stop("agent_stopped", "enough")
    with open_episode(out, 1, agent="someone") as session:
        session.call("pass")
    return out


def test_a_journal_is_replayed_with_its_calls(journal):
    found = replay_journal(journal, 0)
    assert (found.player, found.status, len(found.months)) == ("someone", "agent_stopped", 10)
    assert found.record["score"] == 0.0
    first, second = found.months[:2]
    assert [call.tool for call in first.calls] == ["verify_cash_position", "nonsense"]
    assert first.calls[0].answer["cash"] == 15_000_000
    assert "error" in first.calls[1].answer
    assert (first.decided, first.result) == ("close the books", "books closed through Dec 1xx9")
    assert known(second, "cash").age == 1
    assert known(second, "closed_cash").known == 15_000_000
    projection = known(second, "projected_cash_3")
    assert projection.age == 0
    assert projection.true == pytest.approx(found.months[4].opening_cash)
    assert known(second, "projected_cash_12").known is None
    (settled,) = [settled for month in found.months for settled in month.settled]
    assert (settled.instrument, settled.requested, settled.month_asked) == ("debt", 1_000_000, 1)


def test_what_is_hidden_is_shown_only_of_ended_episodes(journal):
    with pytest.raises(arena_jax.ArenaError, match=r"episode 1 of .* is in progress; what is hidden is shown once"):
        replay_journal(journal, 1)
    with pytest.raises(arena_jax.ArenaError, match="episode must be"):
        replay_journal(journal, 2)


def test_months_in_the_terminal_say_both_sides(replayed):
    asked = next(month for month in replayed.months if month.decided.startswith("ask"))
    lines = month_lines(asked)
    names = [name for name, _ in lines]
    assert names[:2] == ["knew", "true"]
    assert {"asked", "shown", "decided", "books"} <= set(names)
    assert "never shown: borrowers, cash in the statements, loans" in lines[0][1]
    assert "a request now: equity" in lines[1][1]
    told = [text for month in replayed.months for name, text in month_lines(month) if name == "open"]
    assert any("true: " in text for text in told)


def test_plain_data_is_complete(replayed):
    found = json.loads(json.dumps(replay_json(replayed), allow_nan=False))
    assert found["about"] == WARNING
    month = found["months"][3]
    assert {"knowledge", "calls", "decided", "settled", "open_requests", "statements", "stress"} <= month.keys()


def test_the_page_says_what_it_shows(replayed):
    page = replay_page(replayed).decode()
    assert WARNING in page
    for name in ("What the agent knew, and what was true", "Income statement, $"):
        assert page.count(f"<summary>{name}</summary>") == len(replayed.months)
    assert not re.findall(r'(?:src|href)="(?!#|data:,)', re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL))
    for figure in replay_figures(replayed):
        assert "seed 3, episode 14" in figure.source
    cash, requests, chances = replay_figures(replayed)
    assert len(cash.table.rows) == len(chances.table.rows) == len(replayed.months)
    asked, received, refused = requests.panels[0].marks[-3:]
    record = replayed.record
    assert (len(asked.x), asked.rows) == (record["requests"], [0] * record["requests"])
    assert len(asked.x) > 0 and len({*received.x, *refused.x}) == sum(bool(row[3]) for row in requests.table.rows)
    assert [row[1] for row in requests.table.rows if row[2]] == [f"{month:.0f}" for month in asked.x]


def test_replay_on_the_command_line(monkeypatch, capsys, journal, tmp_path):
    code, out, err = arena(monkeypatch, capsys, "replay", str(journal), "--months", "1-2")
    assert (code, err) == (0, "")
    assert WARNING in out
    assert "Feb 2xx0, month 1" in out and "Jan 2xx0, month 0" not in out
    assert "ask for debt of $1,000,000" in out
    months = json.loads(arena(monkeypatch, capsys, "replay", str(journal), "--json", "--months", "3")[1])["months"]
    assert [month["month"] for month in months] == [3]
    page = tmp_path / "page.html"
    options = ["--policy", "never-raise", "--seed", "1", "--episode", "2", "--env-set", "noise=0", "--out", str(page)]
    assert arena(monkeypatch, capsys, "replay", *options)[:2] == (0, f"{page}\n")
    assert "seed 1, episode 2" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a run directory of agents, or --policy"),
        (["nowhere", "--policy", "never-raise"], "one of the two"),
        (["nowhere"], "not a run directory"),
        (["--policy", "never-rais"], "did you mean never-raise"),
        (["--policy", "never-raise", "--episode", "-1"], "episode must be"),
        (["--policy", "never-raise", "--out", "x.pdf"], "a page is written as NAME.html"),
        (["--policy", "never-raise", "--months", "200-300"], "months must be such as 20-36, within 0 to"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = arena(monkeypatch, capsys, "replay", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_simulated_runs_are_told_how(monkeypatch, capsys, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    _, _, err = arena(monkeypatch, capsys, "replay", str(tmp_path))
    assert "holds no journals" in err and "arena-jax replay --policy" in err


def test_a_session_plays_any_episode_of_a_run_key(env, played):
    """Seed s and index k: episode k of `rollout` with the run key of s."""
    session = ArenaSession(env, SEED, index=EPISODE)
    session.call("pass")
    cash = session.call("verify_cash_position")["cash"]
    assert cash == pytest.approx(played[1]["cash"][1], abs=100)
    with pytest.raises(arena_jax.ArenaError, match="episode must be"):
        ArenaSession(env, SEED, index=-1)
