"""benchmarks/calibrate.py: the same seed gives the same file; what it measures is what `rollout` plays."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import arena_jax
from arena_jax.analysis.fidelity import Finding
from arena_jax.params import FIELDS

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "calibrate.py"
RESULT = PROGRAM.parent / "results" / "calibration.json"


@pytest.fixture(scope="module")
def calibrate():
    spec = importlib.util.spec_from_file_location("calibrate", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    sys.modules["calibrate"] = module
    spec.loader.exec_module(module)
    return module


def test_bounds_hold_the_defaults_and_a_start_off_them(calibrate):
    assert len(calibrate.FITTED) <= 8
    for name, (low, high) in zip(calibrate.FITTED, calibrate.bounds(), strict=True):
        limits, default = FIELDS[name].metadata, FIELDS[name].default
        assert limits["source"] == "calibrated here"  # nothing published is fitted
        assert limits["low"] <= low < 0.8 * default and 1.2 * default < high <= limits["high"]


def test_loss_is_one_allowance_squared(calibrate):
    measured, published = np.array([[1.0, 5.0], [0.0, 3.0]]), np.array([0.0, 3.0])
    assert calibrate.losses(measured, published, np.array([1.0, 4.0])).tolist() == [1.25, 0.0]
    assert calibrate.losses(measured, published, np.array([np.inf, 4.0])).tolist() == [0.25, 0.0]


def test_a_candidate_plays_as_rollout_does(calibrate):
    anchor = Finding("rounds", "replication", "approvals", "near", policy="greedy-equity", published=8.3, runs=50)
    simulator = calibrate.Simulator([anchor])
    candidates = {name: np.array([FIELDS[name].default, FIELDS[name].default]) for name in calibrate.FITTED}
    candidates["equity_logit"] = np.array([1.0, 0.5])
    measured = simulator.measure(candidates, 3, 64)
    for row, logit in enumerate((1.0, 0.5)):
        env, policy = arena_jax.make(equity_logit=logit), arena_jax.make_policy("greedy-equity")
        record = arena_jax.rollout(env, policy, jax.random.key(3), 64)
        assert measured[row, 0] == record.approvals.mean()


def test_the_committed_calibration_supports_the_defaults():
    found = json.loads(RESULT.read_text())
    assert found["fresh"]["came_back"] and found["fresh"]["defaults_inside_the_fits_region"]
    for name, row in found["parameters"].items():
        assert row["default"] == FIELDS[name].default, f"{name} has changed: run benchmarks/calibrate.py again"


@pytest.mark.slow
def test_one_seed_gives_one_file(tmp_path):
    for name in ("a", "b"):
        out = tmp_path / f"{name}.json"
        command = [sys.executable, str(PROGRAM), "--quick", "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr  # so short a search need not come back
        assert "sensitivity" in done.stdout
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
