"""`arena-jax VERB`. Tables for people, `--json` for machines; bad input is one line on stderr and exit code 2."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from arena_jax.errors import ArenaError, printable

# newer releases of typer carry click inside; its base class is found through a public one
ClickException: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
INTERRUPTED = 130
MCP = ["agent", "mcp"]  # the one verb whose caller waits for an answer before JAX is imported


def _run() -> Any:
    if sys.argv[1:3] == MCP:
        from arena_jax.cli.mcp import mcp_command

        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
        app.command()(mcp_command)
        return app(sys.argv[3:], prog_name=f"arena-jax {' '.join(MCP)}", standalone_mode=False)
    from arena_jax.cli.app import app
    from arena_jax.cli.cluster import with_address

    return app(with_address(sys.argv[1:]), standalone_mode=False)


def _fail(message: str) -> None:
    print(f"error: {printable(message)}", file=sys.stderr)
    sys.exit(2)


def main() -> None:
    """Entry point of the console script."""
    if sys.stdout is None:
        sys.exit("error: standard output is closed")
    sys.path.append(os.getcwd())  # policies by path may live in the current folder; last, so that they shadow nothing
    try:
        code = _run()
        if code == INTERRUPTED:  # typer makes an exit code of Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code)
    except ArenaError as error:
        _fail(str(error))
    except ClickException as error:
        _fail(" ".join(error.format_message().split()))
    except OSError as error:  # a full disk, a closed pipe, a path that can't be
        _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"[:300])
    except MemoryError:
        _fail("not enough memory for what is read or asked for")
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted; run the same command again to go on", file=sys.stderr)
        sys.exit(INTERRUPTED)
