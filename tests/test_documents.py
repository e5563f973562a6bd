"""The documents of the company: statements that add up, in every month; contracts that tie to the model's costs."""

import re

import jax
import numpy as np
import pytest

import arena_jax
from arena_jax.llm.archive import OPENING
from arena_jax.llm.dates import date_label, year_end_before
from arena_jax.llm.documents import STATEMENTS, TEXTS, prices, read_document
from arena_jax.llm.episode import World, begin, end_month
from arena_jax.llm.paging import PAGE_BYTES, json_bytes
from arena_jax.params import make_params

SIGNS = {
    "income_statement": {
        "Net interest income": ("Interest income", "Interest expense"),
        "Income before tax": ("Net interest income", "Provision for credit losses", "Operating expenses"),
        "Net income": ("Income before tax", "Income tax"),
    },
    "balance_sheet": {
        "Loans, net": ("Loans, gross", "Allowance for credit losses"),
        "Total assets": ("Cash", "Loans, net", "Interest receivable"),
        "Total liabilities": ("Accounts payable", "Tax payable", "Debt due within twelve months", "Debt due later"),
        "Total equity": ("Paid-in capital", "Retained earnings"),
        "Total liabilities and equity": ("Total liabilities", "Total equity"),
    },
    "cash_flow_statement": {
        "Net cash from operations": (
            "Interest collected",
            "Operating expenses paid",
            "Interest paid",
            "Income tax paid",
        ),
        "Net cash from investing": ("Loans originated", "Loans repaid", "Recoveries of loans charged off"),
        "Net cash from financing": ("Equity issued", "Debt issued", "Debt repaid"),
        "Net change in cash": ("Net cash from operations", "Net cash from investing", "Net cash from financing"),
        "Cash at the end": ("Cash at the beginning", "Net change in cash"),
    },
}
INDIRECT = (
    "Reconciliation: net income",
    "Provision for credit losses",
    "Change in interest receivable",
    "Change in payables",
)


def played_archive(env, seed, months=132):
    """The whole file of an episode of random actions, all of it closed, and its books as the world kept them."""
    world = World.make(env, seed)
    episode, rng, raw = begin(world), np.random.default_rng(seed), []
    for _ in range(months):
        kind = rng.integers(0, 4)
        action = arena_jax.pass_month() if kind == 0 else arena_jax.close_books()
        if kind >= 2:
            action = arena_jax.request_funding(("equity", "debt")[kind - 2], float(rng.uniform(1e6, 4e7)))
        episode = end_month(world, episode, action)
        if episode.status != "bankrupt":
            raw.append(jax.device_get(episode.state.books))
        if episode.status != "running":
            break
    return episode.archive.closed(episode.archive.last_month), raw


def columns(params, archive, name, month):
    """A statement as the agent reads it: a dict of its lines per column."""
    document = read_document(params, archive, name, month, 1)
    assert "pages" not in document
    assert json_bytes(document) < PAGE_BYTES
    heads = document["columns"][1:]
    found = []
    for place in range(len(heads)):
        lines, seen = {}, {}
        for label, *figures in document["lines"]:
            assert len(figures) == len(heads)
            assert isinstance(figures[place], int)
            seen[label] = seen.get(label, 0) + 1
            lines[label if seen[label] == 1 else f"{label} (2)"] = figures[place]
        found.append(lines)
    return heads, found


