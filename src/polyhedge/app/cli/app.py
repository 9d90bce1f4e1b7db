"""The application: its commands and exit codes, and text for the terminal.

Other packages add commands: an entry point of the group `polyhedge.commands` has the name of a command, and a
`typer.Typer` or a function that typer understands. One of the group `polyhedge.pages` writes the page of a folder of
results. All text passes `say`, so that nothing in a file or a table can command the terminal.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from contextvars import copy_context
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from polyhedge import __version__
from polyhedge._support.text import printable

_USER_ERRORS = (ValueError, TypeError, OSError, ImportError)
"""What a wrong argument or a wrong file raises; anything else is a fault of the library."""
_HOW_TO_GET_IT = (
    "belongs to the study of the paper, which is a package of its own. In a copy of polyhedge's repository, "
    "`make run` installs and runs it; `pip install -e . -e study` only installs it."
)


class _Commands(TyperGroup):
    """The library's commands and those of other packages; exceptions become one line on stderr without --debug."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        return [*super().list_commands(ctx), *sorted(entry_points("polyhedge.commands").names)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command of the library, or else one that another package adds."""
        command = _with_plain_help(super().get_command(ctx, cmd_name) or added_command(cmd_name))
        if command is not None and ctx is not None:
            _ask_for_no_value([command.get_help_option(ctx)])  # made where it is first asked for
        return command

    def get_params(self, ctx: Any) -> Any:
        """The options that stand before a command."""
        options = super().get_params(ctx)
        _ask_for_no_value(options)
        return options

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Say where a command can be had that is not installed."""
        if args[0] in ("bench", "demo", "reproduce") and self.get_command(ctx, args[0]) is None:
            raise ModuleNotFoundError(f"polyhedge {args[0]} {_HOW_TO_GET_IT}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the sub-command; exit code 2 or 3 for what the user can mend, 4 if stopped, 1 for what we must."""
        try:
            # In a context of its own, so that what a command asks of solvers ends with it.
            return copy_context().run(super().invoke, ctx)
        except (typer.Abort, BrokenPipeError):  # typer ends these quietly
            raise
        except KeyboardInterrupt:
            say("polyhedge: stopped early; files are as they were or whole.", err=True)
            raise typer.Exit(4) from None
        except Exception as error:
            # What typer raises itself, to exit or to explain the usage, carries an exit code.
            if ctx.params["debug"] or hasattr(error, "exit_code"):
                raise
            if isinstance(error, _USER_ERRORS):
                self._say(str(error) or type(error).__name__)
                raise typer.Exit(3 if _has_no_solution(error) else 2) from error
            self._say(f"{type(error).__name__}: {error} (run again with polyhedge --debug for the traceback)")
            raise typer.Exit(1) from error

    @staticmethod
    def _say(message: str) -> None:
        say(f"polyhedge: error: {' '.join(message.split())}", err=True)


def _with_plain_help(command: Any) -> Any:
    """The command and those below it, with help that a terminal of any width breaks into lines of its own."""
    if command is None:
        return None
    command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help or ""))
    _ask_for_no_value(command.params)
    for below in getattr(command, "commands", {}).values():
        _with_plain_help(below)
    return command


def _ask_for_no_value(options: Any) -> None:
    """A flag takes no value, so that its help must not ask for one."""
    for option in options:
        if getattr(option, "is_flag", False) and option.metavar is None:
            option.metavar = ""


def _has_no_solution(error: BaseException | None) -> bool:
    """Whether a problem without a solution is behind the error, perhaps under the name of its file."""
    checks = sys.modules.get("polyhedge.problems.checks")  # what was not imported has not been raised
    if error is None or checks is None:
        return False
    return isinstance(error, checks.NoSolutionError) or _has_no_solution(error.__cause__)


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode="rich"
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"polyhedge {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Robust decisions with a conformal guarantee.

    Start with a table of your own, or with polyhedge example energy; docs/tutorial.md goes through it.

    Exit codes: 0 done, 2 bad input, 3 infeasible or unbounded, 4 stopped early.

    Example: polyhedge example energy --out energy
    """
    if not debug:
        warnings.showwarning = _show_warning


def _show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    """A warning in one line, without the place in the code that nobody asked for."""
    say(f"warning: {' '.join(str(message).split())}", err=True)


# Commands and pages of other packages


@cache
def entry_points(group: str) -> Any:
    """Those of installed packages; found when they are needed, because it takes a third of the time of a help text."""
    from importlib import metadata

    return metadata.entry_points(group=group)


def added_command(name: str) -> Any | None:
    """The command that an installed package adds under this name, if one does."""
    commands = tuple(entry_points("polyhedge.commands").select(name=name))
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


def page_writer() -> Callable[[Path, Path | None], Path]:
    """What writes the page of a folder of results."""
    writers = tuple(entry_points("polyhedge.pages"))
    if not writers:
        raise ImportError(f"The page of a folder of results {_HOW_TO_GET_IT}")
    writer: Callable[[Path, Path | None], Path] = writers[0].load()
    return writer


# Text for the terminal


def say(text: str = "", *, err: bool = False) -> None:
    r"""Print one line; what a terminal would take as a command is shown as an escape such as \x1b."""
    typer.echo(printable(text), err=err)


def say_json(value: Any, *, err: bool = False) -> None:
    """Print one JSON document; JSON itself escapes controls only below the space."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    typer.echo(re.sub(r"[^\x20-\x7e\n]", lambda match: _in_json(match.group()), text), err=err)


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
