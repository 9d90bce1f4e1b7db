"""`polyhedge bench`: measured times, as ratios within one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhedge.cli.app import can_draw
from polyhedge.cli.output import say

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
    """Decisions for many contexts against CVXPY, HiGHS, SciPy and Clarabel, one context at a time.

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
    needs PyTorch) and runs them in child processes. --only names a peer.

    Example: polyhedge bench peers --quick --only RSOME
    """
    from polyhedge_study.machine import environment
    from polyhedge_study.speed.peers import PEERS, PeersSettings, run_peers
    from polyhedge_study.speed.report import peers_grids

    settings = PeersSettings.quick(seed) if quick else PeersSettings(seed=seed)
    chosen = _chosen(PEERS, only, "peer")
    output = _Output(out, "bench_peers", "Peers on the same sets", peers_grids)
    run = run_peers(settings, environment(), place, peers=chosen, report=output.report)
    output.finish(run, ())
    unequal = [f"{row.peer} ({row.set}, d = {row.d})" for row in run.rows if row.equal is False]
    if unequal:
        say(f"The optimal values differ by more than 1e-6: {', '.join(unequal)}.", err=True)
        raise typer.Exit(1)


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
