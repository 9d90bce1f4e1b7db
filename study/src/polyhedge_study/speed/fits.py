"""CPU seconds of default fits beside what a user would write by hand, with bounds, costs and coverage on fresh rows."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from scipy.optimize import linprog

import polyhedge as ph
from polyhedge_study.grid import Grid
from polyhedge_study.inside import Array, replace_file
from polyhedge_study.speed.by_hand import ALPHA, N_SCENARIOS, Decide, Script, guarded, quadratic, served, shares, stock
from polyhedge_study.speed.waits import demand, prices

__all__ = ["FIT_CASES", "FitCase", "FitRow", "fit_grid", "measure_fits", "save_fits"]

OURS = "default fit"


@dataclass(frozen=True)
class FitCase:
    """A problem with rows, and its script by hand.

    Attributes
    ----------
    name : for the command line.
    problem : makes the problem as a user of the library writes it.
    rows : number of rows -> features, outcomes and the parameter of as many rows.
    n, n_fresh : rows to fit on, and fresh rows after them.
    script : the problem by hand.
    is_constraint : whether the outcome stands in constraints: the script serves a forecast with a margin.
    """

    name: str
    problem: Callable[[], Any]
    rows: Callable[[int], tuple[Any, Array, Array]]
    n: int
    script: Callable[[], Script]
    n_fresh: int = 500
    is_constraint: bool = False

    def decider(self, X: Any, Y: Array, theta: Array) -> Decide:
        """The default `fit`."""
        problem = self.problem()
        known = {problem.parameters[0].name: theta} if problem.parameters else None
        decider = ph.RobustDecider(problem, alpha=ALPHA, random_state=0)
        decider.guarantee = "cost" if known else None  # with parameters of rows a set would be learned
        decider.fit(X, Y, parameters=known)

        def decide(X: Any, theta: Array) -> tuple[Array, Array]:
            decisions = decider.decide(X, parameters=dict.fromkeys(known, theta) if known else None)
            return decisions.flat, decisions.cost_bound

        return decide

    def methods(self) -> dict[str, Callable[[Any, Array, Array], Decide]]:
        """Default fit, and both scripts."""
        script = self.script()
        if self.is_constraint:
            return {
                OURS: self.decider,
                "forecast + margin": partial(served, script, scaled=False),
                "forecast + k errors": partial(served, script, scaled=True),
            }
        return {
            OURS: self.decider,
            "prediction + margin": partial(guarded, script, n_scenarios=0),
            "sample average + margin": partial(guarded, script, n_scenarios=N_SCENARIOS),
        }


@dataclass(frozen=True)
class FitRow:
    """One method on one case: median CPU seconds of its fit; means over fresh rows."""

    case: str
    method: str
    seconds: float
    ratio: float
    bound: float
    cost: float
    held: float


def _arrays(draw: Callable[[int, int], tuple[Array, Array]], d: int) -> Callable[[int], tuple[Any, Array, Array]]:
    return lambda n: (*draw(n, d), np.ones(n))


def _pieces(n: int) -> tuple[Any, Array, Array]:
    X, Y = demand(n, 2)
    return X, np.round(2.5 * Y), np.ones(n)


def _example(n: int) -> tuple[Any, Array, Array]:
    shop = ph.data.make_example("newsvendor")
    table = pd.concat([shop.history, shop.fresh])[:n]
    return table.drop(columns=list(shop.outcomes)), table[list(shop.outcomes)].to_numpy(float), np.ones(len(table))


def _raw(n: int) -> tuple[Any, Array, Array]:
    """A frame of 12 columns as it comes: a date, texts, gaps."""
    rng = np.random.default_rng(0)
    X, Y = demand(n, 2)
    frame = pd.DataFrame(X, columns=["weather", "weekday", "price"])
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(n) // 20, unit="D")
    for name, words in {"shop": 20, "region": 5, "promotion": 2, "season": 4}.items():
        frame[name] = [f"{name} {k}" for k in rng.integers(0, words, n)]
    for k in range(4):
        frame[f"measured_{k}"] = np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n))
    return frame, Y * (1 + 0.02 * frame["shop"].str[5:].astype(float).to_numpy()[:, None]), np.ones(n)


def _priced(n: int) -> tuple[Any, Array, Array]:
    X, Y = demand(n, 3)
    return X, Y, np.random.default_rng(1).choice([1.0, 2.0, 4.0], n)


def _returns(n: int, d: int) -> tuple[Array, Array]:
    """Weekly returns (n, d) in per cent with one common factor and heavy tails, hardly predictable."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    common, own = rng.standard_t(4, size=(n, 1)), rng.standard_t(4, size=(n, d))
    return X, 0.2 + 0.2 * X @ rng.normal(size=(4, d)) / 2 + common * np.linspace(0.4, 1.2, d) + 0.8 * own


