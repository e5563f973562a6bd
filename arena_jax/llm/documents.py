"""The documents of Company XYZ: company file, contracts, statements, operating reports, funding notices.

Texts are templates in data/documents, filled with the world's parameters, so that prices tie to the model's costs.
Statements are tables of whole dollars that add up, with comparative columns. Everything is read through the archive,
which knows no statement past the last closing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from arena_jax.data import data_path
from arena_jax.errors import ArenaError
from arena_jax.llm.archive import OPENING, Archive
from arena_jax.llm.dates import date_label, year_end_before
from arena_jax.llm.paging import page_of
from arena_jax.llm.statements import whole_statements
from arena_jax.params import Params

TEXTS = (
    "company_overview",
    "cap_table",
    "board_approvals",
    "contract_customer_support",
    "contract_fraud_and_risk",
    "contract_software",
    "contract_hosting",
    "contract_marketing",
)
STATEMENTS = ("income_statement", "balance_sheet", "cash_flow_statement", "equity_statement")
MONTHLY = (*STATEMENTS, "operating_report")
DOCUMENTS = ("list", "financial_package", *STATEMENTS, "operating_report", "funding_notices", *TEXTS)
REPORTED = 12  # months that an operating report compares

# how the model's costs are split between suppliers; the last of each takes what is left
SUPPORT_SHARE, SOFTWARE_SHARE = 0.6, 0.55

# columns of the operating report; flash figures are of the first three
_OPERATING = ("active borrowers", "originations", "collections", "new borrowers", "charged off", "recovered")

Rows = list[list[Any]]


def prices(params: Params) -> dict[str, float]:
    """Contract prices in $: per borrower and month, per month, per new borrower. They add up to the model's costs."""
    servicing, fixed = round(float(params.servicing_cost), 2), round(float(params.fixed_cost), 2)
    support, software = round(SUPPORT_SHARE * servicing, 2), round(SOFTWARE_SHARE * fixed, 2)
    return {
        "support": support,
        "fraud": round(servicing - support, 2),
        "software": software,
        "hosting": round(fixed - software, 2),
        "marketing": round(float(params.acquisition_cost), 2),
    }


def _money(dollars: Any) -> str:
    return f"${dollars:,.0f}" if dollars == round(dollars) else f"${dollars:,.2f}"


def _fields(params: Params, archive: Archive) -> dict[str, str]:
    """What the templates are filled with."""
    opening, closed = archive.closed_month(OPENING), archive.closed_month(archive.closed_through)
    late_costs, late_interest = (f"{100 * float(lag):.4g}%" for lag in (params.cost_lag, params.interest_lag))
    noise = params.noise
    return {f"{name}_price": _money(price) for name, price in prices(params).items()} | {
        "cash": _money(opening.cash),
        "loans": _money(opening.loans_gross),
        "users": f"{opening.users:,.0f}",
        "loan_size": _money(float(params.loan_size)),
        "shares": f"{opening.shares:,.0f}",
        "founder_shares": f"{opening.shares - 2 * round(0.3 * opening.shares):,.0f}",
        "investor_shares": f"{round(0.3 * opening.shares):,.0f}",
        "price": _money(float(params.initial_price)),
        "paid_in_capital": _money(opening.paid_in_capital),
        "payment": f"About {late_costs} of the invoice falls due in the following month."
        if params.cost_lag > 0
        else "The invoice falls due in its own month.",
        "late_costs": f" About {late_costs} of a month's costs is paid one month late." if params.cost_lag > 0 else "",
        "late_interest": f" About {late_interest} of a month's interest is collected one month late."
        if params.interest_lag > 0
        else "",
        "usage_varies": "; usage makes the bill vary a little" if noise * params.sigma_servicing_cost > 0 else "",
        "traffic_varies": "; traffic makes the bill vary" if noise * params.sigma_fixed_cost > 0 else "",
        "projects_vary": "; projects make the bill vary" if noise * params.sigma_fixed_cost > 0 else "",
        "debt_term": f"{float(params.debt_term):g}",
        "max_request": _money(float(params.max_request)),
        "max_pending": "one request" if params.max_pending == 1 else f"{params.max_pending} requests",
        "closed_date": date_label(archive.closed_through),
        "issued_shares": f"{closed.shares - opening.shares:,.0f}",
        "closed_shares": f"{closed.shares:,.0f}",
    }


