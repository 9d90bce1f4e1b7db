"""Write formulas as this version of CVXPY gives them, with their values, for all other versions to read.

Run `python tests/files/make_formulas.py` with a new minor version of CVXPY.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

from polyhedge.problems.formula import to_data

HERE = Path(__file__).parent
Z = np.array([0.3, 1.2, 0.5])
M = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 3.0]])


def formulas(z: Any) -> dict[str, Any]:
    """Whatever a user may write with three decisions, by name."""
    Q = cp.multiply(M, cp.vstack([z, z, z]))
    found = {
        "square": cp.square(z),
        "power": cp.power(z, 1.5),
        "square root": cp.sqrt(z),
        "inverse": cp.inv_pos(z),
        "geometric mean": cp.geo_mean(z),
        "weighted geometric mean": cp.geo_mean(z, [1, 2, 1]),
        "2-norm": cp.norm(z),
        "1.5-norm": cp.norm(z, 1.5),
        "1-norm": cp.norm(z, 1),
        "largest": cp.max(z),
        "sum of largest": cp.sum_largest(z, 2),
        "sum of squares": cp.sum_squares(z - 1),
        "quadratic form": cp.quad_form(z, M),
        "square over linear": cp.quad_over_lin(z[:2], z[2]),
        "norms of rows": cp.norm(Q, 2, axis=1),
        "trace": cp.trace(Q),
        "transpose": Q.T @ z,
        "stacked": cp.hstack([z[0], z[1:]]),
        "reshaped": cp.reshape(Q, (9, 1), order="F"),
        "diagonal": cp.diag(Q),
        "diagonal matrix": cp.diag(z),
        "mean": cp.mean(z) + cp.sum(Q, axis=0) / 3,
        "running sums": cp.cumsum(z) - cp.diff(cp.hstack([0, z])),
        "chosen": z[[0, 2]],
        "masked": z[np.array([True, False, True])],
        "convolved": cp.convolve([1.0, 2.0], z),
        "kronecker": cp.kron(np.array([[1.0, 2.0]]), Q),
        "positive part": cp.pos(z - 0.4) + cp.neg(z - 0.4) + cp.abs(z - 1),
        "huber": cp.huber(z, 0.7),
        "exponentials": cp.exp(z) + cp.log(z) + cp.entr(z) + cp.logistic(z) + cp.kl_div(z, 1.0),
        "log of sum": cp.log_sum_exp(z),
        "eigenvalue": cp.lambda_max(Q + Q.T),
    }
    if hasattr(cp, "broadcast_to"):
        found["broadcast"] = cp.broadcast_to(z, (2, 3))
    return found


def constraints(z: Any) -> dict[str, Any]:
    """Conditions on three decisions, by name."""
    return {
        "less": z <= 2,
        "equal": cp.sum(z) == 2.0,
        "second-order cone": cp.SOC(z[1], z[[0, 2]]),
        "semidefinite": cp.diag(z) >> 0,
        "exponential cone": cp.ExpCone(z[0], z[1], z[2] + 3),
        "power cone": cp.PowCone3D(z[1], z[1], z[0], 0.4),
    }


def listed(array: np.ndarray) -> dict[str, Any]:
    return {"values": array.tolist()}


def main() -> None:
    z = cp.Variable(3)
    z.value = Z
    rows = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions tell of their defaults
        for name, node in {**formulas(z), **constraints(z)}.items():
            value = node.violation() if isinstance(node, cp.Constraint) else node.value
            rows[name] = {"value": np.asarray(value).tolist(), "tree": to_data(node, {z.id: "z"})}
    stem = "formulas_cvxpy_" + "_".join(cp.__version__.split(".")[:2])
    (HERE / f"{stem}.json").write_text(json.dumps(rows, default=listed, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
