"""Folders that a play writes into: opened once, gone on with after a kill, shared by many processes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from arena_jax.errors import ArenaError
from arena_jax.files import HALF, clear_halves, own_file, write_new


def policy_folder(number: int, spec: str) -> str:
    """Folder of a run's policy: its place in the run and a readable part of its spec."""
    return f"{number:02d}-{re.sub(r'[^A-Za-z0-9.=+-]+', '_', spec)[:60]}"


def open_folder(
    directory: Path, name: str, manifest: dict[str, Any], check: Callable[[Path, dict[str, Any]], None]
) -> None:
    """Create a folder whose file `name` is the manifest, or `check` that the one there is of the same play.

    Of processes that start together one writes the manifest, and all check it. Clears what a kill left. Raises
    `ArenaError` if the folder holds anything else, or can't be written.
    """
    path = own_file(directory, name)
    clear_halves(directory, f"{name}-")
    held = [file.name for file in directory.iterdir()] if directory.is_dir() else []
    if name not in held:
        if not all(one.startswith(f"{HALF}{name}-") for one in held):
            raise ArenaError(f"{directory} is not empty and holds no {name}; choose another folder")
        write_new(path, (json.dumps(manifest, indent=2) + "\n").encode())
    check(directory, manifest)
    clear_left(directory, manifest["policies"])


def clear_left(directory: Path, policies: Sequence[str]) -> None:
    """Remove what killed processes left half written in the folders of a play's policies."""
    for number, spec in enumerate(policies):
        clear_halves(own_file(directory, policy_folder(number, spec)))
