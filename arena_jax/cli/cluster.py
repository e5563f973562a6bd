"""Ray, for what outgrows one machine: a verb hands it calls, and Ray places them and starts lost ones again."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Annotated, Any

import jax
import typer

from arena_jax.cli.cache import use_cache
from arena_jax.errors import ArenaError, brief
from arena_jax.version import __version__

RETRIES = 5  # how often Ray starts a call again whose worker or machine was lost
PATIENCE = 20.0  # seconds that a call waits for a journal of one that was lost
HERE = "local"  # the address of a cluster of this machine alone
CPUS, GPUS = 1, 0  # of a task unless asked for others
LEAST = 1e-4  # share of a CPU or GPU that Ray can tell from none
TIMEOUT = 5.0  # seconds in which an address must answer
IN_FLIGHT = 1024  # calls that Ray knows of at a time
# of the environment what may decide the bits of a result; where a worker plays and what it keeps is another matter
_PASSED, _OWN = ("JAX_", "XLA_", "NVIDIA_TF32"), ("JAX_PLATFORM", "JAX_COMPILATION_CACHE", "XLA_PYTHON_CLIENT")


def _leave_accelerators(address: str | None) -> str | None:
    """Keep this process to its CPU where workers play: an accelerator is theirs."""
    if address is not None:
        jax.config.update("jax_platforms", "cpu")
    return address


RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        callback=_leave_accelerators,
        metavar="[ADDRESS]",
        help="Play on Ray at HOST:PORT, auto, or local; without an address where ray.init() finds it, or else here.",
    ),
]
RayCpus = Annotated[float, typer.Option(help="CPUs that Ray keeps for a task.", min=0)]
RayGpus = Annotated[float, typer.Option(help="GPUs that Ray keeps for a task; without, it plays on CPUs.", min=0)]


@dataclass(frozen=True)
class Cluster:
    """Where Ray places calls, and what it keeps for each. No call leaves anything behind that a second one minds."""

    cpus: float
    gpus: float
    no_cache: bool

    def map(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], common: Sequence[Any] = ()
    ) -> Iterator[Any]:
        """What a function of this package returns for each tuple of arguments, in the order in which they end.

        common: first arguments of all calls, which are sent to a machine once.
        Raises `ArenaError` for the first call that fails, or whose worker was lost `RETRIES` times and once more.
        """
        import ray

        task = ray.remote(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES, runtime_env={"env_vars": self._environment()}
        )(_call)
        here = (__version__, os.getcwd(), self.gpus > 0, self.no_cache, function)
        first = [ray.put(argument) for argument in common]
        left = iter(calls)
        waiting: list[Any] = []
        while True:
            waiting += [task.remote(*here, *first, *arguments) for arguments in islice(left, IN_FLIGHT - len(waiting))]
            if not waiting:
                return
            ended, waiting = ray.wait(waiting)
            try:
                yield ray.get(ended[0])
            except ray.exceptions.RayTaskError as error:
                fault = error.cause
                raise ArenaError(str(fault) if isinstance(fault, ArenaError) else brief(fault)) from None
            except (
                ray.exceptions.WorkerCrashedError,
                ray.exceptions.NodeDiedError,
                ray.exceptions.OutOfMemoryError,
            ) as error:
                lost = f"Ray lost a task {RETRIES + 1} times ({brief(error)})"
                raise ArenaError(f"{lost}; run the same command again to go on") from None
            except ray.exceptions.RayError as error:
                raise ArenaError(f"Ray can't play a task: {brief(error)}") from None

    def _environment(self) -> dict[str, str]:
        """Variables of a worker."""
        found = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
        found = {name: value for name, value in found.items() if not name.startswith(_OWN)}
        found["JAX_PLATFORMS"] = "" if self.gpus else "cpu"
        if 0 < self.gpus < 1:
            found["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several share a GPU's memory
        return found


def _call(
    version: str, folder: str, on_gpus: bool, no_cache: bool, function: Callable[..., Any], *arguments: Any
) -> Any:
    """A call in a worker of Ray's, in the folder and under the version of who asks for it, on what was asked for."""
    here = f"worker on {socket.gethostname()}"
    if version != __version__:
        raise ArenaError(f"{here}: it has arena_jax {__version__}, this is {version}")
    if on_gpus and jax.default_backend() == "cpu":
        raise ArenaError(f"{here}: --ray-gpus asks for GPUs, and JAX finds none there (pip install 'jax[cuda12]')")
    with suppress(OSError):  # it need not be there, unless a path is relative to it
        os.chdir(folder)
    use_cache(no_cache)
    try:
        return function(*arguments)
    except ArenaError as error:
        raise ArenaError(f"{here}: {error}") from None


