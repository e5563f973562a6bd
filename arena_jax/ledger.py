"""Both books of the company, accrual and cash, and the four statements (design section 2.2, step 4).

Elementwise over any batch shape [...]. Every month: assets = liabilities + equity; the cash-flow statement explains
the change in cash, direct and indirect; retained earnings roll by net income; the allowance rolls by provision,
charge-offs and recoveries.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from arena_jax.operations import MONTHS_A_YEAR, Operations
from arena_jax.params import Params
from arena_jax.structs import WINDOW, Books, Flows

QUARTER = 3


def total_assets(books: Books) -> jax.Array:
    """Cash, loans net of the allowance and interest receivable, float[...] $."""
    return books.cash + books.loans_gross - books.allowance + books.interest_receivable


def revenue_ttm(revenue: jax.Array) -> jax.Array:
    """Sum float[...] $ of the window float[12, ...], in a fixed order: a compiler may reorder a reduction by size."""
    total = revenue[0]
    for row in range(1, WINDOW):
        total = total + revenue[row]
    return total


def income_tax(params: Params, pretax: jax.Array, carryforward: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Tax expense $ and the new loss carryforward $ for a month's pre-tax income (IRC sections 11 and 172)."""
    income = jnp.maximum(pretax, 0.0)
    used = jnp.minimum(carryforward, params.loss_limit * income)
    return params.tax_rate * (income - used), carryforward - used + jnp.maximum(-pretax, 0.0)


def book_month(params: Params, loss_rate: jax.Array, month: jax.Array, books: Books, ops: Operations) -> Books:
    """Both books of `month` (int32), before funding settles: closing balances and the month's flows."""
    target_allowance = params.allowance_months * loss_rate * ops.loans_gross  # ASC 326 expected credit loss
    provision = target_allowance - (books.allowance - ops.charge_offs + ops.recoveries)
    interest_expense = books.debt_coupon / MONTHS_A_YEAR
    pretax = ops.interest_income - provision - ops.operating_cost - interest_expense
    tax_expense, carryforward = income_tax(params, pretax, books.tax_loss_carryforward)
    net_income = pretax - tax_expense

    tax_due = books.tax_payable + tax_expense
    tax_paid = jnp.where(month % QUARTER == QUARTER - 1, tax_due, 0.0)
    amortisation = books.debt_principal / params.debt_term
    interest_collected = books.interest_receivable + ops.interest_income - ops.interest_late
    costs_paid = books.accounts_payable + ops.operating_cost - ops.cost_late
    cash = (
        books.cash
        + (ops.repayments + ops.recoveries + interest_collected)
        - (ops.originations + costs_paid + interest_expense + amortisation + tax_paid)
    )
    none = jnp.zeros_like(cash)
    flows = Flows(
        originations=ops.originations,
        repayments=ops.repayments,
        charge_offs=ops.charge_offs,
        recoveries=ops.recoveries,
        new_users=ops.new_users,
        interest_income=ops.interest_income,
        provision=provision,
        operating_cost=ops.operating_cost,
        interest_expense=interest_expense,
        tax_expense=tax_expense,
        net_income=net_income,
        interest_collected=interest_collected,
        costs_paid=costs_paid,
        amortisation=amortisation,
        tax_paid=tax_paid,
        equity_issued=none,
        debt_issued=none,
        shares_issued=none,
    )
    return Books(
        users=ops.users,
        cash=cash,
        loans_gross=ops.loans_gross,
        allowance=target_allowance,
        interest_receivable=ops.interest_late,
        accounts_payable=ops.cost_late,
        tax_payable=tax_due - tax_paid,
        debt_principal=books.debt_principal - amortisation,
        debt_coupon=books.debt_coupon * (1.0 - 1.0 / params.debt_term),
        retained_earnings=books.retained_earnings + net_income,
        paid_in_capital=books.paid_in_capital,
        tax_loss_carryforward=carryforward,
        shares=books.shares,
        flows=flows,
    )


class IncomeStatement(NamedTuple):
    """Of one month, $."""

    interest_income: jax.Array
    interest_expense: jax.Array
    net_interest_income: jax.Array
    provision: jax.Array
    operating_cost: jax.Array
    pretax_income: jax.Array
    tax_expense: jax.Array
    net_income: jax.Array


class BalanceSheet(NamedTuple):
    """As a month ends, settlements at the turn of the month included, $."""

    cash: jax.Array
    loans_gross: jax.Array
    allowance: jax.Array
    loans_net: jax.Array
    interest_receivable: jax.Array
    total_assets: jax.Array
    accounts_payable: jax.Array
    tax_payable: jax.Array
    debt_current: jax.Array  # due within twelve months
    debt_noncurrent: jax.Array
    total_liabilities: jax.Array
    paid_in_capital: jax.Array
    retained_earnings: jax.Array
    total_equity: jax.Array