# what each statement prints, line by line
LABELS = {
    "income_statement": (
        "Interest income",
        "Interest expense",
        "Net interest income",
        "Provision for credit losses",
        "Operating expenses",
        "Income before tax",
        "Income tax",
        "Net income",
    ),
    "balance_sheet": (
        "Cash",
        "Loans, gross",
        "Allowance for credit losses",
        "Loans, net",
        "Interest receivable",
        "Total assets",
        "Accounts payable",
        "Tax payable",
        "Debt due within twelve months",
        "Debt due later",
        "Total liabilities",
        "Paid-in capital",
        "Retained earnings",
        "Total equity",
        "Total liabilities and equity",
    ),
    "cash_flow_statement": (
        "Interest collected",
        "Operating expenses paid",
        "Interest paid",
        "Income tax paid",
        "Net cash from operations",
        "Loans originated",
        "Loans repaid",
        "Recoveries of loans charged off",
        "Net cash from investing",
        "Equity issued",
        "Debt issued",
        "Debt repaid",
        "Net cash from financing",
        "Net change in cash",
        "Cash at the beginning",
        "Cash at the end",
        *INDIRECT,
        "Net cash from operations (2)",
    ),
}


def check_sums(name, lines):
    assert tuple(lines) == LABELS[name]
    for total, parts in SIGNS[name].items():
        assert lines[total] == sum(lines[part] for part in parts), total


def check_month(params, archive, raw, month):
    income_heads, incomes = columns(params, archive, "income_statement", month)
    balance_heads, balances = columns(params, archive, "balance_sheet", month)
    flow_heads, flows = columns(params, archive, "cash_flow_statement", month)
    equity_heads, equities = columns(params, archive, "equity_statement", month)
    assert income_heads == flow_heads
    assert income_heads[0] == balance_heads[0] == date_label(month)
    for name, shown in (("income_statement", incomes), ("balance_sheet", balances), ("cash_flow_statement", flows)):
        for lines in shown:
            check_sums(name, lines)
    for income, flow in zip(incomes, flows, strict=True):
        assert flow["Net cash from operations (2)"] == flow["Net cash from operations"]
        assert flow["Net cash from operations"] == sum(flow[label] for label in INDIRECT)
        assert flow["Reconciliation: net income"] == income["Net income"]
    balance = balances[0]
    assert balance["Total assets"] == balance["Total liabilities and equity"]
    assert balance["Cash"] == flows[0]["Cash at the end"]
    closing = {head: lines[f"Closing, {date_label(month)}"] for head, lines in zip(equity_heads, equities, strict=True)}
    assert closing["total"] == balance["Total equity"] == closing["paid-in"] + closing["retained"]
    if month > OPENING:
        before = balances[1]
        assert balance["Cash"] - before["Cash"] == flows[0]["Net change in cash"]
        assert before["Cash"] == flows[0]["Cash at the beginning"]
        assert balance["Retained earnings"] - before["Retained earnings"] == incomes[0]["Net income"]
        assert balance["Paid-in capital"] - before["Paid-in capital"] == flows[0]["Equity issued"]
        debt = lambda lines: lines["Debt due within twelve months"] + lines["Debt due later"]
        assert debt(balance) - debt(before) == flows[0]["Debt issued"] + flows[0]["Debt repaid"]
        for lines in equities:
            opening = lines[f"Opening, {date_label(month - 1)}"]
            changes = [value for label, value in lines.items() if label.startswith(("Issued", "Net income"))]
            assert opening + sum(changes) == lines[f"Closing, {date_label(month)}"]
        # comparative columns are what those months' own statements say
        assert columns(params, archive, "income_statement", month - 1)[1][0] == incomes[1]
        assert columns(params, archive, "balance_sheet", month - 1)[1][0] == before
        year = [
            columns(params, archive, "income_statement", m)[1][0] for m in range(year_end_before(month) + 1, month + 1)
        ]
        assert incomes[2] == {label: sum(lines[label] for lines in year) for label in incomes[0]}
        assert flows[2]["Cash at the end"] == balance["Cash"]
        # and no figure is far from the world's own
        books = raw[month]
        assets = abs(balance["Total assets"])
        for label, true in {
            "Cash": books.cash,
            "Loans, gross": books.loans_gross,
            "Retained earnings": books.retained_earnings,
        }.items():
            assert balance[label] == pytest.approx(float(true), abs=1e-5 * assets + 1)
        for label, true in {
            "Interest income": books.flows.interest_income,
            "Net income": books.flows.net_income,
        }.items():
            assert incomes[0][label] == pytest.approx(float(true), abs=1e-5 * assets + 3)


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20)]])
def test_every_subtotal_adds_up_in_every_month(env, seed):
    archive, raw = played_archive(env, seed)
    assert archive.last_month > 24
    for month in range(OPENING, archive.last_month + 1):
        check_month(env.params, archive, raw, month)


