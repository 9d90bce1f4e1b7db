"""The command line: thin, every sub-command calls the public API."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table
from typer.core import TyperGroup

from polyhedge import __version__
from polyhedge.benchmark import Comparison, compare, draw_sets, energy_task, synthetic_task
from polyhedge.benchmark.scaling import Progress, ScalingSettings, replace_file, run_scaling
from polyhedge.benchmark.scaling_report import Grid, comparison_grid, draw_scaling, markdown_report, shared_grid

# What a wrong argument or a wrong file raises; anything else is a fault of the library.
_USER_ERRORS = (ValueError, TypeError, OSError, ImportError)

_NO_MATPLOTLIB = "No pictures: matplotlib is not installed. Get it with: pip install 'polyhedge[plot]'"


class _OneLineErrors(TyperGroup):
    """Turn exceptions into one line on stderr, unless --debug asks for the traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the sub-command; exit code 2 for what the user can mend, 1 for what we must."""
        try:
            return super().invoke(ctx)
        except (typer.Abort, BrokenPipeError):  # typer ends these quietly
            raise
        except Exception as error:
            # What typer raises itself, to exit or to explain the usage, carries an exit code.
            if ctx.params["debug"] or hasattr(error, "exit_code"):
                raise
            if isinstance(error, _USER_ERRORS):
                self._say(str(error) or type(error).__name__)
                raise typer.Exit(2) from error
            self._say(f"{type(error).__name__}: {error} (run again with polyhedge --debug for the traceback)")
            raise typer.Exit(1) from error

    @staticmethod
    def _say(message: str) -> None:
        typer.echo(f"polyhedge: error: {' '.join(message.split())}", err=True)


app = typer.Typer(
    cls=_OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def main() -> None:
    """Entry point of the command `polyhedge`."""
    app(prog_name="polyhedge")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"polyhedge {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Robust decisions with a conformal guarantee.

    Example: polyhedge demo --out results
    """


@app.command()
def demo(
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the pictures; made if it is missing.")] = Path(
        "results"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the data splits and of the learner.")] = 0,
    alpha: Annotated[float, typer.Option(help="Share of outcomes that may fall outside the set.")] = 0.1,
) -> None:
    """Learn a set on the paper's data and compare it with a Bonferroni box.

    Prints coverage, costs and volume on test data for the Energy Efficiency and the synthetic linear task. Draws
    both sets, one PNG file a task.

    Example: polyhedge demo --out results --seed 1 --alpha 0.2
    """
    console = Console()
    can_draw = importlib.util.find_spec("matplotlib") is not None
    for make in (energy_task, synthetic_task):
        with Console(stderr=True).status("learning"):
            comparison = compare(make(seed), alpha=alpha, random_state=seed)
        console.print(_table(comparison))
        console.print(f"The learned set's premium is {_saving(comparison.premium_saved)} the box's.", highlight=False)
        if can_draw:
            path = out / f"{comparison.task.name}.png"
            draw_sets(comparison, path)
            # Not through rich: it would break a long path over two lines.
            typer.echo(f"Picture: {path}\n")
    if not can_draw:
        typer.echo(_NO_MATPLOTLIB, err=True)


def _saving(share: float) -> str:
    return f"{abs(share):.0%} {'below' if share >= 0 else 'above'}"


def _table(comparison: Comparison) -> Table:
    task = comparison.task
    table = Table(
        title=f"Task {task.name}: {len(task.test)} test rows",
        title_style="bold",
        caption="\\[exact 95 % interval], ± standard error",
    )
    table.add_column("", no_wrap=True)
    for row in comparison.rows:
        table.add_column(row.method, justify="right", no_wrap=True)
    evaluations = [row.evaluation for row in comparison.rows]
    promised = evaluations[0].promised
    lines: list[tuple[str, list[str]]] = [
        (f"coverage (promised {promised:.3g})", [str(e.coverage) for e in evaluations]),
        ("worst-case cost", [str(e.worst_case_cost) for e in evaluations]),
        ("premium", [str(e.premium) for e in evaluations]),
        ("regret", [str(e.regret) for e in evaluations]),
        ("volume", [f"{float(e.volume):.3g}" for e in evaluations]),
        ("seconds to learn", [f"{row.seconds:.2g}" for row in comparison.rows]),
    ]
    for label, values in lines:
        # Square brackets are markup to rich; an interval is meant literally.
        table.add_row(label, *(value.replace("[", "\\[") for value in values))
    return table


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
        console.print(_rich_table(grid))
    for note in run.left_out:
        typer.echo(note)
    if run.n_known:
        typer.echo(f"{run.n_known} runs were read from {out / stem}.csv; delete it to measure them again.")
    replace_file(out / f"{stem}.md", markdown_report(run).encode())
    suffixes = ["csv", "json", "md"]
    if importlib.util.find_spec("matplotlib") is None:
        typer.echo(_NO_MATPLOTLIB, err=True)
    else:
        draw_scaling(run, [out / f"{stem}.png", out / f"{stem}.svg"])
        suffixes += ["png", "svg"]
    typer.echo(f"Results: {out / stem}.{{{','.join(suffixes)}}}")


def _rich_table(grid: Grid) -> Table:
    table = Table(title=grid.title, title_style="bold", caption=grid.note, caption_justify="left")
    for position, head in enumerate(grid.heads):
        table.add_column(head, justify="right" if position else "left", no_wrap=not position)
    for row in grid.rows:
        table.add_row(*row)
    return table
