r"""Parts of the paper's mixed-integer models: rows with products, facets that cover residuals, big-M constants.

$$W\epsilon_j \le q + M_j(1 - t_j)1,\quad 1^\top t \ge c_n,\quad t \in \{0,1\}^n,\qquad q = r1 - b$$

(Lemma 1, the score constraint, and Lemma 2, the big-M radius, of the paper) on standardised residuals. Every row of W
is normalised to largest absolute entry 1, or only bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from polyhedge._support.validation import Array, Indices
from polyhedge.calibration import conformal_radius
from polyhedge.learners.samples import Samples, standard_deviations
from polyhedge.problems import DecisionProblem, Pieces
from polyhedge.solvers.bilinear import BilinearProgram
from polyhedge.solvers.program import Cone, ConicProgram, Solution
from polyhedge.solvers.solve import solve

Contexts = str | int | Sequence[int] | Indices | None
"""For which predictions decisions are planned: "mean", so many random ones, these rows, or all."""


class CentredResiduals(NamedTuple):
    """Residuals (n, d) of mean 0 and spread 1 along each axis; `middle` and `scale` (d,) lead back."""

    residuals: Array
    middle: Array
    scale: Array

    @classmethod
    def of(cls, residuals: Array) -> Self:
        """Shift and scale each axis, so that bounds and big-M constants do not depend on the units of the data."""
        middle, scale = residuals.mean(axis=0), standard_deviations(residuals)
        return cls((residuals - middle) / scale, middle, scale)


@dataclass(frozen=True)
class SetColumns:
    """Columns of the set: W (K, d), q = r1 - b (K,), t (n,), s (2, K, d): which entry of W is +1 or -1, or empty."""

    W: Indices
    q: Indices
    t: Indices
    s: Indices


def add_set(rows: ModelRows, residuals: Array, rank: int, n_facets: int, largest: float | None = None) -> SetColumns:
    """Lemma 1 and Lemma 2: K facets that cover `rank` residuals.

    Facets are normalised by binaries s, or, where `largest` is given, have free entries up to it.
    """
    n, d = residuals.shape
    size = np.abs(residuals).sum(axis=1)
    bound = 1.0 if largest is None else largest
    nearest = bound * float(np.partition(size, n - rank)[n - rank])
    W = rows.columns(n_facets * d, -bound, bound).reshape(n_facets, d)
    q = rows.columns(n_facets, -nearest, bound * float(size.max()))
    t = rows.columns(n, 0.0, 1.0, integer=True)
    n_signs = 2 if largest is None else 0
    s = rows.columns(n_signs * n_facets * d, 0.0, 1.0, integer=True).reshape(n_signs, n_facets, d)
    M = bound * excess_over_selected(residuals, -np.ones((1, d)), np.ones((1, d)), rank)
    for k in range(n_facets):
        for residual, t_j, m in zip(residuals, t, M, strict=True):
            rows.at_most([*W[k], q[k], t_j], [*residual, -1.0, m], m)
        if largest is not None:
            continue
        rows.equal(s[:, k].ravel(), np.ones(2 * d), 1.0)
        for j in range(d):
            rows.at_most([W[k, j], s[0, k, j]], [-1.0, 2.0], 1.0)
            rows.at_most([W[k, j], s[1, k, j]], [1.0, 2.0], 1.0)
        if k:
            rows.at_most([W[k, 0], W[k - 1, 0]], [1.0, -1.0], 0.0)
    rows.at_most(t, -np.ones(n), -float(rank))
    return SetColumns(W, q, t, s)


def excess_over_selected(residuals: Array, low: Array, high: Array, rank: int) -> Array:
    r"""Big M: how far $v^\top\epsilon_j$ can exceed the largest $v^\top\epsilon_i$ of `rank` selected residuals.

    Whatever is selected, one of the n - rank + 1 samples i with the least $\max_v v^\top(\epsilon_j-\epsilon_i)$
    is; v ranges over the boxes between the rows of `low` and `high` (n_boxes, d), and the largest counts.
    """
    M = np.empty(len(residuals))
    for j, residual in enumerate(residuals):
        step = residual - residuals
        gain = np.maximum(step[:, None] * low, step[:, None] * high).sum(axis=2).max(axis=1)
        M[j] = np.partition(gain, len(residuals) - rank)[len(residuals) - rank]
    return np.maximum(M, 0.0)


def direction_bounds(problem: DecisionProblem, pieces: Pieces) -> tuple[Array, Array]:
    """Bounds (n_pieces, d) of the cost directions Q_l z + q_l over Z; infinite where a solver finds no end."""
    z, base = problem.feasible.z_columns, problem.feasible.program
    base = replace(base, c=np.zeros_like(base.c), P=None, offset=0.0)

    def highest(slope: Array) -> float:
        costs = np.zeros_like(base.c)
        costs[z] = -slope
        solution = solve(replace(base, c=costs))
        return solution.gap - solution.value if solution.status.has_solution else np.inf

    low, high = pieces.q.copy(), pieces.q.copy()
    # Costs with many pieces have few distinct slopes.
    slopes, which = np.unique(pieces.Q.reshape(-1, pieces.Q.shape[2]), axis=0, return_inverse=True)
    which = which.reshape(low.shape)
    for k in np.flatnonzero(slopes.any(axis=1)):
        low[which == k] -= highest(-slopes[k])
        high[which == k] += highest(slopes[k])
    return low, high


def bounded_directions(problem: DecisionProblem, pieces: Pieces, learner: str) -> tuple[Array, Array]:
    """As `direction_bounds`; an error where a direction has no bound."""
    low, high = direction_bounds(problem, pieces)
    if not np.isfinite([low, high]).all():
        raise ValueError(f"{learner} needs a bounded feasible set. Add bounds to the decision, or use Descent.")
    return low, high


def for_contexts(samples: Samples, contexts: Contexts, random_state: Any) -> tuple[Samples, str]:
    """The samples with the predictions that a model plans for, and a description of these."""
    conformal_radius(np.zeros(samples.n), samples.alpha)  # too few samples for alpha are an error here, not in a model
    centers, n = samples.centers, len(samples.centers)
    if contexts is None:
        return samples, f"all {n} contexts"
    if isinstance(contexts, str) and contexts == "mean":
        return replace(samples, centers=centers.mean(axis=0)[None]), "the mean prediction"
    if isinstance(contexts, (int, np.integer)):
        rows = np.sort(np.random.default_rng(random_state).choice(n, size=contexts, replace=False))
        return replace(samples, centers=centers[rows]), f"{contexts} random contexts"
    rows = np.asarray(contexts)
    return replace(samples, centers=centers[rows]), f"{len(rows)} given context(s)"


class ModelRows:
    """Collects columns, rows and products of a bilinear program; every row is an equation or `<=`.

    Other cones of embedded convex programs are kept apart; they are allowed in `conic` only.
    """

    def __init__(self) -> None:
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.cost: list[float] = []
        self.integer: list[int] = []
        self.entries: list[tuple[int, int, float]] = []
        self.products: list[tuple[int, int, int]] = []
        self.row_lower: list[float] = []
        self.row_upper: list[float] = []
        self.quadratic: list[tuple[int, int, float]] = []
        self.cones: list[tuple[Indices, sp.csr_array, Array, Cone]] = []
        self.offset = 0.0

    def columns(self, count: int, lower: float, upper: float, *, integer: bool = False, cost: float = 0.0) -> Indices:
        """New columns with common bounds and cost."""
        first = len(self.cost)
        self.lower += [lower] * count
        self.upper += [upper] * count
        self.cost += [cost] * count
        new = np.arange(first, first + count)
        self.integer += new.tolist() if integer else []
        return new

    def embed(self, program: ConicProgram, weight: float) -> Indices:
        """Columns and linear rows of a convex program, its cost times the weight."""
        x = self.columns(len(program.c), -np.inf, np.inf)
        self.integer += x[program.integer].tolist()
        self.add_cost(x, weight * program.c, weight * program.offset)
        if program.P is not None:
            P = program.P.tocoo()
            entries = zip(x[P.row].tolist(), x[P.col].tolist(), (weight * P.data).tolist(), strict=True)
            self.quadratic += list(entries)
        A, start = program.A, 0
        for cone in program.cones:
            block = slice(start, start + cone.n_rows)
            start += cone.n_rows
            if cone.kind not in ("zero", "nonneg"):
                self.cones.append((x, A[block], program.b[block], cone))
                continue
            for r in range(block.start, block.stop):
                span = slice(A.indptr[r], A.indptr[r + 1])
                add = self.equal if cone.kind == "zero" else self.at_most
                add(x[A.indices[span]], A.data[span], float(program.b[r]))
        return x

    def at_most(self, columns: Any, values: Any, limit: float) -> int:
        """Add a row; returns its index."""
        row = len(self.row_upper)
        entries = zip(np.asarray(columns).tolist(), np.asarray(values, dtype=float).tolist(), strict=True)
        self.entries += [(row, i, v) for i, v in entries if v]
        self.row_lower.append(-np.inf)
        self.row_upper.append(limit)
        return row

    def equal(self, columns: Any, values: Any, value: float) -> int:
        """Add an equation; returns its index."""
        row = self.at_most(columns, values, value)
        self.row_lower[row] = value
        return row

    def multiply(self, row: int, first: Indices, second: Indices) -> None:
        """Add products of matching columns to a row."""
        self.products += [(row, int(i), int(j)) for i, j in zip(first, second, strict=True)]

    def add_cost(self, columns: Any, values: Any, constant: float) -> None:
        """Add a linear cost."""
        for i, v in zip(np.asarray(columns).tolist(), np.asarray(values, dtype=float).tolist(), strict=True):
            self.cost[i] += v
        self.offset += constant

    def program(self) -> BilinearProgram:
        """Everything but the cones, as arrays."""
        n = len(self.cost)
        rows, columns, values = (np.array(part) for part in zip(*self.entries, strict=True))
        P = None
        if self.quadratic:
            i, j, v = (np.array(part) for part in zip(*self.quadratic, strict=True))
            P = sp.csr_array((v, (i, j)), shape=(n, n))
        return BilinearProgram(
            c=np.array(self.cost),
            A=sp.csr_array((values, (rows, columns)), shape=(len(self.row_upper), n)),
            row_lower=np.array(self.row_lower),
            row_upper=np.array(self.row_upper),
            products=np.array(self.products, dtype=np.int64).reshape(-1, 3),
            product_values=np.ones(len(self.products)),
            lower=np.array(self.lower),
            upper=np.array(self.upper),
            integer=np.array(self.integer, dtype=np.int64),
            P=P,
            offset=self.offset,
        )

    def conic(self) -> ConicProgram:
        """The program as a (mixed-integer) convex one; it must have no products."""
        linear = _conic(self.program())
        A, b = [linear.A], [linear.b]
        for x, block, rhs, _ in self.cones:
            entries = block.tocoo()
            A.append(sp.csr_array((entries.data, (entries.row, x[entries.col])), shape=(len(rhs), len(self.cost))))
            b.append(rhs)
        cones = (*linear.cones, *(cone for *_, cone in self.cones))
        return replace(linear, A=sp.vstack(A, format="csr"), b=np.concatenate(b), cones=cones)


def solve_with_fixed(program: BilinearProgram, columns: Indices, values: Array) -> Solution:
    """Solve the convex program that is left when one factor of every product is fixed."""
    n, m = len(program.c), len(program.row_lower)
    x = np.zeros(n)
    x[columns] = values
    row, fixed, free = program.products.T
    products = sp.csr_array((program.product_values * x[fixed], (row, free)), shape=(m, n))
    lower, upper = program.lower.copy(), program.upper.copy()
    lower[columns], upper[columns] = values, values
    without_products = replace(program, A=program.A + products, lower=lower, upper=upper)
    return solve(replace(_conic(without_products), integer=np.setdiff1d(program.integer, columns)))


def _conic(program: BilinearProgram) -> ConicProgram:
    """A program without products, with its bounds as rows."""
    box = sp.eye_array(len(program.c), format="csr")
    equation = program.row_lower == program.row_upper
    below, above = np.isfinite(program.lower), np.isfinite(program.upper)
    parts = [
        (program.A[equation], program.row_upper[equation], "zero"),
        (program.A[~equation], program.row_upper[~equation], "nonneg"),
        (box[above], program.upper[above], "nonneg"),
        (-box[below], -program.lower[below], "nonneg"),
    ]
    return ConicProgram(
        c=program.c,
        A=sp.vstack([part[0] for part in parts], format="csr"),
        b=np.concatenate([part[1] for part in parts]),
        cones=tuple(Cone(kind, len(b)) for _, b, kind in parts if len(b)),
        P=program.P,
        offset=program.offset,
        integer=program.integer,
    )
