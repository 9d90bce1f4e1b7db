"""`polyhedge reproduce`: the paper's experiments."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhedge._files import replace_file
from polyhedge.cli.app import can_draw
from polyhedge.cli.output import say

if TYPE_CHECKING:
    from polyhedge_study.jobs import Progress, Workers

reproduce = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Out = Annotated[Path, typer.Option(file_okay=False, help="Folder for the results; made if it is missing.")]
NumberOfWorkers = Annotated[int, typer.Option(min=0, help="Processes on this machine; 0 for one a core.")]
Cluster = Annotated[str, typer.Option(help="Address of a Dask scheduler that takes the place of processes.")]


@reproduce.callback()
def _reproduce() -> None:
    """Repeat the paper's experiments and print the results beside its figures.

    Example: polyhedge reproduce tables --task energy --seeds 2
    """


@reproduce.command()
def tables(
    task: Annotated[
        list[str] | None, typer.Option(help="linear, quadratic, newsvendor or energy; may be repeated. All by default.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Such as polyhedge or picnn; may be repeated. All by default; a wrong one lists them."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Without the rows that take long.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Also write the page, as polyhedge report does.")] = False,
    alpha: Annotated[float, typer.Option(help="Share of outcomes that may fall outside the set.")] = 0.1,
    workers: NumberOfWorkers = 0,
    cluster: Cluster = "",
    out: Out = Path("results"),
) -> None:
    """Every method on every task, beside the paper's Tables 2 and 3, and the bubble figure.

    Each run is saved as it ends. A study that was stopped goes on where it was when it is started again, and ends with
    the same tables. Writes runs (study.csv, study.json), tables (CSV, Markdown, LaTeX), times and the figure (PNG,
    SVG).

    Example: polyhedge reproduce tables --task energy --method polyhedge --method one-sided-box --seeds 20
    """
    from polyhedge_study.commands.tables import show
    from polyhedge_study.methods import QUICK
    from polyhedge_study.study import StudySettings, run_study, study_jobs
    from polyhedge_study.study_figure import draw_bubbles
    from polyhedge_study.study_report import write_study_report
    from polyhedge_study.study_tables import LEGEND, short_grid, tasks_of, write_tables
    from polyhedge_study.study_words import in_words, left_out
    from polyhedge_study.summary import table_rows

    settings = StudySettings(alpha=alpha)
    jobs = study_jobs(task or (), method or (QUICK if quick else ()), seeds)
    with progress_bar() as report:
        rows = run_study(jobs, out, settings=settings, workers=_workers(workers, cluster), report=report)
    figures = table_rows(rows)
    for name in tasks_of(figures):
        if not task or name in task:
            show(short_grid(figures, name), dense=True)
    say_paragraph([LEGEND])
    paths = [out / "study.csv", out / "study.json", *write_tables(rows, out)]
    _say_paths([*paths, *_draw(out / "bubble", partial(draw_bubbles, rows, alpha=alpha))])
    missing = left_out(figures) if quick and not method else []  # who names methods leaves out the others
    more = [f"Left out of this quick run: {', '.join(missing)}; without --quick they are added."] if missing else []
    if page:
        more.append(f"The page with all tables and figures: {write_study_report(out)}")
    say_paragraph([*in_words(figures), *more])


@reproduce.command()
def sensitivity(
    task: Annotated[str, typer.Option(help="Cost: linear, quadratic or newsvendor.")] = "linear",
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 5,
    workers: NumberOfWorkers = 0,
    cluster: Cluster = "",
    out: Out = Path("results"),
) -> None:
    """Our learners against d, K and n / (n + m) (the paper's sensitivity figure).

    Writes sensitivity.csv, .json, .md, .png and .svg; goes on where it was stopped. Takes about 8 minutes on 2 cores.

    Example: polyhedge reproduce sensitivity --seeds 2
    """
    from polyhedge_study.commands.tables import show
    from polyhedge_study.sensitivity import SWEEPS, SensitivitySettings, run_sensitivity, sensitivity_jobs
    from polyhedge_study.sensitivity_report import draw_sensitivity, sensitivity_grid, sensitivity_report

    settings = SensitivitySettings(task=task)
    with progress_bar() as report:
        rows = run_sensitivity(
            sensitivity_jobs(seeds), out, settings=settings, workers=_workers(workers, cluster), report=report
        )
    for sweep in SWEEPS:
        show(sensitivity_grid(rows, sweep), dense=True)
    paths = [out / f"sensitivity.{suffix}" for suffix in ("csv", "json", "md")]
    replace_file(paths[2], sensitivity_report(rows).encode())
    _say_paths([*paths, *_draw(out / "sensitivity", partial(draw_sensitivity, rows, alpha=settings.alpha))])


@reproduce.command()
def theory(
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions; five times as many for the coverage.")] = 30,
    workers: NumberOfWorkers = 0,
    cluster: Cluster = "",
    out: Out = Path("results"),
) -> None:
    """Coverage against its Beta law, coverage without recalibration, and the suboptimality gap.

    Lemma 4 and Theorem 2 of the paper, measured. Writes theory_coverage.csv, theory_reuse.csv, theory_gap.csv (with a
    JSON file each), theory.md, theory.png and theory.svg; goes on where it was stopped. Takes about 4 minutes on 2
    cores.

    Example: polyhedge reproduce theory --seeds 10
    """
    from polyhedge_study import theory_report as pages
    from polyhedge_study.commands.tables import show
    from polyhedge_study.finite_population import TheorySettings
    from polyhedge_study.theory_runs import run_coverage, run_gap, run_reuse

    settings = TheorySettings()
    where = _workers(workers, cluster)
    with progress_bar() as report:
        options = {"settings": settings, "workers": where, "report": report}
        run = pages.TheoryRun(
            settings,
            coverage=run_coverage(5 * seeds, out, **options),
            reuse=run_reuse(seeds, out, **options),
            gap=run_gap(seeds, out, **options),
        )
    for grid in (pages.coverage_grid(run), pages.reuse_grid(run), pages.gap_grid(run)):
        show(grid, dense=True)
    names = [f"theory_{part}.{suffix}" for part in ("coverage", "reuse", "gap") for suffix in ("csv", "json")]
    replace_file(out / "theory.md", pages.theory_report(run).encode())
    paths = [*(out / name for name in names), out / "theory.md"]
    _say_paths([*paths, *_draw(out / "theory", partial(pages.draw_theory, run))])


@reproduce.command()
def motivation(
    alpha: Annotated[float, typer.Option(help="Share of outcomes outside each set.")] = 0.15,
    out: Out = Path("results"),
) -> None:
    """Three sets of equal coverage over the loss (the paper's first figure).

    Writes motivation.json, motivation.png and motivation.svg.

    Example: polyhedge reproduce motivation
    """
    from polyhedge_study.motivation import draw_motivation, make_motivation, write_motivation

    found = make_motivation(alpha)
    for result in found.results:
        say(f"{result.name}: coverage {result.coverage:.3f}, worst-case loss {result.worst_case_cost:.3f}")
    write_motivation(found, out / "motivation.json")
    _say_paths([out / "motivation.json", *_draw(out / "motivation", partial(draw_motivation, found))])


@reproduce.command("all")
def everything(
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds of the tables and the sensitivity.")] = 5,
    workers: NumberOfWorkers = 0,
    cluster: Cluster = "",
    out: Out = Path("results"),
) -> None:
    """All experiments, one after another: motivation, tables, theory, sensitivity, scaling, generalisation.

    Takes an hour or two. What is there already is not run again.

    Example: polyhedge reproduce all --out results
    """
    motivation(out=out)
    tables(seeds=seeds, workers=workers, cluster=cluster, out=out)
    theory(workers=workers, cluster=cluster, out=out)
    sensitivity(seeds=seeds, workers=workers, cluster=cluster, out=out)
    scaling(seeds=seeds, out=out)
    generalisation(seeds=seeds, workers=workers, cluster=cluster, out=out)


def _draw(stem: Path, draw: Callable[[list[Path]], None]) -> list[Path]:
    """Draw a PNG and an SVG file, if matplotlib is there; return their paths."""
    if not can_draw():
        return []
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    draw(paths)
    return paths


def _workers(n: int, cluster: str) -> Workers:
    from polyhedge_study.jobs import Workers

    return Workers(n or os.cpu_count() or 1, cluster)


def say_paragraph(sentences: list[str]) -> None:
    """Print sentences as one paragraph, as wide as a terminal usually is."""
    if sentences:
        say()
        for line in textwrap.wrap(" ".join(sentences), width=80, break_on_hyphens=False, break_long_words=False):
            say(line)


def _say_paths(paths: list[Path]) -> None:
    say(f"Results in {paths[0].parent}: {', '.join(path.name for path in paths)}")


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None]]:
    """A bar with the time left on stderr; a line now and then where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as ProgressBar

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


@reproduce.command()
def scaling(
    task: Annotated[str, typer.Option(help="Cost: linear, quadratic or newsvendor.")] = "linear",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes, seeds and seconds: under 2 minutes.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds; at most 2 with --quick.")] = 5,
    out: Out = Path("results"),
) -> None:
    """Exact and approximate learners against the number of learning samples (the paper's Table 1).

    Writes the runs (CSV), the tables (Markdown), time against n (PNG, SVG), and settings, seeds, machine and versions
    (JSON). A run that was stopped goes on where it was when it is started again. Takes up to 15 minutes.

    Example: polyhedge reproduce scaling --quick --task quadratic
    """
    from polyhedge_study.commands.tables import show
    from polyhedge_study.scaling import run_scaling
    from polyhedge_study.scaling_methods import ScalingSettings
    from polyhedge_study.scaling_report import comparison_grid, draw_scaling, markdown_report, shared_grid

    settings = ScalingSettings.quick(task, seeds) if quick else ScalingSettings(task=task, seeds=seeds)
    stem = f"scaling_{task}{'_quick' if quick else ''}"
    with progress_bar() as report:
        run = run_scaling(settings, folder=out, stem=stem, report=report)
    for grid in (comparison_grid(run), shared_grid(run)):
        show(grid)
    for note in run.left_out:
        say(note)
    if run.n_known:
        say(f"{run.n_known} runs were read from {out / stem}.csv; delete it to measure them again.")
    replace_file(out / f"{stem}.md", markdown_report(run).encode())
    suffixes = ["csv", "json", "md"]
    if can_draw():
        draw_scaling(run, [out / f"{stem}.png", out / f"{stem}.svg"])
        suffixes += ["png", "svg"]
    say(f"Results: {out / stem}.{{{','.join(suffixes)}}}")


@reproduce.command()
def generalisation(
    setting: Annotated[list[str] | None, typer.Option(help="One line of the table; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 20,
    population: Annotated[bool, typer.Option(help="Also the part with very many samples.")] = True,
    workers: NumberOfWorkers = 0,
    cluster: Cluster = "",
    out: Out = Path("results"),
) -> None:
    """What learning saves after recalibration, paired with a box that learns nothing but scales.

    The paper's tasks at its sizes and with more samples, up to 20 outcomes, and what very many samples make possible on
    the linear task. Takes an hour or two with 20 seeds; goes on where it was when it is started again.

    Example: polyhedge reproduce generalisation --setting "linear, d = 2, n = 300" --seeds 5 --no-population
    """
    from polyhedge_study.commands.tables import show
    from polyhedge_study.generalisation import generalisation_jobs, run_generalisation
    from polyhedge_study.generalisation_report import comparison_grid, population_grid

    jobs = generalisation_jobs(setting or (), seeds, (2, 5, 10) if population else ())
    with progress_bar() as report:
        rows = run_generalisation(jobs, out, workers=_workers(workers, cluster), report=report)
    grids = [grid for grid in (comparison_grid(rows), population_grid(rows)) if grid.rows]
    for grid in grids:
        show(grid, dense=True)
    replace_file(out / "generalisation.md", "\n".join(grid.markdown() for grid in grids).encode())
    _say_paths([out / f"generalisation.{suffix}" for suffix in ("csv", "json", "md")])


@reproduce.command()
def guarantees(
    setting: Annotated[list[str] | None, typer.Option(help="One line of the table; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 5,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    alpha: Annotated[float, typer.Option(help="Share of rows whose bound may fail.")] = 0.1,
    workers: NumberOfWorkers = 0,
    cluster: Cluster = "",
    out: Out = Path("results"),
) -> None:
    """A plan guarded for the decision that is taken, beside a set that guards every decision, paired over seeds.

    Takes some minutes a seed with all settings; goes on where it was when it is started again.

    Example: polyhedge reproduce guarantees --setting "linear, d = 2, n = 300" --seeds 5
    """
    from polyhedge_study.commands.tables import show
    from polyhedge_study.guarantees import guarantee_grid, guarantee_jobs, run_guarantees

    jobs = guarantee_jobs(setting or (), seeds, first_seed)
    with progress_bar() as report:
        rows = run_guarantees(jobs, out, alpha=alpha, workers=_workers(workers, cluster), report=report)
    grid = guarantee_grid(rows)
    show(grid, dense=True)
    replace_file(out / "guarantees.md", grid.markdown().encode())
    _say_paths([out / f"guarantees.{suffix}" for suffix in ("csv", "json", "md")])


@reproduce.command()
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
    _say_paths([out / "online.md"])