class CashFlowStatement(NamedTuple):
    """Of one month, $. Direct lines, the indirect reconciliation of the operating part, and disclosures."""

    interest_collected: jax.Array
    costs_paid: jax.Array
    interest_paid: jax.Array
    tax_paid: jax.Array
    operating: jax.Array
    operating_indirect: jax.Array  # net income, non-cash items and working capital: equals `operating`
    originations: jax.Array
    repayments: jax.Array
    recoveries: jax.Array
    investing: jax.Array
    equity_issued: jax.Array
    debt_issued: jax.Array
    amortisation: jax.Array
    financing: jax.Array
    change_in_cash: jax.Array
    opening_cash: jax.Array
    closing_cash: jax.Array


class EquityStatement(NamedTuple):
    """Shares, capital and retained earnings over one month; $ but the shares."""

    opening_shares: jax.Array
    shares_issued: jax.Array
    closing_shares: jax.Array
    opening_equity: jax.Array
    equity_issued: jax.Array
    net_income: jax.Array
    closing_equity: jax.Array


class Statements(NamedTuple):
    """The four statements of the month that ended before the month that opens."""

    income: IncomeStatement
    balance: BalanceSheet
    cash_flow: CashFlowStatement
    equity: EquityStatement


def balance_sheet(params: Params, books: Books) -> BalanceSheet:
    """The balance sheet on the balances of `books`."""
    debt_current = books.debt_principal * (1.0 - (1.0 - 1.0 / params.debt_term) ** WINDOW)
    return BalanceSheet(
        cash=books.cash,
        loans_gross=books.loans_gross,
        allowance=books.allowance,
        loans_net=books.loans_gross - books.allowance,
        interest_receivable=books.interest_receivable,
        total_assets=total_assets(books),
        accounts_payable=books.accounts_payable,
        tax_payable=books.tax_payable,
        debt_current=debt_current,
        debt_noncurrent=books.debt_principal - debt_current,
        total_liabilities=books.accounts_payable + books.tax_payable + books.debt_principal,
        paid_in_capital=books.paid_in_capital,
        retained_earnings=books.retained_earnings,
        total_equity=books.paid_in_capital + books.retained_earnings,
    )


def statements(params: Params, books: Books) -> Statements:
    """The four statements of the month just ended, from its closing balances and flows; leaves float[...]."""
    flows, balance = books.flows, balance_sheet(params, books)
    net_interest_income = flows.interest_income - flows.interest_expense
    pretax = net_interest_income - flows.provision - flows.operating_cost
    income = IncomeStatement(
        interest_income=flows.interest_income,
        interest_expense=flows.interest_expense,
        net_interest_income=net_interest_income,
        provision=flows.provision,
        operating_cost=flows.operating_cost,
        pretax_income=pretax,
        tax_expense=flows.tax_expense,
        net_income=pretax - flows.tax_expense,
    )
    operating = flows.interest_collected - flows.costs_paid - flows.interest_expense - flows.tax_paid
    rise_in_receivable = flows.interest_income - flows.interest_collected
    rise_in_payables = (flows.operating_cost - flows.costs_paid) + (flows.tax_expense - flows.tax_paid)
    investing = flows.repayments + flows.recoveries - flows.originations
    financing = flows.equity_issued + flows.debt_issued - flows.amortisation
    change = operating + investing + financing
    cash_flow = CashFlowStatement(
        interest_collected=flows.interest_collected,
        costs_paid=flows.costs_paid,
        interest_paid=flows.interest_expense,
        tax_paid=flows.tax_paid,
        operating=operating,
        operating_indirect=flows.net_income + flows.provision - rise_in_receivable + rise_in_payables,
        originations=flows.originations,
        repayments=flows.repayments,
        recoveries=flows.recoveries,
        investing=investing,
        equity_issued=flows.equity_issued,
        debt_issued=flows.debt_issued,
        amortisation=flows.amortisation,
        financing=financing,
        change_in_cash=change,
        opening_cash=books.cash - change,
        closing_cash=books.cash,
    )
    equity = EquityStatement(
        opening_shares=books.shares - flows.shares_issued,
        shares_issued=flows.shares_issued,
        closing_shares=books.shares,
        opening_equity=balance.total_equity - flows.equity_issued - flows.net_income,
        equity_issued=flows.equity_issued,
        net_income=flows.net_income,
        closing_equity=balance.total_equity,
    )
    return Statements(income, balance, cash_flow, equity)
