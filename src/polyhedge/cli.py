"""The command line: thin, every sub-command calls the public API."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from polyhedge import __version__
from polyhedge.benchmark import Comparison, compare, draw_sets, energy_task, synthetic_task

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
