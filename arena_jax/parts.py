"""Run directories: a manifest and one Parquet file per part of the episodes (design section 5.5).

    DIR/manifest.json                            what was run: versions, parameters, trajectory, seed, policies
    DIR/00-greedy-equity/part-000000.parquet     the records of episodes 0 .. PART - 1 of the first policy
    DIR/00-greedy-equity/months-000000.parquet   their recorded fields, one row per month played

Parts have a fixed size whatever the batch or shard, so an interrupted run resumes at the first missing part and
shards merge by being put side by side. Over many worlds a part holds whole worlds: episode // (episodes / worlds) is
the number of an episode's world. Every file is written under a temporary name and renamed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arena_jax.arena import Arena
from arena_jax.errors import ArenaError, check_count, printable
from arena_jax.files import own_file, read_json, write_atomic
from arena_jax.folders import open_folder, policy_folder
from arena_jax.policies import source_digest
from arena_jax.scenario import MAX_HORIZON, digest
from arena_jax.structs import Record
from arena_jax.version import __version__

PART = 16_384  # episodes
MAX_WORLD_EPISODES = 64 * PART  # of one of several worlds: a part holds whole worlds
MAX_EPISODES = 2**32 - 2  # indices are 32-bit words, and the last two are not for episodes
MANIFEST = "manifest.json"
FORMAT = 3
HUGE = 1e18  # above any figure of a record or parameter
_MOST_BYTES, _ROWS_OF_FOOTER = 16, 256  # of a number in a Parquet file; what its heads and foot take, in rows
MAX_CELLS = 2**28  # episodes by months that are read together: 2 GiB
_LONGEST = 1_000  # characters of a text in a manifest, or of a value in a message
# the fields of a record that are no counts
_REAL = {
    "score", "revenue_ttm", "cash", "debt", "requested_equity", "requested_debt", "received_equity", "received_debt",
    "cash_peak", "cash_trough", "shares", "ownership_kept", "value_per_share", "value_kept",
}  # fmt: skip
Months = dict[str, np.ndarray]
# manifest fields in which one run may differ: always the machine, between shards their share
_MACHINE, _SHARD = ("device",), ("device", "shard")


@dataclass(frozen=True)
class Split:
    """How a run's episodes are cut into parts: `episodes` in each of `worlds`, numbered through."""

    episodes: int
    worlds: int = 1

    def __post_init__(self) -> None:
        check_count("episodes", self.episodes, 1, MAX_EPISODES)
        if self.worlds > 1 and self.episodes > MAX_WORLD_EPISODES:
            raise ArenaError(
                f"episodes of each of several worlds: at most {MAX_WORLD_EPISODES:,}, got {self.episodes:,}"
            )
        if self.total > MAX_EPISODES:
            raise ArenaError(f"episodes must be at most {MAX_EPISODES} over all worlds, got {self.total}")

    @property
    def total(self) -> int:
        """Episodes of the whole run."""
        return self.episodes * self.worlds

    @property
    def part(self) -> int:
        """Episodes of a part: `PART`, or as many whole worlds as fit in it, at least one."""
        return PART if self.worlds == 1 else self.episodes * max(1, PART // self.episodes)

    def starts(self, shard: tuple[int, int] = (1, 1)) -> list[int]:
        """First episodes of the parts that shard i of n plays: every n-th part."""
        index, count = shard
        return list(range(0, self.total, self.part))[index - 1 :: count]

    def size(self, start: int) -> int:
        """Episodes of the part that begins with episode `start`."""
        return min(self.part, self.total - start)

    def path(self, folder: Path, kind: str, start: int) -> Path:
        """File of the part that begins with `start`; kind "part" (records) or "months" (trajectories)."""
        return folder / f"{kind}-{start // self.part:06d}.parquet"


def write_columns(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Write arrays of one length as a Parquet file, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    write_atomic(path, sink.getvalue().to_pybytes())


def write_part(folder: Path, split: Split, start: int, record: Record, months: Months | None = None) -> None:
    """Write the records of episodes start .. start + n - 1, leaves [n], and the months [n, T] that were recorded.

    The months go first, one row per month played: a part is finished once its records are there.
    """
    episode = np.arange(start, start + len(record.survived), dtype=np.uint32)
    if months is not None:
        rows, month = np.nonzero(months["alive"])
        fields = {name: values[rows, month] for name, values in months.items() if name != "alive"}
        columns = {"episode": episode[rows], "month": month.astype(np.int32), **fields}
        write_columns(split.path(folder, "months", start), columns)
    write_columns(split.path(folder, "part", start), {"episode": episode, **vars(record)})


def read_part(folder: Path, split: Split, start: int, *, with_months: bool = False) -> Record | None:
    """The records of the finished part that begins with `start`; None if it, or its months where wanted, is missing."""
    path, episodes = _own(split.path(folder, "part", start)), split.size(start)
    if not path.is_file() or (with_months and not _own(split.path(folder, "months", start)).is_file()):
        return None
    names = [field.name for field in dataclasses.fields(Record)]
    columns = read_columns(path, ("episode", *names), episodes)
    if not np.array_equal(columns.pop("episode"), np.arange(start, start + episodes)):
        raise ArenaError(f"{path} does not hold episodes {start} to {start + episodes - 1}; delete it and run again")
    for name, values in columns.items():
        if not _is_figure(name, values):
            raise ArenaError(f"{path} holds no records of episodes: column {name}; delete it and run again")
    return Record(**columns)


def _is_figure(name: str, values: np.ndarray) -> bool:
    """Whether a column can be that field of records."""
    if name == "survived":
        return values.dtype == bool
    if name in _REAL:
        return values.dtype in (np.float32, np.float64) and bool(np.abs(values).max() <= HUGE)
    least = 1 if name == "months_played" else -1 if name.endswith("_month") else 0
    most = MAX_HORIZON if "month" in name else HUGE
    return values.dtype.kind in "iu" and bool(least <= values.min() and values.max() <= most)


def read_months(
    folder: Path, split: Split, start: int, recorded: Sequence[str], field: str, played: np.ndarray
) -> np.ndarray:
    """One of the recorded fields of the part that begins with `start`: float64[n, months], NaN where none was played.

    played: int[n] months of its episodes, as their records have them. Raises `ArenaError` if the file is missing, not
    of that part, or too large to be read.
    """
    path, width = _own(split.path(folder, "months", start)), int(played.max())
    if len(played) * width > MAX_CELLS:
        raise ArenaError(f"{path} may hold {len(played):,} episodes of {width:,} months: too many to read together")
    keys = ("episode", "month")
    columns = read_columns(path, (*keys, field), int(played.sum()), (*keys, *recorded))
    episode = np.repeat(np.arange(len(played)), played)
    month = np.arange(len(episode)) - np.repeat(np.cumsum(played) - played, played)
    if not np.array_equal(columns["episode"], start + episode) or not np.array_equal(columns["month"], month):
        last = start + len(played) - 1
        raise ArenaError(f"{path} does not hold episodes {start} to {last} month by month; delete it and run again")
    months = np.full((len(played), width), np.nan)
    months[episode, month] = columns[field]
    return months


def read_columns(
    path: Path, names: Sequence[str], rows: int, there: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """Columns of a Parquet file of so many rows, each of bools or finite numbers; raises `ArenaError` for another file.

    there: all the columns that it must have, if more than those that are read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    there = names if there is None else there
    try:
        if path.stat().st_size > _MOST_BYTES * (rows + _ROWS_OF_FOOTER) * len(there):
            raise ArenaError(f"{path} is larger than {rows} rows of {there[0]}, ... are; delete it and run again")
        with pq.ParquetFile(path) as file:  # what it holds is looked at before it is read
            schema, told = file.schema_arrow, file.metadata
            held = sum(told.row_group(i).num_rows for i in range(told.num_row_groups))
            if sorted(schema.names) != sorted(there):
                raise ArenaError(f"{path} does not hold the columns {there[0]}, ...; delete it and run again")
            if not held == told.num_rows == rows:
                raise ArenaError(f"{path} does not hold {rows} rows of {there[0]}, ...; delete it and run again")
            plain = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
            if odd := [name for name in names if not any(is_one(schema.field(name).type) for is_one in plain)]:
                raise _no_numbers(path, odd[0])
            table = file.read(columns=list(names))
    except (OSError, pa.ArrowException):
        raise ArenaError(f"{path} is not a readable part file; delete it and run again") from None
    return {name: _column(path, table, name) for name in names}


def _own(path: Path) -> Path:
    """The path of a policy's file, whose folder and itself are no links: the run may have come from anywhere."""
    return own_file(path.parents[1], f"{path.parent.name}/{path.name}")


def _column(path: Path, table: Any, name: str) -> np.ndarray:
    """A column as an array of bools or finite numbers; raises `ArenaError` if it is of anything else."""
    column = table[name]
    values = column.to_numpy() if column.null_count == 0 else np.empty(1, dtype=object)
    if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise _no_numbers(path, name)
    return values


def _no_numbers(path: Path, name: str) -> ArenaError:
    return ArenaError(f"{path}: column {name} does not hold finite numbers; delete it and run again")


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a run directory; raises `ArenaError` if it is none."""
    path = own_file(directory, MANIFEST)
    if not path.exists():
        raise ArenaError(f"{directory} is not a run directory: it has no {MANIFEST}")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ArenaError(f"{path} is not a manifest of format {FORMAT}")
    for name, is_sound in _SOUND.items():
        if name not in manifest or not is_sound(manifest[name]):
            raise ArenaError(f"{path}: field {name} is missing or malformed")
    if manifest["part"] != manifest_split(manifest).part:
        raise ArenaError(f"{path}: field part is not that of {manifest['episodes']} episodes a world")
    return manifest


def manifest_split(manifest: dict[str, Any]) -> Split:
    """The split of a sound manifest's run."""
    return Split(manifest["episodes"], manifest["worlds"])


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and value.isprintable()


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**32


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float) and abs(value) <= HUGE


def parse_shard(text: Any) -> tuple[int, int]:
    """`"2/8"` as (2, 8); raises `ArenaError` unless 1 <= i <= n."""
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text) if isinstance(text, str) else None
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise ArenaError(f"shard must be I/N with 1 <= I <= N such as 2/8, got {text!r}")
    return int(found[1]), int(found[2])


def _is_shard(value: Any) -> bool:
    try:
        return bool(parse_shard(value))
    except ArenaError:
        return False


# what the code below relies on, in manifests that may come from anywhere
_SOUND: dict[str, Callable[[Any], bool]] = {
    "episodes": _is_count,
    "worlds": _is_count,
    "scenarios": lambda value: (
        value is None
        or (isinstance(value, dict) and "kind" in value and all(map(_is_text, [*value, *map(str, value.values())])))
    ),
    "part": _is_count,
    "shard": _is_shard,
    "policies": lambda value: _is_names(value) and 1 <= len(value) == len(set(value)) < 100,
    "record": _is_names,
    "environment": _is_text,
    "arena_jax": _is_text,
    "seed": lambda value: value == 0 or _is_count(value),
    "parameters": lambda value: (
        isinstance(value, dict) and all(map(_is_text, value)) and all(map(_is_plain, value.values()))
    ),
    "trajectory_sha256": lambda value: value is None or _is_text(value),
}


def what_plays(env: Arena, policies: Sequence[str]) -> dict[str, Any]:
    """What manifests of runs and of grids have in common: environment, policies, versions and precision."""
    return {
        "environment": env.name,
        "arena_jax": __version__,
        "jax": jax.__version__,
        "platform": jax.default_backend(),
        "dtype": jnp.result_type(float).name,
        "policies": list(policies),
        "policy_sources": {spec: source_digest(spec) for spec in policies},
        "parameters_sha256": digest(env.params),
    }


def differences(one: dict[str, Any], other: dict[str, Any], free: tuple[str, ...]) -> Iterator[str]:
    """How two manifests differ outside the `free` fields, as `field: this, not that`."""
    for name in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(name), other.get(name)
        if name in free or mine == theirs:
            continue
        if isinstance(mine, dict) and isinstance(theirs, dict):
            for key in sorted(mine.keys() | theirs.keys()):
                if mine.get(key) != theirs.get(key):
                    yield f"{name}.{key}: {_in_brief(mine.get(key))}, not {_in_brief(theirs.get(key))}"
        else:
            yield f"{name}: {_in_brief(mine)}, not {_in_brief(theirs)}"


def _in_brief(value: Any) -> str:
    text = printable(str(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def check_run(directory: Path, manifest: dict[str, Any]) -> None:
    """Raise `ArenaError` unless the run directory is of the run that the manifest describes, whatever the machine."""
    found = next(differences(read_manifest(directory), manifest, _MACHINE), None)
    if found:
        raise ArenaError(f"{directory} holds another run ({found}); choose another folder")


def open_run(directory: Path, manifest: dict[str, Any]) -> None:
    """Create the run directory, or check that the one there is of the same run (`open_folder`)."""
    open_folder(directory, MANIFEST, manifest, check_run)


def merge_runs(directories: Sequence[Path], out: Path) -> dict[str, Any]:
    """Put the parts of shards of one run side by side in `out`; the whole run's manifest.

    Raises `ArenaError` if the shards are of different runs, overlap, or leave parts out.
    """
    if not directories:
        raise ArenaError("give at least one run directory to merge")
    if out.resolve() in [directory.resolve() for directory in directories]:
        raise ArenaError(f"{out} is one of the run directories to merge; choose another folder")
    manifests = [read_manifest(directory) for directory in directories]
    for directory, manifest in zip(directories[1:], manifests[1:], strict=True):
        found = next(differences(manifest, manifests[0], _SHARD), None)
        if found:
            raise ArenaError(f"{directory} is of another run than {directories[0]} ({found})")
    merged = manifests[0] | {"shard": "1/1"}
    sources: dict[Path, Path] = {}
    for name in _expected_files(merged):
        holders = [directory for directory in directories if _own(directory / name).is_file()]
        if not holders:
            raise ArenaError(f"the run is not complete: {name} is missing")
        if len(holders) > 1:
            raise ArenaError(f"{name} is in both {holders[0]} and {holders[1]}")
        sources[name] = holders[0] / name
    split, recorded = manifest_split(merged), merged["record"]
    for number, spec in enumerate(merged["policies"]):
        name = Path(policy_folder(number, spec))
        for start in split.starts():  # damaged files are refused
            part = read_part(sources[split.path(name, "part", start)].parent, split, start)
            assert part is not None, "its file is among the sources"
            for field in recorded:
                folder = sources[split.path(name, "months", start)].parent
                read_months(folder, split, start, recorded, field, part.months_played)
    open_run(out, merged)
    for name, file in sources.items():
        write_atomic(out / name, file.read_bytes())  # of no more bytes than its rows take
    return merged


def _kinds(manifest: dict[str, Any]) -> tuple[str, ...]:
    return ("months", "part") if manifest["record"] else ("part",)


def _expected_files(manifest: dict[str, Any]) -> Iterator[Path]:
    """Every file, relative to the run directory, of a run's shard."""
    split = manifest_split(manifest)
    for number, spec in enumerate(manifest["policies"]):
        for start in split.starts(parse_shard(manifest["shard"])):
            for kind in _kinds(manifest):
                yield split.path(Path(policy_folder(number, spec)), kind, start)
