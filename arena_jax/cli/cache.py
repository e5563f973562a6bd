"""What a verb compiles is kept in the user's cache folder, so that the next start takes a second and not ten."""

from __future__ import annotations

import hashlib
import os
import platform
import stat
from pathlib import Path
from typing import Annotated

import jax
import jaxlib
import typer

from arena_jax.files import user_folder

MODE = 0o700  # what is compiled is run: nobody else may write it


def cache_folder() -> Path:
    """Where compiled programs are kept (XDG base directories), one folder per release of JAX and kind of machine."""
    # a home shared by unlike machines holds a folder for each kind
    machine = hashlib.sha256(f"{platform.machine()} {_processor()}".encode()).hexdigest()[:12]
    return (
        user_folder("XDG_CACHE_HOME", ".cache")
        / "arena_jax"
        / f"jax-{jax.__version__}-jaxlib-{jaxlib.__version__}-{machine}"
    )


def _processor() -> str:
    """What the compiler may use of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def use_cache(no_cache: bool) -> bool:
    """Turn JAX's persistent compilation cache on, unless told not to or the user has one of their own."""
    if no_cache or jax.config.values["jax_compilation_cache_dir"] is not None:
        return no_cache
    try:
        folder = cache_folder()
        for place in (folder.parent, folder):
            place.mkdir(mode=MODE, parents=True, exist_ok=True)
            found = place.lstat()
            is_mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
            if not is_mine or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
                return no_cache  # others may have put programs there
    except (OSError, RuntimeError):  # no home, or not writable: compile afresh
        return no_cache
    jax.config.update("jax_compilation_cache_dir", str(folder))
    return no_cache


NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Compile afresh; keep nothing in the cache folder.", callback=use_cache)
]
