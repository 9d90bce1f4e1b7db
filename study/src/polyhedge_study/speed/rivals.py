"""What one would use instead: the same robust program, context by context, in other tools.

Each rival is prepared once, outside the clock, as far as it can be, and then solves one context at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from polyhedge_study.inside import Array
from polyhedge_study.speed.cases import PARAMETERS, WARM, Instance, LinearForm
from polyhedge_study.tasks import advantage

__all__ = ["RIVALS", "Rival", "reference_solver"]

Solve = Callable[[Array], float]


@dataclass(frozen=True)
class Rival:
    """A name, and what turns an instance into a function from one prediction to the optimal value."""

    name: str
    prepare: Callable[[Instance], Solve]


def _written_in_cvxpy(instance: Instance, center: Any) -> cp.Problem:
    """The counterpart as one writes it by hand; `center` is a parameter or an array."""
    d, W, q = instance.regime.d, instance.shape.W, instance.q
    z = cp.Variable(d, nonneg=True)
    if instance.regime.cost == "newsvendor":
        t = cp.Variable()
        worst = instance.slopes @ (center - z) + instance.reach
        return cp.Problem(cp.Minimize(t), [cp.sum(z) == 1, worst <= t])
    multipliers = cp.Variable(len(q), nonneg=True)
    cost = (advantage(d) + center) @ z + q @ multipliers
    if instance.regime.cost == "quadratic":
        cost += cp.quad_form(z, cp.psd_wrap(instance.even))
    return cp.Problem(cp.Minimize(cost), [cp.sum(z) == 1, W.T @ multipliers == z])


def _cvxpy_solver(instance: Instance) -> str:
    return str(cp.CLARABEL if instance.regime.cost == "quadratic" else cp.HIGHS)


def _rebuilt(instance: Instance) -> Solve:
    solver = _cvxpy_solver(instance)
    return lambda center: float(_written_in_cvxpy(instance, center).solve(solver=solver))


def _with_parameters(instance: Instance) -> Solve:
    parameter = cp.Parameter(instance.regime.d)
    problem, solver = _written_in_cvxpy(instance, parameter), _cvxpy_solver(instance)

    def solve(center: Array) -> float:
        parameter.value = center
        return float(problem.solve(solver=solver))

    solve(instance.centers[0])  # pays for the compilation
    return solve


def _highs(instance: Instance) -> Solve:
    form = instance.linear_form()
    if form.P is not None:
        raise ValueError("starts warm on linear programs only")
    return _HighsLoop(form).solve


class _HighsLoop:
    """HiGHS called directly; the simplex method goes on from the last basis when numbers change."""

    def __init__(self, form: LinearForm) -> None:
        import highspy

        self.form, self.infinity = form, highspy.kHighsInf
        self.highs = highspy.Highs()
        for option, value in {
            "output_flag": False,
            "threads": 1,
            "primal_feasibility_tolerance": 1e-9,
            "dual_feasibility_tolerance": 1e-9,
        }.items():
            self.highs.setOptionValue(option, value)
        A = sp.csr_array(np.vstack([form.A, form.G]))
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(form.cost), A.shape[0]
        lp.col_cost_ = form.cost
        lp.col_lower_ = np.where(np.isfinite(form.lower), form.lower, -self.infinity)
        lp.col_upper_ = np.full(len(form.cost), self.infinity)
        lp.row_lower_ = np.concatenate([form.b, np.full(len(form.h), -self.infinity)])
        lp.row_upper_ = np.concatenate([form.b, form.h])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = A.indptr, A.indices, A.data
        self.highs.passModel(lp)
        self.columns = np.flatnonzero(form.slope.any(axis=1)).astype(np.int32)
        self.rows = (len(form.b) + np.arange(len(form.h))).astype(np.int32)
        self.no_lower = np.full(len(form.h), -self.infinity)

    def solve(self, center: Array) -> float:
        form = self.form
        if len(self.columns):
            costs = form.cost[self.columns] + form.slope[self.columns] @ center
            self.highs.changeColsCost(len(costs), self.columns, costs)
        if len(self.rows):
            self.highs.changeRowsBounds(len(self.rows), self.rows, self.no_lower, form.h + form.H @ center)
        self.highs.run()
        return float(self.highs.getInfo().objective_function_value)


def _linprog(instance: Instance) -> Solve:
    from scipy.optimize import linprog

    form = instance.linear_form()
    if form.P is not None:
        raise ValueError("has no quadratic costs")
    bounds = [(low if np.isfinite(low) else None, None) for low in form.lower]
    rows = {"A_eq": sp.csr_array(form.A), "b_eq": form.b, "bounds": bounds, "method": "highs"}
    G = sp.csr_array(form.G) if len(form.h) else None

    def solve(center: Array) -> float:
        h = form.h + form.H @ center if len(form.h) else None
        solution = linprog(form.cost + form.slope @ center, A_ub=G, b_ub=h, **rows)
        return float(solution.fun) if solution.status == 0 else np.nan

    return solve


def _clarabel(instance: Instance) -> Solve:
    return _ClarabelLoop(instance.linear_form(), tolerance=1e-8).solve


class _ClarabelLoop:
    """Clarabel called directly, its data updated in place; an interior-point method starts cold each time."""

    def __init__(self, form: LinearForm, tolerance: float) -> None:
        import clarabel

        self.form = form
        n, bounded = len(form.cost), np.isfinite(form.lower)
        P = sp.csc_matrix((n, n)) if form.P is None else sp.csc_matrix(np.triu(form.P))
        rows = np.vstack([form.A, form.G, -np.eye(n)[bounded]])
        self.rhs = np.concatenate([form.b, form.h, -form.lower[bounded]])
        self.rhs_slope = np.vstack([np.zeros((len(form.b), form.H.shape[1])), form.H])
        settings = clarabel.DefaultSettings()
        settings.verbose = settings.presolve_enable = settings.chordal_decomposition_enable = False
        settings.max_threads = 1
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        cones = [clarabel.ZeroConeT(len(form.b)), clarabel.NonnegativeConeT(len(rows) - len(form.b))]
        self.solver = clarabel.DefaultSolver(P, form.cost, sp.csc_matrix(rows), self.rhs, cones, settings)

    def solve(self, center: Array) -> float:
        form, b = self.form, self.rhs.copy()
        b[: len(self.rhs_slope)] += self.rhs_slope @ center
        self.solver.update(q=form.cost + form.slope @ center, b=b)
        solution = self.solver.solve()
        return float(solution.obj_val) if str(solution.status) in ("Solved", "AlmostSolved") else np.nan


RIVALS = (
    Rival("CVXPY rebuilt", _rebuilt),
    Rival(PARAMETERS, _with_parameters),
    Rival("scipy linprog", _linprog),
    Rival("Clarabel", _clarabel),
    Rival(WARM, _highs),
)


def reference_solver(instance: Instance) -> tuple[str, Solve]:
    """A solver to check values with, at tight tolerances: the simplex method, or an interior-point method."""
    form = instance.linear_form()
    if form.P is None:
        return "HiGHS", _HighsLoop(form).solve
    return "Clarabel", _ClarabelLoop(form, tolerance=1e-11).solve
