"""Decisions a second: ours against what one would use instead, as ratios within one run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from polyhedge.robust import decide
from polyhedge_study.inside import Array
from polyhedge_study.speed.cases import PARAMETERS, PRODUCT, REGIMES, Instance, Regime, draw
from polyhedge_study.speed.growth import GrowthPoint
from polyhedge_study.speed.policies import (
    PLAN_REGIMES,
    PlanInstance,
    draw_plan,
    largest_excess,
    plan_rows,
    planning_in_cvxpy,
    risks,
)
from polyhedge_study.speed.rivals import RIVALS, Rival, Solve, reference_solver

__all__ = ["Check", "DecisionsRun", "DecisionsSettings", "SpeedRow", "check_values", "run_decisions"]

logger = logging.getLogger(__name__)

OURS = "polyhedge"
TOLERANCE = 1e-7
"""Largest relative difference to an independent solver, of the order at which those stop."""
ALL_REGIMES = (*REGIMES, *PLAN_REGIMES)
_PLANS_CHECKED = 100
"""Policies that are compared with a solver's: each takes it some milliseconds."""


@dataclass(frozen=True)
class DecisionsSettings:
    """What is timed, and how long it may take.

    Attributes
    ----------
    regimes : names of `ALL_REGIMES`: robust decisions over sets, and plans.
    most_contexts : larger regimes are cut to so many predictions.
    rounds : each round times ours and every rival once; the fastest round of each counts.
    budget : seconds for a rival in each round; it solves as many contexts as it can, at least three.
    checked : random contexts whose values are compared with an independent solver's.
    sizes, outcomes, facets : contexts N (d = 2 and d = 10), outcomes d and facets K of the growth curves.
    seed : of all draws.
    """

    regimes: tuple[str, ...] = tuple(regime.name for regime in ALL_REGIMES)
    most_contexts: int = 1_000_000
    rounds: int = 3
    budget: float = 1.0
    checked: int = 1000
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    outcomes: tuple[int, ...] = (2, 3, 5, 8, 12, 20)
    facets: tuple[int, ...] = (10, 20, 40, 80, 160)
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = sorted(set(self.regimes) - {regime.name for regime in ALL_REGIMES})
        if unknown:
            known = ", ".join(regime.name for regime in ALL_REGIMES)
            raise ValueError(f"There is no regime {', '.join(unknown)}. The regimes are {known}.")

    @classmethod
    def quick(cls, seed: int = 0) -> DecisionsSettings:
        """Fewer contexts and shorter times: a few minutes; the ratios need many contexts and come out smaller."""
        return cls(
            most_contexts=5_000,
            rounds=2,
            budget=0.2,
            checked=200,
            sizes=(300, 1_000, 3_000),
            outcomes=(2, 3, 5),
            facets=(10, 20, 40),
            seed=seed,
        )


@dataclass(frozen=True)
class SpeedRow:
    """One tool in one regime.

    Attributes
    ----------
    regime, cost, d, K, n_contexts, spread, facets : which program.
    tool : "polyhedge", a rival, or the matrix product.
    timed : contexts in its fastest round.
    seconds : for one context, in its fastest round.
    ratio : seconds over ours.
    target : what the ratio should reach: at least for rivals; for the matrix product at least 1 / 20.
    difference : largest difference of its values from ours, over the contexts it solved.
    reason : why there is no time.
    """

    regime: str
    cost: str
    d: int
    K: int
    n_contexts: int
    spread: float
    facets: str
    tool: str
    timed: int
    seconds: float
    ratio: float
    target: float
    difference: float
    reason: str = ""

    @property
    def meets_target(self) -> bool | None:
        """Whether the ratio is what was asked for; None where nothing was."""
        return None if np.isnan(self.target) else bool(self.ratio >= self.target)


@dataclass(frozen=True)
class Check:
    """Values of random contexts against an independent solver's, and how many distinct decisions there were."""

    regime: str
    solver: str
    contexts: int
    difference: float
    distinct: int = 0
    tolerance: float = TOLERANCE

    @property
    def passed(self) -> bool:
        """Whether all values agree; a value that is missing does not."""
        return bool(self.difference <= self.tolerance)


@dataclass(frozen=True)
class DecisionsRun:
    """All rows, checks and growth points with what made them."""

    settings: DecisionsSettings
    machine: dict[str, Any]
    rows: tuple[SpeedRow, ...] = ()
    checks: tuple[Check, ...] = ()
    growth: tuple[GrowthPoint, ...] = ()


