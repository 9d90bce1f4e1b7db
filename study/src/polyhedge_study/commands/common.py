"""What the commands of the study share: options, workers, bars, and where results are."""

from __future__ import annotations

import importlib.util
import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhedge.app.cli.app import say

if TYPE_CHECKING:
    from polyhedge_study.jobs import Progress, Workers

__all__ = ["Cluster", "NumberOfWorkers", "Out", "drawn", "progress_bar", "say_paragraph", "say_paths", "workers_of"]

Out = Annotated[Path, typer.Option(file_okay=False, help="Folder for the results; made if it is missing.")]
NumberOfWorkers = Annotated[int, typer.Option(min=0, help="Processes on this machine; 0 for one a core.")]
Cluster = Annotated[str, typer.Option(help="Address of a Dask scheduler that takes the place of processes.")]


def can_draw() -> bool:
    """Whether matplotlib is there; if not, say on stderr how to get it."""
    is_installed = importlib.util.find_spec("matplotlib") is not None
    if not is_installed:
        say("No pictures: matplotlib is not installed. Get it with: pip install 'polyhedge[plot]'", err=True)
    return is_installed


def drawn(stem: Path, draw: Callable[[list[Path]], None]) -> list[Path]:
    """Draw a PNG and an SVG file, if matplotlib is there; return their paths."""
    if not can_draw():
        return []
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    draw(paths)
    return paths


def workers_of(n: int, cluster: str) -> Workers:
    """That many processes (0: one a core), or a cluster."""
    from polyhedge_study.jobs import Workers

    return Workers(n or os.cpu_count() or 1, cluster)


def say_paragraph(sentences: list[str]) -> None:
    """Print sentences as one paragraph, as wide as a terminal usually is."""
    if sentences:
        say()
        _say_wrapped(" ".join(sentences))


def say_paths(paths: list[Path]) -> None:
    """Say where results are."""
    _say_wrapped(f"Results in {paths[0].parent}: {', '.join(path.name for path in paths)}")


def _say_wrapped(text: str) -> None:
    """Print lines as wide as a terminal usually is; names of files stay whole, so that they can be copied."""
    for line in textwrap.wrap(text, width=80, break_on_hyphens=False, break_long_words=False):
        say(line)


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None]]:
    """A bar with the time left on stderr; a line now and then where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress as ProgressBar, TextColumn

    errors = Console(stderr=True)
    if not errors.is_terminal:
        yield _Lines()
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with ProgressBar(*columns, console=errors, transient=True) as bar:
        line = bar.add_task("", total=None)

        def report(progress: Progress) -> None:
            bar.update(line, completed=progress.done, total=progress.total, description=_left(progress))

        yield report


def _left(progress: Progress) -> str:
    return f"{max(progress.seconds_left, 0.0) / 60:.1f} min left, {progress.next}" if progress.next else ""


class _Lines:
    """Says how far a run is at its start, at its end, and after each twentieth of it."""

    n_lines = 20

    def __init__(self) -> None:
        self.said = -1

    def __call__(self, progress: Progress) -> None:
        now = self.n_lines * progress.done // max(progress.total, 1)
        if now != self.said:
            self.said = now
            left = f", {_left(progress)}" if progress.next and progress.done else ""
            say(f"{progress.done} of {progress.total} runs done{left}", err=True)