def _newsvendor(
    A: Any, b: Any, *, over: Any = 1.0, under: Any = 3.0, integer: bool = False, priced: bool = False
) -> dict[str, Any]:
    """Orders under A z <= b; what a unit left over and a unit short cost, where `priced` times a row's parameter."""
    A, b = np.atleast_2d(np.asarray(A, dtype=float)), np.atleast_1d(np.asarray(b, dtype=float))
    d = A.shape[1]
    over, under = np.full(d, over, dtype=float), np.full(d, under, dtype=float)

    def problem() -> Any:
        z = cp.Variable(d, nonneg=True, integer=integer, name="order")
        price = cp.Parameter(nonneg=True, name="price") if priced else 1
        cost = lambda z, u: over @ cp.pos(z - u) + price * (under @ cp.pos(u - z))  # noqa: E731
        return ph.DecisionProblem(decision=z, cost=cost, constraints=[A @ z <= b], n_outcomes=d)

    return {"problem": problem, "script": lambda: stock(over, under, A, b, integer=integer, priced=priced)}


_CREW_COST = np.array([3.0, 2.0, 2.0])


def _crews() -> Any:
    """Crews for two shifts: the first kind works both, the others one each."""
    z = cp.Variable(3, nonneg=True, name="crews")
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: _CREW_COST @ z,
        uncertain_constraints=lambda z, u: [z[0] + z[1] >= u[0], z[0] + z[2] >= u[1]],
        n_outcomes=2,
    )


def _crews_by_hand() -> Script:
    covers = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    return Script(
        lambda z, u, theta: np.where((z @ covers.T >= u - 1e-7).all(-1), z @ _CREW_COST, np.inf),
        lambda scenarios, theta: linprog(_CREW_COST, A_ub=-covers, b_ub=-scenarios[0]).x,
    )


_EVEN = 0.08 * (5 * np.eye(5) - np.ones((5, 5)))
"""z'Pz = 0.08 sum over pairs of (z_i - z_j)^2."""
_RISK = 0.1 * (0.5 * np.eye(20) + 0.5 / 20)
_CASES = (
    FitCase(
        "readme", rows=_example, n=1350, n_fresh=138, **_newsvendor([1, 1, 1], 160, over=[1, 2, 1.5], under=[2, 4, 4])
    ),
    *(
        FitCase(f"newsvendor-4-n{n}", rows=_arrays(demand, 4), n=n, **_newsvendor([1, 1, 1, 1], 56))
        for n in (500, 10_000)
    ),
    *(
        FitCase(
            f"simplex-{d}-n{n}",
            partial(ph.problems.simplex_linear, np.zeros(d)),
            _arrays(prices, d),
            n,
            partial(shares, d),
        )
        for d in (10, 24)
        for n in (600, 2000)
    ),
    FitCase(
        "shares-15",
        lambda: ph.problems.portfolio(np.zeros((15, 15))),
        _arrays(_returns, 15),
        600,
        partial(shares, 15, 0.3, -1.0),
    ),
    FitCase(
        "quadratic-5",
        lambda: ph.problems.simplex_quadratic(np.zeros(5), 0.08),
        _arrays(prices, 5),
        1000,
        partial(quadratic, _EVEN),
    ),
    FitCase(
        "shares-20-risk",
        lambda: ph.problems.portfolio(_RISK),
        _arrays(_returns, 20),
        1500,
        partial(quadratic, _RISK, -1.0),
    ),
    FitCase("raw-20000", rows=_raw, n=20_000, **_newsvendor([1, 1], 32)),
    FitCase("constraints", _crews, _arrays(demand, 2), 1000, _crews_by_hand, is_constraint=True),
    FitCase("integers-3", rows=_arrays(demand, 3), n=300, n_fresh=200, **_newsvendor([1, 1, 1], 42, integer=True)),
    FitCase("integers-2-n3200", rows=_pieces, n=3200, n_fresh=200, **_newsvendor([1, 1], 70, integer=True)),
    FitCase("parameter", rows=_priced, n=1000, **_newsvendor([1, 1, 1], 40, under=1.0, priced=True)),
    FitCase("budgets-5", rows=_arrays(demand, 5), n=1000, **_newsvendor([[1, 1, 1, 1, 1], [1, 2, 3, 2, 1]], [65, 120])),
)
FIT_CASES = {case.name: case for case in _CASES}
"""The cases by name."""


