"""What other packages add to the command line: the study of the paper adds commands and the page of its results.

An entry point of the group `polyhedge.commands` is a command: its name, and a `typer.Typer` or a function that typer
understands. One of the group `polyhedge.pages` writes the page of a folder of results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import typer

__all__ = ["added_command", "added_commands", "missing_command", "page_writer"]

_COMMANDS, _PAGES = "polyhedge.commands", "polyhedge.pages"
_OF_THE_STUDY = ("bench", "demo", "reproduce")
_HOW_TO_GET_IT = (
    "belongs to the study of the paper, which is a package of its own. In a copy of polyhedge's repository, "
    "`make run` installs and runs it; `pip install -e . -e study` only installs it."
)


@cache
def entry_points(group: str) -> Any:
    """Those of installed packages; found when they are needed, because it takes a third of the time of a help text."""
    from importlib import metadata

    return metadata.entry_points(group=group)


def added_commands() -> list[str]:
    """Names of the commands that installed packages add."""
    return sorted(entry_points(_COMMANDS).names)


def added_command(name: str) -> Any | None:
    """The command that an installed package adds under this name, if one does."""
    commands = tuple(entry_points(_COMMANDS).select(name=name))
    if not commands:
        return None
    added = commands[0].load()
    if not isinstance(added, typer.Typer):
        function, added = added, typer.Typer(rich_markup_mode="rich", add_completion=False)
        added.command(name)(function)
    added._add_completion = False  # that of polyhedge does for all of its commands
    command = typer.main.get_command(added)
    command.name = name
    return command


def missing_command(name: str) -> str:
    """How to get a command that is not installed; empty for one that nobody has."""
    return f"polyhedge {name} {_HOW_TO_GET_IT}" if name in _OF_THE_STUDY else ""


def page_writer() -> Callable[[Path, Path | None], Path]:
    """What writes the page of a folder of results."""
    writers = tuple(entry_points(_PAGES))
    if not writers:
        raise ImportError(f"The page of a folder of results {_HOW_TO_GET_IT}")
    writer: Callable[[Path, Path | None], Path] = writers[0].load()
    return writer
