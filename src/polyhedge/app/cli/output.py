"""What reaches the terminal: all text passes here, so that nothing in a file or a table can command it."""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from types import TracebackType
from typing import Any

import typer

from polyhedge._support.text import printable

__all__ = ["guard_streams", "say", "say_csv", "say_json"]

# JSON escapes these itself only below the space; a terminal knows more of them.
_COMMANDS = re.compile(r"[^\x20-\x7e\n]")


def say(text: str = "", *, err: bool = False) -> None:
    r"""Print one line; what a terminal would take as a command is shown as an escape such as \x1b."""
    typer.echo(printable(text), err=err)


def say_json(value: Any, *, err: bool = False) -> None:
    """Print one JSON document."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    typer.echo(_COMMANDS.sub(lambda match: _in_json(match.group()), text), err=err)


def _in_json(letter: str) -> str:
    return letter if printable(letter) == letter else json.dumps(letter)[1:-1]


def say_csv(text: str) -> None:
    """Print a CSV file: byte by byte into a pipe or a file, without commands on a terminal."""
    if sys.stdout.isatty():
        text = "\n".join(map(printable, text.split("\n")))
    sys.stdout.write(text)


def guard_streams() -> None:
    """Let tracebacks and records of the log, which Python prints itself, pass here too."""
    sys.excepthook = _show_traceback
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Printable())


def _show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    for part in traceback.format_exception(kind, error, trace):
        for line in part.rstrip("\n").split("\n"):
            say(line, err=True)


class _Printable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
