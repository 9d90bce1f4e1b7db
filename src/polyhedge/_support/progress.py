"""How far long work is: log records, which become a bar with the time left where somebody looks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


_LOGGER = logging.getLogger("polyhedge")
_PATIENCE = 1.0
"""Seconds before a bar appears: work that is done by then needs none."""


def tell(logger: logging.Logger, doing: str, done: int, total: int) -> None:
    """Log that `done` of `total` steps are done; the record carries the three values."""
    logger.info("%s: %d of %d", doing, done, total, extra={"doing": doing, "done": done, "total": total})


@contextmanager
def progress(doing: str, is_wanted: bool = True) -> Iterator[None]:
    """Show what the library logs about its progress as a bar on stderr, or in a notebook.

    Nothing is shown where nobody looks: in a file, a pipe, or where it is not wanted.
    """
    if is_wanted:
        from rich.console import Console

        console = Console(stderr=True)
    if not is_wanted or not (console.is_terminal or console.is_jupyter):
        yield
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
    handler = _Handler(bar, doing)
    # The bar draws itself from a thread of its own, also while a solver is at work.
    timer = threading.Timer(_PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    level = _LOGGER.level
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        _LOGGER.setLevel(level)
        _LOGGER.removeHandler(handler)
        timer.cancel()
        timer.join()
        bar.stop()


class _Handler(logging.Handler):
    """Moves the bar on for records that carry how many steps are done; each kind of work starts a new bar."""

    def __init__(self, bar: Progress, doing: str) -> None:
        super().__init__(logging.INFO)
        self.bar = bar
        self.doing = doing
        self.line = bar.add_task(doing, total=None)

    def emit(self, record: logging.LogRecord) -> None:
        """Take what `tell` logged; other records pass."""
        doing = getattr(record, "doing", None)
        if doing is None:
            return
        if doing != self.doing:
            self.bar.remove_task(self.line)
            self.doing, self.line = doing, self.bar.add_task(doing, total=None)
        self.bar.update(self.line, completed=record.done, total=record.total)  # type: ignore[attr-defined]
