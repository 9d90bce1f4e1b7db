"""Mixed-integer programs of decisions by a solver that the user named, through CVXPY."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge._support.tolerances import SOLVER
from polyhedge._support.validation import Array
from polyhedge.solvers.fixed import with_fixed_integers
from polyhedge.solvers.mixed_integer import at_stake, check_cones, relaxed, seen_from, solve_mixed_integer
from polyhedge.solvers.program import ConicProgram, Solution, SolverError, Status
from polyhedge.solvers.rotated import SecondOrder
from polyhedge.solvers.scaling import Frame
from polyhedge.solvers.verify import Judge, nothing_known

_PACKAGES = {
    "scip": ("pyscipopt", "'polyhedge[exact]'"),
    "gurobi": ("gurobipy", "gurobipy"),
    "copt": ("coptpy", "coptpy"),
    "mosek": ("mosek", "mosek"),
    "glpk_mi": ("cvxopt", "cvxopt"),
    "cbc": ("cylp", "cylp"),
    "cplex": ("cplex", "cplex"),
    "xpress": ("xpress", "xpress"),
}
"""The module that each needs, and what installs it."""
_FINER: dict[str, dict[str, Any]] = {
    "scip": {"scip_params": {"limits/gap": 0.0, "numerics/feastol": SOLVER}},
    "gurobi": {"MIPGap": SOLVER, "MIPGapAbs": SOLVER, "FeasibilityTol": SOLVER, "IntFeasTol": SOLVER, "Threads": 1},
    "copt": {"RelGap": SOLVER, "FeasTol": SOLVER, "IntTol": SOLVER, "Threads": 1},
}
"""What is asked of those whose own tolerances are too wide to call an answer optimal; the user's options win."""
_BOUNDS: dict[str, Callable[[Any], float]] = {
    "scip": lambda told: told["model"].getDualbound(),
    "gurobi": lambda told: told.ObjBound,
    "copt": lambda told: told.BestBnd,
}
"""Where each tells the lower bound of its search."""


def check_named(backend: Any) -> None:
    """Raise where CVXPY knows no such solver for whole numbers, or where it is not installed."""
    import cvxpy as cp

    if not isinstance(backend, str) or backend not in _PACKAGES:
        known = ", ".join(repr(name) for name in ("auto", *_PACKAGES))
        raise ValueError(f"backend must be one of {known}, got {backend!r}.")
    module, package = _PACKAGES[backend]
    if backend.upper() in cp.installed_solvers():
        return
    if importlib.util.find_spec(module) is None:
        raise ImportError(
            f"backend={backend!r} needs {module}, which is not installed. Run: pip install {package}, or use "
            "backend='auto'."
        )
    raise ImportError(
        f"backend={backend!r} is not among CVXPY's installed solvers, although {module} is there: its version may not "
        "fit. `cvxpy.installed_solvers()` lists them; or use backend='auto'."
    )


def solve_named(program: ConicProgram, backend: str, options: Mapping[str, Any]) -> Solution:
    """Solve with integer columns by this solver: its whole numbers, completed and judged here.

    What it finds for the other columns is found again with the whole numbers fixed, so that the point keeps its
    constraints as closely as any other; only its lower bound is the solver's word.
    """
    check_cones(program)
    continuous = relaxed(program, None)
    if not continuous.status.has_solution:  # nothing to search: why, is told as ever
        return solve_mixed_integer(program)
    plain = Frame.of(program)
    frame = seen_from(plain, program, continuous)
    seen = SecondOrder(program.cones).of(frame.seen(program))
    answer = _asked(seen, backend, _with_options(_FINER.get(backend, {}), options))
    if answer.x is None:
        return nothing_known(program, answer.status, f"{backend}: {answer.words}")
    completed = with_fixed_integers(seen, answer.x)
    if not completed.status.has_solution:
        return nothing_known(program, Status.FAILED, f"{backend}: no point goes with its whole numbers")
    lower = answer.lower_bound
    if lower is None:
        least = relaxed(seen, None)
        lower = least.value - least.gap
    gap, x = frame.cost * (completed.value - lower), frame.back(completed).x
    return Judge(program, frame).whole(program, x, gap, min(frame.cost, at_stake(program, x, plain)))


@dataclass(frozen=True)
class _Answer:
    """What a solver says: perhaps a point, perhaps a lower bound, and in words how it ended."""

    words: str
    status: Status = Status.FAILED
    x: Array | None = None
    lower_bound: float | None = None


def _with_options(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of which those that are given win, also inside of dictionaries of them."""
    is_nested = {name for name in given if isinstance(given[name], Mapping) and isinstance(own.get(name), Mapping)}
    return {**own, **{name: {**own[name], **given[name]} if name in is_nested else given[name] for name in given}}


def _asked(program: ConicProgram, backend: str, options: dict[str, Any]) -> _Answer:
    import cvxpy as cp

    problem, variables = _written(program)
    try:
        data, chain, inverse = problem.get_problem_data(backend.upper())
        solution = chain.invert(chain.solve_via_data(problem, data, solver_opts=options), inverse)
    except Exception as error:
        raise SolverError(
            f"backend={backend!r} refused a program with {len(program.c)} columns: {error} Check its licence and "
            "`options`, or use backend='auto'."
        ) from error
    words, values = str(solution.status), solution.primal_vars
    if words in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE, "infeasible_or_unbounded"):
        return _Answer(words, Status.INFEASIBLE)  # the relaxation is bounded
    x = np.full(len(program.c), np.nan)
    for columns, variable in variables:
        x[columns] = np.ravel(values.get(variable.id, np.nan)) if values else np.nan
    if not np.isfinite(x).all():
        return _Answer(words)
    read = _BOUNDS.get(backend)
    lower = None if read is None else float(read(solution.attr["solver_specific_stats"])) + program.offset
    return _Answer(words, Status.OPTIMAL, x, lower)


def _written(program: ConicProgram) -> tuple[Any, list[tuple[Any, Any]]]:
    """The program in CVXPY without its offset, and its variables with their columns."""
    import cvxpy as cp

    n = len(program.c)
    whole = np.asarray(program.integer)
    others = np.setdiff1d(np.arange(n), whole)
    parts = [(whole, cp.Variable(len(whole), integer=True))]
    if len(others):
        parts.append((others, cp.Variable(len(others))))
    cost = sum(program.c[columns] @ x for columns, x in parts)
    if program.P is not None:
        order = np.concatenate([columns for columns, _ in parts])
        P = program.P[order][:, order]
        cost = cost + 0.5 * cp.quad_form(cp.hstack([x for _, x in parts]), cp.psd_wrap(P))
    rows, start = [], 0
    for cone in program.cones:
        block = slice(start, start + cone.n_rows)
        start += cone.n_rows
        if not cone.size:
            continue
        kept = np.isfinite(program.b[block])
        A, b = program.A[block][kept], program.b[block][kept]
        if not kept.any():
            continue
        slack = b - sum(A[:, columns] @ x for columns, x in parts)
        is_soc = cone.kind == "soc"
        rows.append(cp.SOC(slack[0], slack[1:]) if is_soc else slack == 0 if cone.kind == "zero" else slack >= 0)
    return cp.Problem(cp.Minimize(cost), rows), parts
