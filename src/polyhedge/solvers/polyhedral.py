"""Linear functions over a set given by half-spaces or by a conic form: HiGHS and Clarabel behind arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyhedge._support.tolerances import SOLVED, SOLVER
from polyhedge._support.validation import Array
from polyhedge.solvers.conic import solve_conic
from polyhedge.solvers.program import Cone, ConicForm, ConicProgram, SolverError, Status
from polyhedge.solvers.scaling import balance

_ALIKE = 2.0**10
"""Outcomes whose units differ by less need none of their own: what is left of the tolerances is a millionth."""


def maximise_linear(W: Array, h: Array, directions: Array, units: Array | None = None) -> tuple[Array, Array]:
    r"""Maximise linear functions over one polyhedron: $\max\{v_i^\top e : W e \le h\}$ for every row $v_i$.

    One HiGHS instance serves all directions: the basis of one is the (primal feasible) start of the next.

    Parameters
    ----------
    W : (n_facets, d) array
    h : (n_facets,) array
    directions : (m, d) array
    units : (d,) array or None
        What outcomes are measured in, powers of two; where None, told from the half-spaces.

    Returns
    -------
    values : (m,) array
        `inf` where the polyhedron is unbounded along the direction, `-inf` everywhere if it is empty.
    points : (m, d) array
        Maximisers; rows of NaN where the value is infinite.

    Examples
    --------
    >>> W = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    >>> values, points = maximise_linear(W, np.array([1.0, 1.0, 0.0]), np.array([[1.0, 2.0], [-1.0, 0.0]]))
    >>> values
    array([3., 1.])
    """
    W, h, unit, columns = _scaled(W, h, units)
    points = np.full(directions.shape, np.nan)
    highs = _model(W, h)
    if not _is_optimal(highs):
        return np.full(len(directions), -np.inf), points
    values = np.full(len(directions), np.inf)
    places = np.arange(W.shape[1], dtype=np.int32)
    for i, v in enumerate(directions):
        costs = columns * v
        costs /= float(np.abs(costs).max(initial=0.0)) or 1.0
        highs.changeColsCost(len(places), places, costs)
        point = _maximiser(highs, W, h, costs)
        if point is not None:
            points[i] = unit * (columns * point)
            values[i] = v @ points[i]
    return values, points


def chebyshev_center(W: Array, h: Array) -> tuple[Array, float]:
    r"""Centre and radius of a largest ball in $\{e : W e \le h\}$.

    The radius is negative for an empty set (minus the least violation), and cut off at a finite value
    if balls of any size fit.

    Examples
    --------
    >>> center, radius = chebyshev_center(np.array([[1.0], [-1.0]]), np.array([3.0, 1.0]))
    >>> center, radius
    (array([1.]), 2.0)
    """
    W, h, unit = _unit_rows(W, h)
    d = W.shape[1]
    cut_off = np.eye(1, d + 1, d)
    lifted = np.vstack([np.hstack([W, np.ones((len(W), 1))]), cut_off])
    _, points = maximise_linear(lifted, np.append(h, 1.0), cut_off, np.ones(d + 1))  # a ball knows one unit only
    return unit * points[0, :d], float(unit * points[0, d])


def recession_direction(W: Array) -> Array | None:
    r"""A unit vector of $\{t : W t \le 0\}$, or None if that cone is $\{0\}$: then $W e \le h$ is bounded.

    Examples
    --------
    >>> recession_direction(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]))
    array([ 0., -1.])
    """
    W, _, _, columns = _scaled(W, np.zeros(len(W)))
    _, singular, Vt = np.linalg.svd(W, full_matrices=True)
    if np.sum(singular > SOLVER * max(1.0, singular.max(initial=0.0))) < W.shape[1]:
        return _unit(Vt[-1], columns)
    # With full column rank, W t <= 0 and t != 0 imply sum(W t) < 0, so that one linear program decides.
    outward = -W.sum(axis=0)
    values, points = maximise_linear(
        np.vstack([W, outward]), np.append(np.zeros(len(W)), np.linalg.norm(outward)), outward[None, :]
    )
    return None if values[0] < 0.5 * np.linalg.norm(outward) or not outward.any() else _unit(points[0], columns)


def irredundant_rows(W: Array, h: Array) -> NDArray[np.int64]:
    r"""Indices of rows that suffice to describe $\{e : W e \le h\}$; none of them can be left out.

    Examples
    --------
    >>> irredundant_rows(np.array([[1.0], [1.0], [-1.0]]), np.array([2.0, 1.0, 1.0]))
    array([1, 2])
    """
    W, h, _, _ = _scaled(W, h)
    highs = _model(W, h)
    matters = _is_beyond_row if _is_optimal(highs) else _is_feasible_without_row
    kept, limits = [], h.copy()
    for k in range(len(W)):
        is_kept = matters(highs, W, limits, k)
        limits[k] = h[k] if is_kept else np.inf
        highs.changeRowBounds(k, -highspy.kHighsInf, limits[k])
        kept += [k] if is_kept else []
    return np.array(kept, dtype=np.int64)


def units_of_outcomes(W: Array, h: Array) -> Array:
    """Powers of two that make the entries of the half-spaces alike; ones where they are so already.

    Examples
    --------
    >>> units_of_outcomes(np.array([[1e6, 1.0], [-1e6, 1.0], [0.0, -1.0]]), np.ones(3)).tolist()
    [9.5367431640625e-07, 1.0]
    """
    sizes = np.abs(np.column_stack([W, h]))
    largest, least = sizes.max(initial=0.0), sizes.min(initial=np.inf, where=sizes > 0)
    if largest <= _ALIKE * least:
        return np.ones(W.shape[1])
    program = ConicProgram(np.zeros(W.shape[1]), sp.csr_array(W), h, (Cone("nonneg", len(W)),))
    columns = balance(program)[1]
    return columns if columns.max() > _ALIKE * columns.min() else np.ones(W.shape[1])


def _is_beyond_row(highs: Any, W: Array, h: Array, k: int) -> bool:
    # Relaxing by one unit, not removing, keeps the objective bounded whatever the other rows are.
    relaxed = h + np.eye(1, len(h), k)[0]
    highs.changeRowBounds(k, -highspy.kHighsInf, relaxed[k])
    highs.changeColsCost(W.shape[1], np.arange(W.shape[1], dtype=np.int32), W[k])
    point = _maximiser(highs, W, relaxed, W[k])
    return point is not None and bool(W[k] @ point > h[k] + SOLVER)


def _is_feasible_without_row(highs: Any, W: Array, h: Array, k: int) -> bool:
    """For an empty set, a row matters if leaving it out lets points in."""
    highs.changeRowBounds(k, -highspy.kHighsInf, highspy.kHighsInf)
    return _is_optimal(highs)


def _scaled(W: Array, h: Array, units: Array | None = None) -> tuple[Array, Array, float, Array]:
    """Rows of unit length and offsets of unit size, because solver tolerances are absolute; their unit, and outcomes'.

    Outcomes in units far from each other are put into their own, powers of two, so that no entry of a row of unit
    length is so small that HiGHS drops it.
    """
    columns = units_of_outcomes(W, h) if units is None else units
    return *_unit_rows(W * columns, h), columns


def _unit_rows(W: Array, h: Array) -> tuple[Array, Array, float]:
    """Rows of unit length and offsets of unit size, and that unit."""
    length = np.linalg.norm(W, axis=1)
    length = np.where(length > 0, length, 1.0)
    unit = float(np.abs(h / length).max(initial=0.0)) or 1.0
    return W / length[:, None], h / length / unit, unit


def _unit(vector: Array, columns: Array) -> Array:
    # Adding zero turns -0.0 into 0.0, which matters because the direction is quoted in error messages.
    rounded = columns * np.where(np.abs(vector) > SOLVER * np.abs(vector).max(), vector, 0.0)
    return rounded / np.linalg.norm(rounded) + 0.0


def _model(W: Array, h: Array) -> Any:
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    # Presolve would discard the basis; primal simplex is the method for a changed objective.
    highs.setOptionValue("presolve", "off")
    highs.setOptionValue("simplex_strategy", 4)
    highs.setOptionValue("primal_feasibility_tolerance", SOLVER)
    highs.setOptionValue("dual_feasibility_tolerance", SOLVER)
    rows = sp.csr_array(W)
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = W.shape
    lp.col_cost_ = np.zeros(W.shape[1])
    lp.col_lower_ = np.full(W.shape[1], -highspy.kHighsInf)
    lp.col_upper_ = np.full(W.shape[1], highspy.kHighsInf)
    lp.row_lower_ = np.full(W.shape[0], -highspy.kHighsInf)
    lp.row_upper_ = h
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = rows.indptr
    lp.a_matrix_.index_ = rows.indices
    lp.a_matrix_.value_ = rows.data
    lp.sense_ = highspy.ObjSense.kMaximize
    if highs.passModel(lp) == highspy.HighsStatus.kError:
        raise SolverError(f"HiGHS rejected a linear program with {W.shape[0]} rows and {W.shape[1]} columns.")
    return highs


def _maximiser(highs: Any, W: Array, h: Array, v: Array) -> Array | None:
    """The model's maximiser of v, proven by its multipliers; None if there is no point or no finite maximum."""
    for _ in range(2):  # the second time from scratch
        if not _is_optimal(highs):
            return None
        solution = highs.getSolution()
        x, y = np.asarray(solution.col_value), np.maximum(solution.row_dual, 0.0)
        slack = np.where(np.isfinite(h), h - W @ x, 0.0)
        size = 1 + np.abs(x).max(initial=0.0)
        wrong = max(-slack.min(initial=0.0), np.abs(v - y @ W).max(initial=0.0), abs(y @ slack)) / size
        if wrong + y[np.isposinf(h)].sum() <= SOLVED * (1 + y.sum()):
            return x
        highs.clearSolver()
    raise SolverError("HiGHS could not maximise a linear function over half-spaces: its answer does not hold.")


