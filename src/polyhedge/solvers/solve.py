"""One door to the solvers: the program's structure picks the vendor."""

from __future__ import annotations

from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.mixed_integer import solve_mixed_integer
from polyhedge.solvers.program import ConicProgram, Solution


def solve(program: ConicProgram, *, time_limit: float | None = None, max_nodes: int | None = None) -> Solution:
    """Solve with HiGHS (linear), Clarabel (convex) or outer approximation (mixed-integer convex)."""
    if len(program.integer):
        return solve_mixed_integer(program, time_limit=time_limit, max_nodes=max_nodes)
    if program.is_linear:
        return LinearSolver(program, time_limit=time_limit).solve()
    return solve_conic(program, time_limit=time_limit)
