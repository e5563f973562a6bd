"""What the benchmark programs share: where they ran, processes of their own, summaries, results."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import typer

from arena_jax.errors import ArenaError
from arena_jax.files import write_atomic

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
PACKAGES = ("arena_jax", "jax", "jaxlib", "numpy", "numba")


def main(command: Callable[..., None]) -> None:
    """Run a program's command; bad input is one line on stderr and exit code 2."""
    try:
        typer.run(command)
    except ArenaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _commit() -> str:
    """The commit of the checkout, marked where files differ from it; "unknown" outside a repository."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), flags=re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def surroundings() -> dict[str, Any]:
    """Where and with what a program runs: to stand beside every figure."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "system": platform.platform(),
        "processor": _processor(),
        "cores": available_cores(),
        "backend": jax.default_backend(),
        "devices": [device.device_kind for device in jax.devices()],
        "dtype": jnp.result_type(float).name,
    }


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _prepare(cores: int | None, environ: dict[str, str]) -> None:
    def end_with_parent() -> None:  # else a killed benchmark leaves its child behind
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    os.environ.update(environ)
    if cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def in_child(
    function: Callable[..., Any], *args: Any, cores: int | None = None, environ: dict[str, str] | None = None
) -> Any:
    """The result of a module's function in a fresh process: on some cores, with some environment variables.

    The thread pools of XLA and Numba take their size when they start, and memory peaks belong to a process.
    """
    if cores is not None and not hasattr(os, "sched_setaffinity"):
        raise ArenaError("limiting the cores of a process needs Linux")
    settings = (cores, environ or {})
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_prepare, initargs=settings) as pool:
        try:
            return pool.submit(function, *args).result()
        except BrokenProcessPool:
            raise ArenaError(f"the process of {function.__name__} was killed; is there enough memory?") from None


def peak_memory() -> int:
    """Highest resident memory of this process so far, bytes. `getrusage` would count the parent's before it started."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise ArenaError("the peak of resident memory needs Linux")
    return 1024 * int(found[1])


class Spent(NamedTuple):
    """Seconds by the clock, and of this process on all its cores."""

    seconds: float
    processor_seconds: float


NOTHING_SPENT = Spent(0.0, 0.0)


def clocks(less: Spent = NOTHING_SPENT) -> Spent:
    """What the clocks show, less an earlier reading (what was spent since), or less what was spent before."""
    return Spent(time.perf_counter() - less.seconds, time.process_time() - less.processor_seconds)


def summary(samples: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    q1, median, q3 = np.quantile(samples, [0.25, 0.5, 0.75]).tolist()
    return {"median": median, "q1": q1, "q3": q3}


def result_path(program: str) -> Path:
    """Where a program's results go unless told otherwise."""
    return RESULTS / f"{program}-{_commit()}.json"


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a result file whole or not at all."""
    write_atomic(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())
