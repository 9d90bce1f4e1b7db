"""Decisions with recourse on real tables: with and without it, and a sample average of both stages by hand.

| case | decided now | decided once the outcome is known | outcomes |
|---|---|---|---|
| bakeries | orders of 6 shops; left over 1, short 4 | goods moved between shops, 1 each | demand |
| solar | MWh of 10 MW sold ahead, 4 parts of a day | a battery of 24 MWh; short 90, surplus 10 EUR | solar, prices |
| dishes | portions of 7 dishes; left over 1, short 3 | cooked late, or guests take another: 1 each | demand |

The battery has 6 MW for 10 MW of sun, and lasts four hours, as those of large plants often do. Late cooking costs twice
what cooking in time does, and at most a tenth of a mean day is cooked late. Both were set before results were seen.

Rows are shuffled: 20 % test, 15 % calibrate, 20 % learn and 45 % train. All methods have the same predictor and split.
No setting of the library was chosen on these cases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import polyhedge as ph
from polyhedge.data import Split
from polyhedge.data.splits import evenly_chosen
from polyhedge.problems import DecisionProblem
from polyhedge.robust.recourse import BothStages
from polyhedge_study.experiment import Experiment
from polyhedge_study.grid import Grid
from polyhedge_study.guarded.developed import Bounded, Developed
from polyhedge_study.inside import Array
from polyhedge_study.jobs import Progress, Workers
from polyhedge_study.real import Table, bakery_rows, restaurant_demand, solar_market
from polyhedge_study.tasks import Task

__all__ = ["CASES", "METHODS", "RecourseJob", "RecourseRow", "recourse_grid", "recourse_jobs", "run_recourse"]

_SCENARIOS = 50
"""Residuals of the sample average of both stages: each is a copy of the second stage in every program."""
_MOST_ROWS = 900
"""The last rows of a table: as many as keep the programs of the sample average within minutes a split."""


@dataclass(frozen=True, eq=False)
class TwoStages:
    """A real table with the problem with recourse, and the same one where all is decided at once."""

    table: Table
    both: DecisionProblem
    alone: DecisionProblem


def _bakeries() -> TwoStages:
    rows = bakery_rows(6)
    first = rows[rows["product"] == sorted(rows["product"].unique())[0]]
    Y = first.pivot(index="date", columns="store", values="demand").dropna().astype(float)
    Y.columns = pd.Index([f"shop_{k + 1}" for k in range(Y.shape[1])])
    known = first.groupby("date")[["is_schoolholiday", "is_holiday", "rain", "temperature"]].first().astype(float)
    week, month = Y.shift(7), sum(Y.shift(7 * k) for k in range(1, 5)) / 4
    X = known.join(week.add_suffix("_week")).join(month.add_suffix("_month")).dropna()
    days = pd.DatetimeIndex(X.index)
    X = X.assign(**{f"weekday_{k}": (days.day_of_week == k).astype(float) for k in range(7)})
    over, under, move = 1.0, 4.0, 1.0
    z, y = cp.Variable(6, nonneg=True, name="order"), cp.Variable((6, 6), nonneg=True, name="moved")
    both = DecisionProblem(
        decision=z,
        recourse=y,
        n_outcomes=6,
        cost=lambda z, u, y: _unmet(z - cp.sum(y, axis=1) + cp.sum(y, axis=0), u, over, under) + move * cp.sum(y),
        recourse_constraints=lambda z, u, y: [cp.sum(y, axis=1) <= z],
        name="bakeries",
    )
    alone = DecisionProblem(
        decision=cp.Variable(6, nonneg=True, name="order"),
        cost=lambda z, u: _unmet(z, u, over, under),
        n_outcomes=6,
        name="bakeries",
    )
    return TwoStages(Table(X, Y.loc[X.index]), both, alone)


def _unmet(have: Any, u: Any, over: float, under: float) -> Any:
    return over * cp.sum(cp.pos(have - u)) + under * cp.sum(cp.pos(u - have))


def _solar() -> TwoStages:
    size, power, capacity, efficiency, short, surplus = 10.0, 6.0, 24.0, 0.9, 90.0, 10.0
    stored = np.tril(np.ones((4, 4)))

    def settled(z: Any, u: Any, charge: Any, empty: Any) -> Any:
        gap = z - size * u[:4] - empty + charge
        return (short - surplus) * cp.sum(cp.pos(gap)) + surplus * cp.sum(gap) - u[4:] @ z

    def limits(charge: Any, empty: Any) -> list[Any]:
        level = stored @ (efficiency * charge - empty)
        return [level >= 0, level <= capacity]

    def parts(name: str, most: float = power) -> cp.Variable:
        return cp.Variable(4, bounds=[0, 3 * most], name=name)

    both = DecisionProblem(
        decision=parts("sold", size),
        recourse={"charge": parts("charge"), "empty": parts("empty")},
        n_outcomes=8,
        cost=lambda z, u, y: settled(z, u, y["charge"], y["empty"]),
        recourse_constraints=lambda z, u, y: limits(y["charge"], y["empty"]),
        name="solar",
    )
    sold, charge, empty = parts("sold", size), parts("charge"), parts("empty")
    alone = DecisionProblem(
        decision=[sold, charge, empty],
        n_outcomes=8,
        cost=lambda z, u: settled(z[0], u, z[1], z[2]),
        constraints=limits(charge, empty),
        name="solar",
    )
    return TwoStages(solar_market(), both, alone)


def _dishes() -> TwoStages:
    table, over, under, other, late = restaurant_demand(), 1.0, 3.0, 1.0, 1.0
    d, totals = table.Y.shape[1], table.Y.to_numpy().sum(axis=1)
    limit, most_late = float(np.quantile(totals, 0.9)), 0.1 * float(totals.mean())
    z, y = cp.Variable(d, nonneg=True, name="portions"), cp.Variable((d, d), nonneg=True, name="other")

    def cost(z: Any, u: Any, y: Any) -> Any:
        have = z - cp.sum(y["other"], axis=1) + cp.sum(y["other"], axis=0) + y["late"]
        return _unmet(have, u, over, under) + other * cp.sum(y["other"]) + late * cp.sum(y["late"])

    both = DecisionProblem(
        decision=z,
        recourse={"other": y, "late": cp.Variable(d, nonneg=True, name="late")},
        n_outcomes=d,
        cost=cost,
        constraints=[cp.sum(z) <= limit],
        recourse_constraints=lambda z, u, y: [cp.sum(y["other"], axis=1) <= z, cp.sum(y["late"]) <= most_late],
        name="dishes",
    )
    own = cp.Variable(d, nonneg=True, name="portions")
    alone = DecisionProblem(
        decision=own,
        cost=lambda z, u: _unmet(z, u, over, under),
        constraints=[cp.sum(own) <= limit],
        n_outcomes=d,
        name="dishes",
    )
    return TwoStages(table, both, alone)


CASES: dict[str, Callable[[], TwoStages]] = {"bakeries": _bakeries, "solar": _solar, "dishes": _dishes}
METHODS = {
    "recourse": "Polyhedge with recourse",
    "one-stage": "Polyhedge without recourse",
    "sample-average": "sample average of both stages + guard, by hand",
}


@dataclass(frozen=True)
class RecourseSettings:
    """What all rows share."""

    alpha: float = 0.1


@dataclass(frozen=True)
class RecourseJob:
    """One method on one split of a case."""

    case: str
    method: str
    seed: int

    @property
    def label(self) -> str:
        """For the progress line."""
        return f"{self.case}, {METHODS[self.method]}, split {self.seed}"

    @property
    def kind(self) -> str:
        """No two of them take the same time."""
        return f"{self.case} {self.method}"


@dataclass(frozen=True)
class RecourseRow:
    """What a method gives on the test rows of a split.

    Attributes
    ----------
    bound, equal, realised : mean bound, mean bound if the test rows themselves had set the radius, mean cost.
    held : share of test rows that cost no more than their bound.
    fit_seconds, decide_seconds : CPU time to fit, and to decide the test rows.
    """

    case: str
    method: str
    seed: int
    status: str
    bound: float
    equal: float
    realised: float
    held: float
    fit_seconds: float
    decide_seconds: float
    n_test: int
    detail: str = ""

    @property
    def job(self) -> RecourseJob:
        """The job that made it."""
        return RecourseJob(self.case, self.method, self.seed)


def recourse_jobs(cases: Sequence[str] = (), methods: Sequence[str] = (), seeds: int = 5) -> list[RecourseJob]:
    """The named methods on the named cases, all by default."""
    for given, known, what in ((cases, CASES, "case"), (methods, METHODS, "method")):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(f"{what} must be one of {', '.join(known)}; got {unknown[0]!r}.")
    return [RecourseJob(c, m, s) for c in cases or CASES for m in methods or METHODS for s in range(seeds)]


def run_recourse(
    jobs: Sequence[RecourseJob],
    folder: Path,
    *,
    alpha: float = 0.1,
    workers: Workers | None = None,
    report: Callable[[Progress], None] | None = None,
) -> list[RecourseRow]:
    """Run what `recourse.csv` in the folder lacks; return all its rows in order."""
    settings = RecourseSettings(alpha)
    experiment = Experiment(
        name="recourse",
        row_type=RecourseRow,
        settings=settings,
        work=partial(run_job, settings=settings),
        failed=lambda job, why: RecourseRow(job.case, job.method, job.seed, "failed", *(np.nan,) * 6, 0, why),
        order=lambda row: (list(CASES).index(row.case), row.seed, list(METHODS).index(row.method)),
        about=lambda rows: {"command": "polyhedge reproduce recourse"},
    )
    return experiment.run(jobs, folder, workers=workers or Workers(), report=report)


def run_job(job: RecourseJob, settings: RecourseSettings) -> RecourseRow:
    """One row."""
    case = CASES[job.case]()
    problem = case.alone if job.method == "one-stage" else case.both
    task = _task(case, problem, job.seed)
    run = _sample_average if job.method == "sample-average" else _polyhedge
    bounded, fit_seconds, decide_seconds = run(task, settings.alpha, job.seed)
    costs = problem.evaluate(bounded.z, task.rows("test")[1])
    return RecourseRow(
        job.case,
        job.method,
        job.seed,
        "done",
        bound=float(bounded.bound.mean()),
        equal=float(bounded.equal.mean()),
        realised=float(costs.mean()),
        held=float((costs <= bounded.bound).mean()),
        fit_seconds=fit_seconds,
        decide_seconds=decide_seconds,
        n_test=len(costs),
        detail=bounded.detail,
    )


def _task(case: TwoStages, problem: DecisionProblem, seed: int) -> Task:
    X, Y = (part.to_numpy(dtype=np.float64)[-_MOST_ROWS:] for part in case.table)
    order = np.random.default_rng(seed).permutation(len(Y))
    ends = np.round(np.cumsum([0.45, 0.2, 0.15]) * len(Y)).astype(int)
    train, learn, calibrate, test = np.split(order, ends)
    predictor = make_pipeline(StandardScaler(), Ridge(10.0))
    names = tuple(map(str, case.table.Y.columns))
    return Task(case.both.name, problem, X, Y, Split(train, learn, calibrate, n_rows=len(Y)), test, predictor, names)


def _polyhedge(task: Task, alpha: float, seed: int) -> tuple[Bounded, float, float]:
    before = process_time()
    decider = ph.RobustDecider(task.problem, task.predictor, alpha, guarantee="cost", random_state=seed)
    split = task.split
    decider.fit(task.X, task.Y, train=split.train, learn=split.learn, calibrate=split.calibrate)
    fitted = process_time()
    X, Y = task.rows("test")
    now = decider.decide(X)
    decided = process_time()
    v = now.cost_bound - decider.radius_
    fresh = task.problem.evaluate(now.flat, Y) - v
    scores = decider.model_.radii.scores
    assert scores is not None
    bounded = Bounded(lambda radius: (now.flat, v + radius), scores, fresh, alpha)
    return bounded, fitted - before, decided - fitted


def _sample_average(task: Task, alpha: float, seed: int) -> tuple[Bounded, float, float]:
    """At each row the program of both stages over residuals; the planned cost is their (1 - alpha)-quantile."""
    before = process_time()
    developed = Developed.of(task)
    residuals = developed.rows.outcomes - developed.rows.centers
    few, both = residuals[evenly_chosen(len(residuals), _SCENARIOS)], BothStages(task.problem)

    def decided(part: str) -> tuple[Array, Array, Array]:
        X, Y = task.rows(part)
        centers = developed.predictor.predict(X)
        z = np.array([both.solve(center + few)[1] for center in centers])
        n = len(residuals)
        costs = [
            np.sort(task.problem.evaluate(np.tile(one, (n, 1)), center + residuals))
            for one, center in zip(z, centers, strict=True)
        ]
        v = np.array(costs)[:, int(np.ceil((1 - alpha) * n)) - 1]
        return z, v, task.problem.evaluate(z, Y) - v

    scores = decided("calibrate")[2]
    fitted = process_time()
    z, v, fresh = decided("test")
    return Bounded(lambda radius: (z, v + radius), scores, fresh, alpha), fitted - before, process_time() - fitted


def recourse_grid(rows: Sequence[RecourseRow]) -> Grid:
    """Means over splits; differences to Polyhedge with recourse in per cent of its rival, paired, with their errors."""
    lines = []
    for case in CASES:
        by = {(row.method, row.seed): row for row in rows if row.case == case and row.status == "done"}
        for k, method in enumerate(METHODS):
            own = [row for (name, _), row in by.items() if name == method]
            if not own:
                continue
            figures = [f"{np.mean([getattr(row, name) for row in own]):.4g}" for name in _FIGURES]
            held = f"{np.mean([row.held for row in own]):.3f}"
            times = [
                f"{np.mean([getattr(row, name) for row in own]):.3g}" for name in ("fit_seconds", "decide_seconds")
            ]
            pairs = [(row, by["recourse", row.seed]) for row in own if ("recourse", row.seed) in by]
            less = [_saved(pairs, name) if method != "recourse" and len(pairs) > 1 else "" for name in _FIGURES]
            lines.append((case if k == 0 else "", METHODS[method], *figures, held, *less, *times))
    heads = ("case", "method", "bound", "at equal coverage", "cost", "held", *(f"{n} saved, %" for n in _SHORT))
    note = (
        "What recourse saves is in per cent of the rival's mean figure, over the same splits, with standard "
        f"errors. Seconds are CPU time. The sample average has {_SCENARIOS} residuals in each program."
    )
    return Grid("Decisions with recourse", (*heads, "fit, s", "decide, s"), tuple(lines), note)


_FIGURES = ("bound", "equal", "realised")
_SHORT = ("bound", "equal", "cost")


def _saved(pairs: Sequence[tuple[RecourseRow, RecourseRow]], name: str) -> str:
    rival, ours = (np.array([getattr(pair[k], name) for pair in pairs]) for k in (0, 1))
    saved = 100 * (rival - ours) / abs(rival.mean())
    return f"{saved.mean():+.1f} ± {saved.std(ddof=1) / np.sqrt(len(saved)):.1f}"
