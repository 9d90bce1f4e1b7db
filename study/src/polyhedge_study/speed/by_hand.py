"""What a user would write instead of `fit`: a forest, one program a row and a conformal margin.

A `Script` knows one problem: its cost in NumPy and the decision of least mean cost over scenarios. If the prediction is
the only scenario, this decision trusts the forecast. With out-of-bag residuals around it, it is the sample average.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from sklearn.ensemble import RandomForestRegressor

from polyhedge_study.inside import Array, Indices

__all__ = ["ALPHA", "Decide", "Script", "guarded", "margin", "quadratic", "served", "shares", "stock"]

ALPHA = 0.1
"""The default of the library, written out."""
N_SCENARIOS = 100
"""Residuals around a prediction: programs of a few milliseconds."""
Decide = Callable[[Any, Array], tuple[Array, Array]]
"""Features and parameters of rows -> decisions (N, p) and bounds (N,)."""


@dataclass(frozen=True)
class Script:
    """One problem by hand.

    Attributes
    ----------
    cost : decisions (..., p), outcomes (..., d) and the row's parameter (...) -> costs (...).
    solve : scenarios (s, d) and the row's parameter -> the decision (p,) of least risk.
    """

    cost: Callable[[Array, Array, Array], Array]
    solve: Callable[[Array, float], Array]


def stock(over: Array, under: Array, A: Array, b: Array, *, integer: bool = False, priced: bool = False) -> Script:
    """Orders z >= 0 with A z <= b; a unit left over or short costs, where `priced` the latter times the parameter."""
    d = len(over)

    def cost(z: Array, u: Array, theta: Array) -> Array:
        short = under * np.maximum(u - z, 0.0)
        return np.asarray((over * np.maximum(z - u, 0.0) + (short * theta[..., None] if priced else short)).sum(-1))

    @cache
    def matrix(s: int) -> Any:
        each, here = sparse.identity(s * d), sparse.kron(np.ones((s, 1)), sparse.identity(d))
        rows = [[here, -each, None], [-here, None, -each], [sparse.csr_array(A), None, None]]
        return sparse.block_array(rows, format="csc")

    def solve(scenarios: Array, theta: float) -> Array:
        s = len(scenarios)
        price = under * theta if priced else under
        c = np.concatenate([np.zeros(d), np.tile(over, s) / s, np.tile(price, s) / s])
        u = scenarios.ravel()
        rows = LinearConstraint(matrix(s), -np.inf, np.concatenate([u, -u, b]))
        whole = np.r_[np.ones(d), np.zeros(2 * s * d)] if integer else None
        z = milp(c, constraints=rows, integrality=whole, bounds=Bounds(0, np.inf)).x[:d]
        return np.asarray(z.round() if integer else z)

    return Script(cost, solve)


def shares(d: int, tail: float = 1.0, sign: float = 1.0) -> Script:
    """Weights on the simplex at costs sign u'z; the mean of the worst share `tail` of the scenarios is least."""

    def solve(scenarios: Array, theta: float) -> Array:
        U, s = sign * scenarios, len(scenarios)
        if tail == 1.0 or s == 1:
            return np.asarray(linprog(U.mean(axis=0), A_eq=np.ones((1, d)), b_eq=[1.0]).x)
        # Variables: weights, the quantile, excesses over it.
        c = np.concatenate([np.zeros(d), [1.0], np.full(s, 1 / (tail * s))])
        A = np.hstack([U, -np.ones((s, 1)), -np.eye(s)])
        total = np.concatenate([np.ones(d), np.zeros(1 + s)])[None]
        bounds = [(0, None)] * d + [(None, None)] + [(0, None)] * s
        return np.asarray(linprog(c, A_ub=A, b_ub=np.zeros(s), A_eq=total, b_eq=[1.0], bounds=bounds).x[:d])

    return Script(lambda z, u, theta: sign * (z * u).sum(-1), solve)


