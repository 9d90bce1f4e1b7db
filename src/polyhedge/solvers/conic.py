"""Clarabel: quadratic, second-order-cone and other convex conic programs."""

from __future__ import annotations

from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp

from polyhedge.solvers.program import Cone, ConicProgram, Solution, Status

_STATUS = {
    "Solved": Status.OPTIMAL,
    "AlmostSolved": Status.OPTIMAL,  # to the reduced tolerances below
    "PrimalInfeasible": Status.INFEASIBLE,
    "AlmostPrimalInfeasible": Status.INFEASIBLE,
    "DualInfeasible": Status.UNBOUNDED,
    "AlmostDualInfeasible": Status.UNBOUNDED,
    "MaxIterations": Status.STOPPED_EARLY,
    "MaxTime": Status.STOPPED_EARLY,
}


# An interior-point method can stall short of a tight tolerance on a problem it solves to the usual one.
_TIGHT, _USUAL = 1e-10, 1e-8


def solve_conic(program: ConicProgram, *, time_limit: float | None = None) -> Solution:
    """Solve a convex program without integer variables by an interior-point method."""
    solution = _attempt(program, time_limit, _TIGHT)
    return _attempt(program, time_limit, _USUAL) if solution.status is Status.FAILED else solution


class ConicSolver:
    """One convex program set up once; solved again when its costs, right-hand sides or entries have changed.

    Where the numbers have moved so far that this fails, the program is set up anew.
    """

    def __init__(self, program: ConicProgram, *, time_limit: float | None = None) -> None:
        self.time_limit = time_limit
        self.entries = program.A.data
        self.solver = _set_up(program, time_limit, _TIGHT, can_change=True)

    def solve(self, program: ConicProgram) -> Solution:
        """Solve a program that differs from the first in its numbers only."""
        if not np.array_equal(program.A.data, self.entries):
            self.entries = program.A.data
            self.solver.update(A=sp.csc_matrix(program.A))
        self.solver.update(q=program.c, b=program.b)
        solution = _read(program, self.solver.solve())
        return solve_conic(program, time_limit=self.time_limit) if solution.status is Status.FAILED else solution


def _attempt(program: ConicProgram, time_limit: float | None, tolerance: float) -> Solution:
    return _read(program, _set_up(program, time_limit, tolerance).solve())


def _set_up(program: ConicProgram, time_limit: float | None, tolerance: float, *, can_change: bool = False) -> Any:
    n = len(program.c)
    P = sp.csc_matrix((n, n)) if program.P is None else sp.triu(program.P, format="csc")
    settings = _settings(time_limit, tolerance)
    settings.presolve_enable = not can_change
    return clarabel.DefaultSolver(
        sp.csc_matrix(P),
        program.c,
        sp.csc_matrix(program.A),
        program.b,
        [_clarabel_cone(cone) for cone in program.cones if cone.size],
        settings,
    )


def _read(program: ConicProgram, found: Any) -> Solution:
    n, name = len(program.c), str(found.status)
    status = _STATUS.get(name, Status.FAILED)
    if status.has_solution and not np.all(np.isfinite(found.x)):
        status = Status.FAILED
    if not status.has_solution:
        nothing = np.full(n, np.nan)
        return Solution(nothing, np.full(len(program.b), np.nan), np.nan, status, np.inf, name)
    value = float(found.obj_val) + program.offset
    gap = abs(float(found.obj_val) - float(found.obj_val_dual))
    return Solution(np.array(found.x), np.array(found.z), value, status, gap, name)


def _settings(time_limit: float | None, tolerance: float) -> clarabel.DefaultSettings:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = settings.reduced_tol_feas = 1e-7
    settings.max_threads = 1
    if time_limit is not None:
        settings.time_limit = float(time_limit)
    return settings


def _clarabel_cone(cone: Cone) -> object:
    kinds = {
        "zero": clarabel.ZeroConeT,
        "nonneg": clarabel.NonnegativeConeT,
        "soc": clarabel.SecondOrderConeT,
        "psd": clarabel.PSDTriangleConeT,
    }
    if cone.kind == "exp":
        return clarabel.ExponentialConeT()
    if cone.kind == "pow":
        return clarabel.PowerConeT(cone.exponent)
    return kinds[cone.kind](cone.size)
