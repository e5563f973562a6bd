"""Ten faults planted one at a time in a copy of the source, each of which a test has to catch: `make verify` runs this.

Tests of golden values don't count: they would catch any change, right or wrong.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("arena_jax", "data", "tests", "pyproject.toml")
TESTS = ("tests/test_books.py",)  # its worked numbers catch them all, and quickly
TIMEOUT = 600  # seconds a run


@dataclass(frozen=True)
class Mutation:
    """`old`, found exactly once in `arena_jax/<file>`, becomes `new`."""

    name: str
    file: str
    old: str
    new: str


# fmt: off
MUTATIONS = (
    Mutation("sign of the provision", "ledger.py",
             "pretax = ops.interest_income - provision", "pretax = ops.interest_income + provision"),
    Mutation("recoveries dropped", "operations.py",
             "recoveries=params.recovery_rate * charge_offs", "recoveries=0.0 * charge_offs"),
    Mutation("tax without carryforward", "ledger.py",
             "used = jnp.minimum(carryforward, params.loss_limit * income)", "used = jnp.zeros_like(income)"),
    Mutation("allowance on opening loans", "ledger.py",
             "params.allowance_months * loss_rate * ops.loans_gross",
             "params.allowance_months * loss_rate * books.loans_gross"),
    Mutation("amortisation forgotten in the coupon", "ledger.py",
             "debt_coupon=books.debt_coupon * (1.0 - 1.0 / params.debt_term)", "debt_coupon=books.debt_coupon"),
    Mutation("delay of 0 to 5 months", "funding.py",
             "delay = params.delay_min + jnp.floor", "delay = params.delay_min - 1 + jnp.floor"),
    Mutation("fraction up to 1.3", "funding.py",
             "(params.fraction_max - params.fraction_min) * draws.fraction",
             "(params.fraction_max + 0.3 - params.fraction_min) * draws.fraction"),
    Mutation("round counted at the request", "month.py",
             "equity_rounds=acted.equity_rounds + settled.equity_approvals",
             "equity_rounds=acted.equity_rounds + sum(((p.instrument == EQUITY) & (p.granted > 0.0)"
             " & (p.month_asked == state.month)).astype(jnp.int32) for p in acted.pending)"),
    Mutation("check before settlement", "month.py",
             "jnp.where(books.cash < 0.0, BANKRUPT", "jnp.where(books.cash - proceeds < 0.0, BANKRUPT"),
    Mutation("revenue window of 11 months", "structs.py",
             "WINDOW = 12  #", "WINDOW = 11  #"),
)
# fmt: on


def run(copy: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A Python command in the copy, which comes before any installed version."""
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True, timeout=TIMEOUT
    )


def run_tests(copy: Path) -> subprocess.CompletedProcess[str]:
    return run(copy, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-k", "not golden", *TESTS)


def plant(copy: Path, mutation: Mutation) -> str | None:
    """The test that catches the mutation, or None; the copy is left as it was."""
    path = copy / "arena_jax" / mutation.file
    source = path.read_text(encoding="utf-8")
    path.write_text(source.replace(mutation.old, mutation.new), encoding="utf-8")
    result = run_tests(copy)
    path.write_text(source, encoding="utf-8")
    failed = re.search(r"^FAILED (\S+)", result.stdout, re.MULTILINE)
    if result.returncode not in (0, 1) or bool(failed) != bool(result.returncode):
        sys.exit(f"{mutation.name}: the tests could not run\n{result.stdout}{result.stderr}")
    return failed[1] if failed else None


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve()
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, copy / name)
        for mutation in MUTATIONS:
            found = (copy / "arena_jax" / mutation.file).read_text(encoding="utf-8").count(mutation.old)
            if found != 1:
                sys.exit(
                    f"{mutation.name}: {mutation.old!r} occurs {found} times in arena_jax/{mutation.file}, not once"
                )
        imported = run(copy, "-c", "import arena_jax; print(arena_jax.__file__)").stdout.strip()
        if not Path(imported).resolve().is_relative_to(copy):
            sys.exit(f"the copy is not what gets imported, but {imported}")
        result = run_tests(copy)
        if result.returncode != 0:
            sys.exit(f"the tests fail without any mutation\n{result.stdout}{result.stderr}")

        width = max(len(mutation.name) for mutation in MUTATIONS)
        print(f"{'mutation':<{width}} | caught by")
        survivors = 0
        for mutation in MUTATIONS:
            caught_by = plant(copy, mutation)
            survivors += caught_by is None
            print(f"{mutation.name:<{width}} | {caught_by or 'NOTHING'}", flush=True)
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
