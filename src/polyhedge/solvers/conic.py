"""Clarabel: quadratic, second-order-cone and other convex conic programs."""

from __future__ import annotations

from itertools import product
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp

from polyhedge.solvers.program import Cone, ConicProgram, Solution, Status, unit_of

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
    units = dict.fromkeys([_cost_unit(program), 1.0])
    for tolerance, unit in product((_TIGHT, _USUAL), units):
        solution = _attempt(program, time_limit, tolerance, unit)
        if solution.status is not Status.FAILED:
            break
    return solution


class ConicSolver:
    """One convex program set up once; solved again when its costs, right-hand sides or entries have changed.

    Where the numbers have moved so far that this fails, the program is set up anew.
    """

    def __init__(self, program: ConicProgram, *, time_limit: float | None = None) -> None:
        self.time_limit = time_limit
        self.entries = program.A.data
        self.unit = _cost_unit(program)
        self.solver = _set_up(program, time_limit, _TIGHT, self.unit, can_change=True)

    def solve(self, program: ConicProgram) -> Solution:
        """Solve a program that differs from the first in its numbers only."""
        if not np.array_equal(program.A.data, self.entries):
            self.entries = program.A.data
            self.solver.update(A=sp.csc_matrix(program.A))
        self.solver.update(q=program.c / self.unit, b=program.b)
        solution = _read(program, self.solver.solve(), self.unit)
        return solve_conic(program, time_limit=self.time_limit) if solution.status is Status.FAILED else solution


def _attempt(program: ConicProgram, time_limit: float | None, tolerance: float, unit: float) -> Solution:
    return _read(program, _set_up(program, time_limit, tolerance, unit).solve(), unit)


def _cost_unit(program: ConicProgram) -> float:
    """The usual size of a cost: the tolerances are absolute where values are below 1."""
    curved = np.zeros(0) if program.P is None else program.P.diagonal()
    return unit_of(np.concatenate([program.c, curved]))


def _set_up(
    program: ConicProgram, time_limit: float | None, tolerance: float, unit: float, *, can_change: bool = False
) -> Any:
    n = len(program.c)
    P = sp.csc_matrix((n, n)) if program.P is None else sp.triu(program.P, format="csc")
    settings = _settings(time_limit, tolerance)
    settings.presolve_enable = not can_change
    return clarabel.DefaultSolver(
        sp.csc_matrix(P / unit),
        program.c / unit,
        sp.csc_matrix(program.A),
        program.b,
        [_clarabel_cone(cone) for cone in program.cones if cone.size],
        settings,
    )


def _read(program: ConicProgram, found: Any, unit: float) -> Solution:
    n, name = len(program.c), str(found.status)
    status = _STATUS.get(name, Status.FAILED)
    if status.has_solution and not np.all(np.isfinite(found.x)):
        status = Status.FAILED
    if not status.has_solution:
        nothing = np.full(n, np.nan)
        return Solution(nothing, np.full(len(program.b), np.nan), np.nan, status, np.inf, name)
    value = unit * float(found.obj_val) + program.offset
    gap = unit * abs(float(found.obj_val) - float(found.obj_val_dual))
    return Solution(np.array(found.x), unit * np.array(found.z), value, status, gap, name)


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
