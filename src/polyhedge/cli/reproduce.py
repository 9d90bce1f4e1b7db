"""`polyhedge reproduce`: the paper's experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBar

from polyhedge._files import replace_file
from polyhedge.benchmark.scaling import Progress, ScalingSettings, run_scaling
from polyhedge.benchmark.scaling_report import comparison_grid, draw_scaling, markdown_report, shared_grid
from polyhedge.cli.app import app, can_draw, rich_table

reproduce = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
app.add_typer(reproduce, name="reproduce")


@reproduce.callback()
def _reproduce() -> None:
    """Repeat the paper's experiments and print the results beside its figures.

    Example: polyhedge reproduce scaling --quick
    """


@reproduce.command()
def scaling(
    task: Annotated[str, typer.Option(help="Cost: linear, quadratic or newsvendor.")] = "linear",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes, seeds and seconds: under 2 minutes.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds; at most 2 with --quick.")] = 5,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the results; made if it is missing.")] = Path(
        "results"
    ),
) -> None:
    """Exact and approximate learners against the number of learning samples (the paper's Table 1).

    Writes the runs (CSV), the tables (Markdown), time against n (PNG, SVG), and settings, seeds, machine and versions
    (JSON). A run that was stopped goes on where it was when it is started again. Takes up to 15 minutes.

    Example: polyhedge reproduce scaling --quick --task quadratic
    """
    settings = ScalingSettings.quick(task, seeds) if quick else ScalingSettings(task=task, seeds=seeds)
    stem = f"scaling_{task}{'_quick' if quick else ''}"
    console = Console()
    errors = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with ProgressBar(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        line = bar.add_task("", total=None)

        def report(progress: Progress) -> None:
            left = f"{max(progress.seconds_left, 0.0) / 60:.1f} min left, {progress.next}" if progress.next else ""
            bar.update(line, completed=progress.done, total=progress.total, description=left)

        run = run_scaling(settings, folder=out, stem=stem, report=report)
    for grid in (comparison_grid(run), shared_grid(run)):
        console.print(rich_table(grid))
    for note in run.left_out:
        typer.echo(note)
    if run.n_known:
        typer.echo(f"{run.n_known} runs were read from {out / stem}.csv; delete it to measure them again.")
    replace_file(out / f"{stem}.md", markdown_report(run).encode())
    suffixes = ["csv", "json", "md"]
    if can_draw():
        draw_scaling(run, [out / f"{stem}.png", out / f"{stem}.svg"])
        suffixes += ["png", "svg"]
    typer.echo(f"Results: {out / stem}.{{{','.join(suffixes)}}}")
