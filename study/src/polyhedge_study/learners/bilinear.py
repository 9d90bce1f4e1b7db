r"""Mixed-integer programs with bilinear rows: SCIP behind arrays, in a child process.

$$\min_x\ \tfrac12 x^\top P x + c^\top x + \text{offset} \quad\text{s.t.}\quad
l_r \le a_r^\top x + \sum_{(r,i,j)} v_{rij}\, x_i x_j \le u_r,\quad
\text{lower} \le x \le \text{upper},\quad x_I \text{ integer}$$

Spatial branch and bound is the one kind of solver here that can crash or overrun its time limit, so it never
runs in the caller's process. The child runs this file alone: nothing of the package is imported at the top, which
makes it start in a fraction of a second.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from polyhedge.solvers.program import Status
    from polyhedge_study.inside import Array, Indices

GRACE = 10.0
"""Seconds after the time limit before a child that has not answered is ended."""

# SCIP writes 1e20 for infinity.
_INFINITE = 1e19
_FEASIBLE = 1e-5
"""Share of its terms by which a row may be broken: ten times what SCIP is asked for."""


@dataclass(frozen=True)
class BilinearProgram:
    """The program of the module docstring as arrays.

    `products` has rows (r, i, j): x_i x_j stands in row r, with its coefficient in `product_values`; such columns need
    finite bounds. P is positive semidefinite; `start` is a feasible point to start from.
    """

    c: Array
    A: sp.csr_array
    row_lower: Array
    row_upper: Array
    products: Indices
    product_values: Array
    lower: Array
    upper: Array
    integer: Indices
    P: sp.csr_array | None = None
    offset: float = 0.0
    start: Array | None = None


@dataclass(frozen=True)
class BilinearSolution:
    """A point with its evidence: `value - lower_bound` is the proven gap; x is NaN where none was found."""

    x: Array
    value: float
    lower_bound: float
    status: Status
    seconds: float
    detail: str = ""


def solve_bilinear(
    program: BilinearProgram,
    *,
    max_nodes: int | None = None,
    time_limit: float | None = None,
    relative_gap: float = 1e-4,
    absolute_gap: float = 1e-7,
    use_nlp: bool = True,
    grace: float = GRACE,
) -> BilinearSolution:
    """Solve to global optimality, or up to a limit, in a child process.

    A child that has not answered `grace` seconds after the time limit is ended. The point is optimal if one of both
    gaps is reached. `use_nlp` lets SCIP use its nonlinear solver for heuristics, which aborts on some larger models.
    """
    from polyhedge.solvers.program import Status

    check_installed()
    options = {
        "max_nodes": max_nodes,
        "time_limit": None if time_limit is None else float(time_limit),
        "relative_gap": relative_gap,
        "absolute_gap": absolute_gap,
        "use_nlp": use_nlp,
    }
    began = time.perf_counter()
    patience = None if time_limit is None else time_limit + grace
    answer = _ask_child({"program": vars(program), "options": options}, patience)
    if answer["x"] is not None:
        answer = _checked(program, answer, relative_gap, absolute_gap)
    x = np.full(len(program.c), np.nan) if answer["x"] is None else np.asarray(answer["x"], dtype=float)
    return BilinearSolution(
        x=x,
        value=np.inf if answer["x"] is None else _value(program, x),
        lower_bound=float(answer["bound"]),
        status=Status[answer["status"]],
        seconds=time.perf_counter() - began,
        detail=f"scip: {answer['detail']}",
    )


def check_installed() -> None:
    """Raise ImportError with the command to run where SCIP is missing."""
    if importlib.util.find_spec("pyscipopt") is None:
        raise ImportError(
            "The exact mixed-integer bilinear program needs SCIP, which is not installed. Run: pip install "
            "'polyhedge[exact]'"
        )


def _command() -> list[str]:
    # -P: the folder of this file must not shadow top-level modules of the same names.
    return [sys.executable, "-P", os.path.abspath(__file__)]


def _ask_child(question: dict[str, Any], patience: float | None) -> dict[str, Any]:
    """Send the question, wait, and turn every way to die into an answer. Ctrl-C ends the child as well."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    pipe = subprocess.PIPE
    child = subprocess.Popen(_command(), stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
    try:
        reply, errors = child.communicate(pickle.dumps(question), timeout=patience)
    except subprocess.TimeoutExpired:
        return _failure(f"the solver did not stop within {patience:.0f} s and was ended")
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    if child.returncode == 0 and reply:
        answer: dict[str, Any] = pickle.loads(reply)
        return answer
    tail, code = errors.decode(errors="replace").strip().splitlines()[-1:], child.returncode
    name = {-each: each.name for each in signal.Signals}.get(code, f"signal {-code}")
    ending = f"ended with exit code {code}" if code >= 0 else f"crashed ({name})"
    return _failure("; ".join([f"the solver's process {ending}", *tail]))


def _failure(detail: str) -> dict[str, Any]:
    return {"x": None, "bound": -np.inf, "status": "FAILED", "detail": detail}


def _child() -> None:
    """Read a question from stdin and write the answer to stdout; what solvers print goes to stderr."""
    reply = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    question = pickle.load(sys.stdin.buffer)
    try:
        program = BilinearProgram(**question["program"])
        answer = _by_scip(program, question["options"])
        if answer["x"] is None and program.start is not None and answer["at_a_limit"]:
            # The solver has not even looked at the start: the start is what was found.
            answer = {**answer, "x": program.start, "status": "STOPPED_EARLY"}
    except Exception as error:
        traceback.print_exc()
        answer = _failure(f"{type(error).__name__}: {error}")
    pickle.dump(answer, reply)
    reply.flush()


def _value(program: BilinearProgram, x: Array) -> float:
    return float(program.c @ x) + program.offset + float(sum(v * x[i] * x[j] for i, j, v in _quadratic_terms(program)))


def _checked(program: BilinearProgram, answer: dict[str, Any], relative: float, absolute: float) -> dict[str, Any]:
    """The answer, failed where it does not hold, and optimal only where the gap is as small as was asked for."""
    x, bound = np.asarray(answer["x"], dtype=float), answer["bound"]
    if not np.isfinite(x).all() or np.isnan(bound):
        return _failure("the solver's answer is not made of finite numbers")
    r, i, j = program.products.reshape(-1, 3).T
    products = program.product_values * x[i] * x[j]
    rows = program.A @ x + np.bincount(r, products, len(program.row_lower))
    terms = 1 + abs(program.A) @ np.abs(x) + np.bincount(r, np.abs(products), len(rows))
    broken = np.maximum(program.row_lower - rows, rows - program.row_upper) / terms
    outside = np.maximum(program.lower - x, x - program.upper) / (1 + np.abs(x))
    integers = x[program.integer]
    off = max(a.max(initial=0.0) for a in (broken, outside, np.abs(integers - np.round(integers))))
    if off > _FEASIBLE:
        return _failure(f"the solver's point breaks a limit by {off:.1e}")
    value = _value(program, x)
    if bound > value + _FEASIBLE * (1 + abs(value)):
        return _failure(f"the solver's lower bound {bound:.6g} lies above the value {value:.6g} of its point")
    # Solvers divide the gap by the smaller of both ends, and round.
    allowed = (1 + _FEASIBLE) * max(relative * max(abs(value), abs(bound)), absolute) + _FEASIBLE * absolute
    is_proven = value - bound <= allowed + 1e-9 * abs(value)
    return answer if is_proven or answer["status"] != "OPTIMAL" else {**answer, "status": "STOPPED_EARLY"}


def _rows(program: BilinearProgram, x: Sequence[Any], total: Callable[[Iterable[Any]], Any]) -> Iterator[Any]:
    """The rows in the solver's own variables x, summed by its `total`."""
    A, products = program.A, list[list[Any]]([] for _ in program.row_lower)
    for (r, i, j), value in zip(program.products.tolist(), program.product_values.tolist(), strict=True):
        products[r].append(value * x[i] * x[j])
    for r, (low, high) in enumerate(zip(program.row_lower.tolist(), program.row_upper.tolist(), strict=True)):
        entries = slice(A.indptr[r], A.indptr[r + 1])
        linear = zip(A.indices[entries].tolist(), A.data[entries].tolist(), strict=True)
        row = total(v * x[i] for i, v in linear) + total(products[r])
        if low == high:
            yield row == low
            continue
        if low > -np.inf:
            yield row >= low
        if high < np.inf:
            yield row <= high


def _quadratic_terms(program: BilinearProgram) -> list[tuple[int, int, float]]:
    if program.P is None:
        return []
    P = program.P.tocoo()
    return [(int(i), int(j), 0.5 * float(v)) for i, j, v in zip(P.row, P.col, P.data, strict=True)]


def _by_scip(program: BilinearProgram, options: dict[str, Any]) -> dict[str, Any]:
    import pyscipopt

    model = pyscipopt.Model()
    model.hideOutput()
    limits = {"limits/time": options["time_limit"], "limits/nodes": options["max_nodes"]}
    model.setParams(
        {
            **{name: value for name, value in limits.items() if value is not None},
            "limits/gap": options["relative_gap"],
            "limits/absgap": options["absolute_gap"],
            "timing/clocktype": 2,
            "misc/catchctrlc": False,
            "nlp/disable": not options["use_nlp"],
        }
    )
    total = pyscipopt.quicksum
    integer = set(program.integer.tolist())
    x = [
        model.addVar(
            vtype="I" if i in integer else "C", lb=None if low == -np.inf else low, ub=None if high == np.inf else high
        )
        for i, (low, high) in enumerate(zip(program.lower.tolist(), program.upper.tolist(), strict=True))
    ]
    for row in _rows(program, x, total):
        model.addCons(row)
    cost = total(v * x[i] for i, v in enumerate(program.c.tolist()) if v) + program.offset
    quadratic = _quadratic_terms(program)
    level = model.addVar(lb=None, ub=None) if quadratic else None
    if level is not None:
        model.addCons(total(v * x[i] * x[j] for i, j, v in quadratic) <= level)
        cost = cost + level
    model.setObjective(cost, "minimize")
    if program.start is not None:
        point = model.createSol()
        for variable, value in zip(x, program.start.tolist(), strict=True):
            model.setSolVal(point, variable, value)
        if level is not None:
            at = sum(v * program.start[i] * program.start[j] for i, j, v in quadratic)
            model.setSolVal(point, level, float(at) + 1e-9)
        model.addSol(point)
    model.optimize()
    status, bound = model.getStatus(), float(model.getDualbound())
    has_point = model.getNSols() > 0
    best, ended = model.getBestSol() if has_point else None, "FAILED"
    if has_point:
        ended = "OPTIMAL" if status in ("optimal", "gaplimit") else "STOPPED_EARLY"
    elif status in ("infeasible", "inforunbd"):
        ended = "INFEASIBLE"
    return {
        "x": np.array([model.getSolVal(best, variable) for variable in x]) if has_point else None,
        "bound": bound if abs(bound) < _INFINITE else -np.inf,
        "status": ended,
        "detail": f"{status}, {model.getNTotalNodes()} nodes",
        "at_a_limit": status in ("timelimit", "nodelimit"),
    }


if __name__ == "__main__":
    _child()
