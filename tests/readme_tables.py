"""Tables and measured sentences of the README, rendered from what the code reads and measured.

`python tests/readme_tables.py` rewrites them.
"""

import json
import re
from pathlib import Path

import jax

import arena_jax
from arena_jax.analysis.contrast_view import ablation_rows, comparison_rows
from arena_jax.analysis.fidelity import Verdict, published_findings
from arena_jax.analysis.fidelity_view import fidelity_cells
from arena_jax.analysis.sensitivity_view import map_rows, plane_rows
from arena_jax.analysis.table import figure, interval
from arena_jax.cli.listing import LISTS
from arena_jax.specs import Spec
from benchmarks.baselines_table import pair_rows, result_rows
from benchmarks.cost import summary as cost_summary
from benchmarks.precision import summary as precision_summary
from benchmarks.terms import cells as terms_cells

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
SOURCES = {"replication": "replication", "table1": "Table 1", "rq2": "RQ2", "rq3": "RQ3"}
MARKED = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", flags=re.DOTALL)


def markdown(rows):
    """A Markdown table of dicts with equal keys."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *[row.values() for row in rows]]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def spec_rows(tree):
    specs = jax.tree.leaves(tree, is_leaf=lambda leaf: isinstance(leaf, Spec))
    return [
        {
            "field": f"`{spec.name}`",
            "dtype": spec.dtype.name,
            "bounds": f"[{spec.low:g}, {spec.high:g}]",
            "unit": spec.unit,
        }
        for spec in specs
        if not spec.name.endswith((".value", ".age"))
    ]


def found(name):
    """What `arena-jax ... --json > benchmarks/results/<name>.json` found; the README has the commands."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def fidelity_rows():
    """What `arena-jax fidelity --json > benchmarks/results/fidelity.json` found."""
    rows = {row["finding"]: row for row in found("fidelity")["findings"]}
    for finding in published_findings()[1]:
        row = rows[finding.claim]
        figures = [row[name] for name in ("measured", "low", "high", "allowance", "verdict")]
        yield fidelity_cells(Verdict(finding, *figures)) | {"Source": SOURCES[finding.source]}


def throughput_rows():
    """What `python -m benchmarks.throughput --out benchmarks/results/throughput.json` found on two cores."""
    for cell in found("throughput")["comparison"]:
        if cell["cores"] == 2 and cell["batch"] in (4096, 16_384, 65_536):
            ratios = {f"x {name}": f"{ratio:.3g}" for name, ratio in cell["ratio"].items()}
            share = {"of the bound": f"{cell['bound_share']:.0%}"}
            yield {"policy": f"`{cell['policy']}`", "batch": f"{cell['batch']:,}"} | ratios | share


def terms_rows():
    """What `python -m benchmarks.terms --out benchmarks/results/terms.json` found."""
    return [terms_cells(row) for row in found("terms")["answers"]]


def amount_rows():
    """What `arena-jax evaluate --env-set disciplined=true ... --json > benchmarks/results/amounts.json` found."""
    for row in found("amounts")["results"]:
        survived, kept, raised = (row["metrics"][name] for name in ("full_survival", "value_kept", "raised"))
        yield {
            "policy": f"`{row['policy']}`",
            "survival": figure("share", survived["mean"]),
            "raised": figure("$", raised["mean"]),
            "value kept (95%)": f"{figure('$', kept['mean'])} ({interval('$', kept['low'], kept['high'])})",
        }


def baselines():
    """What `python -m benchmarks.baselines_table` found, by table."""
    paper, disciplined = found("baselines")["variants"]
    return {"paper": result_rows(paper), "disciplined": result_rows(disciplined), "pairs": pair_rows(disciplined)}


def tables():
    """Table name -> Markdown."""
    env = arena_jax.make()
    listed = {
        name: markdown([{k: f"`{v}`" if i == 0 else v for i, (k, v) in enumerate(row.items())} for row in rows()])
        for name, rows in LISTS.items()
    }
    return listed | {
        "action": markdown(spec_rows(env.action_spec)),
        "observation": markdown(spec_rows(env.observation_spec)),
        "compare": markdown(comparison_rows(found("compare")["metrics"], found("compare")["pairs"])),
        "ablation": markdown(ablation_rows(found("ablation")["results"][0])),
        "planes": markdown(plane_rows(found("sensitivity"))),
        "ranking": markdown(map_rows(found("sensitivity"))),
        "fidelity": markdown(list(fidelity_rows())),
        "terms": markdown(terms_rows()),
        "amounts": markdown(list(amount_rows())),
        "precision": precision_summary(found("precision")),
        "cost": f"{cost_summary(found('cost'))} Two cores; other machines, other seconds.",
        "throughput": markdown(list(throughput_rows())),
        **{name: markdown(rows) for name, rows in baselines().items()},
    }


def rendered(text):
    """The README with every marked table rendered afresh."""
    made = tables()
    return MARKED.sub(lambda match: f"<!-- table: {match[1]} -->\n{made[match[1]]}\n<!-- end -->", text)


if __name__ == "__main__":
    README.write_text(rendered(README.read_text(encoding="utf-8")), encoding="utf-8")
