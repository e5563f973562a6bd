"""The README's Python snippets run as written and print what it says."""

import re
from pathlib import Path

from readme_tables import rendered

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```\n", README, flags=re.DOTALL)


def test_quickstart_prints_what_the_readme_says(capsys):
    (quickstart,) = SNIPPETS
    assert len([line for line in quickstart.splitlines() if line.strip()]) <= 12
    exec(compile(quickstart, "README.md", "exec"), {})
    shown = README.partition("It prints\n\n```\n")[2].partition("```")[0]
    assert capsys.readouterr().out == shown


def test_tables_are_those_of_the_code():
    assert rendered(README) == README, "run: python tests/readme_tables.py"