@pytest.mark.parametrize("seed", [0, 3])
def test_statements_say_what_notices_and_the_tax_calendar_say(env, seed):
    archive, _ = played_archive(env, seed)
    for month in range(archive.last_month + 1):
        flow = columns(env.params, archive, "cash_flow_statement", month)[1][0]
        income = columns(env.params, archive, "income_statement", month)[1][0]
        received = {"equity": 0, "debt": 0}
        for settled in archive.settled:
            if settled.month_settled == month + 1:
                received[settled.instrument] += settled.received
        assert (flow["Equity issued"], flow["Debt issued"]) == (received["equity"], received["debt"])
        assert income["Income tax"] <= 0
        if month % 3 != 2:
            assert flow["Income tax paid"] == 0


def test_debt_and_equity_do_appear(env):
    archive, _ = played_archive(env, 0)
    totals = [columns(env.params, archive, "cash_flow_statement", m)[1][0] for m in range(archive.last_month)]
    assert any(lines["Debt issued"] > 0 for lines in totals)
    assert any(lines["Equity issued"] > 0 for lines in totals)
    assert any(lines["Debt repaid"] < 0 for lines in totals)


def test_a_damaged_ledger_does_not_add_up(env):
    """The checks above can fail: one flow moved by a dollar."""
    archive, raw = played_archive(env, 3, months=6)
    wrong = list(archive._books)
    wrong[3] = wrong[3]._replace(cash=wrong[3].cash + 1)
    object.__setattr__(archive, "_books", tuple(wrong))
    with pytest.raises(AssertionError):
        check_month(env.params, archive, raw, 2)


def test_the_year_to_date_starts_in_january(env):
    archive, _ = played_archive(env, 1, months=16)
    heads, _ = columns(env.params, archive, "income_statement", 14)
    assert heads == ["Mar 2xx1", "Feb 2xx1", "Year to date"]
    heads, _ = columns(env.params, archive, "balance_sheet", 14)
    assert heads == ["Mar 2xx1", "Feb 2xx1", "Dec 2xx0"]
    heads, _ = columns(env.params, archive, "balance_sheet", 0)
    assert heads == ["Jan 2xx0", "Dec 1xx9"]


def test_dates_tell_no_year():
    assert [date_label(month) for month in (-1, 0, 14, 119, 120, 131)] == [
        "Dec 1xx9",
        "Jan 2xx0",
        "Mar 2xx1",
        "Dec 2xx9",
        "Jan 2x10",
        "Dec 2x10",
    ]


@pytest.mark.parametrize(
    "overrides", [{}, {"servicing_cost": 21.35, "fixed_cost": 93_456.78, "acquisition_cost": 401.5}]
)
def test_contract_prices_tie_to_the_costs_of_the_model(overrides):
    env = arena_jax.make(**overrides)
    archive = begin(World.make(env, 0)).archive
    found = {}
    for name in TEXTS:
        if name.startswith("contract_"):
            text = read_document(env.params, archive, name, None, 1)["text"]
            (line,) = [line for line in text.split("\n") if line.startswith("Price.")]
            found[name] = float(re.match(r"Price\. \$([\d,.]+\d)", line)[1].replace(",", ""))
    params = env.params
    servicing = found["contract_customer_support"] + found["contract_fraud_and_risk"]
    assert servicing == pytest.approx(float(params.servicing_cost), abs=0.005)
    assert found["contract_software"] + found["contract_hosting"] == pytest.approx(float(params.fixed_cost), abs=0.01)
    assert found["contract_marketing"] == pytest.approx(float(params.acquisition_cost), abs=0.005)
    assert sum(prices(params).values()) == pytest.approx(sum(found.values()))