Report = Callable[[DecisionsRun, str], None]


def run_decisions(
    settings: DecisionsSettings,
    machine: dict[str, Any],
    *,
    rivals: Sequence[Rival] = RIVALS,
    report: Report | None = None,
) -> DecisionsRun:
    """Time every regime, check its values, and follow the time along N, d and K.

    `report` is called with what is there so far, and what comes next, before each part and at the end.
    """
    run = DecisionsRun(settings, machine)
    say: Report = report if report is not None else lambda run, text: None
    for regime in ALL_REGIMES:
        if regime.name not in settings.regimes:
            continue
        say(run, regime.name)
        cut = regime.with_contexts(min(regime.n_contexts, settings.most_contexts))
        if regime in PLAN_REGIMES:
            rows, check = measure_plan(draw_plan(cut, settings.seed), settings)
        else:
            rows, check = measure(draw(cut, settings.seed), rivals, settings)
        run = DecisionsRun(settings, machine, (*run.rows, *rows), (*run.checks, check), run.growth)
    for regime in _growth_regimes(settings):
        say(run, f"growth: {_setting(regime)}")
        run = DecisionsRun(settings, machine, run.rows, run.checks, (*run.growth, *_grow(regime, settings)))
    say(run, "")
    return run


def measure(
    instance: Instance, rivals: Iterable[Rival], settings: DecisionsSettings
) -> tuple[tuple[SpeedRow, ...], Check]:
    """One regime: rounds in which ours and each rival take turns, so that all see the same load of the machine."""
    decide(instance.problem, instance.shape, instance.radius, instance.centers[:3])  # compiles the problem
    stopwatches = [_Stopwatch.of(rival, instance) for rival in rivals]
    ours: list[float] = []
    product: list[float] = []
    for _ in range(settings.rounds):
        began = time.perf_counter()
        decisions = decide(instance.problem, instance.shape, instance.radius, instance.centers)
        ours.append((time.perf_counter() - began) / len(instance.centers))
        began = time.perf_counter()
        instance.centers @ instance.shape.W.T
        product.append((time.perf_counter() - began) / len(instance.centers))
        for stopwatch in stopwatches:
            stopwatch.run(instance.centers, settings.budget)
    values, n = decisions.cost_bound, len(instance.centers)
    row = _Row(instance.regime, min(ours))
    rows = [row.of(OURS, n, min(ours), 0.0)]
    rows += [row.of(s.name, s.timed, s.seconds, s.difference(values), s.reason) for s in stopwatches]
    rows.append(row.of(PRODUCT, n, min(product), np.nan))
    check = check_values(instance, values, settings.checked, settings.seed)
    return tuple(rows), replace(check, distinct=len(np.unique(decisions.z.round(7), axis=0)))


def measure_plan(instance: PlanInstance, settings: DecisionsSettings) -> tuple[tuple[SpeedRow, ...], Check]:
    """One regime of policies, as `measure`; each round begins with a planner that knows its cuts and no corner."""
    stopwatch = _Stopwatch.of(Rival(PARAMETERS, lambda _: planning_in_cvxpy(instance)), instance)
    ours: list[float] = []
    for _ in range(settings.rounds):
        fresh = replace(instance, planner=replace(instance.planner))
        began = time.perf_counter()
        z, _ = plan_rows(fresh)
        ours.append((time.perf_counter() - began) / len(z))
        stopwatch.run(instance.rows, settings.budget)
    values = risks(instance, z[: len(stopwatch.values)])
    row = _Row(instance.regime, min(ours))
    rows = (
        row.of(OURS, len(z), min(ours), 0.0),
        row.of(PARAMETERS, stopwatch.timed, stopwatch.seconds, stopwatch.difference(values), stopwatch.reason),
    )
    checked = z[: min(settings.checked, _PLANS_CHECKED)]
    solver, worst = largest_excess(instance, checked)
    return rows, Check(instance.regime.name, solver, len(checked), worst, len(np.unique(z.round(7), axis=0)))


@dataclass(frozen=True)
class _Row:
    regime: Regime
    ours: float

    def of(self, tool: str, timed: int, seconds: float, difference: float, reason: str = "") -> SpeedRow:
        regime = {key: value for key, value in asdict(self.regime).items() if key not in ("name", "targets")}
        target = self.regime.targets.get(tool, np.nan)
        return SpeedRow(
            regime=self.regime.name,
            **regime,
            tool=tool,
            timed=timed,
            seconds=seconds,
            ratio=seconds / self.ours,
            target=1 / target if tool == PRODUCT else target,
            difference=difference,
            reason=reason,
        )