def quadratic(P: Array, sign: float = 1.0) -> Script:
    """Weights on the simplex at costs sign u'z + z'Pz: the mean over scenarios is the cost at their mean."""
    z, u = cp.Variable(len(P), nonneg=True), cp.Parameter(len(P))
    program = cp.Problem(cp.Minimize(sign * u @ z + cp.quad_form(z, cp.psd_wrap(P))), [cp.sum(z) == 1])

    def solve(scenarios: Array, theta: float) -> Array:
        u.value = scenarios.mean(axis=0)
        program.solve(solver=cp.CLARABEL)
        return np.asarray(z.value)

    return Script(lambda z, u, theta: sign * (z * u).sum(-1) + np.einsum("...i,ij,...j", z, P, z), solve)


def guarded(script: Script, X: Any, Y: Array, theta: Array, n_scenarios: int) -> Decide:
    """Decisions of a script, and their planned cost plus a margin; no scenarios: trust the prediction."""
    develop, calibrate = _parts(len(Y))
    forest, columns = _forest(_take(X, develop), Y[develop], out_of_bag=n_scenarios > 0)
    residuals = np.zeros((1, Y.shape[1]))
    if n_scenarios:
        some = np.random.default_rng(0).permutation(len(develop))[:n_scenarios]
        residuals = (Y[develop] - forest.oob_prediction_)[some]

    def plan(X: Any, theta: Array) -> tuple[Array, Array]:
        around = _predict(forest, X, columns)[:, None] + residuals
        z = np.array([script.solve(scenarios, float(t)) for scenarios, t in zip(around, theta, strict=True)])
        return z, script.cost(z[:, None], around, theta[:, None]).mean(axis=1)

    z, planned = plan(_take(X, calibrate), theta[calibrate])
    radius = margin(script.cost(z, Y[calibrate], theta[calibrate]) - planned)

    def decide(X: Any, theta: Array) -> tuple[Array, Array]:
        z, planned = plan(X, theta)
        return z, planned + radius

    return decide


def served(script: Script, X: Any, Y: Array, theta: Array, *, scaled: bool) -> Decide:
    """Serve the forecast plus a margin, the same at all rows or k times the predicted size of the error."""
    develop, calibrate = _parts(len(Y))
    known = _take(X, develop)
    forest, columns = _forest(known, Y[develop], out_of_bag=scaled)
    error = _forest(known, np.abs(Y[develop] - forest.oob_prediction_))[0] if scaled else None

    def target(X: Any) -> tuple[Array, Array]:
        return _predict(forest, X, columns), _predict(error, X, columns) if scaled else np.ones((len(X), Y.shape[1]))

    center, size = target(_take(X, calibrate))
    k = margin(((Y[calibrate] - center) / size).max(axis=1))

    def decide(X: Any, theta: Array) -> tuple[Array, Array]:
        center, size = target(X)
        z = np.array([script.solve(u[None], 0.0) for u in center + k * size])
        return z, script.cost(z, center, theta)

    decide(_take(X, calibrate), theta[calibrate])  # what the calibration rows would cost
    return decide


def margin(scores: Array) -> float:
    """The conformal rank of the scores."""
    return float(np.sort(scores)[int(np.ceil((1 - ALPHA) * (len(scores) + 1) - 1e-9)) - 1])


def _parts(n: int) -> tuple[Indices, Indices]:
    """Three quarters to develop with, one to calibrate."""
    order = np.random.default_rng(0).permutation(n)
    return order[: 3 * n // 4], order[3 * n // 4 :]


def _forest(X: Any, Y: Array, *, out_of_bag: bool = False) -> tuple[Any, Any]:
    """A forest, and the columns of its table."""
    table, forest = _numbers(X, None), RandomForestRegressor(oob_score=out_of_bag, random_state=0)
    return forest.fit(np.asarray(table, dtype=float), Y), getattr(table, "columns", None)


def _predict(forest: Any, X: Any, columns: Any) -> Array:
    return np.asarray(forest.predict(np.asarray(_numbers(X, columns), dtype=float)))


def _numbers(X: Any, columns: Any) -> Any:
    """A frame in numbers: texts as indicators, dates as days."""
    if not isinstance(X, pd.DataFrame):
        return X
    dates = X.select_dtypes("datetime").apply(lambda column: column.astype("int64") / 8.64e13)
    table = pd.get_dummies(X.assign(**dates))
    return table if columns is None else table.reindex(columns=columns, fill_value=0)


def _take(X: Any, rows: Indices) -> Any:
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]
