"""`polyhedge reproduce guarantees`, `limit`, `cases`, `online`, `promises`: promises about costs, on real problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhedge_study.commands.common import (
    Cluster,
    NumberOfWorkers,
    Out,
    progress_bar,
    say_paragraph,
    say_paths,
    workers_of,
)
from polyhedge_study.inside import replace_file

if TYPE_CHECKING:
    from polyhedge_study.jobs import Workers

__all__ = ["cases", "guarantees", "limit", "of_decisions_taken", "online", "promises", "recourse"]

_QUICK_SEEDS = 2
"""Enough to see the size of premiums, not to tell methods apart."""


def guarantees(
    setting: Annotated[list[str] | None, typer.Option(help="One line of the table; may be repeated.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Such as polyhedge or cvar-guard; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 5,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    alpha: Annotated[float, typer.Option(help="Share of rows whose bound may fail.")] = 0.1,
    workers: NumberOfWorkers = 0,
    cluster: Cluster = "",
    out: Out = Path("results"),
) -> None:
    """Methods that bound the cost of the decision taken, and a set that bounds every decision's, paired over seeds.

    Takes some minutes a seed with all settings; goes on where it was when it is started again.

    Example: polyhedge reproduce guarantees --setting "linear, d = 2, n = 300" --seeds 5
    """
    from polyhedge_study.commands.tables import show
    from polyhedge_study.guarantees import guarantee_jobs, run_guarantees
    from polyhedge_study.guarantees_report import cost_grid, guarantee_words, set_grid

    jobs = guarantee_jobs(setting or (), seeds, first_seed, method or ())
    with progress_bar() as report:
        rows = run_guarantees(jobs, out, alpha=alpha, workers=workers_of(workers, cluster), report=report)
    grids = [grid for grid in (cost_grid(rows, alpha), set_grid(rows)) if grid.rows]
    for grid in grids:
        show(grid, dense=True)
    replace_file(out / "guarantees.md", "\n".join(grid.markdown() for grid in grids).encode())
    say_paths([out / f"guarantees.{suffix}" for suffix in ("csv", "json", "md")])
    say_paragraph(guarantee_words(rows))


def of_decisions_taken(
    tasks: Sequence[str], seeds: int, quick: bool, alpha: float, workers: Workers, out: Path
) -> list[str]:
    """Show the table of methods that bound the cost of the decision taken, on the paper's tasks; return it in words."""
    from polyhedge_study.commands.tables import show
    from polyhedge_study.guarantees import OF_THE_PAPER, guarantee_jobs, run_guarantees
    from polyhedge_study.guarantees_report import cost_grid, guarantee_words
    from polyhedge_study.guarded.methods import PLAN, QUICK_GUARDED, RIVALS

    names = [name for task, name in OF_THE_PAPER.items() if not tasks or task in tasks]
    keys = [key for key in (PLAN, *RIVALS) if key in QUICK_GUARDED] if quick else ()
    jobs = guarantee_jobs(names, min(seeds, _QUICK_SEEDS) if quick else seeds, 0, keys)
    with progress_bar() as report:
        rows = run_guarantees(jobs, out, alpha=alpha, workers=workers, report=report)
    grid = cost_grid(rows, alpha)
    show(grid, dense=True)
    replace_file(out / "guarantees.md", grid.markdown().encode())
    return [
        "The second promise is about the decision taken, and not to be compared with the first.",
        *guarantee_words(rows),
    ]


def limit(
    setting: Annotated[list[str] | None, typer.Option(help="One setting of guarantees; may be repeated.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Draws of rows and noise for the limit.")] = 3,
    seeds: Annotated[int, typer.Option(min=0, help="Seeds of the methods; 0 takes those that are there.")] = 0,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    alpha: Annotated[float, typer.Option(help="Share of rows whose bound may fail.")] = 0.1,
    workers: NumberOfWorkers = 0,
    cluster: Cluster = "",
    out: Out = Path("results"),
) -> None:
    """The least premium that the true law allows, and how far every method is from it at equal coverage.

    Methods are those of `polyhedge reproduce guarantees` with the same folder. Goes on where it was stopped.

    Example: polyhedge reproduce limit --setting "linear, d = 2, n = 300" --seeds 5
    """
    from polyhedge_study.commands.tables import show
    from polyhedge_study.guarantees import guarantee_jobs, run_guarantees
    from polyhedge_study.limit import LIMITED, limit_grid, limit_jobs, run_limit

    where, jobs = workers_of(workers, cluster), limit_jobs(setting or (), draws)
    more = guarantee_jobs(setting or LIMITED, seeds, first_seed) if seeds else []
    with progress_bar() as report:
        limits = run_limit(jobs, out, alpha=alpha, workers=where, report=report)
    with progress_bar() as report:
        rows = run_guarantees(more, out, alpha=alpha, workers=where, report=report)
    grid = limit_grid(limits, rows, alpha)
    show(grid, dense=True)
    replace_file(out / "limit.md", grid.markdown().encode())
    say_paths([out / f"limit.{suffix}" for suffix in ("csv", "json", "md")])


