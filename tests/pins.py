"""Fits across all routes whose radii, bounds and decisions stay the same while walls are moved.

`python tests/pins.py` writes them to tests/files/pins.json. The last bits of floating point differ between machines and
versions of NumPy and solvers, so that the test compares nine digits; with `POLYHEDGE_PINS=exact` it asks for every bit,
which holds where the file was written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

import polyhedge as ph
from polyhedge.learners import OneSidedBox, Scenario

FILES = Path(__file__).parent / "files"
PINS = FILES / "pins.json"
N_SHOWN = 3


def pins() -> dict[str, list[str]]:
    """Every pinned figure as a hexadecimal float, by the name of its fit."""
    return {name: as_text(make()) for name, make in FITS.items()}


def as_text(figures: np.ndarray) -> list[str]:
    return [float(value).hex() for value in np.ravel(figures)]


def shown(decider: ph.RobustDecider, X: Any, Y: Any = None, **parameters: Any) -> np.ndarray:
    """Radius, bounds and decisions of three rows, and what measuring them says."""
    found = decider.decide(X[:N_SHOWN], **parameters)
    figures = [[decider.radius_], found.cost_bound, found.z.ravel()]
    if Y is not None:
        measured = decider.measure(X, Y, **parameters)
        figures += [[measured.inside.mean(), measured.realised.mean(), measured.regret.mean()]]
    return np.concatenate(figures)


def fit(
    problem: ph.DecisionProblem, n: int = 120, learner: Any = None, *, measured: bool = True, n_new: int = N_SHOWN
) -> np.ndarray:
    """A fit on synthetic rows, and some more rows."""
    X, Y = ph.data.make_synthetic(n + n_new, rng=np.random.default_rng(7), n_outcomes=max(problem.n_outcomes, 2))
    Y = np.abs(Y)[:, : problem.n_outcomes]
    decider = ph.RobustDecider(problem, None, random_state=0, learner=learner or OneSidedBox())
    return shown(decider.fit(X[:n], Y[:n]), X[n:], Y[n:] if measured else None)


def budget(d: int, **kinds: Any) -> ph.DecisionProblem:
    z = cp.Variable(d, **(kinds or {"nonneg": True}))
    constraints = [cp.sum(z) >= 2, z <= 1]
    return ph.DecisionProblem(
        decision=z, cost=lambda z, u: u @ z + 0.3 * cp.sum(z), constraints=constraints, n_outcomes=d
    )


def uncertain() -> ph.DecisionProblem:
    z = cp.Variable(2, nonneg=True)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: np.array([1.0, 1.5]) @ z,
        constraints=[z <= 20],
        uncertain_constraints=lambda z, u: [z[0] + 0.5 * z[1] >= u[0], z[1] >= u[1] - 1],
        n_outcomes=2,
    )


def concave() -> ph.DecisionProblem:
    z = cp.Variable(2, nonneg=True)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(z) + 4 * cp.sqrt(u[0] + 1) - u @ z * 0.1,
        constraints=[cp.sum(z) == 1],
        n_outcomes=2,
        outcome_support=lambda u: [u >= 0],
    )


def grouped() -> np.ndarray:
    X, Y = ph.data.make_synthetic(305, rng=np.random.default_rng(7))
    decider = ph.RobustDecider(ph.problems.simplex_linear([-0.08, 0.0]), None, learner=OneSidedBox(), random_state=0)
    return shown(decider.fit(X[:300], Y[:300], groups=np.arange(300) // 3), X[300:], Y[300:])


def scaled() -> np.ndarray:
    """A spread that is found: residuals grow with the first feature."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(305, 2))
    Y = rng.normal(size=(305, 2)) * np.exp(2.5 * X[:, :1])
    decider = ph.RobustDecider(ph.problems.simplex_linear([-0.08, 0.0]), None, guarantee="outcome", random_state=0)
    decider.fit(X[:300], Y[:300])
    assert decider.spread_ is not None
    return shown(decider, X[300:], Y[300:])


def precomputed() -> np.ndarray:
    Y = np.random.default_rng(1).normal(size=(105, 2))
    decider = ph.RobustDecider(
        ph.problems.newsvendor(0.3, 0.7, 2), "precomputed", learner=OneSidedBox(), random_state=0
    )
    return shown(decider.fit(Y[:100] * 0.5 + 4, Y[:100] + 4), Y[100:] * 0.5 + 4, Y[100:] + 4)


def with_parameters() -> np.ndarray:
    z, price = cp.Variable(2, nonneg=True), cp.Parameter(2, name="price")
    simplex = [cp.sum(z) == 1]
    problem = ph.DecisionProblem(decision=z, cost=lambda z, u: (u + price) @ z, constraints=simplex, n_outcomes=2)
    X, Y = ph.data.make_synthetic(105, rng=np.random.default_rng(7))
    prices = np.random.default_rng(2).uniform(size=(105, 2))
    decider = ph.RobustDecider(problem, None, learner=OneSidedBox(), random_state=0)
    decider.fit(X[:100], Y[:100], parameters={"price": prices[:100]})
    return shown(decider, X[100:103], Y[100:103], parameters={"price": prices[100:103]})


def loaded(stem: str) -> np.ndarray:
    X = np.array(json.loads((FILES / f"{stem}.json").read_text())["X"])
    return shown(ph.load(FILES / f"{stem}.polyhedge"), X)


FITS: dict[str, Callable[[], np.ndarray]] = {
    "default on a segment, with a spread": scaled,
    "exact selection": lambda: fit(ph.problems.simplex_linear([-0.08, 0.0]), n=80, learner=Scenario()),
    "segment, pieces": lambda: fit(ph.problems.simplex_newsvendor(0.3, 0.7, 2)),
    "segment, quadratic": lambda: fit(ph.problems.simplex_quadratic([-0.08, 0.0], 0.1)),
    "five outcomes": lambda: fit(ph.problems.simplex_linear(np.zeros(5))),
    "quadratic, four outcomes": lambda: fit(ph.problems.simplex_quadratic(np.zeros(4), 0.1)),
    "known support": lambda: fit(ph.problems.newsvendor(0.3, 0.7, 3)),
    "one outcome": lambda: fit(ph.problems.newsvendor(0.3, 0.7, 1)),
    "integers": lambda: fit(budget(3, boolean=True), n=60, measured=False),
    "uncertain constraints": lambda: fit(uncertain()),
    "no pieces": lambda: fit(concave(), n=60, measured=False, n_new=1),
    "groups": grouped,
    "predictions that are given": precomputed,
    "parameters": with_parameters,
    "file of format 1": lambda: loaded("model_0_1"),
    "file of format 2": lambda: loaded("model_0_1_spread"),
}


if __name__ == "__main__":
    PINS.write_text(json.dumps(pins(), indent=0) + "\n")
