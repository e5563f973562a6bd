"""What a verb compiles is kept in the user's cache folder, so that the next start takes a second and not ten."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import jax
import typer

MODE = 0o700  # what is compiled is run: nobody else may write it


def cache_folder() -> Path:
    """Where compiled programs are kept (XDG base directories), one folder per release of JAX."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "arena_jax" / f"jax-{jax.__version__}"


def _set_up(no_cache: bool) -> bool:
    """Turn JAX's persistent compilation cache on, unless told not to or the user has one of their own."""
    if no_cache or jax.config.values["jax_compilation_cache_dir"] is not None:
        return no_cache
    folder = cache_folder()
    try:
        for place in (folder.parent, folder):
            place.mkdir(mode=MODE, parents=True, exist_ok=True)
            if place.lstat().st_uid != os.getuid():
                return no_cache
            place.chmod(MODE)
    except (OSError, RuntimeError):  # no home, or not writable: compile afresh
        return no_cache
    jax.config.update("jax_compilation_cache_dir", str(folder))
    return no_cache


NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Compile afresh; keep nothing in the cache folder.", callback=_set_up)
]
