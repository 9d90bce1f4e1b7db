"""Linear functions over a set given by half-spaces or by a conic form: HiGHS and Clarabel behind arrays."""

from __future__ import annotations

from typing import Any

import clarabel
import highspy
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyhedge._validation import Array
from polyhedge.solvers.program import Cone, ConicForm, SolverError

# Relative to the unit-norm rows and unit-size right-hand sides that every model below is scaled to.
TOLERANCE = 1e-9


def maximise_linear(W: Array, h: Array, directions: Array) -> tuple[Array, Array]:
    r"""Maximise linear functions over one polyhedron: $\max\{v_i^\top e : W e \le h\}$ for every row $v_i$.

    One HiGHS instance serves all directions: the basis of one is the (primal feasible) start of the next.

    Parameters
    ----------
    W : (n_facets, d) array
    h : (n_facets,) array
    directions : (m, d) array

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
    W, h, unit = _scaled(W, h)
    points = np.full(directions.shape, np.nan)
    highs = _model(W, h)
    if not _is_optimal(highs):
        return np.full(len(directions), -np.inf), points
    values = np.full(len(directions), np.inf)
    columns = np.arange(W.shape[1], dtype=np.int32)
    for i, v in enumerate(directions):
        length = float(np.abs(v).max(initial=0.0)) or 1.0
        highs.changeColsCost(len(columns), columns, v / length)
        if _is_optimal(highs):
            points[i] = unit * np.asarray(highs.getSolution().col_value)
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
    W, h, unit = _scaled(W, h)
    d = W.shape[1]
    cut_off = np.eye(1, d + 1, d)
    lifted = np.vstack([np.hstack([W, np.ones((len(W), 1))]), cut_off])
    _, points = maximise_linear(lifted, np.append(h, 1.0), cut_off)
    return unit * points[0, :d], float(unit * points[0, d])


def recession_direction(W: Array) -> Array | None:
    r"""A unit vector of $\{t : W t \le 0\}$, or None if that cone is $\{0\}$: then $W e \le h$ is bounded.

    Examples
    --------
    >>> recession_direction(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]))
    array([ 0., -1.])
    """
    W, _, _ = _scaled(W, np.zeros(len(W)))
    _, singular, Vt = np.linalg.svd(W, full_matrices=True)
    if np.sum(singular > TOLERANCE * max(1.0, singular.max(initial=0.0))) < W.shape[1]:
        return _unit(Vt[-1])
    # With full column rank, W t <= 0 and t != 0 imply sum(W t) < 0, so that one linear program decides.
    outward = -W.sum(axis=0)
    values, points = maximise_linear(
        np.vstack([W, outward]), np.append(np.zeros(len(W)), np.linalg.norm(outward)), outward[None, :]
    )
    return None if values[0] < 0.5 * np.linalg.norm(outward) or not outward.any() else _unit(points[0])


def irredundant_rows(W: Array, h: Array) -> NDArray[np.int64]:
    r"""Indices of rows that suffice to describe $\{e : W e \le h\}$; none of them can be left out.

    Examples
    --------
    >>> irredundant_rows(np.array([[1.0], [1.0], [-1.0]]), np.array([2.0, 1.0, 1.0]))
    array([1, 2])
    """
    W, h, _ = _scaled(W, h)
    highs = _model(W, h)
    matters = _is_beyond_row if _is_optimal(highs) else _is_feasible_without_row
    kept = []
    for k in range(len(W)):
        if matters(highs, W[k], h[k], k):
            kept.append(k)
            highs.changeRowBounds(k, -highspy.kHighsInf, h[k])
        else:
            highs.changeRowBounds(k, -highspy.kHighsInf, highspy.kHighsInf)
    return np.array(kept, dtype=np.int64)


def _is_beyond_row(highs: Any, w: Array, h_k: float, k: int) -> bool:
    # Relaxing by one unit, not removing, keeps the objective bounded whatever the other rows are.
    highs.changeRowBounds(k, -highspy.kHighsInf, h_k + 1.0)
    highs.changeColsCost(len(w), np.arange(len(w), dtype=np.int32), w)
    return _is_optimal(highs) and highs.getObjectiveValue() > h_k + TOLERANCE


def _is_feasible_without_row(highs: Any, w: Array, h_k: float, k: int) -> bool:
    """For an empty set, a row matters if leaving it out lets points in."""
    highs.changeRowBounds(k, -highspy.kHighsInf, highspy.kHighsInf)
    return _is_optimal(highs)


def _scaled(W: Array, h: Array) -> tuple[Array, Array, float]:
    """Rows of unit length and offsets of unit size, because solver tolerances are absolute."""
    length = np.linalg.norm(W, axis=1)
    length = np.where(length > 0, length, 1.0)
    unit = float(np.abs(h / length).max(initial=0.0)) or 1.0
    return W / length[:, None], h / length / unit, unit


def _unit(vector: Array) -> Array:
    # Adding zero turns -0.0 into 0.0, which matters because the direction is quoted in error messages.
    rounded = np.where(np.abs(vector) > TOLERANCE * np.abs(vector).max(), vector, 0.0)
    return rounded / np.linalg.norm(rounded) + 0.0


def _model(W: Array, h: Array) -> Any:
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    # Presolve would discard the basis; primal simplex is the method for a changed objective.
    highs.setOptionValue("presolve", "off")
    highs.setOptionValue("simplex_strategy", 4)
    highs.setOptionValue("primal_feasibility_tolerance", TOLERANCE)
    highs.setOptionValue("dual_feasibility_tolerance", TOLERANCE)
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
    >>> disc = ConicForm(sp.csr_array([[0.0, 0.0], [-1.0, 0.0], [0.0, -1.0]]), np.array([2.0, 0.0, 0.0]),
    ...                  (Cone("soc", 3),))
    >>> maximise_conic(disc, np.array([[3.0, 4.0]])).round(6)
    array([10.])
    """
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    n = form.G.shape[1]
    P, G = sp.csc_matrix((n, n)), sp.csc_matrix(form.G)
    cones = [_clarabel_cone(cone) for cone in form.cones]
    values = np.empty(len(directions))
    for i, v in enumerate(directions):
        length = float(np.abs(v).max(initial=0.0)) or 1.0
        q = np.append(-v / length, np.zeros(n - len(v)))
        values[i] = length * _conic_value(clarabel.DefaultSolver(P, q, G, form.g, cones, settings).solve())
    return values


def _conic_value(solution: Any) -> float:
    status = str(solution.status)
    if status in ("PrimalInfeasible", "AlmostPrimalInfeasible"):
        return -np.inf
    if status in ("DualInfeasible", "AlmostDualInfeasible"):
        return np.inf
    if status not in ("Solved", "AlmostSolved"):
        raise SolverError(f"Clarabel could not maximise a linear function over a conic set: {status}.")
    return -float(solution.obj_val)


def _clarabel_cone(cone: Cone) -> Any:
    kinds = {
        "zero": clarabel.ZeroConeT,
        "nonneg": clarabel.NonnegativeConeT,
        "soc": clarabel.SecondOrderConeT,
    }
    if cone.kind not in kinds:
        raise ValueError(f"A set may use the cones {', '.join(kinds)}, got {cone.kind!r}.")
    return kinds[cone.kind](cone.size)