@contextmanager
def _heard() -> Iterator[Callable[[], list[str]]]:
    """Keep standard error, where Ray writes past Python, to oneself; yields what gives its lines, without stamps."""
    with tempfile.TemporaryFile() as kept:
        before = os.dup(2)
        os.dup2(kept.fileno(), 2)
        lines = lambda: os.pread(kept.fileno(), 2**16, 0).decode(errors="replace").splitlines()
        try:
            yield lambda: [re.sub(r"^\[[^]]*\] (\S+\.cc:\d+: )?", "", line) for line in lines()]
        finally:
            os.dup2(before, 2)
            os.close(before)


@contextmanager
def cluster(address: str | None, cpus: float, gpus: float, no_cache: bool) -> Iterator[Cluster | None]:
    """Ray at an address, "" for what it finds itself; nothing where there is none. Raises `ArenaError` in one line."""
    if address is None:
        if (cpus, gpus) != (CPUS, GPUS):
            raise ArenaError("--ray-cpus and --ray-gpus are what Ray keeps for a task: give --ray too")
        yield None
        return
    if 0 < cpus < LEAST or 0 < gpus < LEAST or (gpus > 1 and gpus % 1):
        raise ArenaError(f"--ray-cpus and --ray-gpus are 0 or from {LEAST:g} on, GPUs above 1 whole; "
                         f"got {cpus:g} and {gpus:g}")  # fmt: skip
    host, _, port = address.rpartition(":")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if port.isdecimal():
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")  # of a minute each, and Ray would make twenty
    try:
        import ray
    except ImportError:
        raise ArenaError("--ray needs Ray: pip install 'arena_jax[ray]'") from None
    with _heard() as said, warnings.catch_warnings():
        # what Ray forks becomes another program at once
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        try:
            if port.isdecimal():
                socket.create_connection((host, int(port)), TIMEOUT).close()  # Ray would wait longer
            may_grow = _join(ray.init, address)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            why = [brief(error), *said()][-1]
            raise ArenaError(f"can't reach Ray{f' at {address}' if address else ''}: {why}") from None
    with redirect_stdout(sys.stderr):  # where Ray tells of what it has lost
        try:
            _check_room(ray.nodes(), cpus, gpus, may_grow)
            yield Cluster(cpus, gpus, no_cache)
        finally:
            ray.shutdown()


def _join(init: Callable[..., Any], address: str) -> bool:
    """Join a cluster by `ray.init`, or start one here; whether it may grow beyond this machine."""
    begin = partial(init, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    if not address:
        try:
            begin("auto")
            return True
        except ConnectionError:  # there is none
            address = HERE
    begin(address)
    return address != HERE


def _check_room(nodes: Sequence[Mapping[str, Any]], cpus: float, gpus: float, may_grow: bool) -> None:
    """Refuse what Ray would wait for in silence; in a cluster that may grow, only say that it waits.

    nodes: machines as `ray.nodes()` tells of them; a task is played on one.
    """
    wanted = {"CPU": cpus, "GPU": gpus}
    there = [node["Resources"] for node in nodes if node["Alive"]]
    if any(all(one.get(name, 0.0) >= count for name, count in wanted.items()) for one in there):
        return
    found = ", ".join(sorted({f"{one.get('CPU', 0):g} CPUs and {one.get('GPU', 0):g} GPUs" for one in there}))
    short = f"a task asks for {cpus:g} CPUs and {gpus:g} GPUs (--ray-cpus, --ray-gpus), Ray's machines have {found}"
    if not may_grow:
        raise ArenaError(short)
    print(f"notice: {short}; it waits for a larger one", file=sys.stderr)


def with_address(arguments: Sequence[str]) -> list[str]:
    """Arguments of the command line, "" put after a `--ray` without an address: typer's options have no such form."""
    found = list(arguments)
    for place in reversed([place for place, word in enumerate(found) if word == "--ray"]):
        if found[place + 1 :][:1] == [] or found[place + 1].startswith("-"):
            found.insert(place + 1, "")
    return found
