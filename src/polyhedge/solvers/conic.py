"""Clarabel: quadratic, second-order-cone and other convex conic programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array
from polyhedge.solvers.options import seconds_allowed, solver_in_force
from polyhedge.solvers.program import Cone, ConicProgram, Scaling, SecondOrder, Solution, Status, scaled, status_at
from polyhedge.solvers.verify import Verifier, nothing_known, settled

_STATUS = {
    "Solved": Status.OPTIMAL,
    "AlmostSolved": Status.STOPPED_EARLY,
    "PrimalInfeasible": Status.INFEASIBLE,
    "DualInfeasible": Status.UNBOUNDED,
    "MaxIterations": Status.STOPPED_EARLY,
    "InsufficientProgress": Status.STOPPED_EARLY,
    "MaxTime": Status.STOPPED_EARLY,
}
_ALMOST = {"AlmostPrimalInfeasible": Status.INFEASIBLE, "AlmostDualInfeasible": Status.UNBOUNDED}
"""What Clarabel says where it is nearly sure: believed where no other attempt says otherwise."""
_CONES: dict[str, Callable[[Cone], Any]] = {
    "zero": lambda cone: clarabel.ZeroConeT(cone.size),
    "nonneg": lambda cone: clarabel.NonnegativeConeT(cone.size),
    "soc": lambda cone: clarabel.SecondOrderConeT(cone.size),
    "psd": lambda cone: clarabel.PSDTriangleConeT(cone.size),
    "exp": lambda _: clarabel.ExponentialConeT(),
    "pow": lambda cone: clarabel.PowerConeT(cone.exponent),
}
# An interior-point method can stall short of a tight tolerance on a problem it solves to the usual one.
_TIGHT, _USUAL = 1e-10, 1e-8
_DIVERGED = 2.0**100
"""Numbers of a scaled program are near 1: a point so far away is none."""


def solve_conic(program: ConicProgram, *, time_limit: float | None = None, scaling: Scaling | None = None) -> Solution:
    """Solve a convex program without integer variables by an interior-point method.

    It is solved in its own units, then once more around its solution where that makes the numbers smaller by far;
    the solution with the least gap is returned.
    """
    scaling = Scaling.of(program) if scaling is None else scaling
    best = solution = _in_scaling(program, scaling, time_limit)
    for _ in range(2):  # more gain nothing
        if not solution.status.has_solution:
            break
        finer = scaling.around(program, solution.x, solution.y)
        if solution.status is Status.OPTIMAL and not finer.is_finer_than(scaling):
            break
        scaling = finer
        solution = _in_scaling(program, scaling, time_limit)
        if solution.gap < best.gap:
            best = solution
        elif solution.status is Status.OPTIMAL and best.status.has_solution:
            # The earlier one is optimal too if its gap is small against the finer costs.
            status = status_at(max(best.gap, best.broken * solution.size), solution.size)
            best = replace(best, status=status, size=solution.size)
    return settled(program, best)


def _in_scaling(program: ConicProgram, scaling: Scaling, time_limit: float | None) -> Solution:
    """The first attempt that ends well; else the best of what was found."""
    attempts, verifier, form = [], Verifier(program, scaling), SecondOrder(program.cones)
    inside = form.of(scaling.apply(program))
    for tolerance in (_TIGHT, _USUAL):
        attempts.append(_read(program, _set_up(inside, time_limit, tolerance).solve(), verifier, form))
        if attempts[-1].status not in (Status.FAILED, Status.STOPPED_EARLY):
            return attempts[-1]
    best = min(attempts, key=lambda solution: solution.gap)
    return replace(best, status=_ALMOST.get(best.detail, best.status))


class ConicSolver:
    """One convex program set up once; solved again when its costs, right-hand sides or entries have changed.

    Where the numbers have moved so far that this fails, the program is set up again.
    """

    def __init__(
        self, program: ConicProgram, *, time_limit: float | None = None, scaling: Scaling | None = None
    ) -> None:
        self.time_limit = time_limit
        self.entries = program.A.data
        self.scaling = Scaling.of(program) if scaling is None else scaling
        self.verifier, self.form = Verifier(program, self.scaling), SecondOrder(program.cones)
        self.solver = _set_up(self.form.of(self.scaling.apply(program)), time_limit, _TIGHT, can_change=True)

    def solve(self, program: ConicProgram) -> Solution:
        """Solve a program that differs from the first in its numbers only."""
        solution = _read(program, self._solved(program), self.verifier, self.form)
        is_clear = solution.status not in (Status.FAILED, Status.STOPPED_EARLY)
        return solution if is_clear else solve_conic(program, time_limit=self.time_limit)

    def point(self, program: ConicProgram) -> Array:
        """A best point (n,) of such a program, not verified: to compare decisions. NaN where Clarabel has none."""
        found = self._solved(program)
        x = np.array(found.x) if str(found.status) == "Solved" else np.full(len(program.c), np.nan)
        return np.asarray(self.scaling.origin + self.scaling.columns * x)

    def _solved(self, program: ConicProgram) -> Any:
        if program.A.data is not self.entries and not np.array_equal(program.A.data, self.entries):
            self.entries, self.verifier = program.A.data, Verifier(program, self.scaling)
            A = self.form.matrix(scaled(program.A, self.scaling.rows, self.scaling.columns))
            self.solver.update(A=sp.csc_matrix(A))
        self.solver.update(q=self.verifier.costs(program.c), b=self.form.limits(self.verifier.limits(program.b)))
        return self.solver.solve()


def _set_up(program: ConicProgram, time_limit: float | None, tolerance: float, *, can_change: bool = False) -> Any:
    n = len(program.c)
    P = sp.csc_matrix((n, n) if program.P is None else sp.triu(program.P, format="csc"))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = settings.reduced_tol_feas = 1e-7
    settings.max_threads = 1
    limit = seconds_allowed(time_limit)
    if limit is not None:
        settings.time_limit = limit
    for name, value in solver_in_force().clarabel.items():
        setattr(settings, name, value)
    settings.presolve_enable = settings.presolve_enable and not can_change
    cones = [_CONES[cone.kind](cone) for cone in program.cones if cone.size]
    return clarabel.DefaultSolver(P, program.c, sp.csc_matrix(program.A), program.b, cones, settings)


def _read(program: ConicProgram, solution: Any, verifier: Verifier, form: SecondOrder) -> Solution:
    name = str(solution.status)
    status = _STATUS.get(name, Status.FAILED)
    z = np.array(solution.z)
    is_whole = len(solution.x) == len(program.c) and len(z) == len(program.b)
    # A comparison with NaN is false, and what diverged proves nothing.
    if status.has_solution and not (is_whole and np.abs(np.append(solution.x, z)).max(initial=0.0) < _DIVERGED):
        status = Status.FAILED
    if not status.has_solution:
        return nothing_known(program, status, name)
    point = Solution(np.array(solution.x), form.multipliers(z), np.nan, status, detail=name)
    return verifier.verify(program, verifier.scaling.invert(point))