@pytest.mark.parametrize(
    ("rules", "unsaid"),
    [
        ({"noise": 0.0}, "vary"),
        ({"cost_lag": 0.0}, "following month"),
        ({"interest_lag": 0.0}, "interest is collected"),
    ],
)
def test_documents_say_nothing_that_the_rules_have_switched_off(env, rules, unsaid):
    other = arena_jax.make(**rules)
    texts = [
        " ".join(read_document(one.params, begin(World.make(one, 0)).archive, name, None, 1)["text"] for name in TEXTS)
        for one in (env, other)
    ]
    assert unsaid in texts[0]
    assert unsaid not in texts[1]
    assert " 0%" not in texts[1]
    assert ".." not in texts[1]


@pytest.mark.parametrize("name", TEXTS)
def test_company_file_is_filled_and_fits_a_page(env, name):
    archive, _ = played_archive(env, 2, months=3)
    text = read_document(env.params, archive, name, None, 1)["text"]
    assert "{" not in text
    assert "Company XYZ" in text
    assert json_bytes(text) < PAGE_BYTES


@pytest.mark.parametrize("name", [*STATEMENTS, "operating_report"])
@pytest.mark.parametrize("month", [-2, 6, 400])
def test_months_that_are_not_on_file_are_refused(env, name, month):
    archive, _ = played_archive(env, 2, months=6)
    with pytest.raises(arena_jax.ArenaError, match=r"month must lie from -1 to"):
        read_document(env.params, archive, name, month, 1)


def test_open_months_have_flash_figures_only():
    env = arena_jax.make(noise=0.0)
    archive, _ = played_archive(env, 5, months=8)
    stale = archive.closed(3)
    with pytest.raises(arena_jax.ArenaError, match="book_closing"):
        read_document(env.params, stale, "income_statement", 4, 1)
    open_rows = read_document(env.params, stale, "operating_report", None, 1)["lines"]
    exact_rows = read_document(env.params, archive, "operating_report", None, 1)["lines"]
    assert [row[1] for row in open_rows] == ["closed"] * 5 + ["flash"] * 4
    for rough, exact in zip(open_rows, exact_rows, strict=True):  # without noise a flash figure is exact
        assert rough[2:5] == pytest.approx(exact[2:5], rel=1e-5, abs=5)
        assert rough[5:] == (exact[5:] if rough[1] == "closed" else [None] * 3)


def test_operating_reports_tie_to_the_statements(env):
    archive, raw = played_archive(env, 2, months=20)
    report = read_document(env.params, archive, "operating_report", 18, 1)
    assert "pages" not in report
    assert json_bytes(report) < PAGE_BYTES
    rows = {row[0]: dict(zip(report["columns"], row, strict=True)) for row in report["lines"]}
    for month in range(8, 19):
        row, flow = rows[date_label(month)], columns(env.params, archive, "cash_flow_statement", month)[1][0]
        balances = columns(env.params, archive, "balance_sheet", month)[1]
        assert row["originations"] == -flow["Loans originated"]
        assert row["recovered"] == flow["Recoveries of loans charged off"]
        assert row["collections"] == row["recovered"] + flow["Loans repaid"] + flow["Interest collected"]
        rise = balances[0]["Loans, gross"] - balances[1]["Loans, gross"]
        assert rise == row["originations"] - flow["Loans repaid"] - row["charged off"]
        assert row["new borrowers"] == round(float(raw[month].flows.new_users))


def test_parameters_are_float_whatever_their_type():
    assert sum(prices(make_params()).values()) == pytest.approx(18 + 88_000 + 390)
