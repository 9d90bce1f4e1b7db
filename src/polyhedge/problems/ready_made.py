"""Ready-made decision problems: functions that return a `DecisionProblem`."""

from __future__ import annotations

from collections.abc import Sequence

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.tolerances import INPUT
from polyhedge._support.validation import Array, as_finite
from polyhedge.problems.decision_problem import Cost, DecisionProblem
from polyhedge.problems.layout import as_names


def simplex_linear(c: ArrayLike, *, names: Sequence[str] = ()) -> DecisionProblem:
    r"""Split a unit budget: $g(z, u) = (c + u)^\top z$ over the probability simplex; `names` of the outcomes, if any.

    Examples
    --------
    >>> simplex_linear([-0.08, 0.0]).n_outcomes
    2
    """
    c = as_finite(c, "c", ndim=1)
    return _on_simplex("simplex linear", len(c), lambda z, u: (c + u) @ z, names)


def simplex_quadratic(c: ArrayLike, beta: float, *, names: Sequence[str] = ()) -> DecisionProblem:
    r"""Split a unit budget evenly if it costs little: $(c + u)^\top z + \beta \sum_{i<j} (z_i - z_j)^2$.

    `names` are those of the outcomes, if any.

    Examples
    --------
    >>> problem = simplex_quadratic([-0.08, 0.0], 0.08)
    >>> problem.n_outcomes, problem.n_decisions
    (2, 2)
    """
    c = as_finite(c, "c", ndim=1)
    i, j = np.triu_indices(len(c), k=1)
    cost: Cost = lambda z, u: (c + u) @ z + float(beta) * cp.sum_squares(z[i] - z[j])  # noqa: E731
    return _on_simplex("simplex quadratic", len(c), cost, names)


def simplex_newsvendor(
    overage: ArrayLike, underage: ArrayLike, n_outcomes: int | None = None, *, names: Sequence[str] = ()
) -> DecisionProblem:
    r"""Split a unit of stock over products with unknown demand u.

    $g(z, u) = \sum_j o_j \max(z_j - u_j, 0) + \underline{c}_j \max(u_j - z_j, 0)$ over the simplex;
    `overage` and `underage` are numbers or one for each product; `n_outcomes` and `names` as in `newsvendor`.

    Examples
    --------
    >>> problem = simplex_newsvendor(1.0, 2.0, 2)
    >>> problem.n_outcomes, problem.n_decisions
    (2, 2)
    """
    n, cost = _newsvendor_cost(overage, underage, n_outcomes, names)
    return _on_simplex("simplex newsvendor", n, cost, names)


def newsvendor(
    overage: ArrayLike,
    underage: ArrayLike,
    n_outcomes: int | None = None,
    *,
    capacity: float | None = None,
    sizes: ArrayLike = 1.0,
    integer: bool = False,
    nonnegative_demand: bool = True,
    names: Sequence[str] = (),
) -> DecisionProblem:
    r"""Order quantities z >= 0 of several products under $\sum_j \text{size}_j z_j \le \text{capacity}$.

    Parameters
    ----------
    overage, underage : number or (n_outcomes,)
        Cost of a unit left over and of a unit of demand not met.
    n_outcomes : int, optional
        Number of products, if neither the costs nor `names` give it.
    capacity : float, optional
        Total space; None for no limit.
    sizes : number or (n_outcomes,)
        Space that a unit takes.
    integer : bool
        Whole units only.
    nonnegative_demand : bool
        Cut demands below zero off every uncertainty set.
    names : sequence of str, optional
        Names of the products, or a frame with such columns: outcomes are called so, and decisions ``order_`` with the
        name. Where none are given, `fit` takes those of the columns of its Y.

    Examples
    --------
    >>> newsvendor([1.0, 2.0], 4.0, names=["rolls", "bread"]).decision_names
    ('order_rolls', 'order_bread')
    """
    n, cost = _newsvendor_cost(overage, underage, n_outcomes, names)
    z, space = cp.Variable(n, nonneg=True, integer=integer, name="order"), _one_for_each(sizes, n, "sizes")
    return DecisionProblem(
        decision=z,
        cost=cost,
        constraints=[] if capacity is None else [space @ z <= capacity],
        n_outcomes=n,
        outcome_support=(lambda u: [u >= 0]) if nonnegative_demand else None,
        name="newsvendor",
        outcome_names=names,
        is_paired=True,
    )