class _Stopwatch:
    """A rival that solves contexts one after the other until its time is over; an error ends it with a reason."""

    def __init__(self, name: str) -> None:
        self.name, self.reason = name, ""
        self.solve: Solve | None = None
        self.values: list[float] = []
        self.timed, self.seconds = 0, np.nan

    @classmethod
    def of(cls, rival: Rival, instance: Any) -> _Stopwatch:
        stopwatch = cls(rival.name)
        try:
            stopwatch.solve = rival.prepare(instance)
        except Exception as error:  # whatever a rival raises is a result about the rival
            stopwatch._fail(error)
        return stopwatch

    def run(self, centers: Array, budget: float) -> None:
        """One round, from where the last one stopped."""
        if self.solve is None:
            return
        done, began = 0, time.perf_counter()
        try:
            while len(self.values) < len(centers):
                self.values.append(self.solve(centers[len(self.values)]))
                done, spent = done + 1, time.perf_counter() - began
                if spent > budget and done >= 3:
                    break
        except Exception as error:
            self._fail(error)
            return
        if done and not spent / done >= self.seconds:
            self.timed, self.seconds = done, spent / done

    def _fail(self, error: Exception) -> None:
        logger.debug("%s failed", self.name, exc_info=error)
        self.solve, self.reason = None, " ".join(f"{error}".split()) or type(error).__name__
        self.timed, self.seconds = 0, np.nan

    def difference(self, values: Array) -> float:
        """Largest difference from our values; NaN where it solved nothing."""
        own = np.array(self.values)
        return float(np.abs(own - values[: len(own)]).max()) if len(own) else np.nan


def check_values(instance: Instance, values: Array, contexts: int, seed: int) -> Check:
    """Compare the values (N,) of so many random contexts with an independent solver's.

    Examples
    --------
    >>> instance = draw(REGIMES[0].with_contexts(50), seed=0)
    >>> values = decide(instance.problem, instance.shape, instance.radius, instance.centers).cost_bound
    >>> check_values(instance, values, 20, seed=0).passed, check_values(instance, values + 1e-6, 20, seed=0).passed
    (True, False)
    """
    n = min(contexts, len(values))
    chosen = np.random.default_rng([seed, 1]).choice(len(values), size=n, replace=False)
    name, solve = reference_solver(instance)
    differences = np.array([abs(solve(instance.centers[i]) - values[i]) for i in chosen])
    worst = float(differences.max()) if np.isfinite(differences).all() else float("inf")
    return Check(instance.regime.name, name, n, worst)


def _growth_regimes(settings: DecisionsSettings) -> list[Regime]:
    """Curves along N for the closed form and for the pool, along d with K = 4 d, and along K for d = 5."""
    along_n = [Regime("N", "linear", d, 4 * d, n) for d in (2, 10) for n in settings.sizes if d == 2 or n <= 100_000]
    middle = settings.sizes[len(settings.sizes) // 2]
    along_d = [Regime("d", "linear", d, 4 * d, min(middle, 10_000)) for d in settings.outcomes]
    return along_n + along_d + [Regime("K", "linear", 5, K, min(middle, 10_000)) for K in settings.facets]


def _setting(regime: Regime) -> str:
    fixed = {"N": f"d = {regime.d}, K = {regime.K}", "d": f"K = 4 d, N = {regime.n_contexts}"}
    return fixed.get(regime.name, f"d = {regime.d}, N = {regime.n_contexts}")


def _grow(regime: Regime, settings: DecisionsSettings) -> list[GrowthPoint]:
    """Ours, and the warm-started solver scaled to as many contexts."""
    instance = draw(regime, settings.seed)
    size = {"N": regime.n_contexts, "d": regime.d, "K": regime.K}[regime.name]
    rows, _ = measure(instance, [RIVALS[-1]], _only_time(settings))
    return [
        GrowthPoint(row.tool, regime.name, size, row.seconds * regime.n_contexts, _setting(regime), row.reason)
        for row in rows
    ]


def _only_time(settings: DecisionsSettings) -> DecisionsSettings:
    return DecisionsSettings(rounds=settings.rounds, budget=settings.budget / 4, checked=3, seed=settings.seed)
