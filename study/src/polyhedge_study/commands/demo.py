"""`polyhedge demo`: a learned set beside a Bonferroni box on the paper's data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhedge.app.cli.app import say
from polyhedge_study.commands.common import can_draw

if TYPE_CHECKING:
    from rich.table import Table

    from polyhedge_study.demo import Comparison


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
    from rich.console import Console

    from polyhedge_study.commands.tables import show
    from polyhedge_study.demo import compare, draw_sets
    from polyhedge_study.tasks import energy_task, synthetic_task

    comparisons = []
    for make in (energy_task, synthetic_task):
        with Console(stderr=True).status("learning"):
            comparison = compare(make(seed), alpha=alpha, random_state=seed)
        show(_table(comparison))
        say(f"The learned set's premium is {_saving(comparison.premium_saved)} the box's.")
        comparisons.append(comparison)
    if can_draw():
        for comparison in comparisons:
            path = out / f"{comparison.task.name}.png"
            draw_sets(comparison, path)
            say(f"Picture: {path}")


def _saving(share: float) -> str:
    return f"{abs(share):.0%} {'below' if share >= 0 else 'above'}"


def _table(comparison: Comparison) -> Table:
    from rich.table import Table

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
        ("volume", ["" if e.volume is None else f"{float(e.volume):.3g}" for e in evaluations]),
        ("seconds to learn", [f"{row.seconds:.2g}" for row in comparison.rows]),
    ]
    for label, values in lines:
        # Square brackets are markup to rich; an interval is meant literally.
        table.add_row(label, *(value.replace("[", "\\[") for value in values))
    return table
