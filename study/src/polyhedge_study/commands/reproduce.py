"""`polyhedge reproduce`: the paper's experiments."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from polyhedge.app.cli.app import say
from polyhedge_study.commands.common import (
    Cluster,
    NumberOfWorkers,
    Out,
    can_draw,
    drawn,
    progress_bar,
    say_paragraph,
    say_paths,
    workers_of,
)
from polyhedge_study.commands.promises import cases, guarantees, limit, of_decisions_taken, online, promises, recourse
from polyhedge_study.inside import replace_file

reproduce = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


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
    quick: Annotated[
        bool, typer.Option("--quick", help="Without the rows that take long, such as PICNN in full passes.")
    ] = False,
    page: Annotated[bool, typer.Option("--page", help="Also write the page, as polyhedge report does.")] = False,
    alpha: Annotated[float, typer.Option(help="Share of outcomes that may fall outside the set.")] = 0.1,
    workers: NumberOfWorkers = 0,
    cluster: Cluster = "",
    out: Out = Path("results"),
) -> None:
    """Every method on every task, beside the paper's Tables 2 and 3, and the bubble figure.

    The paper's methods bound the cost of every decision at once. Where no method is named, a second table has those
    that bound the cost of the decision taken, the default of the library (guarantees.csv; two seeds with --quick).

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
        rows = run_study(jobs, out, settings=settings, workers=workers_of(workers, cluster), report=report)
    figures = table_rows(rows)
    for name in tasks_of(figures):
        if not task or name in task:
            show(short_grid(figures, name), dense=True)
    say_paragraph([LEGEND])
    paths = [out / "study.csv", out / "study.json", *write_tables(rows, out)]
    say_paths([*paths, *drawn(out / "bubble", partial(draw_bubbles, rows, alpha=alpha))])
    promised = [] if method else of_decisions_taken(task or (), seeds, quick, alpha, workers_of(workers, cluster), out)
    missing = left_out(figures) if quick and not method else []  # who names methods leaves out the others
    more = [f"Left out of this quick run: {', '.join(missing)}; without --quick they are added."] if missing else []
    if page:
        more.append(f"The page with all tables and figures: {write_study_report(out)}")
    say_paragraph([*in_words(figures), *promised, *more])


@reproduce.command()
def sensitivity(
    task: Annotated[str, typer.Option(help="Cost: linear, quadratic or newsvendor.")] = "linear",
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 5,
    workers: NumberOfWorkers = 0,
    cluster: Cluster = "",
    out: Out = Path("results"),
) -> None:
    """Our learners against d, K and n / (n + m) (the paper's sensitivity figure), and whether what it says holds.

    Writes sensitivity.csv, .json, .md, .png and .svg; goes on where it was stopped. Takes about 8 minutes on 2 cores.

    Example: polyhedge reproduce sensitivity --seeds 2
    """
    from polyhedge_study.commands.tables import show
    from polyhedge_study.sensitivity import SWEEPS, SensitivitySettings, run_sensitivity, sensitivity_jobs
    from polyhedge_study.sensitivity_report import draw_sensitivity, sensitivity_grid, sensitivity_report, statements

    settings = SensitivitySettings(task=task)
    with progress_bar() as report:
        rows = run_sensitivity(
            sensitivity_jobs(seeds), out, settings=settings, workers=workers_of(workers, cluster), report=report
        )
    for sweep in SWEEPS:
        show(sensitivity_grid(rows, sweep), dense=True)
    say_paragraph(["What the paper says about this figure, judged by these rows.", *statements(rows, settings)])
    paths = [out / f"sensitivity.{suffix}" for suffix in ("csv", "json", "md")]
    replace_file(paths[2], sensitivity_report(rows).encode())
    say_paths([*paths, *drawn(out / "sensitivity", partial(draw_sensitivity, rows, alpha=settings.alpha))])


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
    where = workers_of(workers, cluster)
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
    say_paths([*paths, *drawn(out / "theory", partial(pages.draw_theory, run))])


@reproduce.command()
def motivation(
    alpha: Annotated[float, typer.Option(help="Share of outcomes outside each set.")] = 0.15, out: Out = Path("results")
) -> None:
    """Three sets of equal coverage over the loss (the paper's first figure).

    Writes motivation.json, motivation.png and motivation.svg.

    Example: polyhedge reproduce motivation
    """
    from polyhedge_study.motivation import draw_motivation, make_motivation, write_motivation

    figure = make_motivation(alpha)
    for result in figure.results:
        say(f"{result.name}: coverage {result.coverage:.3f}, worst-case loss {result.worst_case_cost:.3f}")
    write_motivation(figure, out / "motivation.json")
    say_paths([out / "motivation.json", *drawn(out / "motivation", partial(draw_motivation, figure))])


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
        run = run_scaling(settings, out, stem=stem, report=report)
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
        rows = run_generalisation(jobs, out, workers=workers_of(workers, cluster), report=report)
    grids = [grid for grid in (comparison_grid(rows), population_grid(rows)) if grid.rows]
    for grid in grids:
        show(grid, dense=True)
    replace_file(out / "generalisation.md", "\n".join(grid.markdown() for grid in grids).encode())
    say_paths([out / f"generalisation.{suffix}" for suffix in ("csv", "json", "md")])


for _command in (guarantees, limit, cases, online, promises, recourse):
    reproduce.command()(_command)
