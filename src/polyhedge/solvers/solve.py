"""One door to the solvers: the program's structure picks the vendor, and a user may name another for whole numbers."""

from __future__ import annotations

from polyhedge.solvers.choice import seconds_allowed, solver_in_force
from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.mixed_integer import solve_mixed_integer
from polyhedge.solvers.program import ConicProgram, Solution


def solve(program: ConicProgram, *, time_limit: float | None = None, max_nodes: int | None = None) -> Solution:
    """Solve with HiGHS (linear), Clarabel (convex) or outer approximation (mixed-integer convex).

    A back-end that the user named takes mixed-integer programs without limits of the caller's own.
    """
    if len(program.integer):
        solver = solver_in_force()
        if solver.backend != "auto" and time_limit is None and max_nodes is None:
            from polyhedge.solvers.named import solve_named

            return solve_named(program, solver.backend, solver.options)
        return solve_mixed_integer(program, time_limit=seconds_allowed(time_limit), max_nodes=max_nodes)
    if program.is_linear:
        return LinearSolver(program, time_limit=time_limit).solve()
    return solve_conic(program, time_limit=time_limit)