def read_document(params: Params, archive: Archive, name: str, month: int | None, page: int) -> dict[str, Any]:
    """One page of a document as plain data; raises `ArenaError` for a month or page that it does not have."""
    if month is not None and name not in MONTHLY:
        raise ArenaError(f"{name} is not a monthly document: leave month out")
    if name in TEXTS:
        text = data_path(f"documents/{name}.txt").read_text(encoding="utf-8").format(**_fields(params, archive))
        paragraphs, pages = page_of(text.strip().split("\n"), page)
        return {"document": name, "text": "\n".join(paragraphs), **pages}
    if name in STATEMENTS:
        month = archive.closed_through if month is None else month
        table = statement(params, archive, name, month)
        lines, pages = page_of(table.pop("lines"), page)
        return {"document": name, "month": month, **table, "lines": lines, **pages}
    return {"document": name, **_OTHERS[name](params, archive, month, page)}


def statement(params: Params, archive: Archive, name: str, month: int) -> dict[str, Any]:
    """One of `STATEMENTS` with all its lines: unit, columns, lines; raises `ArenaError` for a month not closed."""
    archive.closed_month(month)
    return _STATEMENTS[name](params, archive, month)


def _list(params: Params, archive: Archive, month: int | None, page: int) -> dict[str, Any]:
    closed, last = archive.closed_through, archive.last_month
    statements = f"months {OPENING} to {closed} ({date_label(OPENING)} to {date_label(closed)})"
    lines = [
        [
            "financial_package",
            f"main lines of {date_label(closed)}, the last closed month; latest flash figures if any",
        ],
        *[[name, statements] for name in STATEMENTS],
        ["operating_report", f"months {OPENING} to {last}; up to {closed} exact, later ones flash"],
        ["funding_notices", f"{len(archive.settled)} settled requests"],
        *[[name, "company file" if name in TEXTS[:3] else "contract in force"] for name in TEXTS],
    ]
    shown, pages = page_of(lines, page)
    return {"lines": shown, **pages}


def _package(params: Params, archive: Archive, month: int | None, page: int) -> dict[str, Any]:
    """What the notebook keeps of the records: the last closed statements and last month's flash figures."""
    books = archive.closed_month(archive.closed_through)
    shown = whole_statements(params, books)
    lines: dict[str, Any] = {
        "active borrowers": int(books.users),
        "cash": shown.balance.cash,
        "loans, gross": shown.balance.loans_gross,
        "allowance for credit losses": shown.balance.allowance,
        "interest receivable": shown.balance.interest_receivable,
        "total assets": shown.balance.total_assets,
        "accounts payable": shown.balance.accounts_payable,
        "tax payable": shown.balance.tax_payable,
        "debt": int(books.debt_principal),
        "total equity": shown.balance.total_equity,
        "shares": int(books.shares),
        "interest income": shown.income.interest_income,
        "interest expense": shown.income.interest_expense,
        "provision for credit losses": shown.income.provision,
        "operating expenses": shown.income.operating_cost,
        "income tax": shown.income.tax_expense,
        "net income": shown.income.net_income,
        "loans originated": shown.cash_flow.originations,
        "loans repaid": shown.cash_flow.repayments,
        "loans charged off": int(books.flows.charge_offs),
        "cash flow from operating activities": shown.cash_flow.operating,
    }
    found: dict[str, Any] = {
        "closed_month": archive.closed_through,
        "closed_date": date_label(archive.closed_through),
        "unit": "$, for the month or at its end; borrowers and shares in number",
        "lines": lines,
    }
    if archive.closed_through < archive.last_month:
        row = _operations(params, archive, archive.last_month)
        found["flash"] = dict(zip(("date", "status", "users", "originations", "collections"), row[:5], strict=True))
    page_of((), page)  # one page
    return found


def _operations(params: Params, archive: Archive, month: int) -> list[Any]:
    """Date, status, borrowers, originations and collections of a month: exact if closed, else flash.

    Then what only closed months tell: new borrowers, loans charged off, recoveries.
    """
    if month <= archive.closed_through:
        books = archive.closed_month(month)
        f = books.flows
        collections = f.repayments + f.recoveries + f.interest_collected
        figures, status = (books.users, f.originations, collections, f.new_users, f.charge_offs, f.recoveries), "closed"
    else:
        # the error is that of the closing known when the month's figures were drawn
        figures, status = (*archive.flash_month(month), None, None, None), "flash"
    return [date_label(month), status, *[None if figure is None else int(np.round(figure)) for figure in figures]]