@dataclass(frozen=True)
class FitsRun:
    """All rows, and the machine."""

    repeats: int
    environment: dict[str, Any]
    rows: tuple[FitRow, ...] = field(default=())


def measure_fits(
    environment: dict[str, Any],
    *,
    only: Iterable[str] | None = None,
    repeats: int = 5,
    report: Callable[[FitsRun, str], None] = lambda run, coming: None,
) -> FitsRun:
    """Fit by default and by hand in turns; decide the fresh rows with the last fit of each."""
    names = list(FIT_CASES) if only is None else list(only)
    unknown = sorted(set(names) - set(FIT_CASES))
    if unknown:
        raise ValueError(f"There is no case {', '.join(unknown)}. Known are {', '.join(FIT_CASES)}.")
    run = FitsRun(repeats, environment)
    for name in names:
        report(run, name)
        run = FitsRun(repeats, environment, (*run.rows, *_measured(FIT_CASES[name], repeats)))
    report(run, "")
    return run


def _measured(case: FitCase, repeats: int) -> list[FitRow]:
    X, Y, theta = case.rows(case.n + case.n_fresh)
    parts = [X.iloc if isinstance(X, pd.DataFrame) else X, Y, theta]
    old, fresh = ([part[rows] for part in parts] for rows in (slice(case.n), slice(case.n, None)))
    seconds: dict[str, list[float]] = {}
    fitted: dict[str, Decide] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(repeats):
            for method, fit in case.methods().items():
                before = _cpu_seconds()
                fitted[method] = fit(*old)
                seconds.setdefault(method, []).append(_cpu_seconds() - before)
        decided = {method: decide(fresh[0], fresh[2]) for method, decide in fitted.items()}
    rows, cost = [], case.script().cost
    for method, (z, bound) in decided.items():
        costs = cost(z, fresh[1], fresh[2])
        held = float((costs <= bound + 1e-9 * np.abs(bound)).mean())
        ratio = median(seconds[OURS]) / median(seconds[method])
        mean = float(costs[np.isfinite(costs)].mean())  # a constraint that fails has no cost
        rows.append(FitRow(case.name, method, median(seconds[method]), ratio, float(bound.mean()), mean, held))
    return rows


def _cpu_seconds() -> float:
    """Seconds of the processor, of this process and of children that ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def fit_grid(run: FitsRun) -> Grid:
    """A row for each method and case."""
    cells = tuple(
        (
            row.case if row.method == OURS else "",
            row.method,
            f"{row.seconds:.2f}",
            "" if row.method == OURS else f"{row.ratio:.2f}",
            f"{row.bound:.4g}",
            f"{row.cost:.4g}",
            f"{row.held:.3f}",
        )
        for row in run.rows
    )
    heads = ("case", "method", "CPU seconds", "default / by hand", "bound", "cost", "held")
    note = f"Medians of {run.repeats} fits in turns. Bound, cost and the share of bounds that held: fresh rows."
    return Grid("Fits beside scripts by hand", heads, cells, note)


def save_fits(folder: Path, run: FitsRun) -> list[Path]:
    """Write the table, and all figures as JSON; each file appears whole."""
    texts = {"bench_fit.md": fit_grid(run).markdown(), "bench_fit.json": json.dumps(asdict(run), indent=2) + "\n"}
    for name, text in texts.items():
        replace_file(folder / name, text.encode())
    return [folder / name for name in texts]
