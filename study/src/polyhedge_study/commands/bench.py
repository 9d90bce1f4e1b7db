"""`polyhedge bench`: measured times, as ratios within one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhedge.app.cli.app import say
from polyhedge_study.commands.common import can_draw
from polyhedge_study.inside import replace_file

if TYPE_CHECKING:
    from polyhedge_study.grid import Grid
    from polyhedge_study.speed.growth import GrowthPoint

bench = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Quick = Annotated[bool, typer.Option("--quick", help="Smaller sizes and shorter times: a few minutes.")]
Out = Annotated[Path, typer.Option(file_okay=False, help="Folder for the results; made if it is missing.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all draws.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Run only this part; may be given several times.")]


@bench.callback()
def _bench() -> None:
    """Measure speed. All figures are ratios of times taken in turns within one run.

    Example: polyhedge bench decisions --quick
    """


@bench.command()
def decisions(quick: Quick = False, out: Out = Path("results"), seed: Seed = 0, only: Only = None) -> None:
    """Decisions for many contexts against CVXPY, HiGHS, SciPy and Clarabel, one context at a time; plans likewise.

    Checks that all optimal values agree with an independent solver's; fails if they do not. Writes Markdown, CSV, JSON
    and log-log plots. --only names a regime, such as d10-K40-hard. Takes about 10 minutes.

    Example: polyhedge bench decisions --quick --only d2-K4
    """
    from polyhedge_study.machine import environment
    from polyhedge_study.speed.decisions import DecisionsSettings, run_decisions
    from polyhedge_study.speed.report import decisions_grids

    settings = DecisionsSettings.quick(seed) if quick else DecisionsSettings(seed=seed)
    settings = settings if only is None else replace(settings, regimes=tuple(only))
    output = _Output(out, "bench_decisions", "Time to decide", decisions_grids)
    run = run_decisions(settings, environment(), report=output.report)
    output.finish(run, run.growth)
    wrong = [check.regime for check in run.checks if not check.passed]
    if wrong:
        say(f"The optimal values differ by more than 1e-7 in {', '.join(wrong)}.", err=True)
        raise typer.Exit(1)


@bench.command()
def learning(quick: Quick = False, out: Out = Path("results"), seed: Seed = 0, only: Only = None) -> None:
    """Seconds to learn a set against samples, outcomes and facets, and against other ways to learn it.

    --only names a method, such as Descent. Takes about 10 minutes.

    Example: polyhedge bench learning --quick --only Descent --only Scenario
    """
    from polyhedge_study.machine import environment
    from polyhedge_study.speed.learning import METHODS, LearningSettings, run_learning
    from polyhedge_study.speed.report import learning_grids

    settings = LearningSettings.quick(seed) if quick else LearningSettings(seed=seed)
    methods = _chosen(METHODS, only, "method")
    output = _Output(out, "bench_learning", "Time to learn a set", learning_grids)
    run = run_learning(settings, environment(), methods=methods, report=output.report)
    output.finish(run, run.growth)


@bench.command()
def peers(
    quick: Quick = False,
    out: Out = Path("results"),
    seed: Seed = 0,
    only: Only = None,
    place: Annotated[
        Path, typer.Option("--environment", file_okay=False, help="Virtual environment that the peers are put into.")
    ] = Path(".bench"),
) -> None:
    """Decisions by robbuffet and RSOME on the same sets, with their optimal values compared.

    Installs the peers from the package registry into an environment of their own (several gigabytes, because robbuffet
    needs PyTorch) and runs them in child processes. --only names a peer, or rules: the decision rules of PyROS and
    RSOME for a second stage, over regions of the bakeries' table.

    Example: polyhedge bench peers --quick --only RSOME
    """
    from polyhedge_study.commands.tables import show
    from polyhedge_study.machine import environment
    from polyhedge_study.speed.peers import PEERS, PeersSettings, run_peers
    from polyhedge_study.speed.recourse_peers import compare_rules, rules_grid
    from polyhedge_study.speed.report import peers_grids

    settings = PeersSettings.quick(seed) if quick else PeersSettings(seed=seed)
    if only is None or "rules" in only:
        grid = rules_grid(compare_rules(place, n_rows=3 if quick else 5, seed=seed))
        show(grid)
        replace_file(out / "bench_peers_rules.md", grid.markdown().encode())
        only = None if only is None else [name for name in only if name != "rules"]
        if only == []:
            return
    chosen = _chosen(PEERS, only, "peer")
    output = _Output(out, "bench_peers", "Peers on the same sets", peers_grids)
    run = run_peers(settings, environment(), place, peers=chosen, report=output.report)
    output.finish(run, ())
    unequal = [f"{row.peer} ({row.set}, d = {row.d})" for row in run.rows if row.equal is False]
    if unequal:
        say(f"The optimal values differ by more than 1e-6: {', '.join(unequal)}.", err=True)
        raise typer.Exit(1)


Against = Annotated[str, typer.Option(help="Commit whose package is built and measured in turns with this one.")]
Repeats = Annotated[int, typer.Option(min=1, help="Measurements of each case; their median counts.")]


@bench.command()
def fit(out: Out = Path("results"), only: Only = None, repeats: Repeats = 5) -> None:
    """CPU seconds of default fits beside scripts that a user would write by hand, and what their bounds are worth.

    Scripts: a forest with a conformal margin on the cost of its decision, and the sample average of each row with the
    same margin. Bounds, costs and coverage are those of fresh rows. --only names a case, such as newsvendor-4-n500.

    Example: polyhedge bench fit --only readme --repeats 1
    """
    from polyhedge_study.commands.tables import show
    from polyhedge_study.machine import environment
    from polyhedge_study.speed.fits import FitsRun, fit_grid, measure_fits, save_fits

    def report(run: FitsRun, coming: str) -> None:
        if coming:
            say(coming, err=True)
        if run.rows:
            save_fits(out, run)

    run = measure_fits(environment(), only=only, repeats=repeats, report=report)
    show(fit_grid(run), dense=True)
    for path in save_fits(out, run):
        say(f"Written: {path}")


@bench.command()
def latency(out: Out = Path("results"), only: Only = None, against: Against = "", repeats: Repeats = 5) -> None:
    """CPU seconds of one row, of some and of a million, with models out of files; --only names a case.

    Example: polyhedge bench latency --only "one row of newsvendor-4"
    """
    _waits(("latency",), out, only, against, repeats)


@bench.command()
def startup(out: Out = Path("results"), only: Only = None, against: Against = "", repeats: Repeats = 5) -> None:
    """CPU seconds until the package is there for Python, and until the command line answers.

    Example: polyhedge bench startup --repeats 3
    """
    _waits(("startup",), out, only, against, repeats)


@bench.command()
def compare(
    commit: Annotated[str, typer.Argument(help="Commit to compare with: its package is built beside this one.")],
    out: Out = Path("results"),
    only: Only = None,
    repeats: Repeats = 5,
) -> None:
    """How many times as fast as a commit: fits, latency, start-up and growth, in turns within one run.

    Both packages are built as wheels and measured through their public names, with the same Python and dependencies.
    Takes about an hour for a commit before 0.2.0; --only names a case.

    Example: polyhedge bench compare HEAD~1 --only "import polyhedge"
    """
    _waits(("fit", "latency", "startup"), out, only, commit, repeats, growth=True)


def _waits(
    kinds: tuple[str, ...], out: Path, only: list[str] | None, against: str, repeats: int, growth: bool = False
) -> None:
    from polyhedge_study.commands.tables import show
    from polyhedge_study.machine import environment
    from polyhedge_study.speed.compare import WaitsRun, measure_waits, save_waits, waits_grids

    stem = "bench_compare" if growth else f"bench_{kinds[0]}"

    def report(run: WaitsRun, coming: str) -> None:
        if coming:
            say(coming, err=True)
        if run.rows:
            save_waits(out, stem, run)

    run = measure_waits(kinds, environment(), against=against, repeats=repeats, only=only, growth=growth, report=report)
    for grid in waits_grids(run):
        show(grid, dense=True)
    for path in save_waits(out, stem, run):
        say(f"Written: {path}")


def _chosen(known: Sequence[Any], only: list[str] | None, kind: str) -> list[Any]:
    wanted = [item.name for item in known] if only is None else only
    unknown = sorted(set(wanted) - {item.name for item in known})
    if unknown:
        names = ", ".join(item.name for item in known)
        raise ValueError(f"There is no {kind} {', '.join(unknown)}. Known are {names}.")
    return [item for item in known if item.name in wanted]


class _Output:
    """Say on stderr what is measured now, keep the files up to date, print the tables at the end."""

    def __init__(self, folder: Path, stem: str, title: str, grids: Callable[[Any], tuple[Grid, ...]]) -> None:
        self.folder, self.stem, self.title, self.grids = folder, stem, title, grids

    def report(self, run: Any, coming: str) -> None:
        from polyhedge_study.speed.report import save

        if coming:
            say(coming, err=True)
        if run.rows:
            save(self.folder, self.stem, self.title, run, self.grids(run))

    def finish(self, run: Any, growth: Sequence[GrowthPoint]) -> None:
        from polyhedge_study.commands.tables import show
        from polyhedge_study.speed.report import draw_growth, save

        for grid in self.grids(run):
            show(grid, dense=True)
        paths = save(self.folder, self.stem, self.title, run, self.grids(run))
        if growth and can_draw():
            pictures = [self.folder / f"{self.stem}.{suffix}" for suffix in ("png", "svg")]
            draw_growth(growth, self.title, pictures)
            paths += pictures
        for path in paths:
            say(f"Written: {path}")
