"""Finds the data files alike in a checkout, an editable install and a wheel."""

from __future__ import annotations

from pathlib import Path

from arena_jax.errors import ArenaError

_PACKAGE = Path(__file__).parent
# a wheel carries data/ inside the package; a checkout (also when installed editable) keeps it beside the package
_FOLDERS = (_PACKAGE / "_data", _PACKAGE.parent / "data")


def data_path(name: str) -> Path:
    """Path of the data file `name`; raises `ArenaError` if the installation lacks it."""
    for folder in _FOLDERS:
        if (folder / name).is_file():
            return folder / name
    raise ArenaError(f"data file {name} is missing from this installation; install arena_jax again")
