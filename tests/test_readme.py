"""The README's Python snippets run as written and print what it says."""

import json
import os
import re
import sys
from functools import partial
from pathlib import Path

import openai
import pytest
from readme_tables import rendered
from standin import standin

from arena_jax.llm.runs import new_run, played_episodes
from arena_jax.llm.submission import problems_of

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```\n", README, flags=re.DOTALL)


def test_quickstart_prints_what_the_readme_says(capsys):
    quickstart, *_ = SNIPPETS
    assert len([line for line in quickstart.splitlines() if line.strip()]) <= 12
    exec(compile(quickstart, "README.md", "exec"), {})
    shown = README.partition("It prints\n\n```\n")[2].partition("```")[0]
    assert capsys.readouterr().out == shown


def test_the_loop_plays_a_run_with_any_openai_compatible_server(monkeypatch, capsys, tmp_path):
    """The README's code, as it stands, against a model on loopback: survives a restart, ends and stops."""
    _, loop, _ = SNIPPETS
    assert len([line for line in loop.splitlines() if line.strip()]) <= 25
    replies = ["Let me see.", [("verify_cash_position", "{"), ("save_note", {"text": "watch it"}), ("pass", {})], 500]

    def reply(request):
        return replies.pop(0) if replies else [("pass", {})] if "watch it" in str(request) else "I resign."

    monkeypatch.chdir(tmp_path)
    new_run(tmp_path / "runs" / "mine", [7, 8])
    with standin(reply) as (url, requests):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        monkeypatch.setattr(openai, "OpenAI", partial(openai.OpenAI, max_retries=0))
        with pytest.raises(openai.InternalServerError):
            exec(compile(loop, "README.md", "exec"), {})
        assert played_episodes(tmp_path / "runs" / "mine")[0].status == "in progress"
        exec(compile(loop, "README.md", "exec"), {})
    first, second = played_episodes(tmp_path / "runs" / "mine")
    assert (first.status, first.refused, first.player) == ("bankrupt", 1, "my-agent + my-model")
    assert (second.status, second.record.score) == ("agent_stopped", 0.0)
    assert first.tokens["input_tokens"] + second.tokens["input_tokens"] == 100 * (len(requests) - 1)
    assert all(len(request["tools"]) == 9 for request in requests)
    assert problems_of(tmp_path / "runs" / "mine") == []


def test_an_mcp_client_makes_its_first_call(monkeypatch, capfd, tmp_path):
    *_, client = SNIPPETS
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    new_run(tmp_path / "runs" / "mine", [7])
    exec(compile(client, "README.md", "exec"), {})
    answer = json.loads(capfd.readouterr().out)
    assert (answer["cash"], answer["tool_calls_left"]) == (15_000_000, 19)


def test_tables_are_those_of_the_code():
    assert rendered(README) == README, "run: python tests/readme_tables.py"