def cases(
    case: Annotated[
        list[str] | None, typer.Option(help="Such as charging or bakery; may be repeated. A wrong one lists all.")
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="Such as polyhedge; may be repeated.")] = None,
    alpha: Annotated[float, typer.Option(help="Share of rows whose bound may fail.")] = 0.1,
    workers: NumberOfWorkers = 0,
    cluster: Cluster = "",
    out: Out = Path("results"),
) -> None:
    """Real problems in time order: bound, realised cost and held share of every method. Data come from wheels.

    Goes on where it was stopped.

    Example: polyhedge reproduce cases --case charging
    """
    from polyhedge_study.case_report import case_grid, case_words
    from polyhedge_study.case_runs import case_jobs, run_cases
    from polyhedge_study.commands.tables import show

    with progress_bar() as report:
        where = workers_of(workers, cluster)
        rows = run_cases(case_jobs(case or (), method or ()), out, alpha=alpha, workers=where, report=report)
    show(case_grid(rows), dense=True)
    replace_file(out / "cases.md", case_grid(rows).markdown().encode())
    say_paths([out / f"cases.{suffix}" for suffix in ("csv", "json", "md")])
    say_paragraph(case_words(rows))


def online(out: Out = Path("results")) -> None:
    """Radii that follow outcomes through the price crisis of 2021 and 2022, beside one that does not.

    Real prices, found in a published package that is downloaded once. Takes about a minute.

    Example: polyhedge reproduce online
    """
    from polyhedge_study.commands.tables import show
    from polyhedge_study.online import followed, online_grid, scored_days

    grid = online_grid(followed(scored_days()))
    show(grid, dense=True)
    replace_file(out / "online.md", grid.markdown().encode())
    say_paths([out / "online.md"])


def promises(
    part: Annotated[
        list[str] | None, typer.Option(help="what-if, totals, groups or means; may be repeated. All by default.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=2, help="Number of seeds or splits.")] = 10,
    out: Out = Path("results"),
) -> None:
    """Altered decisions, totals of blocks, overlapping groups, mean and CVaR: the figures of their pages.

    Data come from published packages. Writes promises-<part>.md. Takes some minutes.

    Example: polyhedge reproduce promises --part totals --seeds 5
    """
    from polyhedge_study import promises as study
    from polyhedge_study.commands.tables import show

    parts = {"what-if": study.altered, "totals": study.totals, "groups": study.groups, "means": study.means}
    unknown = [name for name in part or () if name not in parts]
    if unknown:
        raise ValueError(f"part must be one of {', '.join(parts)}; got {unknown[0]!r}.")
    for name in part or parts:
        grid = parts[name](seeds)
        show(grid, dense=True)
        replace_file(out / f"promises-{name}.md", grid.markdown().encode())
        say_paths([out / f"promises-{name}.md"])


def recourse(
    case: Annotated[list[str] | None, typer.Option(help="bakeries, solar or dishes; may be repeated.")] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="recourse, one-stage or sample-average; may be repeated.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of splits.")] = 5,
    alpha: Annotated[float, typer.Option(help="Share of rows whose bound may fail.")] = 0.1,
    workers: NumberOfWorkers = 0,
    cluster: Cluster = "",
    out: Out = Path("results"),
) -> None:
    """Decisions with a second stage on real tables, with and without it, and a sample average by hand.

    Writes recourse.csv, .json and .md; goes on where it was stopped.

    Example: polyhedge reproduce recourse --case solar --seeds 5
    """
    from polyhedge_study.commands.tables import show
    from polyhedge_study.recourse import recourse_grid, recourse_jobs, run_recourse

    jobs = recourse_jobs(case or (), method or (), seeds)
    with progress_bar() as report:
        rows = run_recourse(jobs, out, alpha=alpha, workers=workers_of(workers, cluster), report=report)
    grid = recourse_grid(rows)
    show(grid, dense=True)
    replace_file(out / "recourse.md", grid.markdown().encode())
    say_paths([out / f"recourse.{suffix}" for suffix in ("csv", "json", "md")])