def _is_optimal(highs: Any) -> bool:
    """Solve; False if there is no point or no finite maximum, an error for any other outcome."""
    highs.run()
    status = highs.getModelStatus()
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnbounded):
        return False
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"HiGHS could not solve a linear program: {highs.modelStatusToString(status)}.")
    return True


def maximise_conic(form: ConicForm, directions: Array) -> Array:
    r"""Support function of a conic set: $\max\{v_i^\top e : g - G\,[e; y] \in K\}$ for every row $v_i$.

    Parameters
    ----------
    form : ConicForm
        With cones `zero`, `nonneg` and `soc`.
    directions : (m, d) array

    Returns
    -------
    values : (m,) array
        `inf` where unbounded, `-inf` if the set is empty.

    Examples
    --------
    >>> from polyhedge.solvers.program import Cone
    >>> disc = ConicForm(sp.csr_array([[0.0, 0.0], [-1.0, 0.0], [0.0, -1.0]]), np.array([2.0, 0.0, 0.0]),
    ...                  (Cone("soc", 3),))
    >>> maximise_conic(disc, np.array([[3.0, 4.0]])).round(6)
    array([10.])
    """
    unknown = {cone.kind for cone in form.cones} - {"zero", "nonneg", "soc"}
    if unknown:
        raise ValueError(f"A set may use the cones zero, nonneg, soc, got {', '.join(map(repr, sorted(unknown)))}.")
    n = form.G.shape[1]
    program = ConicProgram(c=np.zeros(n), A=form.G, b=form.g, cones=form.cones)
    values = np.empty(len(directions))
    for i, v in enumerate(directions):
        solution = solve_conic(replace(program, c=np.append(-v, np.zeros(n - len(v)))))
        if solution.status not in (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED):
            raise SolverError(f"Clarabel could not maximise a linear function over a conic set: {solution.detail}.")
        values[i] = {Status.INFEASIBLE: -np.inf, Status.UNBOUNDED: np.inf}.get(solution.status, -solution.value)
    return values
