"""Statements in whole dollars that add up: every line, subtotal and tie between the four (design section 2.2).

The world keeps its books in float32, where balances of tens of millions are good to a few dollars. A reader adds up
what is printed, so the printed figures are tied: balances are rounded, and of each roll-forward one flow follows
from the others. No figure moves by more than the world's own rounding.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from arena_jax.ledger import Statements, statements
from arena_jax.params import Params
from arena_jax.structs import Books, Flows

_BALANCES = tuple(name for name in Books._fields if name not in ("flows", "debt_coupon", "tax_loss_carryforward"))


def on_host(tree: Any) -> Any:
    """A tree of scalars as float64 NumPy numbers."""
    return jax.tree.map(np.float64, jax.device_get(tree))


def _rounded(books: Books) -> Books:
    whole = {name: np.round(getattr(books, name)) for name in _BALANCES}
    # retained earnings close the balance sheet
    equity = whole["cash"] + whole["loans_gross"] - whole["allowance"] + whole["interest_receivable"] - (
        whole["accounts_payable"] + whole["tax_payable"] + whole["debt_principal"]
    )  # fmt: skip
    return books._replace(**(whole | {"retained_earnings": equity - whole["paid_in_capital"]}))


def books_before(books: Books) -> Books:
    """The balances a month earlier, rolled back through the month's flows: for the public statements of t = 0."""
    f = books.flows
    paid = f.originations + f.costs_paid + f.interest_expense + f.amortisation + f.tax_paid
    received = f.repayments + f.recoveries + f.interest_collected + f.equity_issued + f.debt_issued
    return books._replace(
        cash=books.cash - received + paid,
        loans_gross=books.loans_gross - f.originations + f.repayments + f.charge_offs,
        allowance=books.allowance - f.provision + f.charge_offs - f.recoveries,
        interest_receivable=books.interest_receivable - f.interest_income + f.interest_collected,
        accounts_payable=books.accounts_payable - f.operating_cost + f.costs_paid,
        tax_payable=books.tax_payable - f.tax_expense + f.tax_paid,
        debt_principal=books.debt_principal - f.debt_issued + f.amortisation,
        paid_in_capital=books.paid_in_capital - f.equity_issued,
        shares=books.shares - f.shares_issued,
    )


def tied(before: Books, books: Books) -> Books:
    """`books` of a month (float64 scalars) in whole dollars, flows tied to its balances and to those `before` it.

    before: the tied books of the month before; of the first month, its balances.
    """
    f = jax.tree.map(np.round, books.flows)
    old = _rounded(before)
    # what investors paid is what their notice says, so the capital adds it up
    new = _rounded(books._replace(paid_in_capital=old.paid_in_capital + f.equity_issued))
    amortisation = old.debt_principal + f.debt_issued - new.debt_principal
    originations = new.loans_gross - old.loans_gross + f.repayments + f.charge_offs
    provision = new.allowance - old.allowance + f.charge_offs - f.recoveries
    costs_paid = old.accounts_payable + f.operating_cost - new.accounts_payable
    tax_expense = new.tax_payable - old.tax_payable + f.tax_paid  # so that no tax is paid but when it is due
    # cash is what was verified, so the interest collected takes up what float32 left over
    paid = originations + costs_paid + f.interest_expense + amortisation + f.tax_paid
    received = f.repayments + f.recoveries + f.equity_issued + f.debt_issued
    interest_collected = new.cash - old.cash + paid - received
    interest_income = interest_collected + new.interest_receivable - old.interest_receivable
    flows = Flows(
        originations=originations,
        repayments=f.repayments,
        charge_offs=f.charge_offs,
        recoveries=f.recoveries,
        new_users=f.new_users,
        interest_income=interest_income,
        provision=provision,
        operating_cost=f.operating_cost,
        interest_expense=f.interest_expense,
        tax_expense=tax_expense,
        net_income=interest_income - f.interest_expense - provision - f.operating_cost - tax_expense,
        interest_collected=interest_collected,
        costs_paid=costs_paid,
        amortisation=amortisation,
        tax_paid=f.tax_paid,
        equity_issued=f.equity_issued,
        debt_issued=f.debt_issued,
        shares_issued=new.shares - old.shares,
    )
    return new._replace(flows=flows)


def whole_statements(params: Params, books: Books) -> Statements:
    """The four statements of tied `books` as whole numbers."""
    plain = dataclasses.replace(params, debt_term=np.float64(params.debt_term))
    shown = statements(plain, books)
    current: Any = np.round(shown.balance.debt_current)
    balance = shown.balance._replace(debt_current=current, debt_noncurrent=books.debt_principal - current)
    return jax.tree.map(int, shown._replace(balance=balance))