def _report(params: Params, archive: Archive, month: int | None, page: int) -> dict[str, Any]:
    month = archive.last_month if month is None else month
    if not OPENING <= month <= archive.last_month:
        raise ArenaError(f"month must lie from {OPENING} to {archive.last_month} (last month), got {month}")
    rows = [_operations(params, archive, m) for m in range(max(OPENING, month - REPORTED + 1), month + 1)]
    lines, pages = page_of(rows, page)
    error = 100 * float(params.noise) * float(params.flash_error)
    note = f"flash figures carry a standard error of {error:.3g}% times the root of the months since the closing before"
    return {
        "month": month,
        "unit": "borrowers; $ a month",
        "columns": ["month", "status", *_OPERATING],
        "lines": lines,
        **({"note": note} if error > 0 and any(row[1] == "flash" for row in rows) else {}),
        **pages,
    }


def _notices(params: Params, archive: Archive, month: int | None, page: int) -> dict[str, Any]:
    rows = [
        [
            date_label(s.month_asked),
            date_label(s.month_settled),
            s.instrument,
            s.requested,
            s.received,
            s.rate if s.instrument == "debt" and s.received else None,
        ]
        for s in reversed(archive.settled)
    ]
    lines, pages = page_of(rows, page)
    return {
        "unit": "$; rate in % a year; received 0 is a refusal",
        "columns": ["asked", "settled", "instrument", "requested", "received", "rate"],
        "lines": lines,
        **pages,
    }


_OTHERS: dict[str, Callable[[Params, Archive, int | None, int], dict[str, Any]]] = {
    "list": _list,
    "financial_package": _package,
    "operating_report": _report,
    "funding_notices": _notices,
}


def _columns(lines: Sequence[tuple[str, str, int]], columns: Sequence[Any]) -> Rows:
    """A row per line (label, field, sign), a figure per column."""
    return [[label, *[sign * getattr(column, name) for column in columns]] for label, name, sign in lines]


def _total(statements: Sequence[Any]) -> Any:
    """Line by line the sum of statements over time."""
    return type(statements[0])(*[sum(values) for values in zip(*statements, strict=True)])


def _periods(params: Params, archive: Archive, month: int, part: str) -> tuple[list[str], list[Any]]:
    """A flow statement's columns: the month, the month before, and the year to date."""
    shown = lambda m: getattr(whole_statements(params, archive.closed_month(m)), part)
    heads, columns = [date_label(month)], [shown(month)]
    if month > OPENING:
        year = [shown(m) for m in range(year_end_before(month) + 1, month + 1)]
        heads += [date_label(month - 1), "Year to date"]
        columns += [shown(month - 1), _total(year)]
    return heads, columns


_INCOME = (
    ("Interest income", "interest_income", 1),
    ("Interest expense", "interest_expense", -1),
    ("Net interest income", "net_interest_income", 1),
    ("Provision for credit losses", "provision", -1),
    ("Operating expenses", "operating_cost", -1),
    ("Income before tax", "pretax_income", 1),
    ("Income tax", "tax_expense", -1),
    ("Net income", "net_income", 1),
)


def _income_statement(params: Params, archive: Archive, month: int) -> dict[str, Any]:
    heads, columns = _periods(params, archive, month, "income")
    return {"unit": "$", "columns": ["", *heads], "lines": _columns(_INCOME, columns)}


_BALANCE = (
    ("Cash", "cash", 1),
    ("Loans, gross", "loans_gross", 1),
    ("Allowance for credit losses", "allowance", -1),
    ("Loans, net", "loans_net", 1),
    ("Interest receivable", "interest_receivable", 1),
    ("Total assets", "total_assets", 1),
    ("Accounts payable", "accounts_payable", 1),
    ("Tax payable", "tax_payable", 1),
    ("Debt due within twelve months", "debt_current", 1),
    ("Debt due later", "debt_noncurrent", 1),
    ("Total liabilities", "total_liabilities", 1),
    ("Paid-in capital", "paid_in_capital", 1),
    ("Retained earnings", "retained_earnings", 1),
    ("Total equity", "total_equity", 1),
)