def portfolio(
    covariance: ArrayLike,
    *,
    risk_aversion: float = 1.0,
    budget: float = 1.0,
    lower: ArrayLike = 0.0,
    upper: ArrayLike = 1.0,
    names: Sequence[str] = (),
) -> DecisionProblem:
    r"""Invest a budget for unknown returns u: $-u^\top z + \gamma\, z^\top \Sigma z$, bounds on each asset.

    Parameters
    ----------
    covariance : (n_assets, n_assets)
        $\Sigma$, of the returns: symmetric and positive semidefinite.
    risk_aversion : float
        $\gamma$, the price of variance.
    budget : float
        What the weights z add up to.
    lower, upper : number or (n_assets,)
        Bounds on the weight of each asset.
    names : sequence of str, optional
        Names of the assets, or a frame with such columns: outcomes are called so, and decisions ``weight_`` with the
        name. Where none are given, `fit` takes those of the columns of its Y.

    Examples
    --------
    >>> problem = portfolio([[0.04, 0.01], [0.01, 0.09]], risk_aversion=2.0, names=["bonds", "shares"])
    >>> problem.decision_names
    ('weight_bonds', 'weight_shares')
    >>> float(problem.evaluate(np.array([[0.5, 0.5]]), np.array([[0.02, 0.06]]))[0].round(6))
    0.035
    """
    covariance = as_finite(covariance, "covariance", ndim=2)
    n_assets = len(covariance)
    root = root_of(covariance, "covariance")
    low, high = (_one_for_each(b, n_assets, n) for b, n in ((lower, "lower"), (upper, "upper")))
    z = cp.Variable(n_assets, name="weight")
    return DecisionProblem(
        decision=z,
        cost=lambda z, u: -u @ z + float(risk_aversion) * cp.sum_squares(root @ z),
        constraints=[cp.sum(z) == budget, z >= low, z <= high],
        n_outcomes=n_assets,
        name="portfolio",
        outcome_names=names,
        is_paired=True,
    )


def root_of(P: Array, name: str) -> Array:
    """R with z'Pz = |Rz|^2, which CVXPY sees to be convex, of a symmetric positive semidefinite matrix."""
    skew = float(np.abs(P - P.T).max())
    if skew > INPUT * np.abs(P).max():
        raise ValueError(f"{name} must be symmetric, got entries that differ by {skew:.3g} from their mirror image.")
    values, vectors = np.linalg.eigh((P + P.T) / 2)
    if values.min() < -INPUT * np.abs(values).max():
        raise ValueError(
            f"{name} must be positive semidefinite, its least eigenvalue is {values.min():.3g}: the cost would not be "
            "convex."
        )
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def _on_simplex(name: str, n: int, cost: Cost, names: Sequence[str]) -> DecisionProblem:
    z = cp.Variable(n, nonneg=True, name="z")
    return DecisionProblem(
        decision=z,
        cost=cost,
        constraints=[cp.sum(z) == 1],
        n_outcomes=n,
        name=name,
        outcome_names=names,
        is_paired=True,
    )


def _newsvendor_cost(overage: ArrayLike, underage: ArrayLike, n: int | None, names: Sequence[str]) -> tuple[int, Cost]:
    """The number of products, which costs or names may give, and their cost."""
    if n is None:
        sizes = [np.size(costs) for costs in (overage, underage) if np.ndim(costs)]
        sizes += [len(as_names(names))] if len(as_names(names)) else []
        if not sizes:
            raise ValueError("The number of products is missing: give one cost for each, their names, or n_outcomes.")
        n = next((size for size in sizes if size > 1), 1)
    over, under = _one_for_each(overage, n, "overage"), _one_for_each(underage, n, "underage")
    return n, lambda z, u: over @ cp.pos(z - u) + under @ cp.pos(u - z)


def _one_for_each(values: ArrayLike, n: int, name: str) -> Array:
    array = np.asarray(values, dtype=float)
    if array.shape not in ((), (n,)):
        raise ValueError(f"{name} must be a number or have {n} entries, got shape {array.shape}.")
    return np.broadcast_to(array, (n,)).copy()
