"""The command line: thin, one file a group of sub-commands, each of which calls the public API."""

from __future__ import annotations

# Importing a file adds its sub-commands to the application.
from polyhedge.app.cli import fit, monitor, pages, repair, use
from polyhedge.app.cli.app import app, guard_streams

__all__ = ["app", "fit", "main", "monitor", "pages", "repair", "use"]


def main() -> None:
    """Entry point of the command `polyhedge`."""
    guard_streams()
    app(prog_name="polyhedge")