def _balance_sheet(params: Params, archive: Archive, month: int) -> dict[str, Any]:
    ends = [month]
    for earlier in (month - 1, year_end_before(month)):
        if earlier >= OPENING and earlier not in ends:
            ends.append(earlier)
    columns = [whole_statements(params, archive.closed_month(end)).balance for end in ends]
    lines = _columns(_BALANCE, columns)
    lines.append(
        ["Total liabilities and equity", *[column.total_liabilities + column.total_equity for column in columns]]
    )
    return {"unit": "$ at the month's end", "columns": ["", *[date_label(end) for end in ends]], "lines": lines}


_CASH_FLOW = (
    ("Interest collected", "interest_collected", 1),
    ("Operating expenses paid", "costs_paid", -1),
    ("Interest paid", "interest_paid", -1),
    ("Income tax paid", "tax_paid", -1),
    ("Net cash from operations", "operating", 1),
    ("Loans originated", "originations", -1),
    ("Loans repaid", "repayments", 1),
    ("Recoveries of loans charged off", "recoveries", 1),
    ("Net cash from investing", "investing", 1),
    ("Equity issued", "equity_issued", 1),
    ("Debt issued", "debt_issued", 1),
    ("Debt repaid", "amortisation", -1),
    ("Net cash from financing", "financing", 1),
    ("Net change in cash", "change_in_cash", 1),
    ("Cash at the beginning", "opening_cash", 1),
    ("Cash at the end", "closing_cash", 1),
)


def _cash_flow_statement(params: Params, archive: Archive, month: int) -> dict[str, Any]:
    heads, columns = _periods(params, archive, month, "cash_flow")
    incomes = _periods(params, archive, month, "income")[1]
    if month > OPENING:  # balances of the year to date run from its opening to its closing
        first = whole_statements(params, archive.closed_month(year_end_before(month) + 1)).cash_flow
        columns[-1] = columns[-1]._replace(opening_cash=first.opening_cash, closing_cash=columns[0].closing_cash)
    pairs = list(zip(columns, incomes, strict=True))
    receivable = [flow.interest_collected - income.interest_income for flow, income in pairs]
    payables = [
        (income.operating_cost - flow.costs_paid) + (income.tax_expense - flow.tax_paid) for flow, income in pairs
    ]
    lines = [
        *_columns(_CASH_FLOW, columns),
        ["Reconciliation: net income", *[income.net_income for income in incomes]],
        ["Provision for credit losses", *[income.provision for income in incomes]],
        ["Change in interest receivable", *receivable],
        ["Change in payables", *payables],
        ["Net cash from operations", *[flow.operating_indirect for flow in columns]],
    ]
    return {"unit": "$", "columns": ["", *heads], "lines": lines}


def _equity_statement(params: Params, archive: Archive, month: int) -> dict[str, Any]:
    """Two months of changes, from balance to balance."""
    lines: Rows = []
    for m in range(max(OPENING, month - 1), month + 1):
        books = archive.closed_month(m)
        shown = whole_statements(params, books).equity
        paid, kept = int(books.paid_in_capital), int(books.retained_earnings)
        opening_paid, opening_kept = paid - shown.equity_issued, kept - shown.net_income
        opening = [shown.opening_shares, opening_paid, opening_kept, shown.opening_equity]
        if not lines:
            lines.append([f"Opening, {date_label(m)}", *opening])
        lines += [
            [f"Issued, {date_label(m)}", shown.shares_issued, shown.equity_issued, 0, shown.equity_issued],
            [f"Net income, {date_label(m)}", 0, 0, shown.net_income, shown.net_income],
            [f"Closing, {date_label(m)}", shown.closing_shares, paid, kept, shown.closing_equity],
        ]
    return {
        "unit": "shares; $ of paid-in capital, retained earnings and total equity",
        "columns": ["", "shares", "paid-in", "retained", "total"],
        "lines": lines,
    }


_STATEMENTS: dict[str, Callable[[Params, Archive, int], dict[str, Any]]] = {
    "income_statement": _income_statement,
    "balance_sheet": _balance_sheet,
    "cash_flow_statement": _cash_flow_statement,
    "equity_statement": _equity_statement,
}
